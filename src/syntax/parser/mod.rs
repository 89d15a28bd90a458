//! Parses pieces to a syntax tree with pest.
//!
//! If no doc comment says otherwise, a parsing function returns `None` after an error, which it has reported.

mod advice;
mod decl;
mod expr;
mod failure;
mod failure_point;
mod heads;
mod names;
mod ranges;
mod reparse;
mod reported;
mod stmt;

pub use ranges::loop_with_step;
pub use reparse::{Edit, OldTrees, Reparsed, reparse};

use crate::base::{Interner, SrcSpan};
use pest::Parser as _;
use pest::error::ErrorVariant;
use pest::iterators::{Pair, Pairs};

use super::ast::*;
use super::brackets::Clues;
use super::error::SyntaxError;
use super::grammar::{Grammar, Rule};
use super::split::{self, BlockPieces, Body, Piece, Pieces};
use super::words::Lead;
use super::{LANGUAGE, SyntaxLimits};

/// Maximum number of errors reported for one text.
const MAX_ERRORS: usize = 100;

/// Maximum size of a piece in bytes, since the parser needs two hundred times as much memory.
const MAX_PIECE: usize = 1 << 20;

/// Parses a file whose text is at `base` in the source map. The tree has everything that could be parsed. The errors
/// are sorted by location, at most a hundred.
pub fn parse(text: &str, base: u32, limits: &SyntaxLimits) -> (Ast, Vec<SyntaxError>) {
    parse_module(text, base, limits, Interner::default())
}

/// Parses a text as [`parse`] does, and adds its names to those of another text.
pub fn parse_module(text: &str, base: u32, limits: &SyntaxLimits, names: Interner) -> (Ast, Vec<SyntaxError>) {
    if text.len() > limits.file_bytes {
        let error = SyntaxError::FileTooLarge { limit: limits.file_bytes };
        return (Ast { names, ..Ast::default() }, vec![error]);
    }
    let built = parse_with(text, base, limits, OldTrees::with_names(names));
    (built.ast, built.errors)
}

/// Parses a text within the limits. Takes the trees of unchanged pieces from `old`.
fn parse_with(text: &str, base: u32, limits: &SyntaxLimits, old: OldTrees) -> Built {
    let mut errors = Vec::new();
    let mut pieces = split::split(text, base, limits.nesting, Clues::Indentation, &mut errors).unwrap_or_default();
    // Only the formatter needs the outline.
    pieces.outline = Default::default();
    build(text, base, &pieces, errors, old)
}

/// The tree of a file and its errors.
pub struct Built {
    pub ast: Ast,
    /// Errors, sorted by location.
    pub errors: Vec<SyntaxError>,
    /// Offsets of heads that could not be parsed, sorted.
    pub unread: Vec<u32>,
    /// Number of pieces that were parsed rather than taken from an old tree.
    pub parsed: usize,
}

/// Builds the tree of a file. `errors` are the splitter's; `old` has trees of known pieces.
pub fn build(text: &str, base: u32, pieces: &Pieces, mut errors: Vec<SyntaxError>, mut old: OldTrees) -> Built {
    let mut broken: Vec<usize> = errors.iter().map(SyntaxError::offset).collect();
    broken.sort_unstable();
    let names = std::mem::take(&mut old.names);
    let mut builder = Builder { broken, old, ..Builder::new(text, base, names) };
    let end = base as usize + text.len();
    let taken = errors.iter().filter_map(|error| error.takes(end));
    builder.unparsed.extend(taken.map(|taken| SrcSpan::new(taken.start.max(base as usize), taken.end)));
    let about = pieces.about.iter().map(|&span| builder.doc(span)).collect();
    let end = base + text.len() as u32;
    let ends = pieces.decls.iter().skip(1).map(|piece| piece.head.start).chain([end]);
    let mut decls = Vec::with_capacity(pieces.decls.len());
    for (index, (piece, end)) in pieces.decls.iter().zip(ends).enumerate() {
        let decl = builder.decl(piece);
        // A declaration that a mistake cuts short is not the one that was meant.
        let decl = decl.filter(|_| !pieces.decls.get(index + 1).is_some_and(|next| builder.cuts_short(piece, next)));
        if std::mem::take(&mut builder.lost_block) || decl.is_none() {
            builder.unparsed.push(SrcSpan::new(piece.head.start as usize, end as usize));
        }
        decls.extend(decl);
    }
    let Builder { names, errors: further, mut unread, unparsed, parsed, .. } = builder;
    errors.extend(further);
    errors.sort_by_key(SyntaxError::offset);
    let mut errors = reported::select(errors, text, base, MAX_ERRORS);
    unread.sort_unstable();
    let comments = pieces.trivia.iter().map(|trivia| trivia.span);
    let comments = comments.filter(|span| text[(span.start - base) as usize..].starts_with("//")).collect();
    let mut ast = Ast { about, decls, names, comments, unparsed: apart(unparsed) };
    // Other errors in a file for a newer version may only be forms that this version lacks.
    if let Some((wanted, at)) = ast.language().filter(|(wanted, _)| *wanted > LANGUAGE) {
        errors = vec![SyntaxError::NewerLanguage { wanted, known: LANGUAGE, at: at.into() }];
        ast.decls = Vec::new();
        ast.unparsed = vec![SrcSpan::new(base as usize, base as usize + text.len())];
    }
    Built { ast, errors, unread, parsed }
}

/// Sorts ranges and merges those that touch.
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

/// Parses a single expression, such as the value of `--set`. Its names are interned in `names`.
pub fn parse_expr(
    text: &str,
    base: u32,
    limits: &SyntaxLimits,
    names: &mut Interner,
) -> Result<Expr, Vec<SyntaxError>> {
    let mut errors = Vec::new();
    // Only checks the nesting limit.
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

/// Builds the tree. A method returns `None` after it has added an error, or a placeholder to find further errors of the piece;
/// [`Builder::read`] discards such a piece.
struct Builder<'a> {
    text: &'a str,
    base: u32,
    names: Interner,
    errors: Vec<SyntaxError>,
    /// Offsets of heads that could not be parsed.
    unread: Vec<u32>,
    /// Offsets of the splitter's errors, sorted: a piece that contains one gets no further error.
    broken: Vec<usize>,
    /// Ranges that could not be parsed.
    unparsed: Vec<SrcSpan>,
    /// Offset of the word behind the last piece with an error, if the error is about this word.
    obstacle: Option<usize>,
    /// True if a statement of this declaration was lost with its block.
    lost_block: bool,
    /// Depth of recursion of `sized`; one level of brackets needs several.
    level: usize,
    /// True if the piece that is parsed has a placeholder for an expression with an error.
    has_placeholder: bool,
    /// Trees of pieces that need not be parsed again.
    old: OldTrees,
    /// Number of pieces that were parsed.
    parsed: usize,
}

impl<'a> Builder<'a> {
    fn new(text: &'a str, base: u32, names: Interner) -> Self {
        let (errors, unread, broken, unparsed) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let old = OldTrees::default();
        Builder {
            text,
            base,
            names,
            errors,
            unread,
            broken,
            unparsed,
            obstacle: None,
            lost_block: false,
            level: 0,
            has_placeholder: false,
            old,
            parsed: 0,
        }
    }

    /// True if `next`, which begins no declaration, is on the line on which the declaration `piece` ends.
    fn cuts_short(&self, piece: &Piece, next: &Piece) -> bool {
        let gap = (piece.head.end() - self.base) as usize..(next.head.start - self.base) as usize;
        matches!((&piece.body, &next.body), (Body::None, Body::Stray)) && !self.text[gap].contains('\n')
    }

    /// Offset of the text that follows a piece on its line; `None` if there is none.
    fn next_on_line(&self, piece: SrcSpan) -> Option<usize> {
        let behind = &self.text[(piece.end() - self.base) as usize..];
        let next = behind.trim_start_matches([' ', '\t']);
        (!next.starts_with(['\r', '\n']) && !next.is_empty()).then(|| piece.end() as usize + behind.len() - next.len())
    }

    fn slice(&self, span: SrcSpan) -> &'a str {
        let start = (span.start - self.base) as usize;
        &self.text[start..start + span.len as usize]
    }

    /// Returns `head`; `None` if it contains a placeholder. Records a head at `span` that could not be parsed.
    fn read<T>(&mut self, head: Option<T>, span: SrcSpan) -> Option<T> {
        let has_placeholder = std::mem::take(&mut self.has_placeholder);
        let head = head.filter(|_| !has_placeholder);
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

    /// Parses one piece and returns its parts; `None` after an error, which is reported. `what` names the piece in messages.
    fn pairs(&mut self, rule: Rule, span: SrcSpan, what: &str) -> Option<InnerPairs<'a>> {
        self.parsed += 1;
        let text = self.slice(span);
        if text.len() > MAX_PIECE {
            self.too_long(span);
            return None;
        }
        match Grammar::parse(rule, text) {
            Ok(mut pairs) => {
                let piece = pairs.next().expect("a rule that matched gives one pair");
                Some(InnerPairs { pairs: piece.into_inner(), base: span.start })
            }
            Err(error) if matches!(error.variant, ErrorVariant::CustomError { .. }) => {
                // The parser fails with a message of its own only if pest's guard against stack overflow stops it.
                self.too_long(span);
                None
            }
            Err(_) => {
                let (start, end) = (span.start as usize, span.end() as usize);
                let next = self.broken.partition_point(|offset| *offset < start);
                let blamed = self.broken.get(next).is_some_and(|offset| *offset < end);
                if self.errors.len() < MAX_ERRORS && !blamed && self.obstacle != Some(start) {
                    let error = failure::failure(rule, self.text, self.base, span, what);
                    self.obstacle = Some(error.offset()).filter(|at| *at >= end);
                    self.errors.push(error);
                }
                None
            }
        }
    }
}

/// A pair of pest's with the offset of its piece.
struct PlacedPair<'a> {
    pair: Pair<'a, Rule>,
    base: u32,
}

impl<'a> PlacedPair<'a> {
    fn span(&self) -> SrcSpan {
        item_span(&self.pair, self.base)
    }

    fn inner(self) -> InnerPairs<'a> {
        InnerPairs { pairs: self.pair.into_inner(), base: self.base }
    }
}

fn item_span(pair: &Pair<'_, Rule>, base: u32) -> SrcSpan {
    // Trailing white space and comments belong to no construct.
    let text = pair.as_str().trim_end();
    let start = base as usize + pair.as_span().start();
    SrcSpan::new(start, start + text.len())
}

/// Iterator over the parts of a construct, which pest calls the inner pairs.
struct InnerPairs<'a> {
    pairs: Pairs<'a, Rule>,
    base: u32,
}

impl<'a> InnerPairs<'a> {
    fn next(&mut self) -> Option<PlacedPair<'a>> {
        let pair = self.pairs.next().filter(|pair| pair.as_rule() != Rule::EOI)?;
        Some(PlacedPair { pair, base: self.base })
    }

    fn peek(&self) -> Option<Rule> {
        self.pairs.peek().map(|pair| pair.as_rule())
    }

    /// The next part if it matches that rule; `None` otherwise.
    fn take(&mut self, rule: Rule) -> Option<PlacedPair<'a>> {
        if self.peek() == Some(rule) { self.next() } else { None }
    }

    /// Skips a keyword.
    fn keyword(&mut self) {
        self.pairs.next();
    }
}
