//! Cuts a file into declarations and statements by a small lexer, without understanding them.
//!
//! Newlines mean nothing in the language, yet the pieces can be told apart: no statement begins with a token that
//! could continue an expression, so a word that directly follows the end of an expression begins the next piece.
//! Each piece is then parsed by itself, which gives every error of a file at once and keeps the parser's memory small.
//! Brackets are matched and their nesting is limited here, before any recursive code sees the text.

use crate::base::SrcSpan;

use super::error::SyntaxError;

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
    pub body: Body,
}

/// What follows a piece's head.
#[derive(Debug)]
pub enum Body {
    None,
    Block(Vec<Piece>),
    /// The further arms of an `if` (each head reads `if …`), and the last `else`.
    Branches {
        first: Vec<Piece>,
        others: Vec<(SrcSpan, Vec<Piece>)>,
        otherwise: Option<Vec<Piece>>,
    },
}

/// A file in pieces.
#[derive(Debug, Default)]
pub struct Pieces {
    pub about: Vec<SrcSpan>,
    pub decls: Vec<Piece>,
    /// What belongs to no piece because of a mistake.
    pub lost: Vec<SrcSpan>,
}

/// Errors that are kept of each pass through a file. More are never shown, and take memory.
const MAX_KEPT: usize = 1000;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Word,
    Number,
    Text,
    Open(u8),
    Close(u8),
    Punct,
    Doc,
    About,
}

#[derive(Clone, Copy, Debug)]
struct Token {
    kind: Kind,
    span: SrcSpan,
}

/// Cuts `text`, whose first byte lies at `base` of the source map.
pub fn split(text: &str, base: u32, max_nesting: usize, errors: &mut Vec<SyntaxError>) -> Pieces {
    let tokens = lex(text, base, errors);
    let mut unbalanced = Vec::new();
    // A bracket, or a text that has no end, may take anything with it.
    let all = span(base, 0, text.len());
    let mut lost = Vec::new();
    if errors.iter().any(|error| matches!(error, SyntaxError::UnclosedText { .. })) {
        lost.push(all);
    }
    let Some(mut closing) = match_brackets(&tokens, text, base, max_nesting, false, &mut unbalanced) else {
        errors.append(&mut unbalanced);
        return Pieces { lost: vec![all], ..Pieces::default() };
    };
    if !unbalanced.is_empty() {
        lost.push(all);
        unbalanced.clear();
        if let Some(recovered) = match_brackets(&tokens, text, base, max_nesting, true, &mut unbalanced) {
            closing = recovered;
        }
        errors.append(&mut unbalanced);
    }
    let (brace, condition_end) = (Vec::new(), Vec::new());
    let mut splitter = Splitter { text, base, brace, condition_end, tokens, closing, lost, errors };
    splitter.find_conditions();
    splitter.file()
}

fn lex(text: &str, base: u32, errors: &mut Vec<SyntaxError>) -> Vec<Token> {
    let bytes = text.as_bytes();
    let mut tokens = Vec::with_capacity(text.len() / 4);
    let mut at = 0;
    let line_end = |from: usize| text[from..].find('\n').map_or(text.len(), |length| from + length);
    while at < bytes.len() {
        let start = at;
        let rest = &text[at..];
        let kind = match bytes[at] {
            b' ' | b'\t' | b'\r' | b'\n' => {
                at += 1;
                continue;
            }
            b'/' if rest.starts_with("//") => {
                at = line_end(at);
                let line = &text[start..at];
                if line.starts_with("//!") {
                    Kind::About
                } else if line.starts_with("///") && !line.starts_with("////") {
                    Kind::Doc
                } else {
                    continue;
                }
            }
            b'"' => {
                at = text_end(text, at);
                if at > bytes.len() {
                    let span = span(base, start, line_end(start));
                    note(errors, SyntaxError::UnclosedText { at: span.into() });
                    at = line_end(start);
                }
                Kind::Text
            }
            b'0'..=b'9' => {
                at = number_end(bytes, at);
                Kind::Number
            }
            b'_' | b'a'..=b'z' | b'A'..=b'Z' => {
                while at < bytes.len() && is_word_byte(bytes[at]) {
                    at += 1;
                }
                Kind::Word
            }
            open @ (b'(' | b'[' | b'{') => {
                at += 1;
                Kind::Open(open)
            }
            close @ (b')' | b']' | b'}') => {
                at += 1;
                Kind::Close(close)
            }
            b'-' if rest.starts_with("->") => {
                at += 2;
                Kind::Punct
            }
            b'=' | b'!' | b'<' | b'>' | b'+' | b'-' | b'*' | b'/' | b'%' | b'.' | b',' | b':' | b'~' => {
                at += 1;
                Kind::Punct
            }
            // What has no meaning still stands between two operands: the piece around it is not cut in two.
            mark @ (b'&' | b'|') => {
                at += 1 + usize::from(bytes.get(at + 1) == Some(&mark));
                let meant = if mark == b'&' { "and" } else { "or" };
                let found = text[start..at].to_owned();
                let at = span(base, start, at).into();
                note(errors, SyntaxError::ForeignOperator { found, meant, at });
                Kind::Punct
            }
            _ => {
                let character = rest.chars().next().unwrap_or('\u{fffd}');
                at += character.len_utf8();
                note(errors, SyntaxError::UnexpectedCharacter { character, at: span(base, start, at).into() });
                if character == ';' {
                    continue;
                }
                Kind::Punct
            }
        };
        tokens.push(Token { kind, span: span(base, start, at) });
    }
    tokens
}

/// Notes an error of a pass that finds them in the order of the text.
fn note(errors: &mut Vec<SyntaxError>, error: SyntaxError) {
    if errors.len() < MAX_KEPT {
        errors.push(error);
    }
}

fn span(base: u32, start: usize, end: usize) -> SrcSpan {
    SrcSpan::new(base as usize + start, base as usize + end)
}

fn is_word_byte(byte: u8) -> bool {
    byte == b'_' || byte.is_ascii_alphanumeric()
}

/// The end of the text literal that begins at `at`, or a place past the end when it has none.
fn text_end(text: &str, at: usize) -> usize {
    let bytes = text.as_bytes();
    if text[at..].starts_with("\"\"\"") {
        return text[at + 3..].find("\"\"\"").map_or(text.len() + 1, |length| at + length + 6);
    }
    let mut end = at + 1;
    while end < bytes.len() {
        match bytes[end] {
            b'"' => return end + 1,
            b'\\' => end += 2,
            b'\n' => break,
            _ => end += 1,
        }
    }
    text.len() + 1
}

/// The end of a number with its unit: `4_096`, `1e-4`, `64MiB`, `400GB/s`, `80%`.
fn number_end(bytes: &[u8], mut at: usize) -> usize {
    let byte = |at: usize| bytes.get(at).copied().unwrap_or(0);
    while byte(at).is_ascii_digit() || byte(at) == b'_' {
        at += 1;
    }
    if byte(at) == b'.' && byte(at + 1).is_ascii_digit() {
        at += 1;
        while byte(at).is_ascii_digit() {
            at += 1;
        }
    }
    if matches!(byte(at), b'e' | b'E') && matches!(byte(at + 1), b'+' | b'-') && byte(at + 2).is_ascii_digit() {
        at += 2;
    }
    while is_word_byte(byte(at)) {
        at += 1;
    }
    if byte(at) == b'%' {
        at += 1;
    }
    if byte(at) == b'/' && byte(at + 1) == b's' && !is_word_byte(byte(at + 2)) && byte(at - 1).is_ascii_alphabetic() {
        at += 2;
    }
    at
}

/// For each opening bracket the index of its closing one (the number of tokens when there is none).
/// Nothing when the nesting passes its limit. In a file whose brackets do not balance, `recover` takes a declaration
/// at the beginning of a line for the end of whatever is open, so that one lost bracket hides no other mistake.
fn match_brackets(
    tokens: &[Token],
    text: &str,
    base: u32,
    max_nesting: usize,
    recover: bool,
    errors: &mut Vec<SyntaxError>,
) -> Option<Vec<u32>> {
    let mut closing = vec![tokens.len() as u32; tokens.len()];
    let mut open: Vec<(usize, u8)> = Vec::new();
    for (index, token) in tokens.iter().enumerate() {
        match token.kind {
            Kind::Word if recover && !open.is_empty() => {
                let start = (token.span.start - base) as usize;
                let word = &text[start..start + token.span.len as usize];
                let first_on_line = start == 0 || text.as_bytes()[start - 1] == b'\n';
                if first_on_line && DECLARATIONS.contains(&word) {
                    for (inner, opened) in open.drain(..) {
                        closing[inner] = index as u32 - 1;
                        note(errors, unclosed(tokens[inner].span, opened, token.span));
                    }
                }
            }
            Kind::Open(bracket) => {
                open.push((index, bracket));
                if open.len() > max_nesting {
                    errors.push(SyntaxError::TooDeep { limit: max_nesting, at: token.span.into() });
                    return None;
                }
            }
            Kind::Close(bracket) => {
                let fits = |&(_, opened): &(usize, u8)| {
                    matches!((opened, bracket), (b'(', b')') | (b'[', b']') | (b'{', b'}'))
                };
                match open.iter().rposition(fits) {
                    None => {
                        let bracket = char::from(bracket);
                        note(errors, SyntaxError::UnmatchedClose { bracket, at: token.span.into() });
                    }
                    Some(place) => {
                        for &(inner, opened) in &open[place + 1..] {
                            closing[inner] = index as u32;
                            note(errors, unclosed(tokens[inner].span, opened, token.span));
                        }
                        closing[open[place].0] = index as u32;
                        open.truncate(place);
                    }
                }
            }
            _ => {}
        }
    }
    let end = span(base, text.len(), text.len());
    for (index, bracket) in open {
        errors.push(unclosed(tokens[index].span, bracket, end));
    }
    Some(closing)
}

fn unclosed(at: SrcSpan, bracket: u8, end: SrcSpan) -> SyntaxError {
    let close = match bracket {
        b'(' => ')',
        b'[' => ']',
        _ => '}',
    };
    SyntaxError::Unclosed { bracket: char::from(bracket), close, at: at.into(), end: end.into() }
}

struct Splitter<'a> {
    text: &'a str,
    base: u32,
    tokens: Vec<Token>,
    closing: Vec<u32>,
    /// For each token, the next `{` on its level that belongs to no expression; the number of tokens when there is none.
    brace: Vec<u32>,
    /// For each `if`, where the expression `if a { x } else { y }` ends.
    condition_end: Vec<u32>,
    lost: Vec<SrcSpan>,
    errors: &'a mut Vec<SyntaxError>,
}

impl Splitter<'_> {
    /// Notes an error, while there is room for one; those of the passes before are there already.
    fn note(&mut self, make: impl FnOnce(&Self) -> SyntaxError) {
        if self.errors.len() < 3 * MAX_KEPT {
            let error = make(self);
            self.errors.push(error);
        }
    }

    fn word(&self, index: usize) -> &str {
        match self.tokens.get(index) {
            Some(token) if token.kind == Kind::Word => self.token_text(token),
            _ => "",
        }
    }

    fn token_text(&self, token: &Token) -> &str {
        let start = (token.span.start - self.base) as usize;
        &self.text[start..start + token.span.len as usize]
    }

    fn kind(&self, index: usize) -> Option<Kind> {
        self.tokens.get(index).map(|token| token.kind)
    }

    /// The index after the bracket that closes the one at `index`.
    fn past(&self, index: usize) -> usize {
        (self.closing[index] as usize + 1).min(self.tokens.len())
    }

    fn file(&mut self) -> Pieces {
        let mut about = Vec::new();
        let mut at = 0;
        while self.kind(at) == Some(Kind::About) {
            about.push(self.tokens[at].span);
            at += 1;
        }
        let decls = self.pieces(at, self.tokens.len(), true);
        Pieces { about, decls, lost: std::mem::take(&mut self.lost) }
    }

    /// The pieces between two tokens: of the file (`top`) or of a block.
    fn pieces(&mut self, mut at: usize, end: usize, top: bool) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let mut docs = Vec::new();
        while at < end {
            let token = self.tokens[at];
            match token.kind {
                Kind::Doc if top => {
                    docs.push(token.span);
                    at += 1;
                }
                Kind::Doc | Kind::About => {
                    let mark = if token.kind == Kind::Doc { "///" } else { "//!" };
                    self.note(|_| SyntaxError::StrayDoc { mark, at: token.span.into() });
                    at += 1;
                }
                // Reported when the brackets were matched.
                Kind::Close(_) => at += 1,
                Kind::Word => {
                    let (piece, next) = self.piece(at, end, top, std::mem::take(&mut docs));
                    pieces.extend(piece);
                    at = next;
                }
                _ => {
                    let next = self.skip(at, end);
                    let last = self.tokens[next - 1].span;
                    self.lost.push(token.span.to(last));
                    self.note(|this| SyntaxError::Expected {
                        expected: if top { "a declaration" } else { "a statement" }.to_owned(),
                        found: format!("`{}`", this.token_text(&token)),
                        at: token.span.to(last).into(),
                        help: None,
                    });
                    at = next;
                }
            }
        }
        if let Some(&doc) = docs.first() {
            self.note(|_| SyntaxError::StrayDoc { mark: "///", at: doc.into() });
        }
        pieces
    }

    /// The end of a stretch that begins with no word: up to the next word that could begin a piece.
    fn skip(&self, at: usize, end: usize) -> usize {
        let mut next = at;
        while next < end && !matches!(self.kind(next), Some(Kind::Word | Kind::Doc)) {
            next = match self.kind(next) {
                Some(Kind::Open(_)) => self.past(next),
                _ => next + 1,
            };
        }
        next.clamp(at + 1, end.max(at + 1))
    }

    fn piece(&mut self, at: usize, end: usize, top: bool, docs: Vec<SrcSpan>) -> (Option<Piece>, usize) {
        let lead = self.word(at).to_owned();
        let known: &[&str] = if top { &DECLARATIONS } else { &STATEMENTS };
        let next_is_word = self.kind(at + 1) == Some(Kind::Word) && at + 1 < end;
        let is_keyword = match lead.as_str() {
            // Ordinary words in another place: an operation may be labelled `phase`.
            "phase" | "buffer" if !top => next_is_word,
            "group" if !top => self.kind(at + 1) == Some(Kind::Open(b'{')),
            lead => known.contains(&lead),
        };
        let unknown = !is_keyword && (top || (next_is_word && !CONTINUING.contains(&self.word(at + 1))));
        if unknown {
            self.note(|this| SyntaxError::UnknownKeyword {
                word: lead.clone(),
                what: if top { "declaration" } else { "statement" },
                at: this.tokens[at].span.into(),
                help: crate::base::suggest::did_you_mean(&lead, known.iter().copied()),
            });
        }
        let takes_block = is_keyword
            && match lead.as_str() {
                "def" | "setup" | "step" | "teardown" => top,
                "for" | "if" | "on" | "phase" | "group" => !top,
                _ => false,
            };

        // Walk to the end of the piece, or to the brace of its block.
        let mut index = at + 1;
        let mut after_keyword = is_keyword || unknown;
        while index < end {
            match self.tokens[index].kind {
                Kind::Open(b'{') if takes_block => return self.block(at, index, end, &lead, docs),
                Kind::Open(_) => index = self.past(index),
                Kind::Close(_) => break,
                Kind::Doc | Kind::About => break,
                Kind::Word => {
                    let word = self.word(index);
                    // `let` and the like can stand in no expression; `stream s` in none either.
                    let begins = matches!(word, "let" | "for" | "on")
                        || (known.contains(&word) && self.kind(index + 1) == Some(Kind::Word) && word != "if");
                    if begins && !after_keyword {
                        break;
                    }
                    if after_keyword || !self.ends_operand(index - 1, &lead) || CONTINUING.contains(&word) {
                        index = if word == "if" { self.condition_end[index] as usize } else { index + 1 };
                    } else {
                        break;
                    }
                }
                _ => index += 1,
            }
            after_keyword = false;
        }
        let index = index.min(end);
        let head = self.tokens[at].span.to(self.tokens[index - 1].span);
        if takes_block {
            self.note(|_| SyntaxError::MissingBlock { word: lead, at: head.into() });
            self.lost.push(head);
            return (None, index);
        }
        if unknown {
            self.lost.push(head);
        }
        let piece = Piece { docs, head, body: Body::None };
        ((!unknown).then_some(piece), index)
    }

    /// A piece whose block opens at `open`.
    fn block(&mut self, at: usize, open: usize, end: usize, lead: &str, docs: Vec<SrcSpan>) -> (Option<Piece>, usize) {
        let head = self.tokens[at].span.to(self.tokens[open - 1].span);
        let first = self.inside(open);
        let mut next = self.past(open);
        let body = if lead == "if" {
            let mut others = Vec::new();
            let mut otherwise = None;
            while next < end && self.word(next) == "else" {
                let start = next + 1;
                let header = if self.word(start) == "if" { start + 1 } else { start };
                let brace = self.brace[header.min(self.tokens.len())] as usize;
                if brace >= end {
                    let at = self.tokens[next].span.into();
                    self.note(|_| SyntaxError::MissingBlock { word: "else".to_owned(), at });
                    next = start;
                    break;
                }
                let inner = self.inside(brace);
                next = self.past(brace);
                if self.word(start) == "if" {
                    others.push((self.tokens[start].span.to(self.tokens[brace - 1].span), inner));
                } else {
                    if brace != start {
                        let stray = self.tokens[start].span.to(self.tokens[brace - 1].span);
                        self.note(|this| SyntaxError::Expected {
                            expected: "`{` or `if`".to_owned(),
                            found: format!("`{}`", this.token_text(&this.tokens[start])),
                            at: stray.into(),
                            help: None,
                        });
                    }
                    otherwise = Some(inner);
                    break;
                }
            }
            Body::Branches { first, others, otherwise }
        } else {
            Body::Block(first)
        };
        (Some(Piece { docs, head, body }), next)
    }

    fn inside(&mut self, open: usize) -> Vec<Piece> {
        let close = self.closing[open] as usize;
        self.pieces(open + 1, close, false)
    }

    /// Fills `brace` and `condition_end` from the last token to the first, so that no chain of `if`, however long,
    /// is walked twice or by recursion.
    fn find_conditions(&mut self) {
        let count = self.tokens.len();
        self.brace = vec![count as u32; count + 1];
        self.condition_end = vec![count as u32; count + 1];
        for index in (0..count).rev() {
            self.brace[index] = match self.tokens[index].kind {
                Kind::Open(b'{') => index as u32,
                Kind::Open(_) => self.brace[self.past(index)],
                Kind::Close(_) => count as u32,
                Kind::Word if self.word(index) == "if" => {
                    self.condition_end[index] = self.past_condition(index);
                    self.brace[self.condition_end[index] as usize]
                }
                _ => self.brace[index + 1],
            };
        }
    }

    fn past_condition(&self, index: usize) -> u32 {
        let brace = self.brace[index + 1] as usize;
        if brace == self.tokens.len() {
            return index as u32 + 1;
        }
        let next = self.past(brace);
        if self.word(next) != "else" {
            return next as u32;
        }
        match self.kind(next + 1) {
            Some(Kind::Open(b'{')) => self.past(next + 1) as u32,
            Some(Kind::Word) if self.word(next + 1) == "if" => self.condition_end[next + 1],
            _ => next as u32 + 1,
        }
    }

    /// Whether an expression may end with the token at `index`.
    fn ends_operand(&self, index: usize, lead: &str) -> bool {
        match self.tokens[index].kind {
            Kind::Word => {
                let word = self.word(index);
                let like = word == "like" && lead == "buffer";
                !like && (!RESERVED.contains(&word) || matches!(word, "true" | "false"))
            }
            Kind::Number | Kind::Text | Kind::Close(_) => true,
            // `..` as an index ends inside brackets only.
            _ => false,
        }
    }
}
