//! How two processes get to know each other, before either believes anything that the other says.
//!
//! The one that connects sends a fresh number. Rank 0 answers with one of its own and proves that it knows the secret; then
//! the other says which rank of which run it is, and proves the same. Both proofs, and the keys of both directions, follow
//! from all that was said before, under a label for each use. So nothing that was recorded or reflected proves anything,
//! and the keys belong to this rank, this run and this connection.

use std::io::{self, ErrorKind, Read, Write};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::seal::{Seal, TAG, holds, tag};
use super::stream::Stream;

/// The first bytes of either side: the protocol and its version.
const MAGIC: [u8; 8] = *b"aorta\0/2";

/// Bytes of the fresh number of either side.
const NONCE: usize = 32;

/// Bytes that either side begins with.
const OPENING: usize = MAGIC.len() + NONCE;

/// Bytes at most of what a rank says of itself.
const HELLO: usize = 4096;

/// How long a connection may take until its rank is known.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// How long it may take to send its first bytes, which a rank does at once.
const SHORT: Duration = Duration::from_secs(2);

/// Which rank of which run connects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    pub version: String,
    pub job: String,
    pub rank: u32,
    pub world: u32,
}

/// The seals of a connection.
pub struct Seals {
    pub sent: Seal,
    pub received: Seal,
}

fn opening() -> io::Result<Vec<u8>> {
    let mut all = MAGIC.to_vec();
    all.resize(OPENING, 0);
    getrandom::fill(&mut all[MAGIC.len()..]).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(all)
}

/// The labels of both proofs.
const FIRST: &str = "aorta: rank 0 knows the secret";
const OTHERS: &str = "aorta: another rank knows the secret";

/// The keys to rank 0 and from it.
fn keys(secret: &[u8], begun: &[u8], hello: &[u8]) -> (Seal, Seal) {
    let key = |label| Seal::new(tag(secret, label, &[begun, hello]));
    (key("aorta: frames to rank 0"), key("aorta: frames from rank 0"))
}

/// Why there is no conversation with whoever listens.
#[derive(Debug)]
pub enum Stranger {
    /// It does not know the secret, or is no aorta.
    Unknown,
    /// The connection could not be made.
    Unreachable(io::Error),
}

/// The side of a rank that connects. Nothing that the other side sends is read but its number and its proof.
pub fn introduce(stream: &mut Stream, secret: &[u8], hello: &Hello, deadline: Instant) -> Result<Seals, Stranger> {
    let own = opening().map_err(Stranger::Unreachable)?;
    let hello = serde_json::to_vec(hello).expect("plain data can be written");
    let mut stream = stream.until(deadline);
    let mut answer = [0; OPENING + TAG];
    let heard = stream.write_all(&own).and_then(|()| stream.read_exact(&mut answer));
    let (other, proof) = answer.split_at(OPENING);
    let begun = [&own, other].concat();
    if heard.is_err() || !other.starts_with(&MAGIC) || !holds(secret, FIRST, &[&begun], proof) {
        return Err(Stranger::Unknown);
    }
    let proof = tag(secret, OTHERS, &[&begun, &hello]);
    let said = [(hello.len() as u32).to_le_bytes().as_slice(), &hello, &proof].concat();
    stream.write_all(&said).map_err(|_| Stranger::Unknown)?;
    let (sent, received) = keys(secret, &begun, &hello);
    Ok(Seals { sent, received })
}

/// A process that has connected to rank 0 and has not yet said who it is. Until it has proved
/// that it knows the secret it takes a few KiB at most, and nothing that it sends is understood.
pub struct Guest {
    stream: Stream,
    pub from: Option<IpAddr>,
    since: Instant,
    heard: Vec<u8>,
    /// What both sides have begun with; `None` until the guest has.
    begun: Option<Vec<u8>>,
}

/// How far a guest is.
pub enum Arrival {
    /// More has to come.
    Pending(Guest),
    /// It has proved that it knows the secret, and said who it is.
    Known(Hello, Stream, Seals),
    /// It has not, and is gone.
    Stranger,
}

impl Guest {
    pub fn new(stream: Stream) -> Guest {
        let from = stream.from();
        Guest { stream, from, since: Instant::now(), heard: Vec::new(), begun: None }
    }

    /// Takes what has come since the last time, and never waits.
    pub fn advance(mut self, secret: &[u8]) -> Arrival {
        let patience = if self.begun.is_none() { SHORT } else { PATIENCE };
        if self.since.elapsed() > patience {
            return Arrival::Stranger;
        }
        match self.take(secret) {
            Ok(Some((hello, seals))) => match self.stream.set_nonblocking(false) {
                Ok(()) => Arrival::Known(hello, self.stream, seals),
                Err(_) => Arrival::Stranger,
            },
            Ok(None) => Arrival::Pending(self),
            Err(_) => Arrival::Stranger,
        }
    }

    fn take(&mut self, secret: &[u8]) -> io::Result<Option<(Hello, Seals)>> {
        if self.begun.is_none() {
            if !self.fill(OPENING)? {
                return Ok(None);
            }
            if !self.heard.starts_with(&MAGIC) {
                return Err(ErrorKind::InvalidData.into());
            }
            let own = opening()?;
            let begun = [self.heard.as_slice(), &own].concat();
            let answer = [own.as_slice(), &tag(secret, FIRST, &[&begun])].concat();
            // A connection that has sent nothing before takes this at once.
            self.stream.write_all(&answer)?;
            self.begun = Some(begun);
            self.heard.clear();
        }
        if !self.fill(4)? {
            return Ok(None);
        }
        let length = u32::from_le_bytes(self.heard[..4].try_into().expect("four bytes")) as usize;
        if length > HELLO {
            return Err(ErrorKind::InvalidData.into());
        }
        if !self.fill(4 + length + TAG)? {
            return Ok(None);
        }
        let begun = self.begun.as_deref().expect("it has begun");
        let (hello, proof) = self.heard[4..].split_at(length);
        if !holds(secret, OTHERS, &[begun, hello], proof) {
            return Err(ErrorKind::PermissionDenied.into());
        }
        let (received, sent) = keys(secret, begun, hello);
        let hello = serde_json::from_slice(hello).map_err(io::Error::other)?;
        Ok(Some((hello, Seals { sent, received })))
    }

    /// Reads until that many bytes have been heard; `false` where they have not come yet.
    fn fill(&mut self, length: usize) -> io::Result<bool> {
        let mut buffer = [0; 512];
        while self.heard.len() < length {
            let most = buffer.len().min(length - self.heard.len());
            match self.stream.read(&mut buffer[..most]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => self.heard.extend(&buffer[..read]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}
