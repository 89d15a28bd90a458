//! Resolves the name in front of parentheses.

use crate::base::Symbol;
use crate::ops;
use crate::syntax::ast::Decl;

use crate::model::analyzer::Analyzer;

/// Statements that look like operations and launch nothing.
pub(in crate::model) const MARKERS: [&str; 4] = ["signal", "wait", "sync", "host_sync"];

/// Name of the call that computes the gradients of an operation or a call.
pub(in crate::model) const GRADIENT: &str = "grad";

/// The thing that a name in front of parentheses refers to.
#[derive(Clone, Copy, Debug)]
pub(in crate::model) enum Callee<'a> {
    Def(&'a Decl),
    /// A declared kernel.
    Kernel,
    Marker(&'static str),
    Gradient,
    /// Index in the catalogue of operations.
    Operation(usize),
    Unknown,
}

impl<'a> Analyzer<'a> {
    /// Resolves a name. Cached, since a loop calls it in every turn.
    pub(in crate::model) fn callee(&mut self, symbol: Symbol) -> Callee<'a> {
        if let Some(&known) = self.expansion.callees.get(&symbol) {
            return known;
        }
        let name = self.names.name(symbol);
        let marker = MARKERS.into_iter().find(|marker| *marker == name);
        let operation = ops::CATALOGUE.iter().position(|operation| operation.name() == name);
        let callee = match (self.defs.get(&symbol), marker, operation) {
            (Some(decl), ..) => Callee::Def(decl),
            _ if self.kernels.contains_key(&symbol) => Callee::Kernel,
            (_, Some(marker), _) => Callee::Marker(marker),
            _ if name == GRADIENT => Callee::Gradient,
            (_, _, Some(place)) => Callee::Operation(place),
            _ => Callee::Unknown,
        };
        self.expansion.callees.insert(symbol, callee);
        callee
    }
}
