//! The graph of dependencies as text.

use std::fmt::Write as _;

use crate::model::Program;
use crate::plan::{Edge, Plan, Reason};

use super::{iteration, operation};

/// The plan as text: each operation, and below it the operations that it waits for.
pub fn plan(program: &Program, plan: &Plan) -> String {
    let mut text = cycle(program, plan, |index| iteration(program, index));
    for (which, (block, plan)) in program.around.as_ref().zip(plan.around.as_ref()).iter() {
        text += "\n";
        text += &cycle(block, plan, |_| format!("{}\n", which.name()));
    }
    text
}

fn cycle(program: &Program, plan: &Plan, title: impl Fn(usize) -> String) -> String {
    let mut text = String::new();
    for (index, (step, graph)) in program.cycle.iter().zip(&plan.steps).enumerate() {
        text.push_str(if index > 0 { "\n" } else { "" });
        text += &title(index);
        let _ = writeln!(text, "{} nodes, {} edges, {} across", graph.operations(), graph.edges(), graph.across.len());
        for op in step.ids() {
            let _ = writeln!(text, "{}", operation(program, step, op));
            for Edge { from, distance, reason: why, .. } in graph.waits(op) {
                let iteration = if distance > 0 { format!(" of iteration -{distance}") } else { String::new() };
                let _ = writeln!(text, "  #{}{iteration}: {}", from.0, reason(program, why));
            }
        }
    }
    text
}

fn reason(program: &Program, reason: Reason) -> String {
    match reason {
        Reason::Stream => "stream".to_owned(),
        Reason::After { .. } => "after".to_owned(),
        Reason::Sync => "sync".to_owned(),
        Reason::Data { hazard, view, source } => {
            format!("{hazard:?}, {} here, {} there", program.view_text(view), program.view_text(source))
        }
    }
}
