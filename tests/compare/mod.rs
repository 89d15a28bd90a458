//! Comparisons of two sets of runs: matching, verdicts, and every output form.

mod fixtures;
mod forms;
mod matching;
mod verdicts;

use aorta::measure::compare::{CompareOptions, Comparison, FailOn, MetricRow, RunSet, Thresholds, compare};

/// A side of texts, each as if it were a file of its own.
pub fn side(name: &str, texts: &[String]) -> RunSet {
    let mut side = RunSet::new(name);
    for (index, text) in texts.iter().enumerate() {
        side.add(&format!("{name}{index}.json"), text).unwrap_or_else(|why| panic!("{name}: {why}"));
    }
    side
}

pub fn options() -> CompareOptions {
    CompareOptions {
        thresholds: Thresholds::default(),
        // A machine on which runs hardly differ.
        between_runs: Some(0.002),
        metrics: Vec::new(),
        better: indexmap::IndexMap::new(),
        fail_on: vec![FailOn::Worse],
        operations: false,
    }
}

pub fn compared(base: &[String], other: &[String]) -> Comparison {
    compare(&side("before", base), &[side("after", other)], &options())
}

/// A metric of the first case.
pub fn row<'a>(comparison: &'a Comparison, metric: &str) -> &'a MetricRow {
    let rows = &comparison.others[0].pairs[0].rows;
    rows.iter().find(|row| row.metric == metric).unwrap_or_else(|| panic!("{metric} is not there"))
}
