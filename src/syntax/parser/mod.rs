//! Pieces to tree, by pest.

mod advice;
mod aftermath;
mod decl;
mod expr;
mod failure;
mod reparse;
mod stmt;

pub use reparse::{Edit, Old, Reparsed, reparse};

use crate::base::{Interner, SrcSpan};
use pest::Parser as _;
use pest::error::ErrorVariant;
use pest::iterators::{Pair, Pairs};

use super::Limits;
use super::ast::*;
use super::brackets::Clues;
use super::error::SyntaxError;
use super::grammar::{Grammar, Rule};
use super::split::{self, Block as PieceBlock, Body, Piece, Pieces};
use super::words::Lead;

/// Errors told of one text: nobody reads more, and each costs time and output.
const MAX_ERRORS: usize = 100;

/// Bytes of a piece: the parser takes two hundred times as much memory.
const MAX_PIECE: usize = 1 << 20;

/// Parses a file whose text lies at `base` of the source map. The tree holds whatever could be understood;
/// the errors are all that the text has, in the order of their places, a hundred at most.
pub fn parse(text: &str, base: u32, limits: &Limits) -> (Ast, Vec<SyntaxError>) {
    if text.len() > limits.file_bytes {
        let error = SyntaxError::FileTooLarge { limit: limits.file_bytes };
        return (Ast::default(), vec![error]);
    }
    let built = parse_with(text, base, limits, Old::default());
    (built.ast, built.errors)
}

/// Parses a text within the limits, but for the pieces whose trees are in `old`.
fn parse_with(text: &str, base: u32, limits: &Limits, old: Old) -> Built {
    let mut errors = Vec::new();
    let mut pieces = split::split(text, base, limits.nesting, Clues::Indentation, &mut errors).unwrap_or_default();
    // The formatter alone needs it further.
    pieces.outline = Default::default();
    build(text, base, &pieces, errors, old)
}

/// What becomes of a file in pieces.
pub struct Built {
    pub ast: Ast,
    /// All errors, in the order of their places.
    pub errors: Vec<SyntaxError>,
    /// Where the heads begin that could not be understood, in the order of their places.
    pub unread: Vec<u32>,
    /// The number of pieces that were parsed, in place of taken from an old tree.
    pub parsed: usize,
}

/// The tree of a file in pieces; `errors` are those that the splitter found, `old` has trees of pieces that are known.
pub fn build(text: &str, base: u32, pieces: &Pieces, mut errors: Vec<SyntaxError>, mut old: Old) -> Built {
    let mut broken: Vec<usize> = errors.iter().map(SyntaxError::offset).collect();
    broken.sort_unstable();
    let names = std::mem::take(&mut old.names);
    let mut builder = Builder { broken, old, ..Builder::new(text, base, names) };
    let end = base as usize + text.len();
    let taken = errors.iter().filter_map(|error| error.takes(end));
    builder.lost.extend(taken.map(|taken| SrcSpan::new(taken.start.max(base as usize), taken.end)));
    let about = pieces.about.iter().map(|&span| builder.doc(span)).collect();
    let end = base + text.len() as u32;
    let ends = pieces.decls.iter().skip(1).map(|piece| piece.head.start).chain([end]);
    let mut decls = Vec::with_capacity(pieces.decls.len());
    // Where declarations of a later version stand: what is wrong in them is not told.
    let mut later: Vec<std::ops::Range<usize>> = Vec::new();
    for (number, (piece, end)) in pieces.decls.iter().zip(ends).enumerate() {
        let decl = builder.decl(piece);
        if std::mem::take(&mut builder.lost_block) || decl.is_none() {
            builder.lost.push(SrcSpan::new(piece.head.start as usize, end as usize));
        }
        // With the rest of its line, wherever the piece seemed to end, but not with a declaration that follows there. What
        // is wrong at the first byte is that something above ends.
        if let Some(Decl { kind: DeclKind::Later { .. }, span, .. }) = &decl {
            let mut behind = pieces.decls[number + 1..].iter();
            let next = behind.find(|piece| !matches!(piece.body, Body::Stray));
            let next = next.map_or(base + text.len() as u32, |piece| piece.head.start);
            let rest = &text[(span.end() - base) as usize..(next - base) as usize];
            let length = rest.find('\n').unwrap_or(rest.len());
            later.push(span.start as usize + 1..span.end() as usize + length);
        }
        decls.extend(decl);
    }
    let Builder { names, errors: further, mut unread, lost, parsed, .. } = builder;
    errors.extend(further);
    if !later.is_empty() {
        errors.retain(|error| {
            let next = later.partition_point(|decl| decl.end <= error.offset());
            !later.get(next).is_some_and(|decl| decl.contains(&error.offset()))
        });
    }
    errors.sort_by_key(SyntaxError::offset);
    let errors = aftermath::told(errors, text, base, MAX_ERRORS);
    unread.sort_unstable();
    let comments = pieces.trivia.iter().map(|trivia| trivia.span);
    let comments = comments.filter(|span| text[(span.start - base) as usize..].starts_with("//")).collect();
    Built { ast: Ast { about, decls, names, comments, lost: apart(lost) }, errors, unread, parsed }
}

/// The stretches in order, those that touch made one.
fn apart(mut spans: Vec<SrcSpan>) -> Vec<SrcSpan> {
    spans.sort_unstable();
    let mut apart: Vec<SrcSpan> = Vec::new();
    for span in spans {
        match apart.last_mut() {
            Some(last) if span.start <= last.end() => *last = last.to(span),
            _ => apart.push(span),
        }
    }
    apart
}

/// Parses an expression alone, such as the value of `--set`, with names interned in `names`.
pub fn parse_expr(text: &str, base: u32, limits: &Limits, names: &mut Interner) -> Result<Expr, Vec<SyntaxError>> {
    let mut errors = Vec::new();
    // The splitter checks the nesting; its pieces are not needed.
    let _ = split::split(&format!("let value = {text}"), base, limits.nesting, Clues::None, &mut errors);
    if let Some(error) = errors.into_iter().find(|error| matches!(error, SyntaxError::TooDeep { .. })) {
        return Err(vec![error]);
    }
    let mut builder = Builder::new(text, base, std::mem::take(names));
    let all = SrcSpan::new(base as usize, base as usize + text.len());
    let expr = builder.pairs(Rule::expr_piece, all, "the value").and_then(|mut pairs| builder.expr(pairs.next()?));
    *names = builder.names;
    match expr {
        Some(expr) if builder.errors.is_empty() => Ok(expr),
        _ => Err(builder.errors),
    }
}

/// Builds the tree. A method returns nothing when it has pushed an error.
struct Builder<'a> {
    text: &'a str,
    base: u32,
    names: Interner,
    errors: Vec<SyntaxError>,
    /// Where the heads begin that could not be understood.
    unread: Vec<u32>,
    /// Where the splitter found mistakes, sorted: a piece around one is not blamed again.
    broken: Vec<usize>,
    /// What could not be understood.
    lost: Vec<SrcSpan>,
    /// A statement of this declaration was lost with its block.
    lost_block: bool,
    /// Calls of `sized` under way; several belong to one level of brackets.
    level: usize,
    /// Trees of pieces that need not be parsed again.
    old: Old,
    /// The number of pieces that were parsed.
    parsed: usize,
}

impl<'a> Builder<'a> {
    fn new(text: &'a str, base: u32, names: Interner) -> Self {
        let (errors, unread, broken, lost) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let old = Old::default();
        Builder { text, base, names, errors, unread, broken, lost, lost_block: false, level: 0, old, parsed: 0 }
    }

    fn slice(&self, span: SrcSpan) -> &'a str {
        let start = (span.start - self.base) as usize;
        &self.text[start..start + span.len as usize]
    }

    /// Notes where a head begins that could not be understood.
    fn read<T>(&mut self, head: Option<T>, span: SrcSpan) -> Option<T> {
        if head.is_none() {
            self.unread.push(span.start);
        }
        head
    }

    /// The text of a `///` or `//!` line without its mark and one leading space.
    fn doc(&self, span: SrcSpan) -> String {
        let text = &self.slice(span)[3..];
        text.strip_prefix(' ').unwrap_or(text).trim_end().to_owned()
    }

    /// Parses one piece and returns what stands inside it; `what` names it in messages.
    fn pairs(&mut self, rule: Rule, span: SrcSpan, what: &str) -> Option<Piecewise<'a>> {
        self.parsed += 1;
        let text = self.slice(span);
        if text.len() > MAX_PIECE {
            self.too_long(span);
            return None;
        }
        match Grammar::parse(rule, text) {
            Ok(mut pairs) => {
                let piece = pairs.next().expect("a rule that matched gives one pair");
                Some(Piecewise { pairs: piece.into_inner(), base: span.start })
            }
            Err(error) if matches!(error.variant, ErrorVariant::CustomError { .. }) => {
                // Pest guards its own stack; nothing else makes it give up with a text of its own.
                self.too_long(span);
                None
            }
            Err(_) => {
                let (start, end) = (span.start as usize, span.end() as usize);
                let next = self.broken.partition_point(|offset| *offset < start);
                let blamed = self.broken.get(next).is_some_and(|offset| *offset < end);
                if self.errors.len() < MAX_ERRORS && !blamed {
                    self.errors.push(failure::failure(rule, self.text, self.base, span, what));
                }
                None
            }
        }
    }
}

/// A pair of pest's with the place of its piece.
struct Item<'a> {
    pair: Pair<'a, Rule>,
    base: u32,
}

impl<'a> Item<'a> {
    fn span(&self) -> SrcSpan {
        item_span(&self.pair, self.base)
    }

    fn inner(self) -> Piecewise<'a> {
        Piecewise { pairs: self.pair.into_inner(), base: self.base }
    }
}

fn item_span(pair: &Pair<'_, Rule>, base: u32) -> SrcSpan {
    // Trailing white space and comments belong to no construct.
    let text = pair.as_str().trim_end();
    let start = base as usize + pair.as_span().start();
    SrcSpan::new(start, start + text.len())
}

/// The pairs inside one, walked from the first to the last.
struct Piecewise<'a> {
    pairs: Pairs<'a, Rule>,
    base: u32,
}

impl<'a> Piecewise<'a> {
    fn next(&mut self) -> Option<Item<'a>> {
        let pair = self.pairs.next().filter(|pair| pair.as_rule() != Rule::EOI)?;
        Some(Item { pair, base: self.base })
    }

    fn peek(&self) -> Option<Rule> {
        self.pairs.peek().map(|pair| pair.as_rule())
    }

    /// The next pair, if it is of that rule.
    fn take(&mut self, rule: Rule) -> Option<Item<'a>> {
        if self.peek() == Some(rule) { self.next() } else { None }
    }

    /// Steps over a keyword.
    fn keyword(&mut self) {
        self.pairs.next();
    }
}
