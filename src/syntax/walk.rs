//! Walks over a tree, each node once, outer ones first. Their depth is bounded by the limits of the parser.

use super::ast::*;

/// Every expression of a file, and every part of each.
pub fn exprs(ast: &Ast, visit: &mut impl FnMut(&Expr)) {
    for decl in &ast.decls {
        decl_exprs(decl, visit);
    }
}

/// Every statement of a file, in blocks and in the blocks inside.
pub fn stmts<'a>(ast: &'a Ast, visit: &mut impl FnMut(&'a Stmt)) {
    for decl in &ast.decls {
        if let DeclKind::Def { body, .. }
        | DeclKind::Setup(body)
        | DeclKind::Step { body, .. }
        | DeclKind::Teardown(body) = &decl.kind
        {
            block(body, visit);
        }
    }
}

/// Every statement of a block and of those inside.
pub fn block<'a>(body: &'a Block, visit: &mut impl FnMut(&'a Stmt)) {
    for stmt in body {
        visit(stmt);
        match &stmt.kind {
            StmtKind::For { body, .. }
            | StmtKind::On { body, .. }
            | StmtKind::Phase { body, .. }
            | StmtKind::Group { body } => block(body, visit),
            StmtKind::If { arms, otherwise } => {
                arms.iter().map(|(_, body)| body).chain(otherwise).for_each(|body| block(body, visit));
            }
            StmtKind::Let(_) | StmtKind::Buffer(_) | StmtKind::Call(_) => {}
        }
    }
}

/// An expression and all its parts.
pub fn expr(root: &Expr, visit: &mut impl FnMut(&Expr)) {
    visit(root);
    match &root.kind {
        ExprKind::Int(_)
        | ExprKind::Float(_)
        | ExprKind::Quantity { .. }
        | ExprKind::Text(_)
        | ExprKind::Bool(_)
        | ExprKind::Name(_)
        | ExprKind::Whole => {}
        ExprKind::Range { from, to, .. } => [from, to].into_iter().for_each(|part| expr(part, visit)),
        ExprKind::Binary { left, right, .. } => [left, right].into_iter().for_each(|part| expr(part, visit)),
        ExprKind::Negate(inner) | ExprKind::Not(inner) => expr(inner, visit),
        ExprKind::Call { args, .. } => list(args, visit),
        ExprKind::Index { base, items } => {
            expr(base, visit);
            list(items, visit);
        }
        ExprKind::Field { base, .. } => expr(base, visit),
        ExprKind::List(items) => list(items, visit),
        ExprKind::If { arms, otherwise } => {
            for (condition, value) in arms {
                expr(condition, visit);
                expr(value, visit);
            }
            expr(otherwise, visit);
        }
    }
}

fn list<'a>(items: impl IntoIterator<Item = &'a Expr>, visit: &mut impl FnMut(&Expr)) {
    items.into_iter().for_each(|item| expr(item, visit));
}

fn decl_exprs(decl: &Decl, visit: &mut impl FnMut(&Expr)) {
    match &decl.kind {
        DeclKind::Meta(settings) | DeclKind::Kernel { fields: settings, .. } => settings_exprs(settings, visit),
        DeclKind::Param { default, allowed, .. } => {
            expr(default, visit);
            list(allowed, visit);
        }
        DeclKind::Let(binding) => expr(&binding.value, visit),
        DeclKind::Preset { values, .. } | DeclKind::Mesh(values) => {
            list(values.iter().map(|binding| &binding.value), visit);
        }
        DeclKind::Stream { count, options, .. } => {
            list(count, visit);
            settings_exprs(options, visit);
        }
        DeclKind::Buffer(buffer) => buffer_exprs(buffer, visit),
        DeclKind::Def { signature, body, .. } => {
            list(signature.inputs.iter().chain(&signature.outputs).filter_map(|param| param.ty.as_ref()), visit);
            block_exprs(body, visit);
        }
        DeclKind::Use { what } => expr(what, visit),
        DeclKind::Later { .. } => {}
        DeclKind::Draw { dims, distribution, .. } => {
            list(dims, visit);
            expr(distribution, visit);
        }
        DeclKind::Setup(body) | DeclKind::Teardown(body) => block_exprs(body, visit),
        DeclKind::Step { options, body } => {
            settings_exprs(options, visit);
            block_exprs(body, visit);
        }
        DeclKind::Metric { each, value, .. } => {
            list(each.iter().map(|each| &each.value), visit);
            expr(value, visit);
        }
        DeclKind::Expect { condition, when } => {
            expr(condition, visit);
            list(when, visit);
        }
    }
}

fn buffer_exprs(buffer: &Buffer, visit: &mut impl FnMut(&Expr)) {
    list(buffer.families.iter().flat_map(|family| &family.count), visit);
    match &buffer.layout {
        Layout::Tensor(ty) | Layout::Like(ty) => expr(ty, visit),
        Layout::Parts(parts) => list(parts.iter().map(|(_, ty)| ty), visit),
    }
    list(&buffer.init, visit);
}

fn settings_exprs(settings: &[Setting], visit: &mut impl FnMut(&Expr)) {
    list(settings.iter().map(|setting| &setting.value), visit);
}

fn block_exprs(body: &Block, visit: &mut impl FnMut(&Expr)) {
    block(body, &mut |stmt| match &stmt.kind {
        StmtKind::For { over, .. } => expr(over, visit),
        StmtKind::If { arms, .. } => list(arms.iter().map(|(condition, _)| condition), visit),
        StmtKind::On { stream, after, .. } => {
            expr(stream, visit);
            for edge in after {
                expr(&edge.label, visit);
                list(&edge.when, visit);
            }
        }
        StmtKind::Phase { label, .. } => list(&label.index, visit),
        StmtKind::Group { .. } => {}
        StmtKind::Let(binding) => expr(&binding.value, visit),
        StmtKind::Buffer(buffer) => buffer_exprs(buffer, visit),
        StmtKind::Call(call) => {
            list(call.label.iter().flat_map(|label| &label.index), visit);
            for arg in call.inputs.iter().chain(&call.outputs) {
                expr(&arg.value, visit);
                list(arg.at.iter().flat_map(|at| std::iter::once(&at.rank).chain(&at.when)), visit);
            }
            settings_exprs(&call.options, visit);
            list(&call.over, visit);
        }
    });
}
