//! Cost of a copy between ranks for one rank, once both sides have arrived.

use crate::config::Profile;
use crate::ops::{self, Cost, Launch, Peer, Spec};

use super::exchange::link_rate;
use super::{Busy, Task};

/// The task of a rank in a copy between ranks: sending, or waiting for incoming data. `peer` is its launch.
pub fn peer(spec: &Spec, peer: &Peer, profile: &Profile) -> Task {
    let links = &profile.topology;
    let sends = ops::crossing(spec).and_then(|crossing| crossing.sends.as_ref());
    let (Some(sent), Some((_, copy))) = (&peer.sends, sends) else {
        return Task::Peer { to: peer.rank, bytes: spec.cost().received as f64, rate: links.within.bandwidth.value() };
    };
    if sent.to == peer.rank {
        return super::tasks(copy, std::slice::from_ref(&*sent.launch), 0.0, profile)[0];
    }
    let rate = link_rate(peer.rank, sent.to, links);
    let bytes = spec.cost().sent as f64;
    match &*sent.launch {
        Launch::Copy(_) if bytes > profile.peer_kernel_bytes() => Task::Peer { to: sent.to, bytes, rate },
        // Occupies as many compute units as a collective, for as long as the link takes.
        _ => Task::Kernel {
            blocks: links.units.value() as u64,
            share: Cost::WHOLE_UNIT,
            block_time: 0.0,
            busy: Busy { peer: Some((sent.to, bytes / rate * 1e9)), ..super::busy(&copy.cost(), 1.0, 0.0, profile) },
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{DType, GroupId};
    use crate::cost::tasks;
    use crate::ops::{Attr, PeerCopy, Team, Tensor};

    /// True if a simulated copy of this many bytes from rank 0 to rank 1 is a kernel.
    fn by_kernel(profile: &str, via: &'static str, bytes: u64) -> bool {
        let profile = Profile::named(profile).expect("embedded");
        let tensor = Tensor::packed(DType::U8, &[bytes]);
        let mut copy = ops::copied(bytes, crate::base::Space::Device);
        copy.attrs.clear();
        for (name, value) in [("via", Attr::Word(via)), ("indices", Attr::Absent), ("back", Attr::Bool(false))] {
            copy.attrs.push(name, value, None);
        }
        let team = Team { group: GroupId(0), ranks: 2, rank: 0 };
        let spec = PeerCopy::of(Some((1, Spec { team, ..copy })), vec![(1, tensor)], team);
        matches!(tasks(&spec, &spec.launch(), 0.0, &profile)[..], [Task::Kernel { .. }])
    }

    #[test]
    fn the_runtime_copies_to_a_peer_by_an_engine_but_little_on_amd() {
        const MIB: u64 = 1 << 20;
        for bytes in [1, MIB, MIB + 1, 64 * MIB] {
            for via in ["auto", "dma"] {
                assert!(!by_kernel("h200", via, bytes), "{bytes} bytes, {via}");
                assert_eq!(by_kernel("mi300x", via, bytes), bytes <= MIB, "{bytes} bytes, {via}");
            }
            assert!(by_kernel("h200", "kernel", bytes) && by_kernel("mi300x", "kernel", bytes));
        }
    }
}
