//! Determines the number of ranks that a workload is compiled for.

use crate::ops::{self, Category};
use crate::syntax::Ast;
use crate::syntax::ast::StmtKind;
use crate::syntax::walk;

/// Number of ranks that the caller asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ranks {
    /// That many; 0 counts as 1.
    Exactly(u32),
    /// That many if the file has collectives or copies to other ranks, otherwise one.
    IfTogether(u32),
}

impl Default for Ranks {
    fn default() -> Self {
        Ranks::Exactly(1)
    }
}

impl Ranks {
    /// Number of ranks of a file, and whether it is certain. It is uncertain if only the analysis can tell whether
    /// copies to other ranks remain.
    pub(super) fn count(self, ast: &Ast) -> (u32, bool) {
        let (Ranks::Exactly(ranks) | Ranks::IfTogether(ranks)) = self;
        match self {
            Ranks::IfTogether(_) if has_collectives(ast) => (ranks.max(1), true),
            Ranks::IfTogether(_) if may_copy_to_others(ast) => (ranks.max(1), false),
            Ranks::IfTogether(_) => (1, true),
            Ranks::Exactly(_) => (ranks.max(1), true),
        }
    }
}

/// True if a statement calls a collective operation.
pub(super) fn has_collectives(ast: &Ast) -> bool {
    let mut found = false;
    walk::stmts(ast, &mut |stmt| {
        if let StmtKind::Call(call) = &stmt.kind
            && let [name] = &call.callee[..]
        {
            let operation = ops::find(ast.names.name(name.symbol));
            found |= operation.is_some_and(|operation| operation.category() == Category::Collective);
        }
    });
    found
}

/// True if a statement names the rank of an output. Only the analysis can tell whether that is another rank.
fn may_copy_to_others(ast: &Ast) -> bool {
    let mut found = false;
    walk::stmts(ast, &mut |stmt| {
        if let StmtKind::Call(call) = &stmt.kind {
            found |= call.outputs.iter().any(|output| output.at.is_some());
        }
    });
    found
}
