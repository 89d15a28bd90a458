//! Interned names.

use indexmap::IndexSet;
use rustc_hash::FxBuildHasher;

/// An interned name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Symbol(pub u32);

/// Gives each distinct name a number, in the order of first appearance.
#[derive(Clone, Debug, Default)]
pub struct Interner {
    names: IndexSet<Box<str>, FxBuildHasher>,
}

impl Interner {
    /// Number of a name, which is added if it is new.
    pub fn intern(&mut self, name: &str) -> Symbol {
        if let Some(index) = self.names.get_index_of(name) {
            return Symbol(index as u32);
        }
        Symbol(self.names.insert_full(name.into()).0 as u32)
    }

    /// Number of a name; `None` if it is not known yet.
    pub fn get(&self, name: &str) -> Option<Symbol> {
        self.names.get_index_of(name).map(|index| Symbol(index as u32))
    }

    /// The name of a number.
    pub fn name(&self, symbol: Symbol) -> &str {
        self.names.get_index(symbol.0 as usize).expect("a symbol is only made by the interner that resolves it")
    }

    pub fn len(&self) -> usize {
        self.names.len()
    }

    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }
}
