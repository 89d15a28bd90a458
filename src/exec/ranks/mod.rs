//! The sessions of all ranks of a world, which run concurrently: each on its own thread, or each in its own process.
//!
//! Drivers synchronize ranks within collectives; this module makes phases begin and end together. After each phase
//! processes exchange its results, so that all take the same decisions.

mod notes;
pub(super) mod processes;

use std::any::Any;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::base::threads::lock;
use crate::base::{MemoryId, Nanos, OnceBlock, parallel, stage, threads};
use crate::config::ObserveSetting;
use crate::model;

use super::failure::hang;
use super::failure::watchdog::{self, WatchedRank};
use super::prepare;
use super::prepare::image::Commands;
use super::run::session;
use super::run::stopping::StopAgreementHandle;
use super::{
    Address, Backend, Control, ExecError, Health, Image, LaunchMode, ObservedBy, RankSchedule, Samples, Session,
    SessionOptions,
};
use processes::RankProcesses;

/// Samples of all ranks.
#[derive(Clone, Debug, Default)]
pub struct RankSamples {
    /// The slowest rank's values of each iteration.
    pub slowest: Samples,
    /// Samples of each rank, in order. With several processes, only rank 0 has them; empty elsewhere.
    pub ranks: Vec<Samples>,
}

/// Selects for each iteration the values of the slowest rank.
fn slowest(ranks: &[&Samples]) -> Samples {
    let largest = |of: fn(&Samples) -> &[Nanos]| {
        // Ranks that exchange no data may have stopped after different iterations.
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
    /// Appends the samples of further iterations.
    pub fn append(&mut self, later: RankSamples) {
        if self.ranks.is_empty() {
            *self = later;
            return;
        }
        self.slowest.append(later.slowest);
        self.ranks.iter_mut().zip(later.ranks).for_each(|(samples, later)| samples.append(later));
    }
}

/// The ranks of a world. Sessions exist for those that run in this process: every rank, or one.
pub struct Ranks {
    pub(super) sessions: Vec<Session>,
    /// Numbers of all ranks of the world.
    pub(super) numbers: Vec<u32>,
    /// Requested method of timing operations in observed iterations.
    pub(super) observe: ObserveSetting,
    /// Method that the last observed iterations used; `None` before the first.
    pub(super) observed_by: Option<ObservedBy>,
    /// Time of an iteration of the last observed ones; `None` unless the vendor's records timed them.
    pub(super) recorded_time: Option<Nanos>,
    /// Number of iterations after which the programs of all ranks repeat.
    slots: usize,
    infos: Vec<SessionInfo>,
    /// Index of the first rank of this process.
    first: usize,
    /// The link to the processes of the other ranks; `None` if all ranks run here.
    processes: Option<Arc<dyn RankProcesses>>,
}

/// Properties of a rank's session that are sent to all processes.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct SessionInfo {
    gated: bool,
    gate_refused: Option<String>,
    cold: bool,
}

impl SessionInfo {
    fn of(session: &Session) -> SessionInfo {
        let gate_refused = session.gate_refused().map(str::to_owned);
        SessionInfo { gated: session.is_gated(), gate_refused, cold: session.is_cold() }
    }
}

/// Opens a backend for the ranks of a world, and creates everything that their schedules need. With several processes,
/// only the rank of this process is opened; each other process opens its own.
pub fn prepare_ranks(
    ranks: &[RankSchedule],
    backend: &dyn Backend,
    options: &SessionOptions,
) -> Result<Ranks, ExecError> {
    prepare_with(ranks, backend, options, |_, _, _| {})
}

/// Opens a backend as [`prepare_ranks`] does, after `alter` has changed each rank's image: see [`prepare::lower`].
pub(super) fn prepare_with(
    ranks: &[RankSchedule],
    backend: &dyn Backend,
    options: &SessionOptions,
    mut alter: impl FnMut(usize, &mut Image, &mut Commands),
) -> Result<Ranks, ExecError> {
    let _stage = stage::enter("preparing the device");
    let processes = backend.processes();
    let own = own(ranks, processes.as_deref());
    let (mut images, mut parts) = (Vec::with_capacity(own.len()), Vec::with_capacity(own.len()));
    let mut lowered = Ok(());
    for index in own.clone() {
        let rank = &ranks[index];
        let (image, part) = prepare::lower(rank, options, |image, commands| alter(index, image, commands));
        lowered = lowered.and_then(|()| prepare::check_room(rank.program, &image, backend));
        images.push(image);
        parts.push(part);
    }
    // Creating communicators blocks until all ranks take part, so check first that none has failed.
    processes::agree(processes.as_deref(), "room", lowered)?;
    let alone = ranks.len() == 1;
    let opened = backend.open(images).map(|drivers| {
        let partners: Vec<(u32, Vec<u32>)> =
            ranks[own.clone()].iter().zip(&parts).map(|(rank, part)| (rank.number, part.partners.clone())).collect();
        let stopping = StopAgreementHandle::of(&partners);
        let parts = parts.into_iter().zip(&ranks[own.clone()]).zip(stopping);
        let session = |(driver, ((part, rank), stopping)): (_, ((_, &RankSchedule), _))| {
            Session::new(driver, part, rank.number, alone, stopping)
        };
        let mut sessions = drivers.into_iter().zip(parts).map(session).collect::<Vec<_>>();
        share_progress(&mut sessions);
        sessions
    });
    let own_infos =
        opened.as_ref().map(|sessions| sessions.iter().map(SessionInfo::of).collect()).map_err(ExecError::clone);
    let infos: Result<Vec<Vec<SessionInfo>>, _> = processes::agree(processes.as_deref(), "devices", own_infos);
    let numbers = ranks.iter().map(|rank| rank.number).collect();
    let slots = model::slots(ranks.iter().map(|rank| rank.program));
    match (opened, infos) {
        (Ok(sessions), Ok(infos)) => {
            let infos = infos.into_iter().flatten().collect();
            let (observe, observed_by, recorded_time) = (options.observe, None, None);
            Ok(Ranks {
                sessions,
                numbers,
                observe,
                observed_by,
                recorded_time,
                slots,
                infos,
                first: own.start,
                processes,
            })
        }
        (Ok(mut sessions), Err(error)) => {
            // Another rank may have failed while communicators were created; synchronizing could block.
            sessions.iter_mut().for_each(|session| session.driver.abandon());
            Err(error)
        }
        (Err(_), Err(error)) | (Err(error), Ok(_)) => Err(error),
    }
}

/// Gives each session the progress of the others, so that it can wait for them. Drivers that run ranks in turns wait
/// themselves.
fn share_progress(sessions: &mut [Session]) {
    let all_progress: Vec<_> = sessions.iter().map(|session| session.progress.clone()).collect();
    for (index, session) in sessions.iter_mut().enumerate() {
        if session.driver.runs_ranks_concurrently() {
            let others = all_progress.iter().enumerate().filter(|(other, _)| *other != index);
            session.others = others.map(|(_, progress)| progress.clone()).collect();
        } else {
            session.in_turns = all_progress.len() > 1;
        }
    }
}

/// The ranks that run in this process.
fn own(ranks: &[RankSchedule], processes: Option<&dyn RankProcesses>) -> Range<usize> {
    let Some(processes) = processes else { return 0..ranks.len() };
    let index = ranks.iter().position(|rank| rank.number == processes.rank());
    let index = index.expect("a process has a rank of the world that it was launched for");
    index..index + 1
}

/// Runs one rank's part of a phase on the current thread.
fn run<T>(
    index: u32,
    session: &mut Session,
    control: &Control,
    work: impl Fn(&mut Session) -> Result<T, ExecError>,
) -> Result<T, ExecError> {
    let result = work(session);
    session.progress.end();
    if result.is_err() {
        control.fail(index);
    }
    result
}

/// Runs every rank's part of a phase on its own thread. A panic of one becomes its error.
fn run_on_threads<T: Send>(
    sessions: &mut [Session],
    numbers: &[u32],
    control: &Control,
    work: impl Fn(&mut Session) -> Result<T, ExecError> + Sync,
) -> Vec<Result<T, ExecError>> {
    // Locked until every rank has its thread: if one thread cannot start, no rank begins.
    let all_there = Mutex::new(false);
    let alive = |index: u32, session: &mut Session| {
        if !*lock(&all_there) {
            session.progress.end();
            return Err(ExecError::Ended);
        }
        let entered =
            |session: &mut Session| session.driver.enter().map_err(session::device).and_then(|()| work(session));
        let lived = catch_unwind(AssertUnwindSafe(|| run(index, session, control, entered)));
        let result = lived.unwrap_or_else(|panic| {
            session.progress.end();
            control.fail(index);
            Err(ExecError::Died { rank: session.rank, why: panic_message(panic.as_ref()) })
        });
        session.driver.leave();
        result
    };
    let alive = &alive;
    thread::scope(|scope| {
        let mut begins = lock(&all_there);
        let threads: Vec<_> = (0..)
            .zip(sessions.iter_mut())
            .zip(numbers)
            .map(|((index, session), rank)| {
                let progress = session.progress.clone();
                let builder = thread::Builder::new().name(format!("rank {rank}"));
                let thread = threads::spawn_scoped(builder, scope, move || alive(index, session));
                thread.map_err(|error| {
                    progress.end();
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

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let message = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    message.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "it left no message".to_owned())
}

impl Ranks {
    /// Indices of the ranks that run in this process.
    pub fn own(&self) -> Range<usize> {
        self.first..self.first + self.sessions.len()
    }

    /// Gathers the result of a phase from each process: see [`processes::agree`].
    pub fn agree<T>(&self, what: &str, own: Result<T, ExecError>) -> Result<Vec<T>, ExecError>
    where
        T: Serialize + DeserializeOwned,
    {
        processes::agree(self.processes.as_deref(), what, own)
    }

    /// True if all ranks run in this process.
    pub fn is_one_process(&self) -> bool {
        self.processes.is_none()
    }

    /// Gathers bytes of any length from each process.
    pub fn share(&self, what: &str, own: Vec<u8>) -> Result<Vec<Vec<u8>>, ExecError> {
        processes::share(self.processes.as_deref(), what, own)
    }

    /// Returns the first session of this process, for a program with one rank; `None` if it has none.
    pub(super) fn into_only(self) -> Option<Session> {
        self.sessions.into_iter().next()
    }

    /// Runs `work` on every session concurrently. The first failure ends the others and is returned. `what` names the
    /// phase. Returns the result of `common` on the values of all ranks, and each rank's value if this process has it:
    /// rank 0 has all values, other processes only their own.
    fn each<T: Send + Serialize + DeserializeOwned, A: Serialize + DeserializeOwned>(
        &mut self,
        what: &str,
        control: &Control,
        work: impl Fn(&mut Session) -> Result<T, ExecError> + Sync,
        common: impl Fn(&[&T]) -> A,
    ) -> Result<(A, Vec<Option<T>>), ExecError> {
        control.begin();
        let processes = self.processes.clone();
        if let Some(processes) = &processes {
            control.link();
            processes.watch(Some(control.failed.clone()));
        }
        let done = self.each_here(control, work);
        processes.iter().for_each(|processes| processes.watch(None));
        let results_and_request = done.map(|values| (values, control.stop_requested()));
        let ((common, asked), known) = processes::report(processes.as_deref(), what, results_and_request, |all| {
            let values: Vec<&T> = all.iter().flat_map(|(values, _)| values).collect();
            (common(&values), all.iter().any(|(_, asked)| *asked))
        })?;
        if asked {
            control.agree();
        }
        // With several processes, each has one rank.
        let ranks = known.into_iter().flat_map(|process| match process {
            Some((values, _)) => values.into_iter().map(Some).collect(),
            None => vec![None],
        });
        Ok((common, ranks.collect()))
    }

    /// Runs `work` on every session of this process.
    fn each_here<T: Send>(
        &mut self,
        control: &Control,
        work: impl Fn(&mut Session) -> Result<T, ExecError> + Sync,
    ) -> Result<Vec<T>, ExecError> {
        // Reset all sessions before any rank runs: a rank must not see another's state of the last phase.
        for session in &self.sessions {
            session.progress.begin();
            session.stopping.reset();
        }
        let (watched, numbers) = (self.watched(), self.numbers[self.own()].to_vec());
        let (end, ended) = mpsc::channel();
        let processes = self.processes.clone();
        let lost = move || processes.as_ref().and_then(|processes| processes.lost());
        let (results, found) = thread::scope(|scope| {
            let (watched, ended) = (&watched, ended);
            let watch = move || watchdog::watch(watched, control, &ended, lost);
            let dog =
                (!watched.is_empty()).then(|| threads::spawn_scoped(thread::Builder::new(), scope, watch)).transpose();
            let dog = match dog {
                Ok(dog) => dog,
                Err(error) => return (vec![Err(ExecError::no_thread("to watch the run", &error))], None),
            };
            let results = match &mut self.sessions[..] {
                [only] => vec![run(0, only, control, &work)],
                several => run_on_threads(several, &numbers, control, &work),
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

    /// Returns the error of a phase that failed on some rank.
    fn failure<T>(&self, results: &[Result<T, ExecError>], control: &Control) -> ExecError {
        let numbers = &self.numbers[self.own()];
        let mut failures = results.iter().zip(numbers).filter_map(|(result, &rank)| {
            let error = result.as_ref().err().filter(|error| !matches!(error, ExecError::Ended))?;
            Some((error, rank))
        });
        // A rank that ended because another one failed has no error of its own.
        let first = results.get(control.first_failed()).and_then(|result| result.as_ref().err());
        let first = first.filter(|error| !matches!(error, ExecError::Ended));
        let rank = numbers.get(control.first_failed());
        let Some((error, rank)) = first.zip(rank.copied()).or_else(|| failures.next()) else { return ExecError::Ended };
        match error {
            ExecError::Hang { .. } => {
                let ranks = self.sessions.iter().zip(results).map(|(session, result)| session.report(result.is_ok()));
                hang::error(&ranks.collect::<Vec<_>>())
            }
            _ if self.sessions.len() == 1 => error.clone(),
            _ => error.clone().on_rank(rank),
        }
    }

    /// Returns the sessions whose communicators a watchdog can abort.
    fn watched(&self) -> Vec<WatchedRank> {
        let watched = |session: &Session| {
            let comm_monitor = session.driver.comm_monitor()?;
            let (rank, progress) = (session.rank, session.progress.clone());
            Some(WatchedRank { rank, outline: session.lowered.outline.clone(), progress, comm_monitor })
        };
        self.sessions.iter().filter_map(watched).collect()
    }

    /// Abandons all sessions after a failure: aborts their communicators, and nothing waits for the device any more.
    fn abandon(&mut self) {
        // Concurrently: aborting one rank's communicators may need another's abort.
        parallel::side_by_side(&mut self.sessions, |session| session.driver.abandon());
    }

    /// Runs `work` on every session as [`Ranks::each`] does. If a rank of several fails, abandons all sessions, which
    /// cannot be used again.
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

    /// Ends the sessions of this process and frees their memory.
    pub fn close(&mut self) {
        self.sessions.clear();
    }

    /// Captures the graphs of the period on every rank: [`Session::capture`]. After a failure on a rank of several, no
    /// collective may be issued: ranks may have captured different numbers of them.
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
        let mut ranks: Vec<Samples> = ranks.into_iter().map(Option::unwrap_or_default).collect();
        if slowest.stopped && self.is_one_process() {
            self.drop_abandoned(&mut ranks);
        }
        Ok(RankSamples { slowest, ranks })
    }

    /// Drops the last samples of ranks that are connected with one that gave up an iteration after the run was stopped.
    fn drop_abandoned(&self, ranks: &mut [Samples]) {
        let completed =
            self.sessions.iter().map(|session| &session.stopping).zip(ranks.iter().map(|its| its.time.len()));
        let counts = StopAgreementHandle::completed_by_connected(&completed.collect::<Vec<_>>());
        ranks.iter_mut().zip(counts).for_each(|(samples, count)| samples.truncate(count));
    }

    /// Samples of the iterations that every rank had completed when the last [`Ranks::iterate`] failed; `None` with
    /// several processes, since those of the other ranks are not known here.
    pub fn samples_before_failure(&self) -> Option<RankSamples> {
        let ranks: Vec<Samples> = self.sessions.iter().map(|session| session.samples.clone()).collect();
        let slowest = slowest(&ranks.iter().collect::<Vec<_>>());
        self.is_one_process().then_some(RankSamples { slowest, ranks })
    }

    /// Runs the `setup` on every rank unless it has run since the contents were restored.
    pub fn set_up(&mut self, control: &Control) -> Result<(), ExecError> {
        self.each_or_none("the setup", control, |session| session.set_up(control), |_| ()).map(drop)
    }

    /// Runs the `teardown` on every rank, after the last iteration.
    pub fn tear_down(&mut self, control: &Control) -> Result<(), ExecError> {
        let tear_down = |session: &mut Session| session.once_block(OnceBlock::Teardown, control);
        self.each_or_none("the teardown", control, tear_down, |_| ()).map(drop)
    }

    /// Runs a single iteration to completion on every rank. The iterations before it must have been run.
    pub fn once(&mut self, mode: LaunchMode, iteration: u64, control: &Control) -> Result<(), ExecError> {
        self.each_or_none("an iteration", control, |session| session.once(mode, iteration, control), |_| ()).map(drop)
    }

    /// True if the data caches are flushed before each iteration.
    pub fn is_cold(&self) -> bool {
        self.infos.iter().all(|info| info.cold)
    }

    /// The session of the `index`-th rank; `None` if another process runs it.
    fn session(&mut self, index: usize) -> Option<&mut Session> {
        self.sessions.get_mut(index.checked_sub(self.first)?)
    }

    /// Applies `ask` to the session of the `index`-th rank and names the rank in an error; `None` if another process
    /// runs it.
    fn of_rank<T>(
        &mut self,
        index: usize,
        ask: impl FnOnce(&mut Session) -> Result<Option<T>, ExecError>,
    ) -> Result<Option<T>, ExecError> {
        let several = self.numbers.len() > 1;
        let Some(session) = self.session(index) else { return Ok(None) };
        ask(session).map_err(|error| if several { error.on_rank(session.rank) } else { error })
    }

    /// Reads `bytes` bytes of the `index`-th rank's memory into `out`, reusing its allocation. Returns false if the
    /// backend has no memory or another process runs the rank.
    pub fn read_at(&mut self, index: usize, at: Address, bytes: u64, out: &mut Vec<u8>) -> Result<bool, ExecError> {
        out.resize(bytes as usize, 0);
        let read = self.of_rank(index, |session| {
            let read = session.driver.read(at.space, at.offset, out).map_err(session::device)?;
            Ok(read.then_some(()))
        })?;
        Ok(read.is_some())
    }

    /// Number of iterations after which the programs of all ranks repeat.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Turns gating of iterations on, as far as the images allow it, or off.
    pub fn set_gate(&mut self, on: bool) {
        self.sessions.iter_mut().for_each(|session| session.set_gate(on));
    }

    /// True if iterations launched as streams are gated on every rank.
    pub fn is_gated(&self) -> bool {
        self.infos.iter().all(|info| info.gated)
    }

    /// Reason why iterations are not gated, in words; `None` if they are, or if gating was not requested.
    pub fn gate_refused(&self) -> Option<&str> {
        self.infos.iter().find_map(|info| info.gate_refused.as_deref())
    }

    /// Clocks and throttling of the devices that report them. Takes up to some milliseconds, so not to be called while
    /// iterations are measured.
    pub fn health(&mut self) -> Result<Vec<Health>, ExecError> {
        // Concurrently: a query may take a millisecond, while devices cool down.
        let readings: Vec<Health> = match &mut self.sessions[..] {
            [only] => only.driver.health().into_iter().collect(),
            sessions => {
                let mut readings: Vec<Option<Health>> = sessions.iter().map(|_| None).collect();
                let pairs = sessions.iter_mut().zip(&mut readings);
                parallel::side_by_side(pairs, |(session, reading)| *reading = session.driver.health());
                readings.into_iter().flatten().collect()
            }
        };
        Ok(self.agree("health", Ok(readings))?.into_iter().flatten().collect())
    }

    /// Restores the initial contents of all memory.
    pub fn reset(&mut self, control: &Control) -> Result<(), ExecError> {
        // Filling memory may take long without progress, so the watchdog must ignore this rank.
        let reset = |session: &mut Session| {
            session.progress.end();
            session.reset()
        };
        self.each_or_none("contents", control, reset, |_| ()).map(drop)
    }

    /// Reads a memory of the `index`-th rank; `None` if the backend has no memory or another process runs the rank.
    pub fn read(&mut self, index: usize, memory: MemoryId) -> Result<Option<Vec<u8>>, ExecError> {
        self.of_rank(index, |session| session.read(memory))
    }

    /// The longest time that a compiler took for a rank of this process; `None` if nothing is compiled.
    pub fn compile_time(&self) -> Option<Nanos> {
        self.sessions.iter().filter_map(|session| session.driver.compile_time()).max()
    }
}
