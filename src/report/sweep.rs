//! A sweep as text: a row for each case, and a curve for each axis.

use std::fmt::Write as _;

use indexmap::{IndexMap, IndexSet};

use crate::base::counted;
use crate::measure::cases::{Case, Header, Status};
use crate::measure::record::{RunRecord, Variant};
use crate::measure::scaling::{self, Point, Unit};

use super::curve;
use super::table::{marks, new_table, push};

/// Rows of cases at most; the file of cases has all of them.
const ROWS: usize = 200;

/// The sweep as tables that somebody understands who sees one for the first time.
pub fn sweep(header: &Header, cases: &[&Case]) -> String {
    let mut out = String::new();
    heading(header, cases, &mut out);
    table(header, cases, &mut out);
    reasons(cases, &mut out);
    for along in scaling::along(header, cases) {
        curve::section(&along, &mut out);
    }
    out
}

fn heading(header: &Header, cases: &[&Case], out: &mut String) {
    let axes = header.axes.iter().map(|axis| format!("{} ({})", axis.name, counted(axis.values.len(), "value")));
    let axes: Vec<String> = axes.collect();
    let how = if header.zip { " with " } else { " × " };
    let _ = writeln!(out, "{}: {} over {}", header.name, counted(cases.len(), "case"), axes.join(how));
    let records = || cases.iter().filter_map(|case| case.record.as_ref());
    if let Some(record) = records().next() {
        let devices: IndexSet<&str> = records().map(|record| record.device.name.as_str()).collect();
        let devices: Vec<&str> = devices.into_iter().collect();
        let iterations = record.variants.first().map_or(0, |variant| variant.time.n);
        let no = if record.measurement { "" } else { ", no measurement" };
        let _ = writeln!(out, "{}, {}{no}", devices.join(" and "), counted(iterations, "iteration"));
    }
    let mut counts: IndexMap<&str, usize> = IndexMap::new();
    for status in
        [Status::Done, Status::Unstable, Status::NotHeld, Status::Skipped, Status::OutOfMemory, Status::Failed]
    {
        counts.insert(status.word(), cases.iter().filter(|case| case.status == status).count());
    }
    let told: Vec<String> =
        counts.iter().filter(|(_, count)| **count > 0).map(|(word, count)| format!("{count} {word}")).collect();
    let _ = writeln!(out, "{}\n", told.join(", "));
}

/// What stands beside every figure of a record, without the comma.
fn mark(record: &RunRecord) -> &'static str {
    marks(record).trim_start_matches(", ")
}

fn table(header: &Header, cases: &[&Case], out: &mut String) {
    let unit = scaling::unit(cases);
    let variants = cases.iter().filter_map(|case| case.record.as_ref()).any(|record| record.variants.len() > 1);
    let marked =
        cases.iter().filter_map(|case| case.record.as_ref()).map(|record| mark(record)).find(|mark| !mark.is_empty());
    let mut columns: Vec<String> = header.axes.iter().map(|axis| axis.name.clone()).collect();
    if variants {
        columns.push("launch".to_owned());
    }
    let records = || cases.iter().filter_map(|case| case.record.as_ref());
    let intervals = records().flat_map(|record| &record.variants).any(|variant| interval(variant).is_some());
    let median = marked.map_or_else(|| "median".to_owned(), |mark| format!("median ({mark})"));
    columns.push(median);
    columns.extend(intervals.then(|| "95 % interval".to_owned()));
    columns.extend([unit.per_second().to_owned(), "status".to_owned()]);
    let mut table = new_table(&columns);
    for case in cases.iter().take(ROWS) {
        let values = || header.axes.iter().map(|axis| case.values.get(&axis.name).cloned().unwrap_or_default());
        let Some(record) = &case.record else {
            let none = columns.len() - header.axes.len() - 1;
            table.add_row(values().chain((0..none).map(|_| "–".to_owned())).chain([case.status.word().to_owned()]));
            continue;
        };
        for variant in &record.variants {
            let launch = variants.then(|| variant.launch.clone());
            let [median, interval, rate] = figures(case, record, variant, unit);
            let interval = intervals.then_some(interval);
            table.add_row(
                values()
                    .chain(launch)
                    .chain([median])
                    .chain(interval)
                    .chain([rate])
                    .chain([case.status.word().to_owned()]),
            );
        }
    }
    push(out, &table);
    if cases.len() > ROWS {
        let _ = writeln!(out, "{} more cases; --csv and the file of cases have all of them\n", cases.len() - ROWS);
    }
}

/// The interval of the median; nothing of equal samples, as a simulator's are.
fn interval(variant: &Variant) -> Option<String> {
    let (low, high) = (variant.time.p50_low_ns?.to_string(), variant.time.p50_high_ns?.to_string());
    (low != high).then(|| format!("{low} to {high}"))
}

/// Median, interval and rate.
fn figures(case: &Case, record: &RunRecord, variant: &Variant, unit: Unit) -> [String; 3] {
    let none = || "–".to_owned();
    let time = &variant.time;
    let seconds = scaling::seconds(time, record.simulated);
    let rate = Point::of(case, "").zip(seconds).map(|(point, time)| Point { time, ..point }.rate(unit).value);
    [
        time.p50_ns.map_or_else(none, |median| median.to_string()),
        interval(variant).unwrap_or_else(none),
        rate.map_or_else(none, |rate| curve::rate_text(unit, rate)),
    ]
}

/// Why cases are not just done, each reason once.
fn reasons(cases: &[&Case], out: &mut String) {
    let mut told: IndexMap<(Status, &str), Vec<&str>> = IndexMap::new();
    for case in cases {
        if let Some(reason) = &case.reason {
            told.entry((case.status, reason)).or_default().push(&case.name);
        }
    }
    for ((status, reason), names) in &told {
        let others = match names.len() {
            1 => String::new(),
            more => format!(" and {}", counted(more - 1, "other")),
        };
        let _ = writeln!(out, "{}: {}{others}: {reason}", status.word(), names[0]);
    }
    if !told.is_empty() {
        out.push('\n');
    }
}
