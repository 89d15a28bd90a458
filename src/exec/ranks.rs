//! The sessions of all ranks that a process runs, side by side: each on a thread of its own.
//!
//! What ranks do together (a collective) is between their drivers; here they only begin and end together.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc;
use std::thread;

use crate::base::{MemoryId, Nanos, Space};
use crate::model::Program;
use crate::schedule::Schedule;

use super::driver::Backend;
use super::error::ExecError;
use super::hang;
use super::health::Health;
use super::image::{Image, StepCommands};
use super::prepare::{self, Options};
use super::session::{self, Control, LaunchMode, Samples, Session};
use super::trace::Trace;
use super::watchdog::{self, Watched};

/// What one rank runs.
#[derive(Clone, Copy, Debug)]
pub struct Rank<'a> {
    /// Its number in the world; several ranks may share a program.
    pub number: u32,
    pub program: &'a Program,
    pub schedule: &'a Schedule,
}

/// What iterating gave on all ranks of this process.
#[derive(Clone, Debug, Default)]
pub struct RankSamples {
    /// Each iteration as it was on the rank that took longest.
    pub slowest: Samples,
    /// In the order of the ranks.
    pub ranks: Vec<Samples>,
}

impl RankSamples {
    fn of(ranks: Vec<Samples>) -> RankSamples {
        let largest = |of: fn(&Samples) -> &[Nanos]| {
            let count = ranks.iter().map(|samples| of(samples).len()).min().unwrap_or(0);
            let at = |index: usize| ranks.iter().map(|samples| of(samples)[index]).max().unwrap_or_default();
            (0..count).map(at).collect()
        };
        let slowest = Samples {
            time: largest(|samples| &samples.time),
            issue: largest(|samples| &samples.issue),
            gated: ranks.iter().all(|samples| samples.gated),
            ungated: ranks.iter().map(|samples| samples.ungated).max().unwrap_or(0),
            stopped: ranks.iter().any(|samples| samples.stopped),
        };
        RankSamples { slowest, ranks }
    }
}

/// The sessions of this process, in the order of the ranks.
pub struct Ranks {
    sessions: Vec<Session>,
    numbers: Vec<u32>,
}

/// Opens a backend for all ranks of this process, and makes everything that their schedules need.
pub fn prepare_ranks(ranks: &[Rank], backend: &dyn Backend, options: &Options) -> Result<Ranks, ExecError> {
    prepare_with(ranks, backend, options, |_, _, _| {})
}

/// As [`prepare_ranks`], with something done to the image of each rank before it is opened: see [`prepare::lower`].
pub(super) fn prepare_with(
    ranks: &[Rank],
    backend: &dyn Backend,
    options: &Options,
    mut alter: impl FnMut(&Rank, &mut Image, &mut [StepCommands]),
) -> Result<Ranks, ExecError> {
    let (mut images, mut parts) = (Vec::with_capacity(ranks.len()), Vec::with_capacity(ranks.len()));
    for rank in ranks {
        let (image, part) = prepare::lower(rank, options, |image, period| alter(rank, image, period));
        prepare::check_room(rank.program, &image, backend)?;
        images.push(image);
        parts.push(part);
    }
    let drivers = backend.open(images)?;
    let alone = ranks.len() == 1;
    let parts = parts.into_iter().zip(ranks);
    let session = |(driver, (part, rank)): (_, (_, &Rank))| Session::new(driver, part, rank.number, alone);
    let sessions = drivers.into_iter().zip(parts).map(session).collect();
    Ok(Ranks { sessions, numbers: ranks.iter().map(|rank| rank.number).collect() })
}

/// One rank's work, on its own thread or on the caller's.
fn run<T>(
    index: u32,
    session: &mut Session,
    control: &Control,
    work: impl Fn(&mut Session) -> Result<T, ExecError>,
) -> Result<T, ExecError> {
    session.beat.begin();
    let result = work(session);
    session.beat.end();
    if result.is_err() {
        control.fail(index);
    }
    result
}

/// Every rank's work on a thread of its own. One that panics is an error like others: nobody waits for it.
fn side_by_side<T: Send>(
    sessions: &mut [Session],
    numbers: &[u32],
    control: &Control,
    work: impl Fn(&mut Session) -> Result<T, ExecError> + Sync,
) -> Vec<Result<T, ExecError>> {
    let alive = |index: u32, session: &mut Session| {
        let entered = |session: &mut Session| session.enter().and_then(|()| work(session));
        let lived = catch_unwind(AssertUnwindSafe(|| run(index, session, control, entered)));
        let result = lived.unwrap_or_else(|panic| {
            session.beat.end();
            control.fail(index);
            Err(ExecError::Died { rank: session.rank, why: last_words(panic.as_ref()) })
        });
        session.leave();
        result
    };
    let alive = &alive;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..)
            .zip(sessions.iter_mut())
            .zip(numbers)
            .map(|((index, session), rank)| {
                thread::Builder::new()
                    .name(format!("rank {rank}"))
                    .spawn_scoped(scope, move || alive(index, session))
                    .expect("the system gives a thread for each rank")
            })
            .collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.map(|result| result.unwrap_or_else(|panic| resume_unwind(panic))).collect()
    })
}

/// What a panic said.
fn last_words(panic: &(dyn Any + Send)) -> String {
    let said = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    said.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "it said nothing".to_owned())
}

impl Ranks {
    /// The numbers of the ranks that run here.
    pub fn numbers(&self) -> &[u32] {
        &self.numbers
    }

    /// The only session, where one rank runs alone.
    pub(super) fn into_only(self) -> Option<Session> {
        self.sessions.into_iter().next()
    }

    /// Does the same with every session, side by side. The first failure ends the others, and is what is told.
    fn each<T: Send>(
        &mut self,
        control: &Control,
        work: impl Fn(&mut Session) -> Result<T, ExecError> + Sync,
    ) -> Result<Vec<T>, ExecError> {
        control.begin();
        let watched = self.watched();
        let (end, ended) = mpsc::channel();
        let (results, found) = thread::scope(|scope| {
            let (watched, ended) = (&watched, ended);
            let dog = (!watched.is_empty()).then(|| scope.spawn(move || watchdog::watch(watched, control, &ended)));
            let results = match &mut self.sessions[..] {
                [only] => vec![run(0, only, control, &work)],
                several => side_by_side(several, &self.numbers, control, &work),
            };
            drop(end);
            (results, dog.and_then(|dog| dog.join().ok().flatten()))
        });
        match found {
            Some(error) => Err(error),
            None if results.iter().all(Result::is_ok) => results.into_iter().collect(),
            None => Err(self.failure(&results, control)),
        }
    }

    /// The error of a run that failed on some rank.
    fn failure<T>(&self, results: &[Result<T, ExecError>], control: &Control) -> ExecError {
        let mut told = results.iter().zip(&self.numbers).filter_map(|(result, &rank)| {
            let error = result.as_ref().err().filter(|error| !matches!(error, ExecError::Ended))?;
            Some((error, rank))
        });
        // What ended because another had failed tells nothing.
        let first = results.get(control.first_failed()).and_then(|result| result.as_ref().err());
        let first = first.filter(|error| !matches!(error, ExecError::Ended));
        let rank = self.numbers.get(control.first_failed());
        let Some((error, rank)) = first.zip(rank.copied()).or_else(|| told.next()) else { return ExecError::Ended };
        match error {
            ExecError::Hang { .. } => {
                let ranks =
                    self.sessions.iter().zip(results).map(|(session, result)| session.witnessed(result.is_ok()));
                hang::error(&ranks.collect::<Vec<_>>())
            }
            _ if self.sessions.len() == 1 => error.clone(),
            _ => error.clone().on_rank(rank),
        }
    }

    /// The sessions that a watchdog can do something for.
    fn watched(&self) -> Vec<Watched> {
        let watched = |session: &Session| {
            let breaker = session.driver.breaker()?;
            let (rank, beat) = (session.rank, session.beat.clone());
            Some(Watched { rank, outline: session.lowered.outline(), beat, breaker })
        };
        self.sessions.iter().filter_map(watched).collect()
    }

    /// After a failure: nothing that is under way is waited for, and what ranks do together is ended.
    fn abandon(&mut self) {
        // Side by side: what one rank waits for may be another's end.
        thread::scope(|scope| {
            for session in &mut self.sessions {
                scope.spawn(|| session.driver.abandon());
            }
        });
    }

    /// As [`Ranks::each`], for what leaves nothing behind that could be used when it fails.
    pub(super) fn each_or_none<T: Send>(
        &mut self,
        control: &Control,
        work: impl Fn(&mut Session) -> Result<T, ExecError> + Sync,
    ) -> Result<Vec<T>, ExecError> {
        let results = self.each(control, work);
        if results.is_err() && self.sessions.len() > 1 {
            self.abandon();
        }
        results
    }

    /// Makes the graphs of the period on every rank: [`Session::capture`].
    pub fn capture(&mut self, control: &Control) -> Result<(), ExecError> {
        self.each(control, Session::capture).map(drop)
    }

    /// Runs iterations on every rank: [`Session::iterate`].
    pub fn iterate(
        &mut self,
        mode: LaunchMode,
        warmup: u64,
        iterations: u64,
        control: &Control,
    ) -> Result<RankSamples, ExecError> {
        self.each_or_none(control, |session| session.iterate(mode, warmup, iterations, control)).map(RankSamples::of)
    }

    /// Whether iterations find the caches empty.
    pub fn is_cold(&self) -> bool {
        self.sessions.iter().all(Session::is_cold)
    }

    /// Reads the device's memory of the rank that is the `index`-th here.
    pub(super) fn read_at(&mut self, index: usize, offset: u64, bytes: u64) -> Result<Option<Vec<u8>>, ExecError> {
        self.sessions[index].driver.read(Space::Device, offset, bytes).map_err(session::device)
    }

    /// The iterations of the period, as iterations of the program's cycle.
    pub fn period(&self) -> usize {
        self.sessions[0].period()
    }

    /// Holds iterations until they are issued, as far as that can be, or no longer.
    pub fn set_gate(&mut self, on: bool) {
        self.sessions.iter_mut().for_each(|session| session.set_gate(on));
    }

    /// Why iterations are not held, where they might be.
    pub fn gate_refused(&self) -> Option<&str> {
        self.sessions.iter().find_map(Session::gate_refused)
    }

    /// How the devices are doing now, where they say so: to be asked outside of what is measured.
    pub fn health(&mut self) -> Vec<Health> {
        self.sessions.iter_mut().filter_map(Session::health).collect()
    }

    /// Times each operation on every rank: [`Session::observe`].
    pub fn observe(
        &mut self,
        mode: LaunchMode,
        iterations: u64,
        control: &Control,
    ) -> Result<Vec<Vec<Trace>>, ExecError> {
        self.each_or_none(control, |session| session.observe(mode, iterations, control))
    }

    /// Gives all memory the contents that it had at the beginning.
    pub fn reset(&mut self, control: &Control) -> Result<(), ExecError> {
        // To fill memory takes as long as it takes: nobody watches.
        let reset = |session: &mut Session| {
            session.beat.end();
            session.reset()
        };
        self.each_or_none(control, reset).map(drop)
    }

    /// Reads a memory of the rank that is the `index`-th here; nothing where the backend has none.
    pub fn read(&mut self, index: usize, memory: MemoryId) -> Result<Option<Vec<u8>>, ExecError> {
        self.sessions[index].read(memory)
    }

    /// What drivers have to say, each with its rank where there are several; once where all say the same.
    pub fn notes(&self) -> Vec<String> {
        let notes: Vec<Vec<String>> = self.sessions.iter().map(Session::notes).collect();
        if notes.windows(2).all(|pair| pair[0] == pair[1]) {
            return notes.into_iter().next().unwrap_or_default();
        }
        let numbered = notes.into_iter().zip(&self.numbers);
        numbered.flat_map(|(notes, rank)| notes.into_iter().map(move |note| format!("rank {rank}: {note}"))).collect()
    }
}
