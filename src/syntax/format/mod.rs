//! The formatter. It works on tokens and changes only white space and trailing commas of lists, so it cannot lose a
//! word, number, parenthesis or comment. It copies what cannot be parsed.

mod code;
mod doc;
mod layout;
mod spacing;

use super::brackets::Clues;
use super::error::SyntaxError;
use super::parser::OldTrees;
use super::split::Pieces;
use super::{SyntaxLimits, parser, split};
use layout::FileLayout;

#[derive(Debug)]
pub struct Formatted {
    pub text: String,
    /// The errors that [`parse`](super::parse) reports. Locations refer to the unformatted text.
    pub errors: Vec<SyntaxError>,
}

/// Formats a text. Declarations and statements with errors are copied. Formatting is idempotent. A text over the limits
/// is returned unchanged.
pub fn format(text: &str, limits: &SyntaxLimits) -> Formatted {
    if text.len() > limits.file_bytes {
        let error = SyntaxError::FileTooLarge { limit: limits.file_bytes };
        return Formatted { text: text.to_owned(), errors: vec![error] };
    }
    let mut errors = Vec::new();
    // Not `Clues::Indentation`, because the formatter changes the indentation.
    let Some(pieces) = split::split(text, 0, limits.nesting, Clues::Declarations, &mut errors) else {
        let built = parser::build(text, 0, &Pieces::default(), errors, OldTrees::default());
        return Formatted { text: text.to_owned(), errors: built.errors };
    };
    let mut wrong: Vec<usize> = errors.iter().map(SyntaxError::offset).collect();
    wrong.sort_unstable();
    let built = parser::build(text, 0, &pieces, errors, OldTrees::default());
    let errors = if wrong.is_empty() { built.errors } else { parser::parse(text, 0, limits).1 };
    Formatted { text: FileLayout::new(text, &pieces, &wrong, &built.unread).print(), errors }
}
