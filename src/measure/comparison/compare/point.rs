//! A run of a case in a comparison: its key, its metrics, and reasons against trusting them.

use std::sync::Arc;

use indexmap::IndexMap;

use crate::measure::comparison::cases::{Axis, Case};
use crate::measure::record::pace::{self, Pace};
use crate::measure::record::rate;
use crate::measure::record::{AnalysisRecord, RunRecord, Variant, slots};
use crate::measure::run::doubts;
use crate::measure::statistics::direction;
use crate::measure::statistics::effect::Direction;

use super::environment;

/// Values that identify a case. Runs with equal keys are runs of the same case.
pub type CaseKey = IndexMap<String, String>;

/// Returns a key sorted by name, so that the order of values does not matter.
pub fn sorted(key: &CaseKey) -> Vec<(&String, &String)> {
    let mut sorted: Vec<_> = key.iter().collect();
    sorted.sort();
    sorted
}

/// Percentiles of the time that are compared, if there are enough samples.
const PERCENTILES: [(&str, f64); 3] = [("time.p50", 50.0), ("time.p95", 95.0), ("time.p99", 99.0)];

/// A run of a case.
#[derive(Clone, Debug, Default)]
pub struct ComparedRun {
    pub key: CaseKey,
    /// Name of the case in a file of cases; `None` for a record.
    pub case: Option<String>,
    pub backend: String,
    pub device: String,
    /// Reason why the run has no results; `None` if it has.
    pub failed: Option<String>,
    pub figures: Vec<ComparedMetric>,
    /// True if iterations were gated; `None` for a graph, which one call launches.
    pub gated: Option<bool>,
    /// Metrics that do not depend on the gate: those of host-paced times, and constant ones.
    pub host_paced: Vec<ComparedMetric>,
    /// Facts of machine and settings that may differ between sides, by name.
    pub environment: IndexMap<String, String>,
    pub simulated: bool,
    /// Number of ranks of an emulated world; `None` for a real run.
    pub emulated: Option<u32>,
    /// True if AORTA's Python harness measured it, by its own definitions.
    pub harness: bool,
    /// SHA-256 of the workload's text; `None` if unknown.
    pub sha256: Option<String>,
    /// Arithmetic operations and bytes of an iteration over all ranks; `None` if unknown.
    pub work: Option<(f64, u64)>,
    /// Reasons why the run has no valid performance results; empty if it has.
    pub refused: Vec<String>,
    /// Reasons to doubt the results of the run.
    pub doubts: Vec<String>,
    pub operations: Vec<ComparedOperation>,
    /// Slot that `operations` and the metrics by category describe.
    pub slot: usize,
}

/// Prefixes of metrics by operation category, which describe the observed iterations of one slot.
pub const OF_ONE_SLOT: [&str; 2] = ["exposed.", "overlap."];

impl ComparedRun {
    /// The metrics that runs of this pace have in common.
    pub fn figures(&self, pace: Pace) -> &[ComparedMetric] {
        match pace {
            Pace::Headline => &self.figures,
            Pace::Host => &self.host_paced,
        }
    }
}

#[derive(Clone, Debug)]
pub struct ComparedMetric {
    pub name: String,
    /// SI unit of the figure's values, or `%`.
    pub unit: String,
    /// Direction in which the figure gets better; `None` if it is unknown.
    pub better: Option<Direction>,
    pub value: MetricValues,
}

/// Values of a metric in one run.
#[derive(Clone, Debug)]
pub enum MetricValues {
    /// A percentile of samples of equal work; its reciprocal if `inverse` is set.
    Series { samples: Arc<[f64]>, percentile: f64, inverse: bool },
    /// A single measured value.
    Single(f64),
    /// A value without variation.
    Exact(f64),
}

/// An observed operation.
#[derive(Clone, Debug)]
pub struct ComparedOperation {
    pub name: String,
    pub operation: String,
    pub place: String,
    /// Duration in seconds without waiting for other ranks.
    pub time: f64,
    /// Time in seconds at the peak of the resource that bounds the operation; `None` if unknown.
    pub ideal: Option<f64>,
    /// Resource that bounds the operation; `None` if unknown.
    pub bound: Option<String>,
}

impl ComparedMetric {
    pub fn new(name: &str, unit: &str, value: MetricValues) -> ComparedMetric {
        let better = direction::of(name, unit);
        ComparedMetric { name: name.to_owned(), unit: unit.to_owned(), better, value }
    }
}

/// Metrics of iteration times, given in seconds, of a program with `slots` slots: percentiles over rounds, and
/// iterations per second. Empty without a complete round.
pub fn of_times(samples: &[f64], slots: usize) -> Vec<ComparedMetric> {
    let samples: Arc<[f64]> = slots::rounds(samples, slots).into();
    if samples.is_empty() {
        return Vec::new();
    }
    let series = |percentile, inverse| MetricValues::Series { samples: samples.clone(), percentile, inverse };
    let mut figures: Vec<ComparedMetric> = PERCENTILES
        .iter()
        .map(|(name, percentile)| ComparedMetric::new(name, "s", series(*percentile, false)))
        .collect();
    figures.push(ComparedMetric::new("throughput", "iterations/s", series(50.0, true)));
    figures
}

/// Returns a point for each launch mode of a record.
pub fn of_record(record: &RunRecord) -> Vec<ComparedRun> {
    record.variants.iter().map(|variant| of_variant(record, variant)).collect()
}

/// Returns the points of a case. A case without a record gets a point without results.
pub fn of_case(case: &Case, axes: &[Axis], name: &str) -> Vec<ComparedRun> {
    let outside = |point: &mut ComparedRun| {
        point.case = Some(case.name.clone());
        // Parameters and options are in the record; variables and settings are only here.
        for axis in axes.iter().filter(|axis| matches!(axis.option.as_str(), "env" | "config")) {
            point.key.extend(case.values.get(&axis.name).map(|value| (axis.name.clone(), value.clone())));
        }
    };
    let Some(record) = &case.record else {
        let mut point =
            ComparedRun { case: Some(case.name.clone()), failed: Some(failure(case)), ..ComparedRun::default() };
        point.key.insert("workload".to_owned(), stem(name).to_owned());
        point.key.extend(case.values.clone());
        return vec![point];
    };
    let mut points = of_record(record);
    points.iter_mut().for_each(outside);
    points
}

fn failure(case: &Case) -> String {
    let reason = case.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    format!("{}{reason}", case.status.name())
}

/// File name of a workload without its extension.
pub fn stem(name: &str) -> &str {
    name.strip_suffix(".aorta").unwrap_or(name)
}

fn of_variant(record: &RunRecord, variant: &Variant) -> ComparedRun {
    let times = |pace: Pace| {
        let samples: Vec<f64> = pace.times(variant).samples_ns.iter().map(|time| time.seconds()).collect();
        of_times(&samples, record.program.cycle)
    };
    let mut figures = times(Pace::Headline);
    let analysis = variant.ranks.iter().find_map(|rank| rank.analysis.as_ref());
    figures.extend(analysis.into_iter().flat_map(hidden));
    let memory = record.program.memory;
    for (name, bytes) in [("memory.device", memory.device), ("memory.pinned", memory.pinned)] {
        if bytes.0 > 0 {
            figures.push(ComparedMetric::new(name, "B", MetricValues::Exact(bytes.0 as f64)));
        }
    }
    let metrics = variant.metrics.iter().filter_map(|metric| Some((metric, metric.value?)));
    figures.extend(metrics.map(|(metric, value)| {
        let (value, unit) = match metric.unit.is_empty() && metric.text.ends_with(" %") {
            true => (100.0 * value, "%"),
            false => (value, metric.unit.as_str()),
        };
        let better = metric.direction();
        ComparedMetric { better, ..ComparedMetric::new(&metric.name, unit, MetricValues::Single(value)) }
    }));
    if variant.refused.is_some() {
        figures.retain(|figure| matches!(figure.value, MetricValues::Exact(_)));
    }
    let exact = figures.iter().filter(|figure| matches!(figure.value, MetricValues::Exact(_)));
    let host_paced = times(Pace::Host).into_iter().chain(exact.cloned()).collect();
    ComparedRun {
        key: key(record, variant),
        case: None,
        backend: record.settings.backend.clone(),
        device: record.device.name.clone(),
        failed: None,
        figures,
        gated: pace::gated(variant),
        host_paced,
        environment: environment::of_record(record, variant),
        simulated: record.simulated,
        emulated: record.emulated,
        harness: false,
        sha256: Some(record.workload.sha256.clone()),
        work: rate::totals(record),
        refused: refused(record, variant),
        doubts: doubts(record, variant),
        operations: operations(variant),
        slot: variant.ranks.first().map_or(0, |rank| rank.slot),
    }
}

/// Name of a workload. A text from standard input has no name and is identified by its hash.
fn workload(record: &RunRecord) -> String {
    let workload = &record.workload;
    match workload.name == "<stdin>" {
        true => format!("{} {}", workload.name, short(&workload.sha256)),
        false => stem(&workload.name).to_owned(),
    }
}

/// Shortened hash, for display.
pub fn short(sha256: &str) -> &str {
    sha256.get(..12).unwrap_or(sha256)
}

fn key(record: &RunRecord, variant: &Variant) -> CaseKey {
    let settings = &record.settings;
    let mut key = CaseKey::new();
    let mut add = |name: &str, value: String| key.insert(name.to_owned(), value);
    add("workload", workload(record));
    for (name, value) in &record.workload.params {
        add(name, value.clone());
    }
    if let Some(streams) = settings.streams {
        add("streams", streams.to_string());
    }
    add("launch", variant.launch.clone());
    add("ranks", settings.ranks.to_string());
    add("sync", settings.sync.clone());
    if record.fusion.as_ref().is_some_and(|fusion| fusion.refused.is_none()) {
        add("fuse", "on".to_owned());
    }
    add("depth", settings.depth.to_string());
    add("cache", settings.cache.clone());
    add("data", settings.data.clone());
    key
}

/// Exposed time and overlapped share of communication and copies.
fn hidden(analysis: &AnalysisRecord) -> Vec<ComparedMetric> {
    let mut figures = Vec::new();
    for category in &analysis.categories {
        let Some(exposed) = category.exposed_ns.filter(|_| category.busy_ns.0 > 0) else { continue };
        let share = 1.0 - exposed.0 as f64 / category.busy_ns.0 as f64;
        let name = |of: &str| format!("{of}.{}", category.category);
        figures.push(ComparedMetric::new(&name("exposed"), "s", MetricValues::Single(exposed.seconds())));
        figures.push(ComparedMetric::new(&name("overlap"), "%", MetricValues::Single(100.0 * share)));
    }
    figures
}

fn refused(record: &RunRecord, variant: &Variant) -> Vec<String> {
    let mut refused = Vec::new();
    if !record.complete {
        refused.push("the run was interrupted before its end".to_owned());
    } else if !record.measurement {
        refused.push("it ran too few iterations to be a measurement".to_owned());
    }
    refused.extend(variant.refused.iter().map(|why| format!("the time has no value, since {why}")));
    let (n, slots) = (variant.time.samples_ns.len(), record.program.cycle);
    if n < slots {
        refused.push(format!("{n} iterations are less than a round of its {slots} slots"));
    }
    if record.verification.as_ref().is_some_and(|verification| !verification.held) {
        refused.push("its results were wrong".to_owned());
    }
    refused
}

fn doubts(record: &RunRecord, variant: &Variant) -> Vec<String> {
    let mut doubts = Vec::new();
    let throttled = variant.blocks.iter().find_map(|block| block.throttled.as_ref());
    doubts.extend(throttled.map(|why| format!("the device was throttled: {why}")));
    doubts.extend(doubts::unsteady(record).map(|why| format!("unsteady: {why}")));
    doubts
}

fn operations(variant: &Variant) -> Vec<ComparedOperation> {
    let rank = variant.ranks.iter().find(|rank| rank.operations.iter().any(|operation| operation.time_ns.is_some()));
    let operations = rank.into_iter().flat_map(|rank| &rank.operations);
    let observed = operations.filter_map(|operation| {
        Some(ComparedOperation {
            name: operation.name.clone(),
            operation: operation.operation.clone(),
            place: operation.place.clone(),
            time: operation.work_ns()?.seconds(),
            ideal: operation.ideal_ns.map(|ideal| ideal.seconds()),
            bound: operation.bound.clone(),
        })
    });
    observed.collect()
}
