//! Unused results, and copies that use pageable memory.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::base::{MemoryId, OpId, Space, SrcSpan, Symbol};
use crate::model::names::callee::GRADIENT;
use crate::model::program::{MemoryKind, OpKind, Program, Step};
use crate::syntax::Ast;
use crate::syntax::ast::{BinaryOp, Block, DeclKind, Expr, ExprKind, Param, StmtKind};
use crate::syntax::walk;

use super::ModelWarning;

/// Finds operations with computed inputs whose outputs are scratch memory that nothing reads in any turn.
///
/// Gives no warning for outputs given as `_`, and for operations that a metric or a `grad` names. Operations whose
/// inputs nothing computes are probably a benchmark of a single shape: they get a warning only if a `>` was probably
/// meant as an arrow. `setup` and `teardown` measure nothing, so the inputs of their operations do not count.
pub(super) fn unread(ast: &Ast, program: &Program, warnings: &mut Vec<ModelWarning>) {
    let deliberately_unread = deliberately_unread(ast);
    let written = written(program);
    let missing_arrows = missing_arrows(ast, program);
    // For each location, the first such operation; `None` once an operation there has been read.
    let mut found: FxHashMap<SrcSpan, Option<(String, &str)>> = FxHashMap::default();
    let around = program.around.iter().map(|(block, program)| (program.as_ref(), Some(block.name())));
    for (program, block) in std::iter::once((program, None)).chain(around) {
        for step in &program.cycle {
            let read = read(program, step);
            for op in step.ids() {
                let info = step.op(op);
                let meant = block.is_some()
                    || missing_arrows.contains_key(&info.span)
                    || reads_computed(program, step, op, &written);
                let unread = meant && is_unread(program, step, op, &read);
                let entry = found
                    .entry(info.span)
                    .or_insert_with(|| unread.then(|| (program.op_text(info), block.unwrap_or("iteration"))));
                if !unread {
                    *entry = None;
                }
            }
        }
    }
    let mut figures = figure_names(ast);
    figures.extend(gradient_names(ast));
    for (span, unread) in found {
        let Some((name, block)) = unread.filter(|_| !deliberately_unread.contains(&span)) else { continue };
        let in_figure = |part: &str| figures.iter().any(|symbol| ast.names.name(*symbol) == part);
        // A metric of `f` or of `up` covers `f[3].up`.
        if !name.split(['.', '[', ']']).any(in_figure) {
            let help = match missing_arrows.get(&span) {
                Some(output) => {
                    format!("`>` compares, an arrow is `->`: `-> {output}` writes the result to `{output}`")
                }
                None => "write it to a buffer, `-> y`, or read it below; `-> _` discards it on purpose".to_owned(),
            };
            warnings.push(ModelWarning::UnreadResult { name, block: block.to_owned(), at: span.into(), help });
        }
    }
}

fn is_unread(program: &Program, step: &Step, op: OpId, read: &[bool]) -> bool {
    let outputs = step.outputs(op);
    let scratch = |memory: MemoryId| program.memory(memory).kind == MemoryKind::Scratch;
    let mut memories = outputs.iter().map(|view| program.views.memory(*view));
    !outputs.is_empty() && memories.all(|memory| scratch(memory) && !read[memory.index()])
}

/// True if some operation writes an input of this one.
fn reads_computed(program: &Program, step: &Step, op: OpId, written: &[bool]) -> bool {
    step.inputs(op).iter().any(|view| written[program.views.memory(*view).index()])
}

/// The name before all indices and fields; `None` if the expression is not of this form.
fn first_name(expr: &Expr) -> Option<Symbol> {
    match &expr.kind {
        ExprKind::Index { base, .. } | ExprKind::Field { base, .. } => first_name(base),
        _ => expr.as_name(),
    }
}

/// The calls of `map` without an output whose last expression is `… > x`, with `x`: a buffer, or an output of the
/// definition.
fn missing_arrows(ast: &Ast, program: &Program) -> FxHashMap<SrcSpan, String> {
    let buffers = program.memories.iter().filter(|memory| matches!(memory.kind, MemoryKind::Buffer(_)));
    let mut tensors: FxHashSet<Symbol> = buffers.map(|memory| memory.name).collect();
    for decl in &ast.decls {
        if let DeclKind::Def { signature, .. } = &decl.kind {
            tensors.extend(signature.outputs.iter().map(|output| output.name.symbol));
        }
    }
    let mut found = FxHashMap::default();
    walk::stmts(ast, &mut |stmt| {
        if let StmtKind::Call(call) = &stmt.kind
            && call.outputs.is_empty()
            && matches!(call.callee.as_slice(), [callee] if ast.names.name(callee.symbol) == "map")
            && let Some(ExprKind::Binary { op: BinaryOp::Greater, right, .. }) =
                call.inputs.last().map(|arg| &arg.value.kind)
            && let Some(symbol) = first_name(right).filter(|symbol| tensors.contains(symbol))
        {
            found.insert(call.span, ast.names.name(symbol).to_owned());
        }
    });
    found
}

/// For each memory, true if some operation writes it.
fn written(program: &Program) -> Vec<bool> {
    let mut written = vec![false; program.memories.len()];
    for step in &program.cycle {
        for view in step.ids().flat_map(|op| step.outputs(op)) {
            written[program.views.memory(*view).index()] = true;
        }
    }
    written
}

/// For each memory, true if some operation of an iteration reads it.
fn read(program: &Program, step: &Step) -> Vec<bool> {
    let mut read = vec![false; program.memories.len()];
    for view in step.ids().flat_map(|op| step.inputs(op)) {
        read[program.views.memory(*view).index()] = true;
    }
    read
}

/// Calls with `_` as an output, and calls that write an output of the enclosing definition, whose caller decides
/// whether to read it.
fn deliberately_unread(ast: &Ast) -> FxHashSet<SrcSpan> {
    let mut deliberately_unread = FxHashSet::default();
    let mut mark = |body: &Block, outputs: &[Param]| {
        let given = |symbol: Symbol| outputs.iter().any(|output| output.name.symbol == symbol);
        walk::block(body, &mut |stmt| {
            if let StmtKind::Call(call) = &stmt.kind
                && call
                    .outputs
                    .iter()
                    .filter_map(|arg| arg.value.as_name())
                    .any(|symbol| ast.names.name(symbol) == "_" || given(symbol))
            {
                deliberately_unread.insert(call.span);
            }
        });
    };
    for decl in &ast.decls {
        match &decl.kind {
            DeclKind::Def { signature, body, .. } => mark(body, &signature.outputs),
            DeclKind::Step { body, .. } | DeclKind::Setup(body) | DeclKind::Teardown(body) => mark(body, &[]),
            _ => {}
        }
    }
    deliberately_unread
}

/// Names of the targets of gradients. Their results may be needed by the gradients only.
fn gradient_names(ast: &Ast) -> FxHashSet<Symbol> {
    let mut names = FxHashSet::default();
    walk::stmts(ast, &mut |stmt| {
        if let StmtKind::Call(call) = &stmt.kind
            && call.callee.iter().all(|callee| ast.names.name(callee.symbol) == GRADIENT)
            && let Some(first) = call.inputs.first()
        {
            walk::expr(&first.value, &mut |expr| {
                if let ExprKind::Name(symbol) = expr.kind {
                    names.insert(symbol);
                }
            });
        }
    });
    names
}

/// Names in `metric` and `expect`.
fn figure_names(ast: &Ast) -> FxHashSet<Symbol> {
    let mut names = FxHashSet::default();
    let mut add = |expr: &crate::syntax::ast::Expr| {
        walk::expr(expr, &mut |expr| {
            if let ExprKind::Name(symbol) = expr.kind {
                names.insert(symbol);
            }
        });
    };
    for decl in &ast.decls {
        match &decl.kind {
            DeclKind::Metric { each, value, .. } => {
                each.iter().for_each(|each| add(&each.value));
                add(value);
            }
            DeclKind::Expect { condition, when } => {
                add(condition);
                when.iter().for_each(&mut add);
            }
            _ => {}
        }
    }
    names
}

/// Finds copies from or to memory that copy engines cannot access, one for each location.
pub(super) fn pageable_copies(program: &Program, warnings: &mut Vec<ModelWarning>) {
    let mut reported: FxHashSet<SrcSpan> = FxHashSet::default();
    for step in &program.cycle {
        for op in step.ids() {
            let info = step.op(op);
            // Threads of the CPU copy without copy engines.
            let OpKind::Run(spec) = info.kind else { continue };
            if program.spec(spec).threads.is_some() {
                continue;
            }
            let views = step.inputs(op).iter().chain(step.outputs(op));
            let mut memories = views.map(|view| program.memory(program.views.memory(*view)));
            if let Some(memory) = memories.find(|memory| memory.space == Space::Host)
                && reported.insert(info.span)
            {
                warnings.push(ModelWarning::PageableCopy {
                    name: program.names.name(memory.name).to_owned(),
                    at: info.span.into(),
                    declared: memory.span.into(),
                });
            }
        }
    }
}
