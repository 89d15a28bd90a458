//! Copies between ranks of one host: where their memory is, which devices can access each other, and the flags by which
//! they synchronize on the devices without the host. [`super::inter_process`] adds ranks of other processes.
//!
//! When the receiver's program order reaches the copy, the receiver raises the sender's flag. The sender waits for that
//! flag, copies, and raises the receiver's flag, for which the receiver waits. The rank that waits for a flag lowers
//! it. The flag cannot be raised again before that, because the rank that raises it next passes this point only once
//! this iteration is complete. So the same calls serve every iteration, also as a graph.
//!
//! A synchronization takes about as long as copying some megabytes. Consecutive copies on the receiver's stream that
//! come from one stream of the sender therefore share one: the receiver is ready for all of them when it is ready for
//! the first, and nothing reads the data before the last has arrived. In observed iterations each copy synchronizes
//! separately.
//!
//! The receiver's flag alone would be enough if iterations never overlapped. Iterations do overlap with `sync: end`, and
//! then only the sender's flag keeps the sender from overwriting data that the receiver is still reading.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::backend::crossings::{Crossings, SyncSharing, peer_of};
use crate::backend::gpu::api::{Api, Call, SyncStep};
use crate::base::threads::lock;
use crate::exec::{ExecError, Image, RankProcesses};
use crate::ops::{CopyLaunch, KernelSource, Launch, Peer, Sent, kernel};

use super::flags::{FLAG, Flags};

/// The kernel that executes steps on streams that cannot do so themselves: it raises one flag to a value, then awaits
/// another one and lowers it. Earlier work on the stream is complete before it starts, and later work sees the data
/// that the other device wrote before it raised the flag. The kernel waits between polls, so that polling does not
/// saturate the link to the host.
pub fn source() -> Arc<KernelSource> {
    let body = "  __threadfence_system();\n  if (raised != 0) *(volatile u32*)raised = value;\n  if (awaited == 0) return;\n  \
                while (*(volatile u32*)awaited == 0u) WHOLE_CLOCK();\n  *(volatile u32*)awaited = 0u;\n  __threadfence_system();\n";
    kernel::source("meet", "", &["u32* raised".to_owned(), "u32 value".to_owned(), "u32* awaited".to_owned()], body)
}

/// The step that raises a flag between ranks.
fn raise(flag: u64) -> SyncStep {
    SyncStep::Raise { flag, value: 1 }
}

/// The ranks that exchange data. Each rank publishes here how others reach its memory and flags.
pub struct PeerDevices<A: Api> {
    /// Rank numbers in ascending order.
    ranks: Vec<u32>,
    processes: Option<Arc<dyn RankProcesses>>,
    devices: Mutex<BTreeMap<u32, Arc<PeerDevice<A>>>>,
}

/// A rank's device, flags and memory, with the addresses by which other ranks access them.
pub struct PeerDevice<A: Api> {
    /// The rank's device; `None` if the rank runs in another process.
    pub api: Option<Arc<A>>,
    /// Addresses of the rank's flags: first for ranks whose devices it can access, then for the others.
    flags: [u64; 2],
    /// Base address of the rank's device memory.
    base: u64,
    crossings: Crossings,
}

impl<A: Api> PeerDevices<A> {
    /// Creates the list without any published rank. Without `processes`, the ranks are those of `images`; with `processes`,
    /// all ranks of the world, each in a process of its own.
    pub fn new(images: &[Image], processes: Option<Arc<dyn RankProcesses>>) -> PeerDevices<A> {
        let ranks = match &processes {
            Some(processes) => (0..processes.world()).collect(),
            None => images.iter().map(|image| image.rank).collect(),
        };
        PeerDevices { ranks, processes, devices: Mutex::default() }
    }

    /// The processes of the other ranks; `None` if this process runs all ranks.
    pub fn processes(&self) -> Option<&dyn RankProcesses> {
        self.processes.as_deref()
    }

    /// Number of ranks.
    pub fn count(&self) -> usize {
        self.ranks.len()
    }

    /// Publishes a rank of this process: its device, its flags, and the base address of its device memory.
    pub fn publish(&self, api: &Arc<A>, image: &Image, flags: &Flags, base: u64) {
        let device = PeerDevice { api: Some(api.clone()), flags: flags.begin(), base, crossings: Crossings::of(image) };
        self.insert(image.rank, device);
    }

    /// Publishes a rank of another process: the addresses in this process of its flags and of its device memory.
    pub fn publish_other(&self, rank: u32, flags: u64, base: u64, crossings: Crossings) {
        self.insert(rank, PeerDevice { api: None, flags: [flags; 2], base, crossings });
    }

    fn insert(&self, rank: u32, place: PeerDevice<A>) {
        lock(&self.devices).insert(rank, Arc::new(place));
    }

    fn of(&self, rank: u32) -> Result<Arc<PeerDevice<A>>, ExecError> {
        let devices = lock(&self.devices);
        devices.get(&rank).cloned().ok_or_else(|| ExecError::Device {
            fault: format!("rank {rank} has not published the address of its memory: this is a bug"),
            help: None,
        })
    }

    /// Returns which of the flags "receiver ready" and "data arrived" a copy needs. A copy through host memory needs
    /// both.
    fn needed(sender: &PeerDevice<A>, (to, receiver): (u32, &PeerDevice<A>), direct: bool, crossing: u32) -> [bool; 2] {
        match direct {
            true => receiver.crossings.needs(to, &sender.crossings, crossing),
            false => [true; 2],
        }
    }

    /// Address of the sender's flag "receiver ready" for a copy.
    fn ready(&self, place: &PeerDevice<A>, direct: bool, crossing: u32) -> u64 {
        self.flag(place, direct, crossing, 0)
    }

    /// Address of the receiver's flag "data of rank `from` arrived" for a copy.
    fn arrived(&self, place: &PeerDevice<A>, direct: bool, crossing: u32, from: u32) -> u64 {
        let sender = self.ranks.iter().position(|&rank| rank == from).unwrap_or(0);
        self.flag(place, direct, crossing, 1 + sender as u64)
    }

    fn flag(&self, place: &PeerDevice<A>, direct: bool, crossing: u32, slot: u64) -> u64 {
        let base = place.flags[usize::from(!direct)];
        base + (u64::from(crossing) * (1 + self.ranks.len() as u64) + slot) * FLAG
    }

    /// The published data of this image's rank.
    pub fn own(&self, image: &Image) -> Result<Arc<PeerDevice<A>>, ExecError> {
        self.of(image.rank)
    }
}

/// A part of a copy between ranks, in the order in which a rank executes them.
pub enum CopyPart<'a, A: Api> {
    /// Raises flags of other ranks and awaits flags of this rank, in this order.
    Steps(Vec<SyncStep>),
    /// A copy to a device that this one can access.
    Send { launch: &'a Launch, target: u64 },
    /// A copy through host memory.
    Stage { copy: &'a CopyLaunch, target: u64, to: Arc<A> },
}

/// Returns the parts that a rank executes for a copy between ranks, in order.
pub fn parts<'a, A: Api>(
    devices: &PeerDevices<A>,
    own: &PeerDevice<A>,
    (crossing, peer): (u32, &'a Peer),
    sharing: SyncSharing,
) -> Result<Vec<CopyPart<'a, A>>, ExecError> {
    let mut parts = Vec::new();
    let (mut first, mut last) = (Vec::new(), Vec::new());
    let needed = |sender: &PeerDevice<A>, receiver: (u32, &PeerDevice<A>), direct: bool| match sharing {
        SyncSharing::Batched => PeerDevices::needed(sender, receiver, direct, crossing),
        SyncSharing::Unshared => [true; 2],
    };
    for &from in peer.from.iter().filter(|from| **from != peer.rank) {
        let sender = devices.of(from)?;
        let direct = reach(own, &sender)?;
        let [ready, arrived] = needed(&sender, (peer.rank, own), direct);
        first.extend(ready.then(|| raise(devices.ready(&sender, direct, crossing))));
        last.extend(arrived.then(|| SyncStep::Await(devices.arrived(own, direct, crossing, from))));
    }
    if let Some(sent) = &peer.sends {
        let (part, flags) = send(devices, own, (crossing, peer.rank, sent))?;
        if let Some(SendFlags { receiver, direct, ready, arrived }) = flags {
            let [awaits, raises] = needed(own, (sent.to, &receiver), direct);
            first.extend(awaits.then_some(SyncStep::Await(ready)));
            last.splice(..0, raises.then_some(raise(arrived)));
        }
        parts.extend([CopyPart::Steps(std::mem::take(&mut first)), part]);
    }
    first.append(&mut last);
    parts.push(CopyPart::Steps(first));
    parts.retain(|part| !matches!(part, CopyPart::Steps(steps) if steps.is_empty()));
    Ok(parts)
}

/// The flags by which a rank synchronizes with a receiver: "receiver ready" and "data arrived".
struct SendFlags<A: Api> {
    receiver: Arc<PeerDevice<A>>,
    direct: bool,
    ready: u64,
    arrived: u64,
}

/// Returns the data that a rank sends, and the flags by which it synchronizes if the receiver is another rank.
fn send<'a, A: Api>(
    devices: &PeerDevices<A>,
    own: &PeerDevice<A>,
    (crossing, rank, sent): (u32, u32, &'a Sent),
) -> Result<(CopyPart<'a, A>, Option<SendFlags<A>>), ExecError> {
    let Sent { to, launch, .. } = sent;
    let receiver = devices.of(*to)?;
    let target = receiver.crossings.target(crossing, rank).map(|offset| receiver.base + offset);
    let target = target.ok_or_else(|| ExecError::Device {
        fault: format!("rank {to} does not execute a copy of rank {rank}: this is a bug"),
        help: None,
    })?;
    if *to == rank {
        return Ok((CopyPart::Send { launch, target }, None));
    }
    let direct = reach(own, &receiver)?;
    let (ready, arrived) = (devices.ready(own, direct, crossing), devices.arrived(&receiver, direct, crossing, rank));
    let part = match (&**launch, &receiver.api) {
        _ if direct => CopyPart::Send { launch, target },
        (Launch::Copy(copy), Some(to)) => CopyPart::Stage { copy, target, to: to.clone() },
        _ => {
            return Err(ExecError::Device {
                fault: format!(
                    "the device of rank {rank} cannot access the memory of rank {to}, so no kernel can copy"
                ),
                help: Some("write `via: dma`, which copies through the host".to_owned()),
            });
        }
    };
    Ok((part, Some(SendFlags { receiver, direct, ready, arrived })))
}

/// Enables direct access to the other device. Returns false if the devices cannot access each other.
fn reach<A: Api>(own: &PeerDevice<A>, other: &PeerDevice<A>) -> Result<bool, ExecError> {
    // Memory published by another process is accessible already.
    let (Some(api), Some(other)) = (&own.api, &other.api) else { return Ok(true) };
    let reach = || -> Call<bool> {
        if !(api.reaches(other)? && other.reaches(api)?) {
            return Ok(false);
        }
        api.reach(other).map(|()| true)
    };
    reach().map_err(ExecError::device)
}

/// Returns notes on the route of the image's copies, one for each receiving rank, and on how many of them share a
/// synchronization.
pub fn notes<A: Api>(devices: &PeerDevices<A>, image: &Image) -> Result<Vec<String>, ExecError> {
    let sent = image.ops.iter().filter_map(|op| peer_of(image, op)?.sends.as_ref()).map(|sent| sent.to);
    let receivers: std::collections::BTreeSet<u32> = sent.filter(|to| *to != image.rank).collect();
    let device = devices.of(image.rank)?;
    let note = |to: u32| -> Result<String, ExecError> {
        let other = devices.of(to)?;
        let link = device.api.as_ref().zip(other.api.as_ref()).and_then(|(device, other)| device.link(other));
        let link = match other.api {
            Some(_) => link.map(|link| format!(" ({link})")).unwrap_or_default(),
            None => ", in its process".to_owned(),
        };
        Ok(match reach(&device, &other)? {
            true => format!("copies to rank {to}: direct, from device to device{link}"),
            false => {
                format!(
                    "copies to rank {to}: staged through the host, since the devices cannot access each other{link}"
                )
            }
        })
    };
    let mut notes = receivers.into_iter().map(note).collect::<Result<Vec<_>, _>>()?;
    notes.extend(shared(devices, image, &device)?);
    Ok(notes)
}

/// A note on how many copies to other ranks share the synchronization of the copy before; `None` if no copy does.
fn shared<A: Api>(devices: &PeerDevices<A>, image: &Image, own: &PeerDevice<A>) -> Result<Option<String>, ExecError> {
    let (mut shared, mut all) = (0, 0);
    for op in &image.ops {
        let from = peer_of(image, op).map(|peer| peer.from.as_ref()).unwrap_or_default();
        for &from in from.iter().filter(|from| **from != image.rank) {
            let sender = devices.of(from)?;
            let [ready, _] = PeerDevices::needed(&sender, (image.rank, own), reach(own, &sender)?, op.crossing);
            shared += u32::from(!ready);
            all += 1;
        }
    }
    Ok((shared > 0).then(|| {
        format!(
            "copies from other ranks: {shared} of {all} directly follow others and share their synchronization; in observed \
             iterations, each synchronizes separately"
        )
    }))
}
