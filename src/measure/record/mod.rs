//! The record of a run: all data that reports are made from.
//!
//! Stored as JSON. The book documents the schema; a change that readers notice raises [`SCHEMA`].

pub mod pace;
pub mod rate;
pub(super) mod slots;
pub(super) mod times;

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::base::{Bytes, Nanos, Space, counted, json};
use crate::compile::Compiled;
use crate::exec::{LaunchMode, Sensors};
use crate::model::{Program, Units};
use crate::schedule::{Lane, Schedule, Topology};

use super::statistics::direction;
use super::statistics::effect::Direction;

mod advice;
mod fusion;
mod ranks;
mod source;

pub use super::verify::record::{
    CheckedOperations, OutputVerification, VariantVerification, VerificationRecord, WrongLaunch,
};
pub use advice::AdviceRecord;
pub use fusion::{BrokenRecord, FusionRecord, MergedRecord};
pub use ranks::*;
pub use source::{FileContents, SourceFiles};
pub use times::{SlotTimes, Times};

/// Name and version of the schema.
pub const SCHEMA: &str = "aorta.run/1";

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RunRecord {
    pub schema: String,
    /// Version of aorta that made the record.
    pub aorta: String,
    /// Start time, UTC, RFC 3339.
    pub started: String,
    /// True if all results come from a model instead of a clock.
    pub simulated: bool,
    /// Number of ranks of an emulated world, of which the device runs one. A kernel that occupies compute units for a
    /// tabulated time replaces each operation with other ranks. `None` for a real run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emulated: Option<u32>,
    /// True if warm-up and iterations suffice for a measurement.
    pub measurement: bool,
    pub complete: bool,
    pub workload: Workload,
    pub settings: SettingsRecord,
    pub device: DeviceRecord,
    pub environment: Environment,
    pub program: ProgramRecord,
    /// The operations that were merged; `None` without `--fuse`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fusion: Option<FusionRecord>,
    pub variants: Vec<Variant>,
    /// Results of the verification; `None` if none was requested.
    pub verification: Option<VerificationRecord>,
    /// Hardware counters of the operations that `--counters` names; empty without it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counters: Vec<CountersRecord>,
    /// Metrics with the normal ranges of this kind of device. Empty if none are known, or nothing was measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expected: Vec<ExpectedRecord>,
    /// Warnings that a reader must know before trusting a result.
    pub warnings: Vec<String>,
    /// The files of the run with a scenario that repeats it. `None` in records of older versions and of cases, and if
    /// the setting `record_text` is off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<SourceFiles>,
}

/// The workload's file and parameters.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Workload {
    pub name: String,
    /// First line of the file's description.
    pub summary: String,
    /// `library`, or the path that was given.
    pub origin: String,
    /// SHA-256 of the text, in hexadecimal.
    pub sha256: String,
    /// Category in the file's `meta`; `None` without one.
    pub category: Option<String>,
    /// Preset that the parameters were taken from; `None` without one.
    pub preset: Option<String>,
    /// Every parameter with its value.
    pub params: IndexMap<String, String>,
}

impl Workload {
    /// The facts of a compiled workload; its origin is its name.
    pub fn of(compiled: &Compiled) -> Workload {
        Workload {
            name: compiled.name.clone(),
            summary: compiled.ast.summary(),
            origin: compiled.name.clone(),
            sha256: compiled.sha256.clone(),
            category: compiled.ast.category(),
            preset: compiled.preset.clone(),
            params: compiled.program().params.iter().cloned().collect(),
        }
    }
}

/// Settings of the run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SettingsRecord {
    pub backend: String,
    pub launch: String,
    pub effort: String,
    pub warmup: u32,
    pub iterations: u32,
    pub sync: String,
    pub depth: u32,
    /// Limit of real streams; `None` if none was given or the file has a parameter of that name.
    pub streams: Option<u32>,
    pub in_flight: u32,
    #[serde(default = "one")]
    pub ranks: u32,
    /// `auto` or `off`: whether iterations are gated.
    #[serde(default)]
    pub gate: String,
    /// `hot` or `cold`: state of the device's caches at the start of an iteration.
    #[serde(default)]
    pub cache: String,
    /// Initial contents of floats that the file declares `random`.
    #[serde(default)]
    pub data: String,
}

/// Default for records of older versions, which had one rank.
fn one() -> u32 {
    1
}

/// The device and its backend.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct DeviceRecord {
    pub name: String,
    /// Number of the device in the vendor's order; `None` if it is simulated or the CPU.
    pub index: Option<u32>,
    /// Number of compute units; for the CPU, number of its processors. `None` if unknown.
    pub units: Option<u32>,
    /// Bytes of the device's own memory; `None` if it shares the host's.
    pub memory_bytes: Option<u64>,
    /// Versions of driver, compiler and libraries, and other facts that the backend reports.
    pub facts: IndexMap<String, String>,
}

/// The host machine.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Environment {
    pub host: String,
    pub os: String,
    pub cpu: String,
    /// Number of processors available to this program.
    pub cpus: u32,
    /// Bytes of host memory; `None` if unknown.
    pub memory_bytes: Option<u64>,
    /// Kernel settings, processors and NUMA nodes of the machine.
    #[serde(default)]
    pub facts: IndexMap<String, String>,
    /// Environment variables that drivers and libraries read.
    pub variables: IndexMap<String, String>,
}

/// Work of a rank's program, with the meanings that the fields have in [`ProgramRecord`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RankWork {
    pub operations: usize,
    pub cycle_operations: usize,
    pub flops: f64,
    pub bytes: u64,
}

/// Properties of the first rank's program and schedule.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ProgramRecord {
    /// Operations of the first iteration.
    pub operations: usize,
    /// Number of slots: iterations after which the programs of all ranks repeat.
    pub cycle: usize,
    /// Operations of all slots of the cycle.
    pub cycle_operations: usize,
    /// Arithmetic operations of an iteration, averaged over the cycle, as `bytes` is.
    pub flops: f64,
    pub bytes: u64,
    /// Work of each rank of the world, emulated ones included. Empty if the world has one rank, and in records of older
    /// versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranks: Vec<RankWork>,
    /// SHA-256, in hexadecimal, of everything that determines execution on all ranks: memory, operations with operands,
    /// streams and queues, order of issue, waits. Runs with equal hashes execute the same. `None` in records of older
    /// versions, and of interrupted runs of very many operations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    pub streams: usize,
    pub lanes: Vec<LaneRecord>,
    /// Waits between streams per iteration, when launched as streams.
    pub waits: usize,
    pub events: u32,
    pub memory: MemoryRecord,
    /// The file's kernels that the first rank calls, by name, with the SHA-256 of their code in hexadecimal. Empty in records of
    /// older versions.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub kernels: BTreeMap<String, String>,
    /// Changes of the first rank's text that would save operations, that with the largest gain first. Empty in records of
    /// older versions, and for a backend without a device profile.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub advice: Vec<AdviceRecord>,
}

/// A real stream.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LaneRecord {
    pub name: String,
    /// Streams of the program that share it.
    pub streams: Vec<String>,
    pub priority: String,
    /// The share of compute units that the lane is limited to, such as `64 units`; `None` for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub units: Option<String>,
    /// The predicted hardware queue; 0 for a host stream, which has none.
    pub queue: u32,
    /// Number of threads of the CPU that do the work of a host stream; `None` for a stream of the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// True if each priority has hardware queues of its own: then `queue` counts within the priority.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub queues_by_priority: bool,
}

impl LaneRecord {
    /// The record of a lane of `program` on a device with these hardware queues.
    pub fn of(lane: &Lane, program: &Program, topology: Topology) -> LaneRecord {
        LaneRecord {
            name: lane.name.clone(),
            streams: lane.streams.iter().map(|stream| program.streams[stream.index()].name.clone()).collect(),
            priority: lane.priority.name(),
            units: lane.units.filter(|_| topology.limits_units).map(Units::text),
            queue: lane.threads.map_or(lane.queue, |_| 0),
            threads: lane.threads.map(NonZeroU32::get),
            queues_by_priority: topology.by_priority,
        }
    }

    /// The hardware queue for a table, such as `2`, or `high 2` where high priority has queues of its own; `CPU` for a
    /// host stream.
    pub fn queue_text(&self) -> String {
        match self.threads {
            Some(_) => "CPU".to_owned(),
            None if self.queues_by_priority && self.priority != "normal" => format!("{} {}", self.priority, self.queue),
            None => self.queue.to_string(),
        }
    }

    /// The part of the device or the threads of the CPU that it keeps to, for a table; empty for the whole device.
    pub fn limits_text(&self) -> String {
        match (&self.units, self.threads) {
            (_, Some(threads)) => format!(" ({})", counted(threads as usize, "thread")),
            (Some(units), None) => format!(" ({units})"),
            (None, None) => String::new(),
        }
    }
}

/// Bytes of memory that the schedule uses, by space.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct MemoryRecord {
    pub device: Bytes,
    pub pinned: Bytes,
    /// Bytes of managed memory; absent if there is none.
    #[serde(default, skip_serializing_if = "Bytes::is_zero")]
    pub managed: Bytes,
    pub host: Bytes,
    /// Part of `device` that is scratch memory.
    pub scratch: Bytes,
    /// Bytes of device memory beside `device` that generated kernels use while they run, such as for copies of the factors of a product;
    /// absent if there are none.
    #[serde(default, skip_serializing_if = "Bytes::is_zero")]
    pub workspace: Bytes,
}

impl MemoryRecord {
    /// The bytes that the schedule of a program uses.
    pub fn of(program: &Program, schedule: &Schedule) -> MemoryRecord {
        let bytes = |space| Bytes(schedule.bytes(space));
        MemoryRecord {
            device: bytes(Space::Device),
            pinned: bytes(Space::Pinned),
            managed: bytes(Space::Managed),
            host: bytes(Space::Host),
            scratch: Bytes(schedule.memory.scratch * u64::from(schedule.memory.copies)),
            workspace: Bytes(schedule.workspaces(program)),
        }
    }
}

/// The launch mode of that name in a sentence: `as streams` or `as a graph`.
pub fn launched(launch: &str) -> &'static str {
    LaunchMode::from_name(launch).unwrap_or(LaunchMode::Stream).phrase()
}

/// An observer effect in words: `47 % more time`, or `28 % less time`.
pub fn observer_effect_text(effect: f64) -> String {
    let less = if effect < 0.0 { "less" } else { "more" };
    format!("{:.0} % {less} time", 100.0 * effect.abs())
}

/// Results of one launch mode.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Variant {
    /// Launch mode: `stream` or `graph`.
    pub launch: String,
    /// Device time from the start of an iteration to its end; with several ranks, of the slowest one.
    pub time: Times,
    /// Reason why `time` has samples but no statistics; `None` if it has statistics.
    pub refused: Option<String>,
    /// Discarded iterations before the measurement.
    #[serde(default)]
    pub warmup: WarmupRecord,
    /// Host time for issuing an iteration.
    pub issue: Times,
    /// Times of ungated iterations; `None` if `time` itself is ungated.
    pub ungated: Option<Times>,
    /// Times of the same operations on one stream; `None` if no metric needs them.
    pub serial: Option<Times>,
    pub metrics: Vec<MetricRecord>,
    pub expectations: Vec<ExpectationRecord>,
    pub ranks: Vec<RankRecord>,
    /// Skew between ranks; `None` for one rank, or without operations between ranks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skew: Option<SkewRecord>,
    /// State of the device before and after the measured iterations. Empty if it reports none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub health: Vec<Sensors>,
    /// The blocks of measured iterations between which the device was queried. Empty if it was not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocks: Vec<BlockRecord>,
    /// Notes of the backend: fallbacks, algorithms.
    pub notes: Vec<String>,
    /// Time that the compiler took for kernels before the first iteration, 0 if all were in the cache; `None` if the backend
    /// compiles none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compile_ns: Option<Nanos>,
}

/// Consecutive measured iterations.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct BlockRecord {
    /// Index of the block's first sample in `time.samples_ns`.
    pub first: usize,
    /// Number of the block's samples.
    pub iterations: usize,
    /// State of each device after the block.
    pub health: Vec<Sensors>,
    /// Reasons of throttling during the block, in words; `None` without throttling.
    pub throttled: Option<String>,
}

/// Discarded iterations before the measured ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WarmupRecord {
    /// Number of iterations.
    pub iterations: u64,
    /// Relative change of the last round's times from the first to the last third; `None` without a trend.
    pub trend: Option<f64>,
    /// True if the last round had no trend; `None` if it was too short to decide.
    pub settled: Option<bool>,
    /// Time of the first iteration after the preparation; `None` if it was not timed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_ns: Option<Nanos>,
}

/// The value of a metric.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct MetricRecord {
    pub name: String,
    /// Value in SI units: seconds, bytes, per second; `None` if it could not be computed. If the program has several slots,
    /// the value is that of a round.
    pub value: Option<f64>,
    pub unit: String,
    /// Direction in which the value gets better; `None` unless the expression determines it and neither the unit nor
    /// the name does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub better: Option<Direction>,
    /// Value as displayed.
    pub text: String,
    /// Reason why there is no value; `None` if there is one.
    pub note: Option<String>,
    /// Number of ranks that the value is from; `None` if it is from all. The others have none of the metric's operations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranks: Option<u32>,
    /// Value in each slot, in the same unit; `None` for slots without one. Empty if all iterations are alike, and for
    /// metrics that are not about iterations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slots: Vec<Option<f64>>,
    /// Range of the values in `slots`; `None` if no slot has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over_slots: Option<OverSlots>,
}

impl MetricRecord {
    /// Direction in which the metric gets better; `None` if neither unit, name nor expression tells.
    pub fn direction(&self) -> Option<Direction> {
        direction::of(&self.name, &self.unit).or(self.better)
    }
}

/// Least, median and greatest of the slots' values, as displayed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverSlots {
    pub min: String,
    pub median: String,
    pub max: String,
}

/// Outcome of an expectation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExpectationRecord {
    /// Text in the file.
    pub text: String,
    pub place: String,
    /// `held`, `failed`, or `skipped` if its `when` condition is false.
    pub verdict: String,
    /// The reason why a figure of a failed expectation has no value; `None` if all have one, and in records of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The figures of a failed expectation with their values: `` `time` is 8.007 µs ``. `None` if it has not failed or a figure has no
    /// value, and in records of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
}

/// A metric with its normal range on devices of this model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ExpectedRecord {
    /// Displayed name.
    pub name: String,
    /// The operation with its shape, or the metric.
    pub of: String,
    /// Launch mode: `stream` or `graph`.
    pub launch: String,
    /// The slowest rank; `None` if there is one rank.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// Number of operations whose median the value is.
    pub count: usize,
    /// Value in SI units.
    pub value: f64,
    /// Value as reports show it.
    pub text: String,
    /// Ends of the range, in the same unit; `None` for an open end.
    pub low: Option<f64>,
    pub high: Option<f64>,
    pub normal: String,
    /// `normal`, `slower` or `faster`.
    pub verdict: String,
    /// The typical value.
    pub seen: String,
    /// Source of the typical value: a measurement or a publication.
    pub source: String,
    /// Likely causes to check first if the value is not normal.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub check: Vec<String>,
}

impl Variant {
    /// The rank with the longest median time, which the headline is close to; the first of several with equal times.
    pub fn slowest_rank(&self) -> Option<&RankRecord> {
        self.ranks.iter().rev().max_by_key(|rank| rank.time.p50_ns)
    }
}

impl RunRecord {
    /// Serializes the record as JSON with a final newline.
    pub fn to_json(&self) -> String {
        json::document(self)
    }

    /// The first rank that was run: 0, or the emulated one.
    pub fn first_rank(&self) -> u32 {
        self.variants.first().and_then(|variant| variant.ranks.first()).map_or(0, |rank| rank.rank)
    }

    /// Work of a rank; `None` if the record lacks it, as records of older versions do for all but the first rank.
    pub fn work(&self, rank: u32) -> Option<RankWork> {
        let ProgramRecord { operations, cycle_operations, flops, bytes, ref ranks, .. } = self.program;
        let first = RankWork { operations, cycle_operations, flops, bytes };
        ranks.get(rank as usize).copied().or_else(|| (rank == self.first_rank()).then_some(first))
    }

    /// True if the run was interrupted before its first measured iteration.
    pub fn has_no_iteration(&self) -> bool {
        !self.complete && lack_samples(&self.variants)
    }
}

/// True if no launch mode has measured an iteration.
pub fn lack_samples(variants: &[Variant]) -> bool {
    variants.iter().all(|variant| variant.time.n == 0)
}

/// Name of an operation without indices: `f[3].up` and `f[4].up` share a row.
pub fn plain_name(name: &str) -> String {
    let mut depth = 0;
    name.chars()
        .filter(|c| {
            match c {
                '[' => depth += 1,
                ']' => {
                    depth -= 1;
                    return false;
                }
                _ => {}
            }
            depth == 0
        })
        .collect()
}
