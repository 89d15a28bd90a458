//! A record as CSV for pandas and spreadsheets: one row for each variant.

use std::borrow::Cow;

use indexmap::{IndexMap, IndexSet};

use crate::base::Nanos;
use crate::measure::record::{RankRecord, RunRecord, TimeSplitRecord, Times, Variant};

/// The record as CSV with a header. Times are in nanoseconds; a missing value is an empty cell.
pub fn csv(record: &RunRecord) -> String {
    let row = |variant| row(record, variant).into_iter().collect();
    let rows: Vec<IndexMap<String, String>> = record.variants.iter().map(row).collect();
    united(&rows)
}

/// Rows as CSV with the columns of all of them, in the order in which they first appear.
pub(in crate::report) fn united(rows: &[IndexMap<String, String>]) -> String {
    let columns: IndexSet<&str> = rows.iter().flat_map(IndexMap::keys).map(String::as_str).collect();
    let columns: Vec<&str> = columns.into_iter().collect();
    let values = rows.iter().map(|row| columns.iter().map(|name| row.get(*name).map_or("", String::as_str)).collect());
    written(&columns, values)
}

/// A table as CSV; empty if it has no columns.
pub(in crate::report) fn written<'a>(columns: &[&str], rows: impl Iterator<Item = Vec<&'a str>>) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    if !columns.is_empty() {
        let written = writer.write_record(columns.iter().map(|name| cell(name).into_owned()));
        written.expect("writing to memory does not fail");
        for row in rows {
            writer.write_record(row.iter().map(|value| cell(value).into_owned())).expect("rows have equal lengths");
        }
    }
    let bytes = writer.into_inner().expect("writing to memory does not fail");
    String::from_utf8(bytes).expect("made of text only")
}

/// Escapes a cell so that spreadsheets do not treat it as a formula: a text that begins like a formula and is not a
/// number gets a leading `'`.
fn cell(value: &str) -> Cow<'_, str> {
    // Some spreadsheets skip spaces, and treat the full-width forms of these signs alike.
    let formula = value.trim_start_matches(' ').starts_with(['=', '+', '-', '@', '\t', '\r', '＝', '＋', '－', '＠']);
    match formula && value.parse::<f64>().is_err() {
        true => Cow::Owned(format!("'{value}")),
        false => Cow::Borrowed(value),
    }
}

/// The columns of a variant with their values. The work and the analysis are those of the rank whose time is the headline.
pub(in crate::report) fn row(record: &RunRecord, variant: &Variant) -> Vec<(String, String)> {
    let mut row: Vec<(String, String)> = Vec::new();
    let mut add = |name: &str, value: String| row.push((name.to_owned(), value));
    add("workload", record.workload.name.clone());
    add("preset", record.workload.preset.clone().unwrap_or_default());
    add("backend", record.settings.backend.clone());
    add("device", record.device.name.clone());
    add("simulated", record.simulated.to_string());
    add("emulated", record.emulated.map(|world| world.to_string()).unwrap_or_default());
    add("measurement", record.measurement.to_string());
    add("complete", record.complete.to_string());
    add("launch", variant.launch.clone());
    times("time", &variant.time, &mut add);
    times("issue", &variant.issue, &mut add);
    times("serial", variant.serial.as_ref().unwrap_or(&Times::default()), &mut add);
    // Every variant has the same columns, even without statistics.
    for slot in (0..record.program.cycle).filter(|_| record.program.cycle > 1) {
        let median = variant.time.slots.get(slot).and_then(|times| times.p50_ns);
        add(&format!("time.slot[{slot}].p50_ns"), median.map(|time| time.0.to_string()).unwrap_or_default());
    }
    let rank = variant.slowest_rank();
    add("rank", rank.map(|rank| rank.rank.to_string()).unwrap_or_default());
    analysis(rank, &mut add);
    let work = record.work(rank.map_or(record.first_rank(), |rank| rank.rank));
    add("operations", work.map(|work| work.operations.to_string()).unwrap_or_default());
    add("flops", work.map(|work| work.flops.to_string()).unwrap_or_default());
    add("bytes", work.map(|work| work.bytes.to_string()).unwrap_or_default());
    add("device_memory_bytes", record.program.memory.device.0.to_string());
    for (name, value) in &record.workload.params {
        add(&format!("param.{name}"), value.clone());
    }
    for metric in &variant.metrics {
        let text = |value: Option<f64>| value.map(|value| value.to_string()).unwrap_or_default();
        add(&format!("metric.{}", metric.name), text(metric.value));
        for (slot, value) in metric.slots.iter().enumerate() {
            add(&format!("metric.{}.slot[{slot}]", metric.name), text(*value));
        }
    }
    add("sha256", record.workload.sha256.clone());
    row
}

/// Adds the time analysis of a rank.
fn analysis(rank: Option<&RankRecord>, add: &mut impl FnMut(&str, String)) {
    let analysis = rank.and_then(|rank| rank.analysis.as_ref());
    let split = analysis.map(|analysis| &analysis.split);
    let peak = analysis.and_then(|analysis| analysis.peak.as_ref());
    let time = |time: Option<Nanos>| time.map(|time| time.0.to_string()).unwrap_or_default();
    add("split.time_ns", time(split.map(|split| split.time_ns)));
    for (name, part) in split.unwrap_or(&TimeSplitRecord::default()).parts() {
        add(&format!("split.{name}"), time(part.filter(|_| split.is_some())));
    }
    add("critical_path_ns", time(analysis.map(|analysis| analysis.critical_path.length_ns)));
    let totals = analysis.and_then(|analysis| analysis.totals);
    add("rank.busy_ns", time(totals.map(|totals| totals.busy_ns)));
    add("rank.transfer_ns", time(totals.map(|totals| totals.transfer_ns)));
    add("rank.wait_ns", time(totals.map(|totals| totals.wait_ns)));
    add("peak.flops", peak.map(|peak| peak.flops.to_string()).unwrap_or_default());
    add("peak.bytes", peak.map(|peak| peak.bytes.to_string()).unwrap_or_default());
}

fn times(name: &str, times: &Times, add: &mut impl FnMut(&str, String)) {
    let text = |time: Option<Nanos>| time.map(|time| time.0.to_string()).unwrap_or_default();
    add(&format!("{name}.n"), times.n.to_string());
    for (statistic, value) in times.statistics() {
        add(&format!("{name}.{statistic}"), text(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cell_is_a_formula() {
        for text in ["=1+1", "+cmd|' /C calc'!A0", "-1+1", "@SUM(A1)", "\t=1", "\r=1", " =1", "-", "＝1"] {
            assert_eq!(cell(text), format!("'{text}"));
        }
        for text in ["", "-5", "+3.5e9", "-1e-9", "moe", "a=b", "5 - 3"] {
            assert_eq!(cell(text), text);
        }
        let table = written(&["a", "=b"], [vec!["x,\"y\"", "=HYPERLINK(1)"]].into_iter());
        assert_eq!(table, "a,'=b\n\"x,\"\"y\"\"\",'=HYPERLINK(1)\n");
    }
}
