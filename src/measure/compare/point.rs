//! One run of one case: what tells it from other cases, its figures, and what speaks against believing them.

use std::sync::Arc;

use indexmap::IndexMap;

use crate::measure::cases::{Axis, Case};
use crate::measure::pace::{self, Pace};
use crate::measure::record::{AnalysisRecord, RunRecord, Variant};
use crate::measure::{doubts, slots};

use super::environment;

/// All that says which case it is. Equal ones are runs of the same case.
pub type Key = IndexMap<String, String>;

/// A key by its names: two are the same case whatever order their values stand in.
pub fn sorted(key: &Key) -> Vec<(&String, &String)> {
    let mut sorted: Vec<_> = key.iter().collect();
    sorted.sort();
    sorted
}

/// Percentiles of the time that are compared, where the samples carry them.
const PERCENTILES: [(&str, f64); 3] = [("time.p50", 50.0), ("time.p95", 95.0), ("time.p99", 99.0)];

/// One run of one case.
#[derive(Clone, Debug, Default)]
pub struct Point {
    pub key: Key,
    /// What a file of cases calls it.
    pub case: Option<String>,
    pub backend: String,
    pub device: String,
    /// Why there are no figures.
    pub failed: Option<String>,
    pub figures: Vec<Figure>,
    /// Whether its iterations were held at the gate; `None` of a graph, which is issued by one call.
    pub held: Option<bool>,
    /// The figures that do not depend on the gate: those of host-paced times, and what does not vary.
    pub host_paced: Vec<Figure>,
    /// What of the machine and the settings may differ between sides, by name.
    pub environment: IndexMap<String, String>,
    pub simulated: bool,
    pub emulated: Option<u32>,
    /// AORTA's Python harness has measured it, by its own rules.
    pub harness: bool,
    /// SHA-256 of the workload's text, where it is known.
    pub sha256: Option<String>,
    /// Arithmetic and bytes of an iteration.
    pub work: Option<(f64, u64)>,
    /// Why it says nothing of speed.
    pub refused: Vec<String>,
    /// What speaks against believing it.
    pub doubts: Vec<String>,
    pub operations: Vec<Operation>,
    /// The slot that its operations, and figures by category, are of.
    pub slot: usize,
}

/// What names of figures begin with that are of the observed iterations of one slot, by category of operations.
pub const OF_ONE_SLOT: [&str; 2] = ["exposed.", "overlap."];

impl Point {
    /// The figures that runs of this pace have alike.
    pub fn figures(&self, pace: Pace) -> &[Figure] {
        match pace {
            Pace::Headline => &self.figures,
            Pace::Host => &self.host_paced,
        }
    }
}

/// A figure of a run.
#[derive(Clone, Debug)]
pub struct Figure {
    pub name: String,
    /// Of its values, SI.
    pub unit: String,
    pub value: Value,
}

#[derive(Clone, Debug)]
pub enum Value {
    /// A percentile of samples, each of the same work; with `inverse`, one over it.
    Series { samples: Arc<[f64]>, percentile: f64, inverse: bool },
    /// One number, which another run would have different.
    Single(f64),
    /// One number that does not vary.
    Exact(f64),
}

/// An operation that was observed.
#[derive(Clone, Debug)]
pub struct Operation {
    pub name: String,
    pub operation: String,
    pub place: String,
    /// Seconds that it works: without waiting for other ranks.
    pub time: f64,
    /// Seconds that it takes at the peak of the resource that bounds it, and that resource.
    pub ideal: Option<f64>,
    pub bound: Option<String>,
}

impl Figure {
    pub fn new(name: &str, unit: &str, value: Value) -> Figure {
        Figure { name: name.to_owned(), unit: unit.to_owned(), value }
    }
}

/// The figures of times of iterations in seconds, of a program with that many slots: percentiles over rounds, and how many
/// iterations a second. None without a whole round.
pub fn of_times(samples: &[f64], slots: usize) -> Vec<Figure> {
    let samples: Arc<[f64]> = slots::rounds(samples, slots).into();
    if samples.is_empty() {
        return Vec::new();
    }
    let series = |percentile, inverse| Value::Series { samples: samples.clone(), percentile, inverse };
    let mut figures: Vec<Figure> =
        PERCENTILES.iter().map(|(name, percentile)| Figure::new(name, "s", series(*percentile, false))).collect();
    figures.push(Figure::new("throughput", "iterations/s", series(50.0, true)));
    figures
}

/// One point for each way in which the program was launched.
pub fn of_record(record: &RunRecord) -> Vec<Point> {
    record.variants.iter().map(|variant| of_variant(record, variant)).collect()
}

/// The points of a case. One without a record is a point for whatever it would have been.
pub fn of_case(case: &Case, axes: &[Axis], name: &str) -> Vec<Point> {
    let outside = |point: &mut Point| {
        point.case = Some(case.name.clone());
        // Parameters and options stand in the record; variables and settings only here.
        for axis in axes.iter().filter(|axis| matches!(axis.option.as_str(), "env" | "config")) {
            point.key.extend(case.values.get(&axis.name).map(|value| (axis.name.clone(), value.clone())));
        }
    };
    let Some(record) = &case.record else {
        let mut point = Point { case: Some(case.name.clone()), failed: Some(failure(case)), ..Point::default() };
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
    format!("{}{reason}", case.status.word())
}

/// A workload's name without what files end in.
pub fn stem(name: &str) -> &str {
    name.strip_suffix(".aorta").unwrap_or(name)
}

fn of_variant(record: &RunRecord, variant: &Variant) -> Point {
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
            figures.push(Figure::new(name, "B", Value::Exact(bytes.0 as f64)));
        }
    }
    let metrics = variant.metrics.iter().filter_map(|metric| Some((metric, metric.value?)));
    figures.extend(metrics.map(|(metric, value)| Figure::new(&metric.name, &metric.unit, Value::Single(value))));
    if variant.refused.is_some() {
        figures.retain(|figure| matches!(figure.value, Value::Exact(_)));
    }
    let exact = figures.iter().filter(|figure| matches!(figure.value, Value::Exact(_)));
    let host_paced = times(Pace::Host).into_iter().chain(exact.cloned()).collect();
    Point {
        key: key(record, variant),
        case: None,
        backend: record.settings.backend.clone(),
        device: record.device.name.clone(),
        failed: None,
        figures,
        held: pace::held(variant),
        host_paced,
        environment: environment::of_record(record, variant),
        simulated: record.simulated,
        emulated: record.emulated,
        harness: false,
        sha256: Some(record.workload.sha256.clone()),
        work: Some((record.program.flops, record.program.bytes)),
        refused: refused(record, variant),
        doubts: doubts(record, variant),
        operations: operations(variant),
        slot: variant.ranks.first().map_or(0, |rank| rank.slot),
    }
}

/// What a workload is called. A text without a name, from standard input, is known by itself alone.
fn workload(record: &RunRecord) -> String {
    let workload = &record.workload;
    match workload.name == "<stdin>" {
        true => format!("{} {}", workload.name, short(&workload.sha256)),
        false => stem(&workload.name).to_owned(),
    }
}

/// Enough of a hash to tell texts from each other.
pub fn short(sha256: &str) -> &str {
    sha256.get(..12).unwrap_or(sha256)
}

fn key(record: &RunRecord, variant: &Variant) -> Key {
    let settings = &record.settings;
    let mut key = Key::new();
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
    add("depth", settings.depth.to_string());
    add("cache", settings.cache.clone());
    add("data", settings.data.clone());
    key
}

/// Of communication and copies: the time that nothing hides, and the share that computation does.
fn hidden(analysis: &AnalysisRecord) -> Vec<Figure> {
    let mut figures = Vec::new();
    for category in &analysis.categories {
        let Some(exposed) = category.exposed_ns.filter(|_| category.busy_ns.0 > 0) else { continue };
        let share = 1.0 - exposed.0 as f64 / category.busy_ns.0 as f64;
        let name = |of: &str| format!("{of}.{}", category.category);
        figures.push(Figure::new(&name("exposed"), "s", Value::Single(exposed.seconds())));
        figures.push(Figure::new(&name("overlap"), "", Value::Single(share)));
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

fn operations(variant: &Variant) -> Vec<Operation> {
    let rank = variant.ranks.iter().find(|rank| rank.operations.iter().any(|operation| operation.time_ns.is_some()));
    let operations = rank.into_iter().flat_map(|rank| &rank.operations);
    let observed = operations.filter_map(|operation| {
        Some(Operation {
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
