//! What a collective moves over the network, as nccl-tests count it.

use crate::ops::Spec;

/// Bytes of a bus bandwidth, by the name of the operation: its bytes times the share of them that has to cross the
/// network for each rank. Nothing for what is no collective, and on one rank, where nothing crosses.
pub fn bytes(spec: &Spec) -> Option<f64> {
    if spec.team.ranks < 2 {
        return None;
    }
    Some(counted(spec) as f64 * factor(spec.operation.name(), u64::from(spec.team.ranks))?)
}

/// The bytes that nccl-tests count: those of the larger side, which is the whole of what is gathered or scattered.
fn counted(spec: &Spec) -> u64 {
    let bytes = |tensors: &[crate::ops::Tensor]| tensors.iter().map(crate::ops::Tensor::bytes).sum::<u64>();
    bytes(&spec.inputs).max(bytes(&spec.outputs))
}

/// Bus bandwidth over algorithm bandwidth among `ranks`; nothing for an operation that is no collective.
pub fn factor(operation: &str, ranks: u64) -> Option<f64> {
    let n = ranks as f64;
    match operation {
        "all_reduce" => Some(2.0 * (n - 1.0) / n),
        "all_gather" | "reduce_scatter" | "all_to_all" | "gather" | "scatter" => Some((n - 1.0) / n),
        "broadcast" | "reduce" | "send" | "recv" | "send_recv" => Some(1.0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::{CATALOGUE, Category};

    #[test]
    fn factors_are_those_of_nccl_tests() {
        assert_eq!(factor("all_reduce", 4), Some(1.5));
        assert_eq!(factor("all_gather", 4), Some(0.75));
        assert_eq!(factor("all_to_all", 8), Some(0.875));
        assert_eq!(factor("broadcast", 8), Some(1.0));
        assert_eq!(factor("gemm", 8), None);
    }

    #[test]
    fn every_collective_that_moves_something_has_one() {
        let collectives = CATALOGUE.iter().filter(|operation| operation.category() == Category::Collective);
        for operation in collectives.filter(|operation| operation.name() != "barrier") {
            assert!(factor(operation.name(), 2).is_some(), "{}", operation.name());
        }
    }
}
