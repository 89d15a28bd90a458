//! A token of the lexer.

use crate::base::SrcSpan;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TokenKind {
    Word,
    Number,
    Text,
    Open(u8),
    Close(u8),
    /// An operator, a separator, or a character without a meaning.
    Punct,
    /// A `///` line.
    Doc,
    /// A `//!` line.
    About,
}

/// A token of a text.
#[derive(Clone, Copy, Debug)]
pub struct Token {
    pub kind: TokenKind,
    pub span: SrcSpan,
}

impl Token {
    /// The token's text. `text` is that of the file, which begins at `base`.
    pub fn text<'a>(&self, text: &'a str, base: u32) -> &'a str {
        let start = (self.span.start - base) as usize;
        &text[start..start + self.span.len as usize]
    }
}

/// The location of the bytes from `start` to `end` of a text that begins at `base`.
pub fn span(base: u32, start: usize, end: usize) -> SrcSpan {
    SrcSpan::new(base as usize + start, base as usize + end)
}
