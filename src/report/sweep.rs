//! A sweep as text: a row for each case, and a curve for each axis.

use std::fmt::Write as _;

use indexmap::{IndexMap, IndexSet};

use crate::base::counted;
use crate::measure::cases::{Case, Header, Status};
use crate::measure::order::Order;
use crate::measure::pace::{self, Pace};
use crate::measure::record::{RunRecord, Times, Variant};
use crate::measure::scaling::{self, Point, Unit};

use super::curve;
use super::table::{marks, new_table, push};

/// Rows of cases at most; the file of cases has all of them.
const ROWS: usize = 200;

/// Columns of metrics at most.
const METRICS: usize = 6;

/// The sweep as tables that somebody understands who sees one for the first time; rows in an order, or as the axes have
/// them.
pub fn sweep(header: &Header, cases: &[&Case], order: Option<&Order>) -> String {
    let mut out = String::new();
    heading(header, cases, &mut out);
    table(header, cases, order, &mut out);
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

/// The columns of a table of cases besides the axes.
struct Columns<'a> {
    unit: Unit,
    pace: Pace,
    launch: bool,
    intervals: bool,
    /// Names of metrics.
    metrics: Vec<&'a str>,
}

impl<'a> Columns<'a> {
    fn of(header: &Header, cases: &[&'a Case], order: Option<&Order>) -> Columns<'a> {
        let records = || cases.iter().filter_map(|case| case.record.as_ref());
        let variants = || records().flat_map(|record| &record.variants);
        let pace = scaling::pace(cases);
        // A metric is of iterations that were held where they could be: of cases of both kinds it says nothing.
        let alike = pace == Pace::Headline;
        let names =
            variants().filter(|_| alike).flat_map(|variant| &variant.metrics).map(|metric| metric.name.as_str());
        let names: IndexSet<&str> = names.collect();
        let sorted_by = order.filter(|order| order.is_metric(header)).map(Order::name);
        let is_sorted_by = |name: &&str| sorted_by == Some(*name);
        let (by, others): (Vec<&str>, Vec<&str>) = names.into_iter().partition(is_sorted_by);
        Columns {
            unit: scaling::unit(cases),
            pace,
            launch: records().any(|record| record.variants.len() > 1),
            intervals: variants().any(|variant| interval(pace.times(variant)).is_some()),
            metrics: by.into_iter().chain(others).take(METRICS).collect(),
        }
    }

    fn names(&self, mark: Option<&str>) -> Vec<String> {
        let marked = |name: &str| mark.map_or_else(|| name.to_owned(), |mark| format!("{name} ({mark})"));
        let mut names: Vec<String> = self.launch.then(|| "launch".to_owned()).into_iter().collect();
        match self.pace {
            Pace::Headline => names.push(marked("median")),
            Pace::Host => names.extend([marked("median at the gate"), marked("median host-paced")]),
        }
        names.extend(self.intervals.then(|| "95 % interval".to_owned()));
        names.push(self.unit.per_second().to_owned());
        names.extend(self.metrics.iter().map(|name| (*name).to_owned()));
        names.push("status".to_owned());
        names
    }

    fn row(&self, case: &Case, record: &RunRecord, variant: &Variant) -> Vec<String> {
        let none = || "–".to_owned();
        let text = |times: &Times| times.p50_ns.map_or_else(none, |median| median.to_string());
        let times = self.pace.times(variant);
        let seconds = scaling::seconds(times, record.simulated);
        let point = Point::of(case, "", self.pace).zip(seconds);
        let rate = point.map(|(point, time)| Point { time, ..point }.rate(self.unit).value);
        let mut row: Vec<String> = self.launch.then(|| variant.launch.clone()).into_iter().collect();
        if self.pace == Pace::Host {
            let held = pace::held(variant) != Some(false);
            row.push(if held { text(&variant.time) } else { none() });
        }
        row.push(text(times));
        row.extend(self.intervals.then(|| interval(times).unwrap_or_else(none)));
        row.push(rate.map_or_else(none, |rate| curve::rate_text(self.unit, rate)));
        let metric = |name: &&str| variant.metrics.iter().find(|metric| metric.name == *name);
        row.extend(self.metrics.iter().map(|name| metric(name).map_or_else(none, |metric| metric.text.clone())));
        row.push(case.status.word().to_owned());
        row
    }
}

fn table(header: &Header, cases: &[&Case], order: Option<&Order>, out: &mut String) {
    let records = || cases.iter().filter_map(|case| case.record.as_ref());
    let marked = records().map(|record| mark(record)).find(|mark| !mark.is_empty());
    let columns = Columns::of(header, cases, order);
    let axes: Vec<String> = header.axes.iter().map(|axis| axis.name.clone()).collect();
    let names = columns.names(marked);
    let width = names.len();
    let mut table = new_table(&[axes, names].concat());
    let sorted = order.map_or_else(|| cases.to_vec(), |order| order.sorted(header, cases));
    for case in sorted.iter().take(ROWS) {
        let values = || header.axes.iter().map(|axis| case.values.get(&axis.name).cloned().unwrap_or_default());
        let Some(record) = &case.record else {
            let none = (1..width).map(|_| "–".to_owned());
            table.add_row(values().chain(none).chain([case.status.word().to_owned()]));
            continue;
        };
        for variant in &record.variants {
            table.add_row(values().chain(columns.row(case, record, variant)));
        }
    }
    push(out, &table);
    if cases.len() > ROWS {
        let _ = writeln!(out, "{} more cases; --csv and the file of cases have all of them\n", cases.len() - ROWS);
    }
    let all: IndexSet<&str> = records()
        .flat_map(|record| &record.variants)
        .flat_map(|variant| &variant.metrics)
        .map(|metric| metric.name.as_str())
        .collect();
    if columns.pace == Pace::Headline && all.len() > columns.metrics.len() {
        let more = counted(all.len() - columns.metrics.len(), "more metric");
        let _ = writeln!(out, "{more}; --csv has all of them, and `--sort NAME` shows one here\n");
    }
    if columns.pace == Pace::Host {
        unlike(cases, out);
    }
}

/// Says that some cases could not be held at the gate, and what is compared then.
fn unlike(cases: &[&Case], out: &mut String) {
    let variants = || cases.iter().filter_map(|case| Some((case, case.record.as_ref()?.variants.first()?)));
    let free: Vec<_> = variants().filter(|(_, variant)| pace::held(variant) == Some(false)).collect();
    let reason = free.iter().find_map(|(_, variant)| variant.notes.iter().find_map(|note| note.split_once(", since ")));
    let why = reason.map(|(_, why)| format!(" ({}: {why})", free[0].0.name)).unwrap_or_default();
    let _ = writeln!(
        out,
        "{} of {} could not be held at the gate{why}.\nAt the gate a time is the device's; without it, it may be the host's. \
         So rates, best values and knees compare host-paced times, which every case has. Metrics are left out.\n",
        free.len(),
        counted(variants().count(), "case"),
    );
}

/// The interval of the median; nothing of equal samples, as a simulator's are.
fn interval(times: &Times) -> Option<String> {
    let (low, high) = (times.p50_low_ns?.to_string(), times.p50_high_ns?.to_string());
    (low != high).then(|| format!("{low} to {high}"))
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
