//! Rank 0's side of the rendezvous: it listens, and accepts the other ranks until all have joined.
//!
//! Anybody who reaches the port may connect. Therefore nothing blocks on a single connection: connections are processed
//! in turn, and the number of unauthenticated ones is limited. If a new one exceeds the limit, the oldest connection of
//! the address with the most connections is closed.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::exec::ExecError;

use super::frame::{Frame, FrameKind};
use super::handshake::{AUTHENTICATION_TIMEOUT, ConnectError, Hello, PendingPeer, PendingPeerState, Seals};
use super::join::{Answer, Connection, ROUND, connect, failed, resolve, version};
use super::stream::{ListenAddress, Listener, Socket};
use super::{JoinOptions, Transport, local};

/// Maximum number of unauthenticated connections.
const MAX_UNAUTHENTICATED: usize = 256;

/// Maximum number of connections that are accepted before the existing ones are processed again.
const MAX_ACCEPTED: usize = 64;

/// Pause after a round in which nothing has arrived.
const PAUSE: Duration = Duration::from_millis(5);

/// Maximum number of rejected ranks, and of unknown addresses, that a message lists.
const MAX_LISTED: usize = 4;

/// Maximum number of attempts to bind a port that cannot be bound although no process answers there.
const TRIES: usize = 20;

/// Listens until all ranks have joined, and returns the connections by rank.
pub(super) fn listen(options: &JoinOptions) -> Result<BTreeMap<u32, Connection>, ExecError> {
    let deadline = Instant::now() + options.timeout;
    let listener = bind(options)?;
    let (joined, unauthenticated) = (BTreeMap::new(), BTreeSet::new());
    let mut acceptor = Acceptor { options, joined, pending: Vec::new(), refused: Vec::new(), unauthenticated };
    while acceptor.joined.len() + 1 < options.world as usize {
        if Instant::now() > deadline {
            return Err(acceptor.missing(&listener));
        }
        let is_busy = acceptor.accept_waiting(&listener) | acceptor.process_pending();
        if !is_busy {
            std::thread::sleep(PAUSE);
        }
    }
    Ok(acceptor.joined)
}

/// Result of trying to listen at an address.
enum ListenAttempt {
    Ours(Listener),
    /// Rank 0 of another run with the same secret has it.
    OtherRun,
    /// The address does not belong to this host.
    Elsewhere,
}

/// Binds rank 0's address. Skips ports that other runs of the same user have; fails if another process has one.
fn bind(options: &JoinOptions) -> Result<Listener, ExecError> {
    let (host, port) = match &options.transport {
        Transport::Host { folder, .. } => {
            local::sweep(folder);
            let address = local::address(folder, &options.job).map_err(|why| failed(why, options))?;
            return match claim(&address, options)? {
                ListenAttempt::Ours(listener) => Ok(listener),
                _ => Err(failed("another run uses its socket".to_owned(), options)),
            };
        }
        Transport::Network { address, port, .. } => (address, *port),
    };
    let found = resolve(host).map_err(|why| failed(why, options))?;
    let mut is_here = false;
    for port in options.ports() {
        for &ip in &found {
            match claim(&ListenAddress::Network((ip, port).into()), options)? {
                ListenAttempt::Ours(listener) => return Ok(listener),
                ListenAttempt::OtherRun => is_here = true,
                ListenAttempt::Elsewhere => {}
            }
        }
    }
    let why = match is_here {
        true => format!("other runs use the ports from {port} on"),
        false => {
            format!("rank 0 runs on this host, but {host} is not an address of this host (it is {})", listed(&found))
        }
    };
    Err(failed(why, options))
}

fn claim(address: &ListenAddress, options: &JoinOptions) -> Result<ListenAttempt, ExecError> {
    let cannot = |why: String| {
        let why = format!("rank 0 cannot listen at {address}: {why}");
        let Transport::Network { .. } = options.transport else { return failed(why, options) };
        let help = "end the process that uses the port, or give all ranks another MASTER_PORT; `ss -ltnp` shows which \
             processes listen"
            .to_owned();
        ExecError::Rendezvous { why, help }
    };
    for _ in 0..TRIES {
        match Listener::bind(address) {
            Ok(listener) => return Ok(ListenAttempt::Ours(listener)),
            Err(error) if error.kind() == ErrorKind::AddrNotAvailable => return Ok(ListenAttempt::Elsewhere),
            Err(error) if error.kind() != ErrorKind::AddrInUse => return Err(cannot(error.to_string())),
            Err(_) => {}
        }
        match connect(address, options, AUTHENTICATION_TIMEOUT) {
            Ok(Answer::Elsewhere) => return Ok(ListenAttempt::OtherRun),
            Ok(Answer::Refused(why)) => return Err(cannot(why)),
            Ok(Answer::Welcome(_)) => {
                return Err(cannot("another process mistakes this one for a rank of its run".to_owned()));
            }
            Err(ConnectError::Unknown) => break,
            // Nobody listens there any more, or not yet.
            Err(ConnectError::Unreachable(_)) => {
                if let ListenAddress::Host(path) = address
                    && local::is_abandoned(path)
                {
                    let _ = std::fs::remove_file(path);
                }
                std::thread::sleep(ROUND);
            }
        }
    }
    Err(cannot("another program, which is not a rank of this run, uses it".to_owned()))
}

fn listed<T: ToString>(all: impl IntoIterator<Item = T>) -> String {
    all.into_iter().map(|one| one.to_string()).collect::<Vec<_>>().join(", ")
}

/// Rank 0's connections while ranks join.
struct Acceptor<'a> {
    options: &'a JoinOptions,
    joined: BTreeMap<u32, Connection>,
    /// Unauthenticated connections, the oldest first.
    pending: Vec<PendingPeer>,
    refused: Vec<String>,
    /// Addresses of connections that failed to authenticate.
    unauthenticated: BTreeSet<IpAddr>,
}

impl Acceptor<'_> {
    /// Accepts waiting connections. Returns whether there were any.
    fn accept_waiting(&mut self, listener: &Listener) -> bool {
        for taken in 0..MAX_ACCEPTED {
            match listener.accept() {
                Ok(Some(stream)) => {
                    if self.pending.len() >= MAX_UNAUTHENTICATED {
                        self.make_room();
                    }
                    self.pending.push(PendingPeer::new(stream));
                }
                Ok(None) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return taken > 0,
                // The process may have reached its limit of open files.
                Err(_) => {
                    self.make_room();
                    return taken > 0;
                }
            }
        }
        true
    }

    /// Closes the oldest connection from the address with the most connections.
    fn make_room(&mut self) {
        let mut counts: BTreeMap<Option<IpAddr>, usize> = BTreeMap::new();
        self.pending.iter().for_each(|peer| *counts.entry(peer.from).or_default() += 1);
        let most = counts.into_iter().max_by_key(|(_, count)| *count).map(|(from, _)| from);
        if let Some(oldest) = self.pending.iter().position(|peer| Some(peer.from) == most) {
            self.pending.remove(oldest);
        }
    }

    /// Processes every unauthenticated connection without blocking. Returns whether any was authenticated.
    fn process_pending(&mut self) -> bool {
        let mut is_busy = false;
        for peer in std::mem::take(&mut self.pending) {
            let from = peer.from;
            match peer.advance(self.options.key()) {
                PendingPeerState::Pending(peer) => self.pending.push(peer),
                PendingPeerState::Known(hello, stream, seals) => {
                    is_busy = true;
                    self.receive(&hello, stream, seals);
                }
                PendingPeerState::Rejected if self.unauthenticated.len() < MAX_LISTED => {
                    self.unauthenticated.extend(from)
                }
                PendingPeerState::Rejected => {}
            }
        }
        is_busy
    }

    /// Answers an authenticated process, and keeps the connection if the process is a missing rank of this run.
    fn receive(&mut self, hello: &Hello, stream: Socket, seals: Seals) {
        let (kind, why) = match self.check_member(hello) {
            Ok(()) => (FrameKind::Welcome, String::new()),
            Err(None) => (FrameKind::Elsewhere, String::new()),
            Err(Some(why)) => (FrameKind::Refused, why),
        };
        let mut connection = Connection { stream, seals };
        let sent = connection.send(&Frame::new(kind, 0, 0).with_text(&why), AUTHENTICATION_TIMEOUT);
        if kind == FrameKind::Refused && self.refused.len() < MAX_LISTED {
            self.refused.push(why);
        }
        if kind == FrameKind::Welcome && sent.is_ok() {
            self.joined.insert(hello.rank, connection);
        }
    }

    /// Checks whether an authenticated process is a missing rank of this run. The error is the reason, or `None` if the
    /// process belongs to another run.
    fn check_member(&self, hello: &Hello) -> Result<(), Option<String>> {
        let options = self.options;
        if hello.job != options.job {
            return Err(None);
        }
        let why = if hello.version != version() {
            format!("rank {} runs aorta {}, and rank 0 runs {}", hello.rank, hello.version, version())
        } else if hello.world != options.world {
            format!("rank {} expects {} ranks, and rank 0 expects {}", hello.rank, hello.world, options.world)
        } else if hello.rank == 0 {
            "a rank 0 has already connected".to_owned()
        } else if hello.rank >= options.world {
            format!("there is no rank {} among {}", hello.rank, options.world)
        } else if self.joined.contains_key(&hello.rank) {
            format!("two processes claim to be rank {}", hello.rank)
        } else {
            return Ok(());
        };
        Err(Some(why))
    }

    fn missing(&self, listener: &Listener) -> ExecError {
        let missing: Vec<u32> = (1..self.options.world).filter(|rank| !self.joined.contains_key(rank)).collect();
        let ranks = if missing.len() == 1 { "rank" } else { "ranks" };
        let (world, timeout) = (self.options.world, self.options.timeout);
        let mut why = format!("{ranks} {} of {world} did not connect within {timeout:?}", listed(missing));
        if !self.refused.is_empty() {
            why += &format!("; refused: {}", self.refused.join("; "));
        }
        if !self.unauthenticated.is_empty() {
            let from = listed(&self.unauthenticated);
            why += &format!("; connections from {from} did not prove that they know the secret");
        }
        if let (Transport::Network { address, .. }, Some(ip)) = (&self.options.transport, listener.ip())
            && ip.is_loopback()
            && *address != ip.to_string()
        {
            why += &format!("; {address} is {ip} on this host, where no other host can reach it");
        }
        failed(why, self.options)
    }
}
