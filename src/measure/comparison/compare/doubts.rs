//! Reasons against comparing two cases: some prevent a verdict, others make it doubtful.

use indexmap::IndexMap;
use rustc_hash::FxHashSet;

use crate::base::{Bytes, Flops, counted};

use super::matching::{MatchedCase, differ};
use super::point::{self, ComparedRun, MetricValues};
use crate::measure::record::pace::Pace;

/// Reasons that prevent a verdict.
pub fn refused(case: &MatchedCase) -> Vec<String> {
    let mut refused = Vec::new();
    let [base, other] = [&case.base, &case.other];
    let simulated = |points: &[&ComparedRun]| points.iter().any(|point| point.simulated);
    let measured = |points: &[&ComparedRun]| points.iter().any(|point| !point.simulated);
    if simulated(base) && measured(other) {
        refused.push(apart("simulated", "measured"));
    } else if measured(base) && simulated(other) {
        refused.push(apart("measured", "simulated"));
    }
    if differ(case.points().map(|point| point.emulated)) {
        refused.push("emulated ranks on one side, and not the same on the other".to_owned());
    }
    for (side, points) in [("base", base), ("other side", other)] {
        refused.extend(of_runs(side, points, |point| &point.refused));
    }
    refused
}

fn apart(base: &str, other: &str) -> String {
    format!("{base} against {other}: the ratio says how good the model is, and nothing of a regression")
}

/// Reasons that make a verdict doubtful.
pub fn doubts(case: &MatchedCase) -> Vec<String> {
    let mut doubts = Vec::new();
    let both = case.differs.iter().filter_map(|difference| {
        Some(format!("{} {} and {}", difference.what, difference.base.as_ref()?, difference.other.as_ref()?))
    });
    let both: Vec<String> = both.collect();
    if !both.is_empty() {
        doubts.push(format!("not the same case: {}", both.join(", ")));
    }
    if !case.is_same_text() {
        let hash = |points: &[&ComparedRun]| {
            let hash = points.iter().find_map(|point| point.sha256.as_ref());
            hash.map(|hash| point::short(hash).to_owned()).unwrap_or_default()
        };
        let (base, other) = (hash(&case.base), hash(&case.other));
        doubts.push(format!("the text of the workload is not the same (SHA-256 {base}… and {other}…)"));
    }
    if case.pace() == Pace::Host {
        doubts.push(
            "some runs were gated and others were not: host-paced times are compared, and figures that depend on \
             the gate are left out"
                .to_owned(),
        );
    }
    if !case.is_one_slot() {
        doubts.push("operations were observed in different slots, and are not compared".to_owned());
    }
    let work = |points: &[&ComparedRun]| points.iter().find_map(|point| point.work);
    if let (Some(base), Some(other)) = (work(&case.base), work(&case.other))
        && base != other
    {
        let work = |(flops, bytes): (f64, u64)| format!("{} and {} moved", Flops(flops), Bytes(bytes));
        doubts.push(format!("an iteration does not do the same: {}, against {}", work(base), work(other)));
    }
    if differ(case.points().map(|point| point.harness)) {
        doubts.push(
            "measured by different programs: AORTA's times hold the host's work and a synchronization".to_owned(),
        );
    }
    for (side, points) in [("base", &case.base), ("other side", &case.other)] {
        doubts.extend(of_runs(side, points, |point| &point.doubts));
        if has_copies(points) {
            doubts.push(format!("{side}: the same run was given more than once, which does not show how runs differ"));
        }
    }
    doubts
}

/// True if two runs have identical samples, so that one must be a copy of the other.
fn has_copies(points: &[&ComparedRun]) -> bool {
    let series = |point: &&&ComparedRun| {
        let time = point.figures.iter().find(|figure| figure.name == "time.p50")?;
        match &time.value {
            MetricValues::Series { samples, .. } if samples.len() > 1 => {
                Some(samples.iter().map(|time| time.to_bits()).collect())
            }
            _ => None,
        }
    };
    let all: Vec<Vec<u64>> =
        points.iter().filter(|point| !point.simulated).filter_map(|point| series(&point)).collect();
    all.iter().collect::<FxHashSet<_>>().len() < all.len()
}

/// The distinct remarks about a side's runs, each with the number of runs that it applies to.
fn of_runs(side: &str, points: &[&ComparedRun], of: fn(&ComparedRun) -> &Vec<String>) -> Vec<String> {
    let kind = |text: &String| text.split(':').next().unwrap_or_default().to_owned();
    let mut kinds: IndexMap<String, (&String, usize)> = IndexMap::new();
    for text in points.iter().flat_map(|point| of(point)) {
        kinds.entry(kind(text)).or_insert((text, 0)).1 += 1;
    }
    let text_of = |(text, count): &(&String, usize)| match points.len() {
        1 => format!("{side}: {text}"),
        runs => format!("{side}, {count} of {}: {text}", counted(runs, "run")),
    };
    kinds.values().map(text_of).collect()
}
