//! The one form of a text. The formatter works on tokens: it decides about white space and the last commas of lists,
//! so whatever it does, no word, number, parenthesis or comment can be lost. What cannot be understood is copied.

mod code;
mod doc;
mod layout;
mod spacing;

use super::brackets::Clues;
use super::error::SyntaxError;
use super::parser::Old;
use super::split::Pieces;
use super::{Limits, parser, split};
use layout::Layout;

/// A text in its form.
#[derive(Debug)]
pub struct Formatted {
    pub text: String,
    /// What is wrong with the text, as [`parse`](super::parse) says it. Places are those of the text before.
    pub errors: Vec<SyntaxError>,
}

/// Brings a text into its form. Whole declarations and statements are laid out; those with mistakes are copied.
/// Formatting what has been formatted changes nothing. A text over the limits is returned as it is.
pub fn format(text: &str, limits: &Limits) -> Formatted {
    if text.len() > limits.file_bytes {
        let error = SyntaxError::FileTooLarge { limit: limits.file_bytes };
        return Formatted { text: text.to_owned(), errors: vec![error] };
    }
    let mut errors = Vec::new();
    // Not by the indentation, which the formatter changes.
    let Some(pieces) = split::split(text, 0, limits.nesting, Clues::Declarations, &mut errors) else {
        let built = parser::build(text, 0, &Pieces::default(), errors, Old::default());
        return Formatted { text: text.to_owned(), errors: built.errors };
    };
    let mut wrong: Vec<usize> = errors.iter().map(SyntaxError::offset).collect();
    wrong.sort_unstable();
    let built = parser::build(text, 0, &pieces, errors, Old::default());
    let errors = if wrong.is_empty() { built.errors } else { parser::parse(text, 0, limits).1 };
    Formatted { text: Layout::new(text, &pieces, &wrong, &built.unread).print(), errors }
}
