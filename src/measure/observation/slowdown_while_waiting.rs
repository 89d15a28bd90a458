//! Slowdown of kernels that run while another operation waits for other ranks: the waiting operation may occupy compute
//! units.

use std::collections::BTreeMap;

use crate::base::{Nanos, SpecId};
use crate::exec::Span;
use crate::model::OpKind;
use crate::ops::Category;

use super::observed::computes;
use super::spans::{self, TimeRange};
use super::subject::Subject;
use super::waiting::Iteration;
use crate::measure::record::BesideRecord;
use crate::measure::statistics::summary::Summary;

/// Share of a kernel's time with a concurrently waiting operation above which the kernel counts as affected.
const MAX_SHARE: f64 = 0.5;

/// Slowdown of kernels that run beside a waiting collective, send or receive: their time divided by their time alone.
/// Without a run on one stream, the reference is the time of equal operations that run beside no waiting one. `None`
/// without such kernels or without a reference.
pub fn waiting(subject: &Subject) -> Option<BesideRecord> {
    let mut beside: Vec<(ObservedKernel, f64)> = Vec::new();
    let mut apart: BTreeMap<SpecId, Vec<f64>> = BTreeMap::new();
    for iteration in subject.iterations {
        let waits = waits(subject, iteration);
        for span in &iteration.trace.spans {
            let Some(kernel) = kernel(subject, span) else { continue };
            let time = span.duration().0 as f64;
            let range = [(span.start.0 as f64, span.end.0 as f64)];
            match spans::length(&spans::common(&range, &waits)) {
                0.0 => apart.entry(kernel.spec).or_default().push(time),
                common if common >= MAX_SHARE * time => beside.push((kernel, time)),
                _ => {}
            }
        }
    }
    let medians: BTreeMap<SpecId, f64> =
        apart.iter().filter_map(|(spec, times)| Some((*spec, Summary::of(times)?.p50))).collect();
    let expected = |kernel: &ObservedKernel| kernel.alone.or_else(|| medians.get(&kernel.spec).copied());
    let known = beside.iter().filter_map(|(kernel, time)| Some((*time, expected(kernel)?)));
    let (count, time, without) =
        known.fold((0, 0.0, 0.0), |sum, (time, without)| (sum.0 + 1, sum.1 + time, sum.2 + without));
    let operations = f64::from(count) / subject.iterations.len() as f64;
    (without > 0.0).then(|| BesideRecord { operations, stretch: time / without })
}

/// A kernel of an iteration.
struct ObservedKernel {
    spec: SpecId,
    /// Duration of the kernel alone, in ns; `None` without a run on one stream.
    alone: Option<f64>,
}

fn kernel(subject: &Subject, span: &Span) -> Option<ObservedKernel> {
    let OpKind::Run(spec) = subject.program.cycle[subject.step].op(span.op).kind else { return None };
    let category = subject.program.spec(spec).operation.category();
    let alone = subject.alone.and_then(|alone| alone.of(subject.step, span.op));
    (computes(category) && span.duration() > Nanos(0)).then_some(ObservedKernel { spec, alone })
}

/// Intervals in which some collective, send or receive waits for another rank.
fn waits(subject: &Subject, iteration: &Iteration) -> Vec<TimeRange> {
    let step = &subject.program.cycle[subject.step];
    let is_kernel = |span: &&Span| {
        let spec = subject.program.op_spec(step.op(span.op));
        spec.is_some_and(|spec| spec.operation.category() == Category::Collective)
    };
    let wait = |span: &Span| (span.start.0 as f64, (span.end - iteration.work(span)).0 as f64);
    spans::union(iteration.trace.spans.iter().filter(is_kernel).map(wait).collect())
}
