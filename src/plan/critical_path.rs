//! The chain of operations that no stream can shorten.

use crate::base::OpId;

use super::StepPlan;

/// The longest chain of an iteration under given durations.
#[derive(Clone, Debug, PartialEq)]
pub struct CriticalPath {
    /// The sum of its durations, in their unit.
    pub length: f64,
    pub ops: Vec<OpId>,
}

impl StepPlan {
    /// The longest chain of dependencies when operation `i` takes `durations[i]`. Of equal ones, the first in the text.
    pub fn critical_path(&self, durations: &[f64]) -> CriticalPath {
        let count = self.operations();
        let mut ends = vec![0.0f64; count];
        let mut through: Vec<Option<OpId>> = vec![None; count];
        // The order of the text is one in which everything comes after what it waits for.
        for index in 0..count {
            let op = OpId::from(index);
            let mut start = 0.0;
            for edge in self.before(op) {
                if ends[edge.from.index()] > start {
                    start = ends[edge.from.index()];
                    through[index] = Some(edge.from);
                }
            }
            ends[index] = start + durations[index];
        }
        let mut last: Option<OpId> = None;
        for index in 0..count {
            if last.is_none_or(|best| ends[index] > ends[best.index()]) {
                last = Some(OpId::from(index));
            }
        }
        let length = last.map_or(0.0, |op| ends[op.index()]);
        let mut ops = Vec::new();
        while let Some(op) = last {
            ops.push(op);
            last = through[op.index()];
        }
        ops.reverse();
        CriticalPath { length, ops }
    }
}
