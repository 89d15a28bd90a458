//! Warns about `//` that was probably meant as Python's integer division, but begins a comment.

use miette::{Diagnostic, SourceSpan};
use thiserror::Error;

use super::ast::*;
use super::error::SyntaxError;
use super::lex::{Slashes, Token, TokenKind, lex, span};
use super::walk;

/// A warning about valid syntax.
#[derive(Clone, Debug, Error, Diagnostic)]
pub enum SyntaxWarning {
    #[error("this value is not divided")]
    #[diagnostic(
        code(aorta::syntax::division_in_comment),
        severity(Warning),
        help("write `floor_div(a, b)` for a division without a rest; of a comment, begin with a word")
    )]
    DivisionInComment {
        #[label("`//` begins a comment")]
        at: SourceSpan,
    },
}

/// Finds every `let` and `param` whose value is followed by a comment that could be its divisor. `behind` returns the
/// rest of the line from an offset on.
pub fn lint<'a>(ast: &Ast, behind: impl Fn(u32) -> &'a str) -> Vec<SyntaxWarning> {
    let mut values: Vec<(Name, &Expr)> = Vec::new();
    for decl in &ast.decls {
        match &decl.kind {
            DeclKind::Param { name, default, .. } => values.push((*name, default)),
            DeclKind::Let(Binding { name, value }) => values.push((*name, value)),
            _ => {}
        }
    }
    walk::stmts(ast, &mut |stmt| {
        if let StmtKind::Let(Binding { name, value }) = &stmt.kind {
            values.push((*name, value));
        }
    });
    let names: Vec<&str> = values.iter().map(|(name, _)| ast.names.name(name.symbol)).collect();
    let divided = values.iter().filter_map(|(name, value)| {
        let rest = behind(value.span.end());
        let comment = rest.trim_start().strip_prefix("//").filter(|comment| !comment.starts_with('/'))?;
        let at = value.span.end() as usize + rest.len() - comment.len() - 2;
        // A comment with the value's own name describes it.
        let is_divisor = is_value(comment, &names) && comment.trim() != ast.names.name(name.symbol);
        is_divisor.then(|| SyntaxWarning::DivisionInComment { at: (at, 2).into() })
    });
    divided.collect()
}

/// True if a text is a number, a known name, or an expression of these.
fn is_value(text: &str, names: &[&str]) -> bool {
    let mut errors = Vec::new();
    let tokens = lex(text, 0, Slashes::Comment, &mut errors).tokens;
    let mut expects_operand = true;
    for token in &tokens {
        let operand = match token.kind {
            TokenKind::Number => true,
            TokenKind::Word => names.contains(&token.text(text, 0)),
            TokenKind::Punct if ["+", "-", "*", "/", "%"].contains(&token.text(text, 0)) => false,
            TokenKind::Open(b'(') | TokenKind::Close(b')') => continue,
            _ => return false,
        };
        if operand != expects_operand {
            return false;
        }
        expects_operand = !operand;
    }
    errors.is_empty() && !expects_operand
}

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

/// The first value of a comment that continues like an expression, up to a closing bracket. `None` if it does not.
fn divisor(comment: &str) -> Option<&str> {
    let line = comment.lines().next()?;
    let end = line.find([')', ']', ','])?;
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
