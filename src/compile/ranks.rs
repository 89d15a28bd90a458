//! Determines the number of ranks that a workload is compiled for.

use rustc_hash::FxHashMap;

use crate::base::Symbol;
use crate::ops::{self, Category};
use crate::syntax::Ast;
use crate::syntax::ast::{Block, Call, DeclKind, StmtKind};

/// Number of ranks that the caller requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RankCount {
    /// The given number of ranks; 0 counts as 1.
    Exactly(u32),
    /// The given number of ranks if the file has collectives or copies to other ranks, otherwise one.
    IfCommunicating(u32),
}

impl Default for RankCount {
    fn default() -> Self {
        RankCount::Exactly(1)
    }
}

impl RankCount {
    /// Number of ranks of a file, and whether it is certain. It is uncertain if only the analysis can determine whether
    /// copies to other ranks remain.
    pub(super) fn count(self, ast: &Ast) -> (u32, bool) {
        let (RankCount::Exactly(ranks) | RankCount::IfCommunicating(ranks)) = self;
        match self {
            RankCount::IfCommunicating(_) if has_collectives(ast) => (ranks.max(1), true),
            RankCount::IfCommunicating(_) if may_copy_to_others(ast) => (ranks.max(1), false),
            RankCount::IfCommunicating(_) => (1, true),
            RankCount::Exactly(_) => (ranks.max(1), true),
        }
    }
}

/// True if the blocks of the file reach a call of a collective operation.
pub(super) fn has_collectives(ast: &Ast) -> bool {
    let is_collective = |call: &&Call| {
        let operation = called(call).and_then(|symbol| ops::find(ast.names.name(symbol)));
        operation.is_some_and(|operation| operation.category() == Category::Collective)
    };
    calls(ast).iter().any(is_collective)
}

/// True if the blocks of the file reach a call that names the rank of an output. Only the analysis can determine
/// whether that is another rank.
pub(super) fn may_copy_to_others(ast: &Ast) -> bool {
    calls(ast).iter().any(|call| call.outputs.iter().any(|output| output.at.is_some()))
}

/// The calls in `setup`, `step` and `teardown`, and in the definitions that they call. Other definitions, for example
/// of a module, are not included.
fn calls(ast: &Ast) -> Vec<&Call> {
    let mut definitions: FxHashMap<Symbol, &Block> = FxHashMap::default();
    let mut blocks: Vec<&Block> = Vec::new();
    for decl in &ast.decls {
        match (&decl.kind, decl.body()) {
            (DeclKind::Def { name, .. }, Some(body)) => drop(definitions.insert(name.symbol, body)),
            (_, body) => blocks.extend(body),
        }
    }
    let mut calls = Vec::new();
    while let Some(block) = blocks.pop() {
        for stmt in &block.stmts {
            if let StmtKind::Call(call) = &stmt.kind {
                // Removing the definition ensures that each is walked once.
                blocks.extend(called(call).and_then(|symbol| definitions.remove(&symbol)));
                calls.push(call);
            }
            blocks.extend(stmt.blocks());
        }
    }
    calls
}

/// Returns the called name; `None` for a path, which could not be linked.
fn called(call: &Call) -> Option<Symbol> {
    match call.callee[..] {
        [name] => Some(name.symbol),
        _ => None,
    }
}
