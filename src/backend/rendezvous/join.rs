//! The side of all ranks but rank 0 in the rendezvous: each rank finds rank 0 and authenticates to it.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, ToSocketAddrs};
use std::time::{Duration, Instant};

use crate::exec::ExecError;

use super::frame::{Frame, FrameKind};
use super::handshake::{AUTHENTICATION_TIMEOUT, ConnectError, Hello, Seals, introduce};
use super::stream::{ListenAddress, Socket};
use super::{JoinOptions, Transport, local};

/// Pause between two attempts to find rank 0.
pub(super) const ROUND: Duration = Duration::from_millis(50);

/// Connection timeout for all ports but the first. Rank 0 uses them only if other runs use those before.
const OTHER_PORTS_TIMEOUT: Duration = Duration::from_millis(500);

/// Minimum connection timeout, which applies to the last attempts before the time to join ends.
const MIN_TIMEOUT: Duration = Duration::from_millis(20);

/// An authenticated connection.
pub(super) struct Connection {
    pub stream: Socket,
    pub seals: Seals,
}

impl Connection {
    /// Sends a frame; fails after `timeout`.
    pub fn send(&mut self, frame: &Frame, timeout: Duration) -> io::Result<()> {
        frame.write(&mut self.stream.until(Instant::now() + timeout), &mut self.seals.sent)
    }

    /// Receives a frame; fails after `timeout`.
    pub fn receive(&mut self, timeout: Duration) -> io::Result<Frame> {
        Frame::read(&mut self.stream.until(Instant::now() + timeout), &mut self.seals.received)
    }
}

/// Version of this program, which must be the same on all ranks.
pub(super) fn version() -> String {
    env!("CARGO_PKG_VERSION").to_owned()
}

/// The error for ranks that do not find each other, for this reason.
pub(super) fn failed(why: String, options: &JoinOptions) -> ExecError {
    let help = match &options.transport {
        Transport::Host { advice, .. } => advice.clone(),
        Transport::Network { address, .. } => {
            let ports = options.ports();
            let (first, last) = (ports.first().copied().unwrap_or(0), ports.last().copied().unwrap_or(0));
            format!(
                "rank 0 listens at {address} on the first of the ports {first} to {last} that no other run has: let the \
                 hosts reach it there, give all ranks the same secret, or set MASTER_ADDR and MASTER_PORT; `--config \
                 rendezvous=…` changes how long ranks wait"
            )
        }
    };
    ExecError::Rendezvous { why, help }
}

/// Rank 0's answer to an authenticated rank.
pub(super) enum Answer {
    Welcome(Connection),
    /// The listener is rank 0 of another run. Rank 0 of this run may use another port.
    Elsewhere,
    Refused(String),
}

/// Finds rank 0 and returns the connection to it. Other listeners at the same addresses are named only in the final
/// error.
pub(super) fn find_rank_0(options: &JoinOptions) -> Result<Connection, ExecError> {
    let deadline = Instant::now() + options.timeout;
    let (mut stranger, mut last) = (None, String::from("nobody listens"));
    if let Transport::Host { folder, .. } = &options.transport {
        // A problem with the folder is permanent, unlike one with a host's address, so fail at once.
        local::address(folder, &options.job).map_err(|why| failed(why, options))?;
    }
    loop {
        let addresses = addresses(options).unwrap_or_else(|why| {
            last = why;
            Vec::new()
        });
        for (index, address) in addresses {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = if index == 0 { AUTHENTICATION_TIMEOUT } else { OTHER_PORTS_TIMEOUT };
            match connect(&address, options, left.clamp(MIN_TIMEOUT, timeout)) {
                Ok(Answer::Welcome(connection)) => return Ok(connection),
                Ok(Answer::Refused(why)) => return Err(failed(format!("rank 0 refused: {why}"), options)),
                Ok(Answer::Elsewhere) => last = format!("another run listens at {address}"),
                Err(ConnectError::Unknown) => stranger = Some(address),
                Err(ConnectError::Unreachable(error)) => {
                    // If nobody listens at one port, an error at another port is more informative.
                    if !matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::NotFound) {
                        last = format!("{address}: {error}");
                    }
                }
            }
        }
        if Instant::now() > deadline {
            let why = match (&stranger, &options.transport) {
                (None, _) => last,
                (Some(address), Transport::Host { .. }) => {
                    format!("the process that listens at {address} is not a rank of this run")
                }
                (Some(address), Transport::Network { .. }) => format!(
                    "the process that listens at {address} does not know the secret: another program uses the port, \
                     or rank 0 has another secret"
                ),
            };
            let at = match &options.transport {
                Transport::Host { .. } => "on this host",
                Transport::Network { address, .. } => &format!("at {address}"),
            };
            let why = format!("rank {} did not find rank 0 {at} within {:?}: {why}", options.rank, options.timeout);
            return Err(failed(why, options));
        }
        std::thread::sleep(ROUND);
    }
}

/// Addresses at which rank 0 may listen, each with the index of its port; an error in words if none is known.
fn addresses(options: &JoinOptions) -> Result<Vec<(usize, ListenAddress)>, String> {
    match &options.transport {
        Transport::Host { folder, .. } => Ok(vec![(0, local::address(folder, &options.job)?)]),
        Transport::Network { address, .. } => {
            let found = resolve(address)?;
            let each = options.ports().into_iter().enumerate();
            let each = each.flat_map(|(index, port)| found.iter().map(move |&ip| (index, (ip, port).into())));
            Ok(each.map(|(index, address)| (index, ListenAddress::Network(address))).collect())
        }
    }
}

/// Connects to an address and authenticates to rank 0.
pub(super) fn connect(
    address: &ListenAddress,
    options: &JoinOptions,
    timeout: Duration,
) -> Result<Answer, ConnectError> {
    let hello = Hello { version: version(), job: options.job.clone(), rank: options.rank, world: options.world };
    let mut stream = Socket::connect(address, timeout).map_err(ConnectError::Unreachable)?;
    let seals = introduce(&mut stream, options.key(), &hello, Instant::now() + AUTHENTICATION_TIMEOUT)?;
    let mut connection = Connection { stream, seals };
    let answer = connection.receive(AUTHENTICATION_TIMEOUT).map_err(ConnectError::Unreachable)?;
    match answer.kind {
        FrameKind::Welcome => Ok(Answer::Welcome(connection)),
        FrameKind::Elsewhere => Ok(Answer::Elsewhere),
        FrameKind::Refused => Ok(Answer::Refused(answer.text)),
        _ => Err(ConnectError::Unknown),
    }
}

/// Resolves a host name to addresses.
pub(super) fn resolve(host: &str) -> Result<Vec<IpAddr>, String> {
    let found =
        (host, 0).to_socket_addrs().map_err(|error| format!("the address of `{host}` is not known: {error}"))?;
    let mut all = Vec::new();
    for address in found {
        if !all.contains(&address.ip()) {
            all.push(address.ip());
        }
    }
    Ok(all)
}
