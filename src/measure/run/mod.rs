//! A measurement: for each variant the measured iterations, observed iterations, and the run on one stream if a metric needs it.

pub(super) mod blocks;
pub(super) mod contents;
pub(super) mod doubts;
pub(super) mod new_record;
pub(super) mod sampled;
pub(super) mod variant;
pub(super) mod warm_session;
pub(super) mod warmup;

use std::collections::BTreeSet;

use miette::SourceSpan;

use crate::base::{Nanos, SrcSpan, counted, stage};
use crate::config::ObserveSetting;
use crate::exec::{ExecError, LaunchMode, ObservedBy, Ranks, Samples, Trace};
use crate::model::{FigureExpr, Program};
use crate::plan;

use super::observation::solo_durations::SoloDurations;
use super::observation::waiting::Observations;
use super::record::{Variant, WarmupRecord, pace};
use super::request::{Measured, Request};
use blocks::MeasuredBlocks;
use sampled::{Serial, VariantSamples};

/// Share of an iteration that observing must cost before another method is tried.
const NOTICEABLE: f64 = 0.001;

/// Lower bound for the time that two events around an operation cost. On an H100 and an H200 they cost 2.4 µs or more.
const EVENTS: Nanos = Nanos(1_000);

/// Number of iterations of a run without observed ones, for its progress bar.
pub fn iterations(request: &Request) -> u64 {
    let each = u64::from(request.effort.warmup) + request.whole_rounds();
    let runs = if has_serial_run(request) { 2 } else { 1 };
    let gated = request.exec.gate_depth > 0 && request.modes.contains(&LaunchMode::Stream) && each > 1;
    each * (runs * request.modes.len() as u64 + u64::from(gated))
}

/// Runs the phases of a request. A run that is stopped or fails keeps its results so far; without a headline, a failure
/// is returned as the error.
pub fn measure(request: &Request) -> Result<Measured, ExecError> {
    let mut warnings: Vec<String> = cycle_warning(request).into_iter().collect();
    let mut sampled = Vec::new();
    let mut failure = headlines(request, &mut sampled, &mut warnings).err();
    if let Some(error) = failure.take_if(|_| sampled.is_empty()) {
        return Err(error);
    }
    let mut serial = Vec::new();
    if failure.is_none() && needs_single_stream_run(request.first().program) && !request.control.stopped() {
        match has_serial_run(request) {
            true => failure = serials(request, &mut sampled, &mut serial, &mut warnings).err(),
            false => warnings.push(
                "the run on one stream is left out, because on one stream the ranks would wait for each other's transfers for \
                 ever: figures that compare with it, such as `speedup`, have no value"
                    .to_owned(),
            ),
        }
    }
    // A run that was stopped after the headline may lack observed iterations or the run on one stream.
    let interrupted = failure.is_none() && request.control.stopped();
    let interruption = interrupted.then(|| request.control.interruption());
    let variants = records(request, &sampled, &serial, true, &mut warnings);
    Ok(Measured { variants, warnings, interruption, failure })
}

fn records(
    request: &Request,
    sampled: &[VariantSamples],
    serial: &[Option<Serial>],
    ended: bool,
    warnings: &mut Vec<String>,
) -> Vec<Variant> {
    let serial = |index: usize| serial.get(index).and_then(Option::as_ref);
    let record = |(index, sampled)| variant::record(request, sampled, serial(index), ended, warnings);
    sampled.iter().enumerate().map(record).collect()
}

/// Passes the results so far to `Request::keep` before the next phase.
fn keep(request: &Request, sampled: &[VariantSamples], serial: &[Option<Serial>], warnings: &[String]) {
    let mut warnings = warnings.to_vec();
    let variants = records(request, sampled, serial, false, &mut warnings);
    (request.keep)(Measured { variants, warnings, interruption: None, failure: None });
}

/// Warning about ranks whose programs repeat after numbers of iterations without a common multiple within the limit;
/// `None` otherwise.
fn cycle_warning(request: &Request) -> Option<String> {
    let slots = request.slots();
    let whole = request.ranks.iter().all(|rank| slots.is_multiple_of(rank.program.cycle.len().max(1)));
    (!whole).then(|| {
        format!(
            "the ranks' cycles have no common length of up to {slots} iterations: figures are of {slots} slots, of which not \
             all do the same work in each round"
        )
    })
}

/// Measures each launch mode.
fn headlines(
    request: &Request,
    sampled: &mut Vec<VariantSamples>,
    warnings: &mut Vec<String>,
) -> Result<(), ExecError> {
    let mut session = request.open()?;
    // A vendor's library that has been attached may slow down later iterations, so all headlines are measured before.
    let observe_last = session.may_attach();
    for &mode in request.modes {
        if !sampled.is_empty() {
            keep(request, sampled, &[], warnings);
        }
        let before = sampled.len();
        sample(request, &mut session, mode, sampled, warnings)
            .and_then(|()| match observe_last {
                true => Ok(()),
                false => sampled[before..].iter_mut().try_for_each(|one| observe(request, &mut session, one)),
            })
            .inspect_err(|error| warnings.push(failed(run_name(mode), error)))?;
    }
    for index in 0..if observe_last { sampled.len() } else { 0 } {
        keep(request, sampled, &[], warnings);
        observe(request, &mut session, &mut sampled[index])
            .inspect_err(|error| warnings.push(failed(run_name(sampled[index].mode), error)))?;
    }
    tear_down(request, &mut session)?;
    if !has_serial_run(request) {
        add_copy_notes(request, &mut session, sampled);
    }
    Ok(())
}

/// True if the program is measured on one stream, too.
fn has_serial_run(request: &Request) -> bool {
    needs_single_stream_run(request.first().program) && plan::ranks::complete_on_one_stream(request.plans)
}

/// Tests at the end of the last session which units make the copies, and adds the notes to each launch mode.
fn add_copy_notes(request: &Request, session: &mut Ranks, sampled: &mut [VariantSamples]) {
    if !request.control.stopped() {
        // No figure depends on this test, so its failure is not the run's.
        let notes = session.infer_copy_units().unwrap_or_default();
        sampled.iter_mut().for_each(|sampled| sampled.notes.extend_from_slice(&notes));
    }
}

/// Runs the `teardown` after the last iteration of a session, unless the run was stopped.
fn tear_down(request: &Request, session: &mut Ranks) -> Result<(), ExecError> {
    if request.control.stopped() { Ok(()) } else { session.tear_down(request.control) }
}

/// Measures each variant on one stream; `None` for a variant that cannot be measured so.
fn serials(
    request: &Request,
    sampled: &mut [VariantSamples],
    serial: &mut Vec<Option<Serial>>,
    warnings: &mut Vec<String>,
) -> Result<(), ExecError> {
    keep(request, sampled, serial, warnings);
    let _stage = stage::enter("measuring on one stream");
    let mut run = || {
        let mut session = request.open_serial()?;
        for index in 0..sampled.len() {
            if !serial.is_empty() {
                keep(request, sampled, serial, warnings);
            }
            let variant = &sampled[index];
            // Times of gated and of host-paced iterations cannot be compared.
            session.set_gate(variant.mode != LaunchMode::Stream || variant.blocks.samples.slowest.gated);
            if variant.mode == LaunchMode::Graph
                && let Some(error) = capture(request, &mut session, || request.open_serial())?
            {
                warnings.push(format!("no graph could be made of the serial run, so its time is missing: {error}"));
                serial.push(None);
                continue;
            }
            let (blocks, warmup) = warmed(request, &mut session, variant.mode)?;
            blocks.failure.map_or(Ok(()), Err)?;
            let samples = blocks.samples.slowest;
            let name = format!("{}, on one stream", variant.mode.phrase());
            let times = request.times(&samples);
            match request.backend.device().simulated {
                true => warnings.extend(doubts::simulated(&name, &times, session.slots(), request.exec.timeout)),
                false => warnings.extend(doubts::of(&name, &times, &warmup, session.slots())),
            }
            let traces = match samples.stopped {
                true => Vec::new(),
                false => session.observe(request.observation(variant.mode), request.control)?,
            };
            let observations = Observations::of(request.ranks, request.slots(), &traces);
            let mut alone: Vec<SoloDurations> =
                observations.iterations.iter().map(|rank| SoloDurations::of_serial(rank)).collect();
            if variant.mode == LaunchMode::Stream && request.backend.topology().limits_units {
                alone.iter_mut().zip(request.ranks).for_each(|(alone, rank)| alone.forget_limited(rank.program));
            }
            if let Some(why) = session.gate_refused().filter(|_| variant.ungated.is_some()) {
                sampled[index].notes.push(pace::serial_not_gated_note(why));
            }
            serial.push(Some(Serial { samples, alone }));
        }
        tear_down(request, &mut session)?;
        add_copy_notes(request, &mut session, sampled);
        Ok(())
    };
    run().inspect_err(|error| warnings.push(failed("the serial run", error)))
}

/// Captures the graphs of a session that `open` has opened. Returns why no graph could be made; `None` if all ranks have one.
/// If one rank of several fails, the others may have captured collectives that it has not, and a communicator would wait for
/// ever at the next collective. The session is then opened anew.
fn capture(
    request: &Request,
    session: &mut Ranks,
    open: impl Fn() -> Result<Ranks, ExecError>,
) -> Result<Option<ExecError>, ExecError> {
    let refused = session.capture(request.control).err();
    if refused.is_some() && request.ranks.len() > 1 {
        // Two sessions at a time might not fit into the device's memory.
        session.close();
        *session = open()?;
    }
    Ok(refused)
}

/// Explains why a graph was refused, with the operation, its place in the text, and a remedy.
fn explain_refused_graph(request: &Request, error: &ExecError) -> String {
    let program = request.first().program;
    let mut why = error.to_string();
    if let ExecError::Operation { at, .. } = error {
        let op = program.cycle.iter().flat_map(|step| &step.ops).find(|op| SourceSpan::from(op.span) == *at);
        if let Some(label) = op.and_then(|op| program.label_text(op.label)) {
            why += &format!(", `{label}`");
        }
        why += &format!(", at {}", request.sources.place(SrcSpan::new(at.offset(), at.offset() + at.len())));
    }
    why + "; `--launch stream` asks for none"
}

fn run_name(mode: LaunchMode) -> &'static str {
    match mode {
        LaunchMode::Stream => "the run as streams",
        LaunchMode::Graph => "the run as a graph",
    }
}

fn failed(what: &str, error: &ExecError) -> String {
    format!("{what} failed, so the figures cover only what was measured before: {error}")
}

/// Measures a launch mode after its warm-up.
fn warmed(
    request: &Request,
    session: &mut Ranks,
    mode: LaunchMode,
) -> Result<(MeasuredBlocks, WarmupRecord), ExecError> {
    let lead = u64::from(request.exec.in_flight.max(request.first().schedule.depth));
    let (warmup, first) = warmup::warm_up(session, mode, u64::from(request.effort.warmup), lead, request.control)?;
    Ok((blocks::iterate(session, mode, (first, lead), request.whole_rounds(), request.control)?, warmup))
}

/// Adds the samples of a launch mode, unless it must be dropped in favour of an earlier one. If a later phase fails,
/// earlier samples are still added.
fn sample(
    request: &Request,
    session: &mut Ranks,
    mode: LaunchMode,
    sampled: &mut Vec<VariantSamples>,
    warnings: &mut Vec<String>,
) -> Result<(), ExecError> {
    let mut mode = mode;
    let mut notes = Vec::new();
    if mode == LaunchMode::Graph
        && let Some(error) = capture(request, session, || request.open())?
    {
        let why = explain_refused_graph(request, &error);
        warnings.push(format!("no graph could be made, so the run continued as streams: {why}"));
        if request.modes.contains(&LaunchMode::Stream) {
            return Ok(());
        }
        notes.push(format!("a graph was requested: {error}"));
        mode = LaunchMode::Stream;
    }
    let (mut blocks, warmup) = warmed(request, session, mode)?;
    let failure = blocks.failure.take();
    let (gated, stopped) = (blocks.samples.slowest.gated, blocks.samples.slowest.stopped);
    warnings.extend(blocks.warnings(mode));
    warnings.extend(early_gate_warning(mode, &blocks.samples.slowest));
    notes.extend(gate_note(session, mode));
    notes.extend(cold_note(request, session));
    // From here on, the headline is kept even if a later phase fails.
    let index = sampled.len();
    let compile = session.compile_time();
    sampled.push(VariantSamples {
        mode,
        blocks,
        warmup,
        ungated: None,
        traces: Vec::new(),
        observed_by: None,
        notes,
        compile,
    });
    keep(request, sampled, &[], warnings);
    let more = || {
        failure.map_or(Ok(()), Err)?;
        let sampled = &mut sampled[index];
        if gated && !stopped {
            sampled.ungated = Some(as_issued(request, session, mode)?);
        }
        Ok(())
    };
    let done = more();
    sampled[index].notes.extend(session.notes().unwrap_or_default());
    done
}

/// Observes iterations of a launch mode, unless the run has been stopped.
fn observe(request: &Request, session: &mut Ranks, sampled: &mut VariantSamples) -> Result<(), ExecError> {
    if sampled.blocks.samples.slowest.stopped {
        return Ok(());
    }
    let _stage = stage::enter("observing single operations");
    sampled.traces = session.observe(request.observation(sampled.mode), request.control)?;
    sampled.observed_by = session.observed_by().cloned();
    prefer_events(request, session, sampled)?;
    sampled.notes.extend(sampled.traces.first().and_then(|traces| unobserved_note(traces, request.slots())));
    sampled.notes.extend(too_many_note(request));
    Ok(())
}

/// Observes iterations by events too if the vendor's records slow them down. Keeps the times by events if events slow iterations
/// down less; the launches of each operation remain those of the records.
fn prefer_events(request: &Request, session: &mut Ranks, sampled: &mut VariantSamples) -> Result<(), ExecError> {
    let times = request.times(&sampled.blocks.samples.slowest);
    let (Some(records), Some(recorded), Some(headline)) = (&sampled.observed_by, session.recorded_time(), times.p50_ns)
    else {
        return Ok(());
    };
    let operations = request.ranks.iter().map(|rank| rank.schedule.operations()).max().unwrap_or(0);
    let is_automatic = request.exec.observe == ObserveSetting::Auto;
    if !is_automatic || request.control.stopped() || !events_may_be_cheaper(headline, recorded, operations) {
        return Ok(());
    }
    let instead = format!(
        "{} changes the iteration more, by {:+.1} %",
        records.method,
        100.0 * (recorded.0 as f64 / headline.0 as f64 - 1.0)
    );
    let (mut traces, time) = session.observe_by_stamps(request.observation(sampled.mode), request.control)?;
    if time.is_some_and(|time| time < recorded) {
        for (by_events, by_records) in traces.iter_mut().zip(&mut sampled.traces) {
            for trace in by_events {
                let of_slot = by_records.iter_mut().find(|other| other.slot == trace.slot);
                trace.parts = of_slot.map(|other| std::mem::take(&mut other.parts)).unwrap_or_default();
            }
        }
        sampled.traces = traces;
        sampled.observed_by = Some(ObservedBy { method: "events".to_owned(), instead: Some(instead) });
    }
    Ok(())
}

/// True if events may slow down an iteration less than the vendor's records did, so that it is worth a try.
fn events_may_be_cheaper(headline: Nanos, recorded: Nanos, operations: usize) -> bool {
    let excess = (recorded - headline).0 as f64;
    excess > NOTICEABLE * headline.0 as f64 && excess > (EVENTS.0 * operations as i64) as f64
}

/// Note that an iteration has more operations than are observed; `None` if it has no more.
fn too_many_note(request: &Request) -> Option<String> {
    let limit = request.exec.observed_operations;
    let most = request.ranks.iter().map(|rank| rank.schedule.operations()).max().filter(|most| *most > limit)?;
    Some(format!(
        "single operations are not timed, since an iteration has {most}, more than `observed_operations` ({limit}): \
         `--config observed_operations={most}` times them"
    ))
}

/// Measures ungated iterations.
fn as_issued(request: &Request, session: &mut Ranks, mode: LaunchMode) -> Result<Samples, ExecError> {
    let _stage = stage::enter("measuring ungated iterations");
    session.set_gate(false);
    let samples = session.iterate(mode, u64::from(request.effort.warmup), request.whole_rounds(), request.control);
    session.set_gate(true);
    samples.map(|samples| samples.slowest)
}

/// Note about which slots of a long cycle were observed; `None` if all slots were.
fn unobserved_note(traces: &[Trace], slots: usize) -> Option<String> {
    let observed: BTreeSet<usize> = traces.iter().map(|trace| trace.slot).collect();
    let [first, second, ..] = observed.iter().copied().take(2).collect::<Vec<_>>()[..] else { return None };
    (observed.len() < slots).then(|| {
        format!(
            "{} of {slots} slots were observed, slots {first}, {second} and so on: figures of sets and of single operations \
             are of these",
            observed.len()
        )
    })
}

/// Note about why iterations were not gated; `None` if they were, or if gating was not requested.
fn gate_note(session: &Ranks, mode: LaunchMode) -> Option<String> {
    let why = session.gate_refused().filter(|_| mode == LaunchMode::Stream)?;
    Some(pace::not_gated_note(why))
}

/// Note about cold caches; `None` unless they were requested.
fn cold_note(request: &Request, session: &Ranks) -> Option<String> {
    let note = match session.is_cold() {
        true => "the caches were flushed before each iteration, outside of its time",
        false => {
            "the caches are as the previous iteration left them: they can be flushed only on a GPU or a simulated \
             one, and only if iterations do not overlap"
        }
    };
    request.exec.cold.then(|| note.to_owned())
}

/// Warning about gates that opened before the host had issued an iteration; `None` if none did.
fn early_gate_warning(mode: LaunchMode, samples: &Samples) -> Option<String> {
    (samples.ungated > 0).then(|| {
        format!(
            "{}: {} of {} began before the host had launched them completely: their times include host time",
            mode.phrase(),
            samples.ungated,
            counted(samples.time.len(), "iteration")
        )
    })
}

/// True if a metric needs the run on one stream.
fn needs_single_stream_run(program: &Program) -> bool {
    let conditions = program.expectations.iter().flat_map(|one| std::iter::once(&one.condition).chain(&one.when));
    let mut leaves = program.metrics.iter().map(|metric| &metric.value).chain(conditions).flat_map(FigureExpr::leaves);
    leaves.any(|leaf| matches!(leaf, FigureExpr::Figure { figure, .. } if figure.needs_single_stream_run()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_tried_if_their_cost_may_be_lower() {
        let tried =
            |headline, recorded, operations| events_may_be_cheaper(Nanos(headline), Nanos(recorded), operations);
        // CUPTI slows down the first program, one operation of many blocks; events slow down the second, 240 operations.
        assert!(tried(10_657_000, 10_838_000, 1));
        assert!(!tried(185_900, 189_100, 240));
        assert!(!tried(101_600, 127_000, 240));
        // Within the noise, and faster while observed.
        assert!(!tried(10_657_000, 10_665_000, 1) && !tried(4_158_000, 4_030_000, 1));
    }
}
