//! The list of all operations.

use super::*;

/// Every operation, in the order of the documentation.
pub static CATALOGUE: &[&dyn Operation] = &[
    &matrix::Gemm::Plain,
    &matrix::Gemm::Scaled,
    &matrix::GroupedGemm,
    &attention::Attention::Forward,
    &attention::Attention::Backward,
    &attention::Attention::BiasedBackward,
    &attention::Attention::Paged,
    &attention::Attention::Ragged,
    &attention::Attention::RaggedBackward,
    &conv::Conv::Forward,
    &conv::Conv::Weights,
    &pool::Pool,
    &pool::PoolBackward,
    &elementwise::Map,
    &elementwise::Cast,
    &elementwise::Fill,
    &norms::softmax::Softmax,
    &sorting::top_k::TopK,
    &sorting::sort::Sort,
    &movement::transpose::Transpose,
    &movement::gather::Gather,
    &scatter::Scatter,
    &routing::Route,
    &movement::permute::Permute,
    &movement::permute::Unpermute,
    &movement::copies::Copy,
    &movement::copies::Memset,
    &movement::read::Read,
    &reductions::Reduce(reductions::Function::Sum),
    &reductions::Reduce(reductions::Function::Mean),
    &reductions::Reduce(reductions::Function::Prod),
    &reductions::Reduce(reductions::Function::Max),
    &reductions::Reduce(reductions::Function::Min),
    &reductions::Reduce(reductions::Function::ArgMax),
    &reductions::Reduce(reductions::Function::ArgMin),
    &reductions::Reduce(reductions::Function::LogSumExp),
    &reductions::GradNorm,
    &norms::Norm { centred: false, adds: false },
    &norms::Norm { centred: true, adds: false },
    &norms::Norm { centred: false, adds: true },
    &norms::Norm { centred: true, adds: true },
    &norms::GroupNorm { instances: false },
    &norms::GroupNorm { instances: true },
    &norms::BatchNorm,
    &losses::CrossEntropy,
    &losses::Distance::Cosine,
    &losses::Distance::Triplet,
    &losses::ElementLoss(losses::Loss::Mse),
    &losses::ElementLoss(losses::Loss::L1),
    &losses::ElementLoss(losses::Loss::Huber),
    &losses::ElementLoss(losses::Loss::KlDiv),
    &losses::ElementLoss(losses::Loss::Hinge),
    &scans::Scan { multiplies: false },
    &scans::Scan { multiplies: true },
    &collectives::Reducing::AllReduce,
    &collectives::Copying::AllGather,
    &collectives::Reducing::ReduceScatter,
    &collectives::AllToAll,
    &collectives::Copying::Broadcast,
    &collectives::Reducing::Reduce,
    &collectives::Transfer::Send,
    &collectives::Transfer::Recv,
    &collectives::Barrier,
    &synthetic::Spin,
    &synthetic::work::Work,
    &synthetic::Nop,
    &movement::embedding::Embedding,
    &movement::concat::Concat,
    &movement::pad::Pad,
    &elementwise::triad::Triad,
    &elementwise::rope::Rope,
    &elementwise::dropout::Dropout,
    &elementwise::optimizers::Optimizer::AdamW,
    &elementwise::optimizers::Optimizer::Sgd,
];

/// Returns the catalogue's operation with this name; `None` if there is none.
pub fn find(name: &str) -> Option<&'static dyn Operation> {
    CATALOGUE.iter().copied().find(|operation| operation.name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        for (index, operation) in CATALOGUE.iter().enumerate() {
            assert!(!operation.name().is_empty() && !operation.signature().summary.is_empty());
            assert_eq!(find(operation.name()).map(|found| found.name()), Some(operation.name()));
            assert!(CATALOGUE[..index].iter().all(|other| other.name() != operation.name()));
        }
    }
}
