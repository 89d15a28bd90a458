//! Copies between ranks of one process: where their memory lies, which devices reach each other, and the flags by which
//! they meet on the devices, so that no host waits for another.
//!
//! The receiver raises the sender's flag when its own text has come to the place; the sender waits for it, copies, and
//! raises the receiver's flag; the receiver waits for that. A flag is lowered by who has waited for it, before it can be
//! raised again: its next raiser comes by the place only when this turn is complete. So the same calls serve every
//! iteration, also as a graph.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::exec::{ExecError, Image, ImageOp};
use crate::ops::{Copy as CopyLaunch, Direction, Launch, Peer, Sent};

use super::api::{Api, Call};

/// Bytes of a flag.
const FLAG: u64 = 4;

/// What a raised flag holds: each of its bytes is 1, so that a fill can write it.
pub const RAISED: u32 = 0x0101_0101;

/// The ranks of a process, each with what the others need to know of it.
pub struct Places<A: Api> {
    /// Their numbers, in order.
    ranks: Vec<u32>,
    places: Mutex<BTreeMap<u32, Arc<Place<A>>>>,
}

/// What other ranks need to know of one.
pub struct Place<A: Api> {
    pub api: Arc<A>,
    /// Where its flags begin, in its device's memory and in the host's.
    flags: [u64; 2],
    /// Where each copy that arrives is written, by the place of the text and the sender.
    targets: BTreeMap<(u32, u32), u64>,
}

/// The flags of a rank.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flags {
    /// A raised flag in the device's memory, from which others are raised.
    raised: u64,
    /// The flags in the device's memory, and those in the host's.
    device: u64,
    host: u64,
}

impl Flags {
    /// Makes the flags of an image, all lowered; none where nothing is copied to other ranks.
    pub fn new<A: Api>(api: &A, image: &Image, ranks: usize, stream: A::Stream) -> Call<Flags> {
        if image.crossings == 0 {
            return Ok(Flags::default());
        }
        let bytes = u64::from(image.crossings) * (1 + ranks as u64) * FLAG;
        let raised = api.allocate(FLAG + bytes)?;
        let host = api.allocate_pinned(bytes)?;
        // SAFETY: the memory was made for this, with that many bytes, and nothing uses it yet.
        unsafe {
            api.memset(raised, 0, FLAG + bytes, stream)?;
            api.memset(raised, RAISED as u8, FLAG, stream)?;
            std::ptr::write_bytes(host as *mut u8, 0, bytes as usize);
        }
        api.synchronize()?;
        Ok(Flags { raised, device: raised + FLAG, host })
    }

    /// Where a raised flag is, from which others are raised.
    pub fn raised(&self) -> u64 {
        self.raised
    }

    /// Gives their memory back.
    ///
    /// # Safety
    /// Nothing uses the flags any more, on this device or on others.
    pub unsafe fn free<A: Api>(&self, api: &A) {
        if self.raised != 0 {
            // SAFETY: both were made by `new`; the caller says that nothing uses them.
            unsafe {
                api.free(self.raised);
                api.free_pinned(self.host);
            }
        }
    }
}

impl<A: Api> Places<A> {
    pub fn new(images: &[Image]) -> Places<A> {
        Places { ranks: images.iter().map(|image| image.rank).collect(), places: Mutex::default() }
    }

    /// How many ranks there are.
    pub fn count(&self) -> usize {
        self.ranks.len()
    }

    /// Tells the others of a rank: its flags, and where its device's memory begins.
    pub fn publish(&self, api: &Arc<A>, image: &Image, flags: Flags, base: u64) {
        let mut targets = BTreeMap::new();
        for op in &image.ops {
            let Some(peer) = peer_of(image, op) else { continue };
            let outputs = &image.operands(op)[usize::from(peer.sends.is_some())..];
            targets.extend(peer.from.iter().zip(outputs).map(|(&from, at)| ((op.crossing, from), base + at.offset)));
        }
        let place = Place { api: api.clone(), flags: [flags.device, flags.host], targets };
        self.places.lock().unwrap_or_else(PoisonError::into_inner).insert(image.rank, Arc::new(place));
    }

    fn of(&self, rank: u32) -> Result<Arc<Place<A>>, ExecError> {
        let places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.get(&rank).cloned().ok_or_else(|| ExecError::Device {
            fault: format!("rank {rank} runs in another process, and copies reach only ranks of the same one"),
            help: Some("run all ranks in one process".to_owned()),
        })
    }

    /// The flag of a rank that says that what it sends may be written.
    fn ready(&self, place: &Place<A>, direct: bool, crossing: u32) -> u64 {
        self.flag(place, direct, crossing, 0)
    }

    /// The flag of a rank that says that what `from` sends has arrived.
    fn arrived(&self, place: &Place<A>, direct: bool, crossing: u32, from: u32) -> u64 {
        let sender = self.ranks.iter().position(|&rank| rank == from).unwrap_or(0);
        self.flag(place, direct, crossing, 1 + sender as u64)
    }

    fn flag(&self, place: &Place<A>, direct: bool, crossing: u32, slot: u64) -> u64 {
        let base = place.flags[usize::from(!direct)];
        base + (u64::from(crossing) * (1 + self.ranks.len() as u64) + slot) * FLAG
    }
}

/// What a rank does at an operation, where it is a copy between ranks.
pub fn peer_of<'a>(image: &'a Image, op: &ImageOp) -> Option<&'a Peer> {
    match image.works[op.work as usize].launches.first() {
        Some(Launch::Peer(peer)) => Some(peer),
        _ => None,
    }
}

/// One call of a copy between ranks.
pub enum Part<'a, A: Api> {
    /// Raises a flag of another rank.
    Raise { copy: CopyLaunch, source: u64, target: u64 },
    /// Waits for a flag of this rank, and lowers it.
    Await { flag: u64 },
    /// What is sent, where the device reaches the other.
    Send { launch: &'a Launch, target: u64 },
    /// What is sent by way of the host.
    Stage { copy: &'a CopyLaunch, target: u64, to: Arc<Place<A>> },
}

/// The calls of a rank in a copy between ranks, in their order.
pub fn parts<'a, A: Api>(
    places: &Places<A>,
    own: &Place<A>,
    raised: u64,
    (crossing, peer): (u32, &'a Peer),
) -> Result<Vec<Part<'a, A>>, ExecError> {
    let mut parts = Vec::new();
    let mut awaited = Vec::new();
    for &from in peer.from.iter().filter(|from| **from != peer.rank) {
        let sender = places.of(from)?;
        let direct = reach(own, &sender)?;
        parts.push(raise(raised, places.ready(&sender, direct, crossing), direct));
        awaited.push(places.arrived(own, direct, crossing, from));
    }
    if let Some(sent) = &peer.sends {
        send(places, own, raised, (crossing, peer.rank, sent), &mut parts)?;
    }
    parts.extend(awaited.into_iter().map(|flag| Part::Await { flag }));
    Ok(parts)
}

fn send<'a, A: Api>(
    places: &Places<A>,
    own: &Place<A>,
    raised: u64,
    (crossing, rank, sent): (u32, u32, &'a Sent),
    parts: &mut Vec<Part<'a, A>>,
) -> Result<(), ExecError> {
    let Sent { to, launch } = sent;
    let receiver = places.of(*to)?;
    let target = receiver.targets.get(&(crossing, rank)).copied();
    let target = target.ok_or_else(|| ExecError::Device {
        fault: format!("rank {to} does not come by a copy of rank {rank}: a bug in what links them"),
        help: None,
    })?;
    if *to == rank {
        parts.push(Part::Send { launch, target });
        return Ok(());
    }
    let direct = reach(own, &receiver)?;
    parts.push(Part::Await { flag: places.ready(own, direct, crossing) });
    parts.push(match (direct, &**launch) {
        (true, _) => Part::Send { launch, target },
        (false, Launch::Copy(copy)) => Part::Stage { copy, target, to: receiver.clone() },
        (false, _) => {
            return Err(ExecError::Device {
                fault: format!(
                    "the device of rank {rank} does not reach the memory of rank {to}, so no kernel can copy"
                ),
                help: Some("write `via: dma`, which goes by way of the host".to_owned()),
            });
        }
    });
    parts.push(raise(raised, places.arrived(&receiver, direct, crossing, rank), direct));
    Ok(())
}

/// Whether two devices write each other's memory; from then on this one may.
fn reach<A: Api>(own: &Place<A>, other: &Place<A>) -> Result<bool, ExecError> {
    let reach = || -> Call<bool> {
        if !(own.api.reaches(&other.api)? && other.api.reaches(&own.api)?) {
            return Ok(false);
        }
        own.api.reach(&other.api).map(|()| true)
    };
    reach().map_err(|fault| ExecError::Device { fault: fault.to_string(), help: None })
}

/// A flag is raised by a copy of its own, which the stream makes when what stands before it is complete.
fn raise<'a, A: Api>(raised: u64, target: u64, direct: bool) -> Part<'a, A> {
    let direction = if direct { Direction::DeviceToDevice } else { Direction::DeviceToHost };
    let copy = CopyLaunch {
        source: 0,
        target: 1,
        direction,
        pageable: false,
        row_bytes: FLAG,
        rows: 1,
        source_pitch: FLAG,
        target_pitch: FLAG,
    };
    Part::Raise { copy, source: raised, target }
}

/// Which way the copies of an image take, one line for each rank that gets some.
pub fn notes<A: Api>(places: &Places<A>, image: &Image) -> Result<Vec<String>, ExecError> {
    let sent = image.ops.iter().filter_map(|op| peer_of(image, op)?.sends.as_ref()).map(|sent| sent.to);
    let receivers: std::collections::BTreeSet<u32> = sent.filter(|to| *to != image.rank).collect();
    let own = places.of(image.rank)?;
    let note = |to: u32| -> Result<String, ExecError> {
        Ok(match reach(&own, places.of(to)?.as_ref())? {
            true => format!("copies to rank {to}: direct, from device to device"),
            false => format!("copies to rank {to}: staged through the host, since the devices do not reach each other"),
        })
    };
    receivers.into_iter().map(note).collect()
}

impl<A: Api> Places<A> {
    /// What a rank has published of itself.
    pub fn own(&self, image: &Image) -> Result<Arc<Place<A>>, ExecError> {
        self.of(image.rank)
    }
}
