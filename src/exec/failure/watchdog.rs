//! The watchdog: a thread that ends a run if a rank's thread does not return from a call or a communicator fails. It
//! checks a few times a second and does not disturb the measurement.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use miette::LabeledSpan;

use crate::base::parallel;
use crate::exec::prepare::CommandOutline;
use crate::exec::{Control, Fault};

use super::error::ExecError;
use super::hang::listed;

/// Interval between two checks.
const INTERVAL: Duration = Duration::from_millis(100);

/// Time beyond the timeout before a thread counts as blocked. A thread that detects a hang itself does so earlier, and
/// a first call may load libraries.
const MARGIN: Duration = Duration::from_secs(5);

/// Time for ranks to end by themselves, and again after their communicators were aborted.
const GRACE: Duration = Duration::from_secs(2);

/// Longest time until the watchdog has aborted communicators and left the process.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of collectives that the error of a failed communicator labels.
const MAX_LABELS: usize = 8;

/// Access to a driver's communicators from another thread, while the driver's own thread is blocked in a call.
pub trait CommMonitor: Send + Sync {
    /// Returns the asynchronous error of a communicator, with its number in the image; `None` if there is none.
    fn failure(&self) -> Option<(u32, Box<Fault>)>;

    /// Aborts all communicators, so that threads that wait for other ranks return with an error. Takes up to some
    /// seconds. May be called again.
    fn abort(&self);
}

/// Progress of a rank's thread, read by the watchdog and by other ranks.
#[derive(Debug, Default)]
pub(in crate::exec) struct RankProgress {
    /// Number of steps that the thread has made, by which the watchdog sees progress.
    count: AtomicU64,
    /// The operation being issued, plus one; 0 if none is.
    at: AtomicU32,
    /// Number of completed iterations.
    retired: AtomicU64,
    /// True if the thread is outside of a phase.
    over: AtomicBool,
    issued: PaddedCounter,
}

/// Number of iterations that are completely issued. Other ranks read it while this one issues, so it has its own cache
/// line.
#[derive(Debug, Default)]
#[repr(align(128))]
struct PaddedCounter(AtomicU64);

impl RankProgress {
    /// Counts progress. Only the rank's own thread writes, so this needs no atomic increment.
    pub fn advance(&self) {
        self.count.store(self.count.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Records that `op` is about to be issued.
    pub fn begin_operation(&self, op: u32) {
        self.at.store(op + 1, Ordering::Relaxed);
        self.advance();
    }

    /// Records that nothing is being issued: the thread waits for the device.
    pub fn wait_for_device(&self) {
        self.at.store(0, Ordering::Relaxed);
        self.advance();
    }

    /// Counts an issued iteration; returns their number.
    pub fn count_issued(&self) -> u64 {
        let issued = self.issued.0.load(Ordering::Relaxed) + 1;
        self.issued.0.store(issued, Ordering::Release);
        issued
    }

    /// True if the rank has issued `iterations` iterations, or is outside of a phase.
    pub fn has_issued(&self, iterations: u64) -> bool {
        self.issued.0.load(Ordering::Acquire) >= iterations || self.is_over()
    }

    /// Records the number of complete iterations.
    pub fn note_retired(&self, iterations: u64) {
        self.retired.store(iterations, Ordering::Relaxed);
        self.advance();
    }

    /// Begins a phase.
    pub fn begin(&self) {
        self.retired.store(0, Ordering::Relaxed);
        self.issued.0.store(0, Ordering::Release);
        self.wait_for_device();
        self.over.store(false, Ordering::Release);
    }

    /// Ends a phase.
    pub fn end(&self) {
        self.over.store(true, Ordering::Release);
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }
}

/// A rank that the watchdog watches.
pub(in crate::exec) struct WatchedRank {
    pub rank: u32,
    pub outline: CommandOutline,
    pub progress: Arc<RankProgress>,
    pub comm_monitor: Arc<dyn CommMonitor>,
}

/// Watches ranks until `end` is closed and returns the error that it found; `None` without one. `lost` returns the error of
/// another process that has ended.
pub(in crate::exec) fn watch(
    ranks: &[WatchedRank],
    control: &Control,
    end: &Receiver<()>,
    lost: impl Fn() -> Option<ExecError>,
) -> Option<ExecError> {
    control.set_watched(true);
    let mut seen: Vec<(u64, Instant)> = ranks.iter().map(|rank| (rank.count(), Instant::now())).collect();
    let mut ending = None;
    let mut found = None;
    while end.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
        let wrong = failed(ranks).or_else(|| stuck(ranks, &mut seen));
        if let (Some(error), None) = (wrong, &ending) {
            found = Some(error);
            control.fail(u32::MAX);
        }
        if control.has_failed() && ending.is_none() {
            ending = Some(Ending { since: Instant::now(), aborted: false, left: false });
        }
        if let Some(ending) = &mut ending {
            ending.escalate(ranks, control, || found.clone().or_else(&lost));
        }
    }
    control.set_watched(false);
    found
}

impl WatchedRank {
    fn count(&self) -> u64 {
        self.progress.count.load(Ordering::Relaxed)
    }

    /// Returns the error for a thread that is blocked in a call.
    fn no_return_error(&self) -> ExecError {
        let at = self.progress.at.load(Ordering::Relaxed).checked_sub(1);
        let at = at.and_then(|op| self.outline.launches.get(op as usize));
        ExecError::NoReturn {
            rank: self.rank,
            iteration: self.progress.retired.load(Ordering::Relaxed),
            timeout: self.outline.timeout.to_string(),
            doing: at.map_or("waiting for the device".to_owned(), |(name, _)| format!("issuing {name}")),
            at: at.map(|&(name, span)| labelled(format!("this {name} was being issued"), span)).into_iter().collect(),
        }
    }
}

/// The state of ending ranks after a failure.
struct Ending {
    since: Instant,
    /// True once communicators were aborted.
    aborted: bool,
    /// True once [`Control::leave`] was called, since aborting did not end all ranks.
    left: bool,
}

impl Ending {
    /// Aborts the communicators of ranks that did not end within [`GRACE`]; if that does not help either, leaves the
    /// process.
    fn escalate(&mut self, ranks: &[WatchedRank], control: &Control, why: impl FnOnce() -> Option<ExecError>) {
        let waiting: Vec<&WatchedRank> = ranks.iter().filter(|rank| !rank.progress.is_over()).collect();
        if waiting.is_empty() {
            return;
        }
        if !self.aborted && self.since.elapsed() > GRACE {
            self.aborted = true;
            // Concurrently: aborting one rank's communicators may need another's abort.
            parallel::side_by_side(ranks, |rank| rank.comm_monitor.abort());
            self.since = Instant::now();
        } else if self.aborted && !self.left && self.since.elapsed() > GRACE {
            self.left = true;
            let error = why().unwrap_or_else(|| waiting[0].no_return_error());
            control.leave(&error);
        }
    }
}

impl Control {
    /// Ends a hung run from outside with `error`: requests ranks to end, waits for a watchdog to abort their
    /// communicators, and finally ends the process. Returns false if no callback was set by
    /// [`Control::on_unresponsive`].
    pub fn end(&self, error: &ExecError) -> bool {
        let start = Instant::now();
        let was_watched = self.is_watched();
        self.fail(u32::MAX);
        while self.is_watched() && start.elapsed() < EXIT_TIMEOUT {
            std::thread::sleep(INTERVAL);
        }
        if was_watched {
            // A run that ended meanwhile writes its results itself.
            std::thread::sleep(GRACE);
        }
        self.leave(error)
    }
}

/// Returns the error of the first failed communicator; `None` if none has failed.
fn failed(ranks: &[WatchedRank]) -> Option<ExecError> {
    ranks.iter().find_map(|rank| {
        let (comm, fault) = rank.comm_monitor.failure()?;
        let (on, stream) = rank
            .outline
            .comms
            .get(comm as usize)
            .map_or((Vec::new(), String::new()), |comm| (comm.ranks.clone(), comm.stream.clone()));
        let retired = rank.progress.retired.load(Ordering::Relaxed);
        let at = rank.outline.collectives_on(retired, comm, MAX_LABELS);
        Some(ExecError::Communicator {
            fault: fault.to_string(),
            on: listed(&on),
            stream,
            rank: rank.rank,
            iteration: retired,
            at: at.into_iter().map(|(name, span)| labelled(format!("this {name} may be under way"), span)).collect(),
        })
    })
}

/// Returns the error of the first rank whose thread has made no progress for too long; `None` if there is none.
fn stuck(ranks: &[WatchedRank], seen: &mut [(u64, Instant)]) -> Option<ExecError> {
    let mut found = None;
    for (rank, (count, since)) in ranks.iter().zip(seen) {
        if rank.count() != *count || rank.progress.is_over() {
            (*count, *since) = (rank.count(), Instant::now());
        }
        let timeout = rank.outline.timeout.duration();
        if found.is_none() && since.elapsed() > timeout.saturating_add(MARGIN) {
            found = Some(rank.no_return_error());
        }
    }
    found
}

fn labelled(text: String, span: crate::base::SrcSpan) -> LabeledSpan {
    LabeledSpan::new_with_span(Some(text), span)
}

impl CommandOutline {
    /// The distinct collectives of a communicator in an iteration, at most `most`.
    fn collectives_on(&self, iteration: u64, comm: u32, most: usize) -> Vec<(&'static str, crate::base::SrcSpan)> {
        let mut found: Vec<(&'static str, crate::base::SrcSpan)> = Vec::new();
        let ops = self.step(iteration).launches().map(|launch| launch.op as usize);
        for op in ops.filter(|&op| self.comm_of[op] == comm) {
            if !found.contains(&self.launches[op]) && found.len() < most {
                found.push(self.launches[op]);
            }
        }
        found
    }
}
