//! One measurement: each variant's headline, its observed iterations, the serial run where a figure asks for it.

use crate::base::{Nanos, OpId, counted};
use crate::config::EffortPlan;
use crate::exec::{self, Backend, Control, ExecError, Health, LaunchMode, Samples, Session, Trace};
use crate::model::{Figure, FigureExpr, OpKind, Program};
use crate::plan::Plan;
use crate::schedule::{self, Schedule};

use super::metrics::{Evidence, Known};
use super::record::{ExpectationRecord, HealthRecord, OperationRecord, RankRecord, SpanRecord, Times, Variant};
use super::stats::Summary;

/// Variation beyond which a warning is given.
const NOISE: f64 = 0.10;

/// Disturbance by timing single operations beyond which a warning is given.
const OBSERVER: f64 = 0.02;

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
    /// Without the gate, where the samples are with it.
    ungated: Option<Samples>,
    traces: Vec<Trace>,
    /// How the device was doing before and after.
    health: Vec<Health>,
    notes: Vec<String>,
}

/// Iterations that a run takes, for its progress.
pub fn iterations(request: &Request) -> u64 {
    let each = u64::from(request.effort.warmup) + u64::from(request.effort.iterations);
    let runs = if wants_serial(request.program) { 2 } else { 1 };
    let gated = request.exec.gate_depth > 0 && request.modes.contains(&LaunchMode::Stream) && each > 1;
    each * (runs * request.modes.len() as u64 + u64::from(gated))
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
    serial: &mut Vec<Option<Samples>>,
    warnings: &mut Vec<String>,
) -> Result<(), ExecError> {
    let options = schedule::Options { streams: Some(1), ..schedule::Options::default() };
    let schedule = schedule::place(request.program, request.plan, request.backend.topology(), &options);
    let (warmup, iterations) = counts(request);
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
            serial.push(Some(session.iterate(variant.mode, warmup, iterations, request.control)?));
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

fn counts(request: &Request) -> (u64, u64) {
    (u64::from(request.effort.warmup), u64::from(request.effort.iterations))
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
    let (warmup, iterations) = counts(request);
    let (samples, health) = watched(session, |session| session.iterate(mode, warmup, iterations, request.control))?;
    warnings.extend(throttled(mode, &samples, &health));
    let ungated = match samples.gated && !samples.stopped {
        true => Some(as_issued(request, session, mode)?),
        false => None,
    };
    notes.extend(gate_note(session, mode));
    notes.extend(cold_note(request, session));
    warnings.extend(too_early(mode, &samples));
    let observed = match samples.stopped {
        true => Ok(Vec::new()),
        false => session.observe(mode, u64::from(request.observed_iterations), request.control),
    };
    notes.extend(session.notes());
    let (traces, failure) = match observed {
        Ok(traces) => (traces, Ok(())),
        Err(error) => (Vec::new(), Err(error)),
    };
    sampled.push(Sampled { mode, samples, ungated, traces, health, notes });
    failure
}

/// The same iterations as they are issued, without the gate.
fn as_issued(request: &Request, session: &mut Session, mode: LaunchMode) -> Result<Samples, ExecError> {
    let (warmup, iterations) = counts(request);
    session.set_gate(false);
    let samples = session.iterate(mode, warmup, iterations, request.control);
    session.set_gate(true);
    samples
}

/// Why iterations were not held, where they might have been.
fn gate_note(session: &Session, mode: LaunchMode) -> Option<String> {
    let why = session.gate_refused().filter(|_| mode == LaunchMode::Stream)?;
    Some(format!("iterations begin before the host has issued them, since {why}"))
}

/// How iterations found the caches, where they were to be empty.
fn cold_note(request: &Request, session: &Session) -> Option<String> {
    let note = match session.is_cold() {
        true => "the caches were emptied before each iteration, outside of its time",
        false => {
            "the caches are as the iteration before left them: they can be emptied on a GPU or a simulated one, \
                  and where iterations do not overlap"
        }
    };
    request.exec.cold.then(|| note.to_owned())
}

/// A warning, where a gate opened before the host had issued an iteration.
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

/// Runs something, and asks how the device is doing before and after.
fn watched(
    session: &mut Session,
    run: impl FnOnce(&mut Session) -> Result<Samples, ExecError>,
) -> Result<(Samples, Vec<Health>), ExecError> {
    let before = session.health();
    let samples = run(session)?;
    let after = session.health();
    Ok((samples, before.into_iter().chain(after).collect()))
}

/// A warning, where something held the device back.
fn throttled(mode: LaunchMode, samples: &Samples, health: &[Health]) -> Option<String> {
    let [before, after] = health else { return None };
    let window = samples.time.iter().fold(Nanos(0), |sum, time| sum + *time);
    Some(format!("{}: throttled: {}", mode.name(), after.throttled(before, window)?))
}

/// Whether a figure needs the time of the same operations on one stream.
fn wants_serial(program: &Program) -> bool {
    fn asks(expr: &FigureExpr) -> bool {
        match expr {
            FigureExpr::Figure { figure, .. } => matches!(figure, Figure::SerialTime | Figure::Speedup),
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

fn record(request: &Request, sampled: &Sampled, serial: Option<&Samples>, warnings: &mut Vec<String>) -> Variant {
    let time = Times::of(&sampled.samples.time);
    let issue = Times::of(&sampled.samples.issue);
    let ungated = sampled.ungated.as_ref().map(|samples| Times::of(&samples.time));
    let name = sampled.mode.name();
    if let Some(cv) = time.cv.filter(|cv| *cv > NOISE) {
        warnings.push(format!(
            "{name}: the times vary by {:.0} % of their mean: figures that differ by less say nothing",
            cv * 100.0
        ));
    }
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
    if let (Some(issue), Some(headline)) = (issue.p50_ns, headline)
        && sampled.mode == LaunchMode::Stream
        && issue.0 as f64 > 0.9 * headline.0 as f64
    {
        let waits = match ungated.as_ref().and_then(|ungated| ungated.p50_ns) {
            Some(ungated) => format!("without the gate the device waits for it, and it becomes {ungated}"),
            None => "the device waits for it".to_owned(),
        };
        warnings.push(format!(
            "{name}: the host takes {issue} to issue an iteration of {headline}: {waits}; \
             `--launch graph` issues it by one call"
        ));
    }
    let evidence = Evidence {
        program: request.program,
        time: &sampled.samples.time,
        serial: serial.map(|samples| samples.time.as_slice()),
        traces: &sampled.traces,
        known: Known::default(),
    };
    let expectations: Vec<ExpectationRecord> = request
        .program
        .expectations
        .iter()
        .zip(&request.expectations)
        .map(|(expectation, (text, place))| evidence.expectation(expectation, text.clone(), place.clone()))
        .collect();
    Variant {
        launch: name.to_owned(),
        metrics: evidence.metrics(),
        expectations,
        serial: serial.map(|samples| Times::of(&samples.time)),
        ranks: vec![RankRecord {
            rank: request.program.rank,
            time: time.clone(),
            operations: operations(request, &sampled.traces),
            observer_effect,
            trace: spans(&sampled.traces),
        }],
        time,
        issue,
        ungated,
        health: sampled.health.iter().map(health_record).collect(),
        notes: sampled.notes.clone(),
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

fn operations(request: &Request, traces: &[Trace]) -> Vec<OperationRecord> {
    let program = request.program;
    let step = &program.cycle[0];
    let graph = &request.plan.steps[0];
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
                lane: request.schedule.lane_of[info.stream.index()].0,
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
