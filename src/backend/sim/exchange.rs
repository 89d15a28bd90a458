//! Collectives as the machine sees them: where ranks meet, and how long they take from then on.

use rustc_hash::FxHashMap;

use crate::config::{Links, Profile};
use crate::cost;
use crate::exec::{Comm, Image, ImageOp};
use crate::ops::{Collective, CollectiveKind};

use super::machine::{Action, Channel, Exchange, Machine};

/// The communicators of all ranks, each with a number.
#[derive(Debug)]
pub struct Exchanges<'a> {
    comms: FxHashMap<&'a Comm, u32>,
    links: &'a Links,
    floor: f64,
}

impl<'a> Exchanges<'a> {
    pub fn new(images: &'a [Image], links: &'a Links, profile: &Profile) -> Self {
        let mut comms = FxHashMap::default();
        for comm in images.iter().flat_map(|image| &image.comms) {
            let next = comms.len() as u32;
            comms.entry(comm).or_insert(next);
        }
        Exchanges { comms, links, floor: profile.kernel_floor.value() }
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
        let mut channels = Vec::with_capacity(collectives.len());
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
            channels.push((Channel { comm: number, pair }, needed, receives));
        }
        let units = self.links.units.value() as u64;
        Some(Action::Exchange(machine.exchange(Exchange {
            calls: collectives.to_vec(),
            channels,
            units,
            floor: self.floor,
            time,
        })))
    }
}
