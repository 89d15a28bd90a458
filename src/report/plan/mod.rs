//! What waits for what, and why, as a document: the one source of every form that `aorta plan` prints.
//!
//! Written as JSON with the schema [`SCHEMA`], which the book documents; a change that a reader would notice raises its
//! number. Times are whole nanoseconds by a device's profile: nothing here was measured.

mod build;
mod diff;
mod dot;
mod json;
mod mermaid;
mod text;

use std::fmt;
use std::sync::Arc;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::base::Nanos;
use crate::measure::record::{LaneRecord, MemoryRecord, Workload};

pub use build::{Request, build};
pub use diff::diff;
pub use dot::dot;
pub use json::{json, parse};
pub use mermaid::mermaid;
pub use text::text;

/// The name and version of the schema.
pub const SCHEMA: &str = "aorta.plan/1";

/// Names and slices repeat from operation to operation, so each is stored once.
pub type Text = Arc<str>;

/// The plan of a workload, where its schedule places it, and how long that takes by a profile.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PlanDocument {
    pub schema: String,
    /// The version of the program that made it.
    pub aorta: String,
    pub workload: Workload,
    /// The device by whose profile times are modelled.
    pub modelled_on: String,
    /// `iteration` where one begins when the last is complete, `end` where iterations may overlap.
    pub sync: String,
    /// Iterations that may be under way.
    pub depth: u32,
    /// Streams that the file declares.
    pub streams: usize,
    /// Real streams, with those that share each.
    pub lanes: Vec<LaneRecord>,
    pub queues: Queues,
    /// Waits between real streams, in one round of the schedule.
    pub waits: usize,
    pub events: u32,
    pub memory: MemoryRecord,
    /// The slots of the cycle, which then repeats.
    pub iterations: Vec<Iteration>,
}

/// The device's hardware queues, which real streams are spread over.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Queues {
    /// How many there are; of each priority, where it has its own.
    pub count: u32,
    /// Each priority has queues of its own.
    pub by_priority: bool,
    /// Those with a real stream that has operations.
    pub used: usize,
    /// Those with more than one such stream.
    pub shared: usize,
}

/// One slot of the cycle.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Iteration {
    pub flops: f64,
    pub bytes: u64,
    /// In the order of the text, which is one that fits.
    pub operations: Vec<Operation>,
    /// In the order of the operations that wait.
    pub edges: Vec<Edge>,
    pub critical_path: CriticalPath,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Operation {
    /// Its place in `operations`.
    pub id: u32,
    pub label: Option<Text>,
    /// `gemm`, `signal`, …
    pub operation: Text,
    pub phase: Option<Text>,
    /// The stream that the file names.
    pub stream: Text,
    /// The real stream, by its place in `lanes`.
    pub lane: u32,
    /// Where it stands in the file.
    pub place: Text,
    pub inputs: Vec<Slice>,
    pub outputs: Vec<Slice>,
    /// What a copy between ranks has to do with others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<Peer>,
    pub flops: f64,
    pub bytes: u64,
    /// How long it takes when it has the device alone.
    pub duration_ns: Nanos,
    /// The earliest start: when everything that it waits for is complete.
    pub start_ns: Nanos,
    /// How much later it may end without making the critical path longer.
    pub slack_ns: Nanos,
    /// Whether it is on the critical path.
    pub critical: bool,
}

/// What a copy between ranks has to do with others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// The rank that gets the input, and the slice that is written there; nothing where this rank sends nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<(u32, Slice)>,
    /// For each output, the rank that writes it.
    pub from: Vec<u32>,
}

/// What an operation reads or writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slice {
    /// `x[0..4]`.
    pub slice: Text,
    /// `f32[4, 8]`.
    pub shape: Text,
}

/// One operation waits for another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edge {
    pub from: u32,
    pub to: u32,
    /// How many iterations earlier `from` is.
    pub distance: u32,
    #[serde(flatten)]
    pub reason: Reason,
    /// Where the text says `after`, where data is a reason too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub declared: Option<Text>,
}

/// Why one operation waits for another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Reason {
    /// A stream runs its operations in order.
    Stream,
    /// The later touches, through `slice`, what the earlier touches through `from_slice`.
    Data { hazard: Hazard, slice: Text, from_slice: Text },
    /// The text says `after`, at this place.
    After { place: Text },
    /// The text says `wait`, at this place.
    Wait { place: Text },
    /// A `sync()` lies between, or is one of them.
    Sync,
}

/// What two operations do to the same memory, the later first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hazard {
    ReadAfterWrite,
    WriteAfterRead,
    WriteAfterWrite,
}

/// The chain of dependencies that takes longest.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CriticalPath {
    pub length_ns: Nanos,
    /// What all operations take one after the other.
    pub sum_ns: Nanos,
    pub operations: Vec<u32>,
}

impl PlanDocument {
    /// Operations of all slots.
    pub fn operations(&self) -> usize {
        self.iterations.iter().map(|iteration| iteration.operations.len()).sum()
    }

    /// Edges of all slots.
    pub fn edges(&self) -> usize {
        self.iterations.iter().map(|iteration| iteration.edges.len()).sum()
    }

    /// Where an edge comes from: an operation of its own iteration, or of an earlier one.
    fn source(&self, iteration: usize, edge: &Edge) -> &Operation {
        &self.iterations[self.earlier(iteration, edge.distance)].operations[edge.from as usize]
    }

    /// The slot that lies so far before another.
    fn earlier(&self, iteration: usize, distance: u32) -> usize {
        let cycle = self.iterations.len();
        (iteration + cycle - distance as usize % cycle) % cycle
    }

    /// `moe.aorta (preset tiny): streams=4 tokens=16`.
    fn title(&self) -> String {
        let Workload { name, preset, params, .. } = &self.workload;
        let preset = preset.as_ref().map(|preset| format!(" (preset {preset})")).unwrap_or_default();
        let params: Vec<String> = params.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let colon = if params.is_empty() { "" } else { ": " };
        format!("{name}{preset}{colon}{}", params.join(" "))
    }
}

impl Operation {
    /// What tables call it: its label, else its kind.
    pub fn name(&self) -> &str {
        self.label.as_deref().unwrap_or(&self.operation)
    }

    /// `#3 probs: softmax`.
    fn heading(&self) -> String {
        match &self.label {
            Some(label) => format!("#{} {label}: {}", self.id, self.operation),
            None => format!("#{} {}", self.id, self.operation),
        }
    }

    /// Whether it is there for its order alone, and works on nothing.
    fn is_marker(&self) -> bool {
        matches!(&*self.operation, "signal" | "wait" | "sync")
    }
}

impl Hazard {
    /// What the later operation does, and what the earlier did.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Hazard::ReadAfterWrite => ("reads", "written"),
            Hazard::WriteAfterRead => ("writes", "read"),
            Hazard::WriteAfterWrite => ("writes", "written"),
        }
    }
}

impl fmt::Display for Reason {
    /// In words that follow the name of what is waited for.
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

/// Operations of a critical path that are named at its beginning, and at its end.
const NAMED: usize = 12;

impl Iteration {
    /// The operations of each stream that has any, in the order of their first ones.
    fn by_stream(&self) -> Vec<Vec<&Operation>> {
        let mut streams: IndexMap<&str, Vec<&Operation>> = IndexMap::new();
        for operation in &self.operations {
            streams.entry(&operation.stream).or_default().push(operation);
        }
        streams.into_values().collect()
    }

    /// Every operation with the edges that lead to it.
    fn with_edges(&self) -> impl Iterator<Item = (&Operation, &[Edge])> {
        let mut rest = self.edges.as_slice();
        self.operations.iter().map(move |operation| {
            let count = rest.iter().take_while(|edge| edge.to == operation.id).count();
            let (own, later) = rest.split_at(count);
            rest = later;
            (operation, own)
        })
    }

    /// The operations of the critical path; of a long one, its ends.
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

impl Edge {
    fn is_stream(&self) -> bool {
        self.reason == Reason::Stream
    }

    /// Its reason; both, where it has two.
    fn why(&self) -> String {
        match &self.declared {
            Some(place) => format!("{}, and declared at {place}", self.reason),
            None => self.reason.to_string(),
        }
    }

    /// What is added to the reason of an edge from an earlier iteration.
    fn ago(&self) -> String {
        match self.distance {
            0 => String::new(),
            1 => ", an iteration earlier".to_owned(),
            distance => format!(", {distance} iterations earlier"),
        }
    }
}

/// The heading of one of several iterations.
fn iteration_title(document: &PlanDocument, iteration: usize) -> String {
    format!("slot {iteration} of {}", document.iterations.len())
}

/// Whether an edge leads from one operation of the critical path to its next.
fn on_path(iteration: &Iteration, edge: &Edge) -> bool {
    let path = &iteration.critical_path.operations;
    // The path is in the order of the text.
    edge.distance == 0 && path.binary_search(&edge.to).is_ok_and(|at| at > 0 && path[at - 1] == edge.from)
}
