//! Errors in draws from a trace.

use miette::{Diagnostic, SourceSpan};
use thiserror::Error;

/// An error in a `trace`, the column of a file from which a draw takes its values.
#[derive(Clone, Debug, Error, Diagnostic)]
pub enum TraceError {
    #[error("a trace needs the path of a file and the name of a column, both in quotes")]
    #[diagnostic(
        code(aorta::model::trace_source),
        help("write `trace(\"lengths.csv\", column: \"prompt\")`; the file is read before any value is computed")
    )]
    Source {
        #[label("one of them is missing or computed")]
        at: SourceSpan,
    },

    #[error("the trace `{path}` cannot be read: {why}")]
    #[diagnostic(
        code(aorta::model::trace_file),
        help(
            "name a CSV file from the folder of this one or below it, with the names of its columns in the first line"
        )
    )]
    File {
        path: String,
        why: String,
        #[label("named here")]
        at: SourceSpan,
    },

    #[error("`{path}` has no column `{column}`")]
    #[diagnostic(code(aorta::model::trace_column), help("{help}"))]
    Column {
        path: String,
        column: String,
        help: String,
        #[label("not among its columns")]
        at: SourceSpan,
    },

    #[error("`{path}` has several columns `{column}`")]
    #[diagnostic(code(aorta::model::trace_column), help("give each column of the first line a name of its own"))]
    Ambiguous {
        path: String,
        column: String,
        #[label("names more than one column")]
        at: SourceSpan,
    },

    #[error("line {line} of `{path}` has more cells than the first line names columns")]
    #[diagnostic(
        code(aorta::model::trace_cell),
        help("separate numbers by one comma each, without a comma inside a number: `1024,7`")
    )]
    TooManyCells {
        path: String,
        line: usize,
        #[label("named here")]
        at: SourceSpan,
    },

    #[error("line {line} of `{path}` has {} in the column `{column}`: `{cell}`", if *is_large { "too large a number" } else { "no whole number" })]
    #[diagnostic(
        code(aorta::model::trace_cell),
        help(
            "a trace holds whole numbers, such as `512`, up to 9223372036854775807: correct the line, or name another column"
        )
    )]
    Cell {
        path: String,
        column: String,
        line: usize,
        cell: String,
        /// True if the cell is a whole number out of range.
        is_large: bool,
        #[label("this column is read")]
        at: SourceSpan,
    },
}
