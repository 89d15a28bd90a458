//! A diagnostic as a command of GitHub's workflows, which GitHub shows beside its source line.

use miette::Diagnostic;

use crate::base::{SourceMap, SrcSpan, workflow};

/// The diagnostic as one line: `::error file=…,line=…::message`.
///
/// GitHub shows one location; the message lists the others.
pub fn github(diagnostic: &dyn Diagnostic, sources: &SourceMap) -> String {
    let level = match super::severity(diagnostic) {
        "advice" => "notice",
        level => level,
    };
    let mut properties = Vec::new();
    let mut text = diagnostic.to_string();
    for (index, label) in diagnostic.labels().into_iter().flatten().enumerate() {
        let span = SrcSpan::new(label.offset(), label.offset() + label.len());
        let (Some(from), Some(to)) = (sources.locate(span.start), sources.locate(span.end())) else { continue };
        if index == 0 {
            properties.push(("file", from.file.to_string()));
            properties.extend([("line", from.line.to_string()), ("endLine", to.line.to_string())]);
            // GitHub accepts columns only if both ends are on one line, and its end column is inclusive.
            if from.line == to.line {
                let last = (to.column - 1).max(from.column);
                properties.extend([("col", from.column.to_string()), ("endColumn", last.to_string())]);
            }
        }
        let said = label.label().unwrap_or("here");
        text += &format!("\n{}:{}:{}: {said}", from.file, from.line, from.column);
    }
    if let Some(code) = diagnostic.code() {
        properties.push(("title", code.to_string()));
    }
    if let Some(help) = diagnostic.help() {
        text += &format!("\nhelp: {help}");
    }
    workflow::command(level, &properties, &text)
}
