//! Loops that never run because their range is reversed.

use crate::syntax::ast::*;
use crate::syntax::{walk, written};

use super::ModelWarning;

/// Finds loops over ranges that end below their start, for any parameters: `n - 1..0`, `7..0`.
pub(super) fn backwards(ast: &Ast, warnings: &mut Vec<ModelWarning>) {
    walk::stmts(ast, &mut |stmt| {
        let StmtKind::For { over: Expr { kind: ExprKind::Range { from, to, .. }, span }, .. } = &stmt.kind else {
            return;
        };
        let count = match (&from.kind, &to.kind) {
            (ExprKind::Int(from), ExprKind::Int(to)) if from > to => Some(from.saturating_add(1).to_string()),
            (ExprKind::Binary { op: BinaryOp::Subtract, left, right }, ExprKind::Int(0)) => {
                matches!(right.kind, ExprKind::Int(1)).then(|| written(left, &ast.names))
            }
            _ => None,
        };
        let least = written(to, &ast.names);
        warnings.extend(count.map(|count| ModelWarning::EmptyRange { count, least, at: (*span).into() }));
    });
}
