//! The trace of an observed iteration.

use serde::{Deserialize, Serialize};

use crate::base::{LaneId, Nanos, OpId};

/// Begin and end of an operation, in ns from the begin of its iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Plain", into = "Plain")]
pub struct Span {
    pub op: OpId,
    pub lane: LaneId,
    /// From the begin of the iteration.
    pub start: Nanos,
    pub end: Nanos,
}

/// Serialized span without names, to keep messages short: operation, lane, start and duration.
type Plain = (u32, u32, Nanos, Nanos);

impl From<Span> for Plain {
    fn from(span: Span) -> Plain {
        (span.op.0, span.lane.0, span.start, span.duration())
    }
}

impl From<Plain> for Span {
    fn from((op, lane, start, duration): Plain) -> Span {
        Span { op: OpId(op), lane: LaneId(lane), start, end: start + duration }
    }
}

/// A moment on the host's clock, with its error in either direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    pub at: Nanos,
    pub error: Nanos,
    /// Identifies the clock: moments with equal numbers can be compared.
    pub clock: u32,
}

/// The spans of an iteration, in the order of issue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trace {
    /// Slot in this rank's own cycle.
    pub step: usize,
    /// Slot in the cycle of all ranks. Differs from `step` only if ranks repeat after different numbers of iterations.
    pub slot: usize,
    /// Duration of the observed iteration.
    pub time: Nanos,
    /// Begin of the iteration on the host's clock; `None` if a rank runs alone or the clocks could not be aligned.
    pub origin: Option<Moment>,
    pub spans: Vec<Span>,
    /// Times at which the number of occupied compute units changed, with the number in 1/32 from then on. Empty if the
    /// device does not report it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub occupied: Vec<(Nanos, u32)>,
}

impl Span {
    /// Time from start to end.
    pub fn duration(&self) -> Nanos {
        self.end - self.start
    }
}
