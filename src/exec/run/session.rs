//! A session: an image on an open device, which issues iterations and times them. Contains the measured loop.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use miette::LabeledSpan;

use crate::base::named::named;
use crate::base::{MemoryId, Nanos, OnceBlock, SrcSpan};
use crate::exec::failure::hang::HangSnapshot;
use crate::exec::failure::watchdog::RankProgress;
use crate::exec::observe::Timing;
use crate::exec::observe::vendor_observation::Recording;
use crate::exec::prepare::image::ImageCommand;
use crate::exec::prepare::{CommandOutline, LoweredSchedule};
use crate::exec::{Driver, ExecError, Fault, LaneCompletion};
use crate::model::Sync;

use super::control::Control;
use super::gate::Gate;
use super::samples::Samples;
use super::stopping::StopAgreementHandle;

/// Number of iterations whose stamps exist at the same time.
pub(in crate::exec) const RING: u64 = 256;

/// Number of polls for a stamp between two checks of the clock.
pub(super) const POLLS: u64 = 64;

/// Time allowed for the current iteration after the run was stopped.
const STOP_TIMEOUT: Nanos = Nanos(200_000_000);

/// Largest difference between the host's and a device's time, in addition to 1 %, before one of the clocks counts as
/// jumped.
const MAX_CLOCK_DIFFERENCE: Nanos = Nanos(1_000_000_000);

/// Resolution that any device's clock is assumed to have at worst.
const WORST_RESOLUTION: Nanos = Nanos(1_000);

named! {
    /// Way in which a session launches operations.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum LaunchMode {
        /// Each operation is launched by its own calls.
        Stream = "stream",
        /// A whole iteration by one graph launch.
        Graph = "graph",
    }
}

impl LaunchMode {
    /// The mode in a sentence: `as streams` or `as a graph`.
    pub fn phrase(self) -> &'static str {
        if self == LaunchMode::Graph { "as a graph" } else { "as streams" }
    }
}

/// A schedule prepared on a backend, for one rank.
pub struct Session {
    pub(in crate::exec) driver: Box<dyn Driver>,
    pub(in crate::exec) lowered: LoweredSchedule,
    /// Graphs of the period; empty until captured.
    pub(in crate::exec) graphs: Vec<u32>,
    /// Graphs with a stamp before and after each operation, captured when an iteration is first observed by stamps.
    pub(in crate::exec) observed_graphs: Vec<Option<u32>>,
    /// Graphs whose nodes the vendor's library attributes to operations, and the iterations that it recorded.
    pub(in crate::exec) recording: Recording,
    /// True if this is the only rank.
    pub(in crate::exec) alone: bool,
    pub(in crate::exec) rank: u32,
    /// Progress that the watchdog and other ranks read.
    pub(in crate::exec) progress: Arc<RankProgress>,
    /// Progress of the other ranks of this process; empty if ranks run in turns.
    pub(in crate::exec) others: Vec<Arc<RankProgress>>,
    /// Agreement on the last iteration with the ranks of this process that it exchanges data with.
    pub(in crate::exec) stopping: StopAgreementHandle,
    /// True if the driver runs several ranks in turns and waits for the others itself.
    pub(in crate::exec) in_turns: bool,
    /// Host time at which the last iteration had been issued, before the wait for other ranks; `None` if it did not
    /// wait.
    pub(super) issued_at: Option<Nanos>,
    /// Progress of each lane when the iterations began.
    pub(in crate::exec) base: Vec<Option<LaneCompletion>>,
    pub(in crate::exec) issued: u64,
    /// The latest observed iteration; `None` if there was none.
    pub(in crate::exec) stamped: Option<u64>,
    /// Snapshot of the session at the moment its hang was detected; `None` if it never hung.
    pub(in crate::exec) snapshot: Option<HangSnapshot>,
    /// True if the memory has its initial contents, and the `setup` has not run on them.
    fresh: bool,
    /// Samples of completed iterations, kept for the case that the run fails here or on another rank.
    pub(in crate::exec) samples: Samples,
}

impl Session {
    /// Creates the session of rank `rank` on an open driver.
    pub(in crate::exec) fn new(
        driver: Box<dyn Driver>,
        mut lowered: LoweredSchedule,
        rank: u32,
        alone: bool,
        stopping: StopAgreementHandle,
    ) -> Session {
        if !driver.gates() {
            lowered.gate = Gate::default();
        }
        if !driver.queues_observed_stamps() {
            lowered.gate.fit_observed();
        }
        lowered.cold &= driver.flushes();
        let observed_graphs = vec![None; lowered.outline.period.len()];
        let base = Vec::with_capacity(lowered.outline.lanes.len());
        Session {
            driver,
            lowered,
            graphs: Vec::new(),
            observed_graphs,
            recording: Recording::default(),
            alone,
            rank,
            progress: Arc::default(),
            others: Vec::new(),
            stopping,
            in_turns: false,
            issued_at: None,
            base,
            issued: 0,
            stamped: None,
            snapshot: None,
            fresh: true,
            samples: Samples::default(),
        }
    }

    /// Index of an iteration in the period.
    pub(in crate::exec) fn index(&self, iteration: u64) -> usize {
        (iteration % self.lowered.outline.period.len() as u64) as usize
    }

    /// The lane that records both stamps of an iteration: the first lane that it uses.
    pub(in crate::exec) fn stamp_lane(&self, index: usize) -> u32 {
        self.lowered.outline.period[index].used.first().copied().unwrap_or(0)
    }

    /// Makes the stamp lane wait for the end of the previous iteration if that ended on another lane. On the same
    /// lane, stream order is enough.
    pub(super) fn await_last(&mut self, iteration: u64, stamp_lane: u32) -> Result<(), ExecError> {
        match iteration.checked_sub(1) {
            Some(last) if self.stamp_lane(self.index(last)) != stamp_lane => {
                self.driver.wait_stamp(stamp_lane, Self::end_stamp(last)).map_err(device)
            }
            _ => Ok(()),
        }
    }

    /// Makes every lane of an iteration wait for the stamp lane.
    pub(in crate::exec) fn fork(&mut self, index: usize, stamp_lane: u32) -> Result<(), ExecError> {
        let event = self.lowered.joins + stamp_lane;
        let mut recorded = false;
        for position in 0..self.lowered.outline.period[index].used.len() {
            let lane = self.lowered.outline.period[index].used[position];
            if lane == stamp_lane {
                continue;
            }
            if !recorded {
                self.driver.record(event, stamp_lane).map_err(device)?;
                recorded = true;
            }
            self.driver.wait(lane, event).map_err(device)?;
        }
        Ok(())
    }

    /// Makes lane `target` wait for all other lanes at the end of an iteration.
    pub(in crate::exec) fn join(&mut self, index: usize, target: u32) -> Result<(), ExecError> {
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

    /// Issues the commands of an iteration. This is the measured loop. `observed` is the method of timing operations;
    /// `alone` omits waits for earlier iterations and waits of the host.
    pub(in crate::exec) fn commands(
        &mut self,
        index: usize,
        observed: Option<Timing>,
        alone: bool,
    ) -> Result<(), ExecError> {
        let Session {
            driver,
            lowered: LoweredSchedule { outline: CommandOutline { period, launches, .. }, .. },
            progress,
            ..
        } = self;
        let mut stamp = observed.and_then(Timing::first_stamp);
        driver.observing(observed.is_some());
        for command in &period[index].commands {
            if let ImageCommand::Launch { op, .. } = *command {
                progress.begin_operation(op);
            }
            let result = match *command {
                ImageCommand::Launch { op, lane } => match &mut stamp {
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
                ImageCommand::Record { event, lane } => driver.record(event, lane),
                // Graphs run one after the other, so waits across iterations are not needed.
                ImageCommand::Wait { across: true, .. } if alone => Ok(()),
                ImageCommand::Wait { lane, event, .. } => driver.wait(lane, event),
                // The host cannot wait within a graph; the streams wait for each other there.
                ImageCommand::HostSync if alone => Ok(()),
                ImageCommand::HostSync => driver.synchronize(),
            };
            if let Err(fault) = result {
                return Err(match *command {
                    ImageCommand::Launch { op, .. } => at_operation(&fault, launches[op as usize]),
                    _ => device(fault),
                });
            }
        }
        driver.observing(false);
        progress.wait_for_device();
        Ok(())
    }

    /// The stamp at the start of an iteration.
    pub(in crate::exec) fn begin_stamp(iteration: u64) -> u32 {
        (2 * (iteration % RING)) as u32
    }

    /// The stamp at the end of an iteration.
    pub(in crate::exec) fn end_stamp(iteration: u64) -> u32 {
        Self::begin_stamp(iteration) + 1
    }

    /// Issues an iteration with its stamps, and opens its gate once the other ranks have issued theirs. `ahead` has the
    /// number of iterations then under way, and the number still to be issued if they are like this one.
    pub(in crate::exec) fn issue(
        &mut self,
        mode: LaunchMode,
        iteration: u64,
        observed: Option<Timing>,
        ahead: (u64, Option<u64>),
    ) -> Result<(), ExecError> {
        self.issued = iteration + 1;
        self.stamped = observed.map(|_| iteration).or(self.stamped);
        let issued = self.issue_held(mode, iteration, observed);
        self.issued_at = None;
        self.release_gate(iteration, ahead);
        issued
    }

    fn issue_held(&mut self, mode: LaunchMode, iteration: u64, observed: Option<Timing>) -> Result<(), ExecError> {
        let index = self.index(iteration);
        let (begin, end) = (Self::begin_stamp(iteration), Self::end_stamp(iteration));
        match (mode, self.lowered.sync) {
            (LaunchMode::Graph, _) => {
                let graph = match observed {
                    Some(Timing::Stamps(_)) => self.observed_graphs[index].expect("captured before it is observed"),
                    Some(Timing::Records) => self.recording.graph(index),
                    None => self.graphs[index],
                };
                self.driver.stamp(begin, 0).map_err(device)?;
                self.driver.launch_graph(graph, 0).map_err(device)?;
                self.driver.stamp(end, 0).map_err(device)
            }
            (LaunchMode::Stream, Sync::Iteration) => {
                let stamp_lane = self.stamp_lane(index);
                self.driver.stamp(begin, stamp_lane).map_err(device)?;
                self.follow(index, stamp_lane, begin)?;
                self.commands(index, observed, false)?;
                self.join(index, stamp_lane)?;
                self.driver.stamp(end, stamp_lane).map_err(device)
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

    /// Makes every lane of an iteration wait for `stamp`, which lane `stamp_lane` has recorded.
    pub(in crate::exec) fn follow(&mut self, index: usize, stamp_lane: u32, stamp: u32) -> Result<(), ExecError> {
        for position in 0..self.lowered.outline.period[index].used.len() {
            let lane = self.lowered.outline.period[index].used[position];
            if lane != stamp_lane {
                self.driver.wait_stamp(lane, stamp).map_err(device)?;
            }
        }
        Ok(())
    }

    /// Waits until an iteration completes and returns its device time. Returns `None` if the run was stopped and the
    /// iteration did not complete soon after; the device is then abandoned and the session cannot be used again.
    pub(in crate::exec) fn retire(
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
                self.progress.advance();
                if control.has_failed() {
                    self.give_up(iteration, false);
                    return Err(ExecError::Ended);
                }
                let now = self.driver.now();
                if control.stopped() && now - *stopped.get_or_insert(now) > STOP_TIMEOUT {
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
        self.progress.note_retired(iteration + 1);
        let begin = self.first_stamp(mode, iteration);
        let time = self.driver.elapsed(begin, end).map_err(device)?;
        self.in_order(time)?;
        Ok(Some(time))
    }

    /// Fails if a device time is longer than all host time since `began`, by more than the allowed clock error.
    pub(in crate::exec) fn within(&self, time: Nanos, began: Nanos) -> Result<(), ExecError> {
        let host = self.driver.now() - began;
        match time.0.abs() > host.0 + host.0 / 100 + MAX_CLOCK_DIFFERENCE.0 {
            true => Err(clock_jump(format!("{time} on the device's clock, and at most {host} on the host's"))),
            false => Ok(()),
        }
    }

    /// Fails if a time is negative by more than the device's clock error.
    pub(in crate::exec) fn in_order(&self, time: Nanos) -> Result<(), ExecError> {
        match time.0 < -(self.driver.uncertainty(time).0 + WORST_RESOLUTION.0) {
            true => Err(clock_jump(format!("{time} between a beginning and its end"))),
            false => Ok(()),
        }
    }

    /// True if iterations overlap on the device.
    pub(in crate::exec) fn overlap(&self, mode: LaunchMode) -> bool {
        mode == LaunchMode::Stream && self.lowered.sync == Sync::End
    }

    /// The stamp from which an iteration's time counts: its own start stamp, or the previous end stamp if iterations
    /// overlap.
    pub(in crate::exec) fn first_stamp(&self, mode: LaunchMode, iteration: u64) -> u32 {
        match iteration.checked_sub(1) {
            Some(before) if self.overlap(mode) => Self::end_stamp(before),
            _ => Self::begin_stamp(iteration),
        }
    }

    /// Runs `warmup` iterations and then `iterations` measured ones. On failure the session keeps the samples completed
    /// before.
    pub fn iterate(
        &mut self,
        mode: LaunchMode,
        warmup: u64,
        iterations: u64,
        control: &Control,
    ) -> Result<Samples, ExecError> {
        self.set_up(control)?;
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
        // The first iterations are not gated: libraries load code on first use, which waits for the device.
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
                self.lead_in(mode, issued, None, issued >= first)?;
                let start = self.driver.now();
                let like_the_last = issued >= first && *retired >= warmup;
                let left = like_the_last.then_some(total - issued - 1);
                self.issue(mode, issued, None, (issued + 1 - *retired, left))?;
                if issued >= warmup {
                    let issue = self.issued_at.unwrap_or_else(|| self.driver.now()) - start;
                    if issue < Nanos(0) || issue > self.lowered.outline.timeout {
                        return Err(clock_jump(format!("{issue} for the launch of an iteration")));
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
            let was_gated = self.was_held(*retired);
            if *retired >= warmup {
                samples.time.push(time);
                samples.ungated += u64::from(samples.gated && !was_gated);
            }
            *retired += 1;
            control.done.fetch_add(1, Ordering::Relaxed);
        }
        // If nothing was issued, work of an abandoned iteration may still be running; synchronizing could block.
        if issued > 0 {
            self.driver.synchronize().map_err(device)?;
        }
        // Collects proved iterations that the other ranks have taken already.
        self.repeat(samples, control);
        Ok(())
    }

    /// Runs a single iteration to completion. The iterations before it must have been run.
    pub(in crate::exec) fn once(
        &mut self,
        mode: LaunchMode,
        iteration: u64,
        control: &Control,
    ) -> Result<(), ExecError> {
        self.set_up(control)?;
        self.single(mode, iteration, control)
    }

    /// Runs the `setup`, unless it has run since the initial contents were restored. Called before iterations.
    pub(in crate::exec) fn set_up(&mut self, control: &Control) -> Result<(), ExecError> {
        match std::mem::take(&mut self.fresh) {
            true => self.once_block(OnceBlock::Setup, control),
            false => Ok(()),
        }
    }

    /// Runs a block around the iterations to completion, as streams. Does nothing if the file has no such block.
    pub(in crate::exec) fn once_block(&mut self, which: OnceBlock, control: &Control) -> Result<(), ExecError> {
        let Some(block) = self.lowered.around.get(which).cloned() else { return Ok(()) };
        let iterations = std::mem::replace(&mut self.lowered.outline, block);
        let done = self.single(LaunchMode::Stream, 0, control);
        self.lowered.outline = iterations;
        done
    }

    fn single(&mut self, mode: LaunchMode, iteration: u64, control: &Control) -> Result<(), ExecError> {
        self.begin();
        let run = |session: &mut Session| {
            session.lead_in(mode, iteration, None, false)?;
            session.issue(mode, iteration, None, (1, None))?;
            session.retire(mode, iteration, control)?;
            session.driver.synchronize().map_err(device)
        };
        run(self).map_err(|error| self.explained(error, iteration, control))
    }

    /// Adds the samples of iterations that the simulator has proved equal to earlier ones, and returns their number.
    fn repeat(&mut self, samples: &mut Samples, control: &Control) -> u64 {
        let Some(repeat) = self.driver.repeats() else { return 0 };
        samples.repeat(repeat.period, repeat.iterations);
        control.done.fetch_add(repeat.iterations, Ordering::Relaxed);
        repeat.iterations
    }

    /// Restores the initial contents of all memory.
    pub fn reset(&mut self) -> Result<(), ExecError> {
        self.fresh = true;
        self.driver.reset().map_err(device)
    }

    /// Reads a memory; `None` if the backend has no memory.
    pub fn read(&mut self, memory: MemoryId) -> Result<Option<Vec<u8>>, ExecError> {
        let (placement, offset) = self.lowered.placements[memory.index()];
        let mut out = vec![0; placement.bytes as usize];
        Ok(self.driver.read(placement.space, offset, &mut out).map_err(device)?.then_some(out))
    }

    /// Number of iterations after which the schedule repeats.
    pub(in crate::exec) fn period(&self) -> usize {
        self.lowered.outline.period.len()
    }

    /// Notes on whether copy engines or kernels execute the copies. See [`Driver::infer_copy_units`].
    pub fn infer_copy_units(&mut self) -> Result<Vec<String>, ExecError> {
        self.driver.infer_copy_units().map_err(device)
    }

    /// Notes of the driver from preparation.
    pub fn notes(&self) -> Vec<String> {
        self.driver.notes()
    }
}

/// Returns the error for an impossible time, which shows that a clock has jumped.
pub(in crate::exec) fn clock_jump(details: String) -> ExecError {
    ExecError::Device { fault: format!("a clock has jumped: {details}"), help: None }
}

/// Converts a fault that is not related to an operation.
pub(in crate::exec) fn device(fault: Box<Fault>) -> ExecError {
    match fault.late {
        true => ExecError::Late { fault: fault.to_string(), outstanding: String::new(), at: Vec::new() },
        false => ExecError::device(fault),
    }
}

/// Converts a fault of an operation, given by name and source location.
pub(in crate::exec) fn at_operation(fault: &Fault, (name, span): (&'static str, SrcSpan)) -> ExecError {
    match fault.late {
        true => {
            let at = vec![LabeledSpan::new_with_span(Some(format!("noticed at this {name}")), span)];
            ExecError::Late { fault: fault.to_string(), outstanding: String::new(), at }
        }
        false => ExecError::Operation { fault: fault.to_string(), what: name.to_owned(), at: span.into() },
    }
}
