//! Dependencies: from the streams, from what the text declares, from exact slices of memory, within an iteration and
//! across iterations; and the races where the text declares its order itself.

use rustc_hash::FxHashMap;

use crate::base::{MemoryId, OpId, StreamId, ViewId};
use crate::model::{MemoryKind, OpKind, Program, Step, Sync};

use super::clocks::{Clocks, Place};
use super::error::PlanError;
use super::graph::{Across, Edge, Hazard, Plan, Reason, StepPlan};
use super::regions::{MAX_PAIRS, Regions};

/// Races shown of one file.
const MAX_RACES: usize = 20;

/// The error for a memory whose slices overlap too often, at the first operation that uses it.
fn tangled(program: &Program, memory: MemoryId) -> PlanError {
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

/// An operation of an iteration that touched a slice.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Access {
    /// Counted over the whole walk, not within the cycle.
    iteration: u32,
    op: OpId,
    stream: StreamId,
    view: ViewId,
}

const NONE: u32 = u32::MAX;

/// Who touched each slice last. A write stands for everything before it, since it waited for that.
struct Accesses<'a> {
    program: &'a Program,
    regions: Regions,
    writers: Vec<Option<(u32, OpId, StreamId)>>,
    /// The first of a slice's readers since its last write, in `readers`; one for each stream.
    first_reader: Vec<u32>,
    readers: Vec<(Access, u32)>,
    touched: Vec<ViewId>,
}

impl<'a> Accesses<'a> {
    fn new(program: &'a Program, regions: Regions) -> Self {
        let count = program.views.len();
        Accesses {
            program,
            regions,
            writers: vec![None; count],
            first_reader: vec![NONE; count],
            readers: Vec::new(),
            touched: Vec::new(),
        }
    }

    /// Forgets scratch memory, which each iteration under way has for its own.
    fn end_iteration(&mut self, all: bool) {
        let program = self.program;
        let scratch = |view: ViewId| program.memory(program.views.memory(view)).kind == MemoryKind::Scratch;
        let mut kept = Vec::new();
        for view in std::mem::take(&mut self.touched) {
            if all || scratch(view) {
                self.writers[view.index()] = None;
                self.first_reader[view.index()] = NONE;
            } else {
                kept.push(view);
            }
        }
        if all {
            self.readers.clear();
        }
        self.touched = kept;
    }

    /// Everything that an access through `view` has to come after, with the reason.
    fn conflicts(&self, view: ViewId, writes: bool, found: &mut Vec<(Access, Hazard)>) {
        let neighbours = self.regions.of(view).iter().map(|neighbour| neighbour.view);
        for other in std::iter::once(view).chain(neighbours) {
            if let Some((iteration, op, stream)) = self.writers[other.index()] {
                let hazard = if writes { Hazard::WriteAfterWrite } else { Hazard::ReadAfterWrite };
                found.push((Access { iteration, op, stream, view: other }, hazard));
            }
            if writes {
                let mut at = self.first_reader[other.index()];
                while at != NONE {
                    let (access, next) = self.readers[at as usize];
                    found.push((access, Hazard::WriteAfterRead));
                    at = next;
                }
            }
        }
    }

    fn read(&mut self, access: Access) {
        let first = self.first_reader[access.view.index()];
        let mut at = first;
        while at != NONE {
            let (reader, next) = &mut self.readers[at as usize];
            if reader.stream == access.stream {
                *reader = access;
                return;
            }
            at = *next;
        }
        self.touch(access.view);
        self.readers.push((access, first));
        self.first_reader[access.view.index()] = self.readers.len() as u32 - 1;
    }

    fn write(&mut self, access: Access) {
        self.touch(access.view);
        self.writers[access.view.index()] = Some((access.iteration, access.op, access.stream));
        self.first_reader[access.view.index()] = NONE;
        for neighbour in self.regions.of(access.view) {
            if neighbour.covered {
                self.writers[neighbour.view.index()] = None;
                self.first_reader[neighbour.view.index()] = NONE;
            }
        }
    }

    fn touch(&mut self, view: ViewId) {
        if self.writers[view.index()].is_none() && self.first_reader[view.index()] == NONE {
            self.touched.push(view);
        }
    }
}

/// Dependencies of one operation while they are collected: the last operation of each stream, with the reason.
#[derive(Default)]
struct Waits {
    by_stream: FxHashMap<StreamId, (u32, OpId, Reason)>,
}

impl Waits {
    fn add(&mut self, stream: StreamId, iteration: u32, op: OpId, reason: Reason) {
        let slot = self.by_stream.entry(stream).or_insert((iteration, op, reason));
        if (slot.0, slot.1) < (iteration, op) {
            *slot = (iteration, op, reason);
        }
    }

    fn take(&mut self) -> Vec<(u32, OpId, Reason)> {
        let mut waits: Vec<_> = self.by_stream.drain().map(|(_, wait)| wait).collect();
        waits.sort_unstable_by_key(|(iteration, op, _)| (*iteration, *op));
        waits
    }
}

/// How far the streams have come.
struct Streams {
    /// The last operation of each.
    last: Vec<Option<(u32, OpId)>>,
    /// The last `sync()`, and the last operation since then of each stream that has gone on.
    sync: Option<(u32, OpId)>,
    since: FxHashMap<StreamId, (u32, OpId)>,
}

impl Streams {
    fn new(program: &Program) -> Self {
        Streams { last: vec![None; program.streams.len()], sync: None, since: FxHashMap::default() }
    }
}

/// Walks the iterations of the cycle, twice where they overlap: the second time around, what earlier iterations left is known.
pub fn find(program: &Program) -> Result<Plan, Vec<PlanError>> {
    let overlapping = program.step.sync == Sync::End;
    let cycle = program.cycle.len() as u32;
    let rounds = if overlapping { 2 } else { 1 };
    let regions = Regions::new(program).map_err(|memory| vec![tangled(program, memory)])?;
    let mut accesses = Accesses::new(program, regions);
    let mut races = Races::new(program);
    let mut streams = Streams::new(program);
    let mut steps = Vec::with_capacity(cycle as usize);
    for iteration in 0..rounds * cycle {
        let step = &program.cycle[(iteration % cycle) as usize];
        let (accesses, edges, across) = (&mut accesses, Vec::new(), Vec::new());
        let mut walk = Walk { program, step, iteration, accesses, streams: &mut streams, edges, across };
        walk.run(&mut races);
        if iteration >= (rounds - 1) * cycle {
            let Walk { edges, across, .. } = walk;
            steps.push(StepPlan::new(step.ops.len(), &edges, across));
        }
        accesses.end_iteration(!overlapping);
        races.end_iteration();
        if !overlapping {
            streams = Streams::new(program);
        }
    }
    if races.errors.is_empty() { Ok(Plan { steps }) } else { Err(races.errors) }
}

/// The walk through one iteration.
struct Walk<'w, 'a> {
    program: &'a Program,
    step: &'a Step,
    iteration: u32,
    accesses: &'w mut Accesses<'a>,
    streams: &'w mut Streams,
    edges: Vec<Edge>,
    across: Vec<Across>,
}

impl Walk<'_, '_> {
    fn run(&mut self, races: &mut Races) {
        let mut found = Vec::new();
        let mut waits = Waits::default();
        for op in self.step.ids() {
            let stream = self.step.op(op).stream;
            self.synced(op, &mut waits);
            for after in self.step.after(op) {
                self.declared(after, &mut waits);
            }
            if !self.program.step.declared_order {
                self.inferred(op, &mut found, &mut waits);
            }
            waits.by_stream.remove(&stream);
            let last = self.streams.last[stream.index()].replace((self.iteration, op));
            if let Some((iteration, before)) = last.filter(|(iteration, _)| *iteration == self.iteration) {
                waits.add(stream, iteration, before, Reason::Stream);
            }
            let waits = waits.take();
            if self.program.step.declared_order {
                races.check(self.step, self.accesses, self.iteration, op, &waits);
            }
            for (iteration, from, reason) in waits {
                if iteration == self.iteration {
                    self.edges.push(Edge { from, to: op, reason });
                } else {
                    let distance = self.iteration - iteration;
                    self.across.push(Across { from, to: op, distance, reason });
                }
            }
            self.note(op);
        }
    }

    /// A `sync()` waits for all streams, as far as they have come in whichever iteration; then they wait for it. What
    /// an earlier one has waited for, it need not be told to wait for again.
    fn synced(&mut self, op: OpId, waits: &mut Waits) {
        let (info, program) = (self.step.op(op), self.program);
        let stream_of = |iteration: u32, op: OpId| {
            let step = &program.cycle[iteration as usize % program.cycle.len()];
            step.op(op).stream
        };
        let streams = &mut *self.streams;
        if let Some((iteration, sync)) = streams.sync.filter(|_| !streams.since.contains_key(&info.stream)) {
            waits.add(stream_of(iteration, sync), iteration, sync, Reason::Sync);
        }
        if info.kind == OpKind::Sync {
            for (stream, (iteration, other)) in streams.since.drain() {
                waits.add(stream, iteration, other, Reason::Sync);
            }
            streams.sync = Some((self.iteration, op));
        } else {
            streams.since.insert(info.stream, (self.iteration, op));
        }
    }

    fn declared(&self, after: &crate::model::After, waits: &mut Waits) {
        let reason = Reason::After { span: after.span };
        if !after.previous {
            waits.add(self.step.op(after.op).stream, self.iteration, after.op, reason);
        } else if self.program.step.sync == Sync::End && self.iteration > 0 {
            let cycle = self.program.cycle.len() as u32;
            let before = &self.program.cycle[((self.iteration - 1) % cycle) as usize];
            waits.add(before.op(after.op).stream, self.iteration - 1, after.op, reason);
        }
    }

    fn inferred(&self, op: OpId, found: &mut Vec<(Access, Hazard)>, waits: &mut Waits) {
        let inputs = self.step.inputs(op).iter().map(|view| (*view, false));
        let outputs = self.step.outputs(op).iter().map(|view| (*view, true));
        for (view, writes) in inputs.chain(outputs) {
            self.accesses.conflicts(view, writes, found);
            for (access, hazard) in found.drain(..) {
                waits.add(access.stream, access.iteration, access.op, Reason::Data { hazard, view });
            }
        }
    }

    fn note(&mut self, op: OpId) {
        let stream = self.step.op(op).stream;
        let access = |view: ViewId| Access { iteration: self.iteration, op, stream, view };
        for &view in self.step.inputs(op) {
            self.accesses.read(access(view));
        }
        for &view in self.step.outputs(op) {
            self.accesses.write(access(view));
        }
    }
}

/// The search for races: two operations that touch the same memory, at least one writing, with no order between them.
struct Races<'a> {
    program: &'a Program,
    wanted: bool,
    clocks: Clocks,
    /// The places of the operations of the iterations that may be under way, newest last.
    places: Vec<Vec<Place>>,
    first: u32,
    /// For each iteration, how many operations each stream had at its end.
    ends: Vec<Vec<u32>>,
    errors: Vec<PlanError>,
}

impl<'a> Races<'a> {
    fn new(program: &'a Program) -> Self {
        let wanted = program.step.declared_order && !program.step.allow_races;
        Races {
            program,
            wanted,
            clocks: Clocks::new(if wanted { program.streams.len() } else { 0 }),
            places: vec![Vec::new()],
            first: 0,
            ends: Vec::new(),
            errors: Vec::new(),
        }
    }

    fn place(&self, iteration: u32, op: OpId) -> Option<Place> {
        let index = iteration.checked_sub(self.first)? as usize;
        self.places.get(index)?.get(op.index()).copied()
    }

    fn check(&mut self, step: &Step, accesses: &Accesses, iteration: u32, op: OpId, waits: &[(u32, OpId, Reason)]) {
        if !self.wanted {
            return;
        }
        let queue = step.op(op).stream.0;
        for (from_iteration, from, _) in waits {
            if let Some(place) = self.place(*from_iteration, *from) {
                self.clocks.wait(queue, place);
            }
        }
        let mut found = Vec::new();
        let inputs = step.inputs(op).iter().map(|view| (*view, false));
        let outputs = step.outputs(op).iter().map(|view| (*view, true));
        for (view, writes) in inputs.chain(outputs) {
            accesses.conflicts(view, writes, &mut found);
            for (access, hazard) in found.drain(..) {
                let Some(place) = self.place(access.iteration, access.op) else { continue };
                if !self.clocks.knows(queue, place) {
                    self.report(step, iteration, op, view, access, hazard);
                }
            }
        }
        // Clocks are kept as long as their iteration may be under way: nobody knows how often they will be asked.
        let place = self.clocks.push(queue, u32::MAX);
        self.places.last_mut().expect("one for the iteration under way").push(place);
    }

    fn report(&mut self, step: &Step, iteration: u32, op: OpId, view: ViewId, access: Access, hazard: Hazard) {
        let program = self.program;
        let cycle = program.cycle.len() as u32;
        let earlier_step =
            if access.iteration == iteration { step } else { &program.cycle[(access.iteration % cycle) as usize] };
        let (first, second) = (earlier_step.op(access.op), step.op(op));
        let same = |error: &PlanError| {
            matches!(error, PlanError::Race { first_at, second_at, .. }
                if (*first_at, *second_at) == (first.span.into(), second.span.into()))
        };
        if self.errors.len() >= MAX_RACES || self.errors.iter().any(same) {
            return;
        }
        let name = |op: &crate::model::Op| program.op_text(op);
        self.errors.push(PlanError::Race {
            first: name(first),
            second: name(second),
            memory: program.names.name(program.memory(program.views.memory(view)).name).to_owned(),
            first_at: first.span.into(),
            first_does: if hazard == Hazard::WriteAfterRead { "reads" } else { "writes" },
            first_slice: program.view_text(access.view),
            first_stream: program.streams[first.stream.index()].name.clone(),
            second_at: second.span.into(),
            second_does: if hazard == Hazard::ReadAfterWrite { "reads" } else { "writes" },
            second_slice: program.view_text(view),
            second_stream: program.streams[second.stream.index()].name.clone(),
        });
    }

    fn end_iteration(&mut self) {
        if !self.wanted {
            return;
        }
        self.ends.push(self.clocks.lengths());
        self.places.push(Vec::new());
        // Iterations that can no longer be under way when the next begins are complete for everybody.
        let depth = self.program.step.depth.max(1) as usize;
        if let Some(done) = self.ends.len().checked_sub(depth) {
            self.clocks.complete(&self.ends[done]);
        }
        while self.places.len() > depth + 1 {
            self.places.remove(0);
            self.first += 1;
        }
    }
}
