//! Errors in the operands of operations.

use miette::{Diagnostic, SourceSpan};
use thiserror::Error;

/// Help for an operand with other dimensions than an operation needs, and for one with too many elements.
pub const OTHER_DIMENSIONS: &str = "change the dimensions where it is declared, or the slice: a range, `x[i..i + 1]`, keeps a dimension that an index, \
     `x[i]`, takes away";
pub const TOO_LARGE: &str = "make the sizes smaller that decide it: those of the inputs, or the padding, stride and dilation of a result; or work on \
     some of the samples at a time";

/// An error in the operands or options of a call.
#[derive(Clone, Debug, Error, Diagnostic)]
pub enum OpError {
    #[error("the operands of `{op}` do not fit together")]
    #[diagnostic(code(aorta::ops::operands_differ), help("{help}"))]
    Differ {
        op: &'static str,
        left: String,
        #[label("{left}")]
        left_at: SourceSpan,
        right: String,
        #[label("{right}")]
        right_at: SourceSpan,
        help: String,
    },

    #[error("`{op}` needs {needs}")]
    #[diagnostic(code(aorta::ops::rank), help("{help}"))]
    Rank {
        op: &'static str,
        needs: String,
        found: String,
        help: &'static str,
        #[label("this is {found}")]
        at: SourceSpan,
    },

    #[error("`{op}` needs {needs}")]
    #[diagnostic(
        code(aorta::ops::dtype),
        help(
            "declare it with another type, or make a tensor of another type above: `y: cast(x, to: {})`",
            ["i32", "e4m3"].into_iter().find(|dtype| needs.contains(dtype)).unwrap_or("f32")
        )
    )]
    Dtype {
        op: &'static str,
        needs: String,
        found: String,
        #[label("this is {found}")]
        at: SourceSpan,
    },

    #[error("the output of `{op}` is {expected}, and this is {found}")]
    #[diagnostic(
        code(aorta::ops::output),
        help("{}", match over {
            Some(groups) => format!("`{op}` runs over all ranks here: behind it, write {groups}"),
            None if expected.contains(" element") && dtype_of_count(expected) != element_type(found) => {
                let [own, given] = [dtype_of_count(expected), element_type(found)];
                format!("`{op}` keeps the element type: declare it as {own}, or convert the input above, `y: cast(x, to: {given})`")
            }
            None if !expected.ends_with(']') && found.ends_with("[1]") => format!(
                "a single value has no dimensions: write `y[0]` for a buffer `y: {found}`, or declare `y: {expected}`; without an \
                 output, `r: {op}(…)`, the label `r` is scratch without dimensions"
            ),
            None if !expected.ends_with(']') && *reduces => {
                format!("`{op}` reduces all dimensions: `dims: [1]` reduces one and keeps the others")
            }
            None if *op == "copy" && element_type(expected) != element_type(found) => {
                "`copy` keeps the element type: `cast(x -> y)` converts it".to_owned()
            }
            None if *alike => format!(
                "all outputs of one `map` have the shape of all its inputs together, here {expected}: compute one of another \
                 shape by a `map` of its own"
            ),
            None => format!("change the declaration or the slice behind the arrow, so that it is {expected}"),
        })
    )]
    Output {
        op: &'static str,
        expected: String,
        found: String,
        /// Groups of ranks for which the call would be valid, as written in a file; `None` if there is none.
        over: Option<String>,
        /// True if the operation has several outputs, which all have one shape.
        alike: bool,
        /// True if the operation reduces the dimensions that its option `dims` lists.
        reduces: bool,
        #[label("{found}")]
        at: SourceSpan,
        #[label("the inputs make it {expected}")]
        call: SourceSpan,
    },

    #[error("`{op}` has no tensor to go over")]
    #[diagnostic(
        code(aorta::ops::no_tensor),
        help("name a tensor in the expression: `{op}(x * 2 -> y)`; for the same value everywhere, write `fill`")
    )]
    NoTensor {
        op: &'static str,
        #[label("the expression names none")]
        at: SourceSpan,
    },

    #[error("the output type of `{op}` is unknown")]
    #[diagnostic(code(aorta::ops::output_missing), help("{help}"))]
    OutputMissing {
        op: &'static str,
        help: &'static str,
        /// True if the call names some of its outputs.
        some_given: bool,
        #[label("{}", if *some_given { "an output is missing" } else { "no output is given" })]
        at: SourceSpan,
    },

    #[error("`{op}` cannot work on memory in `{space}`")]
    #[diagnostic(code(aorta::ops::space), help("{help}"))]
    Space {
        op: &'static str,
        space: &'static str,
        help: &'static str,
        #[label("is in `{space}` memory")]
        at: SourceSpan,
    },

    #[error("`{op}` needs rows that begin at multiples of {pack} elements")]
    #[diagnostic(code(aorta::ops::gaps), help("{help}"))]
    PaddedRows {
        op: &'static str,
        pack: u64,
        row: u64,
        found: u64,
        help: String,
        #[label("its rows begin every {found} elements, and must begin every {row}")]
        at: SourceSpan,
    },

    #[error("`{op}` needs memory without gaps")]
    #[diagnostic(code(aorta::ops::gaps), help("{help}"))]
    Gaps {
        op: &'static str,
        help: &'static str,
        #[label("this slice has gaps")]
        at: SourceSpan,
    },

    #[error("`{op}` cannot use this `{option}`: {why}")]
    #[diagnostic(code(aorta::ops::option), help("{help}"))]
    Option {
        op: &'static str,
        option: &'static str,
        why: String,
        help: String,
        #[label("here")]
        at: SourceSpan,
    },
}

/// The element type of a tensor's text, such as `f32` of `f32[2, 4]` and of `16 f32`.
fn element_type(tensor: &str) -> &str {
    let before_dims = tensor.split(['[', ',']).next().unwrap_or_default();
    before_dims.rsplit(' ').next().unwrap_or_default()
}

/// The element type of a number of elements, such as `4 elements of bf16, 1 from each of 4 ranks`.
fn dtype_of_count(expected: &str) -> &str {
    expected.split_once(" of ").map_or("", |(_, dtype)| dtype.split(',').next().unwrap_or(dtype))
}
