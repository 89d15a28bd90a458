//! Mutual authentication of two processes, before either trusts anything from the other.
//!
//! The connecting process sends a nonce. Rank 0 answers with its own nonce and a proof that it knows the secret. Then
//! the other process sends its rank and run, with the same proof. Both proofs and the keys of both directions are
//! derived from everything sent before, with a label for each use. So recorded or reflected messages prove nothing, and
//! keys are bound to this rank, run and connection.

use std::io::{self, ErrorKind, Read, Write};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::seal::{Seal, TAG, holds, tag};
use super::stream::Socket;

/// First bytes that each side sends: the protocol and its version.
const MAGIC: [u8; 8] = *b"aorta\0/2";

/// Bytes of a nonce.
const NONCE: usize = 32;

/// Bytes that each side sends first: magic and nonce.
const OPENING_BYTES: usize = MAGIC.len() + NONCE;

/// Maximum bytes of a rank's introduction.
const MAX_HELLO_BYTES: usize = 4096;

/// Time in which a connection must be authenticated.
pub const AUTHENTICATION_TIMEOUT: Duration = Duration::from_secs(5);

/// Time in which the first bytes of a connection must arrive; a rank sends them at once.
const FIRST_BYTES_TIMEOUT: Duration = Duration::from_secs(2);

/// Identifies the connecting rank and its run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    pub version: String,
    pub job: String,
    pub rank: u32,
    pub world: u32,
}

/// The seals of both directions of a connection.
pub struct Seals {
    pub sent: Seal,
    pub received: Seal,
}

fn opening() -> io::Result<Vec<u8>> {
    let mut all = MAGIC.to_vec();
    all.resize(OPENING_BYTES, 0);
    getrandom::fill(&mut all[MAGIC.len()..]).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(all)
}

/// Labels of the two proofs, so that neither can serve as the other.
const FIRST: &str = "aorta: rank 0 knows the secret";
const OTHERS: &str = "aorta: another rank knows the secret";

/// Derives the keys of both directions: to rank 0, and from rank 0.
fn keys(secret: &[u8], openings: &[u8], hello: &[u8]) -> (Seal, Seal) {
    let key = |label| Seal::new(tag(secret, label, &[openings, hello]));
    (key("aorta: frames to rank 0"), key("aorta: frames from rank 0"))
}

/// Reason why a rank could not connect to a listener.
#[derive(Debug)]
pub enum ConnectError {
    /// The listener does not know the secret, or is not rank 0 of an aorta run.
    Unknown,
    /// The connection could not be made.
    Unreachable(io::Error),
}

/// Authenticates to rank 0 and checks its proof. Reads nothing but nonce and proof from the other side before that.
pub fn introduce(stream: &mut Socket, secret: &[u8], hello: &Hello, deadline: Instant) -> Result<Seals, ConnectError> {
    let opening_of_client = opening().map_err(ConnectError::Unreachable)?;
    let hello = serde_json::to_vec(hello).expect("plain data can be written");
    let mut stream = stream.until(deadline);
    let mut answer = [0; OPENING_BYTES + TAG];
    let answered = stream.write_all(&opening_of_client).and_then(|()| stream.read_exact(&mut answer));
    let (other, proof) = answer.split_at(OPENING_BYTES);
    let openings = [&opening_of_client, other].concat();
    if answered.is_err() || !other.starts_with(&MAGIC) || !holds(secret, FIRST, &[&openings], proof) {
        return Err(ConnectError::Unknown);
    }
    let proof = tag(secret, OTHERS, &[&openings, &hello]);
    let introduction = [(hello.len() as u32).to_le_bytes().as_slice(), &hello, &proof].concat();
    stream.write_all(&introduction).map_err(|_| ConnectError::Unknown)?;
    let (sent, received) = keys(secret, &openings, &hello);
    Ok(Seals { sent, received })
}

/// A process that has connected to rank 0 and is not yet authenticated. It uses a few KiB at most, and nothing that it
/// sends is interpreted.
pub struct PendingPeer {
    stream: Socket,
    /// Address of the process; `None` for a process on this host.
    pub from: Option<IpAddr>,
    since: Instant,
    received: Vec<u8>,
    /// The openings of both sides, one after the other; `None` until the other side's has arrived.
    openings: Option<Vec<u8>>,
}

/// State of a pending connection after it has processed the data that had arrived.
pub enum PendingPeerState {
    /// More data must arrive.
    Pending(PendingPeer),
    /// The peer is authenticated.
    Known(Hello, Socket, Seals),
    /// The peer did not authenticate in time or correctly; its connection is closed.
    Rejected,
}

impl PendingPeer {
    /// Begins the authentication of a new connection.
    pub fn new(stream: Socket) -> PendingPeer {
        let from = stream.from();
        PendingPeer { stream, from, since: Instant::now(), received: Vec::new(), openings: None }
    }

    /// Processes the data that has arrived, without blocking.
    pub fn advance(mut self, secret: &[u8]) -> PendingPeerState {
        let timeout = if self.openings.is_none() { FIRST_BYTES_TIMEOUT } else { AUTHENTICATION_TIMEOUT };
        if self.since.elapsed() > timeout {
            return PendingPeerState::Rejected;
        }
        match self.take(secret) {
            Ok(Some((hello, seals))) => match self.stream.set_nonblocking(false) {
                Ok(()) => PendingPeerState::Known(hello, self.stream, seals),
                Err(_) => PendingPeerState::Rejected,
            },
            Ok(None) => PendingPeerState::Pending(self),
            Err(_) => PendingPeerState::Rejected,
        }
    }

    fn take(&mut self, secret: &[u8]) -> io::Result<Option<(Hello, Seals)>> {
        if self.openings.is_none() {
            if !self.fill(OPENING_BYTES)? {
                return Ok(None);
            }
            if !self.received.starts_with(&MAGIC) {
                return Err(ErrorKind::InvalidData.into());
            }
            let opening_of_server = opening()?;
            let openings = [self.received.as_slice(), &opening_of_server].concat();
            let answer = [opening_of_server.as_slice(), &tag(secret, FIRST, &[&openings])].concat();
            // The send buffer of a new connection is empty, so this does not block.
            self.stream.write_all(&answer)?;
            self.openings = Some(openings);
            self.received.clear();
        }
        if !self.fill(4)? {
            return Ok(None);
        }
        let length = u32::from_le_bytes(self.received[..4].try_into().expect("four bytes")) as usize;
        if length > MAX_HELLO_BYTES {
            return Err(ErrorKind::InvalidData.into());
        }
        if !self.fill(4 + length + TAG)? {
            return Ok(None);
        }
        let openings = self.openings.as_deref().expect("it has openings");
        let (hello, proof) = self.received[4..].split_at(length);
        if !holds(secret, OTHERS, &[openings, hello], proof) {
            return Err(ErrorKind::PermissionDenied.into());
        }
        let (received, sent) = keys(secret, openings, hello);
        let hello = serde_json::from_slice(hello).map_err(io::Error::other)?;
        Ok(Some((hello, Seals { sent, received })))
    }

    /// Reads until `length` bytes have been received; `false` if they have not all arrived yet.
    fn fill(&mut self, length: usize) -> io::Result<bool> {
        let mut buffer = [0; 512];
        while self.received.len() < length {
            let most = buffer.len().min(length - self.received.len());
            match self.stream.read(&mut buffer[..most]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => self.received.extend(&buffer[..read]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}
