//! Observes iterations by the vendor's records where they are available, else by stamps.
//!
//! The ranks of a run use one method. If the records of one rank cannot be used, all ranks repeat the iterations, since a
//! collective needs each of them, and time them by stamps.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::{LaneId, Nanos, OpId};
use crate::config::ObserveSetting;
use crate::exec::prepare::image::{ImageCommand, StepCommands};
use crate::exec::{Control, ExecError, LaunchMode, Ranks, Session};

use super::activity::{self, Activity, IterationTimes};
use super::trace::{Span, Trace, TracedLaunch};
use super::{Observation, Timing};

/// The method by which the operations of observed iterations were timed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedBy {
    /// Name of the vendor's library with its version, or `events`.
    pub method: String,
    /// Reason why the vendor's records are not used; `None` if they are, or were not requested.
    pub instead: Option<String>,
}

/// The state of a session that the vendor's library records.
#[derive(Default)]
pub(in crate::exec) struct Recording {
    /// Graphs of the period that were captured while the library was attached.
    graphs: Vec<(usize, u32)>,
    /// Index in the period of each observed iteration.
    indices: Vec<usize>,
    /// Trace of each observed iteration; its spans follow from the records.
    traces: Vec<Trace>,
    /// True if iterations overlap.
    overlapping: bool,
}

impl Recording {
    /// Notes the index in the period of an iteration that has been observed.
    pub(in crate::exec) fn note(&mut self, index: usize) {
        self.indices.push(index);
    }

    /// The graph of an iteration of the period, which has been captured.
    pub(in crate::exec) fn graph(&self, index: usize) -> u32 {
        let graph = self.graphs.iter().find(|(known, _)| *known == index);
        graph.expect("captured before it is observed").1
    }
}

impl Session {
    /// Captures the graph of an iteration of the period, so that the vendor's library can attribute each node to its operation.
    pub(super) fn capture_recorded(&mut self, index: usize) -> Result<(), ExecError> {
        if self.recording.graphs.iter().any(|(known, _)| *known == index) {
            return Ok(());
        }
        self.driver.record_iteration(Some(0));
        let graph = self.capture_step(index, Some(Timing::Records));
        self.driver.record_iteration(None);
        self.recording.graphs.push((index, graph?));
        Ok(())
    }

    /// Observes iterations while the vendor's library records them.
    fn observe_recorded(&mut self, observation: Observation, control: &Control) -> Result<(), ExecError> {
        self.recording = Recording { overlapping: self.overlap(observation.mode), ..Recording::default() };
        let timing = self.lowered.observed.map(|_| Timing::Records);
        self.recording.traces = self.observe_by(observation, control, timing)?;
        Ok(())
    }

    /// Ends the recording and returns the traces. The device must be idle. The error is the reason in words why there
    /// are none.
    fn finish_records(&mut self) -> Result<Vec<Trace>, String> {
        let recorded = self.driver.end_records()?;
        let Recording { indices, traces, overlapping, .. } = std::mem::take(&mut self.recording);
        let outline = self.lowered.outline.clone();
        let ops = |index: &usize| outline.period[*index].launches().map(|launch| launch.op).collect();
        let times = activity::correlate(&recorded, &indices.iter().map(ops).collect::<Vec<_>>())?;
        let mut described = BTreeSet::new();
        let whole = |((index, trace), times): ((usize, Trace), IterationTimes)| {
            let parts = if described.insert(trace.slot) { &recorded.activities[..] } else { &[] };
            complete(trace, &times, (&outline.period[index], parts), overlapping)
        };
        Ok(indices.into_iter().zip(traces).zip(times).map(whole).collect())
    }
}

/// Adds the spans of the launches to a trace, and their parts if the records are not empty.
///
/// An operation without a record did nothing on the device. Its span is empty and lies at the moment when its stream
/// reached it.
fn complete(
    trace: Trace,
    times: &IterationTimes,
    (step, records): (&StepCommands, &[Activity]),
    overlapping: bool,
) -> Trace {
    let Some(placed) = times.place(trace.time, overlapping) else { return trace };
    let since = |at: u64| Nanos(at as i64 - placed.begin);
    let mut reached: BTreeMap<u32, Nanos> = BTreeMap::new();
    let mut recorded: BTreeMap<u32, Nanos> = BTreeMap::new();
    let mut ids: BTreeMap<u32, OpId> = BTreeMap::new();
    let mut numbers = step.ops.iter();
    let mut spans = Vec::with_capacity(step.ops.len());
    for command in &step.commands {
        match *command {
            ImageCommand::Launch { op: number, lane } => {
                let Some(&op) = numbers.next() else { break };
                let now = reached.get(&lane).copied().unwrap_or_default();
                let known = times.ops.get(&number).map(|&(start, end)| (since(start), since(end)));
                let (start, end) = known.unwrap_or((now, now));
                reached.insert(lane, end.max(now));
                ids.insert(number, op);
                spans.push(Span { op, lane: LaneId(lane), start, end });
            }
            ImageCommand::Record { event, lane } => {
                recorded.insert(event, reached.get(&lane).copied().unwrap_or_default());
            }
            ImageCommand::Wait { lane, event, across: false } => {
                let awaited = recorded.get(&event).copied().unwrap_or_default();
                let now = reached.entry(lane).or_default();
                *now = awaited.max(*now);
            }
            // An earlier iteration recorded the event.
            ImageCommand::Wait { across: true, .. } | ImageCommand::HostSync => {}
        }
    }
    let part = |&(number, index): &(u32, usize)| {
        let Activity { node, start, end, queue, ref kernel, .. } = *records.get(index)?;
        let (node, kernel) = (Some(node).filter(|node| *node != 0), kernel.clone());
        Some(TracedLaunch { op: *ids.get(&number)?, start: since(start), end: since(end), queue, node, kernel })
    };
    let mut parts: Vec<TracedLaunch> = times.parts.iter().filter_map(part).collect();
    parts.sort_by_key(|part| (part.start, part.op));
    let mut trace = Trace { time: placed.time, spans, parts, ..trace };
    if let Some(origin) = &mut trace.origin {
        origin.error += placed.error;
    }
    trace
}

impl Ranks {
    /// Observes iterations on every rank: [`Session::observe`], or by the vendor's records. With several processes, only
    /// rank 0 gets the traces of other ranks; elsewhere theirs are empty.
    pub fn observe(&mut self, observation: Observation, control: &Control) -> Result<Vec<Vec<Trace>>, ExecError> {
        (self.observed_by, self.recorded_time) = (None, None);
        let has_recorder = self.sessions.iter().all(|session| session.driver.has_recorder());
        let instead = match self.observe {
            ObserveSetting::Off => return Ok(vec![Vec::new(); self.numbers.len()]),
            ObserveSetting::Events => None,
            ObserveSetting::Auto if !has_recorder => None,
            ObserveSetting::Vendor if !has_recorder => Some("the backend has no library that records them".to_owned()),
            ObserveSetting::Auto | ObserveSetting::Vendor => match self.observe_by_records(observation, control)? {
                Ok((traces, method)) => {
                    self.observed_by = Some(ObservedBy { method, instead: None });
                    return Ok(traces);
                }
                Err(why) => Some(why),
            },
        };
        if has_recorder || instead.is_some() {
            let method = if has_recorder { "events" } else { "stamps" };
            self.observed_by = Some(ObservedBy { method: method.to_owned(), instead });
        }
        Ok(self.observe_by_stamps(observation, control)?.0)
    }

    /// Observes iterations on every rank with a stamp before and after each operation. Also returns the time of an observed
    /// iteration, as [`Ranks::recorded_time`] does.
    pub fn observe_by_stamps(
        &mut self,
        observation: Observation,
        control: &Control,
    ) -> Result<(Vec<Vec<Trace>>, Option<Nanos>), ExecError> {
        let observe = |session: &mut Session| session.observe(observation, control);
        let time = |all: &[&Vec<Trace>]| slowest_time(all.iter().copied());
        let (time, traces) = self.each_or_none("observed iterations", control, observe, time)?;
        Ok((traces.into_iter().map(Option::unwrap_or_default).collect(), time))
    }

    /// Time of an iteration of the slowest rank while the vendor's library recorded it: the median of each slot, and the mean of
    /// these. `None` if records did not time the last observed iterations. All processes get the same time.
    pub fn recorded_time(&self) -> Option<Nanos> {
        self.recorded_time
    }

    /// True if observing iterations may attach the vendor's library to this process.
    pub fn may_attach(&self) -> bool {
        matches!(self.observe, ObserveSetting::Auto | ObserveSetting::Vendor)
            && self.sessions.iter().all(|session| session.driver.has_recorder())
    }

    /// The method that timed the operations of the last observed iterations; `None` if none were observed, or if the
    /// backend has only one method.
    pub fn observed_by(&self) -> Option<&ObservedBy> {
        self.observed_by.as_ref()
    }

    /// Observes iterations by the vendor's records, and returns the library's name too. The inner error is the reason
    /// in words why they cannot be used.
    #[expect(clippy::type_complexity, reason = "two kinds of failure: one of the run, and one of this method alone")]
    fn observe_by_records(
        &mut self,
        observation: Observation,
        control: &Control,
    ) -> Result<Result<(Vec<Vec<Trace>>, String), String>, ExecError> {
        let begin = |session: &mut Session| Ok(session.driver.begin_records(observation.mode == LaunchMode::Graph));
        let (begun, _) = self.each_or_none("records", control, begin, first_error)?;
        let method = match begun {
            Ok(method) => method,
            Err(why) => {
                self.sessions.iter_mut().for_each(|session| drop(session.driver.end_records()));
                return Ok(Err(why));
            }
        };
        let observe = |session: &mut Session| session.observe_recorded(observation, control);
        self.each_or_none("observed iterations", control, observe, |_| ())?;
        // Records are complete only when the device is idle, which it is after the observed iterations have ended.
        let finish = |session: &mut Session| Ok(session.finish_records());
        let common = |all: &[&Result<Vec<Trace>, String>]| {
            let failed = first_error_of(all.iter().map(|one| one.as_ref().err()));
            (failed, slowest_time(all.iter().filter_map(|one| one.as_ref().ok())))
        };
        let ((failed, time), traces) = self.each_or_none("records", control, finish, common)?;
        Ok(match failed {
            Some(why) => Err(why),
            None => {
                self.recorded_time = time;
                let traces = traces.into_iter().map(|traces| traces.and_then(Result::ok).unwrap_or_default());
                Ok((traces.collect(), method))
            }
        })
    }
}

/// Time of an observed iteration of the slowest rank: the median of each slot, and the mean of these. `None` without traces.
fn slowest_time<'a>(ranks: impl Iterator<Item = &'a Vec<Trace>>) -> Option<Nanos> {
    let of_rank = |traces: &Vec<Trace>| {
        let mut slots: BTreeMap<usize, Vec<Nanos>> = BTreeMap::new();
        traces.iter().for_each(|trace| slots.entry(trace.slot).or_default().push(trace.time));
        let median = |times: &mut Vec<Nanos>| {
            times.sort_unstable();
            times[times.len() / 2].0
        };
        let count = slots.len() as i64;
        (count > 0).then(|| Nanos(slots.values_mut().map(median).sum::<i64>() / count))
    };
    ranks.filter_map(of_rank).max()
}

/// The first rank's value, or the first error of any rank.
fn first_error(all: &[&Result<String, String>]) -> Result<String, String> {
    match first_error_of(all.iter().map(|one| one.as_ref().err())) {
        Some(why) => Err(why),
        None => all.first().map_or_else(|| Err("there is no rank".to_owned()), |first| (*first).clone()),
    }
}

fn first_error_of<'a>(mut errors: impl Iterator<Item = Option<&'a String>>) -> Option<String> {
    errors.find_map(|error| error.cloned())
}
