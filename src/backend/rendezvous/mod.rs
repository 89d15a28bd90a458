//! Communication between the processes of a run, one per rank: a star with rank 0 in the centre.
//!
//! Ranks of one user on one host use a Unix socket. Ranks on several hosts use TCP, and authenticate by a shared
//! secret. Every frame is sealed with a key of its connection.
//!
//! Each connection has a thread that reads incoming frames, so that a failed or dead rank is noticed at once, even while the
//! others wait for their devices. While iterations are measured, ranks only send occasional heartbeats with their progress,
//! so that no rank waits forever for one that is alive but makes no progress.

mod frame;
mod handshake;
mod join;
mod listen;
mod local;
mod progress;
mod seal;
mod secret;
mod stream;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::{Duration, Instant};

use crate::base::threads::{self, lock, unpoisoned};
use crate::exec::{ExecError, MAX_MESSAGE, RankProcesses};

use frame::{Frame, FrameKind};
use join::Connection;
use progress::HeartbeatProgress;
use seal::Seal;
use stream::Socket;

pub use secret::{SHORTEST, Secret, SecretFault};
pub use stream::is_loopback;

/// Number of ports that rank 0 tries, since some may be in use.
const PORTS: u16 = 16;

const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(5);

/// Silence after which a process counts as gone, even if its connection is open: its machine may be down.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(60);

/// Time that a process has to end by itself after another rank was lost, while it waits for its device or a library.
const GRACE: Duration = Duration::from_secs(10);

/// Time that a process has to end by itself after another rank has failed, whose process still reports the error. It is
/// longer than [`GRACE`], since current work, such as a compilation, may end first.
const GRACE_OF_FAILURE: Duration = Duration::from_secs(60);

/// Maximum time that rank 0 waits for the other ranks to close their connections at the end.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of unread messages from a rank.
const MAX_QUEUED: usize = 4;

/// Settings by which the processes of a run find each other, with the rank of this process.
#[derive(Clone, Debug)]
pub struct JoinOptions {
    pub rank: u32,
    pub world: u32,
    pub transport: Transport,
    /// Name of the run, which distinguishes it from others of the same user.
    pub job: String,
    /// Maximum time that a process waits for the others to join.
    pub timeout: Duration,
    /// Maximum time for which a rank may make no progress while another rank waits for it.
    pub stall: Duration,
}

/// The kind of connection by which processes reach rank 0.
#[derive(Clone, Debug)]
pub enum Transport {
    /// A Unix socket, for processes of one user on one host.
    Host {
        /// Private folder of the socket; created if missing.
        folder: PathBuf,
        /// Help text of the error for ranks that do not meet: alternatives to this transport.
        advice: String,
    },
    /// TCP, for processes that know the secret.
    Network {
        /// Host of rank 0.
        address: String,
        /// First port that rank 0 tries.
        port: u16,
        secret: Secret,
    },
}

impl JoinOptions {
    fn ports(&self) -> Vec<u16> {
        match self.transport {
            Transport::Host { .. } => Vec::new(),
            Transport::Network { port, .. } => (port..=port.saturating_add(PORTS - 1)).collect(),
        }
    }

    /// Key of the proofs of identity. Empty on one host, where the system identifies the other process.
    fn key(&self) -> &[u8] {
        match &self.transport {
            Transport::Host { .. } => &[],
            Transport::Network { secret, .. } => secret.key(),
        }
    }
}

/// Callback that ends this process with an error. Called if the process does not end by itself after a rank is lost.
pub type LostRankHandler = Box<dyn Fn(ExecError) + Send + Sync>;

/// The connections of a process to the others of its run.
pub struct Rendezvous {
    shared: Arc<RendezvousState>,
}

struct RendezvousState {
    rank: u32,
    world: u32,
    /// Connections by rank: rank 0 has one to each rank, every other rank has one to rank 0.
    links: BTreeMap<u32, Mutex<SendingHalf>>,
    state: Mutex<ConnectionState>,
    changed: Condvar,
    on_lost_rank: LostRankHandler,
    stall: Duration,
    /// Function that returns a number, which changes whenever this process makes progress. Empty until it is set.
    work: OnceLock<ProgressCounter>,
}

type ProgressCounter = Box<dyn Fn() -> u64 + Send + Sync>;

/// The sending half of a connection to another process.
struct SendingHalf {
    stream: Socket,
    seal: Seal,
    /// True if a frame was sent in part only, after which the connection is unusable.
    broken: bool,
}

impl SendingHalf {
    fn send(&mut self, frame: &Frame) -> io::Result<()> {
        if self.broken {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let sent = frame.write(&mut self.stream.until(Instant::now() + HEARTBEAT_TIMEOUT), &mut self.seal);
        self.broken = sent.is_err();
        sent
    }
}

#[derive(Default)]
struct ConnectionState {
    /// Complete frames that were received and not read yet, by sender.
    inbox: BTreeMap<u32, VecDeque<Frame>>,
    /// Ranks that have finished the run.
    finished: BTreeSet<u32>,
    /// The first rank that was lost, and the reason; `None` while no rank is lost.
    lost: Option<(u32, String)>,
    /// Number of this process's next step, counted from 0.
    step_number: u64,
    /// Name of this process's last step; empty before the first.
    step: String,
    /// True if this process waits for others at its last step.
    waiting: bool,
    /// Progress of the other ranks by their latest heartbeat.
    progress: BTreeMap<u32, HeartbeatProgress>,
    /// The last step before which a rank has failed, and that rank; `None` while none has.
    alarm: Option<(u64, u32)>,
    watched: Option<Arc<AtomicBool>>,
    /// True if this process has finished.
    closed: bool,
}

impl ConnectionState {
    /// Wakes the thread that waits for a change.
    fn wake(&self) {
        let failed = self.lost.is_some() || self.alarm.is_some_and(|(step_number, _)| step_number >= self.step_number);
        if let Some(flag) = self.watched.as_ref().filter(|_| failed) {
            flag.store(true, Ordering::Release);
        }
    }
}

impl Rendezvous {
    /// Joins the other processes, and returns once all ranks have joined. Calls `on_lost_rank`, which may end the process, if
    /// another rank is lost or has failed and this process does not end by itself in time.
    pub fn join(options: &JoinOptions, on_lost_rank: LostRankHandler) -> Result<Rendezvous, ExecError> {
        let connections = match options {
            JoinOptions { world: 1, .. } => BTreeMap::new(),
            JoinOptions { rank: 0, .. } => listen::listen(options)?,
            _ => BTreeMap::from([(0, join::find_rank_0(options)?)]),
        };
        let lost = |rank| move |error: io::Error| ExecError::LostRank { rank, why: reason(&error) };
        let mut readers = Vec::with_capacity(connections.len());
        let mut links = BTreeMap::new();
        for (rank, mut connection) in connections {
            if options.rank == 0 {
                connection.send(&Frame::new(FrameKind::Begin, 0, 0), HEARTBEAT_TIMEOUT).map_err(lost(rank))?;
            } else {
                await_begin(&mut connection, options.timeout + HEARTBEAT_TIMEOUT)?;
            }
            let Connection { stream, seals } = connection;
            readers.push((rank, stream.try_clone().map_err(lost(rank))?, seals.received));
            links.insert(rank, Mutex::new(SendingHalf { stream, seal: seals.sent, broken: false }));
        }
        let shared = Arc::new(RendezvousState {
            rank: options.rank,
            world: options.world,
            links,
            state: Mutex::default(),
            changed: Condvar::new(),
            on_lost_rank,
            stall: options.stall,
            work: OnceLock::new(),
        });
        for (rank, stream, seal) in readers {
            let reader = shared.clone();
            start(move || reader.read(rank, stream, seal)).map_err(lost(rank))?;
        }
        let sender = shared.clone();
        start(move || sender.send_heartbeats()).map_err(lost(options.rank))?;
        Ok(Rendezvous { shared })
    }

    /// Sets the counter that heartbeats report as this process's progress. Calls after the first have no effect.
    pub fn count_work(&self, work: impl Fn() -> u64 + Send + Sync + 'static) {
        let _ = self.shared.work.set(Box::new(work));
    }

    /// Notifies the other processes that this one leaves. `why` is the reason for an early end; `None` if the process
    /// has finished.
    pub fn leave(&self, why: Option<&str>) {
        let shared = &self.shared;
        let mut state = lock(&shared.state);
        if state.closed {
            return;
        }
        state.closed = true;
        let last = match (why, &state.lost) {
            (None, _) => Frame::new(FrameKind::Bye, shared.rank, 0),
            // Name the lost rank: the thread that noticed it may not have told the others yet.
            (Some(_), Some((rank, why))) => Frame::new(FrameKind::Gone, *rank, 0).with_text(why),
            (Some(why), _) => Frame::new(FrameKind::Gone, shared.rank, 0).with_text(why),
        };
        drop(state);
        shared.changed.notify_all();
        shared.links.keys().for_each(|&rank| drop(shared.send(rank, &last)));
        // Closing first could discard data that the other side has not read yet.
        if shared.rank == 0 && why.is_none() {
            let all = |state: &mut ConnectionState| state.lost.is_none() && state.finished.len() < shared.links.len();
            drop(shared.changed.wait_timeout_while(lock(&shared.state), END_TIMEOUT, all));
        }
        for link in shared.links.values() {
            let _ = lock(link).stream.end();
        }
    }
}

impl Drop for Rendezvous {
    fn drop(&mut self) {
        self.leave(Some("it ended without a message"));
    }
}

/// Waits until rank 0 reports that all ranks have joined.
fn await_begin(connection: &mut Connection, timeout: Duration) -> Result<(), ExecError> {
    let first = connection.receive(timeout).map_err(|error| ExecError::Rendezvous {
        why: format!("rank 0 started, but ended before all ranks had connected: {}", reason(&error)),
        help: "the output of rank 0 shows the reason".to_owned(),
    })?;
    match first.kind {
        FrameKind::Begin => Ok(()),
        _ => Err(ExecError::LostRank { rank: 0, why: "it did not begin as it should".to_owned() }),
    }
}

/// Starts a detached thread.
fn start(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    threads::spawn(std::thread::Builder::new().name("rendezvous".to_owned()), work).map(drop)
}

/// Describes the error that ended a connection.
fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            "its process ended".to_owned()
        }
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => format!("it sent nothing for {HEARTBEAT_TIMEOUT:?}"),
        _ => error.to_string(),
    }
}

impl RendezvousState {
    /// Sends a frame to a rank, in pieces if it is long. Frames of other threads may be sent between two pieces.
    fn send(&self, rank: u32, frame: &Frame) -> io::Result<()> {
        let Some(link) = self.links.get(&rank) else { return Ok(()) };
        let write = |piece: Frame| lock(link).send(&piece);
        frame.clone().pieces().try_for_each(write)
    }

    /// Forwards a frame to all ranks except `but`, if this is rank 0.
    fn relay(&self, frame: &Frame, but: u32) {
        if self.rank == 0 {
            // If a rank cannot be reached, the thread that reads from it notices.
            self.links.keys().filter(|&&rank| rank != but).for_each(|&rank| drop(self.send(rank, frame)));
        }
    }

    /// Receives frames from a connection until it ends.
    fn read(self: Arc<Self>, from: u32, mut stream: Socket, mut seal: Seal) {
        let mut pieces: Vec<u8> = Vec::new();
        loop {
            match Frame::read(&mut stream.until(Instant::now() + HEARTBEAT_TIMEOUT), &mut seal) {
                Ok(mut frame) => match frame.kind {
                    FrameKind::Piece if pieces.len() + frame.bytes.len() > MAX_MESSAGE => {
                        self.note_lost(from, "its message is too long: a bug of aorta", from);
                    }
                    FrameKind::Piece => pieces.append(&mut frame.bytes),
                    FrameKind::Message | FrameKind::Failed | FrameKind::Answer => {
                        pieces.append(&mut frame.bytes);
                        self.put(from, frame.with_bytes(std::mem::take(&mut pieces)));
                    }
                    FrameKind::Alarm => self.alarm(frame.step_number, frame.rank),
                    FrameKind::Gone => self.note_lost(frame.rank, &frame.text, from),
                    FrameKind::Bye => {
                        lock(&self.state).finished.insert(from);
                        self.changed.notify_all();
                        return;
                    }
                    FrameKind::Heartbeat => self.note_heartbeat(from, &frame),
                    FrameKind::Begin | FrameKind::Welcome | FrameKind::Elsewhere | FrameKind::Refused => {}
                },
                Err(error) => return self.note_lost(from, &reason(&error), from),
            }
            if lock(&self.state).lost.as_ref().is_some_and(|(rank, _)| *rank == from) {
                return;
            }
        }
    }

    /// Queues a message for the step that waits for it. If its sender has failed, all ranks are notified.
    fn put(self: &Arc<Self>, from: u32, frame: Frame) {
        let (failed, step_number) = (frame.kind == FrameKind::Failed, frame.step_number);
        let mut state = lock(&self.state);
        let inbox = state.inbox.entry(from).or_default();
        inbox.push_back(frame);
        let waiting = inbox.len();
        drop(state);
        self.changed.notify_all();
        if waiting > MAX_QUEUED {
            self.note_lost(from, "it does not wait for the others: a bug of aorta", from);
        }
        if failed {
            self.alarm(step_number, from);
            self.relay(&Frame::new(FrameKind::Alarm, from, step_number), from);
        }
    }

    /// Notes that a rank has failed before step `step_number`.
    fn alarm(self: &Arc<Self>, step_number: u64, rank: u32) {
        let mut state = lock(&self.state);
        state.alarm = state.alarm.max(Some((step_number, rank)));
        state.wake();
        if state.step_number <= step_number {
            drop(state);
            self.rescue_after(GRACE_OF_FAILURE, rank, "it failed", move |state| state.step_number <= step_number);
        }
    }

    /// Notes that a rank is lost. `from` is the rank that has reported it.
    fn note_lost(self: &Arc<Self>, rank: u32, why: &str, from: u32) {
        let mut state = lock(&self.state);
        if state.closed || state.lost.is_some() {
            return;
        }
        state.lost = Some((rank, why.to_owned()));
        state.wake();
        drop(state);
        self.changed.notify_all();
        self.relay(&Frame::new(FrameKind::Gone, rank, 0).with_text(why), from);
        self.rescue_after(GRACE, rank, why, |state| !state.closed);
    }

    /// Calls `on_lost_rank` after a time if `stuck` is true then.
    fn rescue_after(
        self: &Arc<Self>,
        grace: Duration,
        rank: u32,
        why: &str,
        stuck: impl Fn(&ConnectionState) -> bool + Send + 'static,
    ) {
        let (shared, why) = (self.clone(), why.to_owned());
        // Without that thread, the iteration timeout must suffice.
        let _ = start(move || {
            let waited = shared.changed.wait_timeout_while(lock(&shared.state), grace, |state| stuck(state));
            let (state, _) = unpoisoned(waited);
            let is_stuck = stuck(&state);
            drop(state);
            if is_stuck {
                (shared.on_lost_rank)(ExecError::LostRank { rank, why });
            }
        });
    }

    /// Sends heartbeats with this process's progress.
    fn send_heartbeats(&self) {
        let interval = HEARTBEAT_INTERVAL.min(self.stall / 4);
        loop {
            let waited = self.changed.wait_timeout_while(lock(&self.state), interval, |state| !state.closed);
            let state = unpoisoned(waited).0;
            if state.closed {
                return;
            }
            let heartbeat = self.heartbeat(&state);
            drop(state);
            for link in self.links.values() {
                // A link in use is already sending to that rank, which proves that this process is alive.
                if let Ok(mut link) = link.try_lock() {
                    let _ = link.send(&heartbeat);
                }
            }
        }
    }

    /// Waits for the frame of a rank at step `step_number`.
    fn next(self: &Arc<Self>, from: u32, step_number: u64, what: &str) -> Result<Frame, ExecError> {
        let lost = |rank: u32, why: String| Err(ExecError::LostRank { rank, why });
        let since = Instant::now();
        let mut state = lock(&self.state);
        loop {
            if let Some((rank, why)) = &state.lost {
                return lost(*rank, why.clone());
            }
            if let Some(frame) = state.inbox.get_mut(&from).and_then(VecDeque::pop_front) {
                if (frame.step_number, frame.text.as_str()) != (step_number, what) {
                    let why =
                        format!("it is in the phase `{}`, and this process is in `{what}`: a bug of aorta", frame.text);
                    return lost(from, why);
                }
                return Ok(frame);
            }
            if state.finished.contains(&from) {
                return lost(from, format!("it ended while other ranks were still in the phase `{what}`"));
            }
            if let Some(why) = self.stalled(&state, from, what, since) {
                drop(state);
                self.note_lost(from, &why, from);
                state = lock(&self.state);
                continue;
            }
            let waited = self.changed.wait_timeout(state, self.stall.min(HEARTBEAT_INTERVAL));
            state = unpoisoned(waited).0;
        }
    }

    /// Rank 0's part of a step: receives all messages and sends the answer.
    fn collect(
        self: &Arc<Self>,
        step_number: u64,
        what: &str,
        message: &[u8],
        answer: &mut dyn FnMut(Vec<Vec<u8>>) -> Vec<u8>,
    ) -> Result<Vec<u8>, ExecError> {
        let mut parts = vec![message.to_vec()];
        for &rank in self.links.keys() {
            parts.push(self.next(rank, step_number, what)?.bytes);
        }
        let all = Frame::new(FrameKind::Answer, 0, step_number).with_text(what).with_bytes(answer(parts));
        for &rank in self.links.keys() {
            self.send(rank, &all).map_err(|error| ExecError::LostRank { rank, why: reason(&error) })?;
        }
        Ok(all.bytes)
    }

    /// The other ranks' part of a step: sends the message and receives rank 0's answer.
    fn ask_rank_0(
        self: &Arc<Self>,
        step_number: u64,
        what: &str,
        message: &[u8],
        failed: bool,
    ) -> Result<Vec<u8>, ExecError> {
        let lost = |why: String| ExecError::LostRank { rank: 0, why };
        let kind = if failed { FrameKind::Failed } else { FrameKind::Message };
        let frame = Frame::new(kind, self.rank, step_number).with_text(what).with_bytes(message.to_vec());
        // If rank 0 cannot be reached, the thread that reads from it reports the reason.
        let sent = self.send(0, &frame);
        let answer = self.next(0, step_number, what)?;
        sent.map_err(|error| lost(reason(&error)))?;
        Ok(answer.bytes)
    }
}

impl RankProcesses for Rendezvous {
    fn rank(&self) -> u32 {
        self.shared.rank
    }

    fn world(&self) -> u32 {
        self.shared.world
    }

    fn consult(
        &self,
        what: &str,
        message: &[u8],
        failed: bool,
        answer: &mut dyn FnMut(Vec<Vec<u8>>) -> Vec<u8>,
    ) -> Result<Vec<u8>, ExecError> {
        let shared = &self.shared;
        let step_number = shared.enter(what);
        shared.changed.notify_all();
        let answered = if shared.rank == 0 {
            if failed {
                shared.relay(&Frame::new(FrameKind::Alarm, 0, step_number), 0);
            }
            shared.collect(step_number, what, message, answer)
        } else {
            shared.ask_rank_0(step_number, what, message, failed)
        };
        lock(&shared.state).waiting = false;
        answered
    }

    fn lost(&self) -> Option<ExecError> {
        let lost = lock(&self.shared.state).lost.clone();
        lost.map(|(rank, why)| ExecError::LostRank { rank, why })
    }

    fn watch(&self, flag: Option<Arc<AtomicBool>>) {
        let mut state = lock(&self.shared.state);
        state.watched = flag;
        state.wake();
    }
}
