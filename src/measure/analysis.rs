//! What the iterations of a slot spent their time on: by category, along the chain, against the peaks.

use std::collections::BTreeMap;

use crate::base::{Nanos, OpId};
use crate::config::Profile;
use crate::cost::floor;
use crate::exec::{Span, Trace};
use crate::model::Program;
use crate::ops::{Category, Spec};
use crate::plan::Plan;

use super::alone::Alone;
use super::device;
use super::observed::{Observed, computes};
use super::record::{AnalysisRecord, CategoryRecord, PathRecord, PeakRecord};
use super::split::{self, Around, Link};
use super::stats::Summary;
use super::verdict;

/// What the analysis is of.
pub struct Subject<'a> {
    pub program: &'a Program,
    pub plan: &'a Plan,
    /// Which slot of the rank's own cycle it is.
    pub step: usize,
    /// Observed iterations of that slot.
    pub traces: &'a [&'a Trace],
    pub alone: Option<&'a Alone>,
    pub host_bound: bool,
    /// The hardware queue of each real stream; nothing where operations go by none, as in a graph.
    pub queues: Option<Vec<u32>>,
    /// The headline's median, where it is believed.
    pub time: Option<Nanos>,
    pub profile: Option<&'a Profile>,
}

/// The analysis, unless no iteration of the slot was observed.
pub fn analyze(subject: &Subject) -> Option<AnalysisRecord> {
    let mut traces = subject.traces.to_vec();
    traces.sort_by_key(|trace| trace.time);
    let trace = *traces.get(traces.len().saturating_sub(1) / 2)?;
    let step = &subject.plan.steps[subject.step];
    let category = |span: &Span| spec(subject, span.op).map(|spec| spec.operation.category());
    let queue = |span: &Span| {
        let queues = subject.queues.as_ref()?;
        // Copies go by their engines.
        category(span).filter(|category| *category != Category::Copy)?;
        queues.get(span.lane.index()).copied()
    };
    let around = Around { step, alone: subject.alone, host_bound: subject.host_bound, queue: &queue };
    let (split, links) = split::split(trace, &around);
    let categories = categories(subject, &traces, &links);
    let (verdict, help) = verdict::verdict(&split, &categories, tail(trace));
    let path = step.critical_path(&medians(step.operations(), &traces));
    Some(AnalysisRecord {
        verdict,
        help,
        split,
        critical_path: PathRecord {
            length_ns: Nanos(path.length.round() as i64),
            operations: path.ops.iter().map(|op| op.0).collect(),
        },
        categories,
        peak: peak(subject),
    })
}

fn spec<'a>(subject: &Subject<'a>, op: OpId) -> Option<&'a Spec> {
    subject.program.op_spec(subject.program.cycle[subject.step].op(op))
}

/// The median duration of each operation, in ns; 0 for one that was not observed.
pub fn medians(operations: usize, traces: &[&Trace]) -> Vec<f64> {
    let mut samples: Vec<Vec<f64>> = vec![Vec::new(); operations];
    for span in traces.iter().flat_map(|trace| &trace.spans) {
        samples[span.op.index()].push(span.duration().0 as f64);
    }
    samples.iter().map(|samples| Summary::of(samples).map_or(0.0, |summary| summary.p50)).collect()
}

fn categories(subject: &Subject, traces: &[&Trace], links: &[Link]) -> Vec<CategoryRecord> {
    let mut chain: BTreeMap<Category, i64> = BTreeMap::new();
    for link in links {
        if let Some(spec) = spec(subject, link.op) {
            *chain.entry(spec.operation.category()).or_default() += link.time;
        }
    }
    let mut present: BTreeMap<Category, usize> = BTreeMap::new();
    for op in &subject.program.cycle[subject.step].ops {
        if let Some(spec) = subject.program.op_spec(op) {
            *present.entry(spec.operation.category()).or_default() += 1;
        }
    }
    let median = |category: Category, value: &dyn Fn(&Observed) -> f64| {
        let samples: Vec<f64> = traces
            .iter()
            .map(|trace| {
                let all = Observed::of(subject.program, subject.plan, trace, None);
                value(&all.only(|spec| spec.operation.category() == category))
            })
            .collect();
        Nanos(Summary::of(&samples).map_or(0.0, |summary| summary.p50).round() as i64)
    };
    let record = |(category, operations): (Category, usize)| CategoryRecord {
        category: category.name().to_owned(),
        operations,
        busy_ns: median(category, &|observed| observed.busy()),
        exposed_ns: (!computes(category)).then(|| median(category, &|observed| observed.exposed())),
        chain_ns: Nanos(chain.get(&category).copied().unwrap_or(0)),
    };
    present.into_iter().filter(|(category, _)| *category != Category::Marker).map(record).collect()
}

/// The time at the end in which only one real stream has work left; nothing where there is no other.
fn tail(trace: &Trace) -> Nanos {
    let mut ends: BTreeMap<_, Nanos> = BTreeMap::new();
    for span in &trace.spans {
        let end = ends.entry(span.lane).or_insert(span.end);
        *end = span.end.max(*end);
    }
    let mut ends: Vec<Nanos> = ends.into_values().collect();
    ends.sort_unstable();
    match ends[..] {
        [.., before, last] => last - before,
        _ => Nanos(0),
    }
}

/// The share of the device's peaks that iterations reach: what a round takes at the peaks, over its time.
fn peak(subject: &Subject) -> Option<PeakRecord> {
    let profile = subject.profile?;
    let time = subject.time.filter(|time| time.0 > 0)?;
    let (flops, bytes) = device::ideal(subject.program, profile);
    let whole = time.0 as f64;
    Some(PeakRecord { profile: profile.name.clone(), flops: flops / whole, bytes: bytes / whole })
}

/// What an operation takes at the device's peaks, with its operands in memory; nothing where it needs neither.
pub fn ideal(spec: &Spec, profile: &Profile) -> Option<Nanos> {
    let (flops, bytes) = floor::ideal(spec, profile);
    let time = flops.max(bytes);
    (time > 0.0).then(|| Nanos(time.ceil() as i64))
}
