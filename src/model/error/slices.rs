//! Errors in the brackets after a name: indices and slices that are out of range.

use miette::{Diagnostic, SourceSpan};
use thiserror::Error;

/// An index or a slice that does not exist.
#[derive(Clone, Debug, Error, Diagnostic)]
pub enum SliceError {
    #[error("index {index} is outside of `{name}`, which has {size} there")]
    #[diagnostic(code(aorta::model::index_out_of_range), help("{}", match index {
        ..0 => format!("indices run from 0 to {last}; negative indices do not count from the end: the last is {last}"),
        _ => format!("indices run from 0 to {last}"),
    }))]
    IndexOutOfRange {
        name: String,
        index: i64,
        size: u64,
        last: i64,
        #[label("is {index}")]
        at: SourceSpan,
    },

    #[error("the slice {from}..{to} is outside of `{name}`, which has {size} there")]
    #[diagnostic(
        code(aorta::model::slice_out_of_range),
        help("a slice goes from 0 to at most {size}, excluding its end")
    )]
    SliceOutOfRange {
        name: String,
        from: i64,
        to: i64,
        size: u64,
        #[label("is {from}..{to}")]
        at: SourceSpan,
    },

    #[error("this slice is empty")]
    #[diagnostic(
        code(aorta::model::empty_slice),
        help("write a larger end, or leave the operation out where the slice is empty: `if a < b {{ … }}`")
    )]
    EmptySlice {
        #[label("{from}..{to} is empty")]
        at: SourceSpan,
        from: i64,
        to: i64,
    },

    #[error("`view` cannot give these dimensions: {why}")]
    #[diagnostic(code(aorta::model::view), help("{help}"))]
    View {
        why: String,
        help: String,
        #[label("here")]
        at: SourceSpan,
    },

    #[error("this slice of the view `{name}` is not a box in the dimensions of `{memory}`")]
    #[diagnostic(
        code(aorta::model::slice_of_view),
        help(
            "slice first: `view(x[0], [4, 8])` is a view of a slice; or declare a buffer with the sizes that you slice, and give a \
             view to the operation that writes it"
        )
    )]
    SliceOfView {
        name: String,
        memory: String,
        why: String,
        #[label("{why}")]
        at: SourceSpan,
    },

    #[error("this slice of the part `{name}` has gaps between its elements")]
    #[diagnostic(
        code(aorta::model::slice_of_part),
        help(
            "pick one index in each dimension before the one that has a range, or declare the part as a buffer of its own, \
             whose slices may have gaps"
        )
    )]
    GapsInPart {
        name: String,
        axis: usize,
        #[label("not all of dimension {axis}")]
        at: SourceSpan,
    },

    #[error("`{name}` has {has}, and this gives {given}")]
    #[diagnostic(code(aorta::model::index_count))]
    IndexCount {
        name: String,
        has: String,
        given: String,
        #[label("{given}")]
        at: SourceSpan,
        #[help]
        help: Option<String>,
    },
}
