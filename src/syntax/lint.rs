//! Warns about `//` that was probably meant as Python's integer division, but begins a comment.

use miette::{Diagnostic, SourceSpan};
use thiserror::Error;

use super::ast::*;
use super::lex::{Slashes, lex};
use super::token::TokenKind;
use super::walk;

/// A warning about valid syntax.
#[derive(Clone, Debug, Error, Diagnostic)]
pub enum SyntaxWarning {
    #[error("this value is not divided")]
    #[diagnostic(
        code(aorta::syntax::division_in_comment),
        severity(Warning),
        help("write `floor_div(a, b)` for a division without a remainder; of a comment, begin with a word")
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
