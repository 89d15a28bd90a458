//! The watchdog: a thread beside those of the ranks that ends a run in which one does not come back from a call, or in
//! which a communicator has failed. It looks a few times a second, and takes no part in what is measured.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use miette::LabeledSpan;

use crate::base::parallel;

use super::control::Control;
use super::driver::Fault;
use super::error::ExecError;
use super::hang::listed;
use super::image::Step;
use super::prepare::Outline;

/// From one look to the next.
const LOOK: Duration = Duration::from_millis(100);

/// How long after its time a rank's thread is waited for: one that can tell of a hang by itself does so before, and what
/// is called for the first time may load something.
const MARGIN: Duration = Duration::from_secs(5);

/// How long ranks that have been told to end may take for it, and once more when what they do together has been ended.
const GRACE: Duration = Duration::from_secs(2);

/// How long a watchdog takes at most until it has ended communicators and left the process.
const RESCUE: Duration = Duration::from_secs(10);

/// Collectives of a communicator that failed which are shown at most.
const PLACES: usize = 8;

/// What another thread can do to a driver whose own thread does not come back from a call.
pub trait Breaker: Send + Sync {
    /// What has gone wrong on a communicator since it was made, with its number in the image; nothing if all is well.
    fn failure(&self) -> Option<(u32, Box<Fault>)>;

    /// Ends what ranks do together, so that whoever waits for another rank comes back with an error. Takes a few seconds
    /// at most, and may be called more than once.
    fn abort(&self);
}

/// What a rank's thread says of itself as it goes on.
#[derive(Debug, Default)]
pub(super) struct RankProgress {
    count: AtomicU64,
    /// The operation that is being issued, plus one; 0 for none.
    at: AtomicU32,
    /// Iterations that are complete.
    retired: AtomicU64,
    /// The thread is through.
    over: AtomicBool,
    issued: Issued,
}

/// Iterations that are issued whole. Other ranks look at it while this one issues: it has a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Issued(AtomicU64);

impl RankProgress {
    /// It goes on. Only its own thread says so: nothing is locked.
    pub fn goes_on(&self) {
        self.count.store(self.count.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// It is about to issue an operation.
    pub fn issues(&self, op: u32) {
        self.at.store(op + 1, Ordering::Relaxed);
        self.goes_on();
    }

    /// It has issued what it had to, and waits for iterations.
    pub fn waits(&self) {
        self.at.store(0, Ordering::Relaxed);
        self.goes_on();
    }

    /// It has issued one more iteration. Returns how many there are.
    pub fn issued_one(&self) -> u64 {
        let issued = self.issued.0.load(Ordering::Relaxed) + 1;
        self.issued.0.store(issued, Ordering::Release);
        issued
    }

    /// Whether it has issued as many iterations, or issues no more.
    pub fn has_issued(&self, iterations: u64) -> bool {
        self.issued.0.load(Ordering::Acquire) >= iterations || self.is_over()
    }

    pub fn retires(&self, iterations: u64) {
        self.retired.store(iterations, Ordering::Relaxed);
        self.goes_on();
    }

    pub fn begin(&self) {
        self.retired.store(0, Ordering::Relaxed);
        self.issued.0.store(0, Ordering::Release);
        self.waits();
        self.over.store(false, Ordering::Release);
    }

    pub fn end(&self) {
        self.over.store(true, Ordering::Release);
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }
}

/// One rank, as the watchdog sees it.
pub(super) struct Watched {
    pub rank: u32,
    pub outline: Outline,
    pub beat: Arc<RankProgress>,
    pub breaker: Arc<dyn Breaker>,
}

/// Watches ranks until `end` is closed. Returns what it found wrong. `lost` tells of another process that is gone.
pub(super) fn watch(
    ranks: &[Watched],
    control: &Control,
    end: &Receiver<()>,
    lost: impl Fn() -> Option<ExecError>,
) -> Option<ExecError> {
    control.watched(true);
    let found = watch_to_end(ranks, control, end, lost);
    control.watched(false);
    found
}

fn watch_to_end(
    ranks: &[Watched],
    control: &Control,
    end: &Receiver<()>,
    lost: impl Fn() -> Option<ExecError>,
) -> Option<ExecError> {
    let mut seen: Vec<(u64, Instant)> = ranks.iter().map(|rank| (rank.count(), Instant::now())).collect();
    let mut ending = None;
    let mut found = None;
    while end.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
        let wrong = failed(ranks).or_else(|| stuck(ranks, &mut seen));
        if let (Some(error), None) = (wrong, &ending) {
            found = Some(error);
            control.fail(u32::MAX);
        }
        if control.has_failed() && ending.is_none() {
            ending = Some(Ending { since: Instant::now(), aborted: false, left: false });
        }
        if let Some(ending) = &mut ending {
            ending.go_on(ranks, control, || found.clone().or_else(&lost));
        }
    }
    found
}

impl Watched {
    fn count(&self) -> u64 {
        self.beat.count.load(Ordering::Relaxed)
    }
}

/// Ranks have been told to end.
struct Ending {
    since: Instant,
    aborted: bool,
    left: bool,
}

impl Ending {
    /// Whoever does not come by itself is helped; where that is of no use, whoever runs all this may leave.
    fn go_on(&mut self, ranks: &[Watched], control: &Control, why: impl FnOnce() -> Option<ExecError>) {
        let waiting: Vec<&Watched> = ranks.iter().filter(|rank| !rank.beat.is_over()).collect();
        if waiting.is_empty() {
            return;
        }
        if !self.aborted && self.since.elapsed() > GRACE {
            self.aborted = true;
            // Side by side: what one rank waits for may be another's end.
            parallel::side_by_side(ranks, |rank| rank.breaker.abort());
            self.since = Instant::now();
        } else if self.aborted && !self.left && self.since.elapsed() > GRACE {
            self.left = true;
            let error = why().unwrap_or_else(|| waiting[0].does_not_come_back());
            control.leave(&error);
        }
    }
}

impl Control {
    /// Ends a run from outside, in which `error` shows that nothing will come of it: ranks are told to end, a watchdog that
    /// looks after them gets the time that it needs, and the process is left in the end. Returns false where nobody has
    /// said how that is done, by [`Control::when_stuck`].
    pub fn end(&self, error: &ExecError) -> bool {
        let start = Instant::now();
        let was_watched = self.is_watched();
        self.fail(u32::MAX);
        while self.is_watched() && start.elapsed() < RESCUE {
            std::thread::sleep(LOOK);
        }
        if was_watched {
            // A run that has come back tells its figures itself.
            std::thread::sleep(GRACE);
        }
        self.leave(error)
    }
}

/// The first communicator that has failed.
fn failed(ranks: &[Watched]) -> Option<ExecError> {
    ranks.iter().find_map(|rank| {
        let (comm, fault) = rank.breaker.failure()?;
        let (on, stream) = rank
            .outline
            .comms
            .get(comm as usize)
            .map_or((Vec::new(), String::new()), |comm| (comm.ranks.clone(), comm.stream.clone()));
        let retired = rank.beat.retired.load(Ordering::Relaxed);
        let at = rank.outline.collectives_on(retired, comm, PLACES);
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

/// The first rank whose thread has not gone on for too long.
fn stuck(ranks: &[Watched], seen: &mut [(u64, Instant)]) -> Option<ExecError> {
    let mut found = None;
    for (rank, (count, since)) in ranks.iter().zip(seen) {
        if rank.count() != *count || rank.beat.is_over() {
            (*count, *since) = (rank.count(), Instant::now());
        }
        let timeout = Duration::from_nanos(rank.outline.timeout.0.max(0) as u64);
        if found.is_none() && since.elapsed() > timeout.saturating_add(MARGIN) {
            found = Some(rank.does_not_come_back());
        }
    }
    found
}

fn labelled(text: String, span: crate::base::SrcSpan) -> LabeledSpan {
    LabeledSpan::new_with_span(Some(text), span)
}

impl Watched {
    /// The error of a thread that is inside of a call.
    fn does_not_come_back(&self) -> ExecError {
        let at = self.beat.at.load(Ordering::Relaxed).checked_sub(1);
        let at = at.and_then(|op| self.outline.launches.get(op as usize));
        ExecError::NoReturn {
            rank: self.rank,
            iteration: self.beat.retired.load(Ordering::Relaxed),
            timeout: self.outline.timeout.to_string(),
            doing: at.map_or("waiting for the device".to_owned(), |(name, _)| format!("issuing {name}")),
            at: at.map(|&(name, span)| labelled(format!("this {name} was being issued"), span)).into_iter().collect(),
        }
    }
}

impl Outline {
    /// The collectives of a communicator in an iteration, each place once.
    fn collectives_on(&self, iteration: u64, comm: u32, most: usize) -> Vec<(&'static str, crate::base::SrcSpan)> {
        let mut found: Vec<(&'static str, crate::base::SrcSpan)> = Vec::new();
        for command in &self.step(iteration).commands {
            if let Step::Launch { op, .. } = *command
                && self.comm_of[op as usize] == comm
                && !found.contains(&self.launches[op as usize])
                && found.len() < most
            {
                found.push(self.launches[op as usize]);
            }
        }
        found
    }
}
