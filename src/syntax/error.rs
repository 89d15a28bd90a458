//! Syntax errors.

use std::ops::Range;

use miette::{Diagnostic, SourceSpan};
use thiserror::Error;

use crate::base::counted;

/// An error in the syntax of a file.
#[derive(Clone, Debug, Error, Diagnostic)]
pub enum SyntaxError {
    #[error("this file needs version {wanted} of the language, but this aorta supports version {known}")]
    #[diagnostic(
        code(aorta::syntax::newer_language),
        help("install a newer aorta; `aorta --version` prints the version of this one")
    )]
    NewerLanguage {
        wanted: i64,
        known: i64,
        #[label("needed by the file")]
        at: SourceSpan,
    },

    #[error("unexpected character `{character}`")]
    #[diagnostic(code(aorta::syntax::unexpected_character), help("{help}"))]
    UnexpectedCharacter {
        character: char,
        help: String,
        /// Number of other locations with the same character.
        others: usize,
        #[label("not part of the language{}", elsewhere(*others))]
        at: SourceSpan,
    },

    #[error("`{found}` is not an operator")]
    #[diagnostic(code(aorta::syntax::foreign_operator), help("{help}"))]
    ForeignOperator {
        found: String,
        means: String,
        help: String,
        #[label("{means}")]
        at: SourceSpan,
    },

    #[error("this text is not closed")]
    #[diagnostic(
        code(aorta::syntax::unclosed_text),
        help(
            "{}", if *is_long {
                "end it with `\"\"\"`"
            } else {
                "end it with `\"` on the same line, or look for a `\"` that is missing further left; \
                 write text over several lines between `\"\"\"`"
            }
        )
    )]
    UnclosedText {
        /// True for a text that begins with `"""`.
        is_long: bool,
        #[label("begins here")]
        at: SourceSpan,
    },

    #[error("`{bracket}` is never closed")]
    #[diagnostic(code(aorta::syntax::unclosed_bracket), help("{help}"))]
    Unclosed {
        bracket: char,
        close: char,
        help: String,
        #[label("opened here")]
        at: SourceSpan,
        #[label("`{close}` was expected before this")]
        end: SourceSpan,
    },

    #[error("`{bracket}` closes nothing")]
    #[diagnostic(code(aorta::syntax::unmatched_bracket), help("remove it, or open it before"))]
    UnmatchedClose {
        bracket: char,
        #[label("nothing is open here")]
        at: SourceSpan,
    },

    #[error("brackets are nested deeper than {limit}")]
    #[diagnostic(
        code(aorta::syntax::too_deep),
        help("move inner parts into a `def` or a `let`, or raise the limit: --config max_nesting=…")
    )]
    TooDeep {
        limit: usize,
        #[label("this is one too many")]
        at: SourceSpan,
    },

    #[error("this expression has too many parts")]
    #[diagnostic(
        code(aorta::syntax::expression_too_long),
        help(
            "give parts of it a name with `let`; an expression may be {limit} levels deep, where each operator of a chain is one, and with all around it 1 MiB long"
        )
    )]
    ExpressionTooLong {
        limit: usize,
        #[label("longer than {limit} levels")]
        at: SourceSpan,
    },

    #[error("there is no {what} `{word}`")]
    #[diagnostic(code(aorta::syntax::unknown_keyword))]
    UnknownKeyword {
        word: String,
        what: &'static str,
        #[label("begins no {what}")]
        at: SourceSpan,
        #[help]
        help: Option<String>,
    },

    #[error("expected {expected}, found {found}")]
    #[diagnostic(code(aorta::syntax::unexpected_token))]
    Expected {
        expected: String,
        found: String,
        #[label("expected {expected}")]
        at: SourceSpan,
        #[help]
        help: Option<String>,
    },

    #[error("`{word}` has no block")]
    #[diagnostic(
        code(aorta::syntax::missing_block),
        help(
            "{}", help.as_deref().unwrap_or(
                "put the statements between `{` and `}`, even a single one; colons, newlines and indentation do not open a block"
            )
        )
    )]
    MissingBlock {
        word: String,
        /// Replaces the general help.
        help: Option<String>,
        #[label("a `{{` was expected behind this")]
        at: SourceSpan,
    },

    #[error("`{mark}` describes nothing here")]
    #[diagnostic(
        code(aorta::syntax::stray_doc),
        help("`//!` belongs at the top of a file, `///` above a declaration; write `//` for a comment")
    )]
    StrayDoc {
        mark: &'static str,
        #[label("no declaration follows")]
        at: SourceSpan,
    },

    #[error("there is no unit `{unit}`")]
    #[diagnostic(code(aorta::syntax::unknown_unit))]
    UnknownUnit {
        unit: String,
        #[label("unknown unit")]
        at: SourceSpan,
        #[help]
        help: Option<String>,
    },

    #[error("this number is too large")]
    #[diagnostic(code(aorta::syntax::number_too_large), help("{help}"))]
    NumberTooLarge {
        help: &'static str,
        #[label("does not fit")]
        at: SourceSpan,
    },

    #[error("only a name can be called")]
    #[diagnostic(code(aorta::syntax::call_of_value), help("{help}"))]
    CallOfValue {
        help: String,
        #[label("this is not the name of a function")]
        at: SourceSpan,
    },

    #[error("the file is larger than {limit} bytes")]
    #[diagnostic(
        code(aorta::syntax::file_too_large),
        help("write repetition as a `for` loop, or raise the limit: --config max_file_bytes=…")
    )]
    FileTooLarge { limit: usize },
}

/// Describes further locations.
fn elsewhere(others: usize) -> String {
    match others {
        0 => String::new(),
        others => format!(", nor in {}", counted(others, "other place")),
    }
}

/// Maximum number of errors kept by each pass over a file. More are never shown.
const MAX_KEPT: usize = 1000;

/// Adds an error found by pass number `pass`, counted from 1, unless there are too many.
pub(super) fn note(errors: &mut Vec<SyntaxError>, pass: usize, error: SyntaxError) {
    if errors.len() < pass * MAX_KEPT {
        errors.push(error);
    }
}

impl SyntaxError {
    /// Range of offsets in which names may be missing because of the error; `end` is the end of the text. `None` if
    /// there is no such range.
    pub fn takes(&self, end: usize) -> Option<Range<usize>> {
        match self {
            SyntaxError::UnclosedText { at, .. } => Some(at.offset()..at.offset() + at.len()),
            SyntaxError::Unclosed { at, end, .. } => Some(at.offset()..end.offset()),
            // The block before it ended too early, with the names inside.
            SyntaxError::UnmatchedClose { at, .. } => Some(0..at.offset()),
            SyntaxError::TooDeep { .. } => Some(0..end),
            _ => None,
        }
    }

    /// Location as an offset, for sorting.
    pub fn offset(&self) -> usize {
        self.labels().and_then(|mut labels| labels.next()).map_or(0, |label| label.offset())
    }
}
