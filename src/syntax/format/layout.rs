//! Lays out a file: pieces one below the other, blocks indented, comments and empty lines kept.

use std::ops::Range;

use crate::syntax::split::{BlockPieces, Body, Piece, Pieces};
use crate::syntax::token::TokenKind;

use super::code::{Code, INDENT};
use super::doc::{Flat, LayoutCommand, Printer};
use super::spacing::Tokens;

/// Indentation of a head's continuation lines, deeper than the block's.
const HEAD_INDENT: usize = 2 * INDENT;

/// A file to be formatted.
pub struct FileLayout<'a> {
    code: Code<'a>,
    pieces: &'a Pieces,
    /// Offsets of the splitter's errors, sorted.
    wrong: &'a [usize],
    /// Offsets of heads that the parser could not parse, sorted.
    unread: &'a [u32],
    /// The item that was laid out last.
    last: PrecedingItem,
}

/// The item before the next piece.
#[derive(Clone, Copy)]
struct PrecedingItem {
    /// End of the item in the text.
    end: usize,
    what: Preceding,
}

#[derive(Clone, Copy, PartialEq)]
enum Preceding {
    /// No item: a file or a block begins here.
    Begin,
    Comment,
    Piece,
    /// Tokens that form no piece.
    Stray,
}

impl<'a> FileLayout<'a> {
    pub fn new(text: &'a str, pieces: &'a Pieces, wrong: &'a [usize], unread: &'a [u32]) -> FileLayout<'a> {
        let tokens = Tokens { text, outline: &pieces.outline, lead: None };
        let code = Code { tokens, trivia: &pieces.trivia, commands: Vec::new() };
        FileLayout { code, pieces, wrong, unread, last: PrecedingItem { end: 0, what: Preceding::Begin } }
    }

    /// Returns the formatted file.
    pub fn print(mut self) -> String {
        let mut printer = Printer::new();
        let mut at = 0;
        for piece in &self.pieces.decls {
            self.between(at..piece.tokens.start);
            self.piece(piece, true);
            at = piece.tokens.end;
            printer.print(&std::mem::take(&mut self.code.commands));
        }
        self.between(at..self.pieces.outline.len());
        printer.print(&self.code.commands);
        printer.finish()
    }

    // --- Between pieces -----------------------------------------------------------------------------------------

    /// Lays out tokens between two pieces: comments, documentation, and stray characters.
    fn between(&mut self, tokens: Range<usize>) {
        for index in tokens.clone() {
            self.trivia(index);
            self.stray_token(index);
        }
        self.trivia(tokens.end);
    }

    /// Lays out the comments before the token at `index`.
    fn trivia(&mut self, index: usize) {
        let text = self.code.tokens.text;
        while let Some((next, rest)) = self.code.trivia.split_first().filter(|(next, _)| next.before as usize <= index)
        {
            self.code.trivia = rest;
            let (start, end) = (next.span.start as usize, next.span.end() as usize);
            let comment = &text[start..end];
            if comment == ";" {
                self.stray(start, end, comment);
            } else if self.last.end > 0 && self.last.what != Preceding::Comment && self.is_on_line(start) {
                self.code.push(LayoutCommand::Trailing(comment));
                self.last = PrecedingItem { end, what: self.last.what };
            } else {
                self.own(start, end, comment);
            }
        }
    }

    /// Lays out a token that belongs to no piece.
    fn stray_token(&mut self, index: usize) {
        let tokens = self.code.tokens;
        let (start, end, text) = (tokens.start(index), tokens.end(Some(index)), tokens.text(index));
        match tokens.outline.kind(index) {
            Some(TokenKind::Doc | TokenKind::About) => self.own(start, end, text),
            _ => self.stray(start, end, text),
        }
    }

    fn own(&mut self, start: usize, end: usize, comment: &'a str) {
        self.line(start);
        self.code.push(LayoutCommand::Own(comment));
        self.last = PrecedingItem { end, what: Preceding::Comment };
    }

    /// Copies a stray character.
    fn stray(&mut self, start: usize, end: usize, text: &'a str) {
        self.begin_stray(start);
        self.code.push(LayoutCommand::Text(text));
        self.last = PrecedingItem { end, what: Preceding::Piece };
    }

    /// Continues the line of a piece, or begins a line.
    fn begin_stray(&mut self, start: usize) {
        if matches!(self.last.what, Preceding::Piece | Preceding::Stray) && self.is_on_line(start) {
            self.code.push(LayoutCommand::Raw(0, &self.code.tokens.text[self.last.end..start]));
        } else {
            self.line(start);
        }
    }

    fn is_on_line(&self, start: usize) -> bool {
        !self.code.tokens.text[self.last.end..start].contains('\n')
    }

    /// Begins a line for the text at offset `start`, after an empty one if the source has one.
    fn line(&mut self, start: usize) {
        let between = &self.code.tokens.text[self.last.end..start];
        let breaks = between.bytes().filter(|byte| *byte == b'\n').count();
        // A block begins with a line break of its own.
        if self.last.what != Preceding::Begin {
            self.code.push(if breaks > 1 { LayoutCommand::Blank } else { LayoutCommand::Hard });
        }
    }

    // --- Pieces -------------------------------------------------------------------------------------------------

    fn piece(&mut self, piece: &'a Piece, top: bool) {
        let tokens = piece.tokens.clone();
        let start = self.code.tokens.start(tokens.start);
        let is_stray = matches!(piece.body, Body::Stray);
        // A piece behind tokens that form none may be the rest of the same mistake, which stays on its line.
        match is_stray || self.last.what == Preceding::Stray {
            true => self.begin_stray(start),
            false => self.line(start),
        }
        // The options of `setup`, `step` and `teardown` follow the word without a space, like arguments.
        self.code.tokens.lead = (top && matches!(piece.body, Body::None)).then_some(tokens.start);
        match &piece.body {
            Body::Stray => self.verbatim(tokens.clone()),
            Body::None => self.head(tokens.clone(), INDENT),
            Body::Block(block) if self.is_one_process(tokens.start, &[block]) => {
                self.code.push(LayoutCommand::Open);
                self.head(tokens.start..block.open, HEAD_INDENT);
                self.block(block, self.may_be_flat(&[block]));
                self.code.push(LayoutCommand::Close);
            }
            Body::Branches { first, others, otherwise } => {
                let blocks: Vec<&BlockPieces> =
                    [first].into_iter().chain(others.iter().map(|(_, block)| block)).chain(otherwise).collect();
                if self.is_one_process(tokens.start, &blocks) && self.closes(blocks[blocks.len() - 1]) == tokens.end {
                    self.branches(tokens.start, &blocks);
                } else {
                    self.verbatim(tokens.clone());
                }
            }
            Body::Block(_) => self.verbatim(tokens.clone()),
        }
        let what = if is_stray { Preceding::Stray } else { Preceding::Piece };
        self.last = PrecedingItem { end: self.code.tokens.end(Some(tokens.end - 1)), what };
    }

    /// Lays out a simple piece or the head of a block. `indent` is that of its continuation lines.
    fn head(&mut self, tokens: Range<usize>, indent: usize) {
        let start = self.code.tokens.start(tokens.start);
        let end = self.code.tokens.end(Some(tokens.end - 1));
        if self.is_wrong(start, end) || self.unread.binary_search(&(start as u32)).is_ok() {
            self.verbatim(tokens);
        } else {
            self.code.stretch(tokens, indent);
        }
    }

    /// Copies tokens and what lies between them from the text, without trailing blanks.
    fn verbatim(&mut self, tokens: Range<usize>) {
        let mut last = self.code.tokens.start(tokens.start);
        for index in tokens.clone() {
            // Comments before the first token have been laid out.
            while let Some((next, rest)) =
                self.code.trivia.split_first().filter(|(next, _)| next.before as usize <= index)
            {
                self.code.trivia = rest;
                last = self.copy(last, next.span.start as usize, next.span.end() as usize);
            }
            last = self.copy(last, self.code.tokens.start(index), self.code.tokens.end(Some(index)));
        }
        let end = tokens.end - 1;
        // Documentation and an unterminated text extend to the end of their line.
        let ends_line = match self.code.tokens.outline.kind(end) {
            Some(TokenKind::Text) => self.is_wrong(self.code.tokens.start(end), last),
            kind => matches!(kind, Some(TokenKind::Doc | TokenKind::About)),
        };
        if ends_line {
            self.code.push(LayoutCommand::Hard);
        }
    }

    /// Copies the text from `start` to `end`, with the white space after `last`.
    fn copy(&mut self, last: usize, start: usize, end: usize) -> usize {
        let text = self.code.tokens.text;
        let gap = &text[last..start];
        match gap.rsplit_once('\n') {
            Some((before, indent)) => {
                let breaks = 1 + before.bytes().filter(|byte| *byte == b'\n').count();
                self.code.push(LayoutCommand::Raw(breaks, indent));
            }
            None if !gap.is_empty() => self.code.push(LayoutCommand::Raw(0, gap)),
            None => {}
        }
        self.code.push(LayoutCommand::Text(&text[start..end]));
        end
    }

    // --- Blocks -------------------------------------------------------------------------------------------------

    fn branches(&mut self, start: usize, blocks: &[&'a BlockPieces]) {
        let flat = self.may_be_flat(blocks);
        self.code.push(LayoutCommand::Open);
        self.head(start..blocks[0].open, HEAD_INDENT);
        for (number, block) in blocks.iter().enumerate() {
            if number > 0 {
                let word = self.closes(blocks[number - 1]);
                self.code.comments(word);
                self.code.push(LayoutCommand::Space);
                self.code.token(word);
                if word + 1 < block.open {
                    self.code.comments(word + 1);
                    self.code.push(LayoutCommand::Space);
                    self.head(word + 1..block.open, HEAD_INDENT);
                }
            }
            self.block(block, flat);
        }
        self.code.push(LayoutCommand::Close);
    }

    /// Lays out a block with its braces, after its head. `flat` allows one line.
    fn block(&mut self, block: &'a BlockPieces, flat: bool) {
        let close = self.code.tokens.outline.closing(block.open);
        self.code.comments(block.open);
        self.code.push(LayoutCommand::Space);
        self.code.token(block.open);
        let is_empty = block.open + 1 == close && !self.has_trivia(block.open + 1..close);
        if is_empty {
            return self.code.token(close);
        }
        let edge = if flat { LayoutCommand::Line(Flat::Space) } else { LayoutCommand::Hard };
        self.code.push(LayoutCommand::Nest(INDENT));
        self.code.push(edge);
        self.last = PrecedingItem { end: self.code.tokens.end(Some(block.open)), what: Preceding::Begin };
        let mut at = block.open + 1;
        for piece in &block.pieces {
            self.between(at..piece.tokens.start);
            self.piece(piece, false);
            at = piece.tokens.end;
        }
        self.between(at..close);
        self.code.push(LayoutCommand::Dedent);
        self.code.push(edge);
        self.code.token(close);
    }

    /// The index after a block.
    fn closes(&self, block: &BlockPieces) -> usize {
        self.code.tokens.outline.past(block.open)
    }

    /// True if the author wrote the blocks on one line, with at most one statement in each.
    fn may_be_flat(&self, blocks: &[&BlockPieces]) -> bool {
        let (Some(first), Some(last)) = (blocks.first(), blocks.last()) else { return false };
        let tokens = self.code.tokens;
        let is_single = |block: &&BlockPieces| match block.pieces.as_slice() {
            [] => block.open + 2 == self.closes(block),
            [piece] => piece.tokens == (block.open + 1..self.closes(block) - 1),
            _ => false,
        };
        let end = self.closes(last);
        !tokens.text[tokens.start(first.open)..tokens.end(Some(end - 1))].contains('\n')
            && !self.has_trivia(first.open + 1..end - 1)
            && blocks.iter().all(is_single)
    }

    /// True if a comment precedes one of these tokens or the token after them.
    fn has_trivia(&self, tokens: Range<usize>) -> bool {
        let before = self.code.trivia.partition_point(|next| (next.before as usize) < tokens.start);
        self.code.trivia.get(before).is_some_and(|next| next.before as usize <= tokens.end)
    }

    /// True if the structure of a piece with blocks is free of errors: its braces, and the words between blocks.
    fn is_one_process(&self, start: usize, blocks: &[&BlockPieces]) -> bool {
        let tokens = self.code.tokens;
        let mut head = start;
        blocks.iter().all(|block| {
            let close = tokens.outline.closing(block.open);
            // An error in the first head concerns only that head.
            let from = if head == start { tokens.end(Some(block.open - 1)) } else { tokens.start(head) };
            head = close + 1;
            close < tokens.outline.len() && !self.is_wrong(from, tokens.end(Some(block.open)))
        })
    }

    /// True if the splitter found an error in this range.
    fn is_wrong(&self, start: usize, end: usize) -> bool {
        let first = self.wrong.partition_point(|place| *place < start);
        self.wrong.get(first).is_some_and(|place| *place < end)
    }
}
