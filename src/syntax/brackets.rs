//! Matches brackets and finds the ends of conditions. Limits the nesting before any recursive code sees the text.

use crate::base::SrcSpan;

use super::error::{SyntaxError, note};
use super::token::{Token, TokenKind, span};
use super::words;

/// The tokens of a text with their bracket structure.
#[derive(Debug, Default)]
pub struct BracketOutline {
    pub tokens: Vec<Token>,
    /// For each opening bracket, the index of its closing one, or the number of tokens if there is none.
    closing: Vec<u32>,
    /// For each token, the next `{` on its level that belongs to no expression, or the number of tokens if there is
    /// none.
    brace: Vec<u32>,
    /// For each `if`, the end of the expression `if a { x } else { y }`.
    condition_end: Vec<u32>,
}

/// Clues for guessing where a bracket is missing, in a file with unbalanced brackets.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Clues {
    /// Uses the brackets alone.
    None,
    /// A declaration at the beginning of a line closes all open brackets, so that one lost bracket hides no other
    /// mistake.
    Declarations,
    /// In addition, in a declaration with unbalanced brackets, a brace at the beginning of a line closes the block
    /// whose first line has the same indentation. Brackets open inside it were not closed.
    Indentation,
}

impl BracketOutline {
    /// Builds the outline. `clues` applies only to unbalanced brackets. Returns `None` if the nesting exceeds its
    /// limit, with or without the clues.
    pub fn new(
        tokens: Vec<Token>,
        text: &str,
        base: u32,
        max_nesting: usize,
        clues: Clues,
        errors: &mut Vec<SyntaxError>,
    ) -> Option<BracketOutline> {
        let mut unbalanced = Vec::new();
        let Some(mut closing) = match_brackets(&tokens, text, base, max_nesting, Clues::None, &mut unbalanced) else {
            errors.append(&mut unbalanced);
            return None;
        };
        if !unbalanced.is_empty() {
            unbalanced.clear();
            let recovered = match_brackets(&tokens, text, base, max_nesting, clues, &mut unbalanced);
            errors.append(&mut unbalanced);
            closing = recovered?;
        }
        let mut outline = BracketOutline { tokens, closing, brace: Vec::new(), condition_end: Vec::new() };
        outline.find_conditions(text, base);
        Some(outline)
    }

    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Returns the kind of a token; `None` after the last one.
    pub fn kind(&self, index: usize) -> Option<TokenKind> {
        self.tokens.get(index).map(|token| token.kind)
    }

    /// The index after the bracket that closes the one at `index`.
    pub fn past(&self, index: usize) -> usize {
        (self.closing[index] as usize + 1).min(self.tokens.len())
    }

    /// The index of the bracket that closes the one at `index`, or the number of tokens if there is none.
    pub fn closing(&self, index: usize) -> usize {
        self.closing[index] as usize
    }

    /// The next `{` on the level of `index` that belongs to no expression, or the number of tokens if there is none.
    pub fn brace(&self, index: usize) -> usize {
        self.brace[index.min(self.tokens.len())] as usize
    }

    /// The end of the expression that begins with the `if` at `index`; the next token if it is not an expression.
    pub fn condition_end(&self, index: usize) -> usize {
        self.condition_end[index] as usize
    }

    /// Fills `brace` and `condition_end` from the last token to the first. So even a long chain of `if`s is walked
    /// once, without recursion.
    fn find_conditions(&mut self, text: &str, base: u32) {
        let count = self.tokens.len();
        self.brace = vec![count as u32; count + 1];
        self.condition_end = (1..=count as u32 + 1).collect();
        for index in (0..count).rev() {
            self.brace[index] = match self.tokens[index].kind {
                TokenKind::Open(b'{') => index as u32,
                TokenKind::Open(_) => self.brace[self.past(index)],
                TokenKind::Close(_) => count as u32,
                TokenKind::Word if self.is_condition(index, text, base) => {
                    self.condition_end[index] = self.end_of_condition(index, text, base);
                    self.brace[self.condition_end[index] as usize]
                }
                _ => self.brace[index + 1],
            };
        }
    }

    /// True if the word at `index` is the `if` of a condition and not the name of a field or option.
    fn is_condition(&self, index: usize, text: &str, base: u32) -> bool {
        self.text_is(index, "if", text, base)
            && !self.text_is(index + 1, ":", text, base)
            && !(index > 0 && self.text_is(index - 1, ".", text, base))
    }

    fn end_of_condition(&self, index: usize, text: &str, base: u32) -> u32 {
        let brace = self.brace[index + 1] as usize;
        if brace == self.tokens.len() {
            return index as u32 + 1;
        }
        let next = self.past(brace);
        if !self.text_is(next, "else", text, base) {
            return next as u32;
        }
        match self.kind(next + 1) {
            Some(TokenKind::Open(b'{')) => self.past(next + 1) as u32,
            Some(TokenKind::Word) if self.text_is(next + 1, "if", text, base) => self.condition_end[next + 1],
            _ => next as u32 + 1,
        }
    }

    fn text_is(&self, index: usize, what: &str, text: &str, base: u32) -> bool {
        self.tokens.get(index).is_some_and(|token| token.text(text, base) == what)
    }
}

/// True if each bracket is closed by one of its kind.
pub fn balance(tokens: &[Token]) -> bool {
    let mut open = Vec::new();
    let fit = tokens.iter().all(|token| match token.kind {
        TokenKind::Open(bracket) => {
            open.push(bracket);
            true
        }
        TokenKind::Close(bracket) => open.pop().is_some_and(|opened| fits(opened, bracket)),
        _ => true,
    });
    fit && open.is_empty()
}

fn fits(opened: u8, closed: u8) -> bool {
    words::closing(opened) == closed
}

/// For each opening bracket, the index of its closing one, or the number of tokens if there is none. `None` if the
/// nesting exceeds its limit.
fn match_brackets(
    tokens: &[Token],
    text: &str,
    base: u32,
    max_nesting: usize,
    clues: Clues,
    errors: &mut Vec<SyntaxError>,
) -> Option<Vec<u32>> {
    let mut closing = vec![tokens.len() as u32; tokens.len()];
    let mut open: Vec<(usize, u8)> = Vec::new();
    // Indentation of the lines with the open brackets.
    let mut indentations = Vec::new();
    let mut lines = Lines { text, base, end: 0, indentation: 0 };
    // True if the brackets of the current declaration are unbalanced.
    let mut broken = clues == Clues::Indentation && !balance(declaration(tokens, 0, text, base));
    // Number of braces that the current declaration closes without having opened them.
    let mut surplus = surplus_braces(declaration(tokens, 0, text, base));
    for (index, token) in tokens.iter().enumerate() {
        let first_on_line = lines.next(token.span);
        let beside = (broken && first_on_line).then_some(lines.indentation);
        indentations.truncate(open.len());
        match token.kind {
            TokenKind::Word if clues != Clues::None && begins_declaration(token, text, base) => {
                for (inner, opened) in open.drain(..) {
                    closing[inner] = index as u32 - 1;
                    note(errors, 1, unclosed(tokens[inner].span, opened, token.span));
                }
                let declaration = declaration(tokens, index, text, base);
                broken = clues == Clues::Indentation && !balance(declaration);
                surplus = surplus_braces(declaration);
            }
            TokenKind::Open(bracket) => {
                open.push((index, bracket));
                indentations.push(lines.indentation);
                if open.len() > max_nesting {
                    errors.push(SyntaxError::TooDeep { limit: max_nesting, at: token.span.into() });
                    return None;
                }
            }
            // A line without its `{` has opened the block that a deeper brace closes.
            TokenKind::Close(b'}')
                if surplus > 0
                    && beside.is_some_and(|beside| {
                        indentations.last().is_some_and(|last| *last < beside)
                            && open.last().is_some_and(|(_, opened)| *opened == b'{')
                    }) =>
            {
                surplus -= 1;
                note(errors, 1, SyntaxError::UnmatchedClose { bracket: '}', at: token.span.into() });
            }
            TokenKind::Close(bracket) => match partner(&open, &indentations, bracket, beside) {
                // Handles a bracket of the wrong kind on the same line. Braces are excluded, since they usually close
                // much larger blocks.
                None if bracket != b'}'
                    && open.last().is_some_and(|&(inner, opened)| {
                        opened != b'{' && on_one_line(tokens[inner].span, token.span, text, base)
                    }) =>
                {
                    let (inner, opened) = open.pop().expect("there is a last one");
                    closing[inner] = index as u32;
                    note(errors, 1, exchanged(tokens[inner].span, opened, token.span, bracket));
                }
                None => {
                    note(errors, 1, SyntaxError::UnmatchedClose { bracket: char::from(bracket), at: token.span.into() })
                }
                Some(place) => {
                    for &(inner, opened) in &open[place + 1..] {
                        closing[inner] = index as u32;
                        note(errors, 1, unclosed(tokens[inner].span, opened, token.span));
                    }
                    closing[open[place].0] = index as u32;
                    open.truncate(place);
                }
            },
            _ => {}
        }
    }
    let end = span(base, text.len(), text.len());
    for (index, bracket) in open {
        note(errors, 1, unclosed(tokens[index].span, bracket, end));
    }
    Some(closing)
}

/// True if a token begins a declaration at the beginning of a line.
fn begins_declaration(token: &Token, text: &str, base: u32) -> bool {
    let start = (token.span.start - base) as usize;
    (start == 0 || text.as_bytes()[start - 1] == b'\n') && words::lead(token.text(text, base), true).is_some()
}

/// Number of closing braces beyond that of opening ones.
fn surplus_braces(tokens: &[Token]) -> usize {
    let count = |kind| tokens.iter().filter(|token| token.kind == kind).count();
    count(TokenKind::Close(b'}')).saturating_sub(count(TokenKind::Open(b'{')))
}

/// The tokens from `from` to the next declaration at the beginning of a line.
fn declaration<'a>(tokens: &'a [Token], from: usize, text: &str, base: u32) -> &'a [Token] {
    let rest = &tokens[from..];
    let next = rest.iter().skip(1).position(|token| begins_declaration(token, text, base));
    &rest[..next.map_or(rest.len(), |next| next + 1)]
}

/// The index in `open` of the bracket that `bracket` closes: the innermost one of its kind, but preferably the
/// innermost brace on a line with this `indentation`. `None` if no open bracket fits.
fn partner(open: &[(usize, u8)], indentations: &[usize], bracket: u8, indentation: Option<usize>) -> Option<usize> {
    let fitting = |&place: &usize| fits(open[place].1, bracket);
    let innermost = (0..open.len()).rev().find(fitting)?;
    let beside = indentation.filter(|_| bracket == b'}').and_then(|indentation| {
        (0..open.len()).rev().filter(fitting).find(|&place| indentations[place] == indentation)
    });
    Some(beside.unwrap_or(innermost))
}

/// Computes the indentation of tokens' lines, reading tokens in order.
struct Lines<'a> {
    text: &'a str,
    base: u32,
    /// End of the last token.
    end: usize,
    indentation: usize,
}

impl Lines<'_> {
    /// Advances to the next token; returns true if it is the first on its line.
    fn next(&mut self, span: SrcSpan) -> bool {
        let start = (span.start - self.base) as usize;
        let gap = self.text.get(self.end..start).unwrap_or("");
        let begins = gap.rfind('\n').map(|at| gap.len() - at - 1).or((self.end == 0).then_some(gap.len()));
        self.indentation = begins.unwrap_or(self.indentation);
        self.end = start + span.len as usize;
        begins.is_some()
    }
}

fn on_one_line(from: SrcSpan, to: SrcSpan, text: &str, base: u32) -> bool {
    !text[(from.start - base) as usize..(to.start - base) as usize].contains('\n')
}

fn unclosed(at: SrcSpan, bracket: u8, end: SrcSpan) -> SyntaxError {
    let close = char::from(words::closing(bracket));
    let help = format!("add `{close}`");
    SyntaxError::Unclosed { bracket: char::from(bracket), close, help, at: at.into(), end: end.into() }
}

/// The error for an opening bracket that `found`, a bracket of another kind, should have closed.
fn exchanged(at: SrcSpan, bracket: u8, end: SrcSpan, found: u8) -> SyntaxError {
    let close = char::from(words::closing(bracket));
    let help = format!("write `{close}` in place of `{}`", char::from(found));
    SyntaxError::Unclosed { bracket: char::from(bracket), close, help, at: at.into(), end: end.into() }
}
