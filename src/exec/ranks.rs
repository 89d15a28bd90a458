//! The sessions of all ranks of a world, side by side: each on a thread of its own, or each in a process of its own.
//!
//! What ranks do together (a collective) is between their drivers; here they only begin and end together. Processes tell
//! each other after each phase what it gave, so that all of them know the same.

use std::any::Any;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::base::{MemoryId, Nanos, parallel};
use crate::model::{self, Program};
use crate::schedule::Schedule;

use super::control::Control;
use super::driver::Backend;
use super::error::ExecError;
use super::hang;
use super::health::Health;
use super::image::{Address, Image, StepCommands};
use super::observe::Observation;
use super::peers::{self, Peers};
use super::prepare::{self, Options};
use super::session::{self, LaunchMode, Samples, Session};
use super::stopping::Stopping;
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

/// What iterating gave on all ranks.
#[derive(Clone, Debug, Default)]
pub struct RankSamples {
    /// Each iteration as it was on the rank that took longest.
    pub slowest: Samples,
    /// Those of each rank, in their order. Of ranks in other processes only rank 0 has any.
    pub ranks: Vec<Samples>,
}

/// Each iteration as it was on the rank that took longest.
fn slowest(ranks: &[&Samples]) -> Samples {
    let largest = |of: fn(&Samples) -> &[Nanos]| {
        // Ranks that have nothing to do with each other may have stopped after different iterations.
        let count = ranks.iter().map(|samples| of(samples).len()).min().unwrap_or(0);
        let at = |index: usize| ranks.iter().map(|samples| of(samples)[index]).max().unwrap_or_default();
        (0..count).map(at).collect()
    };
    let time: Vec<Nanos> = largest(|samples| &samples.time);
    let ungated = ranks.iter().map(|samples| samples.ungated).max().unwrap_or(0);
    Samples {
        first: ranks.first().map_or(0, |samples| samples.first),
        ungated: ungated.min(time.len() as u64),
        time,
        issue: largest(|samples| &samples.issue),
        gated: ranks.iter().all(|samples| samples.gated),
        stopped: ranks.iter().any(|samples| samples.stopped),
    }
}

impl RankSamples {
    /// Adds what further iterations gave.
    pub fn append(&mut self, later: RankSamples) {
        if self.ranks.is_empty() {
            *self = later;
            return;
        }
        self.slowest.append(later.slowest);
        self.ranks.iter_mut().zip(later.ranks).for_each(|(samples, later)| samples.append(later));
    }
}

/// The ranks of a world, in their order, with the sessions of those that run in this process: all of them, or one.
pub struct Ranks {
    sessions: Vec<Session>,
    /// Of all ranks.
    numbers: Vec<u32>,
    /// Iterations after which their programs repeat.
    slots: usize,
    about: Vec<About>,
    /// The index of the first that runs here.
    first: usize,
    /// The processes of the others.
    peers: Option<Arc<dyn Peers>>,
}

/// What the others want to know of a rank's session.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct About {
    gated: bool,
    gate_refused: Option<String>,
    cold: bool,
}

impl About {
    fn of(session: &Session) -> About {
        let gate_refused = session.gate_refused().map(str::to_owned);
        About { gated: session.is_gated(), gate_refused, cold: session.is_cold() }
    }
}

/// Opens a backend for the ranks of a world, and makes everything that their schedules need. Where the backend has peers,
/// only the rank of this process is opened: the others are opened by their own.
pub fn prepare_ranks(ranks: &[Rank], backend: &dyn Backend, options: &Options) -> Result<Ranks, ExecError> {
    prepare_with(ranks, backend, options, |_, _, _| {})
}

/// As [`prepare_ranks`], with something done to the image of each rank before it is opened: see [`prepare::lower`].
pub(super) fn prepare_with(
    ranks: &[Rank],
    backend: &dyn Backend,
    options: &Options,
    mut alter: impl FnMut(usize, &mut Image, &mut [StepCommands]),
) -> Result<Ranks, ExecError> {
    let peers = backend.peers();
    let own = own(ranks, peers.as_deref());
    let (mut images, mut parts) = (Vec::with_capacity(own.len()), Vec::with_capacity(own.len()));
    let mut lowered = Ok(());
    for index in own.clone() {
        let rank = &ranks[index];
        let (image, part) = prepare::lower(rank, options, |image, period| alter(index, image, period));
        lowered = lowered.and_then(|()| prepare::check_room(rank.program, &image, backend));
        images.push(image);
        parts.push(part);
    }
    // Opening needs all ranks where they have communicators.
    peers::agree(peers.as_deref(), "room", lowered)?;
    let alone = ranks.len() == 1;
    let opened = backend.open(images).map(|drivers| {
        let partners: Vec<(u32, Vec<u32>)> =
            ranks[own.clone()].iter().zip(&parts).map(|(rank, part)| (rank.number, part.partners.clone())).collect();
        let stopping = Stopping::of(&partners);
        let parts = parts.into_iter().zip(&ranks[own.clone()]).zip(stopping);
        let session = |(driver, ((part, rank), stopping)): (_, ((_, &Rank), _))| {
            Session::new(driver, part, rank.number, alone, stopping)
        };
        let mut sessions = drivers.into_iter().zip(parts).map(session).collect::<Vec<_>>();
        acquaint(&mut sessions);
        sessions
    });
    let told = opened.as_ref().map(|sessions| sessions.iter().map(About::of).collect()).map_err(ExecError::clone);
    let about: Result<Vec<Vec<About>>, _> = peers::agree(peers.as_deref(), "devices", told);
    let numbers = ranks.iter().map(|rank| rank.number).collect();
    let slots = model::slots(ranks.iter().map(|rank| rank.program));
    match (opened, about) {
        (Ok(sessions), Ok(about)) => {
            let about = about.into_iter().flatten().collect();
            Ok(Ranks { sessions, numbers, slots, about, first: own.start, peers })
        }
        (Ok(mut sessions), Err(error)) => {
            // Another rank may have left in the middle of a communicator: nobody waits for that.
            sessions.iter_mut().for_each(|session| session.driver.abandon());
            Err(error)
        }
        (Err(_), Err(error)) | (Err(error), Ok(_)) => Err(error),
    }
}

/// Tells each session of the others, so that they can wait for each other: by themselves, or by their drivers where one
/// goes on at a time.
fn acquaint(sessions: &mut [Session]) {
    let beats: Vec<_> = sessions.iter().map(|session| session.beat.clone()).collect();
    for (index, session) in sessions.iter_mut().enumerate() {
        if session.driver.side_by_side() {
            let others = beats.iter().enumerate().filter(|(other, _)| *other != index);
            session.others = others.map(|(_, beat)| beat.clone()).collect();
        } else {
            session.in_turns = beats.len() > 1;
        }
    }
}

/// The ranks that run in this process.
fn own(ranks: &[Rank], peers: Option<&dyn Peers>) -> Range<usize> {
    let Some(peers) = peers else { return 0..ranks.len() };
    let index = ranks.iter().position(|rank| rank.number == peers.rank());
    let index = index.expect("a process has a rank of the world that it was launched for");
    index..index + 1
}

/// One rank's work, on its own thread or on the caller's.
fn run<T>(
    index: u32,
    session: &mut Session,
    control: &Control,
    work: impl Fn(&mut Session) -> Result<T, ExecError>,
) -> Result<T, ExecError> {
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
    // Held until every rank has its thread: if one has none, no rank begins. Ranks enter together, or none does.
    let all_there = Mutex::new(false);
    let alive = |index: u32, session: &mut Session| {
        if !*all_there.lock().unwrap_or_else(PoisonError::into_inner) {
            session.beat.end();
            return Err(ExecError::Ended);
        }
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
        let mut begins = all_there.lock().unwrap_or_else(PoisonError::into_inner);
        let threads: Vec<_> = (0..)
            .zip(sessions.iter_mut())
            .zip(numbers)
            .map(|((index, session), rank)| {
                let beat = session.beat.clone();
                let thread = thread::Builder::new()
                    .name(format!("rank {rank}"))
                    .spawn_scoped(scope, move || alive(index, session));
                thread.map_err(|error| {
                    beat.end();
                    control.fail(index);
                    ExecError::no_thread(&format!("for rank {rank}"), &error)
                })
            })
            .collect();
        *begins = threads.iter().all(Result::is_ok);
        drop(begins);
        let joined = threads.into_iter().map(|thread| thread.map(|thread| thread.join()));
        joined.map(|result| result?.unwrap_or_else(|panic| resume_unwind(panic))).collect()
    })
}

/// What a panic said.
fn last_words(panic: &(dyn Any + Send)) -> String {
    let said = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    said.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "it said nothing".to_owned())
}

impl Ranks {
    /// The indices of the ranks that run in this process.
    pub fn own(&self) -> Range<usize> {
        self.first..self.first + self.sessions.len()
    }

    /// Brings together how something went in each process: see [`peers::agree`].
    pub fn agree<T>(&self, what: &str, own: Result<T, ExecError>) -> Result<Vec<T>, ExecError>
    where
        T: Serialize + DeserializeOwned,
    {
        peers::agree(self.peers.as_deref(), what, own)
    }

    /// Whether all ranks run in this process.
    pub fn is_whole(&self) -> bool {
        self.peers.is_none()
    }

    /// Brings together bytes of each process, however many.
    pub fn share(&self, what: &str, own: Vec<u8>) -> Result<Vec<Vec<u8>>, ExecError> {
        peers::share(self.peers.as_deref(), what, own)
    }

    /// The only session, where one rank runs alone.
    pub(super) fn into_only(self) -> Option<Session> {
        self.sessions.into_iter().next()
    }

    /// Does the same with every session, side by side. The first failure ends the others, and is what is told. `what`
    /// names the phase. Returns what `common` makes of what it gave on all ranks, and that of each rank as far as this
    /// process knows it: only rank 0 is told of those in other processes.
    fn each<T: Send + Serialize + DeserializeOwned, A: Serialize + DeserializeOwned>(
        &mut self,
        what: &str,
        control: &Control,
        work: impl Fn(&mut Session) -> Result<T, ExecError> + Sync,
        common: impl Fn(&[&T]) -> A,
    ) -> Result<(A, Vec<Option<T>>), ExecError> {
        control.begin();
        let peers = self.peers.clone();
        if let Some(peers) = &peers {
            control.link();
            peers.watch(Some(control.failed.clone()));
        }
        let done = self.each_here(control, work);
        peers.iter().for_each(|peers| peers.watch(None));
        let own = done.map(|values| (values, control.asked()));
        let ((common, asked), known) = peers::report(peers.as_deref(), what, own, |all| {
            let values: Vec<&T> = all.iter().flat_map(|(values, _)| values).collect();
            (common(&values), all.iter().any(|(_, asked)| *asked))
        })?;
        if asked {
            control.agree();
        }
        // A process among others has one rank.
        let ranks = known.into_iter().flat_map(|process| match process {
            Some((values, _)) => values.into_iter().map(Some).collect(),
            None => vec![None],
        });
        Ok((common, ranks.collect()))
    }

    /// Does the same with every session of this process.
    fn each_here<T: Send>(
        &mut self,
        control: &Control,
        work: impl Fn(&mut Session) -> Result<T, ExecError> + Sync,
    ) -> Result<Vec<T>, ExecError> {
        // Before any rank runs: another would take what is left of the last phase for this one's.
        for session in &self.sessions {
            session.beat.begin();
            session.stopping.reset();
        }
        let (watched, numbers) = (self.watched(), self.numbers[self.own()].to_vec());
        let (end, ended) = mpsc::channel();
        let peers = self.peers.clone();
        let lost = move || peers.as_ref().and_then(|peers| peers.lost());
        let (results, found) = thread::scope(|scope| {
            let (watched, ended) = (&watched, ended);
            let watch = move || watchdog::watch(watched, control, &ended, lost);
            let dog = (!watched.is_empty()).then(|| thread::Builder::new().spawn_scoped(scope, watch)).transpose();
            let dog = match dog {
                Ok(dog) => dog,
                Err(error) => return (vec![Err(ExecError::no_thread("to watch the run", &error))], None),
            };
            let results = match &mut self.sessions[..] {
                [only] => vec![run(0, only, control, &work)],
                several => side_by_side(several, &numbers, control, &work),
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
        let numbers = &self.numbers[self.own()];
        let mut told = results.iter().zip(numbers).filter_map(|(result, &rank)| {
            let error = result.as_ref().err().filter(|error| !matches!(error, ExecError::Ended))?;
            Some((error, rank))
        });
        // What ended because another had failed tells nothing.
        let first = results.get(control.first_failed()).and_then(|result| result.as_ref().err());
        let first = first.filter(|error| !matches!(error, ExecError::Ended));
        let rank = numbers.get(control.first_failed());
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
            Some(Watched { rank, outline: session.lowered.outline.clone(), beat, breaker })
        };
        self.sessions.iter().filter_map(watched).collect()
    }

    /// After a failure: nothing that is under way is waited for, and what ranks do together is ended.
    fn abandon(&mut self) {
        // Side by side: what one rank waits for may be another's end.
        parallel::side_by_side(&mut self.sessions, |session| session.driver.abandon());
    }

    /// As [`Ranks::each`], for what leaves nothing behind that could be used when it fails.
    pub(super) fn each_or_none<T: Send + Serialize + DeserializeOwned, A: Serialize + DeserializeOwned>(
        &mut self,
        what: &str,
        control: &Control,
        work: impl Fn(&mut Session) -> Result<T, ExecError> + Sync,
        common: impl Fn(&[&T]) -> A,
    ) -> Result<(A, Vec<Option<T>>), ExecError> {
        let results = self.each(what, control, work, common);
        if results.is_err() && self.numbers.len() > 1 {
            self.abandon();
        }
        results
    }

    /// Makes the graphs of the period on every rank: [`Session::capture`].
    pub fn capture(&mut self, control: &Control) -> Result<(), ExecError> {
        self.each("graphs", control, Session::capture, |_| ()).map(drop)
    }

    /// Runs iterations on every rank: [`Session::iterate`].
    pub fn iterate(
        &mut self,
        mode: LaunchMode,
        warmup: u64,
        iterations: u64,
        control: &Control,
    ) -> Result<RankSamples, ExecError> {
        control.begin_iterations();
        let iterate = |session: &mut Session| {
            let began = session.driver.now();
            let ended = session.iterate(mode, warmup, iterations, control);
            ended.iter().for_each(|samples| session.samples = samples.clone());
            let longest = session.samples.time.iter().copied().max().unwrap_or_default();
            let possible = session.within(longest, began).inspect_err(|_| session.samples = Samples::default());
            ended.and_then(|samples| possible.map(|()| samples))
        };
        self.sessions.iter_mut().for_each(|session| session.samples = Samples::default());
        let (slowest, ranks) = self.each_or_none("iterations", control, iterate, slowest)?;
        Ok(RankSamples { slowest, ranks: ranks.into_iter().map(Option::unwrap_or_default).collect() })
    }

    /// Samples of the iterations that every rank had completed when the last [`Ranks::iterate`] failed; `None` where other
    /// processes have ranks, whose samples are not known here.
    pub fn samples_before_failure(&self) -> Option<RankSamples> {
        let ranks: Vec<Samples> = self.sessions.iter().map(|session| session.samples.clone()).collect();
        let slowest = slowest(&ranks.iter().collect::<Vec<_>>());
        self.is_whole().then_some(RankSamples { slowest, ranks })
    }

    /// Runs a single iteration on every rank, to its end; those before it have been run.
    pub fn once(&mut self, mode: LaunchMode, iteration: u64, control: &Control) -> Result<(), ExecError> {
        self.each_or_none("an iteration", control, |session| session.once(mode, iteration, control), |_| ()).map(drop)
    }

    /// Whether iterations find the caches empty.
    pub fn is_cold(&self) -> bool {
        self.about.iter().all(|about| about.cold)
    }

    /// The session of the `index`-th rank; nothing where another process has it.
    fn session(&mut self, index: usize) -> Option<&mut Session> {
        self.sessions.get_mut(index.checked_sub(self.first)?)
    }

    /// Asks the session of the `index`-th rank, and says of an error which rank it is about; `None` if another process has
    /// the rank.
    fn of_rank<T>(
        &mut self,
        index: usize,
        ask: impl FnOnce(&mut Session) -> Result<Option<T>, ExecError>,
    ) -> Result<Option<T>, ExecError> {
        let several = self.numbers.len() > 1;
        let Some(session) = self.session(index) else { return Ok(None) };
        ask(session).map_err(|error| if several { error.on_rank(session.rank) } else { error })
    }

    /// Reads so many bytes of memory of the `index`-th rank into `out`, which keeps what it has allocated; false where the
    /// backend has no memory, or another process has the rank.
    pub fn read_at(&mut self, index: usize, at: Address, bytes: u64, out: &mut Vec<u8>) -> Result<bool, ExecError> {
        out.resize(bytes as usize, 0);
        let read = self.of_rank(index, |session| {
            let read = session.driver.read(at.space, at.offset, out).map_err(session::device)?;
            Ok(read.then_some(()))
        })?;
        Ok(read.is_some())
    }

    /// Iterations after which the programs of all ranks repeat.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Holds iterations until they are issued, as far as that can be, or no longer.
    pub fn set_gate(&mut self, on: bool) {
        self.sessions.iter_mut().for_each(|session| session.set_gate(on));
    }

    /// Whether iterations are held, as streams, once they have begun.
    pub fn is_gated(&self) -> bool {
        self.about.iter().all(|about| about.gated)
    }

    /// Why iterations are not held, where they might be.
    pub fn gate_refused(&self) -> Option<&str> {
        self.about.iter().find_map(|about| about.gate_refused.as_deref())
    }

    /// How the devices are doing now, where they say so: to be asked outside of what is measured.
    pub fn health(&mut self) -> Result<Vec<Health>, ExecError> {
        // Side by side: a question may take a millisecond, and devices cool down meanwhile.
        let own: Vec<Health> = match &mut self.sessions[..] {
            [only] => only.health().into_iter().collect(),
            sessions => {
                let mut told: Vec<Option<Health>> = sessions.iter().map(|_| None).collect();
                let asked = sessions.iter_mut().zip(&mut told);
                parallel::side_by_side(asked, |(session, told)| *told = session.health());
                told.into_iter().flatten().collect()
            }
        };
        Ok(self.agree("health", Ok(own))?.into_iter().flatten().collect())
    }

    /// Times each operation on every rank: [`Session::observe`]. Of ranks in other processes only rank 0 has what was
    /// observed; elsewhere there is nothing of them.
    pub fn observe(
        &mut self,
        mode: LaunchMode,
        observation: Observation,
        control: &Control,
    ) -> Result<Vec<Vec<Trace>>, ExecError> {
        let observe = |session: &mut Session| session.observe(mode, observation, control);
        let (_, traces) = self.each_or_none("observed iterations", control, observe, |_| ())?;
        Ok(traces.into_iter().map(Option::unwrap_or_default).collect())
    }

    /// Gives all memory the contents that it had at the beginning.
    pub fn reset(&mut self, control: &Control) -> Result<(), ExecError> {
        // To fill memory takes as long as it takes: nobody watches.
        let reset = |session: &mut Session| {
            session.beat.end();
            session.reset()
        };
        self.each_or_none("contents", control, reset, |_| ()).map(drop)
    }

    /// Reads a memory of the `index`-th rank; nothing where the backend has none, or another process has the rank.
    pub fn read(&mut self, index: usize, memory: MemoryId) -> Result<Option<Vec<u8>>, ExecError> {
        self.of_rank(index, |session| session.read(memory))
    }

    /// What drivers have to say, each with its rank where there are several; once where all say the same.
    pub fn notes(&self) -> Result<Vec<String>, ExecError> {
        let own: Vec<Vec<String>> = self.sessions.iter().map(Session::notes).collect();
        let notes: Vec<Vec<String>> = self.agree("notes", Ok(own))?.into_iter().flatten().collect();
        if notes.windows(2).all(|pair| pair[0] == pair[1]) {
            return Ok(notes.into_iter().next().unwrap_or_default());
        }
        let numbered = notes.into_iter().zip(&self.numbers);
        let named = |(notes, rank): (Vec<String>, &u32)| {
            let rank = *rank;
            notes.into_iter().map(move |note| format!("rank {rank}: {note}"))
        };
        Ok(numbered.flat_map(named).collect())
    }
}
