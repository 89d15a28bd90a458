//! Collectives as the machine sees them: where ranks meet, and how long they take from then on.

use rustc_hash::FxHashMap;

use crate::config::{Links, Profile};
use crate::cost::{self, Task};
use crate::exec::{Comm, Image, ImageOp};
use crate::ops::{Collective, CollectiveKind, Cost, Launch, Peer, Sent};

use super::machine::{Action, Channel, Exchange, Machine, Side};

/// The communicators of all ranks, each with a number.
#[derive(Debug)]
pub struct Exchanges<'a> {
    comms: FxHashMap<&'a Comm, u32>,
    links: &'a Links,
    floor: f64,
    /// From when a flag is set until who waits for it goes on.
    flag: f64,
}

impl<'a> Exchanges<'a> {
    pub fn new(images: &'a [Image], links: &'a Links, profile: &Profile) -> Self {
        let mut comms = FxHashMap::default();
        for comm in images.iter().flat_map(|image| &image.comms) {
            let next = comms.len() as u32;
            comms.entry(comm).or_insert(next);
        }
        Exchanges { comms, links, floor: profile.kernel_floor.value(), flag: profile.gap_event.value() }
    }

    /// What a copy between ranks is on the machine, one after the other, as a GPU does it: the rank says that what arrives
    /// may be written, and waits until the other has said so; then it sends; then it says that it has, and waits for what
    /// arrives.
    pub fn peer(&self, crossing: u32, peer: &Peer, cost: &Cost, machine: &mut Machine) -> Vec<Action> {
        let sends = peer.sends.as_ref().map(|sent| sent.to).filter(|to| *to != peer.rank);
        let from = || peer.from.iter().copied().filter(|from| *from != peer.rank);
        let mut meet = |said: u32, sends_waits: bool| {
            let channel =
                |from, to| Channel { comm: self.comms.len() as u32 + 2 * crossing + said, pair: Some((from, to)) };
            let side = |channel, receives, waits| Side { channel, needed: 2, receives, waits };
            let out = sends.map(|to| side(channel(peer.rank, to), false, sends_waits));
            let sides = out.into_iter().chain(from().map(|from| side(channel(from, peer.rank), true, !sends_waits)));
            let exchange = Exchange { sides: sides.collect(), units: 0, floor: 0.0, time: self.flag };
            Action::Meet(machine.exchange(exchange))
        };
        let mut actions = vec![meet(0, true)];
        if let Some(sent) = &peer.sends {
            actions.push(Action::Run(self.sent(peer.rank, sent, cost)));
        }
        actions.push(meet(1, false));
        actions
    }

    fn sent(&self, rank: u32, sent: &Sent, cost: &Cost) -> Task {
        let rate = cost::link(rank, sent.to, self.links).bandwidth.value();
        let bytes = cost.read as f64;
        match &*sent.launch {
            Launch::Copy(_) => Task::Peer { bytes, rate },
            // As many units as a collective holds, for as long as the link takes.
            _ => Task::Kernel {
                blocks: self.links.units.value() as u64,
                share: Cost::WHOLE_UNIT,
                block_time: bytes / rate * 1e9,
                memory_time: 0.0,
                floor: self.floor,
            },
        }
    }

    /// What an operation's collectives, which are issued together, are on the machine. Nothing where only one rank takes
    /// part: then they are copies.
    pub fn action(
        &self,
        image: &Image,
        op: &ImageOp,
        collectives: &[Collective],
        machine: &mut Machine,
    ) -> Option<Action> {
        let comm = image.comms.get(op.comm as usize).filter(|comm| comm.ranks.len() > 1)?;
        let number = self.comms[comm];
        let mut sides = Vec::with_capacity(collectives.len());
        let mut time: f64 = 0.0;
        for collective in collectives {
            time = time.max(cost::exchange(collective, &comm.ranks, self.links));
            let pair = match collective.kind {
                CollectiveKind::Send => Some((collective.rank, collective.peer)),
                CollectiveKind::Recv => Some((collective.peer, collective.rank)),
                _ => None,
            };
            let needed = if pair.is_some() { 2 } else { comm.ranks.len() as u32 };
            let receives = collective.kind == CollectiveKind::Recv;
            sides.push(Side { channel: Channel { comm: number, pair }, needed, receives, waits: true });
        }
        let units = self.links.units.value() as u64;
        Some(Action::Exchange(machine.exchange(Exchange { sides, units, floor: self.floor, time })))
    }
}
