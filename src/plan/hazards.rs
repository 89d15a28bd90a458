//! Finds dependencies within and across iterations: by the order of streams, by declarations, and by overlapping
//! slices.

use crate::base::{Around, MemoryId, OpId, StreamId};
use crate::model::{Program, Step, Sync};

use super::accesses::{Access, Accesses, IssuedOp};
use super::error::PlanError;
use super::graph::{Edge, Hazard, Plan, Reason, StepPlan};
use super::races;
use super::regions::{MAX_PAIRS, Regions};

/// The error for a memory with too many overlapping slices, at the first operation that uses it.
fn too_many_overlaps(program: &Program, memory: MemoryId) -> PlanError {
    let uses = |step: &Step, op: OpId| {
        let views = step.inputs(op).iter().chain(step.outputs(op));
        views.into_iter().any(|view| program.views.memory(*view) == memory)
    };
    let mut steps = program.cycle.iter();
    let span = steps.find_map(|step| step.ids().find(|&op| uses(step, op)).map(|op| step.op(op).span));
    PlanError::Tangled {
        memory: program.names.name(program.memory(memory).name).to_owned(),
        limit: MAX_PAIRS,
        at: span.unwrap_or_default().into(),
    }
}

/// Dependencies of one operation while they are collected: for each stream, the last operation to wait for, with the
/// reason.
struct Waits {
    by_stream: Vec<Option<(IssuedOp, Reason)>>,
    /// Streams of which an operation has been added.
    streams: Vec<StreamId>,
    /// The collected dependencies, in the order of issue.
    sorted: Vec<(IssuedOp, Reason)>,
}

impl Waits {
    fn new(streams: usize) -> Self {
        Waits { by_stream: vec![None; streams], streams: Vec::new(), sorted: Vec::new() }
    }

    fn add(&mut self, stream: StreamId, at: IssuedOp, reason: Reason) {
        match &mut self.by_stream[stream.index()] {
            // Two reasons for the same dependency: keeps the one by memory, since `after` is recorded elsewhere too.
            Some((known, why @ Reason::After { .. })) if *known == at && matches!(reason, Reason::Data { .. }) => {
                *why = reason;
            }
            Some(known) if known.0 >= at => {}
            Some(known) => *known = (at, reason),
            none => {
                *none = Some((at, reason));
                self.streams.push(stream);
            }
        }
    }

    /// Returns all dependencies and empties the collection. On the operation's own stream, only the operation `before`
    /// remains.
    fn take(&mut self, stream: StreamId, before: Option<IssuedOp>) -> &[(IssuedOp, Reason)] {
        self.sorted.clear();
        for other in self.streams.drain(..) {
            let wait = self.by_stream[other.index()].take();
            self.sorted.extend(wait.filter(|_| other != stream));
        }
        self.sorted.extend(before.map(|before| (before, Reason::Stream)));
        self.sorted.sort_unstable_by_key(|(at, _)| *at);
        &self.sorted
    }
}

/// Finds the dependencies of a program. Walks the slots of the cycle, twice if iterations overlap: the second pass then
/// starts with the accesses of the first. Without `declared`, ignores `after` and `wait`. Also reports races if the
/// file declares its order itself.
pub fn find(program: &Program, declared: bool) -> Result<Plan, Vec<PlanError>> {
    let overlapping = program.step.sync == Sync::End;
    let cycle = program.cycle.len() as u32;
    let rounds = if overlapping { 2 } else { 1 };
    // Iterations that do not overlap need no dependencies between their slots.
    let regions = Regions::new(program, !overlapping).map_err(|memory| vec![too_many_overlaps(program, memory)])?;
    let mut steps = Vec::with_capacity(cycle as usize);
    let mut accesses = Accesses::new(program, &regions);
    let mut streams = Streams::new(program);
    for iteration in 0..rounds * cycle {
        let step = &program.cycle[(iteration % cycle) as usize];
        let plan = StepPlan::new(step.ops.len());
        let (accesses, streams) = (&mut accesses, &mut streams);
        let mut walk = HazardWalk { program, step, iteration, declared, accesses, streams, plan };
        walk.run();
        if iteration >= (rounds - 1) * cycle {
            steps.push(walk.plan.finish());
        }
        walk.accesses.end_iteration(!overlapping);
        if !overlapping {
            *walk.streams = Streams::new(program);
        }
    }
    drop(accesses);
    let plan = Plan { steps, around: Around::default() };
    if program.step.declared_order && !program.step.allow_races {
        races::check(program, &plan, &regions, rounds * cycle)?;
    }
    Ok(plan)
}

/// State of the streams during the walk, over all iterations that may be under way.
struct Streams {
    /// Last operation of each stream.
    last: Vec<Option<IssuedOp>>,
    /// The last `sync()` with its stream; `None` before the first one.
    sync: Option<(IssuedOp, StreamId)>,
    /// Number of syncs so far.
    syncs: u32,
    /// For each stream, the number of syncs when its last operation was issued; `None` before its first operation.
    seen: Vec<Option<u32>>,
    /// Streams with operations since the last `sync()`.
    moved: Vec<StreamId>,
}

impl Streams {
    fn new(program: &Program) -> Self {
        let count = program.streams.len();
        Streams { last: vec![None; count], sync: None, syncs: 0, seen: vec![None; count], moved: Vec::new() }
    }
}

/// The walk through the operations of one iteration.
struct HazardWalk<'w, 'a> {
    program: &'a Program,
    step: &'a Step,
    iteration: u32,
    declared: bool,
    accesses: &'w mut Accesses<'a>,
    streams: &'w mut Streams,
    plan: StepPlan,
}

impl HazardWalk<'_, '_> {
    fn run(&mut self) {
        let mut found = Vec::new();
        let mut waits = Waits::new(self.program.streams.len());
        for op in self.step.ids() {
            let stream = self.step.op(op).stream;
            self.synced(op, &mut waits);
            for after in self.step.after(op).iter().filter(|_| self.declared) {
                self.declared(after, &mut waits);
            }
            if !self.program.step.declared_order {
                self.inferred(op, &mut found, &mut waits);
            }
            let iteration = self.iteration;
            let at = self.at(op);
            let before = self.streams.last[stream.index()].replace(at);
            let waits = waits.take(stream, before.filter(|at| at.iteration() == iteration));
            self.plan.push(waits.iter().filter(|(at, _)| at.iteration() == iteration).map(|(at, why)| (at.op, *why)));
            for (at, reason) in waits.iter().filter(|(at, _)| at.iteration() != iteration) {
                let distance = iteration - at.iteration();
                self.plan.across.push(Edge { from: at.op, to: op, distance, reason: *reason });
            }
            if !self.program.step.declared_order {
                self.note(op);
            }
        }
    }

    fn at(&self, op: OpId) -> IssuedOp {
        IssuedOp::new(self.iteration, op)
    }

    /// Adds the dependencies of a `sync()`: on the last operation of each stream that has advanced since the previous
    /// one, in any iteration. The next operation of every stream will depend on the `sync()`.
    fn synced(&mut self, op: OpId, waits: &mut Waits) {
        let (info, at) = (self.step.op(op), self.at(op));
        let streams = &mut *self.streams;
        let count = streams.syncs;
        if streams.seen[info.stream.index()].replace(count) != Some(count) {
            streams.moved.push(info.stream);
            if let Some((sync, stream)) = streams.sync {
                waits.add(stream, sync, Reason::Sync);
            }
        }
        if info.kind.joins_all() {
            for stream in streams.moved.drain(..) {
                if let Some(other) = streams.last[stream.index()] {
                    waits.add(stream, other, Reason::Sync);
                }
            }
            streams.syncs += 1;
            streams.sync = Some((at, info.stream));
            streams.seen[info.stream.index()] = Some(streams.syncs);
            streams.moved.push(info.stream);
        }
    }

    fn declared(&self, after: &crate::model::After, waits: &mut Waits) {
        let reason = Reason::After { span: after.span };
        if !after.previous {
            waits.add(self.step.op(after.op).stream, self.at(after.op), reason);
        } else if self.program.step.sync == Sync::End && self.iteration > 0 {
            let cycle = self.program.cycle.len() as u32;
            let before = &self.program.cycle[((self.iteration - 1) % cycle) as usize];
            let at = IssuedOp::new(self.iteration - 1, after.op);
            waits.add(before.op(after.op).stream, at, reason);
        }
    }

    fn inferred(&self, op: OpId, found: &mut Vec<(Access, Hazard)>, waits: &mut Waits) {
        let stream = self.step.op(op).stream;
        for (view, writes) in self.step.operands(op) {
            self.accesses.conflicts(view, stream, writes, found);
            for (access, hazard) in found.drain(..) {
                waits.add(access.stream, access.at, Reason::Data { hazard, view, source: access.view });
            }
        }
    }

    fn note(&mut self, op: OpId) {
        let (at, stream) = (self.at(op), self.step.op(op).stream);
        for (view, writes) in self.step.operands(op) {
            self.accesses.note(Access { at, stream, view }, writes);
        }
    }
}
