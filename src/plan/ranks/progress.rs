//! Simulates the progress of ranks: an operation completes as soon as nothing blocks it.

use std::collections::VecDeque;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::base::{GroupId, LaneId, OpId};
use crate::model::{self, Step};
use crate::ops::{Collective, CollectiveKind};
use crate::plan::StepPlan;

use super::RankPlan;
use super::calls::{CallTable, CommunicatorKey, Tables};

/// Maximum number of reported mismatches.
const MAX_ERRORS: usize = 20;

/// Number of open dependencies that stands for an operation which is complete.
const DONE: u32 = u32::MAX;

/// An operation of a rank in an iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OperationRun {
    pub rank: u32,
    pub iteration: u32,
    pub op: OpId,
}

/// A collective call: an operation of a rank, and the index among the operation's calls.
pub type CollectiveCall = (OperationRun, u32);

pub struct RankSimulation<'a> {
    pub tables: &'a Tables<'a>,
    /// For each rank, the real stream of each stream, on which operations of an iteration run in the order of the text. Empty if
    /// streams share none.
    shared: Vec<Vec<LaneId>>,
    pub ranks: Vec<SimulatedRank<'a>>,
    pub iterations: u32,
    channels: FxHashMap<CommunicatorKey, ChannelState>,
    /// Sends and receives on a channel that have no partner yet, by sender and receiver as numbers in the world.
    transfers: FxHashMap<(CommunicatorKey, u32, u32), TransferQueue>,
    /// For each operation under way, the number of its calls that are not complete.
    waiting: FxHashMap<OperationRun, u32>,
    ready: VecDeque<OperationRun>,
    /// All-to-alls with explicit counts that were compared already, by the addresses of the ranks' collectives.
    compared: FxHashSet<Vec<*const Collective>>,
    /// Source locations of mismatches that were reported.
    reported: FxHashSet<[u32; 2]>,
    /// Pairs of calls of two ranks that match by their order, but do not do the same.
    pub differing: Vec<(CollectiveCall, CollectiveCall)>,
}

/// Progress of one rank.
pub struct SimulatedRank<'a> {
    rank: &'a RankPlan,
    /// Number of the first open iteration. `open` has, for each open iteration, each operation's number of open
    /// dependencies.
    pub first: u32,
    pub open: VecDeque<Vec<u32>>,
    /// For each open iteration, the number of operations that are not complete.
    left: VecDeque<usize>,
    /// For an operation of an open iteration, its dependents in later iterations.
    later: FxHashMap<(u32, OpId), Vec<(u32, OpId)>>,
    /// For each stream, its last operation in the open iterations.
    last: Vec<Option<(u32, OpId)>>,
}

/// Collectives on a channel at which some members have not arrived.
#[derive(Default)]
struct ChannelState {
    /// Number of the first open collective.
    first: usize,
    /// For each open collective, the calls that have arrived at it.
    open: VecDeque<Vec<CollectiveCall>>,
    /// For each member, the number of collectives at which it has arrived.
    arrived: FxHashMap<u32, usize>,
    /// True if a mismatch was reported. Later collectives of the channel are then not compared.
    differs: bool,
}

/// Sends and receives between two ranks on a channel that wait for their partners.
#[derive(Default)]
struct TransferQueue {
    sends: VecDeque<CollectiveCall>,
    receives: VecDeque<CollectiveCall>,
    /// Number of matched pairs.
    met: usize,
    differs: bool,
}

/// The next operation of the iteration on the same real stream; `None` for the last one.
fn next_on_lane(step: &Step, op: OpId, lanes: &[LaneId]) -> Option<OpId> {
    let lane = |op| lanes[step.op(op).stream.index()];
    step.ids().skip(op.index() + 1).find(|&next| lane(next) == lane(op))
}

impl<'a> RankSimulation<'a> {
    /// The operation before an operation of an iteration on the same shared real stream; `None` for the first one, and if streams
    /// share none.
    pub fn previous_on_lane(&self, node: OperationRun) -> Option<OpId> {
        let lanes = self.shared.get(node.rank as usize)?;
        let cycle = &self.tables.of(node.rank).program.cycle;
        let step = &cycle[node.iteration as usize % cycle.len()];
        let lane = |op: OpId| lanes[step.op(op).stream.index()];
        step.ids().take(node.op.index()).filter(|&before| lane(before) == lane(node.op)).last()
    }

    /// Starts a simulation in which no operation is complete. `shared` has, for each rank, the real stream of each stream; it is
    /// empty if streams share none.
    pub fn new(ranks: &'a [RankPlan], tables: &'a Tables<'a>, shared: Vec<Vec<LaneId>>) -> RankSimulation<'a> {
        let states = ranks.iter().map(|rank| SimulatedRank {
            rank,
            first: 0,
            open: VecDeque::new(),
            left: VecDeque::new(),
            later: FxHashMap::default(),
            last: vec![None; rank.program.streams.len()],
        });
        RankSimulation {
            tables,
            shared,
            ranks: states.collect(),
            iterations: model::slots(ranks.iter().map(|rank| &*rank.program)) as u32,
            channels: FxHashMap::default(),
            transfers: FxHashMap::default(),
            waiting: FxHashMap::default(),
            ready: VecDeque::new(),
            compared: FxHashSet::default(),
            reported: FxHashSet::default(),
            differing: Vec::new(),
        }
    }

    /// Simulates until no operation can make progress.
    pub fn run(&mut self) {
        for rank in 0..self.ranks.len() as u32 {
            self.open(rank);
        }
        while let Some(node) = self.ready.pop_front() {
            let tables = self.tables;
            let table = tables.of(node.rank);
            let step = node.iteration as usize % table.program.cycle.len();
            let calls = table.calls(step, node.op);
            if calls.is_empty() {
                self.complete(node);
                continue;
            }
            self.waiting.insert(node, calls.len() as u32);
            for (place, call) in calls.iter().enumerate() {
                let channel = table.channel(step, node.op, call.group, node.rank);
                let side = (node, place as u32);
                match call.is_transfer() {
                    true => self.transfer(channel, side, call, table),
                    false => self.meet(channel, side, table, call.group),
                }
            }
        }
    }

    /// Opens further iterations of a rank, up to the number that may be under way.
    fn open(&mut self, rank: u32) {
        let state = &mut self.ranks[rank as usize];
        let program = &state.rank.program;
        let depth = program.step.under_way() as usize;
        loop {
            while state.left.front() == Some(&0) {
                state.left.pop_front();
                state.open.pop_front();
                state.first += 1;
            }
            let iteration = state.first + state.open.len() as u32;
            if iteration >= self.iterations || state.open.len() >= depth {
                return;
            }
            let mut waits = state.waits(iteration);
            if let Some(lanes) = self.shared.get(rank as usize) {
                let mut used = FxHashSet::default();
                let step = &program.cycle[iteration as usize % program.cycle.len()];
                for op in step.ids() {
                    let behind_another = !used.insert(lanes[step.op(op).stream.index()]);
                    waits[op.index()] += u32::from(behind_another);
                }
            }
            let free = waits.iter().enumerate().filter(|(_, waits)| **waits == 0);
            self.ready.extend(free.map(|(op, _)| OperationRun { rank, iteration, op: OpId::from(op) }));
            state.left.push_back(waits.len());
            state.open.push_back(waits);
        }
    }

    fn complete(&mut self, node: OperationRun) {
        let tables = self.tables;
        let table = tables.of(node.rank);
        let step = node.iteration as usize % table.program.cycle.len();
        let state = &mut self.ranks[node.rank as usize];
        let index = (node.iteration - state.first) as usize;
        state.open[index][node.op.index()] = DONE;
        state.left[index] -= 1;
        let later = state.later.remove(&(node.iteration, node.op)).unwrap_or_default();
        let here = table.followers(step, node.op).iter().map(|&op| (node.iteration, op));
        let lanes = self.shared.get(node.rank as usize);
        let next = lanes.and_then(|lanes| next_on_lane(&table.program.cycle[step], node.op, lanes));
        for (iteration, op) in here.chain(later).chain(next.map(|op| (node.iteration, op))) {
            let waits = &mut state.open[(iteration - state.first) as usize][op.index()];
            *waits -= 1;
            if *waits == 0 {
                self.ready.push_back(OperationRun { iteration, op, ..node });
            }
        }
        if state.left.front() == Some(&0) {
            self.open(node.rank);
        }
    }

    /// Completes one of the calls of an operation.
    fn passed(&mut self, (node, _): CollectiveCall) {
        let Some(calls) = self.waiting.get_mut(&node) else { return };
        *calls -= 1;
        if *calls == 0 {
            self.waiting.remove(&node);
            self.complete(node);
        }
    }

    /// True if streams share real streams.
    pub fn is_shared(&self) -> bool {
        !self.shared.is_empty()
    }

    /// The collective of a call.
    pub fn call(&self, (node, place): CollectiveCall) -> &'a Collective {
        let tables: &'a Tables<'a> = self.tables;
        let table = tables.of(node.rank);
        &table.calls(node.iteration as usize % table.program.cycle.len(), node.op)[place as usize]
    }

    // --- Collectives ------------------------------------------------------------------------------------------

    /// Adds a call to its collective, and completes the collective if it is the last one.
    fn meet(&mut self, channel: CommunicatorKey, side: CollectiveCall, table: &CallTable, group: GroupId) {
        let size = table.program.groups[group.index()].size() as usize;
        let state = self.channels.entry(channel).or_default();
        let arrived = state.arrived.entry(side.0.rank).or_default();
        let index = *arrived - state.first;
        *arrived += 1;
        if state.open.len() <= index {
            state.open.push_back(Vec::new());
        }
        let sides = &mut state.open[index];
        sides.push(side);
        let (first, all) = (sides[0], sides.len() == size);
        if !state.differs && !alike(self.call(first), self.call(side)) {
            self.disagree(channel, first, side);
        }
        if all && let Some(state) = self.channels.get_mut(&channel) {
            let sides = state.open.remove(index).unwrap_or_default();
            state.first += 1;
            self.compare_counts(channel, &sides);
            sides.into_iter().for_each(|side| self.passed(side));
        }
    }

    /// Checks that sender and receiver agree on the explicit counts of an all-to-all.
    fn compare_counts(&mut self, channel: CommunicatorKey, sides: &[CollectiveCall]) {
        if self.call(sides[0]).parts.is_none() || self.channels[&channel].differs {
            return;
        }
        let mut sides = sides.to_vec();
        sides.sort_unstable();
        let calls: Vec<&Collective> = sides.iter().map(|side| self.call(*side)).collect();
        if !self.compared.insert(calls.iter().map(|call| std::ptr::from_ref(*call)).collect()) {
            return;
        }
        let parts: Vec<_> = calls.iter().filter_map(|call| call.parts.as_ref()).collect();
        for (from, sender) in parts.iter().enumerate() {
            let differs = parts.iter().enumerate().find(|(to, receiver)| sender.sent[*to] != receiver.received[from]);
            if let Some((to, _)) = differs {
                return self.disagree(channel, sides[from], sides[to]);
            }
        }
    }

    /// Reports two calls of a collective that do not match.
    fn disagree(&mut self, channel: CommunicatorKey, first: CollectiveCall, second: CollectiveCall) {
        if let Some(state) = self.channels.get_mut(&channel) {
            state.differs = true;
        }
        self.report(first, second);
    }

    /// Reports a mismatch, once for each pair of source locations, since other groups may have the same one.
    fn report(&mut self, first: CollectiveCall, second: CollectiveCall) {
        let (first, second) = (first.min(second), first.max(second));
        let places = [first.0, second.0].map(|node| self.step(node).op(node.op).span.start);
        if self.differing.len() < MAX_ERRORS && self.reported.insert(places) {
            self.differing.push((first, second));
        }
    }

    // --- Transfers --------------------------------------------------------------------------------------------

    /// Completes a send or receive with its partner, or queues it if the partner has not arrived.
    fn transfer(&mut self, channel: CommunicatorKey, side: CollectiveCall, call: &Collective, table: &CallTable) {
        let rank = side.0.rank;
        let peer = table.program.groups[call.group.index()].members_with(rank).nth(call.peer as usize).unwrap_or(rank);
        let sends = call.kind == CollectiveKind::Send;
        let (from, to) = if sends { (rank, peer) } else { (peer, rank) };
        let way = self.transfers.entry((channel, from, to)).or_default();
        let (mine, others) =
            if sends { (&mut way.sends, &mut way.receives) } else { (&mut way.receives, &mut way.sends) };
        let Some(other) = others.pop_front() else { return mine.push_back(side) };
        way.met += 1;
        let known = way.differs;
        let (mine, theirs) = (self.call(side), self.call(other));
        if (mine.count, mine.dtype) != (theirs.count, theirs.dtype) && !known {
            self.transfers.entry((channel, from, to)).or_default().differs = true;
            self.report(side, other);
        }
        self.passed(side);
        self.passed(other);
    }

    // --- Deadlocks --------------------------------------------------------------------------------------------

    /// Operations that have arrived at their collectives and are not complete, in the order of ranks.
    pub fn under_way(&self) -> Vec<OperationRun> {
        let mut nodes: Vec<OperationRun> = self.waiting.keys().copied().collect();
        nodes.sort_unstable();
        nodes
    }

    /// Number of the collective on its channel in which a call takes part; `None` if the collective has completed.
    pub fn call_position(&self, channel: CommunicatorKey, side: CollectiveCall) -> Option<usize> {
        let state = self.channels.get(&channel)?;
        let index = state.open.iter().position(|sides| sides.contains(&side))?;
        Some(state.first + index)
    }

    /// Number of collectives at which a member has arrived on a channel.
    pub fn arrived(&self, channel: CommunicatorKey, rank: u32) -> usize {
        self.channels.get(&channel).and_then(|state| state.arrived.get(&rank)).copied().unwrap_or(0)
    }

    /// Number of a send or receive among those of its direction on the channel; `None` if it has been matched.
    pub fn transfer_position(
        &self,
        channel: CommunicatorKey,
        from: u32,
        to: u32,
        side: CollectiveCall,
    ) -> Option<usize> {
        let way = self.transfers.get(&(channel, from, to))?;
        let index = way.sends.iter().chain(&way.receives).position(|waiting| *waiting == side)?;
        Some(way.met + index)
    }

    /// The step that an operation belongs to.
    pub fn step(&self, node: OperationRun) -> &'a Step {
        let program = &self.ranks[node.rank as usize].rank.program;
        &program.cycle[node.iteration as usize % program.cycle.len()]
    }

    /// The plan of the step that an operation belongs to.
    pub fn plan(&self, node: OperationRun) -> &'a StepPlan {
        let plan = &self.ranks[node.rank as usize].rank.plan;
        &plan.steps[node.iteration as usize % plan.steps.len()]
    }
}

impl SimulatedRank<'_> {
    /// Counts the dependencies of each operation in an iteration that is being opened.
    fn waits(&mut self, iteration: u32) -> Vec<u32> {
        let (program, plan) = (&self.rank.program, &self.rank.plan);
        let index = iteration as usize % program.cycle.len();
        let (step, plan) = (&program.cycle[index], &plan.steps[index]);
        let mut waits = vec![0u32; step.ops.len()];
        for edge in plan.all() {
            waits[edge.to.index()] += 1;
        }
        let across = plan.across.iter().filter(|edge| edge.distance <= iteration);
        let mut earlier: Vec<(u32, OpId, OpId)> =
            across.map(|edge| (iteration - edge.distance, edge.from, edge.to)).collect();
        for op in step.ids() {
            let last = self.last[step.op(op).stream.index()].replace((iteration, op));
            earlier.extend(last.filter(|last| last.0 != iteration).map(|(before, from)| (before, from, op)));
        }
        for (before, from, to) in earlier {
            let open = before.checked_sub(self.first).and_then(|place| self.open.get(place as usize));
            if open.is_some_and(|open| open[from.index()] != DONE) {
                self.later.entry((before, from)).or_default().push((iteration, to));
                waits[to.index()] += 1;
            }
        }
        waits
    }
}

/// True if two ranks' calls are the same, so that they can complete together.
fn alike(a: &Collective, b: &Collective) -> bool {
    a.kind == b.kind
        && a.dtype == b.dtype
        && a.count == b.count
        && a.reduction == b.reduction
        && a.peer == b.peer
        && a.parts.is_some() == b.parts.is_some()
}
