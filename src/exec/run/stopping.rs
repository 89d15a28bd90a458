//! Agreement of connected ranks on their last iteration when a run is stopped.
//!
//! If a rank stopped earlier than one that waits for its data, the latter would hang. Collectives synchronize ranks
//! only loosely: hosts run ahead, and the distances add up along a chain of groups. So all ranks that are connected by
//! exchanges of data end after the same iteration: the latest that any of them has begun to issue.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use rustc_hash::FxHashMap;

/// The run has not been stopped.
const OPEN: u64 = u64::MAX;

/// The run has been stopped, and a rank is about to settle the last iteration.
const STOPPING: u64 = u64::MAX - 1;

/// State shared by connected ranks.
#[derive(Debug)]
struct Agreement {
    /// Number of iterations that each rank runs, or [`OPEN`] or [`STOPPING`].
    last: AtomicU64,
    /// Number of iterations that each rank has begun to issue.
    begun: Box<[Begun]>,
}

/// Number of iterations that a rank has begun to issue.
///
/// The rank writes the number in each iteration and others rarely read it, so it has a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Begun(AtomicU64);

/// A rank's handle on the agreement with its connected ranks.
#[derive(Clone, Debug)]
pub(in crate::exec) struct StopAgreementHandle {
    agreement: Arc<Agreement>,
    /// Index of the rank in [`Agreement::begun`].
    place: usize,
}

impl StopAgreementHandle {
    /// Returns the handle of each rank of a process. `ranks` has each rank's number and the ranks that it exchanges
    /// data with, some of which may be in other processes.
    pub fn of(ranks: &[(u32, Vec<u32>)]) -> Vec<StopAgreementHandle> {
        let components = components(ranks);
        let mut members: Vec<Vec<usize>> = vec![Vec::new(); ranks.len()];
        components.iter().enumerate().for_each(|(rank, &component)| members[component].push(rank));
        let agreement = |members: &Vec<usize>| {
            let begun = members.iter().map(|_| Begun::default()).collect();
            Arc::new(Agreement { last: AtomicU64::new(OPEN), begun })
        };
        let agreements: Vec<_> = members.iter().map(agreement).collect();
        let of = |(rank, component): (usize, usize)| {
            let index = members[component].iter().position(|&member| member == rank);
            StopAgreementHandle { agreement: agreements[component].clone(), place: index.expect("it is a member") }
        };
        components.into_iter().enumerate().map(of).collect()
    }

    /// Returns for each rank, given by its handle and its number of completed iterations, the number that all ranks
    /// connected with it have completed. It is smaller than the rank's own number if one of them abandoned an iteration that took
    /// too long.
    pub fn completed_by_connected(ranks: &[(&StopAgreementHandle, usize)]) -> Vec<usize> {
        let of = |(stopping, own): &(&StopAgreementHandle, usize)| {
            let connected = ranks.iter().filter(|(other, _)| Arc::ptr_eq(&stopping.agreement, &other.agreement));
            connected.map(|(_, completed)| *completed).min().unwrap_or(*own)
        };
        ranks.iter().map(of).collect()
    }

    /// Resets the agreement. Called for every rank before any of them runs.
    pub fn reset(&self) {
        self.agreement.last.store(OPEN, SeqCst);
        self.agreement.begun[self.place].0.store(0, SeqCst);
    }

    /// True if this rank may issue `iteration`, its next one. `stopped` is true if the run must stop. The first
    /// connected rank that passes it settles the last iteration for all of them.
    ///
    /// A rank first publishes that it begins an iteration, then checks whether the last one is being settled. A rank
    /// that settles the last iteration first announces this, then reads the published numbers. So either the begun
    /// iteration is counted, or its rank sees the announcement: no rank begins an iteration after the last. No rank
    /// waits for another.
    pub fn may_begin(&self, iteration: u64, stopped: bool) -> bool {
        let Agreement { last, begun } = &*self.agreement;
        if !stopped {
            begun[self.place].0.store(iteration + 1, SeqCst);
            if last.load(SeqCst) == OPEN {
                return true;
            }
        }
        iteration < self.agreement.settled()
    }
}

impl Agreement {
    /// Returns the number of iterations that all ranks run. Settles it if no rank has yet.
    fn settled(&self) -> u64 {
        let _ = self.last.compare_exchange(OPEN, STOPPING, SeqCst, SeqCst);
        let most = self.begun.iter().map(|begun| begun.0.load(SeqCst)).max().unwrap_or(0);
        match self.last.compare_exchange(STOPPING, most, SeqCst, SeqCst) {
            Ok(_) => most,
            Err(settled) => settled,
        }
    }
}

/// Returns for each rank the index of the first rank that it is connected with, directly or through others.
fn components(ranks: &[(u32, Vec<u32>)]) -> Vec<usize> {
    let places: FxHashMap<u32, usize> = ranks.iter().map(|(number, _)| *number).zip(0..).collect();
    let mut component: Vec<usize> = (0..ranks.len()).collect();
    for (rank, (_, others)) in ranks.iter().enumerate() {
        for &other in others.iter().filter_map(|other| places.get(other)) {
            let (first, second) = (component[rank].min(component[other]), component[rank].max(component[other]));
            if first != second {
                component.iter_mut().filter(|its| **its == second).for_each(|its| *its = first);
            }
        }
    }
    component
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ranks_are_connected_through_others() {
        let ranks = [(4, vec![4, 6]), (5, vec![]), (6, vec![6]), (7, vec![6, 9]), (8, vec![5])];
        assert_eq!(components(&ranks), [0, 1, 0, 0, 1], "7 exchanges with 6, and 9 is not here");
        assert_eq!(components(&[(0, vec![3]), (1, vec![2]), (2, vec![0]), (3, vec![3])]), [0, 0, 0, 0]);
    }

    #[test]
    fn an_iteration_counts_when_all_connected_ranks_completed_it() {
        let ranks = StopAgreementHandle::of(&[(0, vec![1]), (1, vec![]), (2, vec![]), (3, vec![0])]);
        let completed: Vec<_> = ranks.iter().zip([8, 6, 9, 7]).collect();
        assert_eq!(StopAgreementHandle::completed_by_connected(&completed), [6, 6, 9, 6]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

        /// Threads that see a stop at different moments run the same number of iterations, and none hangs: each returns
        /// from an iteration once its neighbours have begun one that is not too far behind.
        #[test]
        fn connected_ranks_end_after_the_same_iteration(
            neighbours in prop::collection::vec(prop::collection::vec(0..5u32, 0..3), 5),
            apart in 1..4u64,
            stop in 0..200u64,
        ) {
            let ranks: Vec<(u32, Vec<u32>)> = (0..).zip(neighbours).collect();
            let (stopping, components) = (StopAgreementHandle::of(&ranks), components(&ranks));
            let begun: Vec<AtomicU64> = ranks.iter().map(|_| AtomicU64::new(0)).collect();
            let stopped = AtomicBool::new(false);
            let run = |rank: usize| {
                let mut iteration = 0;
                while stopping[rank].may_begin(iteration, stopped.load(SeqCst)) {
                    iteration += 1;
                    begun[rank].store(iteration, SeqCst);
                    for &other in &ranks[rank].1 {
                        while begun[other as usize].load(SeqCst) + apart < iteration {
                            thread::yield_now();
                        }
                    }
                    if iteration == stop {
                        stopped.store(true, SeqCst);
                    }
                }
                iteration
            };
            stopped.store(stop == 0, SeqCst);
            let ends: Vec<u64> = thread::scope(|scope| {
                let threads: Vec<_> = (0..ranks.len()).map(|rank| scope.spawn(move || run(rank))).collect();
                threads.into_iter().map(|thread| thread.join().expect("no rank panics")).collect()
            });
            for (a, b) in (0..ranks.len()).flat_map(|a| (0..a).map(move |b| (a, b))) {
                prop_assert!(components[a] != components[b] || ends[a] == ends[b], "{:?} of {:?}", ends, ranks);
            }
        }
    }
}
