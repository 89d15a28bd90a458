//! Differences in machine and settings between two sides, which come first when results differ.

use std::collections::BTreeSet;

use indexmap::IndexMap;

use super::Difference;
use super::environment::MEASURED_CLOCK;
use super::point::ComparedRun;
use super::side::RunSet;

/// Maximum number of values listed per side.
const MAX_LISTED: usize = 3;

/// Relative difference of clocks that is ignored, since readings vary.
const CLOCK: f64 = 0.01;

/// The differences between two sides, in the base's order.
pub fn between(base: &RunSet, other: &RunSet) -> Vec<Difference> {
    let [before, after] = [base, other].map(values);
    let names = before.keys().chain(after.keys().filter(|name| !before.contains_key(*name)));
    let differing = names.filter(|name| {
        let (before, after) = (before.get(*name), after.get(*name));
        before != after && !(name.as_str() == MEASURED_CLOCK && alike(before, after))
    });
    let side = |values: Option<&BTreeSet<&String>>| values.map(listed);
    let difference =
        |name: &String| Difference { what: name.clone(), base: side(before.get(name)), other: side(after.get(name)) };
    differing.map(|name| difference(name)).collect()
}

/// Maps each name to all its values in measured runs.
fn values(side: &RunSet) -> IndexMap<&String, BTreeSet<&String>> {
    let mut values: IndexMap<&String, BTreeSet<&String>> = IndexMap::new();
    let measured = |point: &&ComparedRun| point.failed.is_none();
    for (name, value) in side.points.iter().filter(measured).flat_map(|point| &point.environment) {
        values.entry(name).or_default().insert(value);
    }
    values
}

fn listed(values: &BTreeSet<&String>) -> String {
    let first: Vec<&str> = values.iter().take(MAX_LISTED).map(|value| value.as_str()).collect();
    let more = values.len().saturating_sub(MAX_LISTED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    first.join(", ") + &more
}

/// True if clocks are equal within the tolerance.
fn alike(before: Option<&BTreeSet<&String>>, after: Option<&BTreeSet<&String>>) -> bool {
    let mean = |values: Option<&BTreeSet<&String>>| {
        let clocks: Vec<f64> = values?.iter().filter_map(|value| value.split(' ').next()?.parse().ok()).collect();
        (!clocks.is_empty()).then(|| clocks.iter().sum::<f64>() / clocks.len() as f64)
    };
    mean(before).zip(mean(after)).is_some_and(|(before, after)| (before - after).abs() <= CLOCK * before.max(after))
}
