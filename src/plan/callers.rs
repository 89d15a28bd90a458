//! Labels for the calls of definitions that contain operations of an error.

use std::collections::BTreeSet;

use indexmap::IndexMap;
use miette::LabeledSpan;

use crate::base::{OpId, SrcSpan, counted};
use crate::model::{Program, Step, TurnOrigin};

/// Maximum number of calls shown for one operation: the innermost ones and the outermost one.
const MAX_CALLS: usize = 3;

/// Labels for the calls that contain the operations of these ranks, the innermost first, each call once; empty if no definition
/// contains an operation, or if the program keeps no turns. A call that not all of the ranks make names those that make it.
pub fn call_labels<'a>(ops: impl IntoIterator<Item = (u32, &'a Program, &'a Step, OpId)>) -> Vec<LabeledSpan> {
    let mut shown: IndexMap<SrcSpan, (BTreeSet<u32>, String)> = IndexMap::new();
    let mut all: BTreeSet<u32> = BTreeSet::new();
    for (rank, program, step, op) in ops {
        all.insert(rank);
        let turns = program.turns.enclosing(step.turn(op)).into_iter().rev();
        let calls: Vec<SrcSpan> = turns
            .filter_map(|turn| match program.turns.get(turn).origin {
                TurnOrigin::Call { span, .. } => Some(span),
                TurnOrigin::Loop { .. } => None,
            })
            .collect();
        let hidden = calls.len().saturating_sub(MAX_CALLS);
        for (place, &span) in calls.iter().enumerate() {
            let is_last = place + 1 == calls.len();
            if place + 1 >= MAX_CALLS && !is_last {
                // Another rank may show this call.
                if let Some((ranks, _)) = shown.get_mut(&span) {
                    ranks.insert(rank);
                }
                continue;
            }
            let between =
                if is_last && hidden > 0 { format!("; {} in between", counted(hidden, "call")) } else { String::new() };
            shown.entry(span).or_insert_with(|| (BTreeSet::new(), between)).0.insert(rank);
        }
    }
    let label = |(span, (ranks, between)): (SrcSpan, (BTreeSet<u32>, String))| {
        let named: Vec<String> = ranks.iter().map(|rank| format!("rank {rank}")).collect();
        let by = if ranks == all { String::new() } else { format!(" by {}", named.join(" and ")) };
        LabeledSpan::new_with_span(Some(format!("called here{by}{between}")), span)
    };
    shown.into_iter().map(label).collect()
}
