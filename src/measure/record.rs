//! The record of a run: everything that a report can say, and what it was said of.
//!
//! Written as JSON. The schema is documented in the book; a change that a reader would notice raises [`SCHEMA`].

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::base::{Bytes, json};
use crate::compile::Compiled;

mod new;
mod ranks;

pub use super::times::{SlotTimes, Times};
use super::valid;
pub use super::verify::record::{
    CheckedOperations, Mistake, OutputVerification, VariantVerification, VerificationRecord,
};
pub use ranks::*;

/// The name and version of the schema.
pub const SCHEMA: &str = "aorta.run/1";

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunRecord {
    pub schema: String,
    /// The version of the program that made the record.
    pub aorta: String,
    /// When the run began, UTC, RFC 3339.
    pub started: String,
    /// Every figure comes from a model, not from a clock.
    pub simulated: bool,
    /// The ranks of the world of which the device stands for one: what it would do together with others is a kernel that
    /// holds units for the time of a table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emulated: Option<u32>,
    /// Warm-up and iterations sufficed to speak of a measurement.
    pub measurement: bool,
    /// The run went to its end.
    pub complete: bool,
    pub workload: Workload,
    pub settings: Settings,
    pub device: Device,
    pub environment: Environment,
    pub program: ProgramRecord,
    pub variants: Vec<Variant>,
    pub verification: Option<VerificationRecord>,
    /// Figures beside what is normal on such a device; none where nothing is known of it, or nothing was measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expected: Vec<ExpectedRecord>,
    /// What a reader has to know before believing a figure.
    pub warnings: Vec<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Workload {
    pub name: String,
    /// The first line of the file's description.
    pub summary: String,
    /// `library`, or the path that was given.
    pub origin: String,
    /// SHA-256 of the text, in hexadecimal.
    pub sha256: String,
    pub category: Option<String>,
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

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Settings {
    pub backend: String,
    pub launch: String,
    pub effort: String,
    pub warmup: u32,
    pub iterations: u32,
    pub sync: String,
    pub depth: u32,
    /// The ceiling of real streams, where one was given and the file has no parameter of that name.
    pub streams: Option<u32>,
    pub in_flight: u32,
    #[serde(default = "one")]
    pub ranks: u32,
    /// `auto` or `off`: whether iterations are held until they have been issued.
    #[serde(default)]
    pub gate: String,
    /// `hot` or `cold`: how iterations find the device's caches.
    #[serde(default)]
    pub cache: String,
    /// What floats held at the beginning where the file says `random`.
    #[serde(default)]
    pub data: String,
}

/// Ranks of a record that does not say how many: older ones had one.
fn one() -> u32 {
    1
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Device {
    pub name: String,
    pub index: Option<u32>,
    pub units: Option<u32>,
    pub memory_bytes: Option<u64>,
    /// Driver, compiler and libraries with their versions, and whatever else the backend says.
    pub facts: IndexMap<String, String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Environment {
    pub host: String,
    pub os: String,
    pub cpu: String,
    /// Processors that this program may use.
    pub cpus: u32,
    /// Bytes of the host's memory.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
    /// Switches of the kernel, processors and memory nodes of the machine.
    #[serde(default)]
    pub facts: IndexMap<String, String>,
    /// Variables that drivers and libraries read.
    pub variables: IndexMap<String, String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProgramRecord {
    /// Operations of the first iteration.
    pub operations: usize,
    /// Slots: iterations after which the programs of all ranks repeat.
    pub cycle: usize,
    /// Operations of all slots of the cycle.
    pub cycle_operations: usize,
    /// Of an iteration; the mean over the cycle, as `bytes` is.
    pub flops: f64,
    pub bytes: u64,
    /// SHA-256, in hexadecimal, of what all ranks run: memory, operations with their operands, streams and queues, the
    /// order of issue, waits. Runs with equal ones run the same. Absent from records of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    pub streams: usize,
    pub lanes: Vec<LaneRecord>,
    /// Waits between streams that a stream-mode iteration issues.
    pub waits: usize,
    pub events: u32,
    pub memory: MemoryRecord,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LaneRecord {
    pub name: String,
    /// The program's streams that share it.
    pub streams: Vec<String>,
    pub priority: String,
    /// The part of the device that it keeps to: `64 units`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub units: Option<String>,
    /// The hardware queue that it is expected on.
    pub queue: u32,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct MemoryRecord {
    pub device: Bytes,
    pub pinned: Bytes,
    pub host: Bytes,
    /// What of `device` is scratch.
    pub scratch: Bytes,
}

/// One way of running the same program.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Variant {
    /// `stream` or `graph`.
    pub launch: String,
    /// From the beginning of an iteration to its end, on the device; over ranks, the slowest's.
    pub time: Times,
    /// Why `time` holds samples and no statistics.
    #[serde(default)]
    pub refused: Option<String>,
    /// What was run and thrown away before.
    #[serde(default)]
    pub warmup: WarmupRecord,
    /// How long the host took to issue an iteration.
    pub issue: Times,
    /// Without the gate, where `time` is that of iterations that were held until they had been issued.
    #[serde(default)]
    pub ungated: Option<Times>,
    /// The same operations on one stream, measured alike, where a figure asks for it.
    pub serial: Option<Times>,
    pub metrics: Vec<MetricRecord>,
    pub expectations: Vec<ExpectationRecord>,
    pub ranks: Vec<RankRecord>,
    /// How far the ranks are apart; nothing of one rank, or where they do not meet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skew: Option<SkewRecord>,
    /// How the device was doing before and after the measured iterations, where it says so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub health: Vec<HealthRecord>,
    /// The measured iterations in the blocks between which the device was asked; none where it was not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocks: Vec<BlockRecord>,
    /// What the backend had to say: fall-backs, algorithms.
    pub notes: Vec<String>,
}

/// What a device said of itself at one moment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct HealthRecord {
    pub clock_mhz: Option<u32>,
    pub max_clock_mhz: Option<u32>,
    pub power_watts: Option<u32>,
    pub power_limit_watts: Option<u32>,
    pub celsius: Option<u32>,
    /// What held the clock down.
    pub reasons: Vec<String>,
}

/// Some of the measured iterations, one after the other.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct BlockRecord {
    /// The place of its first sample in `time.samples_ns`, and how many it has.
    pub first: usize,
    pub iterations: usize,
    /// How the device was doing behind it; over ranks, each.
    pub health: Vec<HealthRecord>,
    /// What held a device back meanwhile, in words.
    pub throttled: Option<String>,
}

/// Iterations that were run before the measured ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WarmupRecord {
    pub iterations: u64,
    /// How much the last round's times changed from its first third to its last, as a share; nothing without a trend.
    pub trend: Option<f64>,
    /// The last round had no trend; nothing where it was too short to tell.
    pub settled: Option<bool>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct MetricRecord {
    pub name: String,
    /// In SI units: seconds, bytes, per second; absent where it could not be worked out. Of a program whose iterations
    /// differ, the value over a round.
    pub value: Option<f64>,
    pub unit: String,
    /// As people read it.
    pub text: String,
    /// Why there is no value.
    pub note: Option<String>,
    /// The value of each slot, in the same unit, `None` where a slot has none. Empty where all iterations are alike, and
    /// for what is no figure of iterations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slots: Vec<Option<f64>>,
    /// What lies between these values; absent without them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over_slots: Option<OverSlots>,
}

/// The least, the median and the greatest of values of several slots, as people read them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverSlots {
    pub min: String,
    pub median: String,
    pub max: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExpectationRecord {
    /// As the file has it.
    pub text: String,
    pub place: String,
    /// `held`, `failed`, or `skipped` where its `when` does not hold.
    pub verdict: String,
}

/// A figure beside what is normal on such a device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ExpectedRecord {
    /// What it is, for people.
    pub name: String,
    /// The operation with its shape, or the metric.
    pub of: String,
    /// `stream` or `graph`.
    pub launch: String,
    /// The slowest rank, where there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// Operations of which the value is the median.
    pub count: usize,
    /// In SI units, and as people read it.
    pub value: f64,
    pub text: String,
    /// The ends of the range, in the same units; one may be absent.
    pub low: Option<f64>,
    pub high: Option<f64>,
    pub normal: String,
    /// `normal`, `slower` or `faster`.
    pub verdict: String,
    /// What the range stands around, and where it was seen.
    pub seen: String,
    pub source: String,
    /// What to look at first, where it is not normal.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub check: Vec<String>,
}

impl RunRecord {
    /// Reads a record; the error says what is wrong with the text.
    pub fn from_json(text: &str) -> Result<RunRecord, String> {
        #[derive(Deserialize)]
        #[serde(expecting = "a record")]
        struct Head {
            schema: Option<String>,
        }
        let head: Head = json::read(text.as_bytes()).map_err(|error| format!("it is no JSON of a run: {error}"))?;
        match head.schema.as_deref() {
            Some(SCHEMA) => {
                let record = json::read(text.as_bytes()).map_err(|error| format!("it is damaged: {error}"))?;
                valid::check(&record).map_err(|why| format!("it is damaged: {why}"))?;
                Ok(record)
            }
            Some(other) => Err(format!("it has the schema `{other}`, and this version reads `{SCHEMA}`")),
            None => Err("it has no `schema`: it is not a record of this program".to_owned()),
        }
    }

    /// The record as JSON, ending with a newline.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("a record holds nothing that JSON cannot");
        text.push('\n');
        text
    }
}
