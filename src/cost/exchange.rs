//! What a collective costs: its latency and its bandwidth, from tables of what was measured.

use crate::config::{Link, Links, Table};
use crate::ops::{Collective, CollectiveKind};

/// Bytes that a barrier is told by: it adds up a number of each rank.
const BARRIER: f64 = 4.0;

/// The node that a rank of the world is in.
fn node(rank: u32, links: &Links) -> u32 {
    rank / links.ranks_per_node.value() as u32
}

/// What connects two ranks of the world.
pub fn link(one: u32, other: u32, links: &Links) -> &Link {
    if node(one, links) == node(other, links) { &links.within } else { &links.across }
}

/// How long a collective takes from when the last rank has come, in ns. `ranks` are those of its group, as the world
/// counts them.
pub fn exchange(collective: &Collective, ranks: &[u32], links: &Links) -> f64 {
    let node = |rank: u32| node(rank, links);
    let factor = collective.kind.bus_factor(collective.ranks).unwrap_or(1.0);
    let bytes = match collective.kind {
        CollectiveKind::Barrier => BARRIER,
        _ => collective.bytes() as f64,
    };
    if let CollectiveKind::Send | CollectiveKind::Recv = collective.kind {
        let link = link(ranks[collective.rank as usize], ranks[collective.peer as usize], links);
        return link.latency.value() + bytes / link.bandwidth.value() * 1e9;
    }
    let mut nodes: Vec<u32> = ranks.iter().map(|&rank| node(rank)).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let local = (ranks.len() as u32).div_ceil(nodes.len() as u32);
    let within = if local > 1 { within(collective.kind, bytes, local, links) } else { 0.0 };
    if nodes.len() == 1 {
        return within;
    }
    // Each device has its own way out, and what goes around the group goes over it once.
    let steps = f64::from(nodes.len() as u32).log2().ceil();
    let across = links.across.latency.value() * steps + bytes * factor / links.across.bandwidth.value() * 1e9;
    within.max(across)
}

fn within(kind: CollectiveKind, bytes: f64, ranks: u32, links: &Links) -> f64 {
    let name = match kind {
        CollectiveKind::AllReduce | CollectiveKind::Barrier => "all_reduce",
        CollectiveKind::ReduceScatter => "reduce_scatter",
        CollectiveKind::AllToAll => "all_to_all",
        _ => "all_gather",
    };
    // The table of the most ranks that are no more than these, else of the fewest.
    let tables = links.tables.iter().filter(|table| table.collective == name);
    let table = tables.min_by_key(|table| (table.ranks > ranks, table.ranks.abs_diff(ranks)));
    let Some(table) = table else {
        return links.within.latency.value() + bytes / links.within.bandwidth.value() * 1e9;
    };
    let least = table.times[0].1;
    let share = |ranks: u32| f64::from(ranks - 1) / f64::from(ranks);
    let grown = (time(table, bytes) - least) * share(ranks) / share(table.ranks);
    least + f64::from(ranks.saturating_sub(table.ranks)) * links.hop.value() + grown
}

/// The table's time of a size: between two sizes it grows evenly in their logarithms, beyond the last with the size.
fn time(table: &Table, bytes: f64) -> f64 {
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

    #[test]
    fn nodes_are_joined_by_what_is_slower() {
        let links = Links::named("hgx_h200").unwrap();
        let all_reduce = collective(CollectiveKind::AllReduce, 2, 1 << 28);
        let (near, far) = (exchange(&all_reduce, &[0, 1], &links), exchange(&all_reduce, &[0, 8], &links));
        assert!(far > 5.0 * near, "{near} and {far}");
        let send = collective(CollectiveKind::Send, 2, 1 << 20);
        assert!(exchange(&send, &[7, 8], &links) > exchange(&send, &[6, 7], &links));
    }
}
