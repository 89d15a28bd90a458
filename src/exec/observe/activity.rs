//! Correlates a vendor's records of kernels, copies and fills with the operations that launched them.
//!
//! A record has the number of the call that launched its work and, in a graph, the number of its node. The driver
//! records the operation of each call and each node. Times are in ns on the vendor's clock.

use std::collections::{BTreeMap, HashMap};

use crate::base::Nanos;

use super::trace::KernelLaunch;

/// The purpose of a launch call. `iteration` is the number of the observed iteration within a pass, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallPurpose {
    /// An operation, by its number in the image.
    Operation { iteration: u32, op: u32 },
    /// The launch of a graph, whose nodes belong to operations.
    Graph { iteration: u32 },
    /// The kernel that holds the iteration: the iteration begins when it ends.
    Gate { iteration: u32 },
}

/// A launch call with the correlation number that the vendor's library gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchCall {
    pub correlation: u32,
    pub purpose: CallPurpose,
}

/// A node of a graph, with the operation that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraphNode {
    pub id: u64,
    pub op: u32,
}

/// The vendor's record of one kernel, copy or fill.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Activity {
    /// Number of the call that launched the work.
    pub correlation: u32,
    /// Node of the graph; 0 outside of graphs.
    pub node: u64,
    /// Time at which the device began the work, in ns on the vendor's clock; 0 if the vendor does not report it.
    pub start: u64,
    /// Time at which the device ended the work, on the same clock; 0 if the vendor does not report it.
    pub end: u64,
    /// Number of the hardware queue that ran the work, as the vendor counts queues; `None` if the vendor does not report it.
    pub queue: Option<u64>,
    /// The launch, if the work is a kernel; `None` for copies and fills.
    pub kernel: Option<KernelLaunch>,
}

/// The launch calls that a driver noted and the records that it received in a pass of observed iterations.
#[derive(Clone, Debug, Default)]
pub struct ActivityLog {
    pub launches: Vec<LaunchCall>,
    pub nodes: Vec<GraphNode>,
    pub activities: Vec<Activity>,
    /// Records that the vendor's library dropped.
    pub dropped: u64,
    /// For each operation of the image, the minimum number of its records: 0 if it may do nothing on the device, like a
    /// collective of one rank in place.
    pub least: Vec<u32>,
}

/// The times of an observed iteration, on the vendor's clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IterationTimes {
    /// First start and last end of each operation that left a record.
    pub ops: BTreeMap<u32, (u64, u64)>,
    /// Index in [`ActivityLog::activities`] of each record, with the operation that it belongs to.
    pub parts: Vec<(u32, usize)>,
    /// End of the kernel that held the iteration; `None` if none did.
    pub gate: Option<u64>,
}

/// Returns the times of the observed iterations. `ops` has the operations of each iteration.
///
/// # Errors
///
/// The records that are missing or have no time, in words. One missing record invalidates the whole pass, since the
/// times of its operation would be wrong.
pub fn correlate(recorded: &ActivityLog, ops: &[Vec<u32>]) -> Result<Vec<IterationTimes>, String> {
    if recorded.dropped > 0 {
        return Err(format!("{} records were dropped, since its buffers were full", recorded.dropped));
    }
    let purposes: HashMap<u32, CallPurpose> =
        recorded.launches.iter().map(|call| (call.correlation, call.purpose)).collect();
    let nodes: HashMap<u64, u32> = recorded.nodes.iter().map(|node| (node.id, node.op)).collect();
    let mut iterations = vec![IterationTimes::default(); ops.len()];
    let mut counts: Vec<BTreeMap<u32, u32>> = vec![BTreeMap::new(); ops.len()];
    for (index, activity) in recorded.activities.iter().enumerate() {
        let (iteration, op) = match purposes.get(&activity.correlation) {
            None => continue,
            Some(&CallPurpose::Operation { iteration, op }) => (iteration, Some(op)),
            Some(&CallPurpose::Gate { iteration }) => (iteration, None),
            Some(&CallPurpose::Graph { iteration }) => match nodes.get(&activity.node) {
                Some(&op) => (iteration, Some(op)),
                None => continue,
            },
        };
        let Some(times) = iterations.get_mut(iteration as usize) else { continue };
        if activity.start == 0 || activity.end < activity.start {
            return Err("a record has no time".to_owned());
        }
        match op {
            None => times.gate = times.gate.max(Some(activity.end)),
            Some(op) => {
                let (start, end) = times.ops.entry(op).or_insert((activity.start, activity.end));
                (*start, *end) = ((*start).min(activity.start), (*end).max(activity.end));
                *counts[iteration as usize].entry(op).or_default() += 1;
                times.parts.push((op, index));
            }
        }
    }
    let least = |op: u32| recorded.least.get(op as usize).copied().unwrap_or(1);
    let lacking = |(found, ops): (&BTreeMap<u32, u32>, &Vec<u32>)| {
        ops.iter().filter(|&&op| found.get(&op).copied().unwrap_or(0) < least(op)).count()
    };
    let lost: usize = counts.iter().zip(ops).map(lacking).sum();
    let all: usize = ops.iter().map(Vec::len).sum();
    match lost {
        0 => Ok(iterations),
        lost => Err(format!("{lost} of {all} observed operations lack a record")),
    }
}

/// Position of an observed iteration on the vendor's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IterationPosition {
    /// The vendor's time of the iteration's start, in ns.
    pub begin: i64,
    /// Error of `begin` in either direction.
    pub error: Nanos,
    /// Duration of the iteration by its stamps, or the time from its first start to its last end if that is longer.
    pub time: Nanos,
}

impl IterationTimes {
    /// Converts the position of an iteration whose stamps are `time` apart; `None` without operations.
    ///
    /// The stamp at the end follows the last operation, and the one at the start precedes the first, unless iterations
    /// overlap. The kernel that held the iteration precedes the start stamp directly.
    pub fn place(&self, time: Nanos, overlapping: bool) -> Option<IterationPosition> {
        let first = self.ops.values().map(|times| times.0).min()? as i64;
        let last = self.ops.values().map(|times| times.1).max()? as i64;
        let earliest = last - time.0;
        if overlapping {
            return Some(IterationPosition { begin: earliest, error: Nanos(0), time });
        }
        if earliest >= first {
            return Some(IterationPosition { begin: first, error: Nanos(0), time: Nanos(last - first) });
        }
        Some(match self.gate.map(|gate| (gate as i64).max(earliest)) {
            Some(begin) if begin <= first => IterationPosition { begin, error: Nanos(first - begin), time },
            _ => {
                let slack = first - earliest;
                IterationPosition { begin: earliest + slack / 2, error: Nanos(slack - slack / 2), time }
            }
        })
    }
}

#[cfg(test)]
mod tests;
