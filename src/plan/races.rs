//! Finds races in programs that declare their own order: two operations access the same memory, at least one writes,
//! and neither is ordered after the other.

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

use crate::base::{SrcSpan, StreamId, ViewId};
use crate::model::{Op, Program, Sync};

use super::accesses::{Access, Accesses, IssuedOp};
use super::callers::call_labels;
use super::clocks::{Clocks, QueuePosition};
use super::error::PlanError;
use super::graph::{Hazard, Plan};
use super::regions::Regions;
use super::remedy::{Collision, remedies};

/// Maximum number of reported races.
const MAX_RACES: usize = 20;

/// Maximum number of collisions of a race that are examined for a remedy.
const MAX_COLLISIONS: usize = 4096;

/// Two statements whose operations race.
struct Race {
    /// Pairs of the statements' operations that access the same memory without order; at least one.
    collisions: Vec<Collision>,
    /// The second operation's slice in the first collision.
    view: ViewId,
    /// Access of the first operation in the first collision.
    access: Access,
    /// Order of reads and writes in the first collision.
    hazard: Hazard,
}

/// Walks `iterations` iterations, and checks with clocks that each access follows those that it must follow.
pub fn check(program: &Program, plan: &Plan, regions: &Regions, iterations: u32) -> Result<(), Vec<PlanError>> {
    let depth = program.step.under_way();
    let mut races = Races {
        program,
        plan,
        accesses: Accesses::new(program, regions),
        clocks: Clocks::new(program.streams.len()),
        places: vec![Vec::new(); depth as usize],
        ends: vec![Vec::new(); depth as usize],
        races: IndexMap::default(),
    };
    for iteration in 0..iterations {
        races.iteration(iteration, depth);
    }
    match races.races.is_empty() {
        true => Ok(()),
        false => {
            races.races.sort_unstable_keys();
            let collisions: Vec<&[Collision]> = races.races.values().map(|race| race.collisions.as_slice()).collect();
            let remedies = remedies(program, &collisions);
            Err(races.races.values().zip(remedies).map(|(race, missing)| race.error(program, missing)).collect())
        }
    }
}

/// State of the walk over the iterations.
struct Races<'a> {
    program: &'a Program,
    plan: &'a Plan,
    accesses: Accesses<'a>,
    clocks: Clocks,
    /// Positions of the operations in their streams, for the iterations that may be under way, as a ring.
    places: Vec<Vec<QueuePosition>>,
    /// For each iteration in `places`, the number of operations of each stream when it ended.
    ends: Vec<Vec<u32>>,
    /// Races, by the source locations of their two statements.
    races: IndexMap<(SrcSpan, SrcSpan), Race, FxBuildHasher>,
}

impl Races<'_> {
    fn iteration(&mut self, iteration: u32, depth: u32) {
        let program = self.program;
        let index = iteration as usize % program.cycle.len();
        let step = &program.cycle[index];
        let graph = &self.plan.steps[index];
        let turn = |iteration: u32| (iteration % depth) as usize;
        // Iterations that can no longer be under way are complete for all streams.
        if iteration >= depth {
            self.clocks.complete(&self.ends[turn(iteration)]);
        }
        self.places[turn(iteration)].clear();
        let waiters = self.plan.waiters(index, depth, |step, op| program.cycle[step].op(op).stream.0);
        let mut found = Vec::new();
        for op in step.ids() {
            let stream = step.op(op).stream;
            for edge in graph.waits(op).filter(|edge| edge.distance < depth && edge.distance <= iteration) {
                self.wait(stream, self.places[turn(iteration - edge.distance)][edge.from.index()]);
            }
            let at = IssuedOp::new(iteration, op);
            for (view, writes) in step.operands(op) {
                self.accesses.conflicts(view, stream, writes, &mut found);
                for (access, hazard) in found.drain(..) {
                    let under_way = access.at.iteration() + depth > iteration;
                    let place = || self.places[turn(access.at.iteration())][access.at.op.index()];
                    if under_way && !self.clocks.knows(stream.0, place()) {
                        self.report(at, view, access, hazard);
                    }
                }
            }
            self.places[turn(iteration)].push(self.clocks.push(stream.0, waiters[op.index()]));
            for (view, writes) in step.operands(op) {
                self.accesses.note(Access { at, stream, view }, writes);
            }
        }
        self.ends[turn(iteration)] = self.clocks.lengths();
        self.accesses.end_iteration(program.step.sync == Sync::Iteration);
    }

    fn wait(&mut self, stream: StreamId, place: QueuePosition) {
        if place.queue != stream.0 {
            self.clocks.wait(stream.0, place);
        }
    }

    /// Records a collision. Collisions of the same two statements are one race.
    fn report(&mut self, at: IssuedOp, view: ViewId, access: Access, hazard: Hazard) {
        let program = self.program;
        let op = |at: IssuedOp| program.cycle[at.iteration() as usize % program.cycle.len()].op(at.op);
        let (first, second) = (op(access.at), op(at));
        let collision = Collision { first: access.at, second: at };
        let key = (first.span, second.span);
        if let Some(race) = self.races.get_mut(&key) {
            if race.collisions.len() < MAX_COLLISIONS {
                race.collisions.push(collision);
            }
        } else if self.races.len() < MAX_RACES {
            self.races.insert(key, Race { collisions: vec![collision], view, access, hazard });
        }
    }
}

impl Race {
    fn error(&self, program: &Program, missing: String) -> PlanError {
        let step = |at: IssuedOp| &program.cycle[at.iteration() as usize % program.cycle.len()];
        let Collision { first: first_at, second: second_at } = self.collisions[0];
        let (first, second) = (step(first_at).op(first_at.op), step(second_at).op(second_at.op));
        let stream = |op: &Op| program.streams[op.stream.index()].name.as_str().into();
        PlanError::Race {
            missing: missing.into(),
            first: program.op_text(first),
            second: program.op_text(second),
            memory: program.names.name(program.memory(program.views.memory(self.view)).name).to_owned(),
            first_at: first.span.into(),
            first_does: if self.hazard == Hazard::WriteAfterRead { "reads" } else { "writes" },
            first_slice: program.view_text(self.access.view),
            first_stream: stream(first),
            second_at: second.span.into(),
            second_does: if self.hazard == Hazard::ReadAfterWrite { "reads" } else { "writes" },
            second_slice: program.view_text(self.view),
            second_stream: stream(second),
            second_when: match second_at.iteration() - first_at.iteration() {
                0 => "",
                1 => ", in the next iteration",
                _ => ", in a later iteration",
            },
            calls: call_labels([first_at, second_at].map(|at| (program.rank, program, step(at), at.op))),
        }
    }
}
