//! The location at which the parser failed, with the text around it.

use super::super::words::{BRACKETS, is_word};
use super::Rule;

/// Location at which the parser failed, and the rules that it expected.
pub(super) struct FailurePoint<'a> {
    pub rule: Rule,
    /// The piece up to the point of failure, without trailing space.
    pub before: &'a str,
    /// The text after the point of failure.
    pub rest: &'a str,
    /// True if no white space separates `before` and `rest`.
    pub is_joined: bool,
    /// The part of `rest` that is shown as what was found.
    pub found: &'a str,
    /// Tokens that the grammar allows here.
    pub tokens: &'a [String],
}

impl<'a> FailurePoint<'a> {
    pub(super) fn expects(&self, token: &str) -> bool {
        self.tokens.iter().any(|candidate| candidate == token)
    }

    /// True if a value is allowed here.
    pub(super) fn expects_value(&self) -> bool {
        self.expects("a..z") && self.expects("\"")
    }

    /// The word that begins the piece.
    pub(super) fn lead(&self) -> &'a str {
        leading_word(self.before)
    }

    /// The word directly before the point of failure.
    pub(super) fn word_before(&self) -> &'a str {
        let kept = self.before.trim_end_matches(is_word);
        &self.before[kept.len()..]
    }

    pub(super) fn word(&self) -> &'a str {
        leading_word(self.rest)
    }

    /// True directly after a number, a name or a closing bracket.
    pub(super) fn after_value(&self) -> bool {
        self.before.ends_with(|c: char| is_word(c) || matches!(c, ')' | ']'))
    }

    pub(super) fn after_digit(&self) -> bool {
        self.before.ends_with(|c: char| c.is_ascii_digit())
    }

    /// The name before the innermost parenthesis that is open; `None` if no name is there.
    pub(super) fn callee(&self) -> Option<&'a str> {
        let mut closed = 0;
        let open = self.before.char_indices().rev().find(|(_, c)| {
            closed += i32::from(*c == ')') - i32::from(*c == '(');
            closed < 0
        })?;
        let before = &self.before[..open.0];
        let name = &before[before.trim_end_matches(is_word).len()..];
        (!name.is_empty()).then_some(name)
    }

    /// The innermost bracket that is open at the point of failure; `None` if there is none.
    pub(super) fn inside(&self) -> Option<char> {
        let mut closed = 0;
        for byte in self.before.bytes().rev() {
            if BRACKETS.iter().any(|(_, close)| *close == byte) {
                closed += 1;
            } else if BRACKETS.iter().any(|(open, _)| *open == byte) {
                if closed == 0 {
                    return Some(char::from(byte));
                }
                closed -= 1;
            }
        }
        None
    }
}

/// The word that begins a text; empty if it begins with another character.
pub(super) fn leading_word(text: &str) -> &str {
    &text[..text.find(|c| !is_word(c)).unwrap_or(text.len())]
}

/// A help with a constant text.
pub(super) fn help(text: &str) -> Option<String> {
    Some(text.to_owned())
}
