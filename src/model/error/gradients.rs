//! Errors of `grad`.

use miette::{Diagnostic, SourceSpan};
use thiserror::Error;

/// A gradient that does not exist, or does not fit.
#[derive(Clone, Debug, Error, Diagnostic)]
pub enum GradientError {
    #[error("`{what}` has no gradient: {why}")]
    #[diagnostic(code(aorta::model::not_differentiable), help("{help}"))]
    NotDifferentiable {
        what: String,
        why: String,
        help: String,
        #[label("this gradient is requested here")]
        asked: SourceSpan,
        #[label("{place}")]
        at: SourceSpan,
        place: &'static str,
    },

    #[error("nothing depends on `{name}`: its gradient is zero")]
    #[diagnostic(
        code(aorta::model::no_gradient),
        help("write `_` in its place; whole numbers, comparisons and roundings pass no gradient on")
    )]
    Zero {
        name: String,
        of: String,
        #[label("this gradient of `{of}`")]
        at: SourceSpan,
    },

    #[error("the gradient of `{name}` is {expected}, and this is {found}")]
    #[diagnostic(
        code(aorta::model::gradient_type),
        help("change the declaration or the slice, so that it is {expected}{or}")
    )]
    Type {
        name: String,
        expected: String,
        /// Another type that is allowed, or the reason of the type, as the end of a sentence; may be empty.
        or: &'static str,
        found: String,
        #[label("{found}")]
        at: SourceSpan,
        #[label("`{name}` is here")]
        tensor: SourceSpan,
    },

    #[error("the value of `{name}` that `{reader}` {used} has been overwritten")]
    #[diagnostic(
        code(aorta::model::overwritten),
        help(
            "the gradient needs that value: write the new one to other memory, or call `grad` above the operation that \
             overwrites it"
        )
    )]
    Overwritten {
        name: String,
        reader: String,
        used: &'static str,
        #[label("overwritten here")]
        written: SourceSpan,
        #[label("its gradient needs the value")]
        at: SourceSpan,
    },
}
