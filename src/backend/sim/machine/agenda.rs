//! What will happen, in the order of its time: ties are broken by number.

use std::cmp::Ordering;

use super::TaskId;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// A task's predecessors have ended.
    Ready(TaskId),
    /// A kernel's blocks may begin.
    Begin(TaskId),
    /// An exchange is over on a device.
    Exchanged(TaskId),
    /// Blocks end that no shared capacity slows down.
    BlocksEnd(u32),
    /// A copy's latency has passed.
    CopyStarts(TaskId),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    pub(super) time: f64,
    pub(super) number: u64,
    pub(super) what: What,
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Event {}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Event {
    // Reversed: the heap gives the largest first.
    fn cmp(&self, other: &Self) -> Ordering {
        other.time.total_cmp(&self.time).then(other.number.cmp(&self.number))
    }
}

/// When the next flow of a capacity ends, unless something changes before.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct FlowEnd {
    pub(super) time: f64,
    /// Which capacity of which device.
    pub(super) index: usize,
    /// How often it had changed.
    pub(super) version: u64,
}

impl Eq for FlowEnd {}

impl PartialOrd for FlowEnd {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for FlowEnd {
    // Reversed: the heap gives the largest first.
    fn cmp(&self, other: &Self) -> Ordering {
        other.time.total_cmp(&self.time).then(other.index.cmp(&self.index)).then(other.version.cmp(&self.version))
    }
}
