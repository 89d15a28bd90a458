//! The errors for a name that is not known where it is used, and for one that is declared twice.

use crate::base::{DType, SrcSpan, Symbol, suggest};
use crate::model::error::ModelError;
use crate::model::names::callee::GRADIENT;
use crate::model::names::declared::{is_of_module, stream_name};
use crate::model::names::unknown::{self, NameRole};
use crate::syntax::ast::{Call, Decl, Name, StmtKind};
use crate::syntax::walk;

use super::{BUILTINS, Checker};

impl Checker<'_> {
    pub(super) fn unknown(&self, symbol: Symbol, at: SrcSpan) -> ModelError {
        let name = self.names.name(symbol).to_owned();
        if let (None, Some((_, own))) = (self.globals.get(&symbol), name.split_once('.')) {
            let help = format!("a module can use only its own `let` and `def`: make `{own}` an argument of the `def`");
            return ModelError::UnknownName { name: own.to_owned(), at: at.into(), help: Some(help) };
        }
        if let Some(&declared) = self.globals.get(&symbol) {
            if declared.start < at.start {
                let help = "a name is known below its declaration: its value cannot use the name itself";
                return ModelError::UnknownName { name, at: at.into(), help: Some(help.to_owned()) };
            }
            let help = "move the declaration above its first use".to_owned();
            return ModelError::DeclaredBelow { name, at: at.into(), declared: declared.into(), help };
        }
        let is_signature = matches!(self.place, NameRole::ArgumentType | NameRole::ArgumentSize);
        let local = self.later_locals.get(&symbol).filter(|(declared, _)| declared.start > at.start && !is_signature);
        if let Some(&(declared, scope)) = local {
            let help = if (scope.start..scope.end()).contains(&at.start) {
                "move the declaration above its first use".to_owned()
            } else {
                format!(
                    "`{name}` is known only in the block that declares it: declare it in this block too, or above both"
                )
            };
            return ModelError::DeclaredBelow { name, at: at.into(), declared: declared.into(), help };
        }
        if let Some(&label) = self.later.get(&symbol) {
            if label.start > at.start {
                let help = match self.place {
                    NameRole::Label | NameRole::LabelFamily => format!(
                        "an operation waits only for operations above it: move `{name}` up, or write `after prev({name})` \
                         to wait for the one of the iteration before"
                    ),
                    NameRole::Any | NameRole::Operand | NameRole::Differentiated => {
                        format!("an operation reads only results of operations above it: move `{name}` up")
                    }
                    _ => format!("`{name}` is a label: a label names an operation, and is no value"),
                };
                return ModelError::DeclaredBelow { name, at: at.into(), declared: label.into(), help };
            }
            let help = format!(
                "the label is known in the loop, branch or `def` around it alone: `{name}[i]: …` makes a family, known \
                 in the rest of the step or `def`"
            );
            return ModelError::UnknownName { name, at: at.into(), help: Some(help) };
        }
        if let Some(definition) = self.inner_labels.get(&symbol).filter(|_| !self.locals.scopes.is_empty()) {
            let of = self.names.name(*definition);
            let help = format!(
                "`{name}` is a label inside of `{of}`: give the call a label, `c: {of}(…)`, and write `c.{name}`"
            );
            return ModelError::UnknownName { name, at: at.into(), help: Some(help) };
        }
        if self.setup_labels.contains_key(&symbol) {
            let help = match self.place {
                NameRole::Label => format!("leave `after {name}` out"),
                _ => "let it write a declared buffer, and read that".to_owned(),
            };
            let help = format!("`{name}` is a label of `setup`, which ends before the first iteration begins: {help}");
            return ModelError::UnknownName { name, at: at.into(), help: Some(help) };
        }
        if self.is_of_a_loop(symbol) {
            let help = format!("`{name}` is the variable of a `for`, known only between its braces: move this there");
            return ModelError::UnknownName { name, at: at.into(), help: Some(help) };
        }
        if self.defs.contains_key(&symbol) {
            let help = format!("`{name}` is a `def`: label a call of it, `r: {name}(…)`, and write `r`");
            return ModelError::UnknownName { name, at: at.into(), help: Some(help) };
        }
        let symbols = self.locals.visible.keys().chain(self.declared.keys()).chain(self.words);
        let known = BUILTINS.iter().map(|(name, _)| *name).chain(DType::ALL.iter().map(|dtype| dtype.name()));
        let known = known.chain(["true", "false"]).chain(symbols.map(|symbol| self.names.name(*symbol)));
        let streams: Vec<&str> =
            self.ast.decls.iter().filter_map(stream_name).map(|symbol| self.names.name(symbol)).collect();
        let mut help = unknown::help(&name, self.place, known);
        if self.place == NameRole::Stream
            && help.starts_with("declare")
            && let Some(known) = suggest::did_you_mean(&name, streams.iter().copied())
        {
            help += &format!("; {known}");
        }
        ModelError::UnknownName { name, at: at.into(), help: Some(help) }
    }

    /// Reports a name that has a meaning already, which `first` declares.
    pub(super) fn redefined(&mut self, name: Name, first: SrcSpan) {
        self.error(|this| {
            let text = this.names.name(name.symbol).to_owned();
            let of_modules = [name.span, first].map(|at| this.modules.contains(&at));
            let help = if this.buffers.contains(&first) && this.labels.contains(&name.span) {
                format!(
                    "a label names a new result: to write to the buffer, put it after an arrow, `map(x + 1 -> {text})`"
                )
            } else if of_modules == [true; 2] {
                "remove one of them, or rename a file: a module has the name of its file".to_owned()
            } else if of_modules.contains(&true) {
                "a module has the name of its file: give the other meaning another name".to_owned()
            } else {
                "give one of them another name; only the arguments of a `def` may hide an outer name".to_owned()
            };
            ModelError::Redefined { name: text, help, at: name.span.into(), first: first.into() }
        });
    }

    /// True if a loop of the file, and not of a module, has a variable of that name.
    fn is_of_a_loop(&self, symbol: Symbol) -> bool {
        let mut found = false;
        for body in self.ast.decls.iter().filter(|decl| !is_of_module(self.ast, decl)).filter_map(Decl::body) {
            walk::block(body, &mut |stmt| {
                found |= matches!(&stmt.kind, StmtKind::For { variable, .. } if variable.symbol == symbol);
            });
        }
        found
    }

    /// The role of the first input, which may be a label.
    pub(super) fn role_of_label(&self, call: &Call) -> NameRole {
        match call.callee.as_slice() {
            [callee] if self.names.name(callee.symbol) == "wait" => NameRole::Label,
            [callee] if self.names.name(callee.symbol) == GRADIENT => NameRole::Differentiated,
            _ => NameRole::Any,
        }
    }
}
