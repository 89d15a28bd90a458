//! A diagnostic as JSON: one object per line.

use miette::Diagnostic;
use serde::Serialize;

use crate::base::{SourceMap, SrcSpan, json};

/// The schema of a diagnostic.
#[derive(Serialize)]
struct Record<'a> {
    /// `error`, `warning` or `advice`.
    severity: &'static str,
    /// The argument of `aorta explain`, such as `aorta::model::unknown_name`; `None` for a diagnostic without a page.
    code: Option<String>,
    message: String,
    /// The remedy; `None` without one.
    help: Option<String>,
    /// Locations, that of the mistake first.
    labels: Vec<Label>,
    /// Numbers of ranks with which the mistake occurs, if several were checked.
    #[serde(skip_serializing_if = "<[u32]>::is_empty")]
    ranks: &'a [u32],
}

#[derive(Serialize)]
struct Label {
    file: String,
    /// Lines and columns count from 1, columns in characters; the end is exclusive.
    line: usize,
    column: usize,
    end_line: usize,
    end_column: usize,
    /// Byte offset in the file.
    offset: usize,
    length: usize,
    /// The text of the label; `None` if it has none.
    text: Option<String>,
}

/// The diagnostic as one JSON object and a line break. `ranks` are the numbers of ranks with which it occurs, if several were
/// checked.
pub fn json(diagnostic: &dyn Diagnostic, sources: &SourceMap, ranks: &[u32]) -> String {
    let labels = diagnostic.labels().into_iter().flatten().filter_map(|label| {
        let span = SrcSpan::new(label.offset(), label.offset() + label.len());
        let (from, to) = (sources.locate(span.start)?, sources.locate(span.end())?);
        Some(Label {
            file: from.file.to_owned(),
            line: from.line,
            column: from.column,
            end_line: to.line,
            end_column: to.column,
            offset: from.offset,
            length: label.len(),
            text: label.label().map(str::to_owned),
        })
    });
    let record = Record {
        severity: super::severity(diagnostic),
        code: diagnostic.code().map(|code| code.to_string()),
        message: diagnostic.to_string(),
        help: diagnostic.help().map(|help| help.to_string()),
        labels: labels.collect(),
        ranks,
    };
    json::line(&record)
}
