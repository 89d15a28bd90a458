//! Costs of collectives, sends and receives: durations from measured tables, and loads on links.

use std::collections::BTreeMap;

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

impl Path {
    fn is_of_card(self) -> bool {
        matches!(self, Path::CardOut { .. } | Path::CardIn { .. })
    }
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
    // The parts of an all-to-all may differ, so its time is that of the busiest link to or from the rank.
    let all_to_all = (collective.kind == CollectiveKind::AllToAll).then(|| {
        let mirrored = collective.parts.as_ref().map(|parts| parts.mirrored().into());
        let back = Collective { parts: mirrored, ..collective.clone() };
        let loads = [loads(collective, ranks, links), loads(&back, ranks, links)].concat();
        let most = |of_card| loads.iter().filter(move |load| load.path.is_of_card() == of_card).map(|load| load.bytes);
        [false, true].map(|of_card| most(of_card).fold(0.0, f64::max))
    });
    let near = all_to_all.map_or(bytes, |[near, _]| near / on_link(collective.kind, local, links));
    let (latency, transfer) = if local > 1 { within(collective.kind, near, local, links) } else { (0.0, 0.0) };
    if nodes.len() == 1 {
        return latency + transfer;
    }
    let steps = (nodes.len() as f64).log2().ceil();
    let home = links.node(ranks[collective.rank as usize]);
    let busiest = nodes.iter().map(|node| {
        let bytes = match all_to_all {
            Some([_, far]) if node.number == home => far,
            Some(_) => 0.0,
            None => bytes_across(collective.kind, bytes, nodes.len(), node.ranks),
        };
        f64::from(node.most_on_card) * bytes
    });
    let rate = links.across.bandwidth.value();
    let across = busiest.fold(0.0, f64::max) / rate * 1e9;
    latency + links.across.latency.value() * steps + transfer.max(across)
}

/// Loads of one rank of a collective on links; empty for a barrier, and for a single rank.
pub fn loads(collective: &Collective, ranks: &[u32], links: &Links) -> Vec<Load> {
    let own = ranks[collective.rank as usize];
    let bytes = collective.bytes() as f64;
    let peer = || ranks[collective.peer as usize];
    let exchanged = match collective.kind {
        CollectiveKind::Barrier => Vec::new(),
        CollectiveKind::Send => vec![(peer(), [bytes, 0.0])],
        CollectiveKind::Recv => vec![(peer(), [0.0, bytes])],
        CollectiveKind::AllToAll => {
            let counts = |number: usize| match &collective.parts {
                Some(parts) => [parts.sent[number], parts.received[number]],
                None => [collective.count; 2],
            };
            let bytes = |number| counts(number).map(|count| (count * collective.dtype.size()) as f64);
            ranks.iter().enumerate().map(|(number, &other)| (other, bytes(number))).collect()
        }
        kind => evenly(kind, bytes, own, ranks, links),
    };
    let port = links.port.collectives.value();
    let mut loads = BTreeMap::<Path, Load>::new();
    for (other, [sent, received]) in exchanged {
        let both = [sender_load(own, other, sent, port, links), receiver_load(other, own, received, port, links)];
        for load in both.into_iter().flatten().filter(|load| load.bytes > 0.0) {
            loads.entry(load.path).and_modify(|all| all.bytes += load.bytes).or_insert(load);
        }
    }
    loads.into_values().collect()
}

/// Ranks with which a rank of a collective exchanges bytes, and how many it sends and receives: with each rank of its node as many, and
/// with another node, which stands for all.
fn evenly(kind: CollectiveKind, bytes: f64, own: u32, ranks: &[u32], links: &Links) -> Vec<(u32, [f64; 2])> {
    let others = ranks.iter().copied().filter(|rank| *rank != own);
    let (near, far): (Vec<u32>, Vec<u32>) = others.partition(|rank| links.node(*rank) == links.node(own));
    let local = near.len() as u32 + 1;
    let to_near = bytes * kind.bus_factor(local).unwrap_or(1.0) / near.len() as f64;
    let to_far = bytes_across(kind, bytes, NodeRanks::of(ranks, links).len(), local);
    near.into_iter().map(|rank| (rank, [to_near; 2])).chain(far.first().map(|&rank| (rank, [to_far; 2]))).collect()
}

/// Bytes that each of a node's `local` ranks sends to other nodes, and receives: its share of a ring over all nodes.
fn bytes_across(kind: CollectiveKind, bytes: f64, nodes: usize, local: u32) -> f64 {
    bytes * kind.bus_factor(nodes as u32).unwrap_or(1.0) / f64::from(local)
}

/// Share of a collective's bytes that each link of a node carries. In a mesh, a rank has a link to each of the others.
fn on_link(kind: CollectiveKind, ranks: u32, links: &Links) -> f64 {
    let paths = if links.wiring == Wiring::Mesh { f64::from(ranks - 1) } else { 1.0 };
    kind.bus_factor(ranks).unwrap_or(1.0) / paths
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
}

/// Latency of a collective within a node in ns, and the time of its transfer in addition.
///
/// A table holds for each collective that puts as many bytes on each link. Between the numbers of ranks of two tables, the time is
/// interpolated.
fn within(kind: CollectiveKind, bytes: f64, ranks: u32, links: &Links) -> (f64, f64) {
    use CollectiveKind::{AllGather, AllReduce, AllToAll, Barrier, ReduceScatter};
    let tables = |kind: CollectiveKind| links.tables.iter().filter(move |table| table.collective == kind.name());
    let of_table = match kind {
        AllReduce | Barrier => AllReduce,
        ReduceScatter | AllToAll => kind,
        _ => AllGather,
    };
    // An `all_to_all` consists of sends and receives. Other collectives have the protocols and algorithms of the halves of an `all_reduce`.
    let of_table = if of_table != AllToAll && tables(of_table).next().is_none() { AllReduce } else { of_table };
    let time = |table: &CollectiveTimes| {
        let least = table.times[0].1;
        let alike = bytes * (on_link(kind, ranks, links) / on_link(of_table, table.ranks, links));
        let hops = f64::from(ranks.saturating_sub(table.ranks)) * links.hop.value();
        (least + hops, time(table, alike) - least)
    };
    let fewer = tables(of_table).filter(|table| table.ranks <= ranks).max_by_key(|table| table.ranks);
    let more = tables(of_table).filter(|table| table.ranks >= ranks).min_by_key(|table| table.ranks);
    match (fewer, more) {
        (Some(fewer), Some(more)) => {
            let part = f64::from(ranks - fewer.ranks) / f64::from((more.ranks - fewer.ranks).max(1));
            let (low, high) = (time(fewer), time(more));
            (low.0 + part * (high.0 - low.0), low.1 + part * (high.1 - low.1))
        }
        (Some(table), None) | (None, Some(table)) => time(table),
        (None, None) => {
            let transfer = bytes * on_link(kind, ranks, links) / links.port.collectives.value() * 1e9;
            (links.within.latency.value(), transfer)
        }
    }
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
    use crate::ops::{PartSizes, Reduction};
    use std::sync::Arc;

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

    /// Times of an `all_to_all` of two ranks in pairs, and of a rank with each of the others, with `bytes` bytes from each rank.
    fn uneven(ranks: u32, bytes: u64, links: &Links) -> [f64; 2] {
        let world: Vec<u32> = (0..ranks).collect();
        let time = |sent: Vec<u64>| {
            let parts = Some(Arc::new(PartSizes { received: sent.clone(), sent }));
            exchange(&Collective { parts, ..collective(CollectiveKind::AllToAll, ranks, 0) }, &world, links)
        };
        let others = u64::from(ranks - 1);
        let pair = world.iter().map(|&to| if to == 1 { bytes / 4 } else { 0 });
        let all = world.iter().map(|&to| if to == 0 { 0 } else { bytes / 4 / others });
        [time(pair.collect()), time(all.collect())]
    }

    /// In a mesh, bytes for one rank use one link, as those of a send do. A port to a switch carries the bytes for all ranks.
    #[test]
    fn an_uneven_all_to_all_uses_the_links_to_its_ranks() {
        for name in ["hgx_h200", "mi300x"] {
            let links = Links::named(name).unwrap();
            for ranks in [2, 3, 4, 8] {
                let bytes = u64::from(ranks - 1) << 26;
                let [pair, all] = uneven(ranks, bytes, &links);
                let send = exchange(&collective(CollectiveKind::Send, ranks, bytes / 4), &[0, 1], &links);
                match links.wiring {
                    Wiring::Mesh => {
                        assert!((pair - send).abs() < 1.0, "{ranks} ranks: {pair} and {send} ns");
                        let latency = links.within.latency.value();
                        let (most, least) = (pair - latency, all - latency);
                        assert!((most / least - f64::from(ranks - 1)).abs() < 1e-6, "{most} and {least} ns");
                    }
                    Wiring::Switch => assert!((pair - all).abs() < 1.0, "{pair} and {all} ns"),
                }
                let even = collective(CollectiveKind::AllToAll, ranks, bytes / 4 / u64::from(ranks - 1));
                let even = exchange(&even, &(0..ranks).collect::<Vec<_>>(), &links);
                assert!((even - all).abs() < 1.0, "{name}: equal parts take {even} and {all} ns");
            }
        }
    }

    /// An all-reduce is never slower than the two halves of which a library could compose it.
    #[test]
    fn no_all_reduce_is_slower_than_its_halves() {
        use CollectiveKind::{AllGather, AllReduce, ReduceScatter};
        for name in ["hgx_h200", "mi300x"] {
            let links = Links::named(name).unwrap();
            for ranks in 2..=8u32 {
                let world: Vec<u32> = (0..ranks).collect();
                for size in (8..31).map(|power| 1u64 << power) {
                    let time = |kind, count| exchange(&collective(kind, ranks, count), &world, &links);
                    let count = size / 4 / u64::from(ranks);
                    let whole = time(AllReduce, count * u64::from(ranks));
                    let halves = time(ReduceScatter, count) + time(AllGather, count);
                    assert!(whole < halves + 1.0, "{name}, {ranks} ranks, {size} B: {whole} and {halves} ns");
                }
            }
        }
    }

    /// As many bytes on each link take as long for each number of ranks, and between two tables the time changes gradually.
    #[test]
    fn tables_scale_by_the_bytes_on_a_link() {
        let links = Links::named("mi300x").unwrap();
        let time = |links: &Links, ranks: u32, bytes: u64| {
            let world: Vec<u32> = (0..ranks).collect();
            exchange(&collective(CollectiveKind::AllReduce, ranks, bytes / 4), &world, links)
        };
        for size in [1 << 16, 1 << 20, 1 << 25, 1 << 30] {
            // Each link carries 2 / ranks of the bytes.
            assert_eq!(time(&links, 2, size), time(&links, 8, 4 * size), "{size} B");
            assert_eq!(time(&links, 4, size), time(&links, 8, 2 * size), "{size} B");
        }
        let links = Links::named("hgx_h200").unwrap();
        for size in [1 << 20, 1 << 25, 1 << 30] {
            let times: Vec<f64> = (2..=8).map(|ranks| time(&links, ranks, size)).collect();
            let is_gradual = times.windows(2).all(|pair| (0.9..1.3).contains(&(pair[1] / pair[0])));
            assert!(is_gradual, "{size} B: {times:?}");
        }
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
