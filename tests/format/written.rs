//! Writes a tree in a random style: white space, comments, parentheses and trailing commas anywhere.

use aorta::base::Symbol;
use aorta::syntax::Ast;
use aorta::syntax::ast::*;

/// The text of a tree, determined by the seed.
pub fn written(ast: &Ast, seed: u64) -> String {
    let mut author = Author { ast, chance: Chance(seed), tokens: Vec::new() };
    author.docs("//!", &ast.about);
    for decl in &ast.decls {
        author.decl(decl);
    }
    author.text()
}

/// The comments that [`written`] has put into a text, in order.
pub fn comments(text: &str) -> Vec<&str> {
    text.lines().filter_map(|line| line.find("// remark ").map(|at| line[at..].trim_end())).collect()
}

struct Chance(u64);

impl Chance {
    /// A number below `end`.
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % end
    }

    fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}

/// Precedence of an operator.
fn tightness(kind: &ExprKind) -> u8 {
    match kind {
        ExprKind::Range { .. } | ExprKind::Whole => 0,
        ExprKind::Binary { op, .. } => match op {
            BinaryOp::Or => 1,
            BinaryOp::And => 2,
            BinaryOp::Add | BinaryOp::Subtract => 5,
            BinaryOp::Multiply | BinaryOp::Divide | BinaryOp::Remainder => 6,
            _ => 4,
        },
        ExprKind::Not(_) => 3,
        ExprKind::Negate(_) => 7,
        _ => 8,
    }
}

struct Author<'a> {
    ast: &'a Ast,
    chance: Chance,
    tokens: Vec<String>,
}

impl<'a> Author<'a> {
    fn put(&mut self, token: impl Into<String>) {
        self.tokens.push(token.into());
    }

    fn symbol(&mut self, symbol: Symbol) {
        self.put(self.ast.names.name(symbol));
    }

    fn name(&mut self, name: Name) {
        self.symbol(name.symbol);
    }

    fn docs(&mut self, mark: &str, lines: &[String]) {
        for line in lines {
            self.put(format!("{mark} {line}"));
        }
    }

    /// Items separated by commas, perhaps with a trailing one.
    fn list<T>(&mut self, items: &'a [T], last_comma: bool, mut item: impl FnMut(&mut Self, &'a T)) {
        for (number, each) in items.iter().enumerate() {
            if number > 0 {
                self.put(",");
            }
            item(self, each);
        }
        if last_comma && !items.is_empty() && self.chance.once_in(3) {
            self.put(",");
        }
    }

    // --- Text ---------------------------------------------------------------------------------------------------

    fn text(mut self) -> String {
        let mut text = String::new();
        let tokens = std::mem::take(&mut self.tokens);
        let mut remarks = 0;
        for (number, token) in tokens.iter().enumerate() {
            let before = number.checked_sub(1).map(|last| tokens[last].as_str());
            text += &self.gap(before, token, &mut remarks);
            text += token;
        }
        let end = ["", "\n", "\n\n\n", "\n // remark at the end", "\r\n"];
        text + end[self.chance.below(end.len())]
    }

    /// White space and comments between two tokens.
    fn gap(&mut self, before: Option<&str>, token: &str, remarks: &mut usize) -> String {
        let is_line = |token: &str| token.starts_with("//");
        let is_bracket = |token: &str| matches!(token, "(" | ")" | "[" | "]" | "{" | "}" | ",");
        let must_break = before.is_some_and(is_line);
        let may_touch = before.is_none_or(|before| is_bracket(before) || is_bracket(token)) && !is_line(token);
        let mut gap = match self.chance.below(12) {
            _ if must_break => "\n",
            0 | 1 if may_touch => "",
            2 => "\n",
            3 => "\r\n    ",
            4 => "   ",
            5 => " \n\n\n \t",
            _ => " ",
        }
        .to_owned();
        if self.chance.once_in(15) {
            for _ in 0..=self.chance.below(2) {
                *remarks += 1;
                gap += &format!(" // remark {remarks}, ({}\n", ["", "\r", "\n\n", "  \n"][self.chance.below(4)]);
            }
        }
        gap
    }

    // --- Declarations -------------------------------------------------------------------------------------------

    fn decl(&mut self, decl: &'a Decl) {
        self.docs("///", &decl.docs);
        match &decl.kind {
            DeclKind::Meta(fields) => {
                self.put("meta");
                self.settings("{", fields, "}");
            }
            DeclKind::Param { name, default, allowed } => {
                self.put("param");
                self.name(*name);
                self.put("=");
                self.expr(default);
                if let Some(allowed) = allowed {
                    self.put("in");
                    self.expr(allowed);
                }
            }
            DeclKind::Let(binding) => {
                self.put("let");
                self.binding(binding);
            }
            DeclKind::Preset { name, values } => {
                self.put("preset");
                self.name(*name);
                self.put("{");
                self.list(values, true, Self::binding);
                self.put("}");
            }
            DeclKind::Stream { name, count, options } => {
                self.put("stream");
                self.name(*name);
                self.index(count);
                self.options(options);
            }
            DeclKind::Buffer(buffer) => self.buffer(buffer),
            DeclKind::Mesh(bindings) => {
                self.put("mesh");
                self.list(bindings, false, Self::binding);
            }
            DeclKind::Kernel { name, signature, fields, references, .. } => {
                self.put("kernel");
                self.name(*name);
                self.signature(signature);
                self.put("{");
                self.list(fields, references.is_empty(), Self::setting);
                self.list(references, true, |author, reference| {
                    author.reference(!fields.is_empty(), reference);
                });
                self.put("}");
            }
            DeclKind::Def { name, signature, body } => {
                self.put("def");
                self.name(*name);
                self.signature(signature);
                self.block(body);
            }
            DeclKind::Use { what } => {
                self.put("use");
                self.plain(what);
            }
            DeclKind::Draw { name, dims, distribution, args, options } => {
                self.put("draw");
                self.name(*name);
                self.index(dims);
                self.put("~");
                self.name(*distribution);
                self.arguments(args, options);
            }
            DeclKind::Require { condition, message } => {
                self.put("require");
                self.expr(condition);
                if let Some(message) = message {
                    self.quoted(message);
                }
            }
            DeclKind::Unlinked(_) => unreachable!("linking makes these"),
            DeclKind::Setup(body) => {
                self.put("setup");
                self.block(body);
            }
            DeclKind::Step { options, body } => {
                self.put("step");
                self.options(options);
                self.block(body);
            }
            DeclKind::Teardown(body) => {
                self.put("teardown");
                self.block(body);
            }
            DeclKind::Metric { name, each, value, unit } => {
                self.put("metric");
                self.name(*name);
                if let Some(each) = each {
                    self.put("[");
                    self.name(each.name);
                    self.put("in");
                    self.expr(&each.value);
                    self.put("]");
                }
                self.put("=");
                self.expr(value);
                if let Some(unit) = unit {
                    self.quoted(unit);
                }
            }
            DeclKind::Expect { condition, when } => {
                self.put("expect");
                self.expr(condition);
                self.when(when);
            }
        }
    }

    fn buffer(&mut self, buffer: &'a Buffer) {
        self.put("buffer");
        self.list(&buffer.families, false, Self::family);
        match &buffer.layout {
            Layout::Tensor(ty) => {
                self.put(":");
                self.expr(ty);
            }
            Layout::Like(path) => {
                self.put("like");
                self.plain(path);
            }
            Layout::Parts(parts) => {
                self.put("{");
                self.list(parts, true, |author, (name, ty)| {
                    author.remark();
                    author.name(*name);
                    author.put(":");
                    author.expr(ty);
                });
                self.put("}");
            }
        }
        if let Some(space) = buffer.space {
            self.put("in");
            self.name(space);
        }
        if let Some(init) = &buffer.init {
            self.put("=");
            self.expr(init);
        }
    }

    /// Documentation of a field, now and then.
    fn remark(&mut self) {
        if self.chance.once_in(8) {
            self.put("/// of the field");
        }
    }

    fn signature(&mut self, signature: &'a Signature) {
        let param = |author: &mut Self, param: &'a Param| {
            author.name(param.name);
            if let Some(ty) = &param.ty {
                author.put(":");
                author.expr(ty);
            }
        };
        self.put("(");
        self.list(&signature.inputs, true, param);
        if !signature.outputs.is_empty() {
            self.put("->");
            self.list(&signature.outputs, true, param);
        }
        self.put(")");
    }

    fn family(&mut self, family: &'a Family) {
        self.name(family.name);
        self.index(&family.count);
    }

    fn binding(&mut self, binding: &'a Binding) {
        self.name(binding.name);
        self.put("=");
        self.expr(&binding.value);
    }

    fn setting(&mut self, setting: &'a Setting) {
        self.remark();
        self.name(setting.key);
        self.put(":");
        self.expr(&setting.value);
    }

    fn settings(&mut self, open: &str, settings: &'a [Setting], close: &str) {
        self.put(open);
        self.list(settings, true, Self::setting);
        self.put(close);
    }

    fn reference(&mut self, follows: bool, reference: &'a Call) {
        if follows {
            self.put(",");
        }
        self.put("reference");
        self.put(":");
        self.call(reference);
    }

    fn arguments(&mut self, args: &'a [Expr], options: &'a [Setting]) {
        self.put("(");
        self.list(args, options.is_empty(), Self::expr);
        if !args.is_empty() && !options.is_empty() {
            self.put(",");
        }
        self.list(options, true, Self::setting);
        self.put(")");
    }

    fn options(&mut self, options: &'a [Setting]) {
        if !options.is_empty() || self.chance.once_in(4) {
            self.settings("(", options, ")");
        }
    }

    fn when(&mut self, when: &'a Option<Expr>) {
        if let Some(when) = when {
            self.put("when");
            self.expr(when);
        }
    }

    // --- Statements ---------------------------------------------------------------------------------------------

    fn block(&mut self, block: &'a Block) {
        self.put("{");
        for stmt in &block.stmts {
            self.stmt(stmt);
        }
        self.put("}");
    }

    fn stmt(&mut self, stmt: &'a Stmt) {
        match &stmt.kind {
            StmtKind::For { variable, over, body } => {
                self.put("for");
                self.name(*variable);
                self.put("in");
                self.expr(over);
                self.block(body);
            }
            StmtKind::If { arms, otherwise } => {
                for (number, Arm { condition, body, .. }) in arms.iter().enumerate() {
                    if number > 0 {
                        self.put("else");
                    }
                    self.put("if");
                    self.expr(condition);
                    self.block(body);
                }
                if let Some(body) = otherwise {
                    self.put("else");
                    self.block(body);
                }
            }
            StmtKind::On { stream, after, body } => {
                self.put("on");
                self.plain(stream);
                if !after.is_empty() {
                    self.put("after");
                    self.list(after, false, Self::edge);
                }
                self.block(body);
            }
            StmtKind::Phase { label, body } => {
                self.put("phase");
                self.label(label);
                self.block(body);
            }
            StmtKind::Group { body } => {
                self.put("group");
                self.block(body);
            }
            StmtKind::Let(binding) => {
                self.put("let");
                self.binding(binding);
            }
            StmtKind::Buffer(buffer) => self.buffer(buffer),
            StmtKind::Call(call) => self.call(call),
        }
    }

    fn edge(&mut self, edge: &'a Edge) {
        if edge.previous {
            self.put("prev");
            self.put("(");
        }
        self.plain(&edge.label);
        if edge.previous {
            self.put(")");
        }
        self.when(&edge.when);
    }

    fn label(&mut self, label: &'a LabelName) {
        self.name(label.name);
        self.index(&label.index);
    }

    fn call(&mut self, call: &'a Call) {
        if let Some(label) = &call.label {
            self.label(label);
            self.put(":");
        }
        for (number, name) in call.callee.iter().enumerate() {
            if number > 0 {
                self.put(".");
            }
            self.name(*name);
        }
        // Options may stand on either side of the arrow.
        let early =
            if call.outputs.is_empty() { call.options.len() } else { self.chance.below(call.options.len() + 1) };
        let (early, late) = call.options.split_at(early);
        self.put("(");
        self.side(&call.inputs, early);
        if !call.outputs.is_empty() {
            self.put("->");
            self.side(&call.outputs, late);
        }
        self.put(")");
        if let Some(over) = &call.over {
            self.put("over");
            self.plain(over);
        }
    }

    fn side(&mut self, args: &'a [Arg], options: &'a [Setting]) {
        self.list(args, options.is_empty(), |author, arg| {
            author.expr(&arg.value);
            if let Some(at) = &arg.at {
                author.put("at");
                author.expr(&at.rank);
                if let Some(when) = &at.when {
                    author.put("when");
                    author.expr(when);
                }
            }
        });
        if !args.is_empty() && !options.is_empty() {
            self.put(",");
        }
        self.list(options, true, Self::setting);
    }

    // --- Expressions --------------------------------------------------------------------------------------------

    fn index(&mut self, items: &'a [Expr]) {
        if !items.is_empty() {
            self.put("[");
            self.list(items, true, Self::expr);
            self.put("]");
        }
    }

    fn expr(&mut self, expr: &'a Expr) {
        if !matches!(expr.kind, ExprKind::Whole) && self.chance.once_in(10) {
            self.enclosed(expr);
        } else {
            self.plain(expr);
        }
    }

    fn enclosed(&mut self, expr: &'a Expr) {
        self.put("(");
        self.expr(expr);
        self.put(")");
    }

    /// Adds parentheses where precedence requires them.
    fn operand(&mut self, expr: &'a Expr, at_least: u8) {
        if tightness(&expr.kind) < at_least { self.enclosed(expr) } else { self.expr(expr) }
    }

    fn plain(&mut self, expr: &'a Expr) {
        let own = tightness(&expr.kind);
        match &expr.kind {
            ExprKind::Int(value) => {
                let digits = value.to_string();
                let cut = 1 + self.chance.below(digits.len());
                let parted = self.chance.once_in(4) && cut < digits.len();
                self.put(if parted { format!("{}_{}", &digits[..cut], &digits[cut..]) } else { digits });
            }
            ExprKind::Float(value) => self.put(format!("{value:?}")),
            ExprKind::Quantity { value, unit } => self.put(format!("{value}{}", unit.name)),
            ExprKind::Text(text) => self.quoted(text),
            ExprKind::Bool(value) => self.put(value.to_string()),
            ExprKind::Name(symbol) => self.symbol(*symbol),
            ExprKind::Whole => self.put(".."),
            ExprKind::Range { from, to, inclusive } => {
                self.operand(from, 1);
                self.put(if *inclusive { "..=" } else { ".." });
                self.operand(to, 1);
            }
            ExprKind::Negate(inner) => {
                self.put("-");
                self.operand(inner, own);
            }
            ExprKind::Not(inner) => {
                self.put("not");
                self.operand(inner, own);
            }
            ExprKind::Binary { op, left, right } => {
                self.operand(left, own);
                self.put(op.name());
                self.operand(right, own + 1);
            }
            ExprKind::Call { callee, args } => {
                self.name(*callee);
                self.put("(");
                self.list(args, true, Self::expr);
                self.put(")");
            }
            ExprKind::Index { base, items } => {
                self.base(base);
                self.index(items);
            }
            ExprKind::Field { base, name } => {
                self.base(base);
                self.put(".");
                self.name(*name);
            }
            ExprKind::List(items) => {
                self.put("[");
                self.list(items, true, Self::expr);
                self.put("]");
            }
            ExprKind::If { arms, otherwise } => {
                for (condition, value) in arms {
                    self.put("if");
                    self.expr(condition);
                    self.put("{");
                    self.expr(value);
                    self.put("}");
                    self.put("else");
                }
                self.put("{");
                self.expr(otherwise);
                self.put("}");
            }
        }
    }

    /// The base of an index or a field. Paths have no parentheses.
    fn base(&mut self, expr: &'a Expr) {
        if tightness(&expr.kind) < 8 { self.enclosed(expr) } else { self.plain(expr) }
    }

    fn quoted(&mut self, text: &str) {
        let may_be_long = !text.ends_with('"') && !text.contains("\"\"\"") && !text.contains("//");
        if may_be_long && self.chance.once_in(2) {
            return self.put(format!("\"\"\"{text}\"\"\""));
        }
        let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n").replace('\t', "\\t");
        self.put(format!("\"{escaped}\""));
    }
}
