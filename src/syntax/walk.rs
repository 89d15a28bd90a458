//! Visitors of the syntax tree: each node once, outer ones first, in the order of the text. The parser's limits bound
//! the recursion.
//!
//! Only [`Decl::children`], [`Stmt::children`] and [`Expr::children`] list the parts of each construct. Every pass that
//! treats most constructs alike uses them.

use super::ast::*;

/// Defines the visitor of all children, and with `mut` the visitor of children that can be changed.
macro_rules! children {
    ($(#[$doc:meta])* $child:ident, $children:ident, $parts:ident $(, $mutable:tt)?) => {
        $(#[$doc])*
        pub enum $child<'a> {
            Name(&'a $($mutable)? Name),
            Expr(&'a $($mutable)? Expr),
            Block(&'a $($mutable)? Block),
        }

        impl Decl {
            /// Visits the parts of the declaration.
            pub fn $children<'a>(&'a $($mutable)? self, visit: &mut dyn FnMut($child<'a>)) {
                match &$($mutable)? self.kind {
                    DeclKind::Meta(fields) => $parts::settings(fields, visit),
                    DeclKind::Param { name, default, allowed } => {
                        visit($child::Name(name));
                        visit($child::Expr(default));
                        $parts::exprs(allowed, visit);
                    }
                    DeclKind::Let(binding) => $parts::bindings([binding], visit),
                    DeclKind::Preset { name, values } => {
                        visit($child::Name(name));
                        $parts::bindings(values, visit);
                    }
                    DeclKind::Stream { name, count, options } => {
                        visit($child::Name(name));
                        $parts::exprs(count, visit);
                        $parts::settings(options, visit);
                    }
                    DeclKind::Buffer(buffer) => $parts::buffer(buffer, visit),
                    DeclKind::Mesh(factors) => $parts::bindings(factors, visit),
                    DeclKind::Kernel { name, signature, fields, references, .. } => {
                        visit($child::Name(name));
                        $parts::signature(signature, visit);
                        $parts::settings(fields, visit);
                        for reference in references {
                            $parts::call(reference, visit);
                        }
                    }
                    DeclKind::Def { name, signature, body } => {
                        visit($child::Name(name));
                        $parts::signature(signature, visit);
                        visit($child::Block(body));
                    }
                    DeclKind::Use { what } => visit($child::Expr(what)),
                    DeclKind::Draw { name, dims, distribution, args, options } => {
                        visit($child::Name(name));
                        $parts::exprs(dims, visit);
                        visit($child::Name(distribution));
                        $parts::exprs(args, visit);
                        $parts::settings(options, visit);
                    }
                    DeclKind::Require { condition, .. } => visit($child::Expr(condition)),
                    DeclKind::Unlinked(name) => visit($child::Name(name)),
                    DeclKind::Setup(body) | DeclKind::Teardown(body) => visit($child::Block(body)),
                    DeclKind::Step { options, body } => {
                        $parts::settings(options, visit);
                        visit($child::Block(body));
                    }
                    DeclKind::Metric { name, each, value, .. } => {
                        visit($child::Name(name));
                        $parts::bindings(each, visit);
                        visit($child::Expr(value));
                    }
                    DeclKind::Expect { condition, when } => {
                        visit($child::Expr(condition));
                        $parts::exprs(when, visit);
                    }
                }
            }
        }

        impl Stmt {
            /// Visits the parts of the statement.
            pub fn $children<'a>(&'a $($mutable)? self, visit: &mut dyn FnMut($child<'a>)) {
                match &$($mutable)? self.kind {
                    StmtKind::For { variable, over, body } => {
                        visit($child::Name(variable));
                        visit($child::Expr(over));
                        visit($child::Block(body));
                    }
                    StmtKind::If { arms, otherwise } => {
                        for Arm { condition, body, .. } in arms {
                            visit($child::Expr(condition));
                            visit($child::Block(body));
                        }
                        if let Some(body) = otherwise {
                            visit($child::Block(body));
                        }
                    }
                    StmtKind::On { stream, after, body } => {
                        visit($child::Expr(stream));
                        for Edge { label, when, .. } in after {
                            visit($child::Expr(label));
                            $parts::exprs(when, visit);
                        }
                        visit($child::Block(body));
                    }
                    StmtKind::Phase { label, body } => {
                        $parts::label(label, visit);
                        visit($child::Block(body));
                    }
                    StmtKind::Group { body } => visit($child::Block(body)),
                    StmtKind::Let(binding) => $parts::bindings([binding], visit),
                    StmtKind::Buffer(buffer) => $parts::buffer(buffer, visit),
                    StmtKind::Call(call) => $parts::call(call, visit),
                }
            }
        }

        impl Call {
            /// Visits the parts of the call.
            pub fn $children<'a>(&'a $($mutable)? self, visit: &mut dyn FnMut($child<'a>)) {
                $parts::call(self, visit);
            }
        }

        impl Expr {
            /// Visits the parts of the expression.
            pub fn $children<'a>(&'a $($mutable)? self, visit: &mut dyn FnMut($child<'a>)) {
                match &$($mutable)? self.kind {
                    ExprKind::Int(_)
                    | ExprKind::Float(_)
                    | ExprKind::Quantity { .. }
                    | ExprKind::Text(_)
                    | ExprKind::Bool(_)
                    | ExprKind::Name(_)
                    | ExprKind::Whole => {}
                    ExprKind::Range { from: left, to: right, .. } | ExprKind::Binary { left, right, .. } => {
                        visit($child::Expr(left));
                        visit($child::Expr(right));
                    }
                    ExprKind::Negate(inner) | ExprKind::Not(inner) => visit($child::Expr(inner)),
                    ExprKind::Call { callee, args } => {
                        visit($child::Name(callee));
                        $parts::exprs(args, visit);
                    }
                    ExprKind::Index { base, items } => {
                        visit($child::Expr(base));
                        $parts::exprs(items, visit);
                    }
                    ExprKind::Field { base, name } => {
                        visit($child::Expr(base));
                        visit($child::Name(name));
                    }
                    ExprKind::List(items) => $parts::exprs(items, visit),
                    ExprKind::If { arms, otherwise } => {
                        for (condition, value) in arms {
                            visit($child::Expr(condition));
                            visit($child::Expr(value));
                        }
                        visit($child::Expr(otherwise));
                    }
                }
            }
        }

        /// Visitors that several constructs share.
        mod $parts {
            use super::*;

            type Visit<'v, 'a> = &'v mut dyn FnMut($child<'a>);

            pub fn names<'a>(names: impl IntoIterator<Item = &'a $($mutable)? Name>, visit: Visit<'_, 'a>) {
                names.into_iter().for_each(|name| visit($child::Name(name)));
            }

            pub fn exprs<'a>(exprs: impl IntoIterator<Item = &'a $($mutable)? Expr>, visit: Visit<'_, 'a>) {
                exprs.into_iter().for_each(|expr| visit($child::Expr(expr)));
            }

            pub fn bindings<'a>(bindings: impl IntoIterator<Item = &'a $($mutable)? Binding>, visit: Visit<'_, 'a>) {
                for Binding { name, value } in bindings {
                    visit($child::Name(name));
                    visit($child::Expr(value));
                }
            }

            pub fn settings<'a>(settings: &'a $($mutable)? [Setting], visit: Visit<'_, 'a>) {
                for Setting { key, value } in settings {
                    visit($child::Name(key));
                    visit($child::Expr(value));
                }
            }

            pub fn label<'a>(label: &'a $($mutable)? LabelName, visit: Visit<'_, 'a>) {
                visit($child::Name(&$($mutable)? label.name));
                exprs(&$($mutable)? label.index, visit);
            }

            pub fn signature<'a>(signature: &'a $($mutable)? Signature, visit: Visit<'_, 'a>) {
                for params in [&$($mutable)? signature.inputs, &$($mutable)? signature.outputs] {
                    for Param { name, ty } in params {
                        visit($child::Name(name));
                        exprs(ty, visit);
                    }
                }
            }

            pub fn call<'a>(call: &'a $($mutable)? Call, visit: Visit<'_, 'a>) {
                let Call { label, callee, inputs, outputs, options, over, .. } = call;
                if let Some(label) = label {
                    self::label(label, visit);
                }
                names(callee, visit);
                args(inputs, visit);
                args(outputs, visit);
                settings(options, visit);
                exprs(over, visit);
            }

            pub fn args<'a>(args: &'a $($mutable)? [Arg], visit: Visit<'_, 'a>) {
                for Arg { value, at } in args {
                    visit($child::Expr(value));
                    if let Some(AtClause { rank, when }) = at {
                        visit($child::Expr(rank));
                        exprs(when, visit);
                    }
                }
            }

            pub fn buffer<'a>(buffer: &'a $($mutable)? Buffer, visit: Visit<'_, 'a>) {
                for Family { name, count } in &$($mutable)? buffer.families {
                    visit($child::Name(name));
                    exprs(count, visit);
                }
                match &$($mutable)? buffer.layout {
                    Layout::Tensor(ty) | Layout::Like(ty) => visit($child::Expr(ty)),
                    Layout::Parts(parts) => {
                        for (name, ty) in parts {
                            visit($child::Name(name));
                            visit($child::Expr(ty));
                        }
                    }
                }
                names(&$($mutable)? buffer.space, visit);
                exprs(&$($mutable)? buffer.init, visit);
            }
        }
    };
}

children!(
    /// A part of a declaration, a statement or an expression.
    Child, children, parts
);
children!(
    /// A part of a declaration, a statement or an expression that can be changed.
    ChildMut, children_mut, parts_mut, mut
);

impl Decl {
    /// The statements of a `def`, `setup`, `step` or `teardown`; `None` for other declarations.
    pub fn body(&self) -> Option<&Block> {
        match &self.kind {
            DeclKind::Def { body, .. }
            | DeclKind::Setup(body)
            | DeclKind::Step { body, .. }
            | DeclKind::Teardown(body) => Some(body),
            _ => None,
        }
    }

    /// The declaration with its block replaced.
    pub(super) fn with_body(mut self, body: Block) -> Decl {
        self.children_mut(&mut replace_block(body));
        self
    }
}

impl Stmt {
    /// The statement with its block replaced.
    pub(super) fn with_body(mut self, body: Block) -> Stmt {
        self.children_mut(&mut replace_block(body));
        self
    }

    /// The blocks of the statement, in the order of the text.
    pub fn blocks(&self) -> Vec<&Block> {
        let mut blocks = Vec::new();
        self.children(&mut |child| {
            if let Child::Block(block) = child {
                blocks.push(block);
            }
        });
        blocks
    }
}

fn replace_block<'a>(mut new: Block) -> impl FnMut(ChildMut<'a>) {
    move |child| {
        if let ChildMut::Block(old) = child {
            *old = std::mem::take(&mut new);
        }
    }
}

/// Visits every expression of a file, and every part of each.
pub fn exprs<'a>(ast: &'a Ast, visit: &mut impl FnMut(&'a Expr)) {
    ast.decls.iter().for_each(|decl| decl_exprs(decl, visit));
}

/// Visits every expression of a declaration, and every part of each.
pub fn decl_exprs<'a>(decl: &'a Decl, visit: &mut impl FnMut(&'a Expr)) {
    decl.children(&mut |child| child_exprs(child, visit));
}

fn child_exprs<'a>(child: Child<'a>, visit: &mut dyn FnMut(&'a Expr)) {
    match child {
        Child::Name(_) => {}
        Child::Expr(expr) => {
            visit(expr);
            expr.children(&mut |child| child_exprs(child, visit));
        }
        Child::Block(block) => {
            for stmt in &block.stmts {
                stmt.children(&mut |child| child_exprs(child, visit));
            }
        }
    }
}

/// Visits an expression and all its parts.
pub fn expr<'a>(root: &'a Expr, visit: &mut impl FnMut(&'a Expr)) {
    child_exprs(Child::Expr(root), visit);
}

/// Visits every statement of a file, including nested ones.
pub fn stmts<'a>(ast: &'a Ast, visit: &mut dyn FnMut(&'a Stmt)) {
    for body in ast.decls.iter().filter_map(Decl::body) {
        block(body, visit);
    }
}

/// Visits every statement of a block, including nested ones.
pub fn block<'a>(body: &'a Block, visit: &mut dyn FnMut(&'a Stmt)) {
    for stmt in &body.stmts {
        visit(stmt);
        stmt.children(&mut |child| {
            if let Child::Block(inner) = child {
                block(inner, visit);
            }
        });
    }
}
