//! Cuts a file into declarations and statements by their tokens, without understanding them.
//!
//! Newlines mean nothing in the language, yet the pieces can be told apart: no statement begins with a token that
//! could continue an expression, so a word that directly follows the end of an expression begins the next piece.
//! Each piece is then parsed by itself, which gives every error of a file at once and keeps the parser's memory small.

use std::ops::Range;

use crate::base::SrcSpan;

use super::brackets::{self, Clues, Outline};
use super::error::{SyntaxError, note};
use super::lex::{Slashes, TokenKind, Trivia, lex};

/// Words that cannot be names.
pub const RESERVED: [&str; 15] =
    ["after", "and", "at", "else", "false", "for", "if", "in", "let", "not", "on", "or", "over", "true", "when"];

/// Words that begin a declaration.
pub const DECLARATIONS: [&str; 16] = [
    "meta", "param", "let", "preset", "stream", "buffer", "mesh", "kernel", "def", "use", "draw", "setup", "step",
    "teardown", "metric", "expect",
];

/// Words that begin a statement (besides an operation's name or label).
pub const STATEMENTS: [&str; 7] = ["for", "if", "on", "let", "phase", "group", "buffer"];

/// Reserved words, and `like`, that may follow an operand inside one piece.
const CONTINUING: [&str; 9] = ["after", "and", "at", "else", "in", "like", "or", "over", "when"];

/// A stretch of a file that is parsed by itself.
#[derive(Debug)]
pub struct Piece {
    /// The `///` lines above.
    pub docs: Vec<SrcSpan>,
    /// The text to parse: all of a simple piece, the head of one with a block.
    pub head: SrcSpan,
    /// The tokens of all of it, its blocks too.
    pub tokens: Range<usize>,
    pub body: Body,
}

/// What follows a piece's head.
#[derive(Debug)]
pub enum Body {
    None,
    Block(Block),
    /// The further arms of an `if` (each head reads `if …`), and the last `else`.
    Branches {
        first: Block,
        others: Vec<(SrcSpan, Block)>,
        otherwise: Option<Block>,
    },
    /// Tokens that are no piece. What is wrong with them has been told.
    Stray,
}

/// What stands between braces.
#[derive(Debug)]
pub struct Block {
    /// The index of the `{`.
    pub open: usize,
    pub pieces: Vec<Piece>,
}

/// A file in pieces, and what they were cut from. No tokens are left out but documentation and brackets that close
/// nothing.
#[derive(Debug, Default)]
pub struct Pieces {
    pub about: Vec<SrcSpan>,
    pub decls: Vec<Piece>,
    pub outline: Outline,
    pub trivia: Vec<Trivia>,
}

/// Cuts `text`, whose first byte lies at `base` of the source map. Nothing when the nesting passes its limit.
pub fn split(text: &str, base: u32, max_nesting: usize, clues: Clues, errors: &mut Vec<SyntaxError>) -> Option<Pieces> {
    let before = errors.len();
    let mut lexed = lex(text, base, Slashes::Comment, errors);
    if !brackets::balance(&lexed.tokens) {
        errors.truncate(before);
        lexed = lex(text, base, Slashes::Division, errors);
    }
    let outline = Outline::new(lexed.tokens, text, base, max_nesting, clues, errors)?;
    let mut splitter = Splitter { text, base, outline: &outline, errors };
    let (about, decls) = splitter.file();
    Some(Pieces { about, decls, outline, trivia: lexed.trivia })
}

struct Splitter<'a> {
    text: &'a str,
    base: u32,
    outline: &'a Outline,
    errors: &'a mut Vec<SyntaxError>,
}

impl<'a> Splitter<'a> {
    /// Behind those of the lexer and of the brackets.
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
        Piece { docs, head, tokens, body: Body::Stray }
    }

    /// The pieces between two tokens: of the file (`top`) or of a block.
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

    /// The end of a stretch that begins with no word: up to the next word that could begin a piece.
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
        let lead = self.word(at);
        let known: &[&str] = if top { &DECLARATIONS } else { &STATEMENTS };
        let next_is_word = self.kind(at + 1) == Some(TokenKind::Word) && at + 1 < end;
        let is_keyword = match lead {
            // Ordinary words in another place: an operation may be labelled `phase`.
            "phase" | "buffer" if !top => next_is_word,
            "group" if !top => self.kind(at + 1) == Some(TokenKind::Open(b'{')),
            lead => known.contains(&lead),
        };
        let unknown = !is_keyword && (top || (next_is_word && !CONTINUING.contains(&self.word(at + 1))));
        if unknown {
            self.note(SyntaxError::UnknownKeyword {
                word: lead.to_owned(),
                what: if top { "declaration" } else { "statement" },
                at: self.span(at).into(),
                help: crate::base::suggest::did_you_mean(lead, known.iter().copied()),
            });
        }
        let takes_block = is_keyword
            && match lead {
                "def" | "setup" | "step" | "teardown" => top,
                "for" | "if" | "on" | "phase" | "group" => !top,
                _ => false,
            };

        // Walk to the end of the piece, or to the brace of its block.
        let mut index = at + 1;
        let mut after_keyword = is_keyword || unknown;
        while index < end {
            match self.outline.tokens[index].kind {
                TokenKind::Open(b'{') if takes_block => return self.block(at, index, end, lead, docs),
                TokenKind::Open(_) => index = self.outline.past(index),
                TokenKind::Close(_) | TokenKind::Doc | TokenKind::About => break,
                TokenKind::Word => {
                    let word = self.word(index);
                    // `let` and the like can stand in no expression; `stream s` in none either.
                    // The formatter moves lines of blocks: where they begin decides nothing there.
                    let line = top && self.begins_line(index);
                    let begins = matches!(word, "let" | "for" | "on") || line || self.is_head(index, end, top);
                    if begins && (!after_keyword || (unknown && line)) {
                        break;
                    }
                    // Other languages have the step of a loop there: it is told when the head is parsed.
                    if lead == "for" && takes_block && matches!(word, "step" | "by") {
                        index += 1;
                        continue;
                    }
                    if after_keyword || !self.ends_operand(index - 1, lead) || CONTINUING.contains(&word) {
                        index = self.outline.condition_end(index);
                    } else {
                        break;
                    }
                }
                _ => index += 1,
            }
            after_keyword = false;
        }
        let index = index.min(end);
        let head = self.span(at).to(self.span(index - 1));
        if takes_block {
            self.note(SyntaxError::MissingBlock { word: lead.to_owned(), at: head.into() });
        }
        if takes_block || unknown {
            return self.stray(at..index, docs);
        }
        Piece { docs, head, tokens: at..index, body: Body::None }
    }

    /// Whether a declaration's word begins a line, with what may follow it: then what stands above ends there, however
    /// it ends.
    fn begins_line(&self, index: usize) -> bool {
        let start = (self.span(index).start - self.base) as usize;
        let first = start == 0 || self.text.as_bytes()[start - 1] == b'\n';
        let follows = matches!(self.kind(index + 1), Some(TokenKind::Word | TokenKind::Open(b'{' | b'(')));
        first && follows && DECLARATIONS.contains(&self.word(index))
    }

    /// Whether the word at `index`, where an operand is expected, begins a declaration or a statement whose
    /// predecessor was broken off. Most such words may also be names, as in `let m = phase`; then another piece, or the
    /// rest of the expression, follows.
    fn is_head(&self, index: usize, end: usize, top: bool) -> bool {
        let name = self.word(index + 1);
        if index + 1 >= end || name.is_empty() || CONTINUING.contains(&name) {
            return false;
        }
        // The token behind the name and its index.
        let behind = match self.kind(index + 2) {
            Some(TokenKind::Open(b'[')) => self.outline.past(index + 2),
            _ => index + 2,
        };
        match self.word(index) {
            word if top => word != "let" && DECLARATIONS.contains(&word) && !DECLARATIONS.contains(&name),
            "phase" => self.kind(behind) == Some(TokenKind::Open(b'{')) && name != "group",
            // `buffer f: map(…)` is the operand `buffer`, and an operation with a label.
            "buffer" => self.is_punct(behind, ":") && !self.is_call(behind + 1),
            _ => false,
        }
    }

    fn is_punct(&self, index: usize, mark: &str) -> bool {
        self.kind(index) == Some(TokenKind::Punct) && self.token_text(index) == mark
    }

    /// Whether the word at `index` is called, as an operation is.
    fn is_call(&self, index: usize) -> bool {
        let called = self.kind(index + 1) == Some(TokenKind::Open(b'(')) || self.is_punct(index + 1, ".");
        self.kind(index) == Some(TokenKind::Word) && called
    }

    /// A piece whose block opens at `open`.
    fn block(&mut self, at: usize, open: usize, end: usize, lead: &str, docs: Vec<SrcSpan>) -> Piece {
        let head = self.span(at).to(self.span(open - 1));
        let first = self.inside(open);
        let next = self.outline.past(open);
        let (body, next) = match lead {
            "if" => self.branches(first, next, end),
            _ => (Body::Block(first), next),
        };
        Piece { docs, head, tokens: at..next.min(end), body }
    }

    /// What follows the first block of an `if`, from `next` on, and the index of the token behind it.
    fn branches(&mut self, first: Block, mut next: usize, end: usize) -> (Body, usize) {
        let mut others = Vec::new();
        let mut otherwise = None;
        while next < end && self.word(next) == "else" {
            let start = next + 1;
            let is_if = self.word(start) == "if";
            let brace = self.outline.brace(start + usize::from(is_if));
            if brace >= end {
                self.note(SyntaxError::MissingBlock { word: "else".to_owned(), at: self.span(next).into() });
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

    fn inside(&mut self, open: usize) -> Block {
        Block { open, pieces: self.pieces(open + 1, self.outline.closing(open), false) }
    }

    /// Whether an expression may end with the token at `index`.
    fn ends_operand(&self, index: usize, lead: &str) -> bool {
        match self.outline.tokens[index].kind {
            TokenKind::Word => {
                let word = self.word(index);
                let like = word == "like" && lead == "buffer";
                !like && (!RESERVED.contains(&word) || matches!(word, "true" | "false"))
            }
            TokenKind::Number | TokenKind::Text | TokenKind::Close(_) => true,
            // `..` as an index ends inside brackets only.
            _ => false,
        }
    }
}
