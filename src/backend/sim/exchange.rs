//! Collectives on the simulated machine: participants and durations.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::backend::crossings::{Crossings, SyncSharing};
use crate::config::Profile;
use crate::cost::{self, Task};
use crate::exec::{Comm, Image, ImageOp};
use crate::ops::{Collective, CollectiveKind, Peer};

use super::machine::{Action, Channel, ChannelSide, Exchange, SimMachine, Time, whole};

/// The communicators of all ranks, each with a number, and the copies between ranks.
#[derive(Debug)]
pub struct Exchanges<'a> {
    comms: FxHashMap<&'a Comm, u32>,
    profile: &'a Profile,
    floor: Time,
    /// Each rank's copies to and from other ranks.
    crossings: BTreeMap<u32, Crossings>,
}

impl<'a> Exchanges<'a> {
    /// Numbers the communicators of all images.
    pub fn new(images: &'a [Image], profile: &'a Profile) -> Self {
        let mut comms = FxHashMap::default();
        for comm in images.iter().flat_map(|image| &image.comms) {
            let next = comms.len() as u32;
            comms.entry(comm).or_insert(next);
        }
        let crossings = images.iter().map(|image| (image.rank, Crossings::of(image))).collect();
        Exchanges { comms, profile, floor: whole(profile.kernel_floor.value()), crossings }
    }

    /// Actions of this rank in a copy between ranks, in the order of a GPU: signals that the destination is ready and
    /// waits for the receivers' signals; sends; signals arrival and waits for incoming data. Consecutive copies that
    /// share a synchronization omit the signals between them, so that a rank that does not send may have no action.
    pub fn peer(
        &self,
        (crossing, sharing): (u32, SyncSharing),
        peer: &Peer,
        task: Task,
        machine: &mut SimMachine,
    ) -> Vec<Action> {
        let sends = peer.sends.as_ref().map(|sent| sent.to).filter(|to| *to != peer.rank);
        let from = || peer.from.iter().copied().filter(|from| *from != peer.rank);
        let needs = |from: u32, to: u32, which: u32| match (sharing, self.crossings.get(&from), self.crossings.get(&to))
        {
            (SyncSharing::Batched, Some(sender), Some(receiver)) => {
                receiver.needs(to, sender, crossing)[which as usize]
            }
            _ => true,
        };
        let mut meet = |which: u32, sends_waits: bool| {
            let channel =
                |from, to| Channel { comm: self.comms.len() as u32 + 2 * crossing + which, pair: Some((from, to)) };
            let flag = self.profile.topology.flag.value();
            let side = |channel, receives, waits| {
                let time = if waits { flag } else { 0.0 };
                ChannelSide { channel, needed: 2, receives, waits, time, loads: Vec::new() }
            };
            let out = sends.filter(|&to| needs(peer.rank, to, which));
            let out = out.map(|to| side(channel(peer.rank, to), false, sends_waits));
            let into = from().filter(|&from| needs(from, peer.rank, which));
            let into = into.map(|from| side(channel(from, peer.rank), true, !sends_waits));
            let sides: Vec<ChannelSide> = out.into_iter().chain(into).collect();
            if sides.is_empty() {
                return None;
            }
            let exchange = Exchange { calls: Vec::new(), sides, units: 0, floor: 0 };
            Some(Action::Meet(machine.exchange(exchange)))
        };
        let before = meet(0, true);
        let send = peer.sends.as_ref().map(|_| Action::Run(task));
        let behind = meet(1, false);
        [before, send, behind].into_iter().flatten().collect()
    }

    /// Action of an operation's collectives, which are issued as a group; `None` in a group of one rank, where they are
    /// local copies.
    pub fn action(
        &self,
        image: &Image,
        op: &ImageOp,
        collectives: &[Collective],
        machine: &mut SimMachine,
    ) -> Option<Action> {
        let comm = image.comms.get(op.comm as usize).filter(|comm| comm.ranks.len() > 1)?;
        let number = self.comms[comm];
        let links = &self.profile.topology;
        let mut sides = Vec::with_capacity(collectives.len());
        for collective in collectives {
            let time = cost::exchange(collective, &comm.ranks, links);
            let loads = cost::loads(collective, &comm.ranks, links);
            let pair = match collective.kind {
                CollectiveKind::Send => Some((collective.rank, collective.peer)),
                CollectiveKind::Recv => Some((collective.peer, collective.rank)),
                _ => None,
            };
            let needed = if pair.is_some() { 2 } else { comm.ranks.len() as u32 };
            let receives = collective.kind == CollectiveKind::Recv;
            sides.push(ChannelSide {
                channel: Channel { comm: number, pair },
                needed,
                receives,
                waits: true,
                time,
                loads,
            });
        }
        let units = links.units.value() as u64;
        let calls = collectives.to_vec();
        Some(Action::Exchange(machine.exchange(Exchange { calls, sides, units, floor: self.floor })))
    }
}
