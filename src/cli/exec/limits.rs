//! Judges a record by the limits of a scenario or of a case of a suite.

use std::collections::BTreeMap;

use crate::config::{Scenario, Span};
use crate::measure::RunRecord;
use crate::measure::record::{ExpectationRecord, Variant};

/// Adds an expectation for each limit of a scenario to each variant of a record. Limits apply to measurements only.
pub(super) fn judged(mut record: RunRecord, scenario: Option<&Scenario>) -> RunRecord {
    let none = BTreeMap::new();
    let limits = scenario.map_or(&none, |scenario| &scenario.limits);
    let applies = record.measurement && record.complete;
    for variant in &mut record.variants {
        for (name, span) in limits {
            let verdict = match broken(variant, name, span) {
                _ if !applies => "skipped",
                Some(_) => "failed",
                None => "held",
            };
            let text = format!("limit {name}: {span}");
            variant.expectations.push(ExpectationRecord {
                text,
                place: "scenario".to_owned(),
                verdict: verdict.to_owned(),
            });
        }
    }
    record
}

/// Describes how a variant violates the limit on a metric, or on `time`, its median; `None` if it does not.
pub fn broken(variant: &Variant, name: &str, span: &Span) -> Option<String> {
    let (value, text) = match name {
        "time" => {
            let median = variant.time.p50_ns?;
            (Some(median.seconds()), median.to_string())
        }
        name => match variant.metrics.iter().find(|metric| metric.name == *name) {
            Some(metric) if !span.fits(&metric.unit) => {
                return Some(format!("limit on {name}: {span} is in another unit than {}", metric.text));
            }
            Some(metric) => (metric.value, metric.text.clone()),
            None => return Some(format!("limit on {name}: the workload has no such metric")),
        },
    };
    let is_in_range = value.is_some_and(|value| span.holds(value));
    let launched = if variant.launch == "graph" { "a graph" } else { "streams" };
    (!is_in_range).then(|| format!("limit on {name}, as {launched}: {text} is not {}", words(span)))
}

/// Formats a range: `within 50 GB/s to 57 GB/s`, `at most 5 µs`.
fn words(span: &Span) -> String {
    if span.from.is_some() && span.to.is_some() { format!("within {span}") } else { span.to_string() }
}
