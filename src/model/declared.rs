//! Collects the names that a syntax tree declares.

use std::collections::BTreeSet;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::base::{SrcSpan, Symbol};
use crate::syntax::ast::*;
use crate::syntax::walk;

/// Names of the labels and of the phases that a figure can select: those of the step and of definitions.
pub(super) fn labels_and_phases(ast: &Ast) -> (BTreeSet<Symbol>, BTreeSet<Symbol>) {
    let (mut labels, mut phases) = (BTreeSet::new(), BTreeSet::new());
    for decl in &ast.decls {
        let (DeclKind::Step { body, .. } | DeclKind::Def { body, .. }) = &decl.kind else { continue };
        walk::block(body, &mut |stmt| match &stmt.kind {
            StmtKind::Call(call) => labels.extend(call.label.as_ref().map(|label| label.name.symbol)),
            StmtKind::Phase { label, .. } => drop(phases.insert(label.name.symbol)),
            _ => {}
        });
    }
    (labels, phases)
}

/// Returns the names of the families of labels in a file.
pub(super) fn label_families(ast: &Ast) -> FxHashSet<Symbol> {
    let mut families = FxHashMap::default();
    for decl in &ast.decls {
        if let Some(body) = decl.body() {
            collect_labels(body, true, &mut families);
        }
    }
    families.into_keys().collect()
}

/// The name of a parameter that lists words; `None` for any other declaration.
pub(super) fn word_parameter(decl: &Decl, words: &FxHashSet<Symbol>) -> Option<Symbol> {
    match &decl.kind {
        DeclKind::Param { name, allowed: Some(Expr { kind: ExprKind::List(items), .. }), .. } => {
            let lists_words = items.iter().filter_map(Expr::as_name).any(|item| words.contains(&item));
            lists_words.then_some(name.symbol)
        }
        _ => None,
    }
}

/// The name of a stream or a family of streams; `None` for any other declaration.
pub(super) fn stream_name(decl: &Decl) -> Option<Symbol> {
    match decl.kind {
        DeclKind::Stream { name, .. } => Some(name.symbol),
        _ => None,
    }
}

/// The names that a declaration makes visible to those below it.
pub(super) fn declared_names(decl: &Decl) -> Vec<Name> {
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

/// Collects the labels of a block with their first locations: all labels, or only families.
pub(super) fn collect_labels(block: &Block, families: bool, labels: &mut FxHashMap<Symbol, SrcSpan>) {
    walk::block(block, &mut |stmt| {
        if let StmtKind::Call(Call { label: Some(label), .. }) = &stmt.kind
            && (!families || !label.index.is_empty())
        {
            labels.entry(label.name.symbol).or_insert(label.name.span);
        }
    });
}

/// Locations of the names that a declaration gives to buffers.
pub(super) fn buffer_names(decl: &Decl) -> Vec<SrcSpan> {
    match &decl.kind {
        DeclKind::Buffer(buffer) => buffer.families.iter().map(|family| family.name.span).collect(),
        _ => Vec::new(),
    }
}
