//! An observed iteration as text: each operation, as streams and as a graph side by side.

use std::fmt::Write as _;

use crate::exec::Trace;
use crate::model::Program;
use crate::schedule::Schedule;

use super::operation;

/// The traces of the same iteration as text. `device` describes the device, including whether it was simulated.
pub fn trace(program: &Program, schedule: &Schedule, device: &str, streams: &Trace, graph: &Trace) -> String {
    let mut text = format!(
        "{device}: when each operation started and ended, in ns\n{:<28} {:<10} {:>17} {:>17}\n",
        "", "", "as streams", "as a graph"
    );
    let step = &program.cycle[streams.step];
    // The spans of both traces are in the order of launches.
    for (span, as_graph) in streams.spans.iter().zip(&graph.spans) {
        let _ = writeln!(
            text,
            "{:<28} {:<10} {:>8} {:>8} {:>8} {:>8}",
            operation(program, step, span.op),
            schedule.lanes[span.lane.index()].name,
            span.start.0,
            span.end.0,
            as_graph.start.0,
            as_graph.end.0
        );
    }
    let _ = writeln!(text, "{:<39} {:>17} {:>17}", "all", streams.time.0, graph.time.0);
    text
}
