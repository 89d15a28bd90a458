//! Unused declarations and options, and streams without operations.

use rustc_hash::FxHashSet;

use crate::base::Symbol;
use crate::model::names::declared::{is_of_module, names_module};
use crate::model::program::{Program, Sync};
use crate::syntax::ast::*;
use crate::syntax::{walk, written};

use super::ModelWarning;

/// Name of the stream of operations outside of any `on`.
const MAIN: &str = "main";

/// Finds parameters, values, streams, buffers, definitions and their outputs that nothing names. If an argument of a `def` has the
/// same name, its uses count for the outer name too, to avoid false warnings.
pub(super) fn names(ast: &Ast, program: &Program, warnings: &mut Vec<ModelWarning>) {
    // A module does not see the names of the file that uses it.
    let [own, of_modules] = [false, true].map(|of_module| uses(ast, of_module));
    for decl in &ast.decls {
        let used = if is_of_module(ast, decl) { &of_modules } else { &own };
        let mut check = |what: &'static str, name: Name| {
            let text = ast.names.name(name.symbol);
            // Other files may use the declarations of a module that this file does not use.
            if !used.contains(&name.symbol) && !text.starts_with('_') && !names_module(text) {
                warnings.push(ModelWarning::Unused { what, name: text.to_owned(), at: name.span.into() });
            }
        };
        match &decl.kind {
            DeclKind::Param { name, .. } => check("parameter", *name),
            DeclKind::Let(binding) => check("value", binding.name),
            DeclKind::Draw { name, .. } => check("draw", *name),
            // Operations outside of any `on` run there without naming it.
            DeclKind::Stream { name, .. } if ast.names.name(name.symbol) == MAIN && runs_on_main(program) => {}
            DeclKind::Stream { name, count, .. } if count.is_empty() => check("stream", *name),
            DeclKind::Stream { name, .. } => check("family of streams", *name),
            DeclKind::Buffer(buffer) => buffer.families.iter().for_each(|family| check("buffer", family.name)),
            DeclKind::Def { name, signature, .. } => {
                check("definition", *name);
                // The caller would read memory that nothing has written.
                signature.outputs.iter().for_each(|output| check("output", output.name));
            }
            DeclKind::Kernel { name, .. } => check("kernel", *name),
            _ => {}
        }
        let Some(body) = decl.body() else { continue };
        walk::block(body, &mut |stmt| match &stmt.kind {
            StmtKind::Let(binding) => check("value", binding.name),
            StmtKind::Buffer(buffer) => buffer.families.iter().for_each(|family| check("buffer", family.name)),
            _ => {}
        });
    }
}

/// Finds a `depth` of a step whose iterations do not overlap.
pub(super) fn depth(ast: &Ast, program: &Program, warnings: &mut Vec<ModelWarning>) {
    for decl in ast.decls.iter().filter(|_| program.step.sync == Sync::Iteration) {
        let DeclKind::Step { options, .. } = &decl.kind else { continue };
        let option = |name| options.iter().find(|option| ast.names.name(option.key.symbol) == name);
        // A `sync` that a parameter decides may overlap iterations of other runs.
        if let (Some(Setting { value, .. }), None) = (option("depth"), option("sync")) {
            warnings.push(ModelWarning::UnusedDepth { depth: written(value, &ast.names), at: value.span.into() });
        }
    }
}

/// The names that declarations of modules use, or those that all other declarations use.
fn uses(ast: &Ast, of_module: bool) -> FxHashSet<Symbol> {
    let mut used: FxHashSet<Symbol> = FxHashSet::default();
    for decl in ast.decls.iter().filter(|decl| is_of_module(ast, decl) == of_module) {
        walk::decl_exprs(decl, &mut |expr| match &expr.kind {
            ExprKind::Name(symbol) => drop(used.insert(*symbol)),
            ExprKind::Call { callee, .. } => drop(used.insert(callee.symbol)),
            _ => {}
        });
        let Some(body) = decl.body() else { continue };
        walk::block(body, &mut |stmt| {
            if let StmtKind::Call(call) = &stmt.kind {
                used.extend(call.callee.first().map(|callee| callee.symbol));
            }
        });
    }
    used
}

/// True if any operation runs on the stream [`MAIN`].
fn runs_on_main(program: &Program) -> bool {
    let mut ops = program.steps().flat_map(|step| &step.ops);
    ops.any(|op| program.streams[op.stream.index()].name == MAIN)
}

/// Finds families with operations on only some of their members.
pub(super) fn streams(program: &Program, warnings: &mut Vec<ModelWarning>) {
    let mut busy = vec![false; program.streams.len()];
    for step in program.steps() {
        step.ops.iter().for_each(|op| busy[op.stream.index()] = true);
    }
    let members: Vec<(usize, &crate::model::Stream)> = program.streams.iter().enumerate().collect();
    for family in members.chunk_by(|(_, a), (_, b)| a.member.is_some() && a.family == b.family) {
        let idle: Vec<&str> =
            family.iter().filter(|(index, _)| !busy[*index]).map(|(_, stream)| stream.name.as_str()).collect();
        let (Some(first), Some(last)) = (idle.first(), idle.last()) else { continue };
        // If no member has an operation, the use may be in a branch that was not taken.
        if idle.len() == family.len() {
            continue;
        }
        let which = match idle.len() {
            1 => format!("`{first}`"),
            2 => format!("`{first}` and `{last}`"),
            _ => format!("`{first}`, …, `{last}`"),
        };
        warnings.push(ModelWarning::IdleStreams {
            name: program.names.name(family[0].1.family).to_owned(),
            idle: format!("{} {}", idle.len(), if idle.len() == 1 { "is" } else { "are" }),
            count: family.len(),
            used: family.len() - idle.len(),
            at: family[0].1.span.into(),
            which,
        });
    }
}
