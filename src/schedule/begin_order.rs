//! Order in which the operations of a period begin on a device, for the model of its cache.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::model::Sync;

use super::{Command, Schedule};

/// For each launch of a period, in the order of issue, the launches that must be complete before it begins.
#[derive(Clone, Debug, Default)]
pub struct Predecessors {
    /// The predecessors of all launches, one launch after the other.
    all: Vec<u32>,
    /// End of each launch's predecessors in `all`.
    ends: Vec<usize>,
}

impl Predecessors {
    /// The predecessors of the launches of a schedule's period: the one before on the same lane, those that events wait for, and all launches before a
    /// point at which the host waits or an iteration begins that does not overlap. Events of an earlier period are complete.
    pub fn of(schedule: &Schedule) -> Predecessors {
        let mut found = Predecessors::default();
        // The launches after which the next one on each lane begins, and those after which each event is complete.
        let mut lanes: Vec<Vec<u32>> = Vec::new();
        let mut events: Vec<Vec<u32>> = Vec::new();
        // Those after which a lane begins that was not used yet.
        let mut synced: Vec<u32> = Vec::new();
        let between = (schedule.sync == Sync::Iteration).then_some(&Command::HostSync);
        for command in schedule.period.iter().flat_map(|step| step.commands.iter().chain(between)) {
            match *command {
                Command::Launch { lane, .. } => {
                    let number = found.ends.len() as u32;
                    let before = entry(&mut lanes, lane.index(), &synced);
                    found.all.append(before);
                    found.ends.push(found.all.len());
                    before.push(number);
                }
                Command::Record { event, lane } => {
                    let before = entry(&mut lanes, lane.index(), &synced).clone();
                    *entry(&mut events, event.index(), &[]) = before;
                }
                Command::Wait { event, lane, .. } => {
                    let before = entry(&mut lanes, lane.index(), &synced);
                    before.extend(&*entry(&mut events, event.index(), &[]));
                    before.sort_unstable();
                    before.dedup();
                }
                Command::HostSync => {
                    synced = lanes.concat();
                    synced.sort_unstable();
                    synced.dedup();
                    lanes.iter_mut().for_each(|lane| lane.clone_from(&synced));
                }
            }
        }
        found
    }

    fn before(&self, launch: usize) -> &[u32] {
        let start = launch.checked_sub(1).map_or(0, |previous| self.ends[previous]);
        &self.all[start..self.ends[launch]]
    }

    /// The numbers of the launches in the order in which they begin if those that occupy the compute units run one at a time, as they
    /// become ready, and all others beside them.
    ///
    /// `takes` returns the duration of a launch in ns, `occupies` whether it occupies the compute units.
    pub fn begin_order(&self, takes: impl Fn(usize) -> f64, occupies: impl Fn(usize) -> bool) -> Vec<u32> {
        let count = self.ends.len();
        let mut left: Vec<usize> = (0..count).map(|launch| self.before(launch).len()).collect();
        let mut followers = vec![Vec::new(); count];
        for launch in 0..count {
            self.before(launch).iter().for_each(|&before| followers[before as usize].push(launch as u32));
        }
        // Times are compared as whole ns, ties by the order of issue.
        let mut ready_at = vec![0u64; count];
        let first =
            left.iter().enumerate().filter(|(_, left)| **left == 0).map(|(launch, _)| Reverse((0, launch as u32)));
        let mut ready: BinaryHeap<_> = first.collect();
        let mut order = Vec::with_capacity(count);
        let mut free = 0u64;
        while let Some(Reverse((time, launch))) = ready.pop() {
            order.push(launch);
            let number = launch as usize;
            let begins = if occupies(number) { time.max(free) } else { time };
            let ends = begins.saturating_add(takes(number) as u64);
            if occupies(number) {
                free = ends;
            }
            for &follower in &followers[number] {
                let follower_number = follower as usize;
                ready_at[follower_number] = ready_at[follower_number].max(ends);
                left[follower_number] -= 1;
                if left[follower_number] == 0 {
                    ready.push(Reverse((ready_at[follower_number], follower)));
                }
            }
        }
        order
    }
}

/// The list with this index; lists up to it that do not exist yet begin as `new`.
fn entry<'a>(lists: &'a mut Vec<Vec<u32>>, index: usize, new: &[u32]) -> &'a mut Vec<u32> {
    if lists.len() <= index {
        lists.resize(index + 1, new.to_vec());
    }
    &mut lists[index]
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
        assert_eq!(order, [0, 3, 6, 7, 8, 1, 4, 2, 5]);
    }

    #[test]
    fn a_launch_begins_after_all_its_predecessors() {
        let joined = predecessors(&[&[], &[], &[0, 1], &[]]);
        assert_eq!(joined.begin_order(|number| [5.0, 50.0, 1.0, 1.0][number], |_| false), [0, 1, 3, 2]);
    }
}
