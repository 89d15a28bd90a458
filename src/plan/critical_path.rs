//! The critical path of an iteration, and the slack of its operations.
//!
//! Only durations and dependencies count: every stream is assumed to have the device for itself, and issuing to take no
//! time.

use crate::base::OpId;

use super::graph::{Edge, StepPlan};

/// The longest chain of operations in an iteration of which each depends on the one before.
#[derive(Clone, Debug, PartialEq)]
pub struct CriticalPath {
    /// Sum of the durations of the operations on the path, in the unit of the given durations.
    pub length: f64,
    /// The operations on the path, in order.
    pub ops: Vec<OpId>,
}

/// Bounds on the start and end of each operation, in the unit of the given durations.
#[derive(Clone, Debug, PartialEq)]
pub struct TimeBounds {
    pub path: CriticalPath,
    /// For each operation, its earliest start, from the start of the iteration.
    pub starts: Vec<f64>,
    /// For each operation, the time by which its end may be delayed without lengthening the critical path; 0 on the
    /// path itself.
    pub slack: Vec<f64>,
}

/// Earliest start and end of each operation, and the dependency that determines its start.
struct Forward {
    starts: Vec<f64>,
    ends: Vec<f64>,
    through: Vec<Option<OpId>>,
}

impl StepPlan {
    /// Returns the critical path if operation `i` takes `durations[i]`. Among equally long paths, the first in the
    /// text.
    pub fn critical_path(&self, durations: &[f64]) -> CriticalPath {
        self.forward(durations).path()
    }

    /// Returns the critical path, and the earliest start and the slack of each operation.
    pub fn timing(&self, durations: &[f64]) -> TimeBounds {
        let forward = self.forward(durations);
        let path = forward.path();
        // For each operation, the latest end that does not lengthen the path: the latest start among its dependents, or
        // the path's end.
        let mut latest = vec![path.length; self.operations()];
        for index in (0..self.operations()).rev() {
            let start = latest[index] - durations[index];
            for Edge { from, .. } in self.incoming(OpId::from(index)) {
                let end = &mut latest[from.index()];
                *end = end.min(start);
            }
        }
        let Forward { starts, ends, .. } = forward;
        // Sums of the same numbers in different orders differ by rounding.
        let mut slack: Vec<f64> = latest.iter().zip(&ends).map(|(latest, end)| (latest - end).max(0.0)).collect();
        path.ops.iter().for_each(|op| slack[op.index()] = 0.0);
        TimeBounds { path, starts, slack }
    }

    fn forward(&self, durations: &[f64]) -> Forward {
        let count = self.operations();
        let (mut starts, mut ends) = (vec![0.0f64; count], vec![0.0f64; count]);
        let mut through: Vec<Option<OpId>> = vec![None; count];
        // The order of the text is topological.
        for index in 0..count {
            let mut start = 0.0;
            for Edge { from, .. } in self.incoming(OpId::from(index)) {
                let end = ends[from.index()];
                let first = through[index].is_none_or(|best| from < best);
                if end > start || (end == start && end > 0.0 && first) {
                    start = end;
                    through[index] = Some(from);
                }
            }
            (starts[index], ends[index]) = (start, start + durations[index]);
        }
        Forward { starts, ends, through }
    }
}

impl Forward {
    fn path(&self) -> CriticalPath {
        let mut last: Option<OpId> = None;
        for index in 0..self.ends.len() {
            if last.is_none_or(|best| self.ends[index] > self.ends[best.index()]) {
                last = Some(OpId::from(index));
            }
        }
        let length = last.map_or(0.0, |op| self.ends[op.index()]);
        let mut ops = Vec::new();
        while let Some(op) = last {
            ops.push(op);
            last = self.through[op.index()];
        }
        ops.reverse();
        CriticalPath { length, ops }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::graph::Reason;
    use super::*;

    fn plan(operations: usize, edges: &[(u32, u32)]) -> StepPlan {
        let mut plan = StepPlan::new(operations);
        for op in 0..operations as u32 {
            let before = edges.iter().filter(|(_, to)| *to == op).map(|&(from, _)| (OpId(from), Reason::Stream));
            plan.push(before);
        }
        plan.finish()
    }

    #[test]
    fn of_equal_chains_the_first_is_the_path() {
        let timing = plan(4, &[(0, 3), (1, 3), (2, 3)]).timing(&[1.0, 2.0, 2.0, 1.0]);
        assert_eq!(timing.path.ops, [OpId(1), OpId(3)]);
        assert_eq!(timing.slack, [1.0, 0.0, 0.0, 0.0], "the other chain has no room either");
    }

    #[test]
    fn an_empty_iteration_takes_no_time() {
        let timing = plan(0, &[]).timing(&[]);
        assert_eq!(timing.path, CriticalPath { length: 0.0, ops: Vec::new() });
        assert_eq!(plan(2, &[(0, 1)]).timing(&[0.0, 0.0]).slack, [0.0, 0.0]);
    }

    /// Returns every chain from an operation without dependencies to one without dependents.
    fn chains(operations: usize, edges: &[(u32, u32)]) -> Vec<Vec<u32>> {
        let mut open: Vec<Vec<u32>> = (0..operations as u32).map(|op| vec![op]).collect();
        let mut found = Vec::new();
        while let Some(chain) = open.pop() {
            let last = chain[chain.len() - 1];
            found.push(chain.clone());
            for &(_, to) in edges.iter().filter(|(from, _)| *from == last) {
                open.push([chain.clone(), vec![to]].concat());
            }
        }
        found
    }

    /// Durations, and for each pair whether the later waits for the earlier.
    fn graphs() -> impl Strategy<Value = (Vec<u8>, Vec<(u32, u32)>)> {
        (1..8usize).prop_flat_map(|count| {
            let pairs = count * (count - 1) / 2;
            let all: Vec<(u32, u32)> = (0..count as u32).flat_map(|to| (0..to).map(move |from| (from, to))).collect();
            (prop::collection::vec(0..20u8, count), prop::collection::vec(any::<bool>(), pairs)).prop_map(
                move |(durations, taken)| {
                    let edges = all.iter().zip(taken).filter(|(_, taken)| *taken).map(|(edge, _)| *edge).collect();
                    (durations, edges)
                },
            )
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn critical_path_and_slack_agree_with_all_chains((durations, edges) in graphs()) {
            let durations: Vec<f64> = durations.into_iter().map(f64::from).collect();
            let length = |chain: &[u32]| chain.iter().map(|&op| durations[op as usize]).sum::<f64>();
            let all = chains(durations.len(), &edges);
            let longest = all.iter().map(|chain| length(chain)).fold(0.0, f64::max);
            let timing = plan(durations.len(), &edges).timing(&durations);
            prop_assert_eq!(timing.path.length, longest);
            let path: Vec<u32> = timing.path.ops.iter().map(|op| op.0).collect();
            prop_assert!(path.windows(2).all(|pair| edges.contains(&(pair[0], pair[1]))), "{:?} is no chain", path);
            prop_assert_eq!(length(&path), longest);
            for op in 0..durations.len() as u32 {
                let through = all.iter().filter(|chain| chain.contains(&op));
                let through = through.map(|chain| length(chain)).fold(0.0, f64::max);
                prop_assert_eq!(timing.slack[op as usize], longest - through, "slack of {}", op);
                let before = all.iter().filter(|chain| chain.last() == Some(&op));
                let end = before.map(|chain| length(chain)).fold(0.0, f64::max);
                prop_assert_eq!(timing.starts[op as usize], end - durations[op as usize], "start of {}", op);
            }
        }
    }
}
