//! Collects the names that a syntax tree declares.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::{FxHashMap, FxHashSet};

use crate::base::{SrcSpan, Symbol};
use crate::syntax::ast::*;
use crate::syntax::walk;

use super::index::Index;

/// A label or a phase that a figure can select.
#[derive(Debug, Default)]
pub(in crate::model) struct DeclaredSet {
    /// Numbers of indices after the name, in all places that declare it.
    pub indices: BTreeSet<usize>,
    /// True if a condition, the range of a loop that is not written out, or the call of a definition decides whether a member exists.
    pub is_conditional: bool,
    /// Indices of the program's members, collected when a figure selects one.
    pub members: Option<FxHashSet<Index>>,
}

/// The declared labels or phases, by name.
pub(in crate::model) type DeclaredSets = BTreeMap<Symbol, DeclaredSet>;

/// The labels and the phases that a figure can select: those of the step and of definitions.
pub(in crate::model) fn labels_and_phases(ast: &Ast) -> (DeclaredSets, DeclaredSets) {
    let mut sets = (DeclaredSets::new(), DeclaredSets::new());
    for decl in &ast.decls {
        match &decl.kind {
            DeclKind::Step { body, .. } => collect_sets(body, false, &mut sets),
            DeclKind::Def { body, .. } => collect_sets(body, true, &mut sets),
            _ => {}
        }
    }
    sets
}

fn collect_sets(block: &Block, is_conditional: bool, sets: &mut (DeclaredSets, DeclaredSets)) {
    for stmt in &block.stmts {
        let declared = match &stmt.kind {
            StmtKind::Call(Call { label: Some(label), .. }) => Some((label, &mut sets.0)),
            StmtKind::Phase { label, .. } => Some((label, &mut sets.1)),
            _ => None,
        };
        if let Some((label, sets)) = declared {
            let set = sets.entry(label.name.symbol).or_default();
            set.indices.insert(label.index.len());
            set.is_conditional |= is_conditional;
        }
        let is_conditional = is_conditional
            || match &stmt.kind {
                StmtKind::If { .. } => true,
                StmtKind::For { over, .. } => has_name(over),
                _ => false,
            };
        stmt.children(&mut |child| {
            if let walk::Child::Block(block) = child {
                collect_sets(block, is_conditional, sets);
            }
        });
    }
}

fn has_name(expr: &Expr) -> bool {
    let mut found = false;
    walk::expr(expr, &mut |part| found |= part.as_name().is_some());
    found
}

/// Returns the names of the families of labels in a file.
pub(in crate::model) fn label_families(ast: &Ast) -> FxHashSet<Symbol> {
    let mut families = FxHashMap::default();
    for decl in &ast.decls {
        if let Some(body) = decl.body() {
            collect_labels(body, true, &mut families);
        }
    }
    families.into_keys().collect()
}

/// The name of a parameter that lists words; `None` for any other declaration.
pub(in crate::model) fn word_parameter(decl: &Decl, words: &FxHashSet<Symbol>) -> Option<Symbol> {
    match &decl.kind {
        DeclKind::Param { name, allowed: Some(Expr { kind: ExprKind::List(items), .. }), .. } => {
            let lists_words = items.iter().filter_map(Expr::as_name).any(|item| words.contains(&item));
            lists_words.then_some(name.symbol)
        }
        _ => None,
    }
}

/// The name of a stream or a family of streams; `None` for any other declaration.
pub(in crate::model) fn stream_name(decl: &Decl) -> Option<Symbol> {
    match decl.kind {
        DeclKind::Stream { name, .. } => Some(name.symbol),
        _ => None,
    }
}

/// The names that a declaration makes visible to those below it.
pub(in crate::model) fn declared_names(decl: &Decl) -> Vec<Name> {
    match &decl.kind {
        DeclKind::Unlinked(name) => vec![*name],
        DeclKind::Use { what: Expr { kind: ExprKind::Name(symbol), span } } => {
            vec![Name { symbol: *symbol, span: *span }]
        }
        DeclKind::Use { what: Expr { kind: ExprKind::Field { name, .. }, .. } } => vec![*name],
        DeclKind::Param { name, .. }
        | DeclKind::Stream { name, .. }
        | DeclKind::Draw { name, .. }
        | DeclKind::Let(Binding { name, .. }) => vec![*name],
        DeclKind::Buffer(buffer) => buffer.families.iter().map(|family| family.name).collect(),
        DeclKind::Mesh(bindings) => bindings.iter().map(|binding| binding.name).collect(),
        _ => Vec::new(),
    }
}

/// True for a name of a module: `blocks.width`.
pub(in crate::model) fn names_module(name: &str) -> bool {
    name.contains('.')
}

/// True if a declaration comes from a module.
pub(in crate::model) fn is_of_module(ast: &Ast, decl: &Decl) -> bool {
    let name = match &decl.kind {
        DeclKind::Def { name, .. } | DeclKind::Kernel { name, .. } => *name,
        DeclKind::Let(binding) => binding.name,
        _ => return false,
    };
    names_module(ast.names.name(name.symbol))
}

/// Collects the labels of a block with their first locations: all labels, or only families.
pub(in crate::model) fn collect_labels(block: &Block, families: bool, labels: &mut FxHashMap<Symbol, SrcSpan>) {
    walk::block(block, &mut |stmt| {
        if let StmtKind::Call(Call { label: Some(label), .. }) = &stmt.kind
            && (!families || !label.index.is_empty())
        {
            labels.entry(label.name.symbol).or_insert(label.name.span);
        }
    });
}

/// Values and buffers that a block declares, each with its location and the loop, branch or block in which it is known.
pub(in crate::model) fn locals(block: &Block) -> FxHashMap<Symbol, (SrcSpan, SrcSpan)> {
    let mut locals = FxHashMap::default();
    add_locals(block, block.span, &mut locals);
    locals
}

fn add_locals(block: &Block, scope: SrcSpan, locals: &mut FxHashMap<Symbol, (SrcSpan, SrcSpan)>) {
    let mut add = |name: &Name| _ = locals.entry(name.symbol).or_insert((name.span, scope));
    for stmt in &block.stmts {
        match &stmt.kind {
            StmtKind::Let(binding) => add(&binding.name),
            StmtKind::Buffer(buffer) => buffer.families.iter().for_each(|family| add(&family.name)),
            _ => {}
        }
    }
    for stmt in &block.stmts {
        let is_scope = matches!(stmt.kind, StmtKind::For { .. } | StmtKind::If { .. });
        for inner in stmt.blocks() {
            add_locals(inner, if is_scope { inner.span } else { scope }, locals);
        }
    }
}

/// Locations of the names that a declaration gives to buffers.
pub(in crate::model) fn buffer_names(decl: &Decl) -> Vec<SrcSpan> {
    match &decl.kind {
        DeclKind::Buffer(buffer) => buffer.families.iter().map(|family| family.name.span).collect(),
        _ => Vec::new(),
    }
}
