//! The document for Graphviz: operations in boxes by stream, edges with their reasons.

use std::io::{self, Write};

use crate::base::visible;

use super::{Iteration, PlanDocument, PlannedDependency, PlannedOperation, Reason, SlotPlan, drawn_name};

/// The colour of the critical path.
const CRITICAL: &str = "#c0392b";

/// Writes the plan as a DOT digraph.
pub fn dot(document: &PlanDocument, out: &mut impl Write) -> io::Result<()> {
    let title = format!("{}\ntimes are modelled on an {}", document.title(), document.modelled_on);
    writeln!(out, "digraph plan {{")?;
    writeln!(out, "  graph [label={}, labelloc=t, fontname=\"Helvetica\", newrank=true];", quoted(&title))?;
    writeln!(out, "  node [shape=box, style=rounded, fontname=\"Helvetica\"];")?;
    writeln!(out, "  edge [fontname=\"Helvetica\", fontsize=10];")?;
    let several = document.slots().len() > 1;
    for (slot, iteration) in document.parts() {
        if several {
            writeln!(out, "  subgraph cluster_{} {{", drawn_name(slot))?;
            writeln!(out, "  label={};", quoted(&document.heading(slot)))?;
        }
        nodes(document, (slot, iteration), out)?;
        if several {
            writeln!(out, "  }}")?;
        }
    }
    for (slot, iteration) in document.parts() {
        for edge in &iteration.edges {
            let from = document.node(document.earlier(slot, edge.distance), edge.from);
            let to = document.node(slot, edge.to);
            writeln!(out, "  {from} -> {to} [{}];", attributes(edge, iteration.on_path(edge)))?;
        }
    }
    writeln!(out, "}}")
}

/// The operations of an iteration, in one box per stream.
fn nodes(document: &PlanDocument, (slot, iteration): (SlotPlan, &Iteration), out: &mut impl Write) -> io::Result<()> {
    for (stream, operations) in iteration.by_stream().into_iter().enumerate() {
        writeln!(out, "  subgraph cluster_{}_s{stream} {{", drawn_name(slot))?;
        writeln!(out, "    label={};", quoted(&operations[0].stream))?;
        for operation in operations {
            let critical =
                if operation.critical { format!(", color=\"{CRITICAL}\", penwidth=2") } else { String::new() };
            let name = document.node(slot, operation.id);
            writeln!(out, "    {name} [label={}{critical}];", quoted(&label(operation)))?;
        }
        writeln!(out, "  }}")?;
    }
    Ok(())
}

fn label(operation: &PlannedOperation) -> String {
    format!("{}\n{}, slack {}", operation.heading(), operation.duration_ns, operation.slack_ns)
}

fn attributes(edge: &PlannedDependency, critical: bool) -> String {
    let mut text = match edge.reason {
        // The box shows the stream already.
        Reason::Stream => "tooltip=\"same stream\"".to_owned(),
        _ => format!("label={}", quoted(&format!("{}{}", edge.why(), edge.distance_suffix()))),
    };
    match (critical, edge.is_stream()) {
        (true, _) => text += &format!(", color=\"{CRITICAL}\", penwidth=2"),
        (false, true) => text += ", color=gray50",
        (false, false) => {}
    }
    if edge.distance > 0 {
        // The edge comes from an earlier iteration, so it must not affect the layout.
        text += ", style=dashed, constraint=false";
    }
    text
}

/// A quoted string of DOT, with backslashes escaped.
fn quoted(text: &str) -> String {
    format!("\"{}\"", visible::visible(text).replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_escaped() {
        assert_eq!(quoted("a \"b\"\\N\nc"), r#""a \"b\"\\N\nc""#);
    }
}
