//! The syntax tree as text: a line for each node, its children indented below. Locations are left out, so two texts
//! with the same meaning have the same output.

use super::ast::*;
use crate::base::{Interner, Symbol};

/// Formats a tree.
pub fn tree(ast: &Ast) -> String {
    let mut writer = Writer { names: &ast.names, text: String::new(), level: 0 };
    for line in &ast.about {
        writer.line(format!("//! {line}").trim_end());
    }
    for decl in &ast.decls {
        writer.decl(decl);
    }
    writer.text
}

/// An expression in source form, for messages; `…` if it is too long.
pub fn written(expr: &Expr, names: &Interner) -> String {
    const LENGTH: usize = 60;
    let text = Writer { names, text: String::new(), level: 0 }.expr(expr);
    if text.len() > LENGTH { "…".to_owned() } else { text }
}

struct Writer<'a> {
    names: &'a Interner,
    text: String,
    level: usize,
}

impl<'a> Writer<'a> {
    fn line(&mut self, line: &str) {
        self.text.extend(std::iter::repeat_n("  ", self.level));
        self.text.push_str(line);
        self.text.push('\n');
    }

    /// Writes children of the last line.
    fn below(&mut self, inside: impl FnOnce(&mut Self)) {
        self.level += 1;
        inside(self);
        self.level -= 1;
    }

    fn name(&self, symbol: Symbol) -> &'a str {
        self.names.name(symbol)
    }

    // --- Declarations -------------------------------------------------------------------------------------------

    fn decl(&mut self, decl: &Decl) {
        for line in &decl.docs {
            self.line(format!("/// {line}").trim_end());
        }
        match &decl.kind {
            DeclKind::Meta(fields) => self.node("meta", |inner| inner.settings(fields)),
            DeclKind::Param { name, default, allowed } => {
                self.node(&format!("param {}", self.name(name.symbol)), |inner| {
                    inner.value("default", default);
                    inner.optional("in", allowed.as_ref());
                })
            }
            DeclKind::Let(binding) => self.binding("let ", binding),
            DeclKind::Preset { name, values } => {
                self.node(&format!("preset {}", self.name(name.symbol)), |inner| inner.bindings(values));
            }
            DeclKind::Stream { name, count, options } => {
                self.node(&format!("stream {}{}", self.name(name.symbol), self.index(count)), |inner| {
                    inner.settings(options);
                });
            }
            DeclKind::Buffer(buffer) => self.buffer(buffer),
            DeclKind::Mesh(bindings) => self.node("mesh", |inner| inner.bindings(bindings)),
            DeclKind::Kernel { name, signature, fields, references, .. } => {
                self.node(&format!("kernel {}", self.name(name.symbol)), |inner| {
                    inner.signature(signature);
                    inner.settings(fields);
                    references.iter().for_each(|reference| inner.node("reference", |inner| inner.call(reference)));
                });
            }
            DeclKind::Def { name, signature, body } => self.node(&format!("def {}", self.name(name.symbol)), |inner| {
                inner.signature(signature);
                inner.block("do", body);
            }),
            DeclKind::Use { what } => self.line(&format!("use {}", self.expr(what))),
            DeclKind::Draw { name, dims, distribution, args, options } => {
                self.node(&format!("draw {}{}", self.name(name.symbol), self.index(dims)), |inner| {
                    inner.line(&format!("from: {}", inner.name(distribution.symbol)));
                    args.iter().for_each(|arg| inner.value("argument", arg));
                    inner.settings(options);
                });
            }
            DeclKind::Require { condition, message } => self.node("require", |inner| {
                inner.value("condition", condition);
                if let Some(message) = message {
                    inner.line(&format!("message: {message:?}"));
                }
            }),
            DeclKind::Unlinked(_) => self.line("use"),
            DeclKind::Setup(body) => self.block("setup", body),
            DeclKind::Step { options, body } => self.node("step", |inner| {
                inner.settings(options);
                inner.block("do", body);
            }),
            DeclKind::Teardown(body) => self.block("teardown", body),
            DeclKind::Metric { name, each, value, unit } => {
                self.node(&format!("metric {}", self.name(name.symbol)), |inner| {
                    if let Some(each) = each {
                        let variable = inner.name(each.name.symbol).to_owned();
                        inner.value(&format!("for each {variable} in"), &each.value);
                    }
                    inner.value("value", value);
                    if let Some(unit) = unit {
                        inner.line(&format!("unit: {unit:?}"));
                    }
                })
            }
            DeclKind::Expect { condition, when } => self.node("expect", |inner| {
                inner.value("condition", condition);
                inner.optional("when", when.as_ref());
            }),
        }
    }

    fn buffer(&mut self, buffer: &Buffer) {
        self.node("buffer", |inner| {
            for family in &buffer.families {
                let family = format!("name: {}{}", inner.name(family.name.symbol), inner.index(&family.count));
                inner.line(&family);
            }
            match &buffer.layout {
                Layout::Tensor(ty) => inner.value("type", ty),
                Layout::Like(path) => inner.value("like", path),
                Layout::Parts(parts) => inner.node("parts", |inner| {
                    for (name, ty) in parts {
                        inner.value(inner.name(name.symbol), ty);
                    }
                }),
            }
            if let Some(space) = buffer.space {
                inner.line(&format!("in: {}", inner.name(space.symbol)));
            }
            inner.optional("init", buffer.init.as_ref());
        });
    }

    fn signature(&mut self, signature: &Signature) {
        for (side, params) in [("input", &signature.inputs), ("output", &signature.outputs)] {
            for param in params {
                let ty = param.ty.as_ref().map(|ty| format!(": {}", self.expr(ty))).unwrap_or_default();
                self.line(&format!("{side} {}{ty}", self.name(param.name.symbol)));
            }
        }
    }

    fn node(&mut self, line: &str, inside: impl FnOnce(&mut Self)) {
        self.line(line);
        self.below(inside);
    }

    fn value(&mut self, what: &str, value: &Expr) {
        self.line(&format!("{what}: {}", self.expr(value)));
    }

    fn optional(&mut self, what: &str, value: Option<&Expr>) {
        if let Some(value) = value {
            self.value(what, value);
        }
    }

    fn binding(&mut self, word: &str, binding: &Binding) {
        self.line(&format!("{word}{} = {}", self.name(binding.name.symbol), self.expr(&binding.value)));
    }

    fn bindings(&mut self, bindings: &[Binding]) {
        for binding in bindings {
            self.binding("", binding);
        }
    }

    fn settings(&mut self, settings: &[Setting]) {
        for setting in settings {
            self.value(self.name(setting.key.symbol), &setting.value);
        }
    }

    // --- Statements ---------------------------------------------------------------------------------------------

    fn block(&mut self, line: &str, block: &Block) {
        self.node(line, |inner| {
            for stmt in &block.stmts {
                inner.stmt(stmt);
            }
        });
    }

    fn stmt(&mut self, stmt: &Stmt) {
        match &stmt.kind {
            StmtKind::For { variable, over, body } => {
                self.block(&format!("for {} in {}", self.name(variable.symbol), self.expr(over)), body);
            }
            StmtKind::If { arms, otherwise } => {
                for (number, Arm { condition, body, .. }) in arms.iter().enumerate() {
                    let word = if number == 0 { "if" } else { "else if" };
                    self.block(&format!("{word} {}", self.expr(condition)), body);
                }
                if let Some(body) = otherwise {
                    self.block("else", body);
                }
            }
            StmtKind::On { stream, after, body } => self.node(&format!("on {}", self.expr(stream)), |inner| {
                for edge in after {
                    let label = inner.expr(&edge.label);
                    let label = if edge.previous { format!("prev({label})") } else { label };
                    let when = edge.when.as_ref().map(|when| format!(" when {}", inner.expr(when))).unwrap_or_default();
                    inner.line(&format!("after {label}{when}"));
                }
                inner.block("do", body);
            }),
            StmtKind::Phase { label, body } => self.block(&format!("phase {}", self.label(label)), body),
            StmtKind::Group { body } => self.block("group", body),
            StmtKind::Let(binding) => self.binding("let ", binding),
            StmtKind::Buffer(buffer) => self.buffer(buffer),
            StmtKind::Call(call) => self.call(call),
        }
    }

    fn call(&mut self, call: &Call) {
        let callee: Vec<&str> = call.callee.iter().map(|name| self.name(name.symbol)).collect();
        let label = call.label.as_ref().map(|label| format!("{}: ", self.label(label))).unwrap_or_default();
        self.node(&format!("{label}{}()", callee.join(".")), |inner| {
            for (side, args) in [("input", &call.inputs), ("output", &call.outputs)] {
                for arg in args {
                    let at = arg.at.as_ref().map(|at| inner.at(at)).unwrap_or_default();
                    inner.line(&format!("{side} {}{at}", inner.expr(&arg.value)));
                }
            }
            inner.settings(&call.options);
            if let Some(over) = &call.over {
                inner.line(&format!("over {}", inner.expr(over)));
            }
        });
    }

    fn at(&self, at: &AtClause) -> String {
        let when = at.when.as_ref().map(|when| format!(" when {}", self.expr(when))).unwrap_or_default();
        format!(" at {}{when}", self.expr(&at.rank))
    }

    fn label(&self, label: &LabelName) -> String {
        format!("{}{}", self.name(label.name.symbol), self.index(&label.index))
    }

    // --- Expressions --------------------------------------------------------------------------------------------

    /// Sizes or indices in brackets; empty if there are none.
    fn index(&self, items: &[Expr]) -> String {
        if items.is_empty() { String::new() } else { format!("[{}]", self.list(items)) }
    }

    fn list(&self, items: &[Expr]) -> String {
        items.iter().map(|item| self.expr(item)).collect::<Vec<_>>().join(", ")
    }

    /// An expression in which operands that are operators themselves are in parentheses.
    fn expr(&self, expr: &Expr) -> String {
        match &expr.kind {
            ExprKind::Int(value) => value.to_string(),
            ExprKind::Float(value) => format!("{value:?}"),
            ExprKind::Quantity { value, unit } => {
                let value = format!("{value:?}");
                format!("{}{}", value.strip_suffix(".0").unwrap_or(&value), unit.name)
            }
            ExprKind::Text(text) => format!("{text:?}"),
            ExprKind::Bool(value) => value.to_string(),
            ExprKind::Name(symbol) => self.name(*symbol).to_owned(),
            ExprKind::Whole => "..".to_owned(),
            ExprKind::Range { from, to, inclusive } => {
                format!("{}{}{}", self.operand(from), if *inclusive { "..=" } else { ".." }, self.operand(to))
            }
            ExprKind::Negate(operand) => format!("-{}", self.operand(operand)),
            ExprKind::Not(operand) => format!("not {}", self.operand(operand)),
            ExprKind::Binary { op, left, right } => {
                format!("{} {} {}", self.operand(left), op.name(), self.operand(right))
            }
            ExprKind::Call { callee, args } => format!("{}({})", self.name(callee.symbol), self.list(args)),
            ExprKind::Index { base, items } => format!("{}[{}]", self.operand(base), self.list(items)),
            ExprKind::Field { base, name } => format!("{}.{}", self.operand(base), self.name(name.symbol)),
            ExprKind::List(items) => format!("[{}]", self.list(items)),
            ExprKind::If { arms, otherwise } => {
                let arms = arms
                    .iter()
                    .map(|(condition, value)| format!("if {} {{ {} }} else ", self.expr(condition), self.expr(value)));
                format!("{}{{ {} }}", arms.collect::<String>(), self.expr(otherwise))
            }
        }
    }

    fn operand(&self, expr: &Expr) -> String {
        let is_operator = matches!(
            expr.kind,
            ExprKind::Range { .. }
                | ExprKind::Negate(_)
                | ExprKind::Not(_)
                | ExprKind::Binary { .. }
                | ExprKind::If { .. }
        );
        if is_operator { format!("({})", self.expr(expr)) } else { self.expr(expr) }
    }
}
