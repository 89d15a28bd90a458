//! What collectives move over the network, as nccl-tests count it: the one place for their bus bandwidth.

use super::*;

impl CollectiveKind {
    /// Bus bandwidth over algorithm bandwidth among `ranks`: the share of the bytes that has to cross the network for
    /// each rank. Nothing for a barrier, which moves no data.
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
    /// The bytes that nccl-tests count: the whole of what is gathered or scattered; of uneven parts, what this rank
    /// sends.
    pub fn bytes(&self) -> u64 {
        let elements = match (self.kind, &self.parts) {
            (CollectiveKind::AllToAll, Some(parts)) => parts.sent.iter().sum(),
            (CollectiveKind::AllGather | CollectiveKind::ReduceScatter | CollectiveKind::AllToAll, _) => {
                self.count * u64::from(self.ranks)
            }
            (CollectiveKind::Barrier, _) => 0,
            _ => self.count,
        };
        elements * self.dtype.size()
    }

    /// Its bytes times the factor of its kind; nothing for one that moves no data, and on one rank, where nothing
    /// crosses a network.
    fn bus_bytes(&self) -> Option<f64> {
        let factor = self.kind.bus_factor(self.ranks).filter(|_| self.ranks > 1)?;
        Some(self.bytes() as f64 * factor)
    }
}

/// Bytes of an operation's bus bandwidth: of all its collectives. What is sent and received in one batch goes both ways
/// at once, and counts in the larger direction. Nothing where no data crosses a network.
pub fn bus_bytes(spec: &Spec) -> Option<f64> {
    if spec.operation.category() != Category::Collective || spec.team.ranks < 2 {
        return None;
    }
    let mut moved = None;
    let (mut sent, mut received) = (0.0, 0.0);
    for launch in spec.launch() {
        let Launch::Collective(entries) = launch else { continue };
        for entry in &entries[..] {
            let Some(bytes) = entry.bus_bytes() else { continue };
            let sum = match entry.kind {
                CollectiveKind::Send => &mut sent,
                CollectiveKind::Recv => &mut received,
                _ => moved.get_or_insert(0.0),
            };
            *sum += bytes;
        }
    }
    let one_way = Some(f64::max(sent, received)).filter(|bytes| *bytes > 0.0);
    moved.into_iter().chain(one_way).reduce(|a, b| a + b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_are_those_of_nccl_tests() {
        assert_eq!(CollectiveKind::AllReduce.bus_factor(4), Some(1.5));
        assert_eq!(CollectiveKind::AllGather.bus_factor(4), Some(0.75));
        assert_eq!(CollectiveKind::AllToAll.bus_factor(8), Some(0.875));
        assert_eq!(CollectiveKind::Broadcast.bus_factor(8), Some(1.0));
        assert_eq!(CollectiveKind::Barrier.bus_factor(8), None);
    }

    fn spec(operation: &'static dyn Operation, ranks: u32, inputs: &[u64], outputs: &[u64]) -> Spec {
        let tensor = |&elements: &u64| {
            let dims = Dims::from_slice(&[elements]).expect("one dimension");
            Tensor { dtype: DType::F32, dims, strides: dims.contiguous_strides(), space: Space::Device, align: 16 }
        };
        let mut attrs = Attrs::default();
        for option in ["to", "from", "root"] {
            attrs.push(option, Attr::Int(1), None);
        }
        attrs.push("op", Attr::Word("sum"), None);
        let (inputs, outputs) = (inputs.iter().map(tensor).collect(), outputs.iter().map(tensor).collect());
        let team = Team { group: crate::base::GroupId(0), ranks, rank: 0 };
        Spec { operation, attrs, expression: None, inputs, outputs, team }
    }

    #[test]
    fn bytes_are_those_of_the_whole() {
        let gather = |ranks| spec(&AllGather, ranks, &[100], &[100 * u64::from(ranks)]);
        assert_eq!(bus_bytes(&gather(4)), Some(1600.0 * 0.75));
        assert_eq!(bus_bytes(&gather(1)), None);
        assert_eq!(bus_bytes(&spec(&AllReduce, 4, &[100], &[100])), Some(400.0 * 1.5));
        assert_eq!(bus_bytes(&spec(&Barrier, 4, &[], &[])), None);
        let (send, recv) = (spec(&Send, 2, &[100], &[]), spec(&Recv, 2, &[], &[60]));
        assert_eq!(bus_bytes(&send), Some(400.0));
        let both = Batch::of(vec![send.clone(), recv, spec(&AllReduce, 2, &[10], &[10])], send.team);
        assert_eq!(bus_bytes(&both), Some(400.0 + 40.0));
    }
}
