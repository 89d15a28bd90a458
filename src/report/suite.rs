//! A suite on one page: what became of each case, its headline, and whether that is normal.

mod junit;
mod markdown;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use comfy_table::CellAlignment;

use crate::base::counted;
use crate::measure::cases::{Case, Header, Status};
use crate::measure::pace::{self, Pace};
use crate::measure::record::{ExpectedRecord, RunRecord, Times, Variant};

pub use junit::junit;
pub use markdown::markdown;

use super::table::{new_table, push};

/// What a page tells of.
pub struct Page<'a> {
    pub header: &'a Header,
    /// Empty where only the cases are known.
    pub description: &'a str,
    /// The cases that have ended.
    pub cases: Vec<&'a Case>,
    /// All cases of the suite: more than have ended where it was interrupted.
    pub planned: usize,
}

/// How a case is said to have ended.
fn word(case: &Case) -> &'static str {
    match case.status {
        Status::Done => "held",
        status => status.word(),
    }
}

/// What the columns of a row are called behind its name and its status; times first.
fn names(page: &Page) -> Vec<&'static str> {
    match pace(page) {
        Pace::Headline => vec!["as streams", "as a graph", "figure", "normal"],
        Pace::Host => vec!["as streams, at the gate", "host-paced", "as a graph", "figure", "normal"],
    }
}

/// Which times of streams all measurements have alike: that of a case at the gate cannot be set beside that of another
/// without.
fn pace(page: &Page) -> Pace {
    Pace::common(records(page).filter(|record| record.measurement).flat_map(|record| &record.variants))
}

/// A case's columns, a dash where there is nothing to say.
fn columns(case: &Case, pace: Pace) -> Vec<String> {
    let none = || "–".to_owned();
    let count = if pace == Pace::Host { 5 } else { 4 };
    let Some(record) = case.record.as_deref() else { return (0..count).map(|_| none()).collect() };
    let of = |launch: &str| record.variants.iter().find(|variant| variant.launch == launch);
    let median = |times: Option<&Times>| times.and_then(|times| times.p50_ns).map_or_else(none, |of| of.to_string());
    let streams = of("stream");
    let mut columns = match pace {
        Pace::Headline => vec![median(streams.map(|variant| &variant.time))],
        Pace::Host => {
            let held = streams.filter(|variant| pace::held(variant) == Some(true));
            vec![median(held.map(|variant| &variant.time)), median(streams.map(|variant| pace.times(variant)))]
        }
    };
    columns.extend([median(of("graph").map(|variant| &variant.time)), headline(record), normal(record)]);
    columns
}

/// The first metric of the file, of the last variant that has it; of a family the last member, which is of the largest
/// size.
fn headline(record: &RunRecord) -> String {
    let of = |variant: &Variant| {
        let first = variant.metrics.first()?;
        let stem = first.name.split('[').next().unwrap_or_default();
        let family = |name: &str| name.split('[').next() == Some(stem);
        let metric = variant.metrics.iter().rfind(|metric| family(&metric.name)).unwrap_or(first);
        metric.value.map(|_| format!("{} {}", metric.name, metric.text))
    };
    record.variants.iter().rev().find_map(of).unwrap_or_else(|| "–".to_owned())
}

/// How many figures are normal of those of which something is known.
fn normal(record: &RunRecord) -> String {
    let known = record.expected.len();
    let good = record.expected.iter().filter(|figure| figure.verdict == "normal").count();
    let slower = record.expected.iter().any(|figure| figure.verdict == "slower");
    match (known, known - good) {
        (0, _) => "–".to_owned(),
        (_, 0) => format!("{good} of {known}"),
        _ => format!("{good} of {known}, {}", if slower { "slower" } else { "faster" }),
    }
}

/// The suite, the device, and what has to stand beside every figure.
fn title(page: &Page) -> String {
    let simulated = records(page).any(|record| record.simulated);
    let on = records(page).next().map(|record| format!(" On {}.", record.device.name)).unwrap_or_default();
    let mark = if simulated { " Every figure is simulated." } else { "" };
    let measured = records(page).any(|record| record.measurement);
    let none = if measured || records(page).next().is_none() { "" } else { " One iteration each: no measurement." };
    let what = if page.description.is_empty() { String::new() } else { format!(": {}", page.description) };
    format!("{}{what}.{on}{mark}{none}", page.header.name)
}

fn records<'a>(page: &'a Page) -> impl Iterator<Item = &'a RunRecord> {
    page.cases.iter().filter_map(|case| case.record.as_deref())
}

/// How many cases ended in which way, and how many figures are normal.
fn summary(page: &Page) -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for case in &page.cases {
        match counts.iter_mut().find(|(known, _)| *known == word(case)) {
            Some((_, count)) => *count += 1,
            None => counts.push((word(case), 1)),
        }
    }
    let order = ["held", "unstable", "not held", "failed", "out of memory", "skipped", "missing"];
    counts.sort_by_key(|(word, _)| order.iter().position(|known| known == word));
    let left = page.planned - page.cases.len();
    let mut parts: Vec<String> = counts.iter().map(|(word, count)| format!("{count} {word}")).collect();
    parts.extend((left > 0).then(|| format!("{left} not run")));
    let mut text = format!("{}: {}", counted(page.planned, "case"), parts.join(", "));
    let figures: Vec<&ExpectedRecord> = records(page).flat_map(|record| &record.expected).collect();
    if !figures.is_empty() {
        let good = figures.iter().filter(|figure| figure.verdict == "normal").count();
        let _ = write!(text, "; {good} of {} are normal", counted(figures.len(), "known figure"));
    }
    text
}

/// Why cases are not just held, one line each; lines that say the same of several cases are one.
fn reasons(page: &Page) -> Vec<String> {
    let mut by_reason: Vec<(String, Vec<&str>)> = Vec::new();
    for case in &page.cases {
        let Some(reason) = &case.reason else { continue };
        let said = format!("{}: {reason}", word(case));
        match by_reason.iter_mut().find(|(known, _)| *known == said) {
            Some((_, names)) => names.push(&case.name),
            None => by_reason.push((said, vec![&case.name])),
        }
    }
    by_reason.into_iter().map(|(said, names)| format!("{}: {said}", names.join("; "))).collect()
}

/// Figures that are not normal, and what to look at first, each once.
fn doubts(page: &Page) -> Vec<String> {
    let mut lines = Vec::new();
    let mut checks: BTreeMap<&str, ()> = BTreeMap::new();
    for case in &page.cases {
        let figures = case.record.iter().flat_map(|record| &record.expected);
        for figure in figures.filter(|figure| figure.verdict != "normal") {
            let launch = if figure.launch == "graph" { "as a graph" } else { "as streams" };
            lines.push(format!(
                "{}: {} than normal, {launch}: {} is {}, and {} is normal",
                case.name, figure.verdict, figure.name, figure.text, figure.normal
            ));
            checks.extend(figure.check.iter().map(|check| (check.as_str(), ())));
        }
    }
    lines.extend(checks.keys().map(|check| format!("check first: {check}")));
    lines
}

/// The page for the terminal.
pub fn table(page: &Page) -> String {
    let mut out = format!("{}\n\n", title(page));
    let names = names(page);
    let header: Vec<String> = ["case", "status"].iter().chain(&names).map(|name| (*name).to_owned()).collect();
    let mut table = new_table(&header);
    for column in [1, names.len(), names.len() + 1] {
        table.column_mut(column).into_iter().for_each(|column| column.set_cell_alignment(CellAlignment::Left));
    }
    for case in &page.cases {
        table.add_row([vec![case.name.clone(), word(case).to_owned()], columns(case, pace(page))].concat());
    }
    push(&mut out, &table);
    for line in reasons(page).into_iter().chain(doubts(page)) {
        let _ = writeln!(out, "{line}");
    }
    let _ = writeln!(out, "{}", summary(page));
    out
}
