//! Checks names everywhere, also in branches that are not taken and in loops without a turn.
//!
//! The value of an expression is known only after evaluation, but whether its names exist is checked here.

mod kernel;
mod unknown_name;

use std::collections::BTreeSet;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::base::{DType, Interner, SrcSpan, Symbol, suggest};
use crate::ops::{self, Input, Operation, OptionSpec, OptionType};
use crate::syntax::ast::*;
use crate::syntax::walk::Child;

use super::calls::lower::elementwise_functions;
use super::error::ModelError;
use super::mistakes::MAX_ERRORS;
use super::names::callee::{GRADIENT, MARKERS};
use super::names::declared::{
    buffer_names, collect_labels, declared_names, locals, names_module, stream_name, word_parameter,
};
use super::names::foreign_calls;
use super::names::locals::Locals;
use super::names::unknown::NameRole;
use super::names::unknown_operation::{Receiver, unknown_operation};
use super::values::functions::{FUNCTIONS, unknown_function_help};

/// Names that a declaration cannot have.
const BUILTINS: [(&str, &str); 3] = [
    ("rank", "is the number of this rank"),
    ("world", "is the number of ranks"),
    ("iteration", "is the number of the iteration"),
];

/// The mistakes in the names of a file.
pub(super) fn names(ast: &Ast, names: &Interner, words: &FxHashSet<Symbol>) -> Vec<ModelError> {
    let mut checker = Checker {
        ast,
        names,
        words,
        globals: FxHashMap::default(),
        declared: FxHashMap::default(),
        defs: FxHashMap::default(),
        locals: Locals::default(),
        later: FxHashMap::default(),
        later_locals: FxHashMap::default(),
        step_labels: FxHashMap::default(),
        inner_labels: FxHashMap::default(),
        setup_labels: FxHashMap::default(),
        place: NameRole::Any,
        has_used: ast.decls.iter().any(|decl| matches!(decl.kind, DeclKind::Unlinked(_))),
        streams: ast.decls.iter().filter_map(stream_name).collect(),
        worded: ast.decls.iter().filter_map(|decl| word_parameter(decl, words)).collect(),
        buffers: ast.decls.iter().flat_map(buffer_names).collect(),
        modules: {
            let uses = ast.decls.iter().filter(|decl| matches!(decl.kind, DeclKind::Use { .. }));
            uses.flat_map(declared_names).map(|name| name.span).collect()
        },
        labels: FxHashSet::default(),
        of_module: false,
        has_mesh: ast.decls.iter().any(|decl| matches!(decl.kind, DeclKind::Mesh(_))),
        errors: Vec::new(),
    };
    checker.file(ast);
    checker.errors
}

struct Checker<'a> {
    ast: &'a Ast,
    names: &'a Interner,
    words: &'a FxHashSet<Symbol>,
    /// Every declared name with its location, to report uses before the declaration.
    globals: FxHashMap<Symbol, SrcSpan>,
    /// The declarations above the one that is checked.
    declared: FxHashMap<Symbol, SrcSpan>,
    defs: FxHashMap<Symbol, &'a Decl>,
    /// Locations of the names of declared buffers.
    buffers: FxHashSet<SrcSpan>,
    /// Locations of the names of modules.
    modules: FxHashSet<SrcSpan>,
    /// Locations of the names of labels that have been checked.
    labels: FxHashSet<SrcSpan>,
    locals: Locals,
    /// Labels of the step or `def` that is checked, wherever they are in it.
    later: FxHashMap<Symbol, SrcSpan>,
    /// Values and buffers that the step or `def` declares, wherever they are in it, with the block in which each is known.
    later_locals: FxHashMap<Symbol, (SrcSpan, SrcSpan)>,
    /// Labels of the step, with their locations.
    step_labels: FxHashMap<Symbol, SrcSpan>,
    /// Labels of definitions, each with the definition that has it.
    inner_labels: FxHashMap<Symbol, Symbol>,
    /// Labels of operations of `setup`, which the step does not see.
    setup_labels: FxHashMap<Symbol, SrcSpan>,
    /// The role of the names in the checked expression, for help messages.
    place: NameRole,
    has_mesh: bool,
    /// True inside a definition of a module, whose names may equal names that this file declares.
    of_module: bool,
    /// Parameters that list words.
    worded: FxHashSet<Symbol>,
    /// True if a module could not be linked, or something is declared that this version does not support.
    has_used: bool,
    streams: FxHashSet<Symbol>,
    errors: Vec<ModelError>,
}

impl<'a> Checker<'a> {
    /// Adds an error unless the limit is reached; `make` is only called if it is not.
    fn error(&mut self, make: impl FnOnce(&Self) -> ModelError) {
        if self.errors.len() < MAX_ERRORS {
            let error = make(self);
            self.errors.push(error);
        }
    }

    fn file(&mut self, ast: &'a Ast) {
        let mut metrics: FxHashMap<Symbol, SrcSpan> = FxHashMap::default();
        for decl in &ast.decls {
            let DeclKind::Metric { name, .. } = &decl.kind else { continue };
            match metrics.get(&name.symbol).copied() {
                Some(first) => self.redefined(*name, first),
                None => _ = metrics.insert(name.symbol, name.span),
            }
        }
        for decl in &ast.decls {
            if let DeclKind::Def { name, .. } | DeclKind::Kernel { name, .. } | DeclKind::Unlinked(name) = &decl.kind
                && let Some(first) = self.defs.insert(name.symbol, decl)
            {
                let first = match &first.kind {
                    DeclKind::Def { name, .. } | DeclKind::Kernel { name, .. } => name.span,
                    _ => first.span,
                };
                self.redefined(*name, first);
            }
            for name in declared_names(decl) {
                self.builtin(name);
                if let Some(&first) = self.globals.get(&name.symbol) {
                    self.redefined(name, first);
                }
                self.globals.entry(name.symbol).or_insert(name.span);
            }
        }
        for decl in &ast.decls {
            self.decl(decl);
            for name in declared_names(decl) {
                self.declared.insert(name.symbol, name.span);
            }
        }
        for decl in &ast.decls {
            match &decl.kind {
                DeclKind::Step { body, .. } => collect_labels(body, false, &mut self.step_labels),
                DeclKind::Setup(body) => collect_labels(body, false, &mut self.setup_labels),
                DeclKind::Def { name, body, .. } => {
                    let mut labels = FxHashMap::default();
                    collect_labels(body, false, &mut labels);
                    self.inner_labels.extend(labels.into_keys().map(|label| (label, name.symbol)));
                }
                _ => {}
            }
        }
        // Bodies can use every declaration, also those below.
        self.declared = self.globals.clone();
        for decl in &ast.decls {
            match &decl.kind {
                DeclKind::Def { name, signature, body } => {
                    self.of_module = names_module(self.names.name(name.symbol));
                    let params: Vec<&Param> = signature.inputs.iter().chain(&signature.outputs).collect();
                    self.signature(signature);
                    self.body(&params, body);
                    self.of_module = false;
                }
                DeclKind::Kernel { name, signature, fields, references, .. } => {
                    self.of_module = names_module(self.names.name(name.symbol));
                    self.kernel(signature, fields, references);
                    self.of_module = false;
                }
                _ => decl.body().into_iter().for_each(|body| self.body(&[], body)),
            }
        }
    }

    fn builtin(&mut self, name: Name) {
        let text = self.names.name(name.symbol);
        let dtype = DType::from_name(text).map(|_| "is an element type");
        let builtin = BUILTINS.iter().find(|(builtin, _)| *builtin == text).map(|(_, meaning)| *meaning);
        if let Some(meaning) = builtin.or(dtype) {
            self.error(|_| ModelError::BuiltinName { name: text.to_owned(), at: name.span.into(), meaning });
        }
    }

    fn decl(&mut self, decl: &'a Decl) {
        match &decl.kind {
            DeclKind::Param { default, allowed, .. } => {
                let words: Vec<Symbol> = match allowed {
                    Some(Expr { kind: ExprKind::List(items), .. }) => items.iter().filter_map(Expr::as_name).collect(),
                    _ => Vec::new(),
                };
                // The parameter itself looks up a bare word in its list.
                if words.is_empty() || default.as_name().is_none() {
                    self.expr(default);
                }
                if let Some(allowed) = allowed {
                    self.expr(allowed);
                }
            }
            DeclKind::Let(Binding { value, .. }) => self.expr(value),
            DeclKind::Draw { dims, args, options, .. } => {
                self.exprs(dims);
                self.exprs(args);
                options.iter().for_each(|option| self.expr(&option.value));
            }
            DeclKind::Require { condition, .. } => self.expr(condition),
            DeclKind::Preset { values, .. } => {
                // A parameter that lists words checks its value itself.
                for binding in values {
                    let is_word = self.worded.contains(&binding.name.symbol) && binding.value.as_name().is_some();
                    if !is_word {
                        self.expr(&binding.value);
                    }
                }
            }
            DeclKind::Stream { count, options, .. } => {
                self.exprs(count);
                for setting in options {
                    self.word_or_value(&setting.value, &["high", "normal", "low", "gpu", "host"]);
                }
            }
            DeclKind::Buffer(buffer) => self.buffer(buffer),
            DeclKind::Mesh(factors) => factors.iter().for_each(|factor| self.expr(&factor.value)),
            DeclKind::Step { options, .. } => {
                for setting in options {
                    self.word_or_value(&setting.value, &["iteration", "end", "data", "declared", "forbid", "allow"]);
                }
            }
            DeclKind::Metric { each: Some(each), .. } => {
                self.expr(&each.value);
                self.builtin(each.name);
                if let Some(&first) = self.globals.get(&each.name.symbol) {
                    self.redefined(each.name, first);
                }
            }
            // Metrics are resolved elsewhere, and other declarations are not supported in this version.
            _ => {}
        }
    }

    /// Checks the sizes, the type and the init of a buffer.
    fn buffer(&mut self, buffer: &Buffer) {
        for family in &buffer.families {
            self.exprs(&family.count);
        }
        match &buffer.layout {
            Layout::Tensor(expr) => self.expr(expr),
            Layout::Parts(parts) => parts.iter().for_each(|(_, expr)| self.expr(expr)),
            Layout::Like(path) => self.expr_at(path, NameRole::Operand),
        }
        match &buffer.init {
            Some(Expr { kind: ExprKind::Call { args, .. }, .. }) => self.exprs(args),
            // A name may be that of contents, such as `zeros`.
            None | Some(Expr { kind: ExprKind::Name(_), .. }) => {}
            Some(init) => self.expr(init),
        }
    }

    /// Checks the value of an option, or those of a list, which may be words.
    fn word_or_value(&mut self, value: &Expr, words: &[&str]) {
        match &value.kind {
            ExprKind::List(items) => return items.iter().for_each(|item| self.word_or_value(item, words)),
            ExprKind::If { arms, otherwise } => {
                for (condition, chosen) in arms {
                    self.expr(condition);
                    self.word_or_value(chosen, words);
                }
                return self.word_or_value(otherwise, words);
            }
            _ => {}
        }
        let is_word = value.as_name().is_some_and(|symbol| words.contains(&self.names.name(symbol)));
        // A bare name that is not a value may be a word, which is checked against its option.
        let unknown = value.as_name().is_some_and(|symbol| !self.knows(symbol));
        if !is_word && !unknown {
            self.expr(value);
        }
    }

    fn body(&mut self, params: &[&'a Param], body: &'a Block) {
        self.later = FxHashMap::default();
        collect_labels(body, false, &mut self.later);
        self.later_locals = locals(body);
        // A family is visible in the whole step or `def`: a loop may refer to earlier turns.
        let mut families = FxHashMap::default();
        collect_labels(body, true, &mut families);
        families.retain(|symbol, _| self.global(*symbol).is_none());
        let known = params.iter().map(|param| (param.name.symbol, param.name.span)).chain(families);
        self.locals = Locals::default();
        self.locals.enter();
        known.for_each(|(symbol, span)| self.locals.add(true, symbol, span));
        for ty in params.iter().filter_map(|param| param.ty.as_ref()) {
            self.expr_at(ty, NameRole::ArgumentType);
        }
        self.block(body);
        self.locals = Locals::default();
    }

    /// Location of the declaration that a local name would hide; `None` if there is none.
    fn global(&self, symbol: Symbol) -> Option<SrcSpan> {
        self.globals.get(&symbol).copied().filter(|_| !self.of_module)
    }

    /// Checks a block in a scope of its own, and returns the names that it declares.
    fn scope(&mut self, body: &'a Block) -> Vec<(Symbol, SrcSpan)> {
        self.locals.enter();
        self.block(body);
        self.locals.leave()
    }

    /// Adds a local name, which must not be visible already.
    fn local(&mut self, name: Name, family: bool) {
        self.builtin(name);
        let visible = self.locals.visible.get(&name.symbol).copied();
        let global = self.global(name.symbol);
        if let Some(first) = visible.or(global) {
            // The family itself has been visible from the start, so it is no conflict.
            if !family || global.is_some() {
                self.redefined(name, first);
            }
            return;
        }
        self.locals.add(family, name.symbol, name.span);
    }

    fn block(&mut self, block: &'a Block) {
        for stmt in &block.stmts {
            self.stmt(stmt);
        }
    }

    fn stmt(&mut self, stmt: &'a Stmt) {
        match &stmt.kind {
            StmtKind::Let(Binding { name, value }) => {
                self.expr(value);
                self.local(*name, false);
            }
            StmtKind::For { variable, over, body } => {
                self.expr(over);
                self.locals.enter();
                self.local(*variable, false);
                self.block(body);
                self.locals.leave();
            }
            StmtKind::If { arms, otherwise } => {
                let mut given: Option<BTreeSet<Symbol>> = None;
                let mut places = FxHashMap::default();
                for Arm { condition, body, .. } in arms {
                    let is_name = condition.as_name().is_some();
                    self.expr_at(condition, if is_name { NameRole::Condition } else { NameRole::Any });
                    let names = self.scope(body);
                    places.extend(names.iter().copied());
                    let names: BTreeSet<Symbol> = names.into_iter().map(|(symbol, _)| symbol).collect();
                    given = Some(match given {
                        Some(given) => given.intersection(&names).copied().collect(),
                        None => names,
                    });
                }
                if let Some(otherwise) = otherwise {
                    let names = self.scope(otherwise);
                    let names: BTreeSet<Symbol> = names.into_iter().map(|(symbol, _)| symbol).collect();
                    for &symbol in given.unwrap_or_default().intersection(&names) {
                        if let Some(&place) = places.get(&symbol) {
                            self.locals.add(false, symbol, place);
                        }
                    }
                }
            }
            StmtKind::On { stream, after, body } => {
                self.expr_at(stream, NameRole::Stream);
                for edge in after {
                    if let Some(when) = &edge.when {
                        self.expr(when);
                    }
                    match edge.previous {
                        true => self.previous(&edge.label),
                        false => self.expr_at(&edge.label, NameRole::Label),
                    }
                }
                self.block(body);
            }
            StmtKind::Phase { .. } | StmtKind::Group { .. } => stmt.children(&mut |child| match child {
                Child::Expr(expr) => self.expr(expr),
                Child::Block(block) => self.block(block),
                Child::Name(_) => {}
            }),
            StmtKind::Buffer(buffer) => {
                self.buffer(buffer);
                buffer.families.iter().for_each(|family| self.local(family.name, false));
            }
            StmtKind::Call(call) => self.call(call),
        }
    }

    /// Checks a path in `prev(…)`. Its first name is a label of the step, looked up after all labels have been
    /// collected.
    fn previous(&mut self, expr: &Expr) {
        match &expr.kind {
            ExprKind::Index { base, items } => {
                self.exprs(items);
                self.previous(base);
            }
            ExprKind::Field { base, .. } => self.previous(base),
            ExprKind::Name(symbol) if !self.step_labels.contains_key(symbol) => {
                let symbol = *symbol;
                self.error(|this| {
                    let name = this.names.name(symbol).to_owned();
                    let known = this.step_labels.keys().map(|label| this.names.name(*label));
                    let help = suggest::nearest(&name, known).map_or_else(
                        || format!("`prev` takes a label of the step: give an operation that label, `{name}: nop()`"),
                        |near| format!("did you mean `{near}`?"),
                    );
                    ModelError::UnknownName { name, at: expr.span.into(), help: Some(help) }
                });
            }
            _ => {}
        }
    }

    fn call(&mut self, call: &'a Call) {
        let operation = self.callee(call);
        // Arguments of a library's function, such as `ncclFloat`, have no meaning here.
        if operation.is_none()
            && let [callee] = call.callee.as_slice()
            && !self.defs.contains_key(&callee.symbol)
            && foreign_calls::is_of_library(self.names.name(callee.symbol))
        {
            return;
        }
        for (index, arg) in call.inputs.iter().enumerate() {
            let input = operation.and_then(|operation| operation.signature().input(index));
            self.place = match input {
                Some(Input::Tensor(_) | Input::Optional(_) | Input::Tensors(_)) => NameRole::Operand,
                None if index == 0 => self.role_of_label(call),
                _ => NameRole::Any,
            };
            self.expr_of(&arg.value, matches!(input, Some(Input::Expression | Input::Expressions)));
            self.place = NameRole::Any;
        }
        for arg in &call.outputs {
            if arg.value.as_name().is_none_or(|symbol| self.names.name(symbol) != "_") {
                self.expr_at(&arg.value, NameRole::Operand);
            }
        }
        for setting in &call.options {
            let key = self.names.name(setting.key.symbol);
            let option = operation.and_then(|op| op.signature().options.iter().find(|option| option.name == key));
            match option {
                Some(OptionSpec { kind: OptionType::Word(words), .. }) => self.word_or_value(&setting.value, words),
                // An unknown option may have been meant for words.
                None => self.word_or_value(&setting.value, &[]),
                Some(OptionSpec { name, kind, .. }) => {
                    self.expr_at(&setting.value, NameRole::Option { option: name, kind });
                }
            }
        }
        if let Some(over) = &call.over {
            self.expr_at(over, self.group());
        }
        if let Some(label) = &call.label {
            self.exprs(&label.index);
            self.labels.insert(label.name.span);
            self.local(label.name, !label.index.is_empty());
        }
    }

    /// The operation that is called; `None` for a definition, a marker, or an unknown name.
    fn callee(&mut self, call: &Call) -> Option<&'static dyn Operation> {
        let operation = match call.callee.as_slice() {
            [callee] => {
                let name = self.names.name(callee.symbol);
                if self.defs.contains_key(&callee.symbol) || MARKERS.contains(&name) || name == GRADIENT {
                    return None;
                }
                ops::find(name)
            }
            // Names with dots may belong to a module that could not be linked, which has been reported.
            _ if self.has_used => return None,
            _ => None,
        };
        if operation.is_none() {
            self.error(|this| {
                let mut defs: Vec<&str> = this.defs.keys().map(|def| this.names.name(*def)).collect();
                defs.sort_unstable();
                let before_dot = call.callee.first().filter(|_| call.callee.len() == 2).map(|name| name.symbol);
                let receiver = match before_dot {
                    Some(name) if this.streams.contains(&name) => Receiver::Stream,
                    Some(name) if this.knows(name) => Receiver::Value,
                    _ => Receiver::None,
                };
                unknown_operation(call, this.names, &defs, receiver)
            });
        }
        operation
    }

    fn knows(&self, symbol: Symbol) -> bool {
        let name = self.names.name(symbol);
        self.locals.visible.contains_key(&symbol)
            || self.declared.contains_key(&symbol)
            || self.words.contains(&symbol)
            || DType::from_name(name).is_some()
            || BUILTINS.iter().any(|(builtin, _)| *builtin == name)
    }

    fn name(&mut self, symbol: Symbol, at: SrcSpan) {
        if self.knows(symbol) {
            return;
        }
        self.error(|this| this.unknown(symbol, at));
    }

    /// Returns the role of a name that must refer to a group of ranks.
    fn group(&self) -> NameRole {
        NameRole::Group { mesh: self.has_mesh }
    }

    fn exprs(&mut self, exprs: &[Expr]) {
        exprs.iter().for_each(|expr| self.expr(expr));
    }

    fn expr(&mut self, expr: &Expr) {
        self.expr_of(expr, false);
    }

    /// Checks an expression whose name must refer to one kind of thing. Expressions inside its brackets can be
    /// anything.
    fn expr_at(&mut self, expr: &Expr, place: NameRole) {
        let outer = std::mem::replace(&mut self.place, place);
        self.expr(expr);
        self.place = outer;
    }

    fn expr_of(&mut self, expr: &Expr, elementwise: bool) {
        match &expr.kind {
            ExprKind::Name(symbol) => self.name(*symbol, expr.span),
            ExprKind::Call { callee, args } => {
                let name = self.names.name(callee.symbol);
                let known = FUNCTIONS.contains(&name) || (elementwise && elementwise_functions().any(|f| f == name));
                if !known {
                    self.error(|this| ModelError::UnknownFunction {
                        name: name.to_owned(),
                        of: "",
                        at: callee.span.into(),
                        help: {
                            let is_def = this.defs.contains_key(&callee.symbol);
                            Some(unknown_function_help(name, is_def, args, this.names))
                        },
                    });
                }
                args.iter().for_each(|arg| self.expr_of(arg, elementwise));
            }
            ExprKind::Index { base, items } => {
                let of_family = if self.place == NameRole::Label { NameRole::LabelFamily } else { self.place };
                self.expr_at(base, of_family);
                let inner = if self.place == NameRole::ArgumentType { NameRole::ArgumentSize } else { NameRole::Any };
                let outer = std::mem::replace(&mut self.place, inner);
                self.exprs(items);
                self.place = outer;
            }
            ExprKind::Field { base, name } => {
                let of_group = super::ranks::mesh::MEMBERS.contains(&self.names.name(name.symbol));
                self.expr_at(base, if of_group { self.group() } else { self.place });
            }
            // Only the values of a conditional expression must refer to this kind of thing.
            ExprKind::If { arms, otherwise } if self.place != NameRole::Any => {
                for (condition, value) in arms {
                    self.expr_at(condition, NameRole::Any);
                    self.expr_of(value, elementwise);
                }
                self.expr_of(otherwise, elementwise);
            }
            kind => {
                let elementwise = elementwise && !matches!(kind, ExprKind::Range { .. } | ExprKind::List(_));
                expr.children(&mut |child| {
                    if let Child::Expr(part) = child {
                        self.expr_of(part, elementwise);
                    }
                });
            }
        }
    }
}
