//! The document as JSON, and back.

use std::io::{self, Write};

use crate::base::json;

use super::{PlanDocument, SCHEMA};

/// Writes the document as JSON, ending with a newline.
pub fn json(document: &PlanDocument, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, document)?;
    writeln!(out)
}

/// Reads a document. The error describes the mistake in the text.
pub fn parse(text: &str) -> Result<PlanDocument, String> {
    if json::schema(text).is_some_and(|schema| schema.starts_with("aorta.run/")) {
        return Err("it is the record of a run".to_owned());
    }
    let document = json::versioned(text, SCHEMA, "plan")?;
    match inconsistency(&document) {
        None => Ok(document),
        Some(what) => Err(format!("it is damaged: {what}")),
    }
}

/// Describes an index in the document that is out of range; `None` if all are valid. Other forms rely on this.
fn inconsistency(document: &PlanDocument) -> Option<String> {
    for (slot, iteration) in document.parts() {
        let count = iteration.operations.len();
        for (position, operation) in iteration.operations.iter().enumerate() {
            if operation.id as usize != position {
                return Some(format!("operation {position} has the number {}", operation.id));
            }
            if operation.lane as usize >= document.lanes.len() {
                return Some(format!("operation {position} is on stream {}, which is not there", operation.lane));
            }
        }
        for edge in &iteration.edges {
            if edge.to as usize >= count || document.source(slot, edge).is_none() {
                return Some(format!("no operation is at an end of the edge from {} to {}", edge.from, edge.to));
            }
        }
        if let Some(kept) = iteration.kept.iter().find(|kept| kept.from.max(kept.to) as usize >= count) {
            return Some(format!("no operation writes or reads the kept {}", kept.memory));
        }
        if let Some(op) = iteration.critical_path.operations.iter().find(|op| **op as usize >= count) {
            return Some(format!("the critical path has operation {op}, which is not there"));
        }
    }
    None
}
