//! Labels for the calls of definitions that contain operations of an error.

use miette::LabeledSpan;

use crate::base::{OpId, SrcSpan, counted};
use crate::model::{Program, Step, TurnOrigin};

/// Maximum number of calls shown for one operation: the innermost ones and the outermost one.
const MAX_CALLS: usize = 3;

/// Labels for the calls that contain the operations, the innermost first, each call once; empty if no definition
/// contains an operation, or if the program keeps no turns.
pub fn call_labels<'a>(ops: impl IntoIterator<Item = (&'a Program, &'a Step, OpId)>) -> Vec<LabeledSpan> {
    let mut shown: Vec<(SrcSpan, String)> = Vec::new();
    for (program, step, op) in ops {
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
            if (place + 1 >= MAX_CALLS && !is_last) || shown.iter().any(|&(other, _)| other == span) {
                continue;
            }
            let between =
                if is_last && hidden > 0 { format!("; {} in between", counted(hidden, "call")) } else { String::new() };
            shown.push((span, format!("called here{between}")));
        }
    }
    shown.into_iter().map(|(span, text)| LabeledSpan::new_with_span(Some(text), span)).collect()
}
