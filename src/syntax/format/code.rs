//! Lays out code without blocks: an expression, a simple declaration or statement, the head of a block.

use std::ops::Range;

use crate::syntax::lex::Trivia;
use crate::syntax::token::TokenKind;

use super::doc::{Flat, LayoutCommand};
use super::spacing::{BreakLevel, Tokens};

/// Columns of one level of indentation.
pub const INDENT: usize = 2;

/// The document of a range of code, built from its first token to its last.
pub struct Code<'a> {
    pub tokens: Tokens<'a>,
    /// Comments not yet laid out.
    pub trivia: &'a [Trivia],
    pub commands: Vec<LayoutCommand<'a>>,
}

impl<'a> Code<'a> {
    /// Appends a command.
    pub fn push(&mut self, command: LayoutCommand<'a>) {
        self.commands.push(command);
    }

    fn push_all<const N: usize>(&mut self, commands: [LayoutCommand<'a>; N]) {
        self.commands.extend(commands);
    }

    /// Appends the text of a token.
    pub fn token(&mut self, index: usize) {
        let text = self.tokens.text(index);
        self.push(match self.tokens.outline.kind(index) {
            Some(TokenKind::Doc | TokenKind::About) => LayoutCommand::Own(text),
            _ => LayoutCommand::Text(text),
        });
    }

    /// Lays out code that begins a line. Continuation lines are indented by `indent`.
    pub fn stretch(&mut self, tokens: Range<usize>, indent: usize) {
        self.push(LayoutCommand::Indent(indent));
        self.chain(tokens, indent);
        self.push(LayoutCommand::Dedent);
    }

    /// Lays out the comments before the token at `index`. If a comma separates them, the comma moves before them.
    pub fn comments(&mut self, index: usize) {
        let mut is_first = true;
        while let Some((next, rest)) = self.trivia.split_first().filter(|(next, _)| next.before as usize <= index) {
            self.trivia = rest;
            let all = self.tokens.text;
            let (start, end) = (next.span.start as usize, next.span.end() as usize);
            let before = self.tokens.end((next.before as usize).checked_sub(1));
            let same_line = is_first && !all[before..start].contains('\n');
            let text = &all[start..end];
            self.push(match text {
                ";" => LayoutCommand::Text(text),
                _ if same_line => LayoutCommand::Trailing(text),
                _ => LayoutCommand::Own(text),
            });
            is_first = false;
        }
    }

    fn has_comments(&self, before: usize) -> bool {
        self.trivia.first().is_some_and(|next| next.before as usize <= before)
    }

    /// Lays out operands with operators between them: on one line, or with each operator at the beginning of a line.
    fn chain(&mut self, tokens: Range<usize>, indent: usize) {
        let Some((level, places)) = self.tokens.breaks(tokens.clone()) else { return self.operand(tokens) };
        if self.ends_with_list(&tokens, &places) {
            return self.operand(tokens);
        }
        self.push_all([LayoutCommand::Open, LayoutCommand::Indent(indent)]);
        let mut start = tokens.start;
        for place in places {
            self.chain(start..place, indent);
            start = place + 1;
            if level == BreakLevel::Comma {
                self.token(place);
                self.comments(start);
                self.push(LayoutCommand::Fill);
            } else {
                self.comments(place);
                self.push(if level == BreakLevel::Values {
                    LayoutCommand::Fill
                } else {
                    LayoutCommand::Line(Flat::Space)
                });
                self.token(place);
                self.comments(start);
                self.push(LayoutCommand::Space);
            }
        }
        self.chain(start..tokens.end, indent);
        self.push_all([LayoutCommand::Dedent, LayoutCommand::Close]);
    }

    /// True if the code can only be broken at `in` and a list, as in `param n = 1 in [1, 2]`. Then the list is broken.
    fn ends_with_list(&self, tokens: &Range<usize>, places: &[usize]) -> bool {
        let &[place] = places else { return false };
        self.tokens.text(place) == "in"
            && self.tokens.text(place + 1) == "["
            && self.tokens.past(place + 1) == tokens.end
            && self.tokens.breaks(tokens.start..place).is_none()
    }

    /// Lays out tokens that stay together, except for brackets among them.
    fn operand(&mut self, tokens: Range<usize>) {
        let mut index = tokens.start;
        while index < tokens.end {
            if index > tokens.start {
                self.comments(index);
                if self.tokens.are_apart(index - 1, index) {
                    self.push(LayoutCommand::Space);
                }
            }
            if self.tokens.is_condition(index, tokens.end) {
                index = self.condition(index);
            } else if self.is_pair(index, tokens.end) {
                self.list(index);
                index = self.tokens.past(index);
            } else {
                self.token(index);
                index += 1;
            }
        }
    }

    fn is_pair(&self, open: usize, end: usize) -> bool {
        matches!(self.tokens.outline.kind(open), Some(TokenKind::Open(_))) && self.tokens.outline.closing(open) < end
    }

    /// Lays out brackets and their contents: on one line, or one item per line. An arrow begins a line of its own.
    /// Several items on lines of their own end with a comma.
    fn list(&mut self, open: usize) {
        let close = self.tokens.outline.closing(open);
        self.token(open);
        if open + 1 == close && !self.has_comments(close) {
            return self.token(close);
        }
        let edge = if self.tokens.text(open) == "{" { Flat::Space } else { Flat::Nothing };
        let ends = self.item_ends(open, close);
        let between = if self.are_plain(open, &ends) { LayoutCommand::Fill } else { LayoutCommand::Line(Flat::Space) };
        self.push_all([LayoutCommand::Open, LayoutCommand::Indent(0), LayoutCommand::Indent(INDENT)]);
        self.comments(open + 1);
        self.push(LayoutCommand::Line(edge));
        let mut start = open + 1;
        for (number, &end) in ends.iter().enumerate() {
            if number > 0 {
                if self.tokens.text(start) != "->" {
                    self.push(LayoutCommand::Text(","));
                }
                self.comments(start);
                self.push(between);
            }
            self.item(start..end);
            start = if self.tokens.text(end) == "," { end + 1 } else { end };
        }
        if ends.len() > 1 {
            self.push(LayoutCommand::IfBroken(","));
        }
        self.comments(close);
        self.push_all([LayoutCommand::Dedent, LayoutCommand::Line(edge)]);
        self.token(close);
        self.push_all([LayoutCommand::Dedent, LayoutCommand::Close]);
    }

    /// Ends of the items of a list: commas, arrows, and the closing bracket. An arrow belongs to the item after it.
    fn item_ends(&self, open: usize, close: usize) -> Vec<usize> {
        let mut ends = Vec::new();
        let mut start = open + 1;
        let mut index = start;
        while index < close {
            match self.tokens.text(index) {
                "," => {
                    ends.push(index);
                    start = index + 1;
                }
                "->" if index > start => {
                    ends.push(index);
                    start = index;
                }
                _ => {}
            }
            index = self.tokens.past(index);
        }
        if start < close {
            ends.push(close);
        }
        ends
    }

    /// True if the items are a plain list of numbers, words or texts, which may share lines.
    fn are_plain(&self, open: usize, ends: &[usize]) -> bool {
        let mut start = open + 1;
        self.tokens.text(open) == "["
            && ends.iter().all(|&end| {
                let first = start + usize::from(self.tokens.text(start) == "-");
                start = end + 1;
                first + 1 == end
            })
    }

    fn item(&mut self, tokens: Range<usize>) {
        let mut start = tokens.start;
        while matches!(self.tokens.outline.kind(start), Some(TokenKind::Doc)) || self.tokens.text(start) == "->" {
            self.token(start);
            self.push(LayoutCommand::Space);
            start += 1;
            self.comments(start);
        }
        self.chain(start..tokens.end, INDENT);
    }

    /// Lays out `if a { x } else if b { y } else { z }`: on one line, or each value on its own. Returns the index after
    /// it.
    fn condition(&mut self, start: usize) -> usize {
        self.push(LayoutCommand::Open);
        let mut index = start;
        loop {
            let is_if = self.tokens.text(index) == "if";
            let brace = self.tokens.outline.brace(index + 1);
            self.token(index);
            index += 1;
            if is_if {
                self.comments(index);
                self.push(LayoutCommand::Space);
                self.chain(index..brace, INDENT);
                index = brace;
            }
            self.branch(index);
            index = self.tokens.past(index);
            if !is_if || self.tokens.text(index) != "else" {
                break;
            }
            self.comments(index);
            self.push(LayoutCommand::Space);
            if self.tokens.text(index + 1) == "if" {
                self.token(index);
                index += 1;
                self.comments(index);
                self.push(LayoutCommand::Space);
            }
        }
        self.push(LayoutCommand::Close);
        index
    }

    fn branch(&mut self, open: usize) {
        let close = self.tokens.outline.closing(open);
        self.comments(open);
        self.push(LayoutCommand::Space);
        self.token(open);
        self.push_all([LayoutCommand::Indent(0), LayoutCommand::Indent(INDENT)]);
        self.comments(open + 1);
        self.push(LayoutCommand::Line(Flat::Space));
        self.chain(open + 1..close, INDENT);
        self.comments(close);
        self.push_all([LayoutCommand::Dedent, LayoutCommand::Line(Flat::Space)]);
        self.token(close);
        self.push(LayoutCommand::Dedent);
    }
}
