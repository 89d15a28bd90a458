//! Cost of a copy between ranks for one rank, once both sides have arrived.

use crate::config::Profile;
use crate::ops::{self, Cost, Launch, Spec};

use super::exchange::link_rate;
use super::{Busy, Task};

/// The task of a rank in a copy between ranks: sending, or waiting for incoming data.
pub fn peer(spec: &Spec, profile: &Profile) -> Task {
    let links = &profile.topology;
    let sends = ops::crossing(spec).and_then(|crossing| crossing.sends.as_ref());
    let Some((to, copy)) = sends else {
        return Task::Peer {
            to: spec.team.rank,
            bytes: spec.cost().received as f64,
            rate: links.within.bandwidth.value(),
        };
    };
    let launches = copy.launch();
    if *to == spec.team.rank {
        return super::tasks(copy, &launches, 0.0, profile)[0];
    }
    let rate = link_rate(spec.team.rank, *to, links);
    let bytes = spec.cost().sent as f64;
    match launches.first() {
        Some(Launch::Copy(_)) => Task::Peer { to: *to, bytes, rate },
        // Occupies as many compute units as a collective, for as long as the link takes.
        _ => Task::Kernel {
            blocks: links.units.value() as u64,
            share: Cost::WHOLE_UNIT,
            block_time: 0.0,
            busy: Busy { peer: Some((*to, bytes / rate * 1e9)), ..super::busy(&copy.cost(), 1.0, 0.0, profile) },
            floor: profile.kernel_floor.value(),
        },
    }
}

/// Time for which a rank waits for the flags of a copy between ranks: receiver ready, and data arrived.
pub(super) fn flags(spec: &Spec, profile: &Profile) -> f64 {
    let rank = spec.team.rank;
    let crossing = ops::crossing(spec);
    let sends = crossing.and_then(|crossing| crossing.sends.as_ref()).is_some_and(|(to, _)| *to != rank);
    let receives = crossing.is_some_and(|crossing| crossing.from.iter().any(|from| *from != rank));
    let flags = match (sends, receives) {
        (_, true) => 2.0,
        (true, false) => 1.0,
        (false, false) => 0.0,
    };
    profile.topology.flag.value() * flags
}
