//! Compares metrics of a record with the normal ranges of its device.
//!
//! Refuses records that the ranges do not apply to: simulated or emulated runs, runs without warm-up, operations that
//! overlapped others, and unknown devices.

mod checks;
mod figures;

use crate::base::units::Dimension;
use crate::config::Expected;
use crate::config::expected::{ExpectedFigure, NormalRange};

use crate::measure::record::{ExpectedRecord, RunRecord, Variant};

/// Returns the metrics of the record for which a range exists, in the order of the ranges.
pub fn judge(record: &RunRecord, known: &Expected) -> Vec<ExpectedRecord> {
    if why_inapplicable(record, known).is_some() {
        return Vec::new();
    }
    let mut found = Vec::new();
    for range in &known.ranges {
        for variant in &record.variants {
            let seen = figures::seen(record, variant, range, known.shipped);
            found.extend(seen.into_iter().map(|seen| compared(record, variant, known, range, seen)));
        }
    }
    found
}

/// Reason why no range applies to this record; `None` if ranges apply.
pub fn why_inapplicable(record: &RunRecord, known: &Expected) -> Option<String> {
    let why = match record {
        _ if record.simulated => "the run was simulated: its figures come from a model".to_owned(),
        _ if record.emulated.is_some() => "other ranks were emulated".to_owned(),
        _ if !record.complete => "the run did not finish".to_owned(),
        _ if !record.measurement => "the run was no measurement".to_owned(),
        _ if !known.is_about(&record.device.name) => {
            format!("{} is about {}, and this was {}", known.file, known.devices.join(", "), record.device.name)
        }
        _ => return None,
    };
    Some(why)
}

/// Word for a value: `normal`, `slower` or `faster`.
fn verdict(range: &NormalRange, value: f64) -> &'static str {
    let less_is_better = match range.figure {
        ExpectedFigure::Issue | ExpectedFigure::GraphLaunch => true,
        ExpectedFigure::FlopRate | ExpectedFigure::Bandwidth | ExpectedFigure::BusBandwidth => false,
        ExpectedFigure::Metric => range.normal.dimension() == Ok(Some(Dimension::TIME)),
    };
    let below = range.normal.from.as_ref().is_some_and(|from| value < from.si());
    match (range.normal.holds(value), below == less_is_better) {
        (true, _) => "normal",
        (false, true) => "faster",
        (false, false) => "slower",
    }
}

fn compared(
    record: &RunRecord,
    variant: &Variant,
    known: &Expected,
    range: &NormalRange,
    seen: ExpectedRecord,
) -> ExpectedRecord {
    let verdict = verdict(range, seen.value);
    let check = match verdict {
        "normal" => Vec::new(),
        "slower" => checks::slower(record, variant, range),
        _ => checks::faster(record),
    };
    ExpectedRecord {
        name: range.name.clone(),
        launch: variant.launch.clone(),
        low: range.normal.from.as_ref().map(|from| from.si()),
        high: range.normal.to.as_ref().map(|to| to.si()),
        normal: range.normal.to_string(),
        verdict: verdict.to_owned(),
        seen: range.seen.clone(),
        source: known.source(range).text(),
        check,
        ..seen
    }
}

#[cfg(test)]
mod tests;
