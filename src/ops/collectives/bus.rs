//! Bytes that each rank transfers over the network, from which bus bandwidth is computed, as nccl-tests defines it.

use super::*;

impl CollectiveKind {
    /// Ratio of bus bandwidth to algorithm bandwidth for this number of ranks, which is the part of the bytes that
    /// each rank must transfer. `None` for a barrier.
    pub fn bus_factor(self, ranks: u32) -> Option<f64> {
        let n = f64::from(ranks);
        match self {
            CollectiveKind::AllReduce => Some(2.0 * (n - 1.0) / n),
            CollectiveKind::AllGather | CollectiveKind::ReduceScatter | CollectiveKind::AllToAll => Some((n - 1.0) / n),
            CollectiveKind::Broadcast | CollectiveKind::Reduce | CollectiveKind::Send | CollectiveKind::Recv => {
                Some(1.0)
            }
            CollectiveKind::Barrier => None,
        }
    }
}

impl Collective {
    /// Bytes as nccl-tests counts them: the size of the whole gathered or scattered tensor; without meaning for uneven parts.
    pub fn bytes(&self) -> u64 {
        let elements = match self.kind {
            CollectiveKind::AllGather | CollectiveKind::ReduceScatter | CollectiveKind::AllToAll => {
                self.count * u64::from(self.ranks)
            }
            CollectiveKind::Barrier => 0,
            _ => self.count,
        };
        elements * self.dtype.size()
    }

    /// Bytes that this rank transfers; `None` for a barrier. A send or receive counts
    /// in its own direction, any other collective in both.
    fn bus_bytes(&self) -> Option<BusBytes> {
        if let Some(parts) = &self.parts {
            let [sent, received] = parts.between_ranks(self.rank).map(|count| (count * self.dtype.size()) as f64);
            return Some(BusBytes { sent, received });
        }
        let bytes = self.bytes() as f64 * self.kind.bus_factor(self.ranks)?;
        let crosses = self.peer != self.rank;
        Some(match self.kind {
            CollectiveKind::Send => BusBytes { sent: if crosses { bytes } else { 0.0 }, received: 0.0 },
            CollectiveKind::Recv => BusBytes { sent: 0.0, received: if crosses { bytes } else { 0.0 } },
            _ => BusBytes { sent: bytes, received: bytes },
        })
    }
}

impl PartSizes {
    /// The same exchange in the other direction.
    pub fn mirrored(&self) -> PartSizes {
        PartSizes { sent: self.received.clone(), received: self.sent.clone() }
    }

    /// Numbers of elements that `rank` sends to and receives from other ranks.
    fn between_ranks(&self, rank: u32) -> [u64; 2] {
        [&self.sent, &self.received].map(|counts| counts.iter().sum::<u64>() - counts[rank as usize])
    }
}

/// Bytes that a rank transfers, by direction. Links are full duplex.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BusBytes {
    pub sent: f64,
    pub received: f64,
}

impl BusBytes {
    /// Bytes that bus bandwidth counts: the larger of both directions.
    pub fn larger(self) -> f64 {
        self.sent.max(self.received)
    }
}

impl std::ops::Add for BusBytes {
    type Output = BusBytes;

    fn add(self, other: BusBytes) -> BusBytes {
        BusBytes { sent: self.sent + other.sent, received: self.received + other.received }
    }
}

impl std::iter::Sum for BusBytes {
    fn sum<I: Iterator<Item = BusBytes>>(parts: I) -> BusBytes {
        parts.fold(BusBytes::default(), std::ops::Add::add)
    }
}

/// Whether a tensor determines how many rows an operation works on, or how many bytes it moves between ranks, so that its work is
/// unknown before the run. Its cost is then an assumption.
pub fn has_unknown_size(spec: &Spec) -> bool {
    assumes_size(spec) || moves_unknown_size(spec)
}

/// Whether a tensor determines how many rows an operation works on, or how many keys its sequences have, and nothing derives the
/// number before the run.
pub fn assumes_size(spec: &Spec) -> bool {
    spec.sizes.is_none() && (spec.live.is_some_and(|live| !live.exact) || crate::ops::attention::has_lengths(spec))
}

/// True if a tensor determines how many bytes an operation moves between ranks, so that they are unknown before the run.
pub fn moves_unknown_size(spec: &Spec) -> bool {
    if let Some(crossing) = crossing(spec) {
        return crossing.counted().is_some();
    }
    let counted = |launch: &Launch| launch.collectives().iter().any(|one| one.counted.is_some());
    spec.operation.category() == Category::Collective && spec.team.ranks > 1 && spec.launch().iter().any(counted)
}

/// True if an operation moves data between ranks.
pub fn moves_between_ranks(spec: &Spec) -> bool {
    bus_bytes(spec).is_some() || moves_unknown_size(spec)
}

/// Bytes that all collectives of an operation transfer; `None` if no data crosses a network, and if a tensor determines
/// how many.
pub fn bus_bytes(spec: &Spec) -> Option<BusBytes> {
    let crosses = |bytes: &BusBytes| bytes.larger() > 0.0;
    if moves_unknown_size(spec) {
        return None;
    }
    if crossing(spec).is_some() {
        let cost = spec.cost();
        return Some(BusBytes { sent: cost.sent as f64, received: cost.received as f64 }).filter(crosses);
    }
    if spec.operation.category() != Category::Collective || spec.team.ranks < 2 {
        return None;
    }
    let launches = spec.launch();
    let entries = launches.iter().flat_map(Launch::collectives);
    Some(entries.filter_map(Collective::bus_bytes).sum()).filter(crosses)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::movement::copies;

    #[test]
    fn factors_are_those_of_nccl_tests() {
        assert_eq!(CollectiveKind::AllReduce.bus_factor(4), Some(1.5));
        assert_eq!(CollectiveKind::AllGather.bus_factor(4), Some(0.75));
        assert_eq!(CollectiveKind::AllToAll.bus_factor(8), Some(0.875));
        assert_eq!(CollectiveKind::Broadcast.bus_factor(8), Some(1.0));
        assert_eq!(CollectiveKind::Barrier.bus_factor(8), None);
    }

    fn tensor(elements: u64) -> Tensor {
        Tensor::packed(DType::F32, &[elements])
    }

    /// Returns an operation of rank 0 whose peer, if any, is rank 1.
    fn spec(operation: &'static dyn Operation, ranks: u32, inputs: &[u64], outputs: &[u64]) -> Spec {
        let peer = ["to", "from", "root"].map(|option| (option, Attr::Int(1)));
        let attrs = Attrs::of([peer.as_slice(), &[("op", Attr::Word("sum"))]].concat());
        let tensors = |sizes: &[u64]| sizes.iter().map(|&elements| tensor(elements)).collect();
        let team = Team { group: crate::base::GroupId(0), ranks, rank: 0 };
        Spec { team, ..Spec::new(operation, attrs, tensors(inputs), tensors(outputs)) }
    }

    /// Returns the bytes that bus bandwidth counts for an operation.
    fn counted(spec: &Spec) -> Option<f64> {
        bus_bytes(spec).map(BusBytes::larger)
    }

    #[test]
    fn bytes_are_those_of_the_whole() {
        let gather = |ranks| spec(&Copying::AllGather, ranks, &[100], &[100 * u64::from(ranks)]);
        assert_eq!(counted(&gather(4)), Some(1600.0 * 0.75));
        assert_eq!(counted(&gather(1)), None);
        assert_eq!(counted(&spec(&Reducing::AllReduce, 4, &[100], &[100])), Some(400.0 * 1.5));
        assert_eq!(counted(&spec(&Barrier, 4, &[], &[])), None);
        // The cost has the bytes that cross a link; on one rank, those that are read and written there.
        for ranks in [2, 4, 8] {
            let n = u64::from(ranks);
            for (operation, inputs, outputs) in [
                (&Copying::AllGather as &'static dyn Operation, 120, 120 * n),
                (&Copying::Broadcast, 120, 120),
                (&Reducing::AllReduce, 120, 120),
                (&Reducing::ReduceScatter, 120, 120 / n),
                (&Reducing::Reduce, 120, 120),
                (&AllToAll, 120, 120),
            ] {
                let mut several = spec(operation, ranks, &[inputs], &[outputs]);
                several.attrs.push("counts", Attr::Absent, None);
                assert_eq!(Some(several.cost().bytes() as f64), counted(&several), "{} of {ranks}", operation.name());
                assert_eq!((several.cost().read, several.cost().written), (Traffic::NONE, Traffic::NONE));
                let mut alone = spec(operation, 1, &[inputs], &[inputs]);
                alone.attrs.push("counts", Attr::Absent, None);
                assert_eq!(alone.cost().bytes(), 960, "{}", operation.name());
            }
        }
    }

    /// In a ring, bus bandwidth counts the bytes that a rank sends once, in every notation.
    #[test]
    fn an_exchange_counts_the_larger_direction() {
        let (send, recv) = (spec(&Transfer::Send, 2, &[100], &[]), spec(&Transfer::Recv, 2, &[], &[60]));
        assert_eq!((counted(&send), counted(&recv)), (Some(400.0), Some(240.0)));
        let group = |specs: Vec<Spec>| Batch::of(specs, send.team);
        assert_eq!(counted(&group(vec![send.clone(), recv.clone()])), Some(400.0));
        assert_eq!(group(vec![send.clone(), recv.clone()]).cost().bytes(), 400);
        let mut copy =
            Spec { operation: find("copy").expect("it is there"), ..spec(&Transfer::Send, 2, &[100], &[100]) };
        copy.attrs = copies::options("auto");
        let across = |sends, from| PeerCopy::of(sends, vec![(from, tensor(60))], send.team);
        let both = across(Some((1, copy.clone())), 1);
        assert_eq!((counted(&both), both.cost().bytes()), (Some(400.0), 400));
        assert_eq!(bus_bytes(&both), bus_bytes(&group(vec![send.clone(), recv])));
        // A rank that only receives counts the bytes that it receives.
        let received = |from| (counted(&across(None, from)), across(None, from).cost().bytes());
        assert_eq!(received(1), (Some(240.0), 240));
        assert_eq!(received(0), (None, 0), "what stays on a rank crosses nothing");
        // A collective uses both directions of a link.
        let mixed = group(vec![send.clone(), spec(&Reducing::AllReduce, 2, &[10], &[10])]);
        assert_eq!(bus_bytes(&mixed), Some(BusBytes { sent: 440.0, received: 40.0 }));
    }

    #[test]
    fn uneven_parts_count_what_leaves_and_what_arrives() {
        let mut uneven = spec(&AllToAll, 3, &[100], &[100]);
        let counts = vec![vec![50, 20, 0], vec![10, 0, 0], vec![30, 0, 0]];
        uneven.attrs.push("counts", Attr::Counts(ElementCounts::Rows(counts).into()), None);
        assert_eq!(bus_bytes(&uneven), Some(BusBytes { sent: 80.0, received: 160.0 }));
        assert_eq!((uneven.cost().sent, uneven.cost().received, uneven.cost().bytes()), (80, 160, 160));
    }
}
