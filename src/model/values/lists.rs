//! Lists of plain values: their limits, and elementwise operators.

use std::sync::Arc;

use crate::base::SrcSpan;
use crate::syntax::ast::Expr;

use super::value::Value;
use crate::model::analyzer::Analyzer;
use crate::model::error::ModelError;
use crate::model::limits::{LIST, LIST_DEPTH, MEMBERS};

/// Lists up to this length do not count against the limit.
const SHORT_LIST: usize = 16;

const FOR_A_FEW: &str = "lists hold few values: use a loop or a family";

impl Analyzer<'_> {
    /// Evaluates `[a, b, …]`.
    pub(in crate::model) fn list(&mut self, items: &[Expr], span: SrcSpan) -> Value {
        let list = Value::List(Arc::new(items.iter().map(|item| self.eval(item)).collect()));
        let leaves = list.leaves(LIST + 1);
        let (what, value) = match (leaves, list.depth()) {
            (leaves, _) if leaves > LIST => {
                ("the number of values in this list and the lists in it", format!("more than {LIST}"))
            }
            (_, depth) if depth > LIST_DEPTH => {
                ("the number of lists inside one another", format!("more than {LIST_DEPTH}"))
            }
            // Short lists are free, since a loop may make one in every turn.
            _ => match self.room_for_members(leaves.saturating_sub(SHORT_LIST), span) {
                true => return list,
                false => return Value::Unknown,
            },
        };
        self.fail_value(ModelError::BadSize { what: what.to_owned(), value, at: span.into(), help: FOR_A_FEW })
    }

    /// Returns false and reports an error if there are too many list values.
    pub(in crate::model) fn room_for_members(&mut self, members: usize, span: SrcSpan) -> bool {
        self.members = self.members.saturating_add(members);
        let room = self.members <= MEMBERS;
        if !room {
            self.error(ModelError::BadSize {
                what: "the number of values in all lists that the file works out".to_owned(),
                value: format!("more than {MEMBERS}"),
                at: span.into(),
                help: FOR_A_FEW,
            });
        }
        room
    }

    /// Applies an operator to a list and a value, or to two lists of the same length.
    pub(super) fn member_by_member(
        &mut self,
        op: &'static str,
        left: &Value,
        right: &Value,
        spans: (SrcSpan, SrcSpan),
        mut each: impl FnMut(&mut Self, &Value, &Value) -> Value,
    ) -> Value {
        let members = match (left, right) {
            (Value::List(a), Value::List(b)) => a.len().max(b.len()),
            (Value::List(items), _) | (_, Value::List(items)) => items.len(),
            _ => 0,
        };
        if !self.room_for_members(members, spans.0.to(spans.1)) {
            return Value::Unknown;
        }
        let results = match (left, right) {
            (Value::List(a), Value::List(b)) if a.len() == b.len() => {
                a.iter().zip(b.iter()).map(|(a, b)| each(self, a, b)).collect()
            }
            (Value::List(_), Value::List(_)) => {
                let help = "lists are combined member by member: both have to be as long".to_owned();
                self.values_differ(op, help, (left, right), spans);
                return Value::Unknown;
            }
            (Value::List(items), other) => items.iter().map(|item| each(self, item, other)).collect(),
            (other, Value::List(items)) => items.iter().map(|item| each(self, other, item)).collect(),
            _ => return Value::Unknown,
        };
        Value::List(Arc::new(results))
    }
}
