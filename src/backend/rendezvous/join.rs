//! How the processes of a run find each other: rank 0 listens, the others look for it, and each says who it is.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::exec::ExecError;

use super::frame::exactly;
use super::{Place, start};

/// What a conversation begins with.
const MAGIC: [u8; 8] = *b"aorta\0/1";

/// Bytes of what is said before both know each other.
const HELLO: usize = 4096;

/// How long one that has connected may take to say who it is.
const PATIENCE: Duration = Duration::from_secs(5);

/// Between two looks at who has connected.
const PAUSE: Duration = Duration::from_millis(20);

/// Between two rounds of looking for rank 0.
const ROUND: Duration = Duration::from_millis(50);

/// Strangers that may be talked to at once.
const STRANGERS: usize = 64;

/// Refusals that are told.
const TOLD: usize = 4;

/// Who wants to come in.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Hello {
    version: String,
    job: String,
    rank: u32,
    world: u32,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Answer {
    Welcome,
    /// Another run: the one that is looked for may be at another port.
    Elsewhere,
    Refused(String),
}

fn version() -> String {
    env!("CARGO_PKG_VERSION").to_owned()
}

fn failed(why: String, place: &Place) -> ExecError {
    let ports = place.ports();
    let (first, last) = (ports.first().copied().unwrap_or(0), ports.last().copied().unwrap_or(0));
    let help = format!(
        "rank 0 listens at {} on the first free port of {first} to {last}: let the hosts reach it there, or set \
         MASTER_ADDR and MASTER_PORT; `--config rendezvous=…` changes how long ranks wait",
        place.address
    );
    ExecError::Rendezvous { why, help }
}

/// The connections of rank 0, by rank: it lets the others in until all are there.
pub(super) fn listen(place: &Place) -> Result<BTreeMap<u32, TcpStream>, ExecError> {
    let deadline = Instant::now() + place.timeout;
    let listener = bind(place)?;
    let (sender, receiver) = channel();
    let talks = Arc::new(AtomicUsize::new(0));
    let mut door = Door { place, come: BTreeMap::new(), refused: Vec::new() };
    while door.come.len() + 1 < place.world as usize {
        if Instant::now() > deadline {
            return Err(door.missing());
        }
        match listener.accept() {
            Ok((stream, _)) if talks.load(Ordering::Relaxed) < STRANGERS => {
                talks.fetch_add(1, Ordering::Relaxed);
                let (sender, ended) = (sender.clone(), talks.clone());
                let talk = move || {
                    greet(stream, &sender);
                    ended.fetch_sub(1, Ordering::Relaxed);
                };
                if start(talk).is_err() {
                    talks.fetch_sub(1, Ordering::Relaxed);
                }
            }
            // Nobody comes, or too many: both are over some time.
            Ok(_) | Err(_) => door.open_for(&receiver),
        }
    }
    Ok(door.come)
}

/// Takes the first free port of the place.
fn bind(place: &Place) -> Result<TcpListener, ExecError> {
    let named = place.address.parse().ok().or_else(|| {
        let found = resolve(&place.address, 0).ok()?;
        found.first().map(SocketAddr::ip)
    });
    let here = |ip: &IpAddr| ip.is_loopback() && (place.address == "localhost" || place.address.parse() == Ok(*ip));
    let host = match named {
        // Nobody comes from another machine.
        Some(ip) if here(&ip) => ip,
        // A machine may know its own name as an address that others do not: any of its addresses will do.
        Some(IpAddr::V6(_)) => Ipv6Addr::UNSPECIFIED.into(),
        _ => Ipv4Addr::UNSPECIFIED.into(),
    };
    let mut why = String::new();
    for port in place.ports() {
        match TcpListener::bind((host, port)).and_then(|found| found.set_nonblocking(true).map(|()| found)) {
            Ok(listener) => return Ok(listener),
            Err(error) => why = format!("port {port}: {error}"),
        }
    }
    Err(failed(format!("rank 0 can listen nowhere: {why}"), place))
}

/// Hears who has connected. A stranger is left without an answer.
fn greet(mut stream: TcpStream, sender: &Sender<(Hello, TcpStream)>) {
    if let Ok(hello) = stream.set_nonblocking(false).and_then(|()| hear(&mut stream)) {
        // Where nobody listens any more, all are there.
        let _ = sender.send((hello, stream));
    }
}

/// The side of rank 0.
struct Door<'a> {
    place: &'a Place,
    come: BTreeMap<u32, TcpStream>,
    refused: Vec<String>,
}

impl Door<'_> {
    /// Lets in who has said who it is, or waits for a moment.
    fn open_for(&mut self, receiver: &Receiver<(Hello, TcpStream)>) {
        let Ok((hello, mut stream)) = receiver.recv_timeout(PAUSE) else { return };
        let answer = self.answer(&hello);
        if let Answer::Refused(why) = &answer
            && self.refused.len() < TOLD
        {
            self.refused.push(why.clone());
        }
        let said = say(&mut stream, &answer);
        if answer == Answer::Welcome && said.is_ok() {
            self.come.insert(hello.rank, stream);
        }
    }

    fn answer(&self, hello: &Hello) -> Answer {
        let place = self.place;
        if hello.job != place.job {
            return Answer::Elsewhere;
        }
        let why = if hello.version != version() {
            format!("rank {} is aorta {}, and rank 0 is {}", hello.rank, hello.version, version())
        } else if hello.world != place.world {
            format!("rank {} knows of {} ranks, and rank 0 of {}", hello.rank, hello.world, place.world)
        } else if hello.rank == 0 || hello.rank >= place.world {
            format!("there is no place for a second rank {} among {}", hello.rank, place.world)
        } else if self.come.contains_key(&hello.rank) {
            format!("two processes say that they are rank {}", hello.rank)
        } else {
            return Answer::Welcome;
        };
        Answer::Refused(why)
    }

    fn missing(&self) -> ExecError {
        let missing: Vec<u32> = (1..self.place.world).filter(|rank| !self.come.contains_key(rank)).collect();
        let ranks = match &missing[..] {
            [one] => format!("rank {one}"),
            many => format!("ranks {}", many.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")),
        };
        let mut why = format!("{ranks} of {} did not come within {:?}", self.place.world, self.place.timeout);
        if !self.refused.is_empty() {
            why += &format!("; refused: {}", self.refused.join("; "));
        }
        failed(why, self.place)
    }
}

/// The connection of another rank to rank 0.
pub(super) fn look(place: &Place) -> Result<TcpStream, ExecError> {
    let deadline = Instant::now() + place.timeout;
    let hello = Hello { version: version(), job: place.job.clone(), rank: place.rank, world: place.world };
    let mut last = String::from("nobody listens");
    loop {
        let addresses = resolve(&place.address, 0).unwrap_or_else(|why| {
            last = why;
            Vec::new()
        });
        let each = place.ports().into_iter().flat_map(|port| addresses.iter().map(move |at| (at.ip(), port)));
        for address in each.map(SocketAddr::from) {
            match knock(address, &hello, deadline) {
                Ok((stream, Answer::Welcome)) => return Ok(stream),
                Ok((_, Answer::Refused(why))) => return Err(failed(format!("rank 0 refused: {why}"), place)),
                Ok((_, Answer::Elsewhere)) => last = format!("another run listens at {address}"),
                // That nobody listens at a port says nothing of one where somebody does.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(error) => last = format!("{address}: {error}"),
            }
        }
        if Instant::now() > deadline {
            let (rank, timeout) = (place.rank, place.timeout);
            let why = format!("rank {rank} did not find rank 0 at {} within {timeout:?}: {last}", place.address);
            return Err(failed(why, place));
        }
        std::thread::sleep(ROUND);
    }
}

/// Says at an address who this is. Behind the deadline nobody is waited for any more.
fn knock(address: SocketAddr, hello: &Hello, deadline: Instant) -> io::Result<(TcpStream, Answer)> {
    let left = deadline.saturating_duration_since(Instant::now());
    let mut stream = TcpStream::connect_timeout(&address, left.clamp(PAUSE, PATIENCE))?;
    say(&mut stream, hello)?;
    let answer = hear(&mut stream)?;
    Ok((stream, answer))
}

fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
    let found = (host, port).to_socket_addrs().map(Vec::from_iter);
    found.map_err(|error| format!("the address of `{host}` is not known: {error}"))
}

fn say<T: Serialize>(stream: &mut TcpStream, what: &T) -> io::Result<()> {
    let text = serde_json::to_vec(what).map_err(io::Error::other)?;
    let mut all = MAGIC.to_vec();
    all.extend((text.len() as u32).to_le_bytes());
    all.extend(text);
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    stream.write_all(&all)
}

/// What the other side says before its time is over, however slowly it says it.
fn hear<T: DeserializeOwned>(stream: &mut TcpStream) -> io::Result<T> {
    let mut patient = Patient { stream, deadline: Instant::now() + PATIENCE };
    let mut begin = [0; MAGIC.len() + 4];
    patient.read_exact(&mut begin)?;
    let (magic, length) = begin.split_at(MAGIC.len());
    if magic != MAGIC {
        return Err(io::Error::other("what answers is no aorta"));
    }
    let length = u32::from_le_bytes(length.try_into().expect("four bytes"));
    let text = exactly(&mut patient, length, HELLO)?;
    serde_json::from_slice(&text).map_err(io::Error::other)
}

/// Reads until a moment, not for a time at each call.
struct Patient<'a> {
    stream: &'a mut TcpStream,
    deadline: Instant,
}

impl Read for Patient<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(into)
    }
}
