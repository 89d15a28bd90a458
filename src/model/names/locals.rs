//! The names that are visible inside a step or a `def`.

use rustc_hash::FxHashMap;

use crate::base::{SrcSpan, Symbol};

/// The names of a step or a `def`. No two visible names are equal.
#[derive(Default)]
pub(in crate::model) struct Locals {
    /// Open scopes, the innermost last.
    pub scopes: Vec<Vec<(Symbol, SrcSpan)>>,
    pub visible: FxHashMap<Symbol, SrcSpan>,
}

impl Locals {
    /// Opens a scope.
    pub fn enter(&mut self) {
        self.scopes.push(Vec::new());
    }

    /// Closes the innermost scope, and returns its names with their locations.
    pub fn leave(&mut self) -> Vec<(Symbol, SrcSpan)> {
        let names = self.scopes.pop().expect("a scope was entered");
        names.iter().for_each(|(symbol, _)| {
            self.visible.remove(symbol);
        });
        names
    }

    /// Adds a name to the innermost scope, or to the outermost one.
    pub fn add(&mut self, outermost: bool, symbol: Symbol, span: SrcSpan) {
        let scope = if outermost { self.scopes.first_mut() } else { self.scopes.last_mut() };
        scope.expect("inside a body").push((symbol, span));
        self.visible.insert(symbol, span);
    }
}
