//! How long each operation takes when nothing runs beside it: as it was observed in the run on one stream.

use crate::base::OpId;
use crate::exec::Trace;

use super::stats::Summary;

/// Medians of durations, in ns, by the rank's own slot and the operation.
#[derive(Debug)]
pub struct Alone(Vec<Vec<Option<f64>>>);

impl Alone {
    /// From the observed iterations of a run on one stream.
    pub fn of_serial(traces: &[Trace]) -> Alone {
        let mut samples: Vec<Vec<Vec<f64>>> = Vec::new();
        for trace in traces {
            let step = at(&mut samples, trace.step);
            for span in &trace.spans {
                at(step, span.op.index()).push(span.duration().0 as f64);
            }
        }
        let median = |samples: &Vec<f64>| Summary::of(samples).map(|summary| summary.p50);
        Alone(samples.iter().map(|step| step.iter().map(median).collect()).collect())
    }

    /// What an operation takes alone; nothing where it was not observed.
    pub fn of(&self, step: usize, op: OpId) -> Option<f64> {
        *self.0.get(step)?.get(op.index())?
    }
}

/// The element at a place, with empty ones up to it where there are fewer.
fn at<T: Default>(list: &mut Vec<T>, index: usize) -> &mut T {
    if list.len() <= index {
        list.resize_with(index + 1, T::default);
    }
    &mut list[index]
}
