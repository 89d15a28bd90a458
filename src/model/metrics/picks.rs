//! Statistics and slots of metrics: `.slot[0].p95`.

use crate::base::{SrcSpan, suggest};
use crate::syntax::ast::*;
use crate::syntax::written;

use super::statistic::Statistic;
use crate::model::analyzer::Analyzer;
use crate::model::error::ModelError;

/// A slot, a statistic, or both.
#[derive(Clone, Copy, Default)]
pub(super) struct Pick {
    /// The slot with its location; `None` if none is given.
    pub(in crate::model) slot: Option<(i64, SrcSpan)>,
    pub(in crate::model) statistic: Option<Statistic>,
}

/// The member that selects a slot.
const SLOT: &str = "slot";

impl Analyzer<'_> {
    /// Returns the statistic with a name; `None` if there is none, which is reported.
    pub(in crate::model) fn statistic(&mut self, of: &Expr, name: Name) -> Option<Statistic> {
        let text = self.names.name(name.symbol).to_owned();
        if let Some(statistic) = Statistic::from_name(&text) {
            return Some(statistic);
        }
        let help = match text.as_str() {
            "median" => Some("write `p50`: half of the samples lie below it".to_owned()),
            "avg" | "average" => Some("write `mean`".to_owned()),
            "stddev" | "stdev" | "sigma" => Some("write `std`".to_owned()),
            SLOT => Some(format!("select one: `{}.slot[0]`", written(of, &self.names))),
            _ if text.strip_prefix('p').is_some_and(|number| number.parse::<u8>().is_ok()) => {
                Some("the percentiles are `p5`, `p50`, `p95` and `p99`".to_owned())
            }
            _ => suggest::did_you_mean(&text, Statistic::NAMES),
        };
        let name_of = self.text_of(of);
        self.fail(ModelError::UnknownMember { name: name_of, member: text, at: name.span.into(), help })
    }

    /// True for an expression `… .slot`.
    pub(super) fn names_slot(&self, expr: &Expr) -> bool {
        matches!(&expr.kind, ExprKind::Field { name, .. } if self.names.name(name.symbol) == SLOT)
    }

    /// Splits an expression before `.slot[…]` and evaluates the slot. An expression without a slot is returned whole, with an inner
    /// `None`. The outer `None` follows an error, which has been reported.
    pub(super) fn split_slot<'e>(&mut self, expr: &'e Expr) -> Option<(&'e Expr, Option<(i64, SrcSpan)>)> {
        let ExprKind::Index { base, items } = &expr.kind else { return Some((expr, None)) };
        let ExprKind::Field { base: of, .. } = &base.kind else { return Some((expr, None)) };
        if !self.names_slot(base) {
            return Some((expr, None));
        }
        let [item] = items.as_slice() else {
            let help = Some(format!("a slot has one number: `{}.slot[0]`", written(of, &self.names)));
            let name = written(expr, &self.names);
            return self.fail(ModelError::UnknownFigure { name, at: expr.span.into(), help });
        };
        Some((of, Some((self.eval_whole(item)?, item.span))))
    }

    /// Returns the selected slot, which must exist; an inner `None` if no slot is selected. The outer `None` follows an error.
    pub(super) fn slot_of(&mut self, name: &str, has_slots: bool, pick: Pick) -> Option<Option<usize>> {
        let Some((slot, at)) = pick.slot else { return Some(None) };
        if !has_slots {
            return self.fail(ModelError::NoSlots { name: name.to_owned(), at: at.into() });
        }
        // The number of slots is unknown if the step has errors.
        let slots = self.slots?;
        if (0..slots as i64).contains(&slot) {
            return Some(Some(slot as usize));
        }
        let (known_slots, help) = match slots {
            1 => (
                "all iterations are alike, so there is only slot 0".to_owned(),
                "iterations differ where the step uses `iteration`, as in `x[iteration % 2]`".to_owned(),
            ),
            _ => (
                format!("the step repeats after {slots} iterations: slots 0 to {}", slots - 1),
                format!("slots are counted from 0: the last is `{name}.slot[{}]`", slots - 1),
            ),
        };
        self.fail(ModelError::SlotOutOfRange { name: name.to_owned(), slot, slots: known_slots, help, at: at.into() })
    }
}
