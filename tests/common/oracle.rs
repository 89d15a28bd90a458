//! Definitions of order, evaluated for every pair of operations of a few iterations.
//!
//! The oracle uses a program's text order, streams, declared waits and the elements of its slices, and a model of how a
//! device executes a schedule's commands. It shares no code with the passes that it checks: no plan, no clocks, no
//! regions.

use std::collections::{BTreeMap, BTreeSet};

use aorta::base::{EventId, LaneId, MemoryId, OpId, StreamId, ViewId};
use aorta::model::{MemoryKind, OpKind, Program, Step, Sync};
use aorta::plan::{Plan, PlanError};
use aorta::schedule::{Command, Schedule};
use miette::SourceSpan;

/// An operation of an iteration.
pub type Node = (usize, OpId);

/// A set of nodes by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Set(Vec<u64>);

impl Set {
    pub fn insert(&mut self, number: usize) {
        if self.0.len() <= number / 64 {
            self.0.resize(number / 64 + 1, 0);
        }
        self.0[number / 64] |= 1 << (number % 64);
    }

    pub fn contains(&self, number: usize) -> bool {
        self.0.get(number / 64).is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    pub fn extend(&mut self, other: &Set) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (own, other) in self.0.iter_mut().zip(&other.0) {
            *own |= other;
        }
    }

    pub fn meets(&self, other: &Set) -> bool {
        self.0.iter().zip(&other.0).any(|(own, other)| own & other != 0)
    }

    /// The intersection of two sets, in canonical form.
    pub fn only(&self, other: &Set) -> Set {
        let mut both: Vec<u64> = self.0.iter().zip(&other.0).map(|(own, other)| own & other).collect();
        both.truncate(both.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1));
        Set(both)
    }
}

/// For each node, the nodes before it.
pub type Before = Vec<Set>;

/// The operations of some iterations in launch order, in which nodes are numbered.
pub struct Unrolled<'a> {
    pub program: &'a Program,
    pub nodes: Vec<Node>,
    starts: Vec<usize>,
    /// Number of iterations that can be under way at once.
    depth: usize,
}

impl<'a> Unrolled<'a> {
    pub fn new(program: &'a Program, iterations: usize) -> Self {
        let mut unrolled = Unrolled { program, nodes: Vec::new(), starts: vec![0], depth: 1 };
        if program.step.sync == Sync::End {
            unrolled.depth = program.step.depth as usize;
        }
        for iteration in 0..iterations {
            let ops = unrolled.step(iteration).ids().map(|op| (iteration, op));
            unrolled.nodes.extend(ops);
            unrolled.starts.push(unrolled.nodes.len());
        }
        unrolled
    }

    /// Enough iterations for everything that can happen between iterations.
    pub fn enough(program: &'a Program) -> Self {
        let iterations = match program.step.sync {
            Sync::Iteration => program.cycle.len(),
            Sync::End => 2 * program.cycle.len().max(program.step.depth as usize) + 1,
        };
        Unrolled::new(program, iterations)
    }

    /// Enough iterations for each of a schedule's commands to follow everything that it can follow.
    pub fn twice(program: &'a Program, schedule: &Schedule) -> Self {
        match program.step.sync {
            Sync::Iteration => Unrolled::enough(program),
            Sync::End => Unrolled::new(program, 2 * schedule.period.len().max(schedule.depth as usize)),
        }
    }

    pub fn iterations(&self) -> usize {
        self.starts.len() - 1
    }

    pub fn step(&self, iteration: usize) -> &'a Step {
        &self.program.cycle[iteration % self.program.cycle.len()]
    }

    pub fn number(&self, (iteration, op): Node) -> usize {
        self.starts[iteration] + op.index()
    }

    pub fn stream(&self, (iteration, op): Node) -> StreamId {
        self.step(iteration).op(op).stream
    }

    /// The nodes that launch something, from an iteration on.
    pub fn launched(&self, from: usize) -> Set {
        let mut all = Set::default();
        for (number, &(iteration, op)) in self.nodes.iter().enumerate() {
            if iteration >= from && matches!(self.step(iteration).op(op).kind, OpKind::Run(_)) {
                all.insert(number);
            }
        }
        all
    }

    /// The transitive closure of `direct`.
    pub fn closed(&self, direct: &Before) -> Before {
        let mut before: Before = Vec::with_capacity(direct.len());
        for (number, direct) in direct.iter().enumerate() {
            let mut all = direct.clone();
            for earlier in (0..number).filter(|&earlier| direct.contains(earlier)) {
                all.extend(&before[earlier]);
            }
            before.push(all);
        }
        before
    }

    /// The order declared by the text: streams, or the lanes that they share, run in order; `after` and `wait`; a
    /// `sync` follows everything before it and precedes everything after it; the number of iterations under way is
    /// limited.
    pub fn declared(&self, lane_of: Option<&[LaneId]>) -> Before {
        let lane = |node: Node| match lane_of {
            Some(lanes) => lanes[self.stream(node).index()].0,
            None => self.stream(node).0,
        };
        let mut direct = vec![Set::default(); self.nodes.len()];
        for (later, &node) in self.nodes.iter().enumerate() {
            let (iteration, op) = node;
            let step = self.step(iteration);
            for (earlier, &other) in self.nodes[..later].iter().enumerate() {
                let sync = [node, other].iter().any(|&(at, op)| self.step(at).op(op).kind.joins_all());
                if sync || lane(node) == lane(other) || iteration - other.0 >= self.depth {
                    direct[later].insert(earlier);
                }
            }
            for after in step.after(op) {
                match after.previous {
                    false => direct[later].insert(self.number((iteration, after.op))),
                    true if iteration > 0 => direct[later].insert(self.number((iteration - 1, after.op))),
                    true => {}
                }
            }
        }
        direct
    }

    /// Conflicts: for each node, the earlier nodes that access a common element, if one of the two writes it.
    pub fn conflicts(&self) -> Before {
        let touched: Vec<Vec<Touched>> = self.program.cycle.iter().map(|step| self.touched(step)).collect();
        let mut found = vec![Set::default(); self.nodes.len()];
        for (later, &(iteration, op)) in self.nodes.iter().enumerate() {
            let own = &touched[iteration % touched.len()][op.index()];
            for (earlier, &(other, other_op)) in self.nodes[..later].iter().enumerate() {
                if self.conflict(own, &touched[other % touched.len()][other_op.index()], iteration == other) {
                    found[later].insert(earlier);
                }
            }
        }
        found
    }

    /// True if operations of different streams conflict.
    pub fn has_conflict_between_streams(&self) -> bool {
        let conflicts = self.conflicts();
        let of = |number: usize| self.stream(self.nodes[number]);
        let mut pairs = (0..self.nodes.len()).flat_map(|later| (0..later).map(move |earlier| (earlier, later)));
        pairs.any(|(earlier, later)| of(earlier) != of(later) && conflicts[later].contains(earlier))
    }

    /// True if two operations conflict. Each iteration has its own scratch memory.
    fn conflict(&self, a: &Touched, b: &Touched, same_iteration: bool) -> bool {
        let meet = |a: &BTreeMap<MemoryId, Set>, b: &BTreeMap<MemoryId, Set>| {
            a.iter().any(|(memory, elements)| {
                let shared = same_iteration || self.program.memory(*memory).kind != MemoryKind::Scratch;
                shared && b.get(memory).is_some_and(|others| elements.meets(others))
            })
        };
        meet(&a.written, &b.written) || meet(&a.written, &b.read) || meet(&a.read, &b.written)
    }

    fn touched(&self, step: &Step) -> Vec<Touched> {
        let elements = |views: &[ViewId]| {
            let mut all: BTreeMap<MemoryId, Set> = BTreeMap::new();
            for &view in views {
                let memory = self.program.views.memory(view);
                all.entry(memory).or_default().extend(&elements(self.program, view));
            }
            all
        };
        step.ids().map(|op| Touched { read: elements(step.inputs(op)), written: elements(step.outputs(op)) }).collect()
    }

    /// The order of a plan and of lanes.
    pub fn planned(&self, plan: &Plan, lane_of: Option<&[LaneId]>) -> Before {
        let mut direct = vec![Set::default(); self.nodes.len()];
        let mut last: BTreeMap<u32, usize> = BTreeMap::new();
        for (later, &(iteration, op)) in self.nodes.iter().enumerate() {
            let graph = &plan.steps[iteration % plan.steps.len()];
            for edge in graph.incoming(op) {
                direct[later].insert(self.number((iteration, edge.from)));
            }
            for across in graph.across.iter().filter(|across| across.to == op) {
                if let Some(earlier) = iteration.checked_sub(across.distance as usize) {
                    direct[later].insert(self.number((earlier, across.from)));
                }
            }
            if let Some(done) = iteration.checked_sub(self.depth) {
                (0..self.starts[done + 1]).for_each(|earlier| direct[later].insert(earlier));
            }
            let stream = self.stream((iteration, op));
            let lane = lane_of.map_or(stream.0, |lanes| lanes[stream.index()].0);
            if let Some(before) = last.insert(lane, later) {
                direct[later].insert(before);
            }
        }
        direct
    }
}

/// The elements that an operation reads and writes, by memory.
struct Touched {
    read: BTreeMap<MemoryId, Set>,
    written: BTreeMap<MemoryId, Set>,
}

/// The elements of a slice.
fn elements(program: &Program, view: ViewId) -> Set {
    let dims = program.layout(program.views.memory(view)).dims;
    let mut places = vec![0u64];
    for (extent, size) in program.views.extents(view).iter().zip(dims.iter()) {
        let indices = || extent.start..extent.start + extent.len;
        places = places.iter().flat_map(|place| indices().map(move |index| place * size + index)).collect();
    }
    let mut all = Set::default();
    places.iter().for_each(|&place| all.insert(place as usize));
    all
}

/// The order in which a device executes a schedule's commands.
#[derive(Debug, PartialEq)]
pub struct Executed {
    /// For each launched node, everything that is complete when it starts.
    pub before: Before,
    /// For each iteration, what is complete at its end.
    pub ends: Vec<Set>,
}

impl Executed {
    /// Reduces to some nodes and what is before them.
    pub fn only(&self, nodes: &Set, from: usize) -> Executed {
        let kept = |(number, before): (usize, &Set)| match nodes.contains(number) {
            true => before.only(nodes),
            false => Set::default(),
        };
        Executed {
            before: self.before.iter().enumerate().map(kept).collect(),
            ends: self.ends.iter().skip(from).map(|end| end.only(nodes)).collect(),
        }
    }
}

/// Executes the commands. A lane executes in order, an event stands for what its lane had done when it was last
/// recorded, and an iteration begins when the one `depth` before it has ended. `without` skips a command of an
/// iteration of the period.
pub fn executed(unrolled: &Unrolled, schedule: &Schedule, without: Option<(usize, usize)>) -> Executed {
    let period = schedule.period.len();
    let mut lanes = vec![Set::default(); schedule.lanes.len()];
    let mut events: BTreeMap<u32, Set> = BTreeMap::new();
    let mut before = vec![Set::default(); unrolled.nodes.len()];
    let mut ends: Vec<Set> = Vec::new();
    for iteration in 0..unrolled.iterations() {
        let planned = &schedule.period[iteration % period];
        if let Some(done) = iteration.checked_sub(schedule.depth as usize) {
            lanes.iter_mut().for_each(|lane| lane.extend(&ends[done]));
        }
        for (place, command) in planned.commands.iter().enumerate() {
            match *command {
                _ if without == Some((iteration % period, place)) => {}
                Command::Launch { op, lane } => {
                    let number = unrolled.number((iteration, op));
                    before[number] = lanes[lane.index()].clone();
                    lanes[lane.index()].insert(number);
                }
                // The host's waits order nothing that events do not: a graph has only these.
                Command::HostSync => {}
                Command::Record { event, lane } => {
                    events.insert(event.0, lanes[lane.index()].clone());
                }
                Command::Wait { event, lane, .. } => {
                    if let Some(passed) = events.get(&event.0) {
                        lanes[lane.index()].extend(passed);
                    }
                }
            }
        }
        let mut end = Set::default();
        planned.leaves.iter().for_each(|lane| end.extend(&lanes[lane.index()]));
        ends.push(end);
    }
    Executed { before, ends }
}

/// Checks that a plan orders exactly what the definitions order.
pub fn judge_plan(program: &Program, plan: &Plan) -> Result<(), String> {
    let unrolled = Unrolled::enough(program);
    let mut direct = unrolled.declared(None);
    if !program.step.declared_order {
        direct.iter_mut().zip(&unrolled.conflicts()).for_each(|(direct, data)| direct.extend(data));
    }
    let (expected, found) = (unrolled.closed(&direct), unrolled.closed(&unrolled.planned(plan, None)));
    for (later, &node) in unrolled.nodes.iter().enumerate() {
        for (earlier, &other) in unrolled.nodes[..later].iter().enumerate() {
            let pair = [&expected, &found].map(|before| before[later].contains(earlier));
            if pair[0] != pair[1] {
                return Err(format!("{other:?} before {node:?}: {} by definition, {} in the plan", pair[0], pair[1]));
            }
        }
    }
    Ok(())
}

/// Checks that the lanes and events of a schedule order exactly what its plan and lanes order, and that an iteration
/// ends with all of its operations.
pub fn judge_events(program: &Program, plan: &Plan, schedule: &Schedule) -> Result<(), String> {
    let unrolled = Unrolled::twice(program, schedule);
    let launched = unrolled.launched(0);
    let found = executed(&unrolled, schedule, None).only(&launched, 0);
    let planned = unrolled.closed(&unrolled.planned(plan, Some(&schedule.lane_of)));
    for (later, &(iteration, op)) in unrolled.nodes.iter().enumerate().filter(|(number, _)| launched.contains(*number))
    {
        for earlier in (0..later).filter(|&earlier| launched.contains(earlier)) {
            let pair = [&planned, &found.before].map(|before| before[later].contains(earlier));
            if pair[0] != pair[1] {
                let other = unrolled.nodes[earlier];
                let node = (iteration, op);
                return Err(format!("{other:?} before {node:?}: {} in the plan, {} by events", pair[0], pair[1]));
            }
        }
        if !found.ends[iteration].contains(later) {
            return Err(format!("iteration {iteration} ends before its {op:?}"));
        }
    }
    Ok(())
}

/// Checks that every wait is necessary, except those of markers: a `wait` is always issued, and so are the waits of a
/// `signal` and of a `sync`. A `signal` behind a `sync` on another lane waits for it.
pub fn judge_waits(program: &Program, schedule: &Schedule) -> Result<(), String> {
    let unrolled = Unrolled::twice(program, schedule);
    let launched = unrolled.launched(0);
    let all = executed(&unrolled, schedule, None).only(&launched, 0);
    let mut spelled: usize = 0;
    // Lanes that have yet to wait for the latest `sync`. If iterations overlap, the first of the period follows the last.
    let all_lanes = || (0..schedule.lanes.len()).map(LaneId::from).collect::<BTreeSet<_>>();
    let mut ops = schedule.period.iter().flat_map(|planned| &program.cycle[planned.step].ops);
    let follows_sync = schedule.depth > 1 && ops.any(|op| op.kind.joins_all());
    let mut apart = if follows_sync { all_lanes() } else { BTreeSet::new() };
    for planned in &schedule.period {
        let step = &program.cycle[planned.step];
        let lane = |op: OpId| schedule.lane_of[step.op(op).stream.index()];
        for op in step.ids() {
            if step.op(op).kind.joins_all() {
                apart = all_lanes();
            }
            let waits = apart.remove(&lane(op));
            spelled += usize::from(waits && step.op(op).kind == OpKind::Signal);
            spelled += match step.op(op).kind {
                OpKind::Wait | OpKind::Signal => {
                    step.after(op).iter().filter(|after| lane(after.op) != lane(op)).count()
                }
                OpKind::Sync | OpKind::HostSync => schedule.lanes.len() - 1,
                OpKind::Run(_) => 0,
            };
        }
    }
    let mut spare = Vec::new();
    for (index, planned) in schedule.period.iter().enumerate() {
        for (place, command) in planned.commands.iter().enumerate() {
            let without = || executed(&unrolled, schedule, Some((index, place))).only(&launched, 0);
            if matches!(command, Command::Wait { .. }) && without() == all {
                spare.push((index, *command));
            }
        }
    }
    if spare.len() > spelled {
        return Err(format!("{spelled} waits are spelled out, and these are not needed: {spare:?}"));
    }
    let commands = || schedule.period.iter().flat_map(|planned| &planned.commands);
    let mut recorded = BTreeSet::new();
    for command in commands() {
        if let Command::Record { event, .. } = command
            && !recorded.insert(*event)
        {
            return Err(format!("{event:?} is recorded twice"));
        }
    }
    let waited: BTreeSet<EventId> = commands()
        .filter_map(|command| match command {
            Command::Wait { event, .. } => Some(*event),
            _ => None,
        })
        .collect();
    let period = || schedule.period.iter().map(|planned| &program.cycle[planned.step]);
    let signals: usize = period().map(|step| step.ops.iter().filter(|op| op.kind == OpKind::Signal).count()).sum();
    let unheard = recorded.difference(&waited).count();
    if !waited.is_subset(&recorded) || unheard > signals || recorded.len() != schedule.events as usize {
        return Err(format!("{recorded:?} are recorded, {waited:?} waited for; {signals} signals"));
    }
    Ok(())
}

/// Checks that scratch memories that share addresses are never in use together: all uses of one precede all uses of the
/// other.
pub fn judge_memory(program: &Program, schedule: &Schedule) -> Result<(), String> {
    let unrolled = Unrolled::twice(program, schedule);
    let before = executed(&unrolled, schedule, None).before;
    let mut users: BTreeMap<(u32, MemoryId), Vec<usize>> = BTreeMap::new();
    for (number, &(iteration, op)) in unrolled.nodes.iter().enumerate() {
        let copy = schedule.period[iteration % schedule.period.len()].copy;
        let step = unrolled.step(iteration);
        let views = step.inputs(op).iter().chain(step.outputs(op));
        for memory in views.map(|&view| program.views.memory(view)) {
            // Iterations that share a copy are ordered; within one, each memory has its own lifetime.
            if program.memory(memory).kind == MemoryKind::Scratch && iteration < schedule.depth as usize {
                users.entry((copy, memory)).or_default().push(number);
            }
        }
    }
    let ordered = |first: &[usize], second: &[usize]| {
        second.iter().all(|&late| first.iter().all(|&early| before[late].contains(early)))
    };
    for ((slot, a), a_users) in &users {
        for ((_, b), b_users) in users.iter().filter(|((other, b), _)| other == slot && b > a) {
            let (pa, pb) = (schedule.memory.placement(*a), schedule.memory.placement(*b));
            let apart = pa.offset + pa.bytes <= pb.offset || pb.offset + pb.bytes <= pa.offset;
            if !apart && !ordered(a_users, b_users) && !ordered(b_users, a_users) {
                return Err(format!("{a:?} and {b:?} share memory and may be alive together"));
            }
        }
    }
    Ok(())
}

/// Checks reported races:
///
/// - each report names two operations that access a common element, one of them writing, without an order, and shows
///   the slices;
/// - nothing is reported twice;
/// - if there is a race, one is reported, and ordering the two operations of each report removes all races. (Racing
///   pairs that another report's order would fix need no report.)
pub fn judge_races(program: &Program, reported: &[PlanError]) -> Result<(), String> {
    let unrolled = Unrolled::enough(program);
    let mut direct = unrolled.declared(None);
    let conflicts = unrolled.conflicts();
    let declared = unrolled.closed(&direct);
    let span = |number: usize| {
        let (iteration, op) = unrolled.nodes[number];
        SourceSpan::from(unrolled.step(iteration).op(op).span)
    };
    let mut seen = BTreeSet::new();
    for error in reported {
        let PlanError::Race { first_at, second_at, .. } = error else { continue };
        if !seen.insert([first_at, second_at].map(|at| (at.offset(), at.len()))) {
            return Err(format!("reported twice: {error:?}"));
        }
        let mut is_true = false;
        for later in (0..unrolled.nodes.len()).filter(|&later| span(later) == *second_at) {
            for earlier in (0..later).filter(|&earlier| span(earlier) == *first_at) {
                let races = conflicts[later].contains(earlier) && !declared[later].contains(earlier);
                is_true |= races && shows(&unrolled, error, earlier, later);
                direct[later].insert(earlier);
            }
        }
        if !is_true {
            return Err(format!("no race: {error:?}"));
        }
    }
    let mended = unrolled.closed(&direct);
    for later in 0..unrolled.nodes.len() {
        for earlier in (0..later).filter(|&earlier| conflicts[later].contains(earlier)) {
            if !mended[later].contains(earlier) {
                let pair = (unrolled.nodes[earlier], unrolled.nodes[later]);
                return Err(format!("missed: {pair:?}, with {reported:?}"));
            }
        }
    }
    Ok(())
}

/// True if a report's text matches its two operations.
fn shows(unrolled: &Unrolled, error: &PlanError, earlier: usize, later: usize) -> bool {
    let PlanError::Race { memory, first_does, first_slice, second_does, second_slice, .. } = error else {
        return false;
    };
    let program = unrolled.program;
    let views = |number: usize, does: &str, slice: &str| -> Vec<ViewId> {
        let (iteration, op) = unrolled.nodes[number];
        let step = unrolled.step(iteration);
        let views = if does == "writes" { step.outputs(op) } else { step.inputs(op) };
        let named = |view: ViewId| program.names.name(program.memory(program.views.memory(view)).name) == memory;
        views.iter().copied().filter(|&view| named(view) && program.view_text(view) == slice).collect()
    };
    let (first, second) = (views(earlier, first_does, first_slice), views(later, second_does, second_slice));
    (*first_does == "writes" || *second_does == "writes")
        && first.iter().any(|&a| {
            second.iter().any(|&b| {
                program.views.memory(a) == program.views.memory(b) && elements(program, a).meets(&elements(program, b))
            })
        })
}
