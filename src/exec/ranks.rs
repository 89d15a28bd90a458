//! The sessions of all ranks that a process runs, side by side: each on a thread of its own.
//!
//! What ranks do together (a collective) is between their drivers; here they only begin and end together.

use std::sync::atomic::Ordering;
use std::thread;

use crate::base::{MemoryId, Nanos, Space};
use crate::model::Program;
use crate::schedule::Schedule;

use super::driver::Backend;
use super::error::ExecError;
use super::health::Health;
use super::image::{Image, StepCommands};
use super::prepare::{self, Options};
use super::session::{self, Control, LaunchMode, Samples, Session};
use super::trace::Trace;

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
    let sessions = drivers.into_iter().zip(parts).map(|(driver, part)| Session::new(driver, part, alone)).collect();
    Ok(Ranks { sessions, numbers: ranks.iter().map(|rank| rank.number).collect() })
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
        if let [only] = &mut self.sessions[..] {
            return Ok(vec![work(only)?]);
        }
        let run = |session: &mut Session| {
            let result = session.enter().and_then(|()| work(session));
            if result.is_err() {
                control.failed.store(true, Ordering::Release);
            }
            session.leave();
            result
        };
        let results: Vec<Result<T, ExecError>> = thread::scope(|scope| {
            let threads: Vec<_> = self
                .sessions
                .iter_mut()
                .zip(&self.numbers)
                .map(|(session, rank)| {
                    thread::Builder::new()
                        .name(format!("rank {rank}"))
                        .spawn_scoped(scope, || run(session))
                        .expect("the system gives a thread for each rank")
                })
                .collect();
            let joined = threads.into_iter().map(|thread| thread.join());
            joined.map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
        });
        let mut values = Vec::with_capacity(results.len());
        let mut failure: Option<ExecError> = None;
        for (result, &rank) in results.into_iter().zip(&self.numbers) {
            match result {
                Ok(value) => values.push(value),
                // What ended because another had failed tells nothing.
                Err(ExecError::Ended) => failure = failure.or(Some(ExecError::Ended)),
                Err(error) if matches!(failure, None | Some(ExecError::Ended)) => failure = Some(error.on_rank(rank)),
                Err(_) => {}
            }
        }
        failure.map_or(Ok(values), Err)
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
        self.each(control, |session| session.iterate(mode, warmup, iterations, control)).map(RankSamples::of)
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
        self.each(control, |session| session.observe(mode, iterations, control))
    }

    /// Gives all memory the contents that it had at the beginning.
    pub fn reset(&mut self, control: &Control) -> Result<(), ExecError> {
        self.each(control, Session::reset).map(drop)
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
