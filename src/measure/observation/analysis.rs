//! Analysis of a slot's iterations: time by category, the chain of operations that they waited for, and rates relative
//! to the device's peaks.

use std::collections::BTreeMap;

use indexmap::IndexMap;

use crate::base::{Nanos, OpId};
use crate::exec::{Span, Trace};
use crate::ops::{self, Category, Spec};

use super::observed::{ObservedOperations, computes};
use super::queue_waits::QueueWaits;
use super::split::{self, ChainLink, TimeSplitContext};
use super::subject::Subject;
use super::waiting::Iteration;
use super::{engine_waits, slowdown_while_waiting, spans, usual_share};
use crate::measure::record::{
    AnalysisRecord, BoundRecord, CategoryRecord, PathRecord, PeakRecord, PhaseRecord, TimeSplitRecord, TotalsRecord,
};
use crate::measure::statistics::summary::Summary;

/// Share of a resource's peak above which the resource is considered the limit of an operation.
const LIMITS: f64 = 0.3;

/// Analyzes a slot; `None` if no iteration of it was observed. Leaves the verdict empty, since it may depend on other
/// ranks.
pub fn analyze(subject: &Subject) -> Option<AnalysisRecord> {
    let iteration = middle(subject.iterations)?;
    let queues = |trace: &Trace| queue_waits(subject, trace);
    let around = TimeSplitContext {
        plan: subject.plan,
        earlier: subject.earlier,
        depth: subject.program.step.under_way() as usize,
        alone: subject.alone,
        host_bound: subject.host_bound,
        queues: &queues,
        engines: &|trace| engine_waits::occupied_until(subject.peaks, trace),
    };
    let (split, links) = split::split(iteration, &around);
    let observed = ObservedOperations::of(subject.program, subject.plan, iteration, None);
    let categories = categories(subject, &observed, &links);
    Some(AnalysisRecord {
        verdict: String::new(),
        help: String::new(),
        critical_path: path(subject, &observed),
        queue_waits: match (&subject.queues, subject.host_bound) {
            (Some(lanes), None) => queues(iteration.trace).records(iteration.trace, lanes, split.queue_ns),
            _ => Vec::new(),
        },
        unusual: usual_share::pass(subject.program).and_then(|pass| usual_share::unusual(&categories, pass)),
        categories,
        bounds: bounds(subject, &links),
        totals: Some(totals(subject, &observed)),
        lanes_busy_ns: lanes(&observed),
        beside_waiting: slowdown_while_waiting::waiting(subject),
        // While an overlapping iteration ends, later ones already run, so that it has no tail.
        tail_ns: subject.earlier.is_empty().then(|| tail(iteration.trace)),
        peak: peak(subject),
        phases: phases(subject, &links),
        split,
    })
}

/// The iteration with the median time; `None` if there is none.
pub fn middle<'a>(iterations: &[&'a Iteration<'a>]) -> Option<&'a Iteration<'a>> {
    let mut iterations = iterations.to_vec();
    iterations.sort_by_key(|iteration| iteration.trace.time);
    iterations.get(iterations.len().saturating_sub(1) / 2).copied()
}

/// Waits in hardware queues during an iteration.
fn queue_waits(subject: &Subject, trace: &Trace) -> QueueWaits {
    let Some(queues) = &subject.queues else { return QueueWaits::default() };
    let queue = |span: &Span| {
        let category = spec(subject, (trace.step, span.op)).map(|spec| spec.operation.category());
        // Copies use copy engines.
        category.filter(|category| *category != Category::Copy)?;
        queues.of_lane.get(span.lane.index()).copied().flatten()
    };
    QueueWaits::of(trace, &subject.plan.steps[trace.step], &queue, queues.rule)
}

/// Spec of an operation of a slot of the rank's cycle; `None` for a marker.
fn spec<'a>(subject: &Subject<'a>, (step, op): (usize, OpId)) -> Option<&'a Spec> {
    subject.program.op_spec(subject.program.cycle[step].op(op))
}

/// Median duration of each operation in ns; 0 for operations that were not observed.
pub fn medians(operations: usize, iterations: &[&Iteration]) -> Vec<f64> {
    let mut samples: Vec<Vec<f64>> = vec![Vec::new(); operations];
    for span in iterations.iter().flat_map(|iteration| &iteration.trace.spans) {
        samples[span.op.index()].push(span.duration().0 as f64);
    }
    samples.iter().map(|samples| Summary::of(samples).map_or(0.0, |summary| summary.p50)).collect()
}

/// The split of each phase on the chain; empty if no operation of it has a phase.
fn phases(subject: &Subject, links: &[ChainLink]) -> Vec<PhaseRecord> {
    let mut splits: IndexMap<Option<String>, TimeSplitRecord> = IndexMap::new();
    for link in links {
        let phase = subject.program.phase_text(subject.program.cycle[link.step].op(link.op).phase);
        splits.entry(phase).or_default().add(&link.parts);
    }
    let phases = splits.into_iter().map(|(phase, split)| PhaseRecord { phase, split });
    let phases: Vec<PhaseRecord> = phases.collect();
    if phases.iter().any(|phase| phase.phase.is_some()) { phases } else { Vec::new() }
}

/// Record of the operations that the iteration waited for, and of the time between them.
fn path(subject: &Subject, observed: &ObservedOperations) -> PathRecord {
    let path = subject.plan.steps[subject.step].critical_path(&observed.durations());
    let on_path = |span: &&Span| path.ops.contains(&span.op);
    let spans = observed.spans.iter().filter(on_path).copied().collect();
    let running = ObservedOperations { spans, ..*observed };
    PathRecord {
        length_ns: Nanos::rounded(path.length),
        running_ns: Some(Nanos::rounded(running.busy())),
        operations: path.ops.iter().map(|op| op.0).collect(),
    }
}

/// Time of an iteration by category of operations, as a whole and on the chain.
fn categories(subject: &Subject, observed: &ObservedOperations, links: &[ChainLink]) -> Vec<CategoryRecord> {
    let mut chain: BTreeMap<Category, (Nanos, Option<Nanos>)> = BTreeMap::new();
    for link in links {
        if let Some(spec) = spec(subject, (link.step, link.op)) {
            let (time, stretch) = chain.entry(spec.operation.category()).or_default();
            time.0 += link.time;
            *stretch = link.parts.stretch_ns.map(|more| more + stretch.unwrap_or_default());
        }
    }
    let mut present: BTreeMap<Category, usize> = BTreeMap::new();
    for op in &subject.program.cycle[subject.step].ops {
        if let Some(spec) = subject.program.op_spec(op) {
            *present.entry(spec.operation.category()).or_default() += 1;
        }
    }
    let computation = observed.computation().running();
    let record = |(category, operations): (Category, usize)| {
        let of_category = observed.only(|spec| spec.operation.category() == category);
        let busy = of_category.running();
        let (chain_ns, stretch_ns) = chain.get(&category).copied().unwrap_or_default();
        let met = of_category.spans.iter().any(|span| of_category.iteration.wait(span.op).is_some());
        let transfer = met.then(|| Nanos::rounded(of_category.within(&of_category.working())));
        let busy_ns = Nanos::rounded(spans::length(&busy));
        CategoryRecord {
            category: category.name().to_owned(),
            operations,
            busy_ns,
            exposed_ns: (!computes(category)).then(|| Nanos::rounded(spans::outside(&busy, &computation))),
            transfer_ns: transfer,
            wait_ns: transfer.map(|transfer| busy_ns - transfer),
            chain_ns,
            stretch_ns,
        }
    };
    present.into_iter().filter(|(category, _)| *category != Category::Marker).map(record).collect()
}

/// The resources that bound the chain's operations, by category and resource.
fn bounds(subject: &Subject, links: &[ChainLink]) -> Vec<BoundRecord> {
    let mut sums: BTreeMap<(Category, Option<&str>), (i64, f64)> = BTreeMap::new();
    for link in links {
        let Some(spec) = spec(subject, (link.step, link.op)) else { continue };
        let bound = subject.peaks.and_then(|peaks| {
            let (resource, ideal) = peaks.ideal(link.step, link.op)?.bound()?;
            Some((resource.name(peaks.profile), ideal))
        });
        // If the chain contains only a part of an operation, the same part of its ideal time counts.
        let whole = link.whole.max(1) as f64;
        let ideal = bound.map_or(0.0, |(_, ideal)| ideal * link.time as f64 / whole);
        let key = (spec.operation.category(), bound.map(|(resource, _)| resource));
        let sum = sums.entry(key).or_default();
        *sum = (sum.0 + link.time, sum.1 + ideal);
    }
    let record = |((category, resource), (time, ideal)): ((Category, Option<&str>), (i64, f64))| BoundRecord {
        category: category.name().to_owned(),
        resource: resource.map(str::to_owned),
        limits: ideal >= LIMITS * time as f64 && ideal > 0.0,
        chain_ns: Nanos(time),
        ideal_ns: Nanos::rounded(ideal),
    };
    sums.into_iter().map(record).collect()
}

/// Totals of an observed iteration over all of its operations.
fn totals(subject: &Subject, observed: &ObservedOperations) -> TotalsRecord {
    let meets = |span: &&Span| observed.iteration.wait(span.op).is_some();
    let between = ObservedOperations { spans: observed.spans.iter().filter(meets).copied().collect(), ..*observed };
    let running = Nanos::rounded(observed.busy());
    let busy_ns = Nanos::rounded(observed.within(&observed.working()));
    let sums = subject.alone.and_then(|alone| observed.together_and_alone(alone));
    TotalsRecord {
        busy_ns,
        transfer_ns: Nanos::rounded(between.within(&between.working())),
        wait_ns: running - busy_ns,
        stretch: sums.filter(|(_, alone)| *alone > 0.0).map(|(together, alone)| together / alone),
    }
}

/// Time in which each real stream runs an operation.
fn lanes(observed: &ObservedOperations) -> Vec<Nanos> {
    let lanes = observed.spans.iter().map(|span| span.lane.index() + 1).max().unwrap_or(0);
    let of_lane = |lane| observed.spans.iter().filter(move |span| span.lane.index() == lane).copied().collect();
    (0..lanes).map(|lane| Nanos::rounded(ObservedOperations { spans: of_lane(lane), ..*observed }.busy())).collect()
}

/// Time at the end of the iteration during which only one real stream has work; 0 if there is no other stream.
fn tail(trace: &Trace) -> Nanos {
    let mut ends: BTreeMap<_, Nanos> = BTreeMap::new();
    for span in &trace.spans {
        let end = ends.entry(span.lane).or_insert(span.end);
        *end = span.end.max(*end);
    }
    let mut ends: Vec<Nanos> = ends.into_values().map(|end| end.clamp(Nanos(0), trace.time.max(Nanos(0)))).collect();
    ends.sort_unstable();
    match ends[..] {
        [.., before, last] => last - before,
        _ => Nanos(0),
    }
}

/// Achieved share of the device's peaks: the ideal time of a round over its measured time. `None` without a device
/// profile, or if a tensor determines how much work an operation does.
fn peak(subject: &Subject) -> Option<PeakRecord> {
    let peaks = subject.peaks?;
    let mut operations = subject.program.cycle.iter().flat_map(|step| &step.ops);
    if operations.any(|op| subject.program.op_spec(op).is_some_and(ops::assumes_size)) {
        return None;
    }
    let time = subject.time.filter(|time| time.0 > 0)?;
    let (flops, bytes) = peaks.iteration();
    let whole = time.0 as f64;
    let link = peaks.busiest_link().map(|(link, time)| (link.name(peaks.profile).to_owned(), time / whole));
    Some(PeakRecord { profile: peaks.profile.name.clone(), flops: flops / whole, bytes: bytes / whole, link })
}
