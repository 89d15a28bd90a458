//! An open backend with a schedule on it: issues iterations and times them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use miette::LabeledSpan;

use serde::{Deserialize, Serialize};

use crate::base::{MemoryId, Nanos, SrcSpan};
use crate::model::Sync;

use super::control::Control;
use super::driver::{Driver, Fault, Progress, Repeat};
use super::error::ExecError;
use super::gate::Gate;
use super::hang::HangSnapshot;
use super::health::Health;
use super::image::Step;
use super::prepare::{Lowered, Outline};
use super::stopping::Stopping;
use super::watchdog::RankProgress;

/// Iterations whose stamps are kept until somebody reads them.
pub(super) const RING: u64 = 256;

/// Polls for a stamp between two looks at the clock.
pub(super) const POLLS: u64 = 64;

/// How long an iteration that is under way when the run is stopped may still take.
const UNDER_WAY: Nanos = Nanos(200_000_000);

/// How far the host's clock and a device's may be apart before one of them has jumped, besides 1 % of the time.
const BETWEEN_CLOCKS: Nanos = Nanos(1_000_000_000);

/// What device clocks tell apart at least.
const STEP: Nanos = Nanos(1_000);

/// How operations reach the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LaunchMode {
    /// Each by a call of its own.
    Stream,
    /// All of an iteration by one call.
    Graph,
}

impl LaunchMode {
    pub fn name(self) -> &'static str {
        match self {
            LaunchMode::Stream => "stream",
            LaunchMode::Graph => "graph",
        }
    }
}

/// A schedule prepared on a backend.
pub struct Session {
    pub(super) driver: Box<dyn Driver>,
    pub(super) lowered: Lowered,
    /// The graphs of the period, once they are made.
    graphs: Vec<u32>,
    pub(super) observed_graphs: Vec<Option<u32>>,
    /// No other rank runs beside this one.
    pub(super) alone: bool,
    pub(super) rank: u32,
    /// What the watchdog sees of the thread.
    pub(super) beat: Arc<RankProgress>,
    /// The other ranks of this process, where they run side by side.
    pub(super) others: Vec<Arc<RankProgress>>,
    /// What it agrees on with the ranks of this process that it exchanges data with.
    pub(super) stopping: Stopping,
    /// There are others, and one of all goes on at a time: the driver lets this one wait for them.
    pub(super) in_turns: bool,
    /// When the last iteration had been issued, by the host's clock, if others were waited for then.
    pub(super) issued_at: Option<Nanos>,
    /// How far each lane had come when the iterations began.
    pub(super) base: Vec<Option<Progress>>,
    pub(super) issued: u64,
    /// The iteration that has stamps around each operation, if one has.
    pub(super) stamped: Option<u64>,
    /// Where it was when it was given up.
    pub(super) stood: Option<HangSnapshot>,
    /// Samples of the last iterations, to be kept if they failed here or on another rank.
    pub(super) samples: Samples,
}

/// What iterating gave.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Samples {
    /// The number of the first measured iteration, counted from the first that was issued: slots follow from it.
    pub first: u64,
    /// The device's time for each measured iteration.
    pub time: Vec<Nanos>,
    /// How long the host took to issue it.
    pub issue: Vec<Nanos>,
    /// Iterations were held until the host had issued them.
    pub gated: bool,
    /// Measured iterations that began earlier all the same.
    pub ungated: u64,
    /// Fewer iterations than asked for: the run was stopped.
    pub stopped: bool,
}

impl Samples {
    /// Adds those of iterations that are equal to the last ones.
    fn repeat(&mut self, Repeat { period, iterations }: Repeat) {
        for samples in [&mut self.time, &mut self.issue] {
            let from = samples.len() - period as usize;
            for index in 0..iterations as usize {
                samples.push(samples[from + index]);
            }
        }
    }

    /// Adds those of further iterations, the first of which is of the slot behind the last here.
    pub(super) fn append(&mut self, later: Samples) {
        self.time.extend(later.time);
        self.issue.extend(later.issue);
        self.gated &= later.gated;
        self.ungated += later.ungated;
        self.stopped |= later.stopped;
    }
}

impl Session {
    pub(super) fn new(
        driver: Box<dyn Driver>,
        mut lowered: Lowered,
        rank: u32,
        alone: bool,
        stopping: Stopping,
    ) -> Session {
        if !driver.gates() {
            lowered.gate = Gate::default();
        }
        lowered.cold &= driver.flushes();
        let observed_graphs = vec![None; lowered.outline.period.len()];
        let base = Vec::with_capacity(lowered.outline.lanes.len());
        Session {
            driver,
            lowered,
            graphs: Vec::new(),
            observed_graphs,
            alone,
            rank,
            beat: Arc::default(),
            others: Vec::new(),
            stopping,
            in_turns: false,
            issued_at: None,
            base,
            issued: 0,
            stamped: None,
            stood: None,
            samples: Samples::default(),
        }
    }

    /// The calling thread is this rank's until [`Session::leave`].
    pub(super) fn enter(&mut self) -> Result<(), ExecError> {
        self.driver.enter().map_err(device)
    }

    pub(super) fn leave(&mut self) {
        self.driver.leave();
    }

    /// Makes the graphs of the period. An error means that a capture was refused; the session stays usable as streams.
    pub fn capture(&mut self) -> Result<(), ExecError> {
        if self.graphs.is_empty() {
            let mut graphs = Vec::with_capacity(self.lowered.outline.period.len());
            for index in 0..self.lowered.outline.period.len() {
                graphs.push(self.capture_step(index, None)?);
            }
            self.graphs = graphs;
        }
        Ok(())
    }

    pub(super) fn capture_step(&mut self, index: usize, observed: Option<u32>) -> Result<u32, ExecError> {
        let origin = self.origin(index);
        self.driver.begin_capture(origin).map_err(device)?;
        let issued = self.fork(index, origin).and_then(|()| self.commands(index, observed, true));
        let issued = issued.and_then(|()| self.join(index, origin));
        // A capture has to be ended, also one that failed.
        let graph = self.driver.end_capture(origin).map_err(device);
        issued?;
        graph
    }

    /// The place of an iteration in the period.
    pub(super) fn index(&self, iteration: u64) -> usize {
        (iteration % self.lowered.outline.period.len() as u64) as usize
    }

    /// The lane that sets both stamps of an iteration of the period: the first that it uses.
    pub(super) fn origin(&self, index: usize) -> u32 {
        self.lowered.outline.period[index].used.first().copied().unwrap_or(0)
    }

    /// Lets the origin of an iteration wait for the end of the iteration before, where that ended on another lane. What
    /// ended on the same lane is complete anyway when the lane comes to this iteration.
    pub(super) fn await_last(&mut self, iteration: u64, origin: u32) -> Result<(), ExecError> {
        match iteration.checked_sub(1) {
            Some(last) if self.origin(self.index(last)) != origin => {
                self.driver.wait_stamp(origin, Self::end_stamp(last)).map_err(device)
            }
            _ => Ok(()),
        }
    }

    /// Lets every lane of an iteration follow the origin.
    fn fork(&mut self, index: usize, origin: u32) -> Result<(), ExecError> {
        let event = self.lowered.joins + origin;
        let mut recorded = false;
        for position in 0..self.lowered.outline.period[index].used.len() {
            let lane = self.lowered.outline.period[index].used[position];
            if lane == origin {
                continue;
            }
            if !recorded {
                self.driver.record(event, origin).map_err(device)?;
                recorded = true;
            }
            self.driver.wait(lane, event).map_err(device)?;
        }
        Ok(())
    }

    /// Lets a lane wait for the end of an iteration.
    pub(super) fn join(&mut self, index: usize, target: u32) -> Result<(), ExecError> {
        for position in 0..self.lowered.outline.period[index].leaves.len() {
            let lane = self.lowered.outline.period[index].leaves[position];
            if lane != target {
                let event = self.lowered.joins + lane;
                self.driver.record(event, lane).map_err(device)?;
                self.driver.wait(target, event).map_err(device)?;
            }
        }
        Ok(())
    }

    /// Issues the commands of an iteration: the measured loop.
    fn commands(&mut self, index: usize, observed: Option<u32>, alone: bool) -> Result<(), ExecError> {
        let Session { driver, lowered: Lowered { outline: Outline { period, launches, .. }, .. }, beat, .. } = self;
        let mut stamp = observed;
        driver.observing(observed.is_some());
        for command in &period[index].commands {
            if let Step::Launch { op, .. } = *command {
                beat.issues(op);
            }
            let result = match *command {
                Step::Launch { op, lane } => match &mut stamp {
                    None => driver.launch(op),
                    Some(stamp) => {
                        let first = *stamp;
                        *stamp += 2;
                        driver
                            .stamp(first, lane)
                            .and_then(|()| driver.launch(op))
                            .and_then(|()| driver.stamp(first + 1, lane))
                    }
                },
                Step::Record { event, lane } => driver.record(event, lane),
                // A graph is complete before the next is launched: it waits for nothing outside of itself.
                Step::Wait { across: true, .. } if alone => Ok(()),
                Step::Wait { lane, event, .. } => driver.wait(lane, event),
            };
            if let Err(fault) = result {
                return Err(match *command {
                    Step::Launch { op, .. } => at_operation(&fault, launches[op as usize]),
                    _ => device(fault),
                });
            }
        }
        driver.observing(false);
        beat.waits();
        Ok(())
    }

    pub(super) fn begin_stamp(iteration: u64) -> u32 {
        (2 * (iteration % RING)) as u32
    }

    pub(super) fn end_stamp(iteration: u64) -> u32 {
        Self::begin_stamp(iteration) + 1
    }

    /// Issues one whole iteration with its stamps, and opens its gate once the other ranks have come as far. `ahead` has the
    /// iterations that are under way then, and those that are still issued, where they are like this one.
    pub(super) fn issue(
        &mut self,
        mode: LaunchMode,
        iteration: u64,
        observe: bool,
        ahead: (u64, Option<u64>),
    ) -> Result<(), ExecError> {
        self.issued = iteration + 1;
        self.stamped = if observe { Some(iteration) } else { self.stamped };
        let issued = self.issue_held(mode, iteration, observe);
        self.issued_at = None;
        self.let_go(iteration, ahead);
        issued
    }

    fn issue_held(&mut self, mode: LaunchMode, iteration: u64, observe: bool) -> Result<(), ExecError> {
        let index = self.index(iteration);
        let (begin, end) = (Self::begin_stamp(iteration), Self::end_stamp(iteration));
        let observed = self.lowered.observed.filter(|_| observe);
        match (mode, self.lowered.sync) {
            (LaunchMode::Graph, _) => {
                let graph = match observed {
                    Some(_) => self.observed_graphs[index].expect("captured before it is observed"),
                    None => self.graphs[index],
                };
                self.driver.stamp(begin, 0).map_err(device)?;
                self.driver.launch_graph(graph, 0).map_err(device)?;
                self.driver.stamp(end, 0).map_err(device)
            }
            (LaunchMode::Stream, Sync::Iteration) => {
                let origin = self.origin(index);
                self.driver.stamp(begin, origin).map_err(device)?;
                self.follow(index, origin, begin)?;
                self.commands(index, observed, false)?;
                self.join(index, origin)?;
                self.driver.stamp(end, origin).map_err(device)
            }
            (LaunchMode::Stream, Sync::End) => {
                if iteration == 0 {
                    self.driver.stamp(begin, self.lowered.clock).map_err(device)?;
                    for lane in 0..self.lowered.clock {
                        self.driver.wait_stamp(lane, begin).map_err(device)?;
                    }
                }
                self.commands(index, observed, false)?;
                self.join(index, self.lowered.clock)?;
                self.driver.stamp(end, self.lowered.clock).map_err(device)
            }
        }
    }

    pub(super) fn follow(&mut self, index: usize, origin: u32, stamp: u32) -> Result<(), ExecError> {
        for position in 0..self.lowered.outline.period[index].used.len() {
            let lane = self.lowered.outline.period[index].used[position];
            if lane != origin {
                self.driver.wait_stamp(lane, stamp).map_err(device)?;
            }
        }
        Ok(())
    }

    /// Waits until an iteration is complete, and returns its time; `None` if the run was stopped and the iteration did not
    /// end soon after. Then the device is left as it is, and the session is of no further use.
    pub(super) fn retire(
        &mut self,
        mode: LaunchMode,
        iteration: u64,
        control: &Control,
    ) -> Result<Option<Nanos>, ExecError> {
        let end = Self::end_stamp(iteration);
        let start = self.driver.now();
        let mut stopped: Option<Nanos> = None;
        let mut polls = 0;
        while !self.driver.reached(end).map_err(device)? {
            polls += 1;
            if polls % POLLS == 0 {
                std::thread::yield_now();
                self.beat.goes_on();
                if control.has_failed() {
                    self.give_up(iteration, false);
                    return Err(ExecError::Ended);
                }
                let now = self.driver.now();
                if control.stopped() && now - *stopped.get_or_insert(now) > UNDER_WAY {
                    self.driver.abandon();
                    return Ok(None);
                }
                if now - start > self.lowered.outline.timeout {
                    return Err(self.hang(iteration, false));
                }
                if self.driver.stuck() {
                    return Err(self.hang(iteration, true));
                }
            }
        }
        self.beat.retires(iteration + 1);
        let begin = self.first_stamp(mode, iteration);
        let time = self.driver.elapsed(begin, end).map_err(device)?;
        self.in_order(time)?;
        Ok(Some(time))
    }

    /// Fails if something took longer on the device's clock than everything since `began` on the host's, by more than a
    /// clock's error.
    pub(super) fn within(&self, time: Nanos, began: Nanos) -> Result<(), ExecError> {
        let host = self.driver.now() - began;
        match time.0.abs() > host.0 + host.0 / 100 + BETWEEN_CLOCKS.0 {
            true => Err(jumped(format!("{time} on the device's clock, and at most {host} on the host's"))),
            false => Ok(()),
        }
    }

    /// Fails if something took less than no time, by more than the device's clock can tell.
    pub(super) fn in_order(&self, time: Nanos) -> Result<(), ExecError> {
        match time.0 < -(self.driver.uncertainty(time).0 + STEP.0) {
            true => Err(jumped(format!("{time} between a beginning and its end"))),
            false => Ok(()),
        }
    }

    /// Whether iterations are under way at the same time on the device.
    pub(super) fn overlap(&self, mode: LaunchMode) -> bool {
        mode == LaunchMode::Stream && self.lowered.sync == Sync::End
    }

    /// The stamp from which the time of an iteration counts: its own, or the end of the one before where they overlap.
    pub(super) fn first_stamp(&self, mode: LaunchMode, iteration: u64) -> u32 {
        match iteration.checked_sub(1) {
            Some(before) if self.overlap(mode) => Self::end_stamp(before),
            _ => Self::begin_stamp(iteration),
        }
    }

    /// Runs `warmup` iterations and then `iterations` that are measured. Where they fail, the session keeps the
    /// samples of those that were complete before.
    pub fn iterate(
        &mut self,
        mode: LaunchMode,
        warmup: u64,
        iterations: u64,
        control: &Control,
    ) -> Result<Samples, ExecError> {
        self.begin();
        let mut samples = Samples {
            first: warmup,
            time: Vec::with_capacity(iterations as usize),
            issue: Vec::with_capacity(iterations as usize),
            ..Samples::default()
        };
        let mut retired = 0;
        let result = self.iterations(mode, iterations, &mut samples, &mut retired, control);
        samples.stopped |= result.is_err();
        samples.issue.truncate(samples.time.len());
        match result {
            Ok(()) => Ok(samples),
            Err(error) => {
                self.samples = samples;
                Err(self.explained(error, retired, control))
            }
        }
    }

    fn iterations(
        &mut self,
        mode: LaunchMode,
        iterations: u64,
        samples: &mut Samples,
        retired: &mut u64,
        control: &Control,
    ) -> Result<(), ExecError> {
        let warmup = samples.first;
        let mut total = warmup + iterations;
        // Libraries load what they need when it is first used, and wait for the device then.
        let first = warmup.min(self.lowered.outline.period.len() as u64).max(1);
        samples.gated = mode == LaunchMode::Stream && self.lowered.gate.on && total > first;
        let ahead = if mode == LaunchMode::Graph { self.lowered.ahead.min(2) } else { self.lowered.ahead };
        let mut issued = 0;
        while *retired < total {
            total -= self.repeat(samples, control);
            if issued < total && issued - *retired < ahead && !samples.stopped {
                if !self.stopping.may_begin(issued, control.stopped()) {
                    samples.stopped = true;
                    continue;
                }
                self.lead_in(mode, issued, false, issued >= first)?;
                let start = self.driver.now();
                let like_the_last = issued >= first && *retired >= warmup;
                let left = like_the_last.then_some(total - issued - 1);
                self.issue(mode, issued, false, (issued + 1 - *retired, left))?;
                if issued >= warmup {
                    let issue = self.issued_at.unwrap_or_else(|| self.driver.now()) - start;
                    if issue < Nanos(0) || issue > self.lowered.outline.timeout {
                        return Err(jumped(format!("{issue} for the launch of an iteration")));
                    }
                    samples.issue.push(issue);
                }
                issued += 1;
                continue;
            }
            if *retired == issued {
                break;
            }
            let Some(time) = self.retire(mode, *retired, control)? else {
                samples.stopped = true;
                return Ok(());
            };
            let held = self.was_held(*retired);
            if *retired >= warmup {
                samples.time.push(time);
                samples.ungated += u64::from(samples.gated && !held);
            }
            *retired += 1;
            control.done.fetch_add(1, Ordering::Relaxed);
        }
        // Where nothing was issued, an iteration from before that was given up may still be under way.
        if issued > 0 {
            self.driver.synchronize().map_err(device)?;
        }
        // A rank that ends here may not have heard yet what the others have.
        self.repeat(samples, control);
        Ok(())
    }

    /// Runs a single iteration, to its end; those before it have been run.
    pub(super) fn once(&mut self, mode: LaunchMode, iteration: u64, control: &Control) -> Result<(), ExecError> {
        self.begin();
        let run = |session: &mut Session| {
            session.lead_in(mode, iteration, false, false)?;
            session.issue(mode, iteration, false, (1, None))?;
            session.retire(mode, iteration, control)?;
            session.driver.synchronize().map_err(device)
        };
        run(self).map_err(|error| self.explained(error, iteration, control))
    }

    /// Adds the samples of iterations that need not be issued, and returns how many there are.
    fn repeat(&mut self, samples: &mut Samples, control: &Control) -> u64 {
        let Some(repeat) = self.driver.repeats() else { return 0 };
        samples.repeat(repeat);
        control.done.fetch_add(repeat.iterations, Ordering::Relaxed);
        repeat.iterations
    }

    /// Gives all memory the contents that it had at the beginning.
    pub fn reset(&mut self) -> Result<(), ExecError> {
        self.driver.reset().map_err(device)
    }

    /// Reads a memory as it is after what has been run; nothing where the backend has none.
    pub fn read(&mut self, memory: MemoryId) -> Result<Option<Vec<u8>>, ExecError> {
        let (placement, offset) = self.lowered.placements[memory.index()];
        let mut out = vec![0; placement.bytes as usize];
        Ok(self.driver.read(placement.space, offset, &mut out).map_err(device)?.then_some(out))
    }

    /// Iterations after which the schedule repeats.
    pub(super) fn period(&self) -> usize {
        self.lowered.outline.period.len()
    }

    /// How the device is doing now, where it says so: to be asked outside of what is measured.
    pub fn health(&mut self) -> Option<Health> {
        self.driver.health()
    }

    pub fn notes(&self) -> Vec<String> {
        self.driver.notes()
    }
}

/// The error of a run whose clocks say what cannot be.
fn jumped(said: String) -> ExecError {
    ExecError::Device { fault: format!("a clock has jumped: {said}"), help: None }
}

pub(super) fn device(fault: Box<Fault>) -> ExecError {
    match fault.late {
        true => ExecError::Late { fault: fault.to_string(), outstanding: String::new(), at: Vec::new() },
        false => ExecError::Device { fault: fault.to_string(), help: None },
    }
}

pub(super) fn at_operation(fault: &Fault, (name, span): (&'static str, SrcSpan)) -> ExecError {
    match fault.late {
        true => {
            let at = vec![LabeledSpan::new_with_span(Some(format!("noticed at this {name}")), span)];
            ExecError::Late { fault: fault.to_string(), outstanding: String::new(), at }
        }
        false => ExecError::Operation { fault: fault.to_string(), what: name.to_owned(), at: span.into() },
    }
}
