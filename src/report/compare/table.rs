//! A comparison as text, for a terminal.

use std::fmt::Write as _;

use crate::base::Nanos;
use crate::measure::compare::{Against, Comparison, OperationRow, Pair, Row, SideRecord};
use crate::report::table::{new_table, push};

use super::{change, changed, difference, figures, interval, lones, side, summary, threshold, value, word};

/// Operations of a case at most.
const OPERATIONS: usize = 16;

/// Differences first, then case by case, then what there is to know before believing it.
pub fn table(comparison: &Comparison) -> String {
    let mut out = String::new();
    for (index, against) in comparison.others.iter().enumerate() {
        if index > 0 {
            out.push('\n');
        }
        one(&comparison.base, against, &mut out);
    }
    out
}

fn one(base: &SideRecord, against: &Against, out: &mut String) {
    let _ = writeln!(out, "base   {}", side(base));
    let _ = writeln!(out, "other  {}\n", side(&against.side));
    if !against.environment.is_empty() {
        out.push_str("What differs between the sides\n");
        for what in &against.environment {
            let _ = writeln!(out, "~ {}", difference(what));
        }
        out.push('\n');
    }
    for pair in &against.pairs {
        case(pair, out);
    }
    let mut lone = false;
    for line in lones(base, against) {
        lone = true;
        let _ = writeln!(out, "{line}");
    }
    if lone {
        out.push('\n');
    }
    let _ = writeln!(out, "{}", summary(against));
    for warning in &against.warnings {
        let _ = writeln!(out, "warning: {warning}");
    }
}

fn case(pair: &Pair, out: &mut String) {
    let figures = figures(pair);
    let runs = match (pair.base_runs, pair.other_runs) {
        (1, 1) => String::new(),
        (base, other) => format!(", runs {base} and {other}"),
    };
    let _ = writeln!(out, "{}{runs}", pair.case);
    for why in &pair.refused {
        let _ = writeln!(out, "no verdict: {why}");
    }
    for doubt in &pair.doubts {
        let _ = writeln!(out, "doubtful: {doubt}");
    }
    let mut header = vec!["metric", "base", "other", "change", "95 % interval", "threshold", "verdict"];
    header.extend(figures.as_ref().map(|_| "figures"));
    let header: Vec<String> = header.into_iter().map(str::to_owned).collect();
    let mut table = new_table(&header);
    for row in &pair.rows {
        let mut cells = cells(row).to_vec();
        cells.extend(figures.clone());
        table.add_row(cells);
    }
    push(out, &table);
    let explained = pair.rows.iter().filter(|_| pair.refused.is_empty());
    let mut told = false;
    for (row, why) in explained.filter_map(|row| Some((row, row.why.as_ref()?))) {
        told = true;
        let _ = writeln!(out, "{}: {why}", row.metric);
    }
    if told {
        out.push('\n');
    }
    operations(pair, out);
}

fn cells(row: &Row) -> [String; 7] {
    let absent = || "–".to_owned();
    [
        row.metric.clone(),
        value(row.base, &row.unit),
        value(row.other, &row.unit),
        changed(row).unwrap_or_else(absent),
        interval(row).unwrap_or_else(absent),
        threshold(row),
        word(row.verdict).to_owned(),
    ]
}

fn operations(pair: &Pair, out: &mut String) {
    if pair.operations.is_empty() {
        return;
    }
    out.push_str(
        "Operations, timed one by one, with the share of a peak of its device that each reaches, and of which\n",
    );
    let header =
        ["operation", "kind", "place", "count", "base", "of peak", "other", "of peak", "change"].map(str::to_owned);
    let mut table = new_table(&header);
    for row in pair.operations.iter().take(OPERATIONS) {
        table.add_row(operation(row));
    }
    push(out, &table);
    let hidden = pair.operations.len().saturating_sub(OPERATIONS);
    if hidden > 0 {
        let _ = writeln!(out, "{hidden} more kinds of operations take less; --format json has all of them\n");
    }
}

fn operation(row: &OperationRow) -> [String; 9] {
    let absent = || "–".to_owned();
    let time = |time: Option<f64>| time.map_or_else(absent, |time| Nanos::from_secs_f64(time).to_string());
    let share = |share: Option<f64>, bound: &Option<String>| {
        let of = bound.as_ref().map(|bound| format!(" {bound}")).unwrap_or_default();
        share.map_or_else(absent, |share| format!("{:.0} %{of}", 100.0 * share))
    };
    let ratio = row.base.zip(row.other).filter(|(base, other)| *base > 0.0 && *other > 0.0);
    [
        row.name.clone(),
        row.operation.clone(),
        row.place.clone(),
        row.count.to_string(),
        time(row.base),
        share(row.base_share, &row.base_bound),
        time(row.other),
        share(row.other_share, &row.other_bound),
        ratio.map_or_else(absent, |(base, other)| change(other / base)),
    ]
}
