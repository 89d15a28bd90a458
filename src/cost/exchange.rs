//! Costs of collectives, sends and receives: durations from measured tables, and loads on links.

use crate::config::{CollectiveTimes, Link, Links, Wiring};
use crate::ops::{Collective, CollectiveKind};

/// Bytes of the all-reduce that models a barrier: one number per rank.
const BARRIER: f64 = 4.0;

/// A link that transfers of several ranks can share, in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Path {
    /// The port of a rank's device, outgoing and incoming.
    Out(u32),
    In(u32),
    /// The link between two devices of a mesh.
    Pair {
        from: u32,
        to: u32,
    },
    /// A network card of a node, outgoing and incoming.
    CardOut {
        node: u32,
        card: u32,
    },
    CardIn {
        node: u32,
        card: u32,
    },
}

/// Bytes that one rank's part of a transfer puts on a link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    pub path: Path,
    pub bytes: f64,
    /// Maximum rate of the link for such traffic, in bytes per second.
    pub capacity: f64,
}

/// The link between two ranks of the world.
fn link(one: u32, other: u32, links: &Links) -> &Link {
    if links.node(one) == links.node(other) { &links.within } else { &links.across }
}

/// Rate in bytes per second of a transfer between two ranks without other traffic.
pub fn link_rate(one: u32, other: u32, links: &Links) -> f64 {
    link(one, other, links).bandwidth.value()
}

/// Duration of a collective in ns without other traffic, from the arrival of the last rank. `ranks` are the group's
/// members as ranks of the world. Over several nodes, the latencies of both kinds of links add up, and the transfers overlap.
pub fn exchange(collective: &Collective, ranks: &[u32], links: &Links) -> f64 {
    let bytes = match collective.kind {
        CollectiveKind::Barrier => BARRIER,
        _ => collective.bytes() as f64,
    };
    if collective.is_transfer() {
        let link = link(ranks[collective.rank as usize], ranks[collective.peer as usize], links);
        return link.latency.value() + bytes / link.bandwidth.value() * 1e9;
    }
    let nodes = NodeRanks::of(ranks, links);
    let local = nodes.iter().map(|node| node.ranks).max().unwrap_or(1);
    let (latency, transfer) = if local > 1 { within(collective.kind, bytes, local, links) } else { (0.0, 0.0) };
    if nodes.len() == 1 {
        return latency + transfer;
    }
    let steps = (nodes.len() as f64).log2().ceil();
    let busiest =
        nodes.iter().map(|node| f64::from(node.most_on_card) * node.bytes_of_rank(collective.kind, bytes, &nodes));
    let rate = links.across.bandwidth.value();
    let across = busiest.fold(0.0, f64::max) / rate * 1e9;
    latency + links.across.latency.value() * steps + transfer.max(across)
}

/// Loads of one rank of a collective on links; empty for a barrier, and for a single rank.
pub fn loads(collective: &Collective, ranks: &[u32], links: &Links) -> Vec<Load> {
    let rank = ranks[collective.rank as usize];
    let bytes = collective.bytes() as f64;
    if ranks.len() < 2 {
        return Vec::new();
    }
    let sends = |to: u32, bytes: f64| sender_load(rank, to, bytes, links.port.collectives.value(), links);
    let receives = |from: u32, bytes: f64| receiver_load(from, rank, bytes, links.port.collectives.value(), links);
    match collective.kind {
        CollectiveKind::Barrier => Vec::new(),
        CollectiveKind::Send => sends(ranks[collective.peer as usize], bytes).into_iter().collect(),
        CollectiveKind::Recv => receives(ranks[collective.peer as usize], bytes).into_iter().collect(),
        _ => together(collective.kind, bytes, rank, ranks, links),
    }
}

/// Loads of one rank of a collective with several ranks; outgoing and incoming bytes are equal.
fn together(kind: CollectiveKind, bytes: f64, own: u32, ranks: &[u32], links: &Links) -> Vec<Load> {
    let mut loads = Vec::new();
    let near: Vec<u32> = ranks.iter().copied().filter(|&rank| links.node(rank) == links.node(own)).collect();
    if near.len() > 1 {
        // In an all-to-all, the bytes between ranks of the same node stay within the node.
        let part = match kind {
            CollectiveKind::AllToAll => near.len() as f64 / ranks.len() as f64,
            _ => 1.0,
        };
        let capacity = links.port.collectives.value();
        let bytes = wire_bytes(kind, bytes * part, near.len() as u32);
        match links.wiring {
            Wiring::Switch => loads.extend([Path::Out(own), Path::In(own)].map(|path| Load { path, bytes, capacity })),
            Wiring::Mesh => {
                let bytes = bytes / (near.len() - 1) as f64;
                let others = near.iter().filter(|rank| **rank != own);
                loads.extend(others.map(|&to| Load { path: Path::Pair { from: own, to }, bytes, capacity }));
            }
        }
    }
    let nodes = NodeRanks::of(ranks, links);
    if let Some(home) = nodes.iter().find(|node| node.number == links.node(own)).filter(|_| nodes.len() > 1) {
        let (node, card) = (links.node(own), links.card(own));
        let bytes = home.bytes_of_rank(kind, bytes, &nodes);
        let capacity = links.across.bandwidth.value();
        let paths = [Path::CardOut { node, card }, Path::CardIn { node, card }];
        loads.extend(paths.map(|path| Load { path, bytes, capacity }));
    }
    loads
}

/// Bytes of a collective that each rank sends to other ranks of its node.
fn wire_bytes(kind: CollectiveKind, bytes: f64, ranks: u32) -> f64 {
    bytes * kind.bus_factor(ranks).unwrap_or(1.0)
}

/// Load of a transfer on the sender's side; `None` if a rank sends to itself. `port` is the maximum rate of a device's
/// port for such traffic, in bytes per second.
pub fn sender_load(from: u32, to: u32, bytes: f64, port: f64, links: &Links) -> Option<Load> {
    let node = links.node(from);
    let (path, capacity) = match (node == links.node(to), links.wiring) {
        (true, Wiring::Switch) => (Path::Out(from), port),
        (true, Wiring::Mesh) => (Path::Pair { from, to }, port),
        (false, _) => (Path::CardOut { node, card: links.card(from) }, links.across.bandwidth.value()),
    };
    (from != to).then_some(Load { path, bytes, capacity })
}

/// Load of a transfer on the receiver's side; `None` if the sender's link is the only one between them.
pub fn receiver_load(from: u32, to: u32, bytes: f64, port: f64, links: &Links) -> Option<Load> {
    let node = links.node(to);
    let (path, capacity) = match (links.node(from) == node, links.wiring) {
        (true, Wiring::Switch) => (Path::In(to), port),
        (true, Wiring::Mesh) => return None,
        (false, _) => (Path::CardIn { node, card: links.card(to) }, links.across.bandwidth.value()),
    };
    (from != to).then_some(Load { path, bytes, capacity })
}

/// The ranks of a collective in one node.
struct NodeRanks {
    /// Number of the node.
    number: u32,
    /// Number of ranks of the collective in the node.
    ranks: u32,
    /// Largest number of ranks of this node that share a network card.
    most_on_card: u32,
}

impl NodeRanks {
    /// The nodes of a group, sorted by number.
    fn of(ranks: &[u32], links: &Links) -> Vec<NodeRanks> {
        let mut places: Vec<(u32, u32)> = ranks.iter().map(|&rank| (links.node(rank), links.card(rank))).collect();
        places.sort_unstable();
        let node = |places: &[(u32, u32)]| NodeRanks {
            number: places[0].0,
            ranks: places.len() as u32,
            most_on_card: places.chunk_by(|a, b| a.1 == b.1).map(|card| card.len() as u32).max().unwrap_or(1),
        };
        places.chunk_by(|a, b| a.0 == b.0).map(node).collect()
    }

    /// Bytes that each of the node's ranks sends to other nodes, and receives: its share of a ring over nodes, or its
    /// part of an all-to-all.
    fn bytes_of_rank(&self, kind: CollectiveKind, bytes: f64, nodes: &[NodeRanks]) -> f64 {
        let all: u32 = nodes.iter().map(|node| node.ranks).sum();
        match kind {
            CollectiveKind::AllToAll => bytes * f64::from(all - self.ranks) / f64::from(all),
            _ => bytes * kind.bus_factor(nodes.len() as u32).unwrap_or(1.0) / f64::from(self.ranks),
        }
    }
}

/// Latency of a collective within a node in ns, and the time of its transfer in addition.
fn within(kind: CollectiveKind, bytes: f64, ranks: u32, links: &Links) -> (f64, f64) {
    let (of_table, name) = match kind {
        CollectiveKind::AllReduce | CollectiveKind::Barrier => (CollectiveKind::AllReduce, "all_reduce"),
        CollectiveKind::ReduceScatter => (kind, "reduce_scatter"),
        CollectiveKind::AllToAll => (kind, "all_to_all"),
        _ => (CollectiveKind::AllGather, "all_gather"),
    };
    // The table with the largest number of ranks up to `ranks`, or else the smallest table.
    let tables = links.tables.iter().filter(|table| table.collective == name);
    let table = tables.min_by_key(|table| (table.ranks > ranks, table.ranks.abs_diff(ranks)));
    // Share of each byte that each link carries: in a mesh, a rank has a link to each of the others.
    let on_link = |ranks: u32| {
        let paths = if links.wiring == Wiring::Mesh { f64::from(ranks - 1) } else { 1.0 };
        wire_bytes(kind, 1.0, ranks) / paths
    };
    let Some(table) = table else {
        return (links.within.latency.value(), bytes * on_link(ranks) / links.port.collectives.value() * 1e9);
    };
    let least = table.times[0].1;
    // A kind without a table of its own takes as long as the table's kind with as many bytes on each link.
    let alike = bytes * wire_bytes(kind, 1.0, table.ranks) / wire_bytes(of_table, 1.0, table.ranks);
    let grown = (time(table, alike) - least) * on_link(ranks) / on_link(table.ranks);
    (least + f64::from(ranks.saturating_sub(table.ranks)) * links.hop.value(), grown)
}

/// The table's time for a size. Between two sizes it is interpolated logarithmically; beyond the last it is
/// proportional to the size.
fn time(table: &CollectiveTimes, bytes: f64) -> f64 {
    let times = &table.times;
    let (largest, slowest) = times[times.len() - 1];
    if bytes <= times[0].0 {
        return times[0].1;
    }
    if bytes >= largest {
        return slowest * bytes / largest;
    }
    let next = times.partition_point(|&(size, _)| size < bytes);
    let ((from, low), (to, high)) = (times[next - 1], times[next]);
    let part = (bytes / from).ln() / (to / from).ln();
    low * (high / low).powf(part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{DType, GroupId};
    use crate::ops::Reduction;

    fn collective(kind: CollectiveKind, ranks: u32, count: u64) -> Collective {
        Collective {
            kind,
            group: GroupId(0),
            ranks,
            rank: 0,
            source: Some(0),
            target: Some(1),
            dtype: DType::F32,
            count,
            reduction: Reduction::Sum,
            peer: 1,
            parts: None,
            counted: None,
        }
    }

    #[test]
    fn a_size_of_the_table_takes_its_time() {
        let links = Links::named("hgx_h200").unwrap();
        let all_reduce = |bytes: u64| exchange(&collective(CollectiveKind::AllReduce, 2, bytes / 4), &[0, 1], &links);
        assert_eq!(all_reduce(4 << 20), 35_300.0);
        assert_eq!(all_reduce(16), 15_000.0);
        assert_eq!(all_reduce(512 << 20), 2.0 * 896_000.0);
        let all_gather = collective(CollectiveKind::AllGather, 2, (4 << 20) / 8);
        assert_eq!(exchange(&all_gather, &[0, 1], &links), 27_700.0);
    }

    /// The bytes that each rank of a collective puts on a link, as a fraction of those that the link carries in its time.
    fn shares(kind: CollectiveKind, ranks: &[u32], count: u64, links: &Links) -> Vec<(Path, f64)> {
        let mut shares = std::collections::BTreeMap::<Path, f64>::new();
        for rank in 0..ranks.len() as u32 {
            let collective = Collective { rank, ..collective(kind, ranks.len() as u32, count) };
            let time = exchange(&collective, ranks, links);
            for load in loads(&collective, ranks, links) {
                *shares.entry(load.path).or_default() += load.bytes / load.capacity / time * 1e9;
            }
        }
        shares.into_iter().collect()
    }

    #[test]
    fn no_network_card_carries_more_than_it_can() {
        let mut links = Links::named("hgx_h200").unwrap();
        for cards in [1.0, 2.0, 3.0, 4.0, 8.0] {
            links.cards_per_node.0 = cards;
            for ranks in [&[0, 8][..], &[0, 1, 2, 9], &[0, 1, 4, 8, 16, 17, 18, 19], &(0..16).collect::<Vec<_>>()] {
                for kind in [CollectiveKind::AllReduce, CollectiveKind::AllToAll, CollectiveKind::AllGather] {
                    let shares = shares(kind, ranks, 1 << 26, &links);
                    let cards =
                        shares.iter().filter(|(path, _)| matches!(path, Path::CardOut { .. } | Path::CardIn { .. }));
                    assert!(cards.clone().count() > 0 && cards.clone().all(|(_, share)| *share < 1.0), "{shares:?}");
                }
            }
        }
    }

    /// A switch adds data in transit, so the times of an all-reduce do not bound what its ports carry.
    #[test]
    fn no_port_carries_more_than_it_can() {
        use CollectiveKind::{AllGather, AllToAll, Broadcast, Reduce, ReduceScatter};
        for name in ["hgx_h200", "mi300x"] {
            let links = Links::named(name).unwrap();
            for kind in [AllGather, AllToAll, Broadcast, Reduce, ReduceScatter] {
                for ranks in [2, 3, 8] {
                    for count in [1 << 10, 1 << 18, 1 << 22, 1 << 26, 1 << 29] {
                        let world: Vec<u32> = (0..ranks).collect();
                        for (path, share) in shares(kind, &world, count, &links) {
                            assert!(
                                share < 1.0,
                                "{name}, {kind:?} of {ranks} ranks, {count} elements: {path:?} {share}"
                            );
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_node_with_more_network_cards_is_faster() {
        let mut links = Links::named("hgx_h200").unwrap();
        let world: Vec<u32> = (0..32).collect();
        let time = |links: &Links| exchange(&collective(CollectiveKind::AllReduce, 32, 1 << 28), &world, links);
        let eight = time(&links);
        links.cards_per_node.0 = 1.0;
        let ratio = time(&links) / eight;
        assert!((7.5..8.5).contains(&ratio), "{ratio}");
    }

    #[test]
    fn a_mesh_uses_all_of_its_links() {
        let links = Links::named("mi300x").unwrap();
        let world: Vec<u32> = (0..8).collect();
        for (_, share) in shares(CollectiveKind::AllGather, &world, 1 << 28, &links) {
            assert!((0.9..1.0).contains(&share), "{share}");
        }
    }

    #[test]
    fn the_slower_of_link_and_network_card_joins_nodes() {
        let links = Links::named("hgx_h200").unwrap();
        let all_reduce = collective(CollectiveKind::AllReduce, 2, 1 << 28);
        let (near, far) = (exchange(&all_reduce, &[0, 1], &links), exchange(&all_reduce, &[0, 8], &links));
        assert!(far > 5.0 * near, "{near} and {far}");
        let world: Vec<u32> = (0..64).collect();
        for size in [1 << 10, 1 << 20, 1 << 24, 1 << 28] {
            let time = |ranks: u32| {
                exchange(&collective(CollectiveKind::AllReduce, ranks, size), &world[..ranks as usize], &links)
            };
            assert!(time(8) < time(16) && time(16) < time(64), "{size} elements");
        }
        let send = collective(CollectiveKind::Send, 2, 1 << 20);
        assert!(exchange(&send, &[7, 8], &links) > exchange(&send, &[6, 7], &links));
    }
}
