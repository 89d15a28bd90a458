//! A diagnostic as a command of GitHub's workflows, which then shows it beside the line that it is about.

use miette::Diagnostic;

use crate::base::{SourceMap, SrcSpan};

/// The diagnostic as one line: `::error file=…,line=…::message`.
///
/// GitHub shows one place; the others stand in the text. Source: GitHub's documentation, "Workflow commands".
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
            properties.push(format!("file={}", property(from.file)));
            properties.push(format!("line={},endLine={}", from.line, to.line));
            // Columns are allowed only where both are on one line, and the last is counted in.
            if from.line == to.line {
                let last = (to.column - 1).max(from.column);
                properties.push(format!("col={},endColumn={last}", from.column));
            }
        }
        let said = label.label().unwrap_or("here");
        text += &format!("\n{}:{}:{}: {said}", from.file, from.line, from.column);
    }
    if let Some(code) = diagnostic.code() {
        properties.push(format!("title={}", property(&code.to_string())));
    }
    if let Some(help) = diagnostic.help() {
        text += &format!("\nhelp: {help}");
    }
    let properties = if properties.is_empty() { String::new() } else { format!(" {}", properties.join(",")) };
    format!("::{level}{properties}::{}\n", data(&text))
}

/// Text behind the last `::`.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// The value of a property.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_separates_is_escaped() {
        assert_eq!(data("50 %\nof it: a, b"), "50 %25%0Aof it: a, b");
        assert_eq!(property("a:b,c"), "a%3Ab%2Cc");
    }
}
