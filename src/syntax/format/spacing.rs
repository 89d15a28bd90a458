//! Spaces between tokens, and where a long line can be broken.

use std::ops::Range;

use crate::syntax::ast::BinaryOp;
use crate::syntax::brackets::BracketOutline;
use crate::syntax::token::{Token, TokenKind};
use crate::syntax::words::{WordRole, ends_value, role};

/// Levels at which a line without brackets is broken: at all places of the first level that the line has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BreakLevel {
    /// Before the values of a buffer or a draw: `=`, `~`.
    Values,
    After,
    Comma,
    /// Before `when`, `in`, `over`, `at`.
    Clause,
    Or,
    And,
    Compare,
    Sum,
    Product,
}

/// The tokens of a file.
#[derive(Clone, Copy)]
pub struct Tokens<'a> {
    pub text: &'a str,
    pub outline: &'a BracketOutline,
    /// Index of the first word of the current declaration, which is a keyword there; `None` outside of declarations.
    pub lead: Option<usize>,
}

impl<'a> Tokens<'a> {
    /// Returns a token; `None` after the last one.
    pub fn get(&self, index: usize) -> Option<&'a Token> {
        self.outline.tokens.get(index)
    }

    /// The text of a token.
    pub fn text(&self, index: usize) -> &'a str {
        self.get(index).map_or("", |token| token.text(self.text, 0))
    }

    /// Offset of the token's start.
    pub fn start(&self, index: usize) -> usize {
        self.get(index).map_or(self.text.len(), |token| token.span.start as usize)
    }

    /// Offset of the token's end; for `None`, the start of the text.
    pub fn end(&self, index: Option<usize>) -> usize {
        index.and_then(|index| self.get(index)).map_or(0, |token| token.span.end() as usize)
    }

    fn is_word(&self, index: usize) -> bool {
        self.outline.kind(index) == Some(TokenKind::Word)
    }

    /// True if the word at `index` is the name of a field, `x.name`, or of an option, `name: x`, which can be any word.
    fn is_plain(&self, index: usize) -> bool {
        (index > 0 && self.text(index - 1) == ".") || self.text(index + 1) == ":"
    }

    /// True if a value can end with the token at `index`.
    pub fn ends_operand(&self, index: usize) -> bool {
        match self.outline.kind(index) {
            Some(TokenKind::Word) if self.lead == Some(index) => false,
            Some(TokenKind::Word) => ends_value(self.text(index)) || self.is_plain(index),
            Some(TokenKind::Number | TokenKind::Text | TokenKind::Close(_)) => true,
            _ => false,
        }
    }

    fn follows_operand(&self, index: usize) -> bool {
        index > 0 && self.ends_operand(index - 1)
    }

    /// True if a complete conditional expression `if a { x } else { y }` begins here and ends before `end`.
    pub fn is_condition(&self, index: usize, end: usize) -> bool {
        self.text(index) == "if" && index + 1 < self.outline.condition_end(index) && self.past(index) <= end
    }

    /// The index after the token at `index`, its brackets, or the conditional expression that it begins.
    pub fn past(&self, index: usize) -> usize {
        match self.outline.kind(index) {
            Some(TokenKind::Open(_)) => self.outline.past(index),
            Some(TokenKind::Word) => self.outline.condition_end(index),
            _ => index + 1,
        }
    }

    /// True if a space separates the two neighbours.
    pub fn are_apart(&self, left: usize, right: usize) -> bool {
        let (before, behind) = (self.text(left), self.text(right));
        match behind {
            "," | ":" | "." => return false,
            "(" | "[" if self.ends_operand(left) => return false,
            ".." | "..=" if self.ends_operand(left) => return false,
            _ => {}
        }
        match before {
            "(" | "[" | "." => false,
            // No space follows in a range. `..` alone, for a whole dimension, is separated like a value.
            ".." | "..=" => !self.follows_operand(left),
            // Two minus signs in a row must stay apart.
            "-" => self.follows_operand(left) || behind == "-",
            _ => true,
        }
    }

    /// The level at which a line can be broken before this token; `None` if it cannot.
    pub fn level(&self, index: usize) -> Option<BreakLevel> {
        if !self.follows_operand(index) || (self.is_word(index) && self.is_plain(index)) {
            return None;
        }
        let text = self.text(index);
        match BinaryOp::from_name(text) {
            Some(BinaryOp::Or) => Some(BreakLevel::Or),
            Some(BinaryOp::And) => Some(BreakLevel::And),
            Some(BinaryOp::Add | BinaryOp::Subtract) => Some(BreakLevel::Sum),
            Some(BinaryOp::Multiply | BinaryOp::Divide | BinaryOp::Remainder) => Some(BreakLevel::Product),
            Some(_) => Some(BreakLevel::Compare),
            None if text == "," => Some(BreakLevel::Comma),
            None if text == "~" => Some(BreakLevel::Values),
            None if text == "after" => Some(BreakLevel::After),
            None => (role(text) == Some(WordRole::Clause)).then_some(BreakLevel::Clause),
        }
    }

    /// The indices before which a line is broken first, and their level; `None` if there are none.
    pub fn breaks(&self, range: Range<usize>) -> Option<(BreakLevel, Vec<usize>)> {
        let mut found: Option<(BreakLevel, Vec<usize>)> = None;
        let mut index = range.start;
        while index < range.end {
            let level = match self.text(index) {
                "=" if self.text(range.start) == "buffer" => Some(BreakLevel::Values),
                _ => self.level(index),
            };
            if let Some(level) = level.filter(|_| index > range.start) {
                match &mut found {
                    Some((loosest, places)) if *loosest == level => places.push(index),
                    Some((loosest, _)) if *loosest < level => {}
                    _ => found = Some((level, vec![index])),
                }
            }
            index = self.past(index);
        }
        found
    }
}
