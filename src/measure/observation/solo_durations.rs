//! Duration of each operation without concurrent operations, from the run on one stream.

use crate::base::OpId;
use crate::model::{Op, Program};

use super::waiting::Iteration;
use crate::measure::statistics::summary::Summary;

/// Median durations in ns without waiting for other ranks, by the rank's slot and the operation.
#[derive(Debug)]
pub struct SoloDurations(Vec<Vec<Option<f64>>>);

impl SoloDurations {
    /// Computes the durations from observed iterations of a run on one stream.
    pub fn of_serial(iterations: &[Iteration]) -> SoloDurations {
        let mut samples: Vec<Vec<Vec<f64>>> = Vec::new();
        for iteration in iterations {
            let step = at(&mut samples, iteration.trace.step);
            for span in &iteration.trace.spans {
                at(step, span.op.index()).push(iteration.work(span).0 as f64);
            }
        }
        let median = |samples: &Vec<f64>| Summary::of(samples).map(|summary| summary.p50);
        SoloDurations(samples.iter().map(|step| step.iter().map(median).collect()).collect())
    }

    /// Forgets the operations of streams that are limited to some compute units, since the one stream of the run is not.
    pub fn forget_limited(&mut self, program: &Program) {
        for (step, durations) in program.cycle.iter().zip(&mut self.0) {
            let limited = |op: &Op| program.streams[op.stream.index()].units.is_some();
            let of_limited = step.ops.iter().zip(durations).filter(|(op, _)| limited(op));
            of_limited.for_each(|(_, duration)| *duration = None);
        }
    }

    /// Duration of an operation in ns; `None` if it was not observed.
    pub fn of(&self, step: usize, op: OpId) -> Option<f64> {
        *self.0.get(step)?.get(op.index())?
    }
}

/// Returns a mutable element of a list, which is extended with default values as needed.
fn at<T: Default>(list: &mut Vec<T>, index: usize) -> &mut T {
    if list.len() <= index {
        list.resize_with(index + 1, T::default);
    }
    &mut list[index]
}
