//! The report of a comparison of earlier runs, for people and as JSON.

use crate::base::{Nanos, counted};
use crate::measure::compare::{
    CaseComparison, Comparison, Difference, MetricRow, OperationRow, SideComparison, SideSummary, UnmatchedCase,
};
use crate::measure::effect::Verdict;
use crate::report::page::{BarChart, Check, Outcome, Page, Section, Table, cell};
use crate::report::quantity::{change, changes, quantity, whole_percent};
use crate::report::run::operations::hidden_kinds;

/// Maximum number of operations listed for a case.
const OPERATIONS: usize = 16;

/// A page for each side compared with the base: differences first, then each case.
pub fn compare(comparison: &Comparison) -> Vec<Page> {
    comparison.others.iter().map(|against| page(comparison, against)).collect()
}

fn page(comparison: &Comparison, against: &SideComparison) -> Page {
    let base = &comparison.base;
    let mut page = Page {
        command: "aorta compare",
        name: format!("{} against {}", against.side.name, base.name),
        summary: summary(against),
        warnings: against.warnings.clone(),
        checks: checks(comparison, against),
        charts: Vec::from_iter(chart(against)),
        ..Page::default()
    };
    page.lines("", [format!("base: {}", side(base)), format!("other: {}", side(&against.side))]);
    page.lines("What differs between the sides", against.environment.iter().map(difference));
    let marked = against.pairs.iter().any(|pair| figures(pair).is_some());
    for pair in &against.pairs {
        page.sections.push(case(pair, marked));
        page.sections.extend((!pair.operations.is_empty()).then(|| operations(pair)));
    }
    let of_base = against.only_base.iter().map(|one| unmatched(&base.name, one));
    page.lines("", of_base.chain(against.only_other.iter().map(|one| unmatched(&against.side.name, one))));
    page
}

/// The ratio of the median times of each case as bars, in percent of the base; `None` if no case has both.
fn chart(against: &SideComparison) -> Option<BarChart> {
    let bars = against.pairs.iter().filter_map(|pair| {
        let time = pair.rows.iter().find(|row| row.metric == "time.p50")?;
        let mark = figures(pair).map(|figures| format!(", {figures}")).unwrap_or_default();
        let case = if pair.case.is_empty() { &against.side.name } else { &pair.case };
        Some((format!("{case}{mark}"), 100.0 * time.effect?.ratio))
    });
    let bars: Vec<(String, f64)> = bars.filter(|(_, percent)| percent.is_finite()).collect();
    let title = "Median time of an iteration in percent of the base".to_owned();
    (!bars.is_empty()).then(|| BarChart { title, axis: "%".to_owned(), bars, reference: Some(100.0) })
}

fn case(pair: &CaseComparison, marked: bool) -> Section {
    let runs = match (pair.base_runs, pair.other_runs) {
        (1, 1) => String::new(),
        (base, other) => format!(", runs {base} and {other}"),
    };
    let names = ["metric", "base", "other", "change", "95 % interval", "threshold", "verdict"];
    let mut table = Table::new(names.into_iter().chain(marked.then_some("figures"))).left(6);
    for row in &pair.rows {
        let cells = [
            row.metric.clone(),
            quantity(row.base, &row.unit),
            quantity(row.other, &row.unit),
            cell(changed(row)),
            cell(interval(row)),
            threshold(row),
            row.verdict.name().to_owned(),
        ];
        let figures = marked.then(|| figures(pair).unwrap_or_else(|| "measured".to_owned()));
        table.row(cells.into_iter().chain(figures));
    }
    let refused = pair.refused.iter().map(|why| format!("no verdict: {why}"));
    let explained = pair.rows.iter().filter(|_| pair.refused.is_empty());
    Section {
        title: format!("{}{runs}", pair.case),
        lines: refused.chain(pair.doubts.iter().map(|doubt| format!("doubtful: {doubt}"))).collect(),
        table: Some(table),
        notes: explained.filter_map(|row| Some(format!("{}: {}", row.metric, row.why.as_ref()?))).collect(),
    }
}

fn operations(pair: &CaseComparison) -> Section {
    let names = ["operation", "kind", "place", "count", "base", "of peak", "other", "of peak", "change"];
    let mut table = Table::new(names);
    pair.operations.iter().take(OPERATIONS).for_each(|row| table.row(operation(row)));
    let hidden = pair.operations.len().saturating_sub(OPERATIONS);
    let more = hidden_kinds(hidden, "--format json");
    Section {
        title: "Operations, with the share of the device's peak that each reaches".to_owned(),
        table: Some(table),
        notes: Vec::from_iter((hidden > 0).then_some(more)),
        ..Section::default()
    }
}

fn operation(row: &OperationRow) -> [String; 9] {
    let share = |share: Option<f64>, bound: &Option<String>| {
        let bound_text = bound.as_ref().map(|bound| format!(" {bound}")).unwrap_or_default();
        cell(share.map(|share| whole_percent(share) + &bound_text))
    };
    let ratio = row.base.zip(row.other).filter(|(base, other)| *base > 0.0 && *other > 0.0);
    [
        row.name.clone(),
        row.operation.clone(),
        row.place.clone(),
        row.other_count.map_or_else(|| row.count.to_string(), |other| format!("{} -> {other}", row.count)),
        cell(row.base.map(Nanos::from_secs_f64)),
        share(row.base_share, &row.base_bound),
        cell(row.other.map(Nanos::from_secs_f64)),
        share(row.other_share, &row.other_bound),
        cell(ratio.map(|(base, other)| change(other / base))),
    ]
}

/// A check for each metric of each case, and for each case that a side lacks.
fn checks(comparison: &Comparison, against: &SideComparison) -> Vec<Check> {
    let metric = |pair: &CaseComparison, row: &MetricRow| {
        let (outcome, why, figures) = match row.verdict {
            _ if comparison.fails_on(row) => (Outcome::Failed, sentence(row), String::new()),
            Verdict::CannotTell => (Outcome::Skipped, sentence(row), String::new()),
            _ => (Outcome::Passed, String::new(), sentence(row)),
        };
        let kind = if pair.refused.is_empty() { row.verdict.name() } else { "refused" };
        Check {
            class: pair.case.clone(),
            name: row.metric.clone(),
            outcome,
            kind,
            why,
            place: None,
            figures,
            seconds: None,
        }
    };
    let missing = |unmatched: &UnmatchedCase| Check {
        class: unmatched.case.clone(),
        name: "present".to_owned(),
        outcome: if comparison.misses() { Outcome::Failed } else { Outcome::Skipped },
        kind: "missing",
        why: unmatched.why.clone().unwrap_or_else(|| "the other side has no such case".to_owned()),
        place: None,
        figures: String::new(),
        seconds: None,
    };
    let metrics = against.pairs.iter().flat_map(|pair| pair.rows.iter().map(move |row| metric(pair, row)));
    metrics.chain(against.only_base.iter().map(missing)).collect()
}

/// The change of a metric; `None` without a ratio.
fn changed(row: &MetricRow) -> Option<String> {
    row.effect.map(|effect| change(effect.ratio))
}

/// The confidence interval of the change; `None` if there is none, or if the samples have no noise.
fn interval(row: &MetricRow) -> Option<String> {
    let effect = row.effect.filter(|effect| effect.is_uncertain())?;
    effect.interval.map(changes)
}

fn threshold(row: &MetricRow) -> String {
    let percent = (1e4 * row.threshold).round() / 100.0;
    format!("{percent} %")
}

/// `simulated`, or `simulated against measured`; `None` if both sides were measured.
pub(in crate::report) fn figures(pair: &CaseComparison) -> Option<String> {
    match (pair.base_figures.as_str(), pair.other_figures.as_str()) {
        ("measured", "measured") => None,
        (base, other) if base == other => Some(base.to_owned()),
        (base, other) => Some(format!("{base} against {other}")),
    }
}

/// A difference in words, such as `driver: 550 -> 560`.
fn difference(difference: &Difference) -> String {
    let side = |value: &Option<String>| value.clone().unwrap_or_else(|| "absent".to_owned());
    format!("{}: {} -> {}", difference.what, side(&difference.base), side(&difference.other))
}

/// A side in words, such as `a.json: 3 cases, 9 runs`.
fn side(side: &SideSummary) -> String {
    let cases = counted(side.cases, "case");
    match side.runs == side.cases {
        true => format!("{}: {cases}", side.name),
        false => format!("{}: {cases}, {}", side.name, counted(side.runs, "run")),
    }
}

/// A case without a counterpart, such as `only in a.json: …`.
fn unmatched(of: &str, unmatched: &UnmatchedCase) -> String {
    let why = unmatched.why.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
    format!("only in {of}: {}{why}", unmatched.case)
}

/// Counts the verdicts, such as `1 worse, 2 better, 3 same, 4 cannot be told`.
fn summary(against: &SideComparison) -> String {
    let counts = against.counts();
    let all = [
        (counts.worse, "worse"),
        (counts.better, "better"),
        (counts.same, "the same"),
        (counts.cannot_tell, "cannot be told"),
    ];
    let some: Vec<String> =
        all.iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!("{count} {word}")).collect();
    match some.is_empty() {
        true => "nothing to compare".to_owned(),
        false => format!("{}: {}", counted(all.iter().map(|(count, _)| count).sum(), "metric"), some.join(", ")),
    }
}

/// The verdict on a metric in one sentence.
fn sentence(row: &MetricRow) -> String {
    let mut text =
        format!("{} went from {} to {}", row.metric, quantity(row.base, &row.unit), quantity(row.other, &row.unit));
    if let Some(change) = changed(row) {
        text += &format!(", {change}");
    }
    if let Some(interval) = interval(row) {
        text += &format!(" (95 % interval {interval}, threshold {})", threshold(row));
    }
    if let Some(why) = &row.why {
        text += &format!(": {why}");
    }
    text
}
