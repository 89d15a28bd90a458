//! Builds the record of a variant from its samples.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::{Nanos, Space};
use crate::config::{GraphCosts, Profile, SourcedFigure};
use crate::exec::{LaunchMode, ObservedBy, RankSchedule, Samples, Trace};
use crate::model::{Program, Sync};
use crate::ops::{Direction, Launch, Spec};

use super::doubts;
use super::sampled::{Serial, VariantSamples};
use crate::measure::metrics::device::DeviceProperties;
use crate::measure::metrics::evidence::{Evidence, Figures};
use crate::measure::metrics::{self, RankMetrics};
use crate::measure::observation::occupied::occupied;
use crate::measure::observation::operations::operations;
use crate::measure::observation::plausible::DeviceLimits;
use crate::measure::observation::queue_waits::{self, LaneQueues};
use crate::measure::observation::solo_durations::SoloDurations;
use crate::measure::observation::subject::{Peaks, Subject};
use crate::measure::observation::waiting::{Iteration, Observations};
use crate::measure::observation::{analysis, skew, split, verdict};
use crate::measure::record::{
    AnalysisRecord, ExpectationRecord, LaneRecord, OperationRecord, RankRecord, SpanRecord, TimeSplitRecord, Times,
    Variant, observer_effect_text,
};
use crate::measure::request::Request;
use crate::measure::statistics::summary::Summary;

/// Overhead of observation above which a warning is given.
const OBSERVER: f64 = 0.02;

/// Share of an iteration's measured time above which the host's launch time counts as the limit.
const HOST: f64 = 0.9;

/// Time of an iteration without the gate relative to one with it, up to which the host does not hold up the device.
const HELD_UP: f64 = 1.02;

/// Note about a graph of iterations that would overlap as streams.
const GRAPHS_DO_NOT_OVERLAP: &str =
    "a graph begins after the previous one has completed, so `sync: end` has no effect on it: the time is a latency";

/// Note about a GPU's graph of several streams that is measured in the process that has measured the streams.
const AFTER_STREAMS: &str = "it is measured after the streams, in the same process, where a graph of several streams can be slower: \
                             `--launch graph` has its own time";

/// Share of an observed iteration that the device must wait for the host if the host limits iterations without the gate.
const LAUNCH_GAPS: f64 = 0.05;

/// Maximum number of earlier iterations in which the chain of an overlapping one continues.
const MAX_EARLIER: usize = 256;

/// Maximum number of operations for which the record of a run that ends early lists every operation and has the hash of
/// the plan. For a million operations this takes seconds, for which a user who has pressed Ctrl-C would wait.
pub const STOPPED_OPERATIONS: usize = 50_000;

/// Record of a variant. With several ranks, times are those of the slowest one in each iteration. `ended` is false for
/// the intermediate record of a run in progress, which is used only if the run ends early.
pub fn record(
    request: &Request,
    sampled: &VariantSamples,
    serial: Option<&Serial>,
    ended: bool,
    warnings: &mut Vec<String>,
) -> Variant {
    let VariantSamples { blocks, ungated, warmup, mode, .. } = sampled;
    let samples = &blocks.samples;
    let whole = request.times(&samples.slowest);
    // Less than a round has no minimum time to check against.
    let median = whole.p50_ns.filter(|_| whole.n >= request.slots());
    let checked = request.ranks.iter().map(|rank| match median {
        Some(median) => DeviceLimits::of(request, rank).check_round(rank.program, median.0 as f64),
        None => Ok(()),
    });
    let refused = checked.filter_map(Result::err).next();
    let time = if refused.is_none() { whole } else { Times::bare(&samples.slowest.time) };
    let issue = Times::of_slots(&samples.slowest.issue, request.slots(), samples.slowest.first);
    let ungated = ungated.as_ref().map(|samples| request.times(samples));
    let name = mode.phrase();
    warnings.extend(refused.as_ref().map(|why| format!("{name}: the time has no value, since {why}")));
    let device = request.backend.device();
    match device.simulated {
        true => warnings.extend(doubts::simulated(name, &time, request.slots(), request.exec.timeout)),
        false => warnings.extend(doubts::of(name, &time, warmup, request.slots())),
    }
    let slow_host = waits_for_host(*mode, &time, &issue, ungated.as_ref()).map(|text| {
        let help = match (mode, request.modes.contains(&LaunchMode::Graph)) {
            (LaunchMode::Graph, _) => FEWER_BRANCHES,
            (LaunchMode::Stream, false) => BY_GRAPH,
            // A run that has been asked for a graph needs no such advice.
            (LaunchMode::Stream, true) => "",
        };
        let simulated = request.profile.filter(|_| device.simulated);
        let times = simulated.map(|profile| host_times(*mode, request.first().program, profile));
        format!("{text}{help}{}", times.unwrap_or_default())
    });
    // A gated iteration does not wait for the host.
    let host_bound = slow_host.as_ref().filter(|_| !samples.slowest.gated).map(|_| *mode);
    let device = DeviceProperties::new(&device, request.profile);
    let slot = longest_slot(&time, &sampled.traces);
    let observations = Observations::of(request.ranks, request.slots(), &sampled.traces);
    let data = VariantData {
        request,
        sampled,
        observations: &observations,
        serial,
        complete: ended && !request.control.stopped(),
        host_bound,
        refused: refused.is_some(),
        device,
        slot,
    };
    let mut ranks: Vec<RankRecord> = (0..request.ranks.len()).map(|index| data.rank(index)).collect();
    if let Some(count) = (0..ranks.len()).find_map(|index| data.unlisted_operations(index)) {
        warnings.push(format!("{name}: the run ended early; its {count} operations are not listed"));
    }
    let start = request.profile.map_or(Nanos(0), |profile| queue_waits::start(*mode, profile));
    let topology = request.backend.topology();
    let skew = skew::of(&ranks);
    let balance = skew.as_ref().and_then(|skew| skew.balance.as_ref());
    for (rank, of) in ranks.iter_mut().zip(request.ranks) {
        let number = rank.rank;
        if let Some(analysis) = &mut rank.analysis {
            let remedy = |lane| verdict::lane_remedy(&LaneRecord::of(lane, of.program, topology), mode.name());
            let remedies: Vec<_> = of.schedule.lanes.iter().map(remedy).collect();
            let by_lanes = by_lanes(analysis, &rank.operations, &remedies);
            (analysis.verdict, analysis.help) = verdict::without_verdict(rank.observer_effect)
                .unwrap_or_else(|| verdict::verdict(analysis, number, balance, &by_lanes, &rank.operations, start));
            if *mode == LaunchMode::Graph {
                analysis.help = verdict::help_for_graph(&analysis.help);
            }
        }
    }
    let effects = ranks.iter().filter_map(|rank| Some((rank.rank, rank.observer_effect?)));
    let strongest = effects.max_by(|(_, a), (_, b)| a.abs().total_cmp(&b.abs()));
    let effect = strongest.map(|(_, effect)| effect);
    let mut notes = sampled.notes.clone();
    notes.extend(sampled.observed_by.as_ref().map(|by| observation_note(by, effect)));
    notes.extend(ranks.first().and_then(|rank| assumed_note(&rank.operations)));
    if *mode == LaunchMode::Graph && request.ranks.iter().any(|rank| rank.program.step.sync == Sync::End) {
        notes.push(GRAPHS_DO_NOT_OVERLAP.to_owned());
    }
    let has_several_lanes = |rank: &RankSchedule| rank.schedule.period.iter().any(|step| step.used.len() > 1);
    let is_gpu = request.backend.device().index.is_some();
    let after_streams = is_gpu && *mode == LaunchMode::Graph && request.modes.contains(&LaunchMode::Stream);
    if after_streams && request.ranks.iter().any(has_several_lanes) {
        notes.push(AFTER_STREAMS.to_owned());
    }
    if let Some((rank, effect)) = strongest.filter(|(_, effect)| effect.abs() > OBSERVER) {
        let of_rank = if ranks.len() > 1 { format!(", rank {rank}") } else { String::new() };
        warnings.push(format!(
            "{name}{of_rank}: observed iterations take {} than measured ones: use the times of single operations as shares, \
             and the headline for the whole",
            observer_effect_text(effect)
        ));
    }
    // Without the gate, a full hardware queue holds the host up, whose launch time is then that of the device.
    let waits = |split: &TimeSplitRecord| split.launch_ns.0 as f64 > LAUNCH_GAPS * split.time_ns.0 as f64;
    let no_gaps = |rank: &RankRecord| rank.analysis.as_ref().is_some_and(|analysis| !waits(&analysis.split));
    let held_up = host_bound.is_some() && ranks.iter().all(no_gaps);
    warnings.extend(slow_host.filter(|_| !held_up));
    let of_rank = |index| RankMetrics::new(data.evidence(index));
    let rank_metrics: Vec<RankMetrics> = (0..request.ranks.len()).map(of_rank).collect();
    let metrics = metrics::of_ranks(&rank_metrics);
    warnings.extend(doubts::spans_as_shares(name, request.first().program, &metrics));
    Variant {
        refused,
        launch: mode.name().to_owned(),
        metrics,
        expectations: expectations(request, &rank_metrics),
        serial: serial.map(|serial| request.times(&serial.samples)),
        skew,
        ranks,
        time,
        warmup: *warmup,
        issue,
        ungated,
        health: blocks.edges().map(|health| health.sensors.clone()).collect(),
        blocks: blocks.records(),
        notes,
        compile_ns: sampled.compile,
    }
}

/// The remedies of lanes for categories whose part of the chain mostly runs on such lanes.
fn by_lanes<'a>(
    analysis: &AnalysisRecord,
    operations: &'a [OperationRecord],
    remedies: &[Option<&'static str>],
) -> Vec<(&'a str, &'static str)> {
    let mut times: BTreeMap<&str, BTreeMap<Option<&'static str>, Nanos>> = BTreeMap::new();
    for operation in analysis.split.chain.iter().filter_map(|&id| operations.get(id as usize)) {
        let remedy = remedies.get(operation.lane as usize).copied().flatten();
        let time = times.entry(&operation.category).or_default().entry(remedy).or_default();
        time.0 += operation.work_ns().unwrap_or_default().0;
    }
    let main = |times: BTreeMap<Option<&'static str>, Nanos>| {
        let all: i64 = times.values().map(|time| time.0).sum();
        times.into_iter().find(|(_, time)| 2 * time.0 > all)?.0
    };
    times.into_iter().filter_map(|(category, times)| Some((category, main(times)?))).collect()
}

/// Note about the method by which single operations were timed, and its cost.
fn observation_note(by: &ObservedBy, effect: Option<f64>) -> String {
    let cost = effect.map(|effect| format!("; observing changes the iteration by {:+.1} %", effect * 100.0));
    let instead = by.instead.as_ref().map(|why| format!(", since {why}"));
    let (instead, cost) = (instead.unwrap_or_default(), cost.unwrap_or_default());
    format!("single operations are timed by {}{instead}{cost}", by.method)
}

/// Note about operations whose number of rows is assumed; `None` if there are none.
fn assumed_note(operations: &[OperationRecord]) -> Option<String> {
    const NAMES: usize = 3;
    let assumed: Vec<&str> = operations.iter().filter(|one| one.assumed).map(|one| one.name.as_str()).collect();
    let shown: Vec<String> = assumed.iter().take(NAMES).map(|name| format!("`{name}`")).collect();
    let more = if assumed.len() > NAMES { format!(" and {} more", assumed.len() - NAMES) } else { String::new() };
    (!assumed.is_empty()).then(|| {
        format!(
            "a tensor determines how many rows or keys of {}{more} hold data: their flops, bytes and simulated times are for an \
             assumed number, and their rates are unknown",
            shown.join(", ")
        )
    })
}

/// Remedies for an iteration that the host launches too slowly, as streams and as a graph.
const BY_GRAPH: &str = "; `--launch graph` launches it by one call";
const FEWER_BRANCHES: &str =
    "; give an iteration more work, or its graph fewer branches, with each of which the call takes longer";

/// Warning that the host takes nearly as long to launch an iteration as the device to run it; `None` if it does not, or if iterations
/// without the gate are as fast.
fn waits_for_host(mode: LaunchMode, time: &Times, issue: &Times, ungated: Option<&Times>) -> Option<String> {
    let (issue, headline) = (issue.p50_ns?, time.p50_ns?);
    if issue.0 as f64 <= HOST * headline.0 as f64 {
        return None;
    }
    let ungated = ungated.and_then(|ungated| ungated.p50_ns);
    if ungated.is_some_and(|ungated| ungated.0 as f64 <= HELD_UP * headline.0 as f64) {
        return None;
    }
    let waits = match ungated {
        Some(ungated) => {
            let from =
                if ungated < issue { ", from its first stamp, whose call is part of the launch time" } else { "" };
            format!("without the gate, the device waits for the host, and an iteration takes {ungated}{from}")
        }
        None => "the device waits for the host".to_owned(),
    };
    Some(format!("{}: host launch time {issue} for an iteration of {headline}: {waits}", mode.phrase()))
}

/// The times of a simulated host for the calls that launch the operations of a program, at the end of a warning.
fn host_times(mode: LaunchMode, program: &Program, profile: &Profile) -> String {
    let time = |figure: &SourcedFigure| Nanos::rounded(figure.value());
    if mode == LaunchMode::Graph {
        let GraphCosts { launch, launch_branch, .. } = &profile.graph;
        let (launch, branch) = (time(launch), time(launch_branch));
        return format!(
            "; the simulated host takes {launch} to launch a graph, and {branch} for each further branch, as the profile says"
        );
    }
    let host = &profile.host;
    let call = |launch: &Launch| match launch {
        Launch::Gemm(..) => Some((&host.matrix, "a matrix product")),
        Launch::Copy(copy) if copy.direction == Direction::DeviceToDevice => {
            Some((&host.copy_on_device, "a copy within the device"))
        }
        Launch::Copy(_) => Some((&host.copy, "a copy")),
        Launch::Memset { .. } => Some((&host.memset, "a fill")),
        Launch::Collective(_) => Some((&host.collective, "a collective")),
        Launch::Peer(_) | Launch::Host { .. } => None,
        Launch::Kernel(_) | Launch::Conv(..) | Launch::Attention(..) | Launch::Ways(..) => {
            Some((&host.kernel, "a kernel"))
        }
    };
    let specs = program.cycle.iter().flat_map(|step| &step.ops).filter_map(|op| program.op_spec(op));
    let mut calls: Vec<String> = Vec::new();
    for (figure, name) in specs.flat_map(Spec::launch).filter_map(|launch| call(&launch)) {
        let to = if calls.is_empty() { " to launch" } else { "" };
        if calls.iter().all(|call| !call.ends_with(name)) {
            calls.push(format!("{}{to} {name}", time(figure)));
        }
    }
    let Some((last, others)) = calls.split_last() else { return String::new() };
    let and = if others.is_empty() { "" } else { " and " };
    format!(
        "; the simulated host takes {}{and}{last}, as the profile says; for yours, see `timer_launch_call_ns` in the record of a run on a GPU",
        others.join(", ")
    )
}

/// Data of a variant while its record is built.
struct VariantData<'a> {
    request: &'a Request<'a>,
    sampled: &'a VariantSamples,
    observations: &'a Observations<'a>,
    serial: Option<&'a Serial>,
    /// True if the run has ended and was not stopped.
    complete: bool,
    /// The launch mode if the host limits the iterations.
    host_bound: Option<LaunchMode>,
    /// True if no device can be as fast as its times.
    refused: bool,
    device: DeviceProperties<'a>,
    /// The slot that is analyzed operation by operation.
    slot: usize,
}

impl<'a> VariantData<'a> {
    fn alone(&self, index: usize) -> Option<&'a SoloDurations> {
        self.serial.and_then(|serial| serial.alone.get(index))
    }

    /// Observed iterations of a rank; empty if it was not observed.
    fn iterations(&self, index: usize) -> &'a [Iteration<'a>] {
        self.observations.iterations.get(index).map_or(&[], Vec::as_slice)
    }

    /// The number of operations of a rank, if the run is not complete and listing them would delay its end; `None` if they
    /// are listed.
    fn unlisted_operations(&self, index: usize) -> Option<usize> {
        let program = self.request.ranks[index].program;
        let count = program.cycle[self.slot % program.cycle.len()].ops.len();
        (count > STOPPED_OPERATIONS && !self.complete).then_some(count)
    }

    fn evidence(&self, index: usize) -> Evidence<'a> {
        let RankSchedule { program, plan, schedule, .. } = self.request.ranks[index];
        Evidence {
            program,
            plan,
            slots: self.request.slots(),
            time: &self.sampled.blocks.samples.slowest,
            serial: self.serial.map(|serial| &serial.samples),
            beside_serial: self.sampled.beside_serial(self.serial),
            traces: self.iterations(index),
            alone: self.alone(index),
            memory: schedule.bytes(Space::Device),
            limits: DeviceLimits::of(self.request, &self.request.ranks[index]),
            device: self.device,
            figures: Figures::default(),
        }
    }

    /// The iterations before one of the analyzed slot, the nearest first: the observed ones with the median times of their
    /// slots, up to the first slot that was not observed. Empty if iterations do not overlap.
    fn earlier(&self, program: &Program, observed: &'a [Iteration<'a>]) -> Vec<&'a Iteration<'a>> {
        if self.sampled.mode != LaunchMode::Stream || program.step.sync != Sync::End {
            return Vec::new();
        }
        let slots = self.request.slots().max(1);
        let of_slot = |slot: usize| {
            let iterations: Vec<&Iteration> =
                observed.iter().filter(|iteration| iteration.trace.slot == slot).collect();
            analysis::middle(&iterations)
        };
        let medians: Vec<_> = (0..slots).map(of_slot).collect();
        let before = |age: usize| medians[(self.slot + slots - age % slots) % slots];
        let depth = program.step.under_way() as usize;
        let count = 2 * depth + slots * (split::AVERAGED / slots).max(1);
        (1..=count.min(MAX_EARLIER)).map_while(before).collect()
    }

    fn rank(&self, index: usize) -> RankRecord {
        let rank = &self.request.ranks[index];
        let step = self.slot % rank.program.cycle.len();
        let none = Samples::default();
        let samples = self.sampled.blocks.samples.ranks.get(index).unwrap_or(&none);
        let unlisted = self.unlisted_operations(index).is_some();
        let all = if unlisted { &[] } else { self.iterations(index) };
        let iterations: Vec<&Iteration> = all.iter().filter(|iteration| iteration.trace.slot == self.slot).collect();
        let time = if self.refused { Times::bare(&samples.time) } else { self.request.times(samples) };
        let observer_effect = observer_effect(all, &time);
        let profile = self.request.profile.filter(|_| !unlisted);
        let peaks = profile.map(|profile| Peaks {
            program: rank.program,
            rank: rank.number,
            profile,
            cached: self.request.cached(index),
        });
        let as_streams = self.sampled.mode == LaunchMode::Stream;
        let analysis = analysis::analyze(&Subject {
            program: rank.program,
            plan: rank.plan,
            step,
            iterations: &iterations,
            alone: self.alone(index),
            host_bound: self.host_bound,
            earlier: &self.earlier(rank.program, all),
            queues: as_streams.then(|| LaneQueues::new(&rank.schedule.lanes, self.request.profile)),
            time: time.p50_ns,
            peaks: peaks.as_ref(),
        });
        let arrivals =
            self.observations.arrivals.get(self.slot).and_then(|ranks| ranks.get(index)).cloned().unwrap_or_default();
        RankRecord {
            rank: rank.number,
            slot: self.slot,
            analysis,
            operations: match unlisted {
                true => Vec::new(),
                false => operations(self.request, rank, step, &iterations, self.alone(index), peaks.as_ref()),
            },
            observer_effect,
            trace: spans(&iterations),
            occupied: iterations.last().map_or_else(Vec::new, |last| occupied(&last.trace.occupied)),
            origins: arrivals.origins,
            collectives: arrivals.arrivals,
            time,
        }
    }
}

/// Evaluates expectations; each must hold on every rank.
fn expectations(request: &Request, ranks: &[RankMetrics]) -> Vec<ExpectationRecord> {
    let each = request.ranks[0].program.expectations.iter().enumerate().map(|(index, declared)| {
        let (text, place) = (request.sources.one_line(declared.span), request.sources.place(declared.span));
        let of_rank = |rank: &RankMetrics| {
            let own = rank.evidence.program.expectations.get(index)?;
            let (verdict, why) = rank.verdict(own)?;
            let name = |span| request.sources.one_line(span);
            let found = (verdict == "failed").then(|| rank.figures_text(&own.condition, &name)).flatten();
            Some((verdict, why, found))
        };
        let order = |(verdict, ..): &(&str, Option<String>, Option<String>)| match *verdict {
            "failed" => 0,
            "held" => 1,
            _ => 2,
        };
        let nowhere = || ("failed", Some("no rank has the operations that this expectation names".to_owned()), None);
        let (verdict, why, found) = ranks.iter().filter_map(of_rank).min_by_key(order).unwrap_or_else(nowhere);
        ExpectationRecord { text, place, verdict: verdict.to_owned(), why, found }
    });
    each.collect()
}

/// The observed slot with the longest time, since most of a round is spent there; the first of several with equal
/// times.
fn longest_slot(time: &Times, traces: &[Vec<Trace>]) -> usize {
    let observed: BTreeSet<usize> = traces.iter().flatten().map(|trace| trace.slot).collect();
    let median = |slot: &usize| time.slots.get(*slot).and_then(|times| times.p50_ns);
    observed.into_iter().rev().max_by_key(median).unwrap_or(0)
}

/// Relative slowdown of observed slots: the sum of their median times over the sum of their unobserved medians, minus
/// 1. `None` if nothing was observed.
fn observer_effect(iterations: &[Iteration], time: &Times) -> Option<f64> {
    let mut observed: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for trace in iterations.iter().map(|iteration| iteration.trace) {
        observed.entry(trace.slot).or_default().push(trace.time.0 as f64);
    }
    let mut sums = (0.0, 0.0);
    for (slot, times) in observed {
        let unobserved = time.slots.get(slot).map_or(time.p50_ns, |times| times.p50_ns)?;
        sums = (sums.0 + Summary::of(&times)?.p50, sums.1 + unobserved.0 as f64);
    }
    (sums.1 > 0.0).then(|| sums.0 / sums.1 - 1.0)
}

/// Spans of the last observed iteration.
fn spans(iterations: &[&Iteration]) -> Vec<SpanRecord> {
    iterations.last().map_or_else(Vec::new, |iteration| {
        iteration
            .trace
            .spans
            .iter()
            .map(|span| SpanRecord { id: span.op.0, start_ns: span.start, end_ns: span.end })
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::tests::planned;

    #[test]
    fn a_host_that_launches_in_time_is_no_limit() {
        let times = |median: i64| Times { p50_ns: Some(Nanos(median)), ..Times::default() };
        let said = |issue, ungated: Option<i64>| {
            let ungated = ungated.map(times);
            waits_for_host(LaunchMode::Stream, &times(126_400), &times(issue), ungated.as_ref())
        };
        assert_eq!(said(114_100, Some(126_400)), None, "the gate gains nothing");
        assert_eq!(said(100_000, Some(140_000)), None, "the launch takes less than 90 % of the time");
        assert_eq!(
            said(150_000, Some(149_000)).as_deref(),
            Some(
                "as streams: host launch time 150.0 µs for an iteration of 126.4 µs: without the gate, the device waits for the \
                 host, and an iteration takes 149.0 µs, from its first stamp, whose call is part of the launch time"
            )
        );
        assert!(said(149_000, Some(149_000)).is_some_and(|warning| warning.ends_with("takes 149.0 µs")));
        assert!(said(126_000, None).is_some_and(|warning| warning.ends_with(": the device waits for the host")));
    }

    #[test]
    fn a_simulated_host_has_the_times_of_the_profile() {
        let profile = Profile::named("h200").unwrap();
        let (program, _) = planned(
            "buffer x: bf16[64, 64]
             step { map(x * 2 -> x)  gemm(x, x)  map(x + 1 -> x) }",
        );
        let said = |mode| host_times(mode, &program, &profile);
        let calls = "; the simulated host takes 3.000 µs to launch a kernel and 7.000 µs a matrix product, as the profile says; for yours";
        assert!(said(LaunchMode::Stream).starts_with(calls), "{}", said(LaunchMode::Stream));
        assert!(said(LaunchMode::Graph).contains(" to launch a graph, and "), "{}", said(LaunchMode::Graph));
    }
}
