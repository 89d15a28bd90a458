//! What was measured of a variant, as the record has it.

use crate::base::{Nanos, OpId, Space};
use crate::exec::{Health, LaunchMode, Samples, Trace};
use crate::model::{OpKind, Program};

use super::doubts;
use super::metrics::{self, Evidence, Known};
use super::plausible::Limits;
use super::record::{ExpectationRecord, HealthRecord, OperationRecord, RankRecord, SpanRecord, Times, Variant};
use super::run::{RankRequest, Request, Sampled, Serial};
use super::stats::Summary;

/// Disturbance by timing single operations beyond which a warning is given.
const OBSERVER: f64 = 0.02;

/// A variant's record. Over ranks, its times are those of the slowest in each iteration.
pub fn record(request: &Request, sampled: &Sampled, serial: Option<&Serial>, warnings: &mut Vec<String>) -> Variant {
    let Sampled { samples, ungated, warmup, mode, health, .. } = sampled;
    let time = Times::of(&samples.slowest.time);
    let issue = Times::of(&samples.slowest.issue);
    let ungated = ungated.as_ref().map(|samples| Times::of(&samples.time));
    let name = mode.name();
    let period = request.ranks[0].schedule.period.len();
    warnings.extend(doubts::of(name, &time, warmup, period));
    let ranks: Vec<RankRecord> = (0..request.ranks.len()).map(|index| rank(request, sampled, index)).collect();
    let effects = ranks.iter().filter_map(|rank| rank.observer_effect);
    if let Some(effect) = effects.max_by(|a, b| a.abs().total_cmp(&b.abs())).filter(|effect| effect.abs() > OBSERVER) {
        warnings.push(format!(
            "{name}: timing single operations changes the iteration by {:+.0} %: \
             take their times as shares, and the headline for the whole",
            effect * 100.0
        ));
    }
    warnings.extend(waits_for_host(*mode, &time, &issue, ungated.as_ref()));
    let evidence: Vec<Evidence> =
        (0..request.ranks.len()).map(|index| evidence(request, sampled, serial, index)).collect();
    Variant {
        launch: name.to_owned(),
        metrics: metrics::of_ranks(&evidence),
        expectations: expectations(request, &evidence),
        serial: serial.map(|serial| Times::of(&serial.samples.time)),
        ranks,
        time,
        warmup: *warmup,
        issue,
        ungated,
        health: health.before.iter().chain(&health.after).map(health_record).collect(),
        notes: sampled.notes.clone(),
    }
}

/// A warning, where the host takes nearly as long to issue an iteration as the device to run it.
fn waits_for_host(mode: LaunchMode, time: &Times, issue: &Times, ungated: Option<&Times>) -> Option<String> {
    let (issue, headline) = (issue.p50_ns?, time.p50_ns?);
    if mode != LaunchMode::Stream || issue.0 as f64 <= 0.9 * headline.0 as f64 {
        return None;
    }
    let waits = match ungated.and_then(|ungated| ungated.p50_ns) {
        Some(ungated) => format!("without the gate the device waits for it, and it becomes {ungated}"),
        None => "the device waits for it".to_owned(),
    };
    Some(format!(
        "{}: the host takes {issue} to issue an iteration of {headline}: {waits}; `--launch graph` issues it by one call",
        mode.name()
    ))
}

fn evidence<'a>(request: &'a Request, sampled: &'a Sampled, serial: Option<&'a Serial>, index: usize) -> Evidence<'a> {
    let RankRequest { program, plan, schedule, .. } = request.ranks[index];
    Evidence {
        program,
        plan,
        time: &sampled.samples.slowest.time,
        serial: serial.map(|serial| serial.samples.time.as_slice()),
        traces: traces(sampled, index),
        alone: serial.and_then(|serial| serial.alone.get(index)),
        memory: schedule.bytes(Space::Device),
        limits: Limits(request.profile),
        known: Known::default(),
    }
}

/// The observed iterations of a rank; none where it was not observed.
fn traces(sampled: &Sampled, index: usize) -> &[Trace] {
    sampled.traces.get(index).map_or(&[], Vec::as_slice)
}

/// An expectation holds when it does on every rank.
fn expectations(request: &Request, evidence: &[Evidence]) -> Vec<ExpectationRecord> {
    let declared = request.ranks[0].program.expectations.len();
    let each = (0..declared).zip(&request.expectations).map(|(index, (text, place))| {
        let of_rank = evidence.iter().filter_map(|evidence| {
            let expectation = evidence.program.expectations.get(index)?;
            Some(evidence.expectation(expectation, text.clone(), place.clone()))
        });
        let rank = |record: &ExpectationRecord| match record.verdict.as_str() {
            "failed" => 0,
            "held" => 1,
            _ => 2,
        };
        of_rank.min_by_key(rank)
    });
    each.flatten().collect()
}

fn rank(request: &Request, sampled: &Sampled, index: usize) -> RankRecord {
    let none = Samples::default();
    let samples = sampled.samples.ranks.get(index).unwrap_or(&none);
    let traces = traces(sampled, index);
    let time = Times::of(&samples.time);
    let observed: Vec<f64> = traces.iter().map(|trace| trace.time.0 as f64).collect();
    let observer_effect = match (Summary::of(&observed), time.p50_ns) {
        (Some(summary), Some(Nanos(headline))) if headline > 0 => Some(summary.p50 / headline as f64 - 1.0),
        _ => None,
    };
    let of = &request.ranks[index];
    RankRecord {
        rank: of.number,
        time,
        operations: operations(request, of, traces),
        observer_effect,
        trace: spans(traces),
    }
}

fn health_record(health: &Health) -> HealthRecord {
    HealthRecord {
        clock_mhz: health.clock_mhz,
        max_clock_mhz: health.max_clock_mhz,
        power_watts: health.power_watts,
        power_limit_watts: health.power_limit_watts,
        celsius: health.celsius,
        reasons: health.reasons.iter().map(|reason| (*reason).to_owned()).collect(),
    }
}

/// The spans of the last observed iteration of the cycle's first step.
fn spans(traces: &[Trace]) -> Vec<SpanRecord> {
    let trace = traces.iter().rev().find(|trace| trace.step == 0);
    trace.map_or_else(Vec::new, |trace| {
        trace.spans.iter().map(|span| SpanRecord { id: span.op.0, start_ns: span.start, end_ns: span.end }).collect()
    })
}

fn operations(request: &Request, rank: &RankRequest, traces: &[Trace]) -> Vec<OperationRecord> {
    let program = rank.program;
    let step = &program.cycle[0];
    let graph = &rank.plan.steps[0];
    let mut starts: Vec<Vec<f64>> = vec![Vec::new(); step.ops.len()];
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); step.ops.len()];
    for trace in traces.iter().filter(|trace| trace.step == 0) {
        for span in &trace.spans {
            starts[span.op.index()].push(span.start.0 as f64);
            times[span.op.index()].push(span.duration().0 as f64);
        }
    }
    let median = |samples: &[f64]| Summary::of(samples).map(|summary| Nanos(summary.p50.round() as i64));
    step.ids()
        .map(|op| {
            let info = step.op(op);
            let spec = program.op_spec(info);
            let cost = spec.map(|spec| spec.cost()).unwrap_or_default();
            let category = spec.map_or(crate::ops::Category::Marker, |spec| spec.operation.category());
            OperationRecord {
                id: op.0,
                name: program.op_text(info),
                operation: program.op_name(info).to_owned(),
                category: category.name().to_owned(),
                phase: program.phase_text(info.phase),
                stream: program.streams[info.stream.index()].name.clone(),
                lane: rank.schedule.lane_of[info.stream.index()].0,
                place: (request.places)(info.span),
                shape: shape(program, op),
                flops: cost.flops,
                bytes: cost.bytes(),
                after: graph.before(op).iter().map(|edge| edge.from.0).collect(),
                time_ns: median(&times[op.index()]),
                start_ns: median(&starts[op.index()]),
            }
        })
        .collect()
}

/// `bf16[4, 8], bf16[8, 2] -> bf16[4, 2]`.
pub fn shape(program: &Program, op: OpId) -> String {
    let step = &program.cycle[0];
    let OpKind::Run(_) = step.op(op).kind else { return String::new() };
    let list = |views: &[crate::base::ViewId]| {
        views.iter().map(|view| program.views.tensor(*view).to_string()).collect::<Vec<_>>().join(", ")
    };
    let (inputs, outputs) = (list(step.inputs(op)), list(step.outputs(op)));
    match (inputs.is_empty(), outputs.is_empty()) {
        (_, true) => inputs,
        (true, false) => format!("-> {outputs}"),
        (false, false) => format!("{inputs} -> {outputs}"),
    }
}
