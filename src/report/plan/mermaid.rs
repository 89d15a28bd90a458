//! The document as a Mermaid flowchart for Markdown pages: operations in boxes by stream, edges with their reasons.

use std::io::{self, Write};

use crate::report::page::mermaid::{escaped, quoted};

use super::{Iteration, PlanDocument, PlannedDependency, Reason, SlotPlan, drawn_name};

/// The style of the critical path.
const CRITICAL: &str = "stroke:#c0392b,stroke-width:3px";

/// Writes the plan as a Mermaid flowchart.
pub fn mermaid(document: &PlanDocument, out: &mut impl Write) -> io::Result<()> {
    let title = format!("{}, times modelled on an {}", document.title(), document.modelled_on);
    writeln!(out, "---\ntitle: {}\n---", yaml(&title))?;
    writeln!(out, "flowchart TB")?;
    let several = document.slots().len() > 1;
    for (slot, iteration) in document.parts() {
        if several {
            writeln!(out, "  subgraph {}[{}]", drawn_name(slot), quoted(&document.heading(slot)))?;
        }
        nodes(document, (slot, iteration), out)?;
        if several {
            writeln!(out, "  end")?;
        }
    }
    let mut count = 0;
    let mut critical = Vec::new();
    for (slot, iteration) in document.parts() {
        for edge in &iteration.edges {
            let from = document.node(document.earlier(slot, edge.distance), edge.from);
            let to = document.node(slot, edge.to);
            writeln!(out, "  {from} {}{} {to}", arrow(edge), label(edge))?;
            if iteration.on_path(edge) {
                critical.push(count.to_string());
            }
            count += 1;
        }
    }
    styles(document, &critical, out)
}

fn nodes(document: &PlanDocument, (slot, iteration): (SlotPlan, &Iteration), out: &mut impl Write) -> io::Result<()> {
    for (stream, operations) in iteration.by_stream().into_iter().enumerate() {
        writeln!(out, "  subgraph {}_s{stream}[{}]", drawn_name(slot), quoted(&operations[0].stream))?;
        for operation in operations {
            let times = format!("{}, slack {}", operation.duration_ns, operation.slack_ns);
            // The line break belongs to Mermaid and must not be escaped.
            let (heading, times) = (escaped(&operation.heading()), escaped(&times));
            writeln!(out, "    {}[\"{heading}<br/>{times}\"]", document.node(slot, operation.id))?;
        }
        writeln!(out, "  end")?;
    }
    Ok(())
}

fn arrow(edge: &PlannedDependency) -> &'static str {
    if edge.distance > 0 { "-.->" } else { "-->" }
}

fn label(edge: &PlannedDependency) -> String {
    match edge.reason {
        // The box shows the stream already.
        Reason::Stream => String::new(),
        _ => format!("|{}|", quoted(&format!("{}{}", edge.why(), edge.distance_suffix()))),
    }
}

/// Styles edges; Mermaid numbers them in their order in the text.
fn styles(document: &PlanDocument, edges: &[String], out: &mut impl Write) -> io::Result<()> {
    let mut nodes = Vec::new();
    for (slot, iteration) in document.parts() {
        nodes.extend(iteration.critical_path.operations.iter().map(|&op| document.node(slot, op)));
    }
    if !nodes.is_empty() {
        writeln!(out, "  classDef critical {CRITICAL}")?;
        writeln!(out, "  class {} critical", nodes.join(","))?;
    }
    if !edges.is_empty() {
        writeln!(out, "  linkStyle {} {CRITICAL}", edges.join(","))?;
    }
    Ok(())
}

/// A YAML string, written as JSON, which YAML accepts.
fn yaml(text: &str) -> String {
    serde_json::Value::from(text).to_string().replace('%', "\\u0025")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped() {
        assert_eq!(yaml("a: \"b\""), r#""a: \"b\"""#);
        assert_eq!(yaml("%%{init}%%"), r#""\u0025\u0025{init}\u0025\u0025""#);
    }
}
