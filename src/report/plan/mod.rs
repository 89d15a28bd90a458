//! The plan as a document: dependencies and their reasons. `aorta plan` makes every form from it.
//!
//! The JSON of a plan follows the schema [`SCHEMA`], which the book documents; a change visible to readers increments its number.
//! Times are whole nanoseconds from a device profile; nothing here is measured.

pub(super) mod advice;
mod build;
mod cases;
mod diff;
mod dot;
mod json;
mod kept;
mod mermaid;
mod page;
mod text;

use std::fmt;
use std::sync::Arc;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::base::{Nanos, OnceBlock};
use crate::measure::record::{AdviceRecord, FusionRecord, LaneRecord, MemoryRecord, Workload};
pub use crate::plan::Hazard;

pub use build::{DocumentInputs, build};
pub use cases::cases;
pub use diff::diff;
pub use dot::dot;
pub use json::{json, parse};
pub use mermaid::mermaid;
pub use page::page;
pub use text::text;

/// Name and version of the schema.
pub const SCHEMA: &str = "aorta.plan/1";

/// Names and slices repeat in many operations, so each text is stored once.
pub type Text = Arc<str>;

/// The plan of a workload, its schedule, and modelled times.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PlanDocument {
    pub schema: String,
    /// Version of aorta that made the document.
    pub aorta: String,
    pub workload: Workload,
    /// Number of ranks of the world; `None` in documents of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranks: Option<u32>,
    /// The device whose profile the times are modelled with.
    pub modelled_on: String,
    /// `iteration` if an iteration begins when the last is complete, `end` if iterations may overlap.
    pub sync: String,
    /// Number of iterations that may be under way.
    pub depth: u32,
    /// Number of streams that the file declares.
    pub streams: usize,
    /// Real streams, each with the declared streams that share it.
    pub lanes: Vec<LaneRecord>,
    pub queues: Queues,
    /// Waits between real streams in one period of the schedule.
    pub waits: usize,
    pub events: u32,
    pub memory: MemoryRecord,
    /// Hash of the buffers' names and initial values; `None` in documents of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_values: Option<Text>,
    /// The slots of the cycle, which repeats afterwards.
    pub iterations: Vec<Iteration>,
    /// The `setup`, which runs once before the first iteration; `None` if the file has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setup: Option<Iteration>,
    /// The `teardown`, which runs once after the last iteration; `None` if the file has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub teardown: Option<Iteration>,
    /// The operations that were merged; `None` without `--fuse`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fusion: Option<FusionRecord>,
    /// Changes of the text that would save operations, that with the largest gain first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub advice: Vec<AdviceRecord>,
}

/// A part of the document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum SlotPlan {
    /// A slot of the cycle.
    Iteration(usize),
    /// A block around the iterations.
    Block(OnceBlock),
}

/// The device's hardware queues, over which real streams are distributed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Queues {
    /// Number of queues; for each priority if priorities have their own.
    pub count: u32,
    /// True if each priority has queues of its own.
    pub by_priority: bool,
    /// Number of queues with a real stream that has operations.
    pub used: usize,
    /// Number of queues with more than one such stream.
    pub shared: usize,
}

/// An iteration of the plan's cycle.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Iteration {
    pub flops: f64,
    pub bytes: u64,
    /// Operations in the order of the text, which is a valid order of execution.
    pub operations: Vec<PlannedOperation>,
    /// Edges in the order of the operations that wait.
    pub edges: Vec<PlannedDependency>,
    pub critical_path: CriticalPath,
    /// Scratch memory that gradients read after their forward operations have written it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<KeptMemory>,
}

/// Memory that is kept until a gradient has been computed with its contents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptMemory {
    /// Description of the memory, such as `output of h`.
    pub memory: Text,
    /// The space of the memory, such as `device`.
    pub space: Text,
    /// Type of the whole memory, such as `f32[4, 8]`.
    #[serde(rename = "type")]
    pub form: Text,
    pub bytes: u64,
    /// The first operation that writes the memory.
    pub from: u32,
    /// The last operation of a gradient that reads the memory.
    pub to: u32,
    /// Earliest start of `from`.
    pub from_ns: Nanos,
    /// Earliest end of `to`.
    pub to_ns: Nanos,
}

/// An operation of an iteration, with its operands and modelled times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedOperation {
    /// Index in `operations`.
    pub id: u32,
    pub label: Option<Text>,
    /// The kind, such as `gemm` or `signal`.
    pub operation: Text,
    /// Hash of the operation's options, expression, constants and group of ranks, unless that is the world; `None` for
    /// markers, which have none, and in documents of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub computes: Option<Text>,
    pub phase: Option<Text>,
    /// The declared stream.
    pub stream: Text,
    /// Index of the real stream in `lanes`.
    pub lane: u32,
    /// Source location.
    pub place: Text,
    pub inputs: Vec<Slice>,
    pub outputs: Vec<Slice>,
    /// The sends and receives of a copy between ranks; `None` for other operations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<RankCopy>,
    /// Implementation of the operation, such as a library or a generated kernel; `None` if it follows from the kind,
    /// and in documents of earlier versions.
    #[serde(rename = "carried_out", default, skip_serializing_if = "Option::is_none")]
    pub implementation: Option<Text>,
    pub flops: f64,
    pub bytes: u64,
    /// Modelled duration when the operation has the device alone.
    pub duration_ns: Nanos,
    /// Earliest start: when everything that it waits for is complete.
    pub start_ns: Nanos,
    /// Time by which the operation may end later without lengthening the critical path.
    pub slack_ns: Nanos,
    /// True if the operation is on the critical path.
    pub critical: bool,
}

/// The sends and receives of a copy between ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankCopy {
    /// The receiving rank and the slice that is written there; `None` if this rank sends nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<(u32, Slice)>,
    /// For each output, the rank that writes it.
    pub from: Vec<u32>,
}

/// A slice that an operation reads or writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slice {
    /// The slice as written, such as `x[0..4]`.
    pub slice: Text,
    /// Type of the slice, such as `f32[4, 8]`.
    pub shape: Text,
}

/// A dependency: one operation waits for another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedDependency {
    pub from: u32,
    pub to: u32,
    /// Number of iterations by which `from` is earlier.
    pub distance: u32,
    #[serde(flatten)]
    pub reason: Reason,
    /// Location of an `after` that declares the dependency in addition to data; `None` if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub declared: Option<Text>,
}

/// Reason why one operation waits for another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Reason {
    /// The earlier and the later operation are on the same stream, which executes in order.
    Stream,
    /// The later operation accesses `slice`, which overlaps `from_slice` of the earlier one.
    Data { hazard: Hazard, slice: Text, from_slice: Text },
    /// An `after` at the location `place`.
    After { place: Text },
    /// A `wait` at the location `place`.
    Wait { place: Text },
    /// A `sync()` between the operations, or one of them is a `sync()`.
    Sync,
}

/// The chain of dependencies that takes longest.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CriticalPath {
    pub length_ns: Nanos,
    /// Sum of the durations of all operations.
    pub sum_ns: Nanos,
    pub operations: Vec<u32>,
}

impl PlanDocument {
    /// Number of operations in all slots.
    pub fn operations(&self) -> usize {
        self.iterations.iter().map(|iteration| iteration.operations.len()).sum()
    }

    /// Number of edges in all slots.
    pub fn edges(&self) -> usize {
        self.iterations.iter().map(|iteration| iteration.edges.len()).sum()
    }

    /// Name of an operation in a drawing of all parts.
    fn node(&self, slot: SlotPlan, op: u32) -> String {
        if self.slots().len() > 1 { format!("{}_n{op}", drawn_name(slot)) } else { format!("n{op}") }
    }

    /// Slots of the plan's parts, in the order of execution: the block before the iterations, the iterations, the block after them.
    fn slots(&self) -> Vec<SlotPlan> {
        let cycle = (0..self.iterations.len()).map(SlotPlan::Iteration);
        let block = |which: OnceBlock| Some(SlotPlan::Block(which)).filter(|slot| self.at(*slot).is_some());
        block(OnceBlock::Setup).into_iter().chain(cycle).chain(block(OnceBlock::Teardown)).collect()
    }

    /// The plan's part in a slot; `None` if the plan has no such part.
    fn at(&self, slot: SlotPlan) -> Option<&Iteration> {
        match slot {
            SlotPlan::Iteration(index) => self.iterations.get(index),
            SlotPlan::Block(OnceBlock::Setup) => self.setup.as_ref(),
            SlotPlan::Block(OnceBlock::Teardown) => self.teardown.as_ref(),
        }
    }

    /// Iterates over all parts of the plan in the order of execution, each with its slot.
    fn parts(&self) -> impl Iterator<Item = (SlotPlan, &Iteration)> {
        self.slots().into_iter().filter_map(|slot| Some((slot, self.at(slot)?)))
    }

    /// Iterates over the plan's parts in the order of execution, each with its heading.
    pub fn named_parts(&self) -> impl Iterator<Item = (String, &Iteration)> {
        self.parts().map(|(slot, iteration)| (self.heading(slot), iteration))
    }

    /// Returns the plan's parts, each with its heading: first the iterations, then the blocks around them.
    pub fn iterations_first(&self) -> Vec<(String, &Iteration)> {
        let mut parts: Vec<(SlotPlan, &Iteration)> = self.parts().collect();
        parts.sort_by_key(|(slot, _)| matches!(slot, SlotPlan::Block(_)));
        parts.into_iter().map(|(slot, iteration)| (self.heading(slot), iteration)).collect()
    }

    /// The operation at the start of an edge, in this part or an earlier iteration; `None` if it is not there.
    fn source(&self, slot: SlotPlan, edge: &PlannedDependency) -> Option<&PlannedOperation> {
        self.at(self.earlier(slot, edge.distance))?.operations.get(edge.from as usize)
    }

    /// The slot `distance` iterations before another; a block around the iterations itself.
    fn earlier(&self, slot: SlotPlan, distance: u32) -> SlotPlan {
        match slot {
            SlotPlan::Iteration(index) => {
                let cycle = self.iterations.len();
                SlotPlan::Iteration((index + cycle - distance as usize % cycle) % cycle)
            }
            block @ SlotPlan::Block(_) => block,
        }
    }

    /// Returns the heading of a slot, of the setup or of the teardown.
    fn heading(&self, slot: SlotPlan) -> String {
        match slot {
            SlotPlan::Iteration(_) if self.iterations.len() == 1 => "iteration".to_owned(),
            SlotPlan::Iteration(index) => format!("slot {index} of {}", self.iterations.len()),
            SlotPlan::Block(which) => which.name().to_owned(),
        }
    }

    /// The title, such as `moe.aorta (preset tiny): streams=4 tokens=16`.
    pub fn title(&self) -> String {
        let Workload { name, preset, params, .. } = &self.workload;
        let preset = preset.as_ref().map(|preset| format!(" (preset {preset})")).unwrap_or_default();
        let params: Vec<String> = params.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let colon = if params.is_empty() { "" } else { ": " };
        format!("{name}{preset}{colon}{}", params.join(" "))
    }
}

impl PlannedOperation {
    /// Name in tables: the label, otherwise the kind.
    pub fn name(&self) -> &str {
        self.label.as_deref().unwrap_or(&self.operation)
    }

    /// The heading, such as `#3 probs: softmax`.
    fn heading(&self) -> String {
        match &self.label {
            Some(label) => format!("#{} {label}: {}", self.id, self.operation),
            None => format!("#{} {}", self.id, self.operation),
        }
    }

    /// True for a `signal`, `wait` or `sync`, which has no operands.
    fn is_marker(&self) -> bool {
        matches!(&*self.operation, "signal" | "wait" | "sync" | "host_sync")
    }
}

impl Hazard {
    /// Verbs for the later and the earlier access.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Hazard::ReadAfterWrite => ("reads", "written"),
            Hazard::WriteAfterRead => ("writes", "read"),
            Hazard::WriteAfterWrite => ("writes", "written"),
        }
    }
}

impl fmt::Display for Reason {
    /// Formats the reason to follow the name of the operation that is waited for.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Stream => f.write_str("same stream"),
            Reason::Sync => f.write_str("sync"),
            Reason::After { place } => write!(f, "declared at {place}"),
            Reason::Wait { place } => write!(f, "the wait at {place}"),
            Reason::Data { hazard, slice, from_slice } => {
                let (later, earlier) = hazard.words();
                write!(f, "{later} {slice}, {earlier} there")?;
                if slice == from_slice { Ok(()) } else { write!(f, " as {from_slice}") }
            }
        }
    }
}

/// Number of operations listed at the start and at the end of a critical path.
const NAMED: usize = 12;

impl Iteration {
    /// The operations of each stream that has any, in the order of their first operations.
    fn by_stream(&self) -> Vec<Vec<&PlannedOperation>> {
        let mut streams: IndexMap<&str, Vec<&PlannedOperation>> = IndexMap::new();
        for operation in &self.operations {
            streams.entry(&operation.stream).or_default().push(operation);
        }
        streams.into_values().collect()
    }

    /// Every operation with its incoming edges.
    fn with_edges(&self) -> impl Iterator<Item = (&PlannedOperation, &[PlannedDependency])> {
        let mut rest = self.edges.as_slice();
        self.operations.iter().map(move |operation| {
            let count = rest.iter().take_while(|edge| edge.to == operation.id).count();
            let (own, later) = rest.split_at(count);
            rest = later;
            (operation, own)
        })
    }

    /// True if an edge connects consecutive operations of the critical path.
    pub fn on_path(&self, edge: &PlannedDependency) -> bool {
        let path = &self.critical_path.operations;
        // The path is in the order of the text.
        edge.distance == 0 && path.binary_search(&edge.to).is_ok_and(|at| at > 0 && path[at - 1] == edge.from)
    }

    /// The names of the critical path's operations; only the first and last ones of a long path.
    fn path_names(&self) -> String {
        let path = &self.critical_path.operations;
        let name = |op: &u32| format!("#{op} {}", self.operations[*op as usize].name());
        let list = |ops: &[u32]| ops.iter().map(name).collect::<Vec<_>>().join(" > ");
        match path.len().checked_sub(2 * NAMED).filter(|hidden| *hidden > NAMED) {
            None => list(path),
            Some(hidden) => {
                format!("{} > ({hidden} more) > {}", list(&path[..NAMED]), list(&path[path.len() - NAMED..]))
            }
        }
    }
}

impl PlannedDependency {
    fn is_stream(&self) -> bool {
        self.reason == Reason::Stream
    }

    /// The reason of the edge; both reasons if it has two.
    pub fn why(&self) -> String {
        match &self.declared {
            Some(place) => format!("{}, and declared at {place}", self.reason),
            None => self.reason.to_string(),
        }
    }

    /// Suffix for an edge from an earlier iteration.
    pub fn distance_suffix(&self) -> String {
        match self.distance {
            0 => String::new(),
            1 => ", an iteration earlier".to_owned(),
            distance => format!(", {distance} iterations earlier"),
        }
    }
}

/// The prefix of the names of a part's nodes in a drawing.
fn drawn_name(slot: SlotPlan) -> String {
    match slot {
        SlotPlan::Iteration(index) => format!("i{index}"),
        SlotPlan::Block(which) => which.name().to_owned(),
    }
}
