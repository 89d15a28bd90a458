//! Computes the stack that the analysis of a file needs, since it recurses into expressions, blocks and calls.

use crate::base::SrcSpan;
use crate::syntax::ast::{Block, Decl, DeclKind, Stmt};
use crate::syntax::{Ast, walk};

use super::AnalysisOptions;
use super::limits::CALLS;

/// Bytes that do not depend on the nesting.
const BASE: usize = 1 << 20;

/// Bytes for each level of nested blocks, expressions or calls in a debug build.
const LEVEL: usize = 24 << 10;

/// Bytes that suffice for every file that the parser accepts.
const MAX_STACK: usize = 256 << 20;

/// Returns the stack size in bytes that a file needs. Every call of a definition may nest as deeply as the deepest
/// point of the file.
pub fn needed(ast: &Ast, options: &AnalysisOptions) -> usize {
    let mut exprs = Depth::default();
    walk::exprs(ast, &mut |expr| exprs.enter(expr.span));
    for setting in &options.set {
        let mut given = Depth::default();
        walk::expr(&setting.value, &mut |expr| given.enter(expr.span));
        exprs.most = exprs.most.max(given.most);
    }
    let defines = ast.decls.iter().any(|decl| matches!(decl.kind, DeclKind::Def { .. }));
    let calls = if defines { 1 + CALLS } else { 1 };
    let statements = ast.decls.iter().filter_map(Decl::body).map(nesting).max().unwrap_or(0);
    (BASE + (statements + exprs.most) * calls * LEVEL).min(MAX_STACK)
}

/// Returns the nesting depth of the statements of a block.
fn nesting(block: &Block) -> usize {
    1 + block.stmts.iter().flat_map(Stmt::blocks).map(nesting).max().unwrap_or(0)
}

/// Tracks the nesting of expressions that are visited in the order of the text, outer ones first.
#[derive(Default)]
struct Depth {
    /// Ends of the expressions that contain the last one, including itself.
    ends: Vec<u32>,
    most: usize,
}

impl Depth {
    fn enter(&mut self, span: SrcSpan) {
        while self.ends.last().is_some_and(|&end| end <= span.start) {
            self.ends.pop();
        }
        self.ends.push(span.end());
        self.most = self.most.max(self.ends.len());
    }
}
