//! Recognizes `//` that divides in another language, for texts whose brackets do not balance.

use super::error::SyntaxError;
use super::token::{Token, TokenKind, span};

/// True if the `//` at `at` is inside a bracket of its line, between a value and another value followed by the closing
/// bracket.
pub fn divides(text: &str, base: u32, at: usize, tokens: &[Token]) -> bool {
    let line = text[..at].rfind('\n').map_or(0, |end| end + 1);
    let here = tokens.iter().rev().take_while(|token| (token.span.start - base) as usize >= line);
    let depth = here.clone().fold(0i32, |depth, token| match token.kind {
        TokenKind::Open(b'(' | b'[') => depth + 1,
        TokenKind::Close(b')' | b']') => depth - 1,
        _ => depth,
    });
    let behind_value = here
        .clone()
        .next()
        .is_some_and(|token| matches!(token.kind, TokenKind::Number | TokenKind::Word | TokenKind::Close(b')' | b']')));
    depth > 0 && behind_value && text[at..].starts_with("//") && divisor(&text[at + 2..]).is_some()
}

/// The first value of a comment that continues like an expression, up to a closing bracket or an arrow. `None` if it does
/// not.
fn divisor(comment: &str) -> Option<&str> {
    let line = comment.lines().next()?;
    let end = [line.find([')', ']', ',']), line.find("->")].into_iter().flatten().min()?;
    let is_operand = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    let mut parts = line[..end].split(['+', '-', '*', '/', '%']).map(str::trim);
    let first = parts.clone().next()?;
    parts.all(|part| !part.is_empty() && part.chars().all(is_operand)).then_some(first)
}

/// The error for a division by `//` at `at`.
pub fn division(text: &str, base: u32, at: usize, tokens: &[Token]) -> SyntaxError {
    // The dividend is only certain if a single value precedes the slashes.
    let (left, before) = match tokens {
        [.., before, left] if matches!(before.kind, TokenKind::Open(_)) => {
            (left.text(text, base), before.text(text, base))
        }
        _ => ("a", ""),
    };
    let right = divisor(&text[at + 2..]).filter(|_| !before.is_empty()).unwrap_or("b");
    SyntaxError::ForeignOperator {
        found: "//".to_owned(),
        means: "`//` begins a comment".to_owned(),
        help: format!("write `floor_div({left}, {right})`"),
        at: span(base, at, at + 2).into(),
    }
}
