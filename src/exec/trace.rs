//! One iteration, operation by operation.

use serde::{Deserialize, Serialize};

use crate::base::{LaneId, Nanos, OpId};

/// When an operation ran, from the beginning of its iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Plain", into = "Plain")]
pub struct Span {
    pub op: OpId,
    pub lane: LaneId,
    pub start: Nanos,
    pub end: Nanos,
}

/// A span without names, since another process may be told of many: operation, lane, start and duration.
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

/// A moment on the host's clock, and how far it may be off to either side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    pub at: Nanos,
    pub error: Nanos,
    /// Which host's clock: moments of equal ones can be compared.
    pub clock: u32,
}

/// The spans of an iteration, in the order of issue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trace {
    /// Which slot of this rank's own cycle it was.
    pub step: usize,
    /// Which slot of the cycle of all ranks it was. The same as `step`, unless ranks repeat after different
    /// numbers of iterations.
    pub slot: usize,
    /// From its beginning to its end, while it was observed.
    pub time: Nanos,
    /// Its beginning; nothing where one rank runs alone, or nobody knows.
    pub origin: Option<Moment>,
    pub spans: Vec<Span>,
}

impl Span {
    pub fn duration(&self) -> Nanos {
        self.end - self.start
    }
}
