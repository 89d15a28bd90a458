//! Checks names in declarations of kernels and signatures.

use rustc_hash::FxHashMap;

use crate::base::{SrcSpan, Symbol};
use crate::syntax::ast::*;

use super::{Checker, Locals, NameRole};

impl<'a> Checker<'a> {
    /// Checks the names of a definition's inputs and outputs.
    pub(super) fn signature(&mut self, signature: &'a Signature) {
        for list in [&signature.inputs, &signature.outputs] {
            let mut firsts: FxHashMap<Symbol, SrcSpan> = FxHashMap::default();
            for param in list {
                self.builtin(param.name);
                match firsts.get(&param.name.symbol).copied() {
                    Some(first) => self.redefined(param.name, first),
                    None => _ = firsts.insert(param.name.symbol, param.name.span),
                }
            }
        }
    }

    /// Checks the types, fields and reference of a kernel. Its arguments and sizes are visible in them.
    pub(super) fn kernel(&mut self, signature: &'a Signature, fields: &'a [Setting], references: &'a [Call]) {
        let params = signature.inputs.iter().chain(&signature.outputs);
        self.locals = Locals::default();
        self.locals.enter();
        let updated = |name: Name| signature.inputs.iter().any(|input| input.name.symbol == name.symbol);
        let outputs = signature.outputs.iter().map(|param| param.name).filter(|name| !updated(*name));
        let inputs = signature.inputs.iter().map(|param| param.name);
        for name in inputs.chain(outputs).chain(signature.sizes()) {
            self.builtin(name);
            match self.locals.visible.get(&name.symbol).copied() {
                Some(first) => self.redefined(name, first),
                None => self.locals.add(true, name.symbol, name.span),
            }
        }
        // A list is no type, which the analysis reports; its sizes are unknown.
        let types = params.filter_map(|param| param.ty.as_ref()).filter(|ty| !matches!(ty.kind, ExprKind::List(_)));
        types.for_each(|ty| self.expr(ty));
        // The analysis reports an entry without quotes.
        let fields = fields.iter().filter(|field| self.names.name(field.key.symbol) != "entry");
        fields
            .map(|field| &field.value)
            .collect::<Vec<_>>()
            .into_iter()
            .for_each(|value| self.expr_at(value, NameRole::ArgumentSize));
        references.iter().for_each(|reference| self.call(reference));
        self.locals = Locals::default();
    }
}
