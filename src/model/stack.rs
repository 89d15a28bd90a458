//! How much stack the analysis of a file may need: it recurses into expressions, blocks and calls of definitions.

use crate::base::SrcSpan;
use crate::syntax::ast::{Block, Decl, DeclKind, Stmt};
use crate::syntax::{Ast, walk};

use super::Options;
use super::limits::CALLS;

/// Bytes for what does not depend on the nesting.
const BASE: usize = 1 << 20;

/// Bytes for one block, expression or call inside of another, in a build that is not optimized.
const LEVEL: usize = 24 << 10;

/// Bytes that suffice for every file that the parser accepts.
const MOST: usize = 256 << 20;

/// Returns the bytes of stack that suffice for a file. Definitions may call each other, so every call that is allowed
/// may nest as deeply as the deepest place of the file.
pub fn needed(ast: &Ast, options: &Options) -> usize {
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
    (BASE + (statements + exprs.most) * calls * LEVEL).min(MOST)
}

/// How deeply statements nest in a block.
fn nesting(block: &Block) -> usize {
    1 + block.stmts.iter().flat_map(Stmt::blocks).map(nesting).max().unwrap_or(0)
}

/// The nesting of expressions that are visited in the order of the text, outer ones first.
#[derive(Default)]
struct Depth {
    /// Where the expressions end that the last one lies in, itself included.
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
