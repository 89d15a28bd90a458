//! Errors of kernels that a file declares, and of their calls.

use miette::{Diagnostic, SourceSpan};
use thiserror::Error;

/// A mistake in the declaration or in a call of a `kernel`.
#[derive(Clone, Debug, Error, Diagnostic)]
pub enum KernelError {
    #[error("the kernel `{name}` {why}")]
    #[diagnostic(code(aorta::model::kernel_source), help("{help}"))]
    Source {
        name: String,
        why: String,
        help: String,
        #[label("{place}")]
        at: SourceSpan,
        place: &'static str,
    },

    #[error("the kernel `{name}` {why}")]
    #[diagnostic(code(aorta::model::kernel_field), help("write {help}"))]
    Field {
        name: String,
        why: String,
        help: &'static str,
        #[label("here")]
        at: SourceSpan,
    },

    #[error("{param} of the kernel `{name}` {why}")]
    #[diagnostic(code(aorta::model::kernel_signature), help("{help}"))]
    Signature {
        name: String,
        param: String,
        why: &'static str,
        help: &'static str,
        #[label("here")]
        at: SourceSpan,
    },

    #[error("`{param}` of the kernel `{name}` is {expected}, and this is {found}")]
    #[diagnostic(code(aorta::model::kernel_operand), help("{help}"))]
    Operand {
        name: String,
        param: String,
        expected: String,
        found: String,
        help: &'static str,
        #[label("this is {found}")]
        at: SourceSpan,
        #[label("declared here")]
        declared: SourceSpan,
    },

    #[error("the size `{size}` of the kernel `{name}` is unknown")]
    #[diagnostic(
        code(aorta::model::kernel_size),
        help("write the output after the arrow, so that its type gives `{size}`")
    )]
    Size {
        name: String,
        size: String,
        #[label("no input has the size `{size}`")]
        at: SourceSpan,
        #[label("called without this output")]
        call: SourceSpan,
    },

    #[error("the kernel `{name}` cannot have {value} as its `{field}`")]
    #[diagnostic(code(aorta::model::kernel_launch), help("{help}"))]
    Launch {
        name: String,
        field: &'static str,
        value: String,
        help: &'static str,
        #[label("{why}")]
        at: SourceSpan,
        why: String,
    },

    #[error("the reference of the kernel `{name}` {why}")]
    #[diagnostic(code(aorta::model::kernel_reference), help("{help}"))]
    Reference {
        name: String,
        why: String,
        help: String,
        #[label("here")]
        at: SourceSpan,
    },
}
