//! The iteration in which a mistake was found, and the drawn values that it used there.

use crate::base::{SrcSpan, Symbol};
use crate::syntax::ast::{Binding, Expr, ExprKind, StmtKind};
use crate::syntax::{walk, written};

use super::analyzer::Analyzer;
use super::mistakes::Circumstances;
use super::values::value::Value;

/// Maximum number of drawn values that a message shows.
const MAX_DRAWN: usize = 4;

/// Maximum number of list members that a message shows as a drawn value.
const MAX_MEMBERS: usize = 8;

impl<'a> Analyzer<'a> {
    /// The iteration that is being expanded, with the drawn values in the expressions of `at` and in the `let`s that
    /// these use. `None` outside of the step, and if neither matters.
    pub(super) fn circumstances(&mut self, at: SrcSpan) -> Option<Circumstances> {
        let iteration = self.iteration?;
        let mut drawn: Vec<(String, String)> = Vec::new();
        for access in self.drawn_accesses(at) {
            let text = written(access, &self.names);
            // The evaluation may fail where the loop variables of a `let` are unknown.
            let bad_names = self.bad_names.clone();
            self.mistakes.is_muted = true;
            let value = self.eval(access);
            self.mistakes.is_muted = false;
            self.bad_names = bad_names;
            if !matches!(value, Value::Unknown)
                && value.leaves(MAX_MEMBERS + 1) <= MAX_MEMBERS
                && drawn.iter().all(|(known, _)| *known != text)
            {
                drawn.push((text, value.text(&self.names)));
            }
        }
        drawn.truncate(MAX_DRAWN);
        // An error that depends on no iteration is found in the first one, which then is no circumstance.
        (iteration > 0 || !drawn.is_empty()).then_some(Circumstances { iteration, drawn })
    }

    /// Adds the drawn values in the arguments of the call at `at` to the errors from index `first` on that have none yet.
    pub(super) fn explain_arguments(&mut self, first: usize, at: SrcSpan) {
        if self.mistakes.len() > first
            && let Some(circumstances) = self.circumstances(at)
        {
            self.mistakes.called_in(first, &circumstances);
        }
    }

    /// The draws, or members of draws, in the expressions of `at` and in the `let`s that these use.
    fn drawn_accesses(&self, at: SrcSpan) -> Vec<&'a Expr> {
        let is_draw = |symbol: Symbol| matches!(self.scopes.get(symbol), Some(Value::Draw(_)));
        let mut found: Vec<&'a Expr> = Vec::new();
        let mut searched: Vec<SrcSpan> = vec![at];
        let mut next = 0;
        while let Some(&within) = searched.get(next) {
            next += 1;
            let mut names: Vec<(Symbol, SrcSpan)> = Vec::new();
            walk::exprs(self.ast, &mut |expr| match &expr.kind {
                _ if expr.span.start < within.start || expr.span.end() > within.end() => {}
                ExprKind::Index { base, .. } if base.as_name().is_some_and(is_draw) => found.push(expr),
                ExprKind::Name(symbol) if !is_draw(*symbol) => names.push((*symbol, expr.span)),
                // An index was found before the draw in it.
                ExprKind::Name(_) if found.last().is_none_or(|last| last.span.start != expr.span.start) => {
                    found.push(expr);
                }
                _ => {}
            });
            for (symbol, span) in names {
                let binding = self.binding(symbol, span).filter(|binding| !searched.contains(binding));
                searched.extend(binding);
            }
        }
        found
    }

    /// Location of the value of the last `let` of a block that defines a name before its use at `used`; `None` if no `let`
    /// precedes it.
    fn binding(&self, symbol: Symbol, used: SrcSpan) -> Option<SrcSpan> {
        let mut last = None;
        walk::stmts(self.ast, &mut |stmt| {
            if let StmtKind::Let(Binding { name, value }) = &stmt.kind
                && name.symbol == symbol
                && value.span.end() <= used.start
            {
                last = Some(value.span);
            }
        });
        last
    }
}
