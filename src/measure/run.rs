//! One measurement: for each variant the headline, observed iterations, and the run on one stream if a metric needs it.

use std::collections::BTreeSet;

use miette::SourceSpan;

use crate::base::{SourceMap, counted};
use crate::config::{Effort, EffortPlan, LaunchSetting, Profile, Settings};
use crate::exec::{self, Backend, Control, ExecError, LaunchMode, Observation, Rank, Ranks, Samples, Trace};
use crate::model::{self, FigureExpr, Program};
use crate::plan::{self, Plan};
use crate::schedule::{self, Schedule};

use super::alone::Alone;
use super::blocks::{self, Blocks};
use super::doubts;
use super::record::{Times, Variant, WarmupRecord};
use super::variant;
use super::waiting::Observations;
use super::warmup;

/// Maximum number of observed iterations, unless a single round has more.
const OBSERVED: u64 = 64;

/// What to measure.
pub struct Request<'a> {
    /// The ranks of the world, at least one. With peers, this process runs only its own.
    pub ranks: &'a [RankRequest<'a>],
    pub backend: &'a dyn Backend,
    pub modes: &'a [LaunchMode],
    pub effort: EffortPlan,
    pub observed_iterations: u32,
    pub exec: exec::Options,
    pub control: &'a Control,
    /// Profile with the device's limits; `None` if there is none.
    pub profile: Option<&'a Profile>,
    /// Texts that the spans of the programs point into. Without them, expectations and operations have no source location.
    pub sources: &'a SourceMap,
    /// Called with the incomplete results before each further phase. A phase may never return; results that were not
    /// saved would be lost with the process.
    pub keep: &'a dyn Fn(Measured),
}

/// The program and schedule of one rank.
#[derive(Clone, Copy, Debug)]
pub struct RankRequest<'a> {
    pub number: u32,
    pub program: &'a Program,
    pub plan: &'a Plan,
    pub schedule: &'a Schedule,
}

impl<'a> RankRequest<'a> {
    /// The ranks from the number `first` on, each with its schedule.
    pub fn all(first: u32, ranks: &'a [plan::Rank], schedules: &'a [Schedule]) -> Vec<RankRequest<'a>> {
        let both = (first..).zip(ranks.iter().zip(schedules));
        let one = |(number, (rank, schedule)): (u32, (&'a plan::Rank, &'a Schedule))| RankRequest {
            number,
            program: &rank.program,
            plan: &rank.plan,
            schedule,
        };
        both.map(one).collect()
    }
}

impl<'a> Request<'a> {
    /// Request with these settings, and without a profile.
    pub fn new(
        ranks: &'a [RankRequest<'a>],
        backend: &'a dyn Backend,
        sources: &'a SourceMap,
        settings: &Settings,
        control: &'a Control,
    ) -> Request<'a> {
        Request {
            ranks,
            backend,
            modes: match settings.launch {
                LaunchSetting::Stream => &[LaunchMode::Stream],
                LaunchSetting::Graph => &[LaunchMode::Graph],
                LaunchSetting::Both => &[LaunchMode::Stream, LaunchMode::Graph],
            },
            effort: settings.plan(settings.effort),
            observed_iterations: match settings.effort {
                Effort::Sanity => settings.observed_iterations.min(1),
                Effort::Quick | Effort::Full => settings.observed_iterations,
            },
            exec: exec::Options::of(settings),
            control,
            profile: None,
            sources,
            keep: &|_| {},
        }
    }

    /// The first rank, for properties that all ranks share.
    fn first(&self) -> &RankRequest<'a> {
        &self.ranks[0]
    }

    /// Number of slots of the world: iterations after which the programs of all ranks repeat.
    pub(super) fn slots(&self) -> usize {
        model::slots(self.ranks.iter().map(|rank| rank.program))
    }

    /// Statistics of samples, by the slots of the world.
    pub(super) fn times(&self, samples: &Samples) -> Times {
        Times::of_slots(&samples.time, self.slots(), samples.first)
    }

    /// Whether a single iteration is requested, which tests the file and measures nothing.
    fn is_look(&self) -> bool {
        self.effort.iterations == 1
    }

    /// Number of measured iterations, rounded up to complete rounds so that each slot is measured equally often.
    fn whole_rounds(&self) -> u64 {
        let slots = if self.is_look() { 1 } else { self.slots() as u64 };
        u64::from(self.effort.iterations).next_multiple_of(slots)
    }

    /// Which iterations to observe: each slot as often as an iteration should be observed, or less often in a long
    /// cycle.
    fn observation(&self) -> Observation {
        let slots = self.slots() as u64;
        let times = u64::from(self.observed_iterations).min((OBSERVED / slots).max(1));
        let most = if self.is_look() { u64::from(self.observed_iterations) } else { u64::MAX };
        Observation { slots, times, most }
    }

    fn open(&self) -> Result<Ranks, ExecError> {
        let rank =
            |rank: &RankRequest<'a>| Rank { number: rank.number, program: rank.program, schedule: rank.schedule };
        exec::prepare_ranks(&self.ranks.iter().map(rank).collect::<Vec<_>>(), self.backend, &self.exec)
    }

    /// Opens a session with each rank on one stream.
    fn open_serial(&self) -> Result<Ranks, ExecError> {
        let options = schedule::Options { streams: Some(1), ..schedule::Options::default() };
        let place = |rank: &RankRequest| schedule::place(rank.program, rank.plan, self.backend.topology(), &options);
        let schedules: Vec<Schedule> = self.ranks.iter().map(place).collect();
        let ranks = self.ranks.iter().zip(&schedules);
        let ranks: Vec<Rank> =
            ranks.map(|(rank, schedule)| Rank { number: rank.number, program: rank.program, schedule }).collect();
        exec::prepare_ranks(&ranks, self.backend, &self.exec)
    }
}

/// Results of a measurement.
#[derive(Debug)]
pub struct Measured {
    pub variants: Vec<Variant>,
    pub warnings: Vec<String>,
    /// True if nothing was cut short.
    pub complete: bool,
    /// The error that ended it early; `None` if none did.
    pub failure: Option<ExecError>,
}

/// Samples of one variant.
pub(super) struct VariantSamples {
    pub mode: LaunchMode,
    pub blocks: Blocks,
    pub warmup: WarmupRecord,
    /// Samples of ungated iterations; `None` if the others are ungated.
    pub ungated: Option<Samples>,
    /// Observed iterations of each rank, slot by slot. Empty for ranks that were not observed, and for those of other
    /// processes unless this is rank 0.
    pub traces: Vec<Vec<Trace>>,
    pub notes: Vec<String>,
}

/// Results of the run on one stream.
pub(super) struct Serial {
    pub samples: Samples,
    /// Durations of single operations, for each rank.
    pub alone: Vec<Alone>,
}

/// Number of iterations of a run, for its progress bar.
pub fn iterations(request: &Request) -> u64 {
    let each = u64::from(request.effort.warmup) + request.whole_rounds();
    let runs = if needs_serial_run(request.first().program) { 2 } else { 1 };
    let gated = request.exec.gate_depth > 0 && request.modes.contains(&LaunchMode::Stream) && each > 1;
    each * (runs * request.modes.len() as u64 + u64::from(gated))
}

/// Runs everything that the request asks for. A run that is stopped or fails keeps its results so far; without a
/// headline, a failure is returned as the error.
pub fn measure(request: &Request) -> Result<Measured, ExecError> {
    let mut warnings: Vec<String> = unlike_cycles(request).into_iter().collect();
    let mut sampled = Vec::new();
    let mut failure = headlines(request, &mut sampled, &mut warnings).err();
    if let Some(error) = failure.take_if(|_| sampled.is_empty()) {
        return Err(error);
    }
    let mut serial = Vec::new();
    if failure.is_none() && needs_serial_run(request.first().program) && !request.control.stopped() {
        failure = serials(request, &sampled, &mut serial, &mut warnings).err();
    }
    // A run that was stopped after the headline may lack observed iterations or the run on one stream.
    let complete = failure.is_none() && !request.control.stopped();
    let variants = records(request, &sampled, &serial, &mut warnings);
    Ok(Measured { variants, warnings, complete, failure })
}

fn records(
    request: &Request,
    sampled: &[VariantSamples],
    serial: &[Option<Serial>],
    warnings: &mut Vec<String>,
) -> Vec<Variant> {
    let serial = |index: usize| serial.get(index).and_then(Option::as_ref);
    let record = |(index, sampled)| variant::record(request, sampled, serial(index), warnings);
    sampled.iter().enumerate().map(record).collect()
}

/// Passes the results so far to `Request::keep` before the next phase.
fn keep(request: &Request, sampled: &[VariantSamples], serial: &[Option<Serial>], warnings: &[String]) {
    let mut warnings = warnings.to_vec();
    let variants = records(request, sampled, serial, &mut warnings);
    (request.keep)(Measured { variants, warnings, complete: false, failure: None });
}

/// Warning about ranks whose programs repeat after numbers of iterations without a common multiple within the limit;
/// `None` otherwise.
fn unlike_cycles(request: &Request) -> Option<String> {
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
    for &mode in request.modes {
        if !sampled.is_empty() {
            keep(request, sampled, &[], warnings);
        }
        sample(request, &mut session, mode, sampled, warnings)
            .inspect_err(|error| warnings.push(failed(runs_as(mode), error)))?;
    }
    Ok(())
}

/// Measures each variant on one stream; `None` for a variant that cannot be.
fn serials(
    request: &Request,
    sampled: &[VariantSamples],
    serial: &mut Vec<Option<Serial>>,
    warnings: &mut Vec<String>,
) -> Result<(), ExecError> {
    keep(request, sampled, serial, warnings);
    let mut run = || {
        let mut session = request.open_serial()?;
        for variant in sampled {
            if !serial.is_empty() {
                keep(request, sampled, serial, warnings);
            }
            if variant.mode == LaunchMode::Graph
                && let Err(error) = session.capture(request.control)
            {
                warnings.push(format!("no graph could be made of the serial run, so its time is missing: {error}"));
                serial.push(None);
                continue;
            }
            let (blocks, warmup) = warmed(request, &mut session, variant.mode)?;
            blocks.failure.map_or(Ok(()), Err)?;
            let samples = blocks.samples.slowest;
            let name = format!("{}, on one stream", variant.mode.name());
            warnings.extend(doubts::of(&name, &request.times(&samples), &warmup, session.slots()));
            let traces = match samples.stopped {
                true => Vec::new(),
                false => session.observe(variant.mode, request.observation(), request.control)?,
            };
            let observations = Observations::of(request.ranks, request.slots(), &traces);
            let alone = observations.iterations.iter().map(|of| Alone::of_serial(of)).collect();
            serial.push(Some(Serial { samples, alone }));
        }
        Ok(())
    };
    run().inspect_err(|error| warnings.push(failed("the serial run", error)))
}

/// Explains why a graph was refused, with the operation and a remedy.
fn told_of(program: &Program, error: &ExecError) -> String {
    let refused = match error {
        ExecError::Operation { at, .. } => {
            program.cycle.iter().flat_map(|step| &step.ops).find(|op| SourceSpan::from(op.span) == *at)
        }
        _ => None,
    };
    let label = refused.and_then(|op| program.label_text(op.label)).map(|label| format!(", `{label}`"));
    format!("{error}{}; `--launch stream` asks for none", label.unwrap_or_default())
}

fn runs_as(mode: LaunchMode) -> &'static str {
    match mode {
        LaunchMode::Stream => "the run as streams",
        LaunchMode::Graph => "the run as a graph",
    }
}

fn failed(what: &str, error: &ExecError) -> String {
    format!("{what} failed, and the figures are of what was measured before: {error}")
}

/// Measures a launch mode after its warm-up.
fn warmed(request: &Request, session: &mut Ranks, mode: LaunchMode) -> Result<(Blocks, WarmupRecord), ExecError> {
    let lead = u64::from(request.exec.in_flight.max(request.first().schedule.depth));
    let (warmup, first) = warmup::settle(session, mode, u64::from(request.effort.warmup), lead, request.control)?;
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
        && let Err(error) = session.capture(request.control)
    {
        let told = told_of(request.first().program, &error);
        warnings.push(format!("no graph could be made, the run went on as streams: {told}"));
        if request.modes.contains(&LaunchMode::Stream) {
            return Ok(());
        }
        notes.push(format!("a graph was asked for: {error}"));
        mode = LaunchMode::Stream;
    }
    let (mut blocks, warmup) = warmed(request, session, mode)?;
    let failure = blocks.failure.take();
    let (gated, stopped) = (blocks.samples.slowest.gated, blocks.samples.slowest.stopped);
    warnings.extend(blocks.warnings(mode));
    warnings.extend(too_early(mode, &blocks.samples.slowest));
    notes.extend(gate_note(session, mode));
    notes.extend(cold_note(request, session));
    // From here on the headline is kept, whatever fails.
    let index = sampled.len();
    sampled.push(VariantSamples { mode, blocks, warmup, ungated: None, traces: Vec::new(), notes });
    keep(request, sampled, &[], warnings);
    let more = || {
        failure.map_or(Ok(()), Err)?;
        let sampled = &mut sampled[index];
        if gated && !stopped {
            sampled.ungated = Some(as_issued(request, session, mode)?);
        }
        if !stopped {
            sampled.traces = session.observe(mode, request.observation(), request.control)?;
        }
        Ok(())
    };
    let done = more();
    let unobserved = sampled[index].traces.first().and_then(|traces| unobserved_note(traces, request.slots()));
    sampled[index].notes.extend(session.notes().unwrap_or_default());
    sampled[index].notes.extend(unobserved);
    done
}

/// Measures ungated iterations.
fn as_issued(request: &Request, session: &mut Ranks, mode: LaunchMode) -> Result<Samples, ExecError> {
    session.set_gate(false);
    let samples = session.iterate(mode, u64::from(request.effort.warmup), request.whole_rounds(), request.control);
    session.set_gate(true);
    samples.map(|samples| samples.slowest)
}

/// Note about which slots of a long cycle were observed; `None` if all were.
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

/// Note about why iterations were not gated; `None` if they were, or if gating was not asked for.
fn gate_note(session: &Ranks, mode: LaunchMode) -> Option<String> {
    let why = session.gate_refused().filter(|_| mode == LaunchMode::Stream)?;
    Some(format!("iterations begin before the host has issued them, since {why}"))
}

/// Note about cold caches; `None` unless they were requested.
fn cold_note(request: &Request, session: &Ranks) -> Option<String> {
    let note = match session.is_cold() {
        true => "the caches were emptied before each iteration, outside of its time",
        false => {
            "the caches are as the iteration before left them: they can be emptied on a GPU or a simulated one, \
                  and where iterations do not overlap"
        }
    };
    request.exec.cold.then(|| note.to_owned())
}

/// Warning about gates that opened before the host had issued an iteration; `None` if none did.
fn too_early(mode: LaunchMode, samples: &Samples) -> Option<String> {
    (samples.ungated > 0).then(|| {
        format!(
            "{}: {} of {} began before the host had issued them: their times contain the host's",
            mode.name(),
            samples.ungated,
            counted(samples.time.len(), "iteration")
        )
    })
}

/// Whether a metric needs the run on one stream.
fn needs_serial_run(program: &Program) -> bool {
    fn asks(expr: &FigureExpr) -> bool {
        match expr {
            FigureExpr::Figure { figure, .. } => figure.needs_serial_run(),
            FigureExpr::Unary(_, inner) => asks(inner),
            FigureExpr::Binary(_, left, right) => asks(left) || asks(right),
            FigureExpr::Constant(_) | FigureExpr::BySlot(_) | FigureExpr::Metric { .. } => false,
        }
    }
    program.metrics.iter().any(|metric| asks(&metric.value))
        || program
            .expectations
            .iter()
            .any(|expectation| asks(&expectation.condition) || expectation.when.as_ref().is_some_and(asks))
}
