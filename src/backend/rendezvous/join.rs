//! The side of the other ranks: each looks for rank 0, and says who it is.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, ToSocketAddrs};
use std::time::{Duration, Instant};

use crate::exec::ExecError;

use super::frame::{Frame, FrameKind};
use super::handshake::{Hello, PATIENCE, Seals, Stranger, introduce};
use super::stream::{Address, Stream};
use super::{JoinOptions, Transport, local};

/// Between two rounds of looking for rank 0.
pub(super) const ROUND: Duration = Duration::from_millis(50);

/// How long a port is waited for that rank 0 takes only where other runs have those before it.
const FURTHER: Duration = Duration::from_millis(500);

/// How long one is waited for at the end of the time.
const LAST: Duration = Duration::from_millis(20);

/// A connection whose both ends are known.
pub(super) struct Connection {
    pub stream: Stream,
    pub seals: Seals,
}

impl Connection {
    pub fn send(&mut self, frame: &Frame, patience: Duration) -> io::Result<()> {
        frame.write(&mut self.stream.until(Instant::now() + patience), &mut self.seals.sent)
    }

    pub fn receive(&mut self, patience: Duration) -> io::Result<Frame> {
        Frame::read(&mut self.stream.until(Instant::now() + patience), &mut self.seals.received)
    }
}

pub(super) fn version() -> String {
    env!("CARGO_PKG_VERSION").to_owned()
}

/// The error of ranks that do not meet.
pub(super) fn failed(why: String, place: &JoinOptions) -> ExecError {
    let help = match &place.transport {
        Transport::Host { advice, .. } => advice.clone(),
        Transport::Network { address, .. } => {
            let ports = place.ports();
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

/// The answer of rank 0 to one that it knows.
pub(super) enum Answer {
    Welcome(Connection),
    /// It is of another run: the one that is looked for may be at another port.
    Elsewhere,
    Refused(String),
}

/// Returns the connection of another rank to rank 0. Whoever else listens where rank 0 should is told of in the end, and
/// changes nothing until then.
pub(super) fn look(place: &JoinOptions) -> Result<Connection, ExecError> {
    let deadline = Instant::now() + place.timeout;
    let (mut stranger, mut last) = (None, String::from("nobody listens"));
    if let Transport::Host { folder, .. } = &place.transport {
        // What is wrong with the folder does not change by waiting, as the address of a host may.
        local::address(folder, &place.job).map_err(|why| failed(why, place))?;
    }
    loop {
        let addresses = addresses(place).unwrap_or_else(|why| {
            last = why;
            Vec::new()
        });
        for (index, address) in addresses {
            let left = deadline.saturating_duration_since(Instant::now());
            let patience = if index == 0 { PATIENCE } else { FURTHER };
            match connect(&address, place, left.clamp(LAST, patience)) {
                Ok(Answer::Welcome(connection)) => return Ok(connection),
                Ok(Answer::Refused(why)) => return Err(failed(format!("rank 0 refused: {why}"), place)),
                Ok(Answer::Elsewhere) => last = format!("another run listens at {address}"),
                Err(Stranger::Unknown) => stranger = Some(address),
                Err(Stranger::Unreachable(error)) => {
                    // That nobody listens at a port says nothing of one where somebody does.
                    if !matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::NotFound) {
                        last = format!("{address}: {error}");
                    }
                }
            }
        }
        if Instant::now() > deadline {
            let why = match (&stranger, &place.transport) {
                (None, _) => last,
                (Some(address), Transport::Host { .. }) => format!("what listens at {address} is no rank of this run"),
                (Some(address), Transport::Network { .. }) => format!(
                    "whoever listens at {address} does not know the secret: another program has the port, or rank 0 has \
                     another secret"
                ),
            };
            let at = match &place.transport {
                Transport::Host { .. } => "on this host",
                Transport::Network { address, .. } => &format!("at {address}"),
            };
            let why = format!("rank {} did not find rank 0 {at} within {:?}: {why}", place.rank, place.timeout);
            return Err(failed(why, place));
        }
        std::thread::sleep(ROUND);
    }
}

/// The addresses where rank 0 may be, each with the number of its port; or why none is known.
fn addresses(place: &JoinOptions) -> Result<Vec<(usize, Address)>, String> {
    match &place.transport {
        Transport::Host { folder, .. } => Ok(vec![(0, local::address(folder, &place.job)?)]),
        Transport::Network { address, .. } => {
            let found = resolve(address)?;
            let each = place.ports().into_iter().enumerate();
            let each = each.flat_map(|(index, port)| found.iter().map(move |&ip| (index, (ip, port).into())));
            Ok(each.map(|(index, address)| (index, Address::Network(address))).collect())
        }
    }
}

/// Connects to an address, and says who this is to one that proves to be rank 0.
pub(super) fn connect(address: &Address, place: &JoinOptions, patience: Duration) -> Result<Answer, Stranger> {
    let hello = Hello { version: version(), job: place.job.clone(), rank: place.rank, world: place.world };
    let mut stream = Stream::connect(address, patience).map_err(Stranger::Unreachable)?;
    let seals = introduce(&mut stream, place.key(), &hello, Instant::now() + PATIENCE)?;
    let mut connection = Connection { stream, seals };
    let answer = connection.receive(PATIENCE).map_err(Stranger::Unreachable)?;
    match answer.kind {
        FrameKind::Welcome => Ok(Answer::Welcome(connection)),
        FrameKind::Elsewhere => Ok(Answer::Elsewhere),
        FrameKind::Refused => Ok(Answer::Refused(answer.text)),
        _ => Err(Stranger::Unknown),
    }
}

/// The addresses of a host.
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
