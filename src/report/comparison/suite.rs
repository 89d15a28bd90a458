//! The report of a suite: the status of each case, its headline, and whether its figures are normal.

use std::collections::BTreeSet;

use crate::base::counted;
use crate::measure::cases::{Case, CasesHeader};
use crate::measure::pace::{self, Pace};
use crate::measure::record::{ExpectedRecord, RunRecord, Times, Variant};
use crate::report::page::{ABSENT, Page, Section, Table, cell, named_cells};
use crate::report::variant::launched;

use super::cases::{chart, check, reasons, records, tally};
use super::suite_table;

/// A suite that has run, or was read from its file of cases.
pub struct SuiteReport<'a> {
    pub header: &'a CasesHeader,
    /// Description of the suite; empty if only the cases are known.
    pub description: &'a str,
    /// The cases that have ended.
    pub cases: Vec<&'a Case>,
    /// Number of cases in the suite, more than have ended if it was interrupted.
    pub planned: usize,
}

/// The page of a suite: its own table or a row for each case, and a check for each case.
pub fn suite(suite: &SuiteReport) -> Page {
    let pace = pace(suite);
    let declared = suite.header.table.as_ref();
    let times: &[&str] = match pace {
        Pace::Headline => &["as streams", "as a graph"],
        Pace::Host => &["as streams, at the gate", "host-paced", "as a graph"],
    };
    let names = [&["case", "status"], times, &["figure", "normal"]].concat();
    let mut table = Table::new(names.iter().copied()).left(1).left(times.len() + 2).left(times.len() + 3);
    let mut checks = Vec::new();
    for case in &suite.cases {
        let columns = columns(case, pace);
        checks.push(check(suite.header, case, named_cells(&names[2..], &columns)));
        table.row([case.name.clone(), case.status.name().to_owned()].into_iter().chain(columns));
    }
    let table = declared.map_or(table, |declared| suite_table::table(declared, &suite.cases));
    let notes = reasons(&suite.cases).into_iter().chain(doubts(suite)).collect();
    let title = Section { lines: vec![title(suite)], ..Section::default() };
    Page {
        command: "aorta suite",
        name: suite.header.name.clone(),
        summary: summary(suite),
        sections: vec![title, Section { table: Some(table), notes, ..Section::default() }],
        warnings: Vec::new(),
        checks,
        charts: Vec::from_iter(chart(&suite.cases)),
    }
}

/// Kind of times that all cases have: times of a gated and of an ungated case cannot be compared.
fn pace(suite: &SuiteReport) -> Pace {
    Pace::common(records(&suite.cases).filter(|record| record.measurement).flat_map(|record| &record.variants))
}

/// The times of a case, its headline, and whether its figures are normal.
fn columns(case: &Case, pace: Pace) -> Vec<String> {
    let count = if pace == Pace::Host { 5 } else { 4 };
    let Some(record) = case.record.as_deref() else { return vec![ABSENT.to_owned(); count] };
    let variant_of = |launch: &str| record.variants.iter().find(|variant| variant.launch == launch);
    let median = |times: Option<&Times>| cell(times.and_then(|times| times.p50_ns));
    let streams = variant_of("stream");
    let mut columns = match pace {
        Pace::Headline => vec![median(streams.map(|variant| &variant.time))],
        Pace::Host => {
            let host_paced = streams.filter(|variant| pace::gated(variant) == Some(true));
            vec![median(host_paced.map(|variant| &variant.time)), median(streams.map(|variant| pace.times(variant)))]
        }
    };
    columns.extend([median(variant_of("graph").map(|variant| &variant.time)), headline(record), normal(record)]);
    columns
}

/// The first metric of the file, from the last variant that has it. For a family, its last member, which has the
/// largest size.
fn headline(record: &RunRecord) -> String {
    let compared = |variant: &Variant| {
        let first = variant.metrics.first()?;
        let stem = first.name.split('[').next().unwrap_or_default();
        let family = |name: &str| name.split('[').next() == Some(stem);
        let metric = variant.metrics.iter().rfind(|metric| family(&metric.name)).unwrap_or(first);
        metric.value.map(|_| format!("{} {}", metric.name, metric.text))
    };
    cell(record.variants.iter().rev().find_map(compared))
}

/// Describes how many figures with a known range are normal.
fn normal(record: &RunRecord) -> String {
    let known = record.expected.len();
    let good = record.expected.iter().filter(|figure| figure.verdict == "normal").count();
    let slower = record.expected.iter().any(|figure| figure.verdict == "slower");
    match (known, known - good) {
        (0, _) => ABSENT.to_owned(),
        (_, 0) => format!("{good} of {known}"),
        _ => format!("{good} of {known}, {}", if slower { "slower" } else { "faster" }),
    }
}

/// The title: the suite, the device, and the mark.
fn title(suite: &SuiteReport) -> String {
    let simulated = records(&suite.cases).any(|record| record.simulated);
    let on = records(&suite.cases).next().map(|record| format!(" On {}.", record.device.name)).unwrap_or_default();
    let mark = if simulated { " Every figure is simulated." } else { "" };
    let measured = records(&suite.cases).any(|record| record.measurement);
    let none =
        if measured || records(&suite.cases).next().is_none() { "" } else { " One iteration each: no measurement." };
    let what = if suite.description.is_empty() { String::new() } else { format!(": {}", suite.description) };
    format!("{}{what}.{on}{mark}{none}", suite.header.name)
}

/// The number of cases by status, and the number of normal figures.
fn summary(suite: &SuiteReport) -> String {
    let left = suite.planned - suite.cases.len();
    let left = if left > 0 { format!(", {left} not run") } else { String::new() };
    let mut text = format!("{}: {}{left}", counted(suite.planned, "case"), tally(&suite.cases));
    let figures: Vec<&ExpectedRecord> = records(&suite.cases).flat_map(|record| &record.expected).collect();
    if !figures.is_empty() {
        let good = figures.iter().filter(|figure| figure.verdict == "normal").count();
        text += &format!("; {good} of {} are normal", counted(figures.len(), "known figure"));
    }
    text
}

/// Figures that are not normal, and the first thing to check for each, without repetitions.
fn doubts(suite: &SuiteReport) -> Vec<String> {
    let mut lines = Vec::new();
    let mut checks: BTreeSet<&str> = BTreeSet::new();
    for case in &suite.cases {
        let figures = case.record.iter().flat_map(|record| &record.expected);
        for figure in figures.filter(|figure| figure.verdict != "normal") {
            let launch = launched(&figure.launch);
            lines.push(format!(
                "{}: {} than normal, {launch}: {} is {}, and {} is normal",
                case.name, figure.verdict, figure.name, figure.text, figure.normal
            ));
            checks.extend(figure.check.iter().map(String::as_str));
        }
    }
    lines.extend(checks.iter().map(|check| format!("check first: {check}")));
    lines
}
