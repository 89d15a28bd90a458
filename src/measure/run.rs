//! One measurement: each variant's headline, its observed iterations, the serial run where a figure asks for it.

use crate::base::{Nanos, Space};
use crate::config::{EffortPlan, Profile};
use crate::exec::{self, Backend, Control, ExecError, LaunchMode, Samples, Session, Trace};
use crate::model::{FigureExpr, Program};
use crate::plan::Plan;
use crate::schedule::{self, Schedule};

use super::alone::Alone;
use super::analysis::{self, Subject};
use super::doubts;
use super::metrics::{Evidence, Known};
use super::operations::operations;
use super::plausible::Limits;
use super::record::{ExpectationRecord, RankRecord, SpanRecord, Times, Variant, WarmupRecord};
use super::stats::Summary;
use super::warmup::{self, Warmed};

/// Disturbance by timing single operations beyond which a warning is given.
const OBSERVER: f64 = 0.02;

/// The share of the headline from which on the host's time to issue is what limits.
const HOST: f64 = 0.9;

/// What is to be measured.
pub struct Request<'a> {
    pub program: &'a Program,
    pub plan: &'a Plan,
    pub schedule: &'a Schedule,
    pub backend: &'a dyn Backend,
    pub modes: &'a [LaunchMode],
    pub effort: EffortPlan,
    pub observed_iterations: u32,
    pub exec: exec::Options,
    pub control: &'a Control,
    /// What is known of the device's limits; nothing of one that no profile describes.
    pub profile: Option<&'a Profile>,
    /// The text and place of each expectation, as the file has them.
    pub expectations: Vec<(String, String)>,
    /// Where each span of the program stands, as `file:line:column`.
    pub places: &'a dyn Fn(crate::base::SrcSpan) -> String,
}

/// What was measured.
#[derive(Debug)]
pub struct Measured {
    pub variants: Vec<Variant>,
    pub warnings: Vec<String>,
    /// Nothing was cut short.
    pub complete: bool,
    /// What ended it before it had measured everything.
    pub failure: Option<ExecError>,
}

/// The samples of one variant.
struct Sampled {
    mode: LaunchMode,
    samples: Samples,
    warmup: WarmupRecord,
    traces: Vec<Trace>,
    notes: Vec<String>,
}

/// The same operations on one stream: the whole, and each alone.
struct Serial {
    samples: Samples,
    alone: Alone,
}

/// Iterations that a run takes, for its progress.
pub fn iterations(request: &Request) -> u64 {
    let each = u64::from(request.effort.warmup) + u64::from(request.effort.iterations);
    let runs = if wants_serial(request.program) { 2 } else { 1 };
    each * runs * request.modes.len() as u64
}

/// Runs everything that the request asks for. A run that is stopped, or fails, keeps what it has; without a headline
/// it has nothing, and a failure is all there is to say.
pub fn measure(request: &Request) -> Result<Measured, ExecError> {
    let mut warnings = Vec::new();
    let mut sampled = Vec::new();
    let mut failure = headlines(request, &mut sampled, &mut warnings).err();
    if let Some(error) = failure.take_if(|_| sampled.is_empty()) {
        return Err(error);
    }
    let mut serial = Vec::new();
    if failure.is_none() && wants_serial(request.program) && !request.control.stopped() {
        failure = serials(request, &sampled, &mut serial, &mut warnings).err();
    }
    // Also where the headline was through: what was observed, and the serial run, may be missing.
    let complete = failure.is_none() && !request.control.stopped();
    let variants = sampled
        .iter()
        .enumerate()
        .map(|(index, variant)| record(request, variant, serial.get(index).and_then(Option::as_ref), &mut warnings))
        .collect();
    Ok(Measured { variants, warnings, complete, failure })
}

/// Measures each mode.
fn headlines(request: &Request, sampled: &mut Vec<Sampled>, warnings: &mut Vec<String>) -> Result<(), ExecError> {
    let mut session = exec::prepare(request.program, request.schedule, request.backend, &request.exec)?;
    for &mode in request.modes {
        sample(request, &mut session, mode, sampled, warnings)
            .inspect_err(|error| warnings.push(failed(runs_as(mode), error)))?;
    }
    Ok(())
}

/// Measures each variant on one stream; nothing for one that cannot be.
fn serials(
    request: &Request,
    sampled: &[Sampled],
    serial: &mut Vec<Option<Serial>>,
    warnings: &mut Vec<String>,
) -> Result<(), ExecError> {
    let options = schedule::Options { streams: Some(1), ..schedule::Options::default() };
    let schedule = schedule::place(request.program, request.plan, request.backend.topology(), &options);
    let mut run = || {
        let mut session = exec::prepare(request.program, &schedule, request.backend, &request.exec)?;
        for variant in sampled {
            if variant.mode == LaunchMode::Graph
                && let Err(error) = session.capture()
            {
                warnings.push(format!("no graph could be made of the serial run, so its time is missing: {error}"));
                serial.push(None);
                continue;
            }
            let Warmed { samples, warmup } = warmed(request, &mut session, variant.mode)?;
            let name = format!("{}, on one stream", variant.mode.name());
            warnings.extend(doubts::of(&name, &Times::of(&samples.time), &warmup, session.period()));
            let traces = match samples.stopped {
                true => Vec::new(),
                false => session.observe(variant.mode, u64::from(request.observed_iterations), request.control)?,
            };
            serial.push(Some(Serial { samples, alone: Alone::of_serial(&traces) }));
        }
        Ok(())
    };
    run().inspect_err(|error| warnings.push(failed("the serial run", error)))
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

/// The measured iterations of a mode, warmed up.
fn warmed(request: &Request, session: &mut Session, mode: LaunchMode) -> Result<Warmed, ExecError> {
    let counts = (u64::from(request.effort.warmup), u64::from(request.effort.iterations));
    let lead = u64::from(request.exec.in_flight.max(request.schedule.depth));
    warmup::iterate(session, mode, counts, lead, request.control)
}

/// Adds the samples of one mode, unless it has to give way to one that is there already.
fn sample(
    request: &Request,
    session: &mut Session,
    mode: LaunchMode,
    sampled: &mut Vec<Sampled>,
    warnings: &mut Vec<String>,
) -> Result<(), ExecError> {
    let mut mode = mode;
    let mut notes = Vec::new();
    if mode == LaunchMode::Graph
        && let Err(error) = session.capture()
    {
        warnings.push(format!("no graph could be made, the run went on as streams: {error}"));
        if request.modes.contains(&LaunchMode::Stream) {
            return Ok(());
        }
        notes.push(format!("a graph was asked for: {error}"));
        mode = LaunchMode::Stream;
    }
    let Warmed { samples, warmup } = warmed(request, session, mode)?;
    let observed = match samples.stopped {
        true => Ok(Vec::new()),
        false => session.observe(mode, u64::from(request.observed_iterations), request.control),
    };
    notes.extend(session.notes());
    let (traces, failure) = match observed {
        Ok(traces) => (traces, Ok(())),
        Err(error) => (Vec::new(), Err(error)),
    };
    sampled.push(Sampled { mode, samples, warmup, traces, notes });
    failure
}

/// Whether a figure needs the time of the same operations on one stream.
fn wants_serial(program: &Program) -> bool {
    fn asks(expr: &FigureExpr) -> bool {
        match expr {
            FigureExpr::Figure { figure, .. } => figure.wants_serial(),
            FigureExpr::Unary(_, inner) => asks(inner),
            FigureExpr::Binary(_, left, right) => asks(left) || asks(right),
            FigureExpr::Constant(_) | FigureExpr::Metric { .. } => false,
        }
    }
    program.metrics.iter().any(|metric| asks(&metric.value))
        || program
            .expectations
            .iter()
            .any(|expectation| asks(&expectation.condition) || expectation.when.as_ref().is_some_and(asks))
}

fn record(request: &Request, sampled: &Sampled, serial: Option<&Serial>, warnings: &mut Vec<String>) -> Variant {
    let limits = Limits(request.profile);
    let refused = limits.check_iteration(request.program, &sampled.samples.time).err();
    let time = match &refused {
        None => Times::of(&sampled.samples.time),
        Some(_) => Times::bare(&sampled.samples.time),
    };
    let issue = Times::of(&sampled.samples.issue);
    let name = sampled.mode.name();
    warnings.extend(refused.as_ref().map(|why| format!("{name}: the time has no value, since {why}")));
    warnings.extend(doubts::of(name, &time, &sampled.warmup, request.schedule.period.len()));
    let headline = time.p50_ns;
    let observed: Vec<f64> = sampled.traces.iter().map(|trace| trace.time.0 as f64).collect();
    let observer_effect = match (Summary::of(&observed), headline) {
        (Some(summary), Some(Nanos(headline))) if headline > 0 => Some(summary.p50 / headline as f64 - 1.0),
        _ => None,
    };
    if let Some(effect) = observer_effect.filter(|effect| effect.abs() > OBSERVER) {
        warnings.push(format!(
            "{name}: timing single operations changes the iteration by {:+.0} %: \
             take their times as shares, and the headline for the whole",
            effect * 100.0
        ));
    }
    let mut host_bound = false;
    if let (Some(issue), Some(headline)) = (issue.p50_ns, headline)
        && sampled.mode == LaunchMode::Stream
        && issue.0 as f64 > HOST * headline.0 as f64
    {
        host_bound = true;
        warnings.push(format!(
            "{name}: the host takes {issue} to issue an iteration of {headline}: the device waits for it; \
             `--launch graph` issues it by one call"
        ));
    }
    let evidence = Evidence {
        program: request.program,
        plan: request.plan,
        time: &sampled.samples.time,
        serial: serial.map(|serial| serial.samples.time.as_slice()),
        traces: &sampled.traces,
        alone: serial.map(|serial| &serial.alone),
        memory: request.schedule.bytes(Space::Device),
        limits,
        known: Known::default(),
    };
    let expectations: Vec<ExpectationRecord> = request
        .program
        .expectations
        .iter()
        .zip(&request.expectations)
        .map(|(expectation, (text, place))| evidence.expectation(expectation, text.clone(), place.clone()))
        .collect();
    let lanes = &request.schedule.lanes;
    let analysis = analysis::analyze(&Subject {
        program: request.program,
        plan: request.plan,
        traces: &sampled.traces,
        alone: serial.map(|serial| &serial.alone),
        host_bound,
        queues: (sampled.mode == LaunchMode::Stream).then(|| lanes.iter().map(|lane| lane.queue).collect()),
        time: headline,
        profile: request.profile,
    });
    Variant {
        refused,
        launch: name.to_owned(),
        metrics: evidence.metrics(),
        expectations,
        serial: serial.map(|serial| Times::of(&serial.samples.time)),
        ranks: vec![RankRecord {
            rank: request.program.rank,
            time: time.clone(),
            analysis,
            operations: operations(request, &sampled.traces, serial.map(|serial| &serial.alone)),
            observer_effect,
            trace: spans(&sampled.traces),
        }],
        time,
        warmup: sampled.warmup,
        issue,
        notes: sampled.notes.clone(),
    }
}

/// The spans of the last observed iteration of the cycle's first step.
fn spans(traces: &[Trace]) -> Vec<SpanRecord> {
    let trace = traces.iter().rev().find(|trace| trace.step == 0);
    trace.map_or_else(Vec::new, |trace| {
        trace.spans.iter().map(|span| SpanRecord { id: span.op.0, start_ns: span.start, end_ns: span.end }).collect()
    })
}
