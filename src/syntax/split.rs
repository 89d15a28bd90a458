//! Splits a file into declarations and statements by its tokens, without parsing them.
//!
//! Newlines have no meaning in the language, yet pieces can be separated: no statement begins with a token that could
//! continue an expression, so a word directly after the end of an expression begins the next piece. Each piece is
//! parsed separately. This finds all errors of a file at once, and keeps the parser's memory small.

use std::ops::Range;

use crate::base::{SrcSpan, units};

use super::brackets::{self, BracketOutline, Clues};
use super::error::{SyntaxError, note};
use super::lex::{Slashes, Trivia, lex};
use super::token::TokenKind;
use super::words::{self, Keyword, Lead, continues};

/// A part of a file that is parsed separately.
#[derive(Debug)]
pub struct Piece {
    /// The `///` lines above.
    pub docs: Vec<SrcSpan>,
    /// The text to parse: all of a simple piece, or the head of one with a block.
    pub head: SrcSpan,
    /// Tokens of the piece, including its blocks.
    pub tokens: Range<usize>,
    /// The kind of declaration or statement, from its first word.
    pub lead: &'static Lead,
    pub body: Body,
}

/// The part of a piece after its head.
#[derive(Debug)]
pub enum Body {
    None,
    Block(BlockPieces),
    /// The other arms of an `if` (each head reads `if …`), and the last `else`.
    Branches {
        first: BlockPieces,
        others: Vec<(SrcSpan, BlockPieces)>,
        otherwise: Option<BlockPieces>,
    },
    /// Tokens that do not form a piece. The error has been reported.
    Stray,
}

/// The contents of braces.
#[derive(Debug)]
pub struct BlockPieces {
    /// Index of the `{`.
    pub open: usize,
    /// The text with its braces; up to the end of the file if it is not closed.
    pub span: SrcSpan,
    pub pieces: Vec<Piece>,
}

/// The pieces of a file and its tokens. Every token belongs to a piece, except documentation and unmatched closing
/// brackets.
#[derive(Debug, Default)]
pub struct Pieces {
    pub about: Vec<SrcSpan>,
    pub decls: Vec<Piece>,
    pub outline: BracketOutline,
    pub trivia: Vec<Trivia>,
}

/// Splits `text`, whose first byte is at `base` in the source map. `None` if the nesting exceeds its limit.
pub fn split(text: &str, base: u32, max_nesting: usize, clues: Clues, errors: &mut Vec<SyntaxError>) -> Option<Pieces> {
    let before = errors.len();
    let mut lexed = lex(text, base, Slashes::Comment, errors);
    if !brackets::balance(&lexed.tokens) {
        errors.truncate(before);
        lexed = lex(text, base, Slashes::Division, errors);
    }
    let outline = BracketOutline::new(lexed.tokens, text, base, max_nesting, clues, errors)?;
    let mut splitter = Splitter { text, base, outline: &outline, errors };
    let (about, decls) = splitter.file();
    Some(Pieces { about, decls, outline, trivia: lexed.trivia })
}

struct Splitter<'a> {
    text: &'a str,
    base: u32,
    outline: &'a BracketOutline,
    errors: &'a mut Vec<SyntaxError>,
}

impl<'a> Splitter<'a> {
    /// Errors of this pass come after those of the lexer and of the brackets.
    fn note(&mut self, error: SyntaxError) {
        note(self.errors, 3, error);
    }

    fn word(&self, index: usize) -> &'a str {
        match self.kind(index) {
            Some(TokenKind::Word) => self.token_text(index),
            _ => "",
        }
    }

    fn token_text(&self, index: usize) -> &'a str {
        self.outline.tokens[index].text(self.text, self.base)
    }

    fn span(&self, index: usize) -> SrcSpan {
        self.outline.tokens[index].span
    }

    fn kind(&self, index: usize) -> Option<TokenKind> {
        self.outline.kind(index)
    }

    fn file(&mut self) -> (Vec<SrcSpan>, Vec<Piece>) {
        let mut about = Vec::new();
        while self.kind(about.len()) == Some(TokenKind::About) {
            about.push(self.span(about.len()));
        }
        let decls = self.pieces(about.len(), self.outline.len(), true);
        (about, decls)
    }

    fn stray(&self, tokens: Range<usize>, docs: Vec<SrcSpan>) -> Piece {
        let head = self.span(tokens.start).to(self.span(tokens.end - 1));
        Piece { docs, head, tokens, lead: &words::OPERATION, body: Body::Stray }
    }

    /// The pieces between two tokens of the file (`top`) or of a block.
    fn pieces(&mut self, mut at: usize, end: usize, top: bool) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let mut docs = Vec::new();
        while at < end {
            let token = self.outline.tokens[at];
            match token.kind {
                TokenKind::Doc if top => {
                    docs.push(token.span);
                    at += 1;
                }
                TokenKind::Doc | TokenKind::About => {
                    self.note(SyntaxError::StrayDoc {
                        mark: if token.kind == TokenKind::Doc { "///" } else { "//!" },
                        at: token.span.into(),
                    });
                    at += 1;
                }
                // Reported when the brackets were matched.
                TokenKind::Close(_) => at += 1,
                TokenKind::Word => {
                    let piece = self.piece(at, end, top, std::mem::take(&mut docs));
                    at = piece.tokens.end;
                    pieces.push(piece);
                }
                _ => {
                    let next = self.skip(at, end);
                    let stray = self.stray(at..next, Vec::new());
                    self.note(SyntaxError::Expected {
                        expected: if top { "a declaration" } else { "a statement" }.to_owned(),
                        found: format!("`{}`", self.token_text(at)),
                        at: stray.head.into(),
                        help: None,
                    });
                    pieces.push(stray);
                    at = next;
                }
            }
        }
        if let Some(&doc) = docs.first() {
            self.note(SyntaxError::StrayDoc { mark: "///", at: doc.into() });
        }
        pieces
    }

    /// The end of tokens that begin with no word: the next word that could begin a piece.
    fn skip(&self, at: usize, end: usize) -> usize {
        let mut next = at;
        while next < end && !matches!(self.kind(next), Some(TokenKind::Word | TokenKind::Doc)) {
            next = match self.kind(next) {
                Some(TokenKind::Open(_)) => self.outline.past(next),
                _ => next + 1,
            };
        }
        next.clamp(at + 1, end.max(at + 1))
    }

    fn piece(&mut self, at: usize, end: usize, top: bool, docs: Vec<SrcSpan>) -> Piece {
        let word = self.word(at);
        let next = if at + 1 < end { self.word(at + 1) } else { "" };
        let is_label = !top && self.is_punct(at + 1, ":") && self.is_call(at + 2);
        let lead = words::lead(word, top).filter(|lead| match lead.keyword {
            _ if is_label => false,
            Keyword::Leading | Keyword::Everywhere => true,
            Keyword::BeforeName(_) => !next.is_empty(),
            Keyword::BeforeBlock => self.kind(at + 1) == Some(TokenKind::Open(b'{')),
        });
        let unknown = lead.is_none() && (top || !(next.is_empty() || continues(next)));
        if unknown {
            let what = if top { "declaration" } else { "statement" };
            self.note(SyntaxError::UnknownKeyword {
                word: word.to_owned(),
                what,
                at: self.span(at).into(),
                help: None,
            });
        }
        let opens = lead.filter(|lead| lead.has_block);

        // Advance to the end of the piece, or to the brace of its block.
        let mut index = at + 1;
        let mut after_keyword = lead.is_some() || unknown;
        // In `buffer a, b[2] like x` the first `like` after a name is a keyword, because everything before it is a
        // name.
        let mut only_names = lead.is_some() && word == "buffer";
        let mut like = None;
        while index < end {
            match (self.outline.tokens[index].kind, opens) {
                (TokenKind::Open(b'{'), Some(lead)) => return self.block(at, index, end, lead, docs),
                (TokenKind::Open(bracket), _) => {
                    only_names &= bracket == b'[';
                    index = self.outline.past(index);
                }
                (TokenKind::Close(_) | TokenKind::Doc | TokenKind::About, _) => break,
                (TokenKind::Number, _) if !top && self.is_numbered_label(index) => break,
                (TokenKind::Word, _) => {
                    let inner = self.word(index);
                    // Inside blocks, line starts do not matter, because the formatter moves lines.
                    let line = top && self.begins_line(index);
                    let everywhere = words::lead(inner, false).is_some_and(|lead| lead.keyword == Keyword::Everywhere);
                    let begins = everywhere || line || self.is_head(index, end, top);
                    if begins && (!after_keyword || line) {
                        break;
                    }
                    let behind_operand = !after_keyword && self.ends_operand(index - 1) && like != Some(index - 1);
                    if behind_operand && inner == "like" && only_names {
                        (like, only_names) = (Some(index), false);
                    } else if behind_operand && !continues(inner) && !self.is_separate_unit(index) {
                        // Reported when the head is parsed.
                        match opens.and_then(|_| self.brace_behind(index, end)) {
                            Some(brace) => index = brace,
                            None => break,
                        }
                        continue;
                    }
                    index = self.outline.condition_end(index);
                }
                _ => {
                    only_names &= self.is_punct(index, ",");
                    index += 1;
                }
            }
            after_keyword = false;
        }
        let index = index.min(end);
        let head = self.span(at).to(self.span(index - 1));
        if opens.is_some() {
            self.note(SyntaxError::MissingBlock { word: word.to_owned(), help: None, at: head.into() });
        }
        if opens.is_some() || unknown {
            return self.stray(at..index, docs);
        }
        Piece { docs, head, tokens: at..index, lead: lead.unwrap_or(&words::OPERATION), body: Body::None }
    }

    /// The `{` that ends the line of the head of a block with surplus words from `index` on, as in `on stream s {`. `None` if no
    /// brace follows, or another statement before it.
    fn brace_behind(&self, index: usize, end: usize) -> Option<usize> {
        let brace = self.outline.brace(index);
        if brace >= end {
            return None;
        }
        let start = |index: usize| (self.span(index).start - self.base) as usize;
        let is_one_line = !self.text[start(index)..start(brace)].contains('\n');
        let mut next = index;
        while is_one_line && next < brace {
            if self.is_punct(next, ":") || words::lead(self.word(next), false).is_some() {
                return None;
            }
            next = match self.kind(next) {
                Some(TokenKind::Open(_)) => self.outline.past(next),
                _ => next + 1,
            };
        }
        is_one_line.then_some(brace)
    }

    /// True if a declaration's word begins a line and is followed by what it requires. Then the piece above ends, even
    /// if it is incomplete.
    fn begins_line(&self, index: usize) -> bool {
        let start = (self.span(index).start - self.base) as usize;
        let first = start == 0 || self.text.as_bytes()[start - 1] == b'\n';
        let follows = matches!(self.kind(index + 1), Some(TokenKind::Word | TokenKind::Open(b'{' | b'(')));
        first && follows && words::lead(self.word(index), true).is_some()
    }

    /// True if the word at `index`, where an operand is expected, begins a declaration or a statement after an
    /// incomplete one. Most of these words can also be names, as in `let m = phase`; then another piece, or the rest of
    /// the expression, follows.
    fn is_head(&self, index: usize, end: usize, top: bool) -> bool {
        let Some(lead) = words::lead(self.word(index), top) else { return false };
        let name = self.word(index + 1);
        if index + 1 >= end || name.is_empty() || continues(name) {
            return false;
        }
        // The index after the name and its index in brackets.
        let behind = match self.kind(index + 2) {
            Some(TokenKind::Open(b'[')) => self.outline.past(index + 2),
            _ => index + 2,
        };
        match lead.keyword {
            Keyword::Leading => top && words::lead(name, top).is_none(),
            // In `phase group { … }`, `phase` is an operand, followed by a group.
            Keyword::BeforeName("{") => {
                let is_group = words::lead(name, top).is_some_and(|lead| lead.keyword == Keyword::BeforeBlock);
                self.kind(behind) == Some(TokenKind::Open(b'{')) && !is_group
            }
            // In `buffer f: map(…)`, `buffer` is an operand, followed by a labelled operation.
            Keyword::BeforeName(sign) => self.is_punct(behind, sign) && !self.is_call(behind + 1),
            Keyword::Everywhere | Keyword::BeforeBlock => false,
        }
    }

    fn is_punct(&self, index: usize, mark: &str) -> bool {
        self.kind(index) == Some(TokenKind::Punct) && self.token_text(index) == mark
    }

    /// True for a label that begins with a digit, directly after the end of an expression.
    fn is_numbered_label(&self, index: usize) -> bool {
        let behind = match self.kind(index + 1) {
            Some(TokenKind::Open(b'[')) => self.outline.past(index + 1),
            _ => index + 1,
        };
        self.ends_operand(index - 1) && self.is_punct(behind, ":") && self.is_call(behind + 1)
    }

    /// True if the word at `index` is called like an operation.
    fn is_call(&self, index: usize) -> bool {
        let called = self.kind(index + 1) == Some(TokenKind::Open(b'(')) || self.is_punct(index + 1, ".");
        self.kind(index) == Some(TokenKind::Word) && called
    }

    /// A piece whose block opens at `open`.
    fn block(&mut self, at: usize, open: usize, end: usize, lead: &'static Lead, docs: Vec<SrcSpan>) -> Piece {
        let head = self.span(at).to(self.span(open - 1));
        let first = self.inside(open);
        let next = self.outline.past(open);
        let (body, next) = match lead.word {
            "if" => self.branches(first, next, end),
            _ => (Body::Block(first), next),
        };
        Piece { docs, head, tokens: at..next.min(end), lead, body }
    }

    /// Reads what follows the first block of an `if`, from `next` on. Returns the index after it.
    fn branches(&mut self, first: BlockPieces, mut next: usize, end: usize) -> (Body, usize) {
        let mut others = Vec::new();
        let mut otherwise = None;
        while next < end && self.word(next) == "else" {
            let start = next + 1;
            let is_if = self.word(start) == "if";
            let brace = self.outline.brace(start + usize::from(is_if));
            if brace >= end {
                let (word, at) = ("else".to_owned(), self.span(next).into());
                self.note(SyntaxError::MissingBlock { word, help: None, at });
                next = start;
                break;
            }
            let inner = self.inside(brace);
            next = self.outline.past(brace);
            if is_if {
                others.push((self.span(start).to(self.span(brace - 1)), inner));
                continue;
            }
            if brace != start {
                self.note(SyntaxError::Expected {
                    expected: "`{` or `if`".to_owned(),
                    found: format!("`{}`", self.token_text(start)),
                    at: self.span(start).to(self.span(brace - 1)).into(),
                    help: None,
                });
            }
            otherwise = Some(inner);
            break;
        }
        (Body::Branches { first, others, otherwise }, next)
    }

    fn inside(&mut self, open: usize) -> BlockPieces {
        let close = self.outline.closing(open);
        let span = self.span(open).to(self.span(close.min(self.outline.len() - 1)));
        BlockPieces { open, span, pieces: self.pieces(open + 1, close, false) }
    }

    /// True for a unit that white space separates from its number, as in `10 us`. The parser reports it. A label, a call or the
    /// member of a module may have the name of a unit.
    fn is_separate_unit(&self, index: usize) -> bool {
        let names_more = [":", "."].iter().any(|mark| self.is_punct(index + 1, mark));
        let names_more = names_more || matches!(self.kind(index + 1), Some(TokenKind::Open(_)));
        self.kind(index - 1) == Some(TokenKind::Number) && units::unit(self.word(index)).is_some() && !names_more
    }

    /// True if an expression can end with the token at `index`.
    fn ends_operand(&self, index: usize) -> bool {
        match self.outline.tokens[index].kind {
            TokenKind::Word => words::ends_value(self.word(index)),
            TokenKind::Number | TokenKind::Text | TokenKind::Close(_) => true,
            // `..` as an index is only followed by the end of brackets.
            _ => false,
        }
    }
}
