//! The trace of an observed iteration.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::base::{LaneId, Nanos, OpId};

/// Start and end of an operation, in ns from the start of its iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "PlainSpan", into = "PlainSpan")]
pub struct Span {
    pub op: OpId,
    pub lane: LaneId,
    /// Start, from the start of the iteration.
    pub start: Nanos,
    pub end: Nanos,
}

/// Serialized span without names, to keep messages short: operation, lane, start and duration.
type PlainSpan = (u32, u32, Nanos, Nanos);

impl From<Span> for PlainSpan {
    fn from(span: Span) -> PlainSpan {
        (span.op.0, span.lane.0, span.start, span.duration())
    }
}

impl From<PlainSpan> for Span {
    fn from((op, lane, start, duration): PlainSpan) -> Span {
        Span { op: OpId(op), lane: LaneId(lane), start, end: start + duration }
    }
}

/// A moment on a host's clock, which all processes of that host share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    #[serde(rename = "at_ns")]
    pub at: Nanos,
    /// Error in either direction.
    #[serde(rename = "error_ns")]
    pub error: Nanos,
    /// Identifies the clock: moments with equal numbers can be compared.
    pub clock: u32,
}

/// The launch of a kernel, as the vendor's library recorded it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KernelLaunch {
    /// Name of the function, as the compiler mangled it; `None` if the vendor does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Arc<str>>,
    /// Blocks in x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y and z.
    pub block: [u32; 3],
    /// Registers of a thread; `None` if the vendor does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registers: Option<u32>,
    /// Shared memory of a block in bytes, static and dynamic.
    pub shared_bytes: u32,
    /// Shared memory in bytes that the compute unit was configured to; `None` if the vendor does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit_shared_bytes: Option<u32>,
    /// Share of a compute unit's threads that can be resident by the limits of the kernel, from 0 to 1: the theoretical
    /// occupancy. `None` if a limit is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub occupancy: Option<f64>,
}

/// A kernel, copy or fill of an operation in an observed iteration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TracedLaunch {
    pub op: OpId,
    /// Start, from the start of the iteration.
    pub start: Nanos,
    pub end: Nanos,
    /// Number of the hardware queue, as the vendor counts them; `None` if the vendor does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<u64>,
    /// Number of the graph's node, as the vendor counts them; `None` outside of graphs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u64>,
    /// Launch of the kernel; `None` for a copy or a fill.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<KernelLaunch>,
}

/// The spans of an iteration, in the order of issue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Trace {
    /// Slot in this rank's own cycle.
    pub step: usize,
    /// Slot in the cycle of all ranks. Differs from `step` only if ranks repeat after different numbers of iterations.
    pub slot: usize,
    /// Duration of the observed iteration.
    pub time: Nanos,
    /// Start of the iteration on the host's clock; `None` if a rank runs alone or the clocks could not be aligned.
    pub origin: Option<Moment>,
    pub spans: Vec<Span>,
    /// Times at which the number of occupied compute units changed, with the number in 1/32 from then on. Empty if the
    /// device does not report it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub occupied: Vec<(Nanos, u32)>,
    /// Kernels, copies and fills by their start, from the vendor's records. Only the first observed iteration of a slot
    /// has them, since the others have equal ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<TracedLaunch>,
}

impl Span {
    /// Time from start to end.
    pub fn duration(&self) -> Nanos {
        self.end - self.start
    }
}
