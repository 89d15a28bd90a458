//! What the name in front of parentheses stands for.

use crate::base::{SrcSpan, Symbol, suggest};
use crate::ops;
use crate::syntax::ast::Decl;

use super::analyzer::Analyzer;
use super::error::ModelError;

/// Statements that look like operations and launch nothing.
pub(super) const MARKERS: [&str; 3] = ["signal", "wait", "sync"];

/// Operations of the language that this version does not have.
const LATER: [&str; 22] = [
    "adamw",
    "argmax",
    "attention",
    "concat",
    "conv",
    "cross_entropy",
    "cumsum",
    "dropout",
    "embedding",
    "grad",
    "host_sync",
    "layer_norm",
    "max",
    "mean",
    "min",
    "pad",
    "pool",
    "rms_norm",
    "rope",
    "sgd",
    "sum",
    "triad",
];

/// What other tools call an operation, and what it is here.
const ELSEWHERE: [(&str, &str); 9] = [
    ("relu", "`map(max(x, 0))`"),
    ("gelu", "`map(gelu(x))`"),
    ("add", "`map(x + y)`"),
    ("mul", "`map(x * y)`"),
    ("linear", "`gemm(x, w)`"),
    ("matmul", "`gemm(a, b)`"),
    ("mm", "`gemm(a, b)`"),
    ("bmm", "`gemm(a, b)`"),
    ("sleep", "`spin(10us)`"),
];

/// Definitions of a file that are listed beside the operations.
const MAX_SHOWN: usize = 20;

/// What is called.
#[derive(Clone, Copy, Debug)]
pub(super) enum Callee<'a> {
    Def(&'a Decl),
    Marker(&'static str),
    /// A place in the catalogue.
    Operation(usize),
    Unknown,
}

impl<'a> Analyzer<'a> {
    /// What a name calls: looked up once, since a loop calls it in every turn.
    pub(super) fn callee(&mut self, symbol: Symbol) -> Callee<'a> {
        if let Some(&known) = self.expansion.callees.get(&symbol) {
            return known;
        }
        let name = self.names.name(symbol);
        let marker = MARKERS.into_iter().find(|marker| *marker == name);
        let operation = ops::CATALOGUE.iter().position(|operation| operation.name() == name);
        let callee = match (self.defs.get(&symbol), marker, operation) {
            (Some(decl), ..) => Callee::Def(decl),
            (_, Some(marker), _) => Callee::Marker(marker),
            (_, _, Some(place)) => Callee::Operation(place),
            _ => Callee::Unknown,
        };
        self.expansion.callees.insert(symbol, callee);
        callee
    }

    /// The message for a callee that does not exist.
    pub(super) fn unknown_operation(name: &str, defs: &[&str], at: SrcSpan) -> ModelError {
        let instead = match ELSEWHERE.iter().find(|(other, _)| *other == name) {
            Some((_, here)) => Some(format!("here that is {here}")),
            None => LATER.contains(&name).then(|| format!("`{name}` comes with a later version")),
        };
        let known = ops::CATALOGUE.iter().map(|operation| operation.name()).chain(MARKERS);
        // A list of everything helps only where it can be read.
        let shown = if defs.len() <= MAX_SHOWN { defs } else { &[] };
        let all: Vec<&str> = known.clone().chain(shown.iter().copied()).collect();
        let known = known.chain(defs.iter().copied());
        let help = instead
            .or_else(|| suggest::nearest(name, known).map(|near| format!("did you mean `{near}`?")))
            .or_else(|| Some(format!("there are {}", suggest::listed(&all))));
        ModelError::UnknownOperation { name: name.to_owned(), at: at.into(), help }
    }
}
