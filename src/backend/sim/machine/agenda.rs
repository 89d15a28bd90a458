//! The queue of future events, ordered by time. Ties are broken by the events' numbers.

use std::cmp::Ordering;

use super::{TaskId, Time, TransferId};

/// A change of the machine at a future time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventKind {
    /// A task's dependencies have ended.
    Ready(TaskId),
    /// The front end launches a task of a hardware queue.
    Dispatch(TaskId),
    /// The front end of a device has launched a node of a graph, or handled the end of a branch, which is `end`.
    Launched { device: u32, end: Option<TaskId> },
    /// A kernel's blocks may begin.
    Begin(TaskId),
    /// Blocks that use no shared capacity end.
    BlocksEnd(u32),
    /// A transfer that uses no shared capacity ends.
    Transferred(TransferId),
    /// A copy's latency has passed.
    CopyStarts(TaskId),
}

/// An event of the simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) time: Time,
    /// Number of the event in the order of creation, which decides among events of one time.
    pub(super) number: u64,
    pub(super) what: EventKind,
}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Event {
    // Reversed, since the heap returns the largest first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.time, other.number).cmp(&(self.time, self.number))
    }
}
