//! What will happen, in the order of its time: ties are broken by number.

use std::cmp::Ordering;

use super::meetings::TransferId;
use super::{TaskId, Time};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// A task's predecessors have ended.
    Ready(TaskId),
    /// A kernel's blocks may begin.
    Begin(TaskId),
    /// Blocks end that no shared capacity slows down.
    BlocksEnd(u32),
    /// A transfer ends that no shared capacity slows down.
    Transferred(TransferId),
    /// A copy's latency has passed.
    CopyStarts(TaskId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) time: Time,
    pub(super) number: u64,
    pub(super) what: What,
}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Event {
    // Reversed: the heap gives the largest first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.time, other.number).cmp(&(self.time, self.number))
    }
}
