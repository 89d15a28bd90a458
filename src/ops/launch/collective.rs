//! A rank's part of a collective, and of a copy between ranks.

use std::sync::Arc;

use crate::base::named::named;
use crate::base::{DType, GroupId};

use super::Launch;

/// A rank's part of a copy between ranks. The rank announces that its outputs may be overwritten, sends its data once
/// the receiver has announced the same, and continues once all incoming data has arrived.
#[derive(Clone, Debug, PartialEq)]
pub struct Peer {
    /// Number of this rank in the world.
    pub rank: u32,
    /// The data that this rank sends; `None` if it only receives.
    pub sends: Option<Sent>,
    /// For each output, in order, the rank that writes it.
    pub from: Arc<[u32]>,
}

/// The data that a rank sends to another.
#[derive(Clone, Debug, PartialEq)]
pub struct Sent {
    /// Rank that receives the data.
    pub to: u32,
    /// A copy or a kernel that reads this rank's memory. Its last operand is in the receiver's memory.
    pub launch: Box<Launch>,
    /// The numbers of rows to send, if the rank's second operand counts them at run time; `None` if the size is known
    /// before the run.
    pub counted: Option<RowCounts>,
}

impl Sent {
    /// Number of the leading operands of `launch` that are in this rank's own memory: the data, and the row counts if
    /// any.
    pub fn inputs(&self) -> usize {
        1 + usize::from(self.counted.is_some())
    }
}

/// The part of one rank in a collective, or one side of a transfer between two ranks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Collective {
    pub kind: CollectiveKind,
    pub group: GroupId,
    /// Number of ranks in the group.
    pub ranks: u32,
    /// Number of this rank in the group, from 0.
    pub rank: u32,
    /// Number of the operand that is sent; `None` if the rank does not send.
    pub source: Option<u8>,
    /// Number of the operand that receives; `None` if the rank does not receive.
    pub target: Option<u8>,
    pub dtype: DType,
    /// Number of elements, as communication libraries count them. In an `all_gather`, each rank contributes this
    /// number; in a `reduce_scatter`, each rank receives it; in an `all_to_all`, each rank sends it to each other rank.
    /// For other collectives, it is the number of elements of the operand.
    pub count: u64,
    /// Function that combines the values of the ranks; without effect for collectives that only move data.
    pub reduction: Reduction,
    /// Number in the group of the root of a collective, or of the other rank of a transfer.
    pub peer: u32,
    /// Numbers of elements that an uneven `all_to_all` exchanges with each rank; `None` if all parts have `count`
    /// elements.
    pub parts: Option<Arc<PartSizes>>,
    /// The rows of an `all_to_all` whose sizes a tensor holds; `None` if the sizes are known before the run.
    pub counted: Option<RowCounts>,
}

/// Rows that go from each rank to each other rank. An integer matrix that every rank has counts them: one row of the
/// matrix for each sender, whose columns are divided equally among the receivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RowCounts {
    /// Number of the operand with the counts.
    pub operand: u8,
    pub dtype: DType,
    pub ranks: u32,
    /// Number of columns of the matrix: counts for each sender.
    pub parts: u64,
    /// True if the rows return to their senders, as the option `back` requests.
    pub back: bool,
    /// Number of elements of a row of data.
    pub row: u64,
    /// Number of rows of the source tensor.
    pub source: u64,
    /// Number of rows of the target tensor.
    pub target: u64,
}

impl Collective {
    /// True if the collective is a send or a receive between two ranks.
    pub fn is_transfer(&self) -> bool {
        matches!(self.kind, CollectiveKind::Send | CollectiveKind::Recv)
    }

    /// True if the collective moves nothing: it has one rank, and its result is in place. `place` returns the place of an operand.
    pub fn is_in_place<P: PartialEq>(&self, place: impl Fn(u8) -> P) -> bool {
        self.ranks == 1 && self.source.map(&place) == self.target.map(&place)
    }

    /// True if two ranks that issue these calls, each as one operation, call the same collectives in the same order. Ranks whose
    /// collectives differ hang or fail. Sends and receives play no part: each meets one of another rank.
    pub fn meet(mine: &[Collective], theirs: &[Collective]) -> bool {
        let key = |one: &Collective| (one.kind, one.ranks, one.dtype, one.count, one.reduction, one.peer, one.counted);
        let [mine, theirs] = [mine, theirs].map(|calls| calls.iter().filter(|one| !one.is_transfer()).map(key));
        mine.eq(theirs)
    }
}

/// Numbers of elements that a rank sends to each rank, and that it receives from each rank, in an uneven `all_to_all`.
/// The lists are in rank order; the parts follow each other in memory without gaps.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PartSizes {
    pub sent: Vec<u64>,
    pub received: Vec<u64>,
}

named! {
    /// Kind of a call of the collectives library.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum CollectiveKind {
        AllReduce = "all_reduce",
        AllGather = "all_gather",
        ReduceScatter = "reduce_scatter",
        AllToAll = "all_to_all",
        Broadcast = "broadcast",
        Reduce = "reduce",
        Send = "send",
        Recv = "recv",
        Barrier = "barrier",
    }
}

named! {
    /// Reduction that a collective applies to the elements of all ranks.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Reduction {
        Sum = "sum",
        Mean = "mean",
        Min = "min",
        Max = "max",
        Product = "product",
    }
}
