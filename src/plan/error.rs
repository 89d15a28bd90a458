//! Mistakes in the order of operations.

use miette::{Diagnostic, SourceSpan};
use thiserror::Error;

#[derive(Clone, Debug, Error, Diagnostic)]
pub enum PlanError {
    #[error("`{first}` and `{second}` race for `{memory}`")]
    #[diagnostic(
        code(aorta::plan::race),
        help(
            "nothing orders them: {missing}; `step(order: data)` finds such orders by itself, \
             `races: allow` permits all of them"
        )
    )]
    Race {
        first: String,
        second: String,
        memory: String,
        /// What to write for the dependency that is not there.
        missing: Box<str>,
        #[label("{first_does} {first_slice} on stream `{first_stream}`")]
        first_at: SourceSpan,
        first_does: &'static str,
        first_slice: String,
        first_stream: Box<str>,
        #[label("{second_does} {second_slice} on stream `{second_stream}`{second_when}")]
        second_at: SourceSpan,
        second_does: &'static str,
        second_slice: String,
        second_stream: Box<str>,
        /// Of which iteration the second is, if of another.
        second_when: &'static str,
    },

    #[error("more than {limit} pairs of slices of `{memory}` have elements in common")]
    #[diagnostic(
        code(aorta::plan::tangled),
        help(
            "each pair is looked at for dependencies; cut `{memory}` into slices that are equal or lie apart, \
             or work on it in fewer operations"
        )
    )]
    Tangled {
        memory: String,
        limit: usize,
        #[label("one of them")]
        at: SourceSpan,
    },
}
