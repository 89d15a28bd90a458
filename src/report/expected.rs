//! Figures beside what is normal on such a device.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::base::counted;
use crate::measure::record::{ExpectedRecord, RunRecord};

use super::table::{new_table, push};

/// What stands in the report of a run: one line where all is normal, else what is not, and what to look at first.
/// Nothing where nothing is known.
pub(super) fn section(record: &RunRecord, out: &mut String) {
    let (known, device) = (record.expected.len(), &record.device.name);
    if known == 0 {
        return;
    }
    let off: Vec<&ExpectedRecord> = record.expected.iter().filter(|figure| figure.verdict != "normal").collect();
    let (good, figures_known) = (known - off.len(), counted(known, "figure"));
    let _ = write!(
        out,
        "Is it normal? {good} of {figures_known} known of {device} {}",
        if good == 1 { "is" } else { "are" }
    );
    if off.is_empty() {
        out.push_str("\n\n");
        return;
    }
    let _ = writeln!(out, ", {} not:", if off.len() == 1 { "this is" } else { "these are" });
    figures(record, &off, out);
    checks(&off, out);
}

/// Every figure of which something is known, with what was seen and where.
pub fn expected(record: &RunRecord) -> String {
    let mut out = format!("\nFigures beside what is normal for {}\n", record.device.name);
    let all: Vec<&ExpectedRecord> = record.expected.iter().collect();
    figures(record, &all, &mut out);
    for figure in by_name(&all).values() {
        let _ = writeln!(out, "{}: {}\n  {}", figure.name, figure.seen, figure.source);
    }
    out.push('\n');
    checks(&all, &mut out);
    out
}

fn figures(record: &RunRecord, figures: &[&ExpectedRecord], out: &mut String) {
    let mut table = new_table(&["figure", "of", "launch", "here", "normal", "verdict"].map(str::to_owned));
    if let Some(column) = table.column_mut(1) {
        column.set_cell_alignment(comfy_table::CellAlignment::Left);
    }
    for figure in figures {
        let count = if figure.count > 1 { format!("{} × ", figure.count) } else { String::new() };
        let rank = figure.rank.map(|rank| format!(", rank {rank}")).unwrap_or_default();
        let launch = if figure.launch == "graph" { "as a graph" } else { "as streams" };
        table.add_row([
            figure.name.clone(),
            format!("{count}{}{rank}", figure.of),
            format!("{launch}{}", super::table::marks(record)),
            figure.text.clone(),
            figure.normal.clone(),
            figure.verdict.clone(),
        ]);
    }
    push(out, &table);
}

/// What to look at first, each thing once.
fn checks(figures: &[&ExpectedRecord], out: &mut String) {
    let mut told: Vec<&str> = Vec::new();
    for check in figures.iter().flat_map(|figure| &figure.check) {
        if !told.contains(&check.as_str()) {
            told.push(check);
        }
    }
    for check in &told {
        let _ = writeln!(out, "check first: {check}");
    }
    if !told.is_empty() {
        out.push('\n');
    }
}

/// One figure of each range.
fn by_name<'a>(figures: &[&'a ExpectedRecord]) -> BTreeMap<&'a str, &'a ExpectedRecord> {
    figures.iter().map(|figure| (figure.name.as_str(), *figure)).collect()
}
