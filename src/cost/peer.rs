//! What a copy between ranks costs a rank, from when both sides have come to it.

use crate::config::{Links, Profile};
use crate::ops::{self, Cost, Launch, Spec};

use super::Task;
use super::exchange::link;

/// What a rank does in a copy between ranks, once it may: it sends, or else waits for what arrives.
pub fn peer(spec: &Spec, profile: &Profile, links: &Links) -> Task {
    let sends = ops::crossing(spec).and_then(|crossing| crossing.sends.as_ref());
    let Some((to, copy)) = sends else {
        let arrives: u64 = spec.outputs.iter().map(ops::Tensor::bytes).sum();
        return Task::Peer { bytes: arrives as f64, rate: links.within.bandwidth.value() };
    };
    let launches = copy.launch();
    if *to == spec.team.rank {
        return super::tasks(copy, &launches, 0.0, profile)[0];
    }
    let rate = link(spec.team.rank, *to, links).bandwidth.value();
    let bytes = spec.cost().read as f64;
    match launches.first() {
        Some(Launch::Copy(_)) => Task::Peer { bytes, rate },
        // As many units as a collective holds, for as long as the link takes.
        _ => Task::Kernel {
            blocks: links.units.value() as u64,
            share: Cost::WHOLE_UNIT,
            block_time: bytes / rate * 1e9,
            memory_time: 0.0,
            floor: profile.kernel_floor.value(),
        },
    }
}
