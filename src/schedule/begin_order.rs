//! Order in which the operations of a period begin on a device, for the model of its cache.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use rustc_hash::FxHashMap;

use crate::base::{EventId, LaneId};
use crate::model::Sync;

use super::{Command, Schedule};

/// For each launch of a period, in the order of issue, the launches that must be complete before it begins.
#[derive(Clone, Debug, Default)]
pub struct Predecessors {
    /// The predecessors of all launches, one launch after the other.
    all: Vec<u32>,
    /// End of each launch's predecessors in `all`.
    ends: Vec<usize>,
    /// Numbers of launches at which everything before is complete: the host waits, or an iteration begins that does not overlap.
    synced: Vec<usize>,
}

/// The launches after which something is complete, at most one for each lane: its last one. Sorted by lane.
type Pending = Vec<(LaneId, u32)>;

impl Predecessors {
    /// Number of launches of the period.
    pub fn launches(&self) -> usize {
        self.ends.len()
    }

    /// The predecessors of the launches of a schedule's period: the one before on the same lane, and those that events wait for. Those
    /// before a point at which everything is complete are left out, and so are events of an earlier period.
    pub fn of(schedule: &Schedule) -> Predecessors {
        let mut found = Predecessors::default();
        let mut lanes: FxHashMap<LaneId, Pending> = FxHashMap::default();
        let mut events: FxHashMap<EventId, Pending> = FxHashMap::default();
        let between = (schedule.sync == Sync::Iteration).then_some(&Command::HostSync);
        for command in schedule.period.iter().flat_map(|step| step.commands.iter().chain(between)) {
            match *command {
                Command::Launch { lane, .. } => {
                    let number = found.ends.len() as u32;
                    let before = lanes.insert(lane, vec![(lane, number)]);
                    found.all.extend(before.into_iter().flatten().map(|(_, launch)| launch));
                    found.ends.push(found.all.len());
                }
                Command::Record { event, lane } => {
                    events.insert(event, lanes.get(&lane).cloned().unwrap_or_default());
                }
                Command::Wait { event, lane, .. } => {
                    let pending = lanes.entry(lane).or_default();
                    for &(other, launch) in events.get(&event).into_iter().flatten() {
                        match pending.binary_search_by_key(&other, |(lane, _)| *lane) {
                            Ok(at) => pending[at].1 = launch.max(pending[at].1),
                            Err(at) => pending.insert(at, (other, launch)),
                        }
                    }
                }
                Command::HostSync => {
                    lanes.clear();
                    events.clear();
                    found.synced.push(found.ends.len());
                }
            }
        }
        found
    }

    fn before(&self, launch: usize) -> &[u32] {
        let start = launch.checked_sub(1).map_or(0, |previous| self.ends[previous]);
        &self.all[start..self.ends[launch]]
    }

    /// Returns the numbers of the launches in the order in which they begin. Launches that occupy the compute units run one at a time, as
    /// they become ready; all others run beside them.
    ///
    /// `takes` returns the duration of a launch in ns, `occupies` whether it occupies the compute units.
    pub fn begin_order(&self, takes: impl Fn(usize) -> f64, occupies: impl Fn(usize) -> bool) -> Vec<u32> {
        let mut order = Vec::with_capacity(self.ends.len());
        let mut start = 0;
        for &end in self.synced.iter().chain([&self.ends.len()]) {
            order.extend(self.begins(start..end, &takes, &occupies).into_iter().map(|(_, launch)| launch));
            start = end;
        }
        order
    }

    /// Begin in ns, from that of the first, and number of these launches, in the order in which they begin. Times are compared as whole
    /// ns, ties by the order in which the launches become ready.
    fn begins(
        &self,
        launches: Range<usize>,
        takes: impl Fn(usize) -> f64,
        occupies: impl Fn(usize) -> bool,
    ) -> Vec<(u64, u32)> {
        let first = launches.start;
        let mut left: Vec<usize> = launches.clone().map(|launch| self.before(launch).len()).collect();
        let mut followers = vec![Vec::new(); launches.len()];
        for launch in launches.clone() {
            self.before(launch).iter().for_each(|&before| followers[before as usize - first].push(launch));
        }
        let mut ready_at = vec![0u64; launches.len()];
        let roots = launches.filter(|launch| left[launch - first] == 0).map(|launch| Reverse((0, launch)));
        let mut ready: BinaryHeap<_> = roots.collect();
        let mut begins = Vec::with_capacity(left.len());
        let mut free = 0u64;
        while let Some(Reverse((time, launch))) = ready.pop() {
            let begin = if occupies(launch) { time.max(free) } else { time };
            let end = begin.saturating_add(takes(launch) as u64);
            if occupies(launch) {
                free = end;
            }
            begins.push((begin, launch as u32));
            for &follower in &followers[launch - first] {
                let place = follower - first;
                ready_at[place] = ready_at[place].max(end);
                left[place] -= 1;
                if left[place] == 0 {
                    ready.push(Reverse((ready_at[place], follower)));
                }
            }
        }
        begins.sort_by_key(|(begin, _)| *begin);
        begins
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Launches with the predecessors of each.
    fn predecessors(of: &[&[u32]]) -> Predecessors {
        let mut found = Predecessors::default();
        for before in of {
            found.all.extend(*before);
            found.ends.push(found.all.len());
        }
        found
    }

    #[test]
    fn kernels_of_streams_alternate_and_copies_run_beside_them() {
        // Two chains of kernels, and a chain of copies of a third of a kernel's duration.
        let chains = predecessors(&[&[], &[0], &[1], &[], &[3], &[4], &[], &[6], &[7]]);
        let order = chains.begin_order(|number| if number < 6 { 30.0 } else { 10.0 }, |number| number < 6);
        assert_eq!(order, [0, 6, 7, 8, 3, 1, 4, 2, 5]);
    }

    #[test]
    fn launches_follow_all_before_a_point_at_which_everything_is_complete() {
        let mut synced = predecessors(&[&[], &[0], &[], &[2]]);
        synced.synced = vec![2];
        assert_eq!(synced.begin_order(|_| 10.0, |_| true), [0, 1, 2, 3]);
    }

    #[test]
    fn a_launch_begins_after_all_its_predecessors() {
        let joined = predecessors(&[&[], &[], &[0, 1], &[]]);
        assert_eq!(joined.begin_order(|number| [5.0, 50.0, 1.0, 1.0][number], |_| false), [0, 1, 3, 2]);
    }
}
