//! The tree of a file: a line for each declaration and statement, expressions in brackets, the operator first.
//!
//! The depth of statements and of expressions is limited by the parser, so that recursion is too.

use std::fmt::Write as _;

use crate::syntax::Ast;
use crate::syntax::ast::*;

/// The tree as text.
pub fn ast(ast: &Ast) -> String {
    let mut tree = Tree { ast, text: String::new() };
    for line in &ast.about {
        tree.line(0, &format!("about {line:?}"));
    }
    for decl in &ast.decls {
        for line in &decl.docs {
            tree.line(0, &format!("doc {line:?}"));
        }
        tree.decl(&decl.kind);
    }
    tree.text
}

struct Tree<'a> {
    ast: &'a Ast,
    text: String,
}

impl Tree<'_> {
    fn line(&mut self, depth: usize, text: &str) {
        let _ = writeln!(self.text, "{:width$}{}", "", text.trim_end(), width = 2 * depth);
    }

    fn name(&self, name: Name) -> &str {
        self.ast.names.name(name.symbol)
    }

    fn decl(&mut self, decl: &DeclKind) {
        match decl {
            DeclKind::Meta(fields) => self.line(0, &format!("meta{}", self.settings(fields))),
            DeclKind::Param { name, default, allowed } => {
                let allowed = self.optional(" in ", allowed.as_ref());
                self.line(0, &format!("param {} = {}{allowed}", self.name(*name), self.expr(default)));
            }
            DeclKind::Let(binding) => self.line(0, &format!("let {}", self.binding(binding))),
            DeclKind::Preset { name, values } => {
                self.line(0, &format!("preset {}", self.name(*name)));
                values.iter().for_each(|value| self.line(1, &self.binding(value)));
            }
            DeclKind::Stream { name, count, options } => {
                let count = self.list(count);
                self.line(0, &format!("stream {}{count}{}", self.name(*name), self.settings(options)));
            }
            DeclKind::Buffer(buffer) => self.buffer(buffer),
            DeclKind::Mesh(axes) => {
                self.line(0, "mesh");
                axes.iter().for_each(|axis| self.line(1, &self.binding(axis)));
            }
            DeclKind::Kernel { name, signature, fields } => {
                let signature = self.signature(signature);
                self.line(0, &format!("kernel {}{signature}{}", self.name(*name), self.settings(fields)));
            }
            DeclKind::Def { name, signature, body } => {
                self.line(0, &format!("def {}{}", self.name(*name), self.signature(signature)));
                self.block(1, body);
            }
            DeclKind::Use { what } => self.line(0, &format!("use {}", self.expr(what))),
            DeclKind::Draw { name, dims, distribution } => {
                let dims = self.list(dims);
                self.line(0, &format!("draw {}{dims} ~ {}", self.name(*name), self.expr(distribution)));
            }
            DeclKind::Setup(body) => self.titled("setup", body),
            DeclKind::Step { options, body } => self.titled(&format!("step{}", self.settings(options)), body),
            DeclKind::Teardown(body) => self.titled("teardown", body),
            DeclKind::Metric { name, value, unit } => {
                let unit = unit.as_ref().map(|unit| format!(" {unit:?}")).unwrap_or_default();
                self.line(0, &format!("metric {} = {}{unit}", self.name(*name), self.expr(value)));
            }
            DeclKind::Expect { condition, when } => {
                let when = self.optional(" when ", when.as_ref());
                self.line(0, &format!("expect {}{when}", self.expr(condition)));
            }
        }
    }

    fn titled(&mut self, title: &str, body: &Block) {
        self.line(0, title);
        self.block(1, body);
    }

    fn buffer(&mut self, buffer: &Buffer) {
        let families = buffer.families.iter().map(|family| self.family(family)).collect::<Vec<_>>().join(", ");
        let layout = match &buffer.layout {
            Layout::Tensor(ty) => self.expr(ty),
            Layout::Like(other) => format!("like {}", self.expr(other)),
            Layout::Parts(parts) => {
                let part = |(name, ty): &(Name, Expr)| format!("{}: {}", self.name(*name), self.expr(ty));
                format!("{{{}}}", parts.iter().map(part).collect::<Vec<_>>().join(", "))
            }
        };
        let space = buffer.space.map(|space| format!(" in {}", self.name(space))).unwrap_or_default();
        let init = self.optional(" = ", buffer.init.as_ref());
        self.line(0, &format!("buffer {families}: {layout}{space}{init}"));
    }

    fn block(&mut self, depth: usize, block: &Block) {
        for statement in block {
            self.statement(depth, &statement.kind);
        }
    }

    fn statement(&mut self, depth: usize, statement: &StmtKind) {
        match statement {
            StmtKind::For { variable, over, body } => {
                self.line(depth, &format!("for {} in {}", self.name(*variable), self.expr(over)));
                self.block(depth + 1, body);
            }
            StmtKind::If { arms, otherwise } => {
                for (index, (condition, body)) in arms.iter().enumerate() {
                    let word = if index == 0 { "if" } else { "else if" };
                    self.line(depth, &format!("{word} {}", self.expr(condition)));
                    self.block(depth + 1, body);
                }
                if let Some(body) = otherwise {
                    self.line(depth, "else");
                    self.block(depth + 1, body);
                }
            }
            StmtKind::On { stream, after, body } => {
                let after = after.iter().map(|edge| {
                    let previous = if edge.previous { "prev " } else { "" };
                    format!(
                        " after {previous}{}{}",
                        self.expr(&edge.label),
                        self.optional(" when ", edge.when.as_ref())
                    )
                });
                self.line(depth, &format!("on {}{}", self.expr(stream), after.collect::<String>()));
                self.block(depth + 1, body);
            }
            StmtKind::Phase { label, body } => {
                self.line(depth, &format!("phase {}", self.label(label)));
                self.block(depth + 1, body);
            }
            StmtKind::Group { body } => {
                self.line(depth, "group");
                self.block(depth + 1, body);
            }
            StmtKind::Let(binding) => self.line(depth, &format!("let {}", self.binding(binding))),
            StmtKind::Buffer { family, ty } => {
                self.line(depth, &format!("buffer {}: {}", self.family(family), self.expr(ty)));
            }
            StmtKind::Call(call) => self.call(depth, call),
        }
    }

    fn call(&mut self, depth: usize, call: &Call) {
        let label = call.label.as_ref().map(|label| format!("{}: ", self.label(label))).unwrap_or_default();
        let callee: Vec<&str> = call.callee.iter().map(|name| self.name(*name)).collect();
        let over = self.optional(" over ", call.over.as_ref());
        self.line(depth, &format!("{label}{}{over}{}", callee.join("."), self.settings(&call.options)));
        for (word, args) in [("reads", &call.inputs), ("writes", &call.outputs)] {
            for arg in args {
                let at = self.optional(" at ", arg.at.as_ref());
                self.line(depth + 1, &format!("{word} {}{at}", self.expr(&arg.value)));
            }
        }
    }

    fn label(&self, label: &LabelName) -> String {
        format!("{}{}", self.name(label.name), self.list(&label.index))
    }

    fn family(&self, family: &Family) -> String {
        format!("{}{}", self.name(family.name), self.list(&family.count))
    }

    fn binding(&self, binding: &Binding) -> String {
        format!("{} = {}", self.name(binding.name), self.expr(&binding.value))
    }

    fn settings(&self, settings: &[Setting]) -> String {
        let text = |setting: &Setting| format!(" {}: {}", self.name(setting.key), self.expr(&setting.value));
        settings.iter().map(text).collect::<Vec<_>>().join(",")
    }

    fn signature(&self, signature: &Signature) -> String {
        let list = |params: &[Param]| {
            let text = |param: &Param| format!("{}{}", self.name(param.name), self.optional(": ", param.ty.as_ref()));
            params.iter().map(text).collect::<Vec<_>>().join(", ")
        };
        format!("({} -> {})", list(&signature.inputs), list(&signature.outputs))
    }

    fn optional(&self, before: &str, expr: Option<&Expr>) -> String {
        expr.map(|expr| format!("{before}{}", self.expr(expr))).unwrap_or_default()
    }

    /// `[a, b]`; nothing where there is none.
    fn list(&self, items: &[Expr]) -> String {
        if items.is_empty() { String::new() } else { format!("[{}]", self.joined(items)) }
    }

    fn joined(&self, items: &[Expr]) -> String {
        items.iter().map(|item| self.expr(item)).collect::<Vec<_>>().join(", ")
    }

    fn expr(&self, expr: &Expr) -> String {
        match &expr.kind {
            ExprKind::Int(value) => value.to_string(),
            ExprKind::Float(value) => format!("{value:?}"),
            ExprKind::Quantity { value, unit } => format!("{value}{}", unit.name),
            ExprKind::Text(text) => format!("{text:?}"),
            ExprKind::Bool(value) => value.to_string(),
            ExprKind::Name(symbol) => self.ast.names.name(*symbol).to_owned(),
            ExprKind::Whole => "..".to_owned(),
            ExprKind::Range { from, to, inclusive } => {
                format!("({} {} {})", if *inclusive { "..=" } else { ".." }, self.expr(from), self.expr(to))
            }
            ExprKind::Negate(inner) => format!("(- {})", self.expr(inner)),
            ExprKind::Not(inner) => format!("(not {})", self.expr(inner)),
            ExprKind::Binary { op, left, right } => {
                format!("({} {} {})", op.text(), self.expr(left), self.expr(right))
            }
            ExprKind::Call { callee, args } => format!("{}({})", self.name(*callee), self.joined(args)),
            ExprKind::Index { base, items } => format!("{}[{}]", self.expr(base), self.joined(items)),
            ExprKind::Field { base, name } => format!("{}.{}", self.expr(base), self.name(*name)),
            ExprKind::List(items) => format!("[{}]", self.joined(items)),
            ExprKind::If { arms, otherwise } => {
                let arm = |(condition, value): &(Expr, Expr)| format!("{} {}", self.expr(condition), self.expr(value));
                let arms: Vec<String> = arms.iter().map(arm).collect();
                format!("(if {} else {})", arms.join(" "), self.expr(otherwise))
            }
        }
    }
}
