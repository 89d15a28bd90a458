//! The names that a tree declares, as they stand in the text.

use std::collections::BTreeSet;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::base::{SrcSpan, Symbol};
use crate::syntax::ast::*;

/// All names of labels and of phases in a file.
pub(super) fn labels_and_phases(ast: &Ast) -> (BTreeSet<Symbol>, BTreeSet<Symbol>) {
    fn walk(block: &Block, labels: &mut BTreeSet<Symbol>, phases: &mut BTreeSet<Symbol>) {
        for stmt in block {
            match &stmt.kind {
                StmtKind::Call(call) => labels.extend(call.label.as_ref().map(|label| label.name.symbol)),
                StmtKind::Phase { label, body } => {
                    phases.insert(label.name.symbol);
                    walk(body, labels, phases);
                }
                StmtKind::For { body, .. } | StmtKind::On { body, .. } | StmtKind::Group { body } => {
                    walk(body, labels, phases);
                }
                StmtKind::If { arms, otherwise } => {
                    arms.iter().map(|(_, body)| body).chain(otherwise).for_each(|body| walk(body, labels, phases));
                }
                StmtKind::Let(_) | StmtKind::Buffer(_) => {}
            }
        }
    }
    let (mut labels, mut phases) = (BTreeSet::new(), BTreeSet::new());
    for decl in &ast.decls {
        if let DeclKind::Step { body, .. }
        | DeclKind::Def { body, .. }
        | DeclKind::Setup(body)
        | DeclKind::Teardown(body) = &decl.kind
        {
            walk(body, &mut labels, &mut phases);
        }
    }
    (labels, phases)
}

/// All names that are given to families of labels in a file.
pub(super) fn label_families(ast: &Ast) -> FxHashSet<Symbol> {
    let mut families = FxHashMap::default();
    for decl in &ast.decls {
        if let DeclKind::Step { body, .. } | DeclKind::Def { body, .. } = &decl.kind {
            collect_labels(body, true, &mut families);
        }
    }
    families.into_keys().collect()
}

/// The name of a parameter that lists words.
pub(super) fn worded_name(decl: &Decl, words: &FxHashSet<Symbol>) -> Option<Symbol> {
    match &decl.kind {
        DeclKind::Param { name, allowed: Some(Expr { kind: ExprKind::List(items), .. }), .. } => {
            let lists_words = items.iter().filter_map(Expr::as_name).any(|item| words.contains(&item));
            lists_words.then_some(name.symbol)
        }
        _ => None,
    }
}

/// The name of a stream, or of a family of them.
pub(super) fn stream_name(decl: &Decl) -> Option<Symbol> {
    match decl.kind {
        DeclKind::Stream { name, .. } => Some(name.symbol),
        _ => None,
    }
}

/// The names that a declaration makes known to those below it.
pub(super) fn declared_names(decl: &Decl) -> Vec<Name> {
    match &decl.kind {
        DeclKind::Later { name, .. } => name.iter().copied().collect(),
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

/// The labels of a block with the places where they first stand: all of them, or families only.
pub(super) fn collect_labels(block: &Block, families: bool, labels: &mut FxHashMap<Symbol, SrcSpan>) {
    for stmt in block {
        match &stmt.kind {
            StmtKind::Call(Call { label: Some(label), .. }) if !families || !label.index.is_empty() => {
                labels.entry(label.name.symbol).or_insert(label.name.span);
            }
            StmtKind::For { body, .. }
            | StmtKind::On { body, .. }
            | StmtKind::Phase { body, .. }
            | StmtKind::Group { body } => collect_labels(body, families, labels),
            StmtKind::If { arms, otherwise } => {
                let bodies = arms.iter().map(|(_, body)| body).chain(otherwise);
                bodies.for_each(|body| collect_labels(body, families, labels));
            }
            _ => {}
        }
    }
}
