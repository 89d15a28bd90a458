//! Collective calls of all ranks, on numbered communicators.

use rustc_hash::FxHashMap;

use crate::base::{GroupId, OpId};
use crate::model::{OpKind, Program};
use crate::ops::{self, Category, Collective, CollectiveKind, Crossing, Launch, Reduction, Spec, Tensor};

use super::RankPlan;

/// The collective calls of one program, which several ranks may share.
#[derive(Debug)]
pub struct CallTable<'a> {
    pub program: &'a Program,
    /// For each spec, its collectives in order; empty for other operations.
    entries: Vec<Vec<Collective>>,
    /// For each stream, the number of its name, which is the same on all ranks.
    streams: Vec<u32>,
    /// For each operation of each slot, its dependents within the slot; empty until [`Tables::connect`].
    followers: Vec<Followers>,
}

/// Dependents of each operation, as concatenated lists.
#[derive(Debug)]
struct Followers {
    ends: Vec<u32>,
    ops: Vec<OpId>,
}

/// The tables of the distinct programs of a world.
#[derive(Debug)]
pub struct Tables<'a> {
    tables: Vec<CallTable<'a>>,
    /// For each rank, the index of its table.
    of: Vec<usize>,
}

/// A communicator: its group, the first rank of the group, and the number of the stream's name.
pub type CommunicatorKey = (GroupId, u32, u32);

/// Value in place of the group in the channel of a copy between ranks. The third number of such a channel is the number
/// of the copy.
const CROSSINGS: GroupId = GroupId(u32::MAX);

impl<'a> Tables<'a> {
    /// Builds the tables of a world's programs, without dependents.
    pub fn new(ranks: &'a [RankPlan]) -> Tables<'a> {
        let mut names = FxHashMap::default();
        let mut known: FxHashMap<*const Program, usize> = FxHashMap::default();
        let mut tables = Vec::new();
        let of = ranks.iter().map(|rank| {
            *known.entry(std::sync::Arc::as_ptr(&rank.program)).or_insert_with(|| {
                tables.push(CallTable::new(rank, &mut names));
                tables.len() - 1
            })
        });
        let of = of.collect();
        Tables { tables, of }
    }

    /// Computes the dependents of each operation.
    pub fn connect(&mut self, ranks: &[RankPlan]) {
        for (rank, &table) in ranks.iter().zip(&self.of) {
            let followers = &mut self.tables[table].followers;
            if followers.is_empty() {
                followers.extend(rank.plan.steps.iter().map(Followers::new));
            }
        }
    }

    /// The table of a rank's program.
    pub fn of(&self, rank: u32) -> &CallTable<'a> {
        &self.tables[self.of[rank as usize]]
    }

    /// True if any program calls collectives.
    pub fn have_collectives(&self) -> bool {
        self.tables.iter().any(|table| table.entries.iter().any(|entries| !entries.is_empty()))
    }

    /// True if any program sends or receives.
    pub fn have_transfers(&self) -> bool {
        self.tables.iter().flat_map(|table| table.entries.iter().flatten()).any(Collective::is_transfer)
    }
}

impl<'a> CallTable<'a> {
    fn new(rank: &'a RankPlan, names: &mut FxHashMap<&'a str, u32>) -> CallTable<'a> {
        let program: &'a Program = &rank.program;
        let entries: Vec<Vec<Collective>> = program
            .specs
            .iter()
            .map(|spec| match (spec.operation.category(), ops::crossing(spec)) {
                (Category::Collective, _) => spec.launch().iter().flat_map(Launch::collectives).cloned().collect(),
                (_, Some(crossing)) => transfers(crossing, spec),
                _ => Vec::new(),
            })
            .collect();
        let streams = program
            .streams
            .iter()
            .map(|stream| {
                let next = names.len() as u32;
                *names.entry(&stream.name).or_insert(next)
            })
            .collect();
        CallTable { program, entries, streams, followers: Vec::new() }
    }

    /// The collectives of an operation; empty for other operations.
    pub fn calls(&self, step: usize, op: OpId) -> &[Collective] {
        match self.program.cycle[step].op(op).kind {
            OpKind::Run(spec) => &self.entries[spec.index()],
            _ => &[],
        }
    }

    /// The channel of a rank's call. Copies between ranks match by their source location, independent of their streams.
    pub fn channel(&self, step: usize, op: OpId, group: GroupId, rank: u32) -> CommunicatorKey {
        if let Some(peer) = self.program.cycle[step].peer(op) {
            return (CROSSINGS, 0, peer.crossing);
        }
        let stream = self.program.cycle[step].op(op).stream;
        let first = self.program.groups[group.index()].members_with(rank).next().unwrap_or(0);
        (group, first, self.streams[stream.index()])
    }

    /// The dependents of an operation within its slot. Requires [`Tables::connect`].
    pub fn followers(&self, step: usize, op: OpId) -> &[OpId] {
        let Followers { ends, ops } = &self.followers[step];
        let start = op.index().checked_sub(1).map_or(0, |before| ends[before]);
        &ops[start as usize..ends[op.index()] as usize]
    }
}

/// Returns a copy between ranks as a send, and a receive from each rank that writes to this one.
fn transfers(crossing: &Crossing, spec: &Spec) -> Vec<Collective> {
    let transfer = |kind, peer: u32, tensor: &Tensor| Collective {
        kind,
        group: spec.team.group,
        ranks: spec.team.ranks,
        rank: spec.team.rank,
        source: None,
        target: None,
        dtype: tensor.dtype,
        count: tensor.elements(),
        reduction: Reduction::Sum,
        peer,
        parts: None,
        counted: None,
    };
    let sends = crossing.sends.iter().map(|(to, copy)| transfer(CollectiveKind::Send, *to, &copy.outputs[0]));
    let arrives = crossing.from.iter().zip(&spec.outputs);
    sends.chain(arrives.map(|(from, tensor)| transfer(CollectiveKind::Recv, *from, tensor))).collect()
}

impl Followers {
    fn new(plan: &crate::plan::StepPlan) -> Followers {
        let mut ends = vec![0u32; plan.operations() + 1];
        for edge in plan.all() {
            ends[edge.from.index() + 1] += 1;
        }
        for index in 1..ends.len() {
            ends[index] += ends[index - 1];
        }
        let mut ops = vec![OpId(0); plan.edges()];
        for edge in plan.all() {
            // `ends` has the start of each list, which this loop moves to the list's end.
            let end = &mut ends[edge.from.index()];
            ops[*end as usize] = edge.to;
            *end += 1;
        }
        ends.pop();
        Followers { ends, ops }
    }
}
