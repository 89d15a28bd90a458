//! Copies between ranks of one host: where their memory lies, which devices reach each other, and the flags by which they
//! meet on the devices, so that no host waits for another. Ranks in other processes are told of by [`super::inter_process`].
//!
//! The receiver raises the sender's flag when its own text has come to the place; the sender waits for it, copies, and
//! raises the receiver's flag; the receiver waits for that. A flag is lowered by who has waited for it, before it can be
//! raised again: its next raiser comes by the place only when this turn is complete. So the same calls serve every
//! iteration, also as a graph.
//!
//! A meeting takes about as long as a copy of some megabytes. Copies that stand in a row on the receiver's stream, all from
//! one stream of the sender, share one: the receiver is ready for all when it is for the first, and nothing of it looks at
//! what has arrived before the last. Only where each operation is observed do they meet one by one.
//!
//! No step can be left out because iterations do not overlap: they do, where an iteration waits for the end of the last
//! one alone, and then only the first flag keeps a sender from what is still read.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::backend::crossings::{Crossings, Sharing, peer_of};
use crate::exec::{ExecError, Image, Peers};
use crate::ops::{Copy as CopyLaunch, Launch, Peer, Sent, Source, kernel};

use super::api::{Api, Call, Step};
use super::flags::{FLAG, Flags};

/// The kernel of the steps, where streams have none of their own: it raises a flag, then awaits one and lowers it. What
/// stood before it is complete, and what another device wrote before it raised the flag is seen by what comes behind. It
/// looks at the clock between its looks at the flag, so that these do not fill the link to the host.
pub fn source() -> Arc<Source> {
    let body = "  __threadfence_system();\n  if (raised != 0) *(volatile u32*)raised = 1u;\n  if (awaited == 0) return;\n  \
                while (*(volatile u32*)awaited == 0u) WHOLE_CLOCK();\n  *(volatile u32*)awaited = 0u;\n  __threadfence_system();\n";
    kernel::source("meet", "", &["u32* raised".to_owned(), "u32* awaited".to_owned()], body)
}

/// The ranks that meet, each with what the others need to know of it.
pub struct PeerDevices<A: Api> {
    /// Their numbers, in order.
    ranks: Vec<u32>,
    peers: Option<Arc<dyn Peers>>,
    places: Mutex<BTreeMap<u32, Arc<PeerDevice<A>>>>,
}

/// What other ranks need to know of one.
pub struct PeerDevice<A: Api> {
    /// Its device; nothing where another process has it.
    pub api: Option<Arc<A>>,
    /// Where its flags begin: those for ranks whose devices it reaches, and the others.
    flags: [u64; 2],
    /// Where its device's memory begins.
    base: u64,
    crossings: Crossings,
}

impl<A: Api> PeerDevices<A> {
    /// Those of this process, or one of a world whose other ranks have processes of their own.
    pub fn new(images: &[Image], peers: Option<Arc<dyn Peers>>) -> PeerDevices<A> {
        let ranks = match &peers {
            Some(peers) => (0..peers.world()).collect(),
            None => images.iter().map(|image| image.rank).collect(),
        };
        PeerDevices { ranks, peers, places: Mutex::default() }
    }

    /// The processes of the other ranks, where each has one.
    pub fn peers(&self) -> Option<&dyn Peers> {
        self.peers.as_deref()
    }

    /// How many ranks there are.
    pub fn count(&self) -> usize {
        self.ranks.len()
    }

    /// Tells the others of a rank: its flags, and where its device's memory begins.
    pub fn publish(&self, api: &Arc<A>, image: &Image, flags: &Flags, base: u64) {
        let place = PeerDevice { api: Some(api.clone()), flags: flags.begin(), base, crossings: Crossings::of(image) };
        self.insert(image.rank, place);
    }

    /// A rank of another process: where its flags and its device's memory begin here.
    pub fn publish_other(&self, rank: u32, flags: u64, base: u64, crossings: Crossings) {
        self.insert(rank, PeerDevice { api: None, flags: [flags; 2], base, crossings });
    }

    fn insert(&self, rank: u32, place: PeerDevice<A>) {
        self.places.lock().unwrap_or_else(PoisonError::into_inner).insert(rank, Arc::new(place));
    }

    fn of(&self, rank: u32) -> Result<Arc<PeerDevice<A>>, ExecError> {
        let places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.get(&rank).cloned().ok_or_else(|| ExecError::Device {
            fault: format!("rank {rank} has not said where its memory is: a bug in what brings ranks together"),
            help: None,
        })
    }

    /// Which flags a copy needs: that the receiver is ready, that it has arrived. What goes by way of the host needs both.
    fn needed(sender: &PeerDevice<A>, (to, receiver): (u32, &PeerDevice<A>), direct: bool, crossing: u32) -> [bool; 2] {
        match direct {
            true => receiver.crossings.needs(to, &sender.crossings, crossing),
            false => [true; 2],
        }
    }

    /// The flag of a rank that says that what it sends may be written.
    fn ready(&self, place: &PeerDevice<A>, direct: bool, crossing: u32) -> u64 {
        self.flag(place, direct, crossing, 0)
    }

    /// The flag of a rank that says that what `from` sends has arrived.
    fn arrived(&self, place: &PeerDevice<A>, direct: bool, crossing: u32, from: u32) -> u64 {
        let sender = self.ranks.iter().position(|&rank| rank == from).unwrap_or(0);
        self.flag(place, direct, crossing, 1 + sender as u64)
    }

    fn flag(&self, place: &PeerDevice<A>, direct: bool, crossing: u32, slot: u64) -> u64 {
        let base = place.flags[usize::from(!direct)];
        base + (u64::from(crossing) * (1 + self.ranks.len() as u64) + slot) * FLAG
    }
}

/// One part of a copy between ranks.
pub enum Part<'a, A: Api> {
    /// Flags of other ranks that are raised, and of this rank that are awaited, in this order.
    Meet(Vec<Step>),
    /// What is sent, where the device reaches the other.
    Send { launch: &'a Launch, target: u64 },
    /// What is sent by way of the host.
    Stage { copy: &'a CopyLaunch, target: u64, to: Arc<A> },
}

/// The parts of a rank in a copy between ranks, in their order.
pub fn parts<'a, A: Api>(
    places: &PeerDevices<A>,
    own: &PeerDevice<A>,
    (crossing, peer): (u32, &'a Peer),
    sharing: Sharing,
) -> Result<Vec<Part<'a, A>>, ExecError> {
    let mut parts = Vec::new();
    let (mut first, mut last) = (Vec::new(), Vec::new());
    let needed = |sender: &PeerDevice<A>, receiver: (u32, &PeerDevice<A>), direct: bool| match sharing {
        Sharing::Rows => PeerDevices::needed(sender, receiver, direct, crossing),
        Sharing::Nothing => [true; 2],
    };
    for &from in peer.from.iter().filter(|from| **from != peer.rank) {
        let sender = places.of(from)?;
        let direct = reach(own, &sender)?;
        let [ready, arrived] = needed(&sender, (peer.rank, own), direct);
        first.extend(ready.then(|| Step::Raise(places.ready(&sender, direct, crossing))));
        last.extend(arrived.then(|| Step::Await(places.arrived(own, direct, crossing, from))));
    }
    if let Some(sent) = &peer.sends {
        let (part, met) = send(places, own, (crossing, peer.rank, sent))?;
        if let Some(Met { receiver, direct, ready, arrived }) = met {
            let [awaits, raises] = needed(own, (sent.to, &receiver), direct);
            first.extend(awaits.then_some(Step::Await(ready)));
            last.splice(..0, raises.then_some(Step::Raise(arrived)));
        }
        parts.extend([Part::Meet(std::mem::take(&mut first)), part]);
    }
    first.append(&mut last);
    parts.push(Part::Meet(first));
    parts.retain(|part| !matches!(part, Part::Meet(steps) if steps.is_empty()));
    Ok(parts)
}

/// Where a rank meets another that it sends to: the flag that lets it, and the flag that tells of it.
struct Met<A: Api> {
    receiver: Arc<PeerDevice<A>>,
    direct: bool,
    ready: u64,
    arrived: u64,
}

/// What a rank sends, and, where it goes to another rank, how they meet.
fn send<'a, A: Api>(
    places: &PeerDevices<A>,
    own: &PeerDevice<A>,
    (crossing, rank, sent): (u32, u32, &'a Sent),
) -> Result<(Part<'a, A>, Option<Met<A>>), ExecError> {
    let Sent { to, launch } = sent;
    let receiver = places.of(*to)?;
    let target = receiver.crossings.target(crossing, rank).map(|offset| receiver.base + offset);
    let target = target.ok_or_else(|| ExecError::Device {
        fault: format!("rank {to} does not come by a copy of rank {rank}: a bug in what links them"),
        help: None,
    })?;
    if *to == rank {
        return Ok((Part::Send { launch, target }, None));
    }
    let direct = reach(own, &receiver)?;
    let (ready, arrived) = (places.ready(own, direct, crossing), places.arrived(&receiver, direct, crossing, rank));
    let part = match (&**launch, &receiver.api) {
        _ if direct => Part::Send { launch, target },
        (Launch::Copy(copy), Some(to)) => Part::Stage { copy, target, to: to.clone() },
        _ => {
            return Err(ExecError::Device {
                fault: format!(
                    "the device of rank {rank} does not reach the memory of rank {to}, so no kernel can copy"
                ),
                help: Some("write `via: dma`, which goes by way of the host".to_owned()),
            });
        }
    };
    Ok((part, Some(Met { receiver, direct, ready, arrived })))
}

/// Whether two devices write each other's memory; from then on this one may.
fn reach<A: Api>(own: &PeerDevice<A>, other: &PeerDevice<A>) -> Result<bool, ExecError> {
    // What another process has told of is open.
    let (Some(api), Some(other)) = (&own.api, &other.api) else { return Ok(true) };
    let reach = || -> Call<bool> {
        if !(api.reaches(other)? && other.reaches(api)?) {
            return Ok(false);
        }
        api.reach(other).map(|()| true)
    };
    reach().map_err(|fault| ExecError::Device { fault: fault.to_string(), help: None })
}

/// Which way the copies of an image take, one line for each rank that gets some, and how many share a meeting.
pub fn notes<A: Api>(places: &PeerDevices<A>, image: &Image) -> Result<Vec<String>, ExecError> {
    let sent = image.ops.iter().filter_map(|op| peer_of(image, op)?.sends.as_ref()).map(|sent| sent.to);
    let receivers: std::collections::BTreeSet<u32> = sent.filter(|to| *to != image.rank).collect();
    let own = places.of(image.rank)?;
    let note = |to: u32| -> Result<String, ExecError> {
        let other = places.of(to)?;
        let link = own.api.as_ref().zip(other.api.as_ref()).and_then(|(own, other)| own.link(other));
        let link = match other.api {
            Some(_) => link.map(|link| format!(" ({link})")).unwrap_or_default(),
            None => ", in its process".to_owned(),
        };
        Ok(match reach(&own, &other)? {
            true => format!("copies to rank {to}: direct, from device to device{link}"),
            false => {
                format!("copies to rank {to}: staged through the host, since the devices do not reach each other{link}")
            }
        })
    };
    let mut notes = receivers.into_iter().map(note).collect::<Result<Vec<_>, _>>()?;
    notes.extend(shared(places, image, &own)?);
    Ok(notes)
}

/// How many copies to a rank share the meeting of the one before.
fn shared<A: Api>(places: &PeerDevices<A>, image: &Image, own: &PeerDevice<A>) -> Result<Option<String>, ExecError> {
    let (mut shared, mut all) = (0, 0);
    for op in &image.ops {
        let from = peer_of(image, op).map(|peer| peer.from.as_ref()).unwrap_or_default();
        for &from in from.iter().filter(|from| **from != image.rank) {
            let sender = places.of(from)?;
            let [ready, _] = PeerDevices::needed(&sender, (image.rank, own), reach(own, &sender)?, op.crossing);
            shared += u32::from(!ready);
            all += 1;
        }
    }
    Ok((shared > 0).then(|| {
        format!(
            "copies from other ranks: {shared} of {all} stand in a row behind others and share their meeting; where \
             operations are observed, each meets by itself"
        )
    }))
}

impl<A: Api> PeerDevices<A> {
    /// What a rank has published of itself.
    pub fn own(&self, image: &Image) -> Result<Arc<PeerDevice<A>>, ExecError> {
        self.of(image.rank)
    }
}
