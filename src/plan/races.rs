//! Races: two operations that touch the same memory, at least one writing, with no order between them, where the text
//! declares the order itself.

use crate::base::{StreamId, ViewId};
use crate::model::{Program, Sync};

use super::accesses::{Access, Accesses, At};
use super::clocks::{Clocks, Place};
use super::error::PlanError;
use super::graph::{Hazard, Plan};
use super::regions::Regions;

/// Races shown of one file.
const MAX_RACES: usize = 20;

/// Walks that many iterations and looks at each access, whether the clocks know of those that it has to come after.
pub fn check(program: &Program, plan: &Plan, regions: &Regions, iterations: u32) -> Result<(), Vec<PlanError>> {
    let depth = program.step.under_way();
    let mut races = Races {
        program,
        plan,
        accesses: Accesses::new(program, regions),
        clocks: Clocks::new(program.streams.len()),
        places: vec![Vec::new(); depth as usize],
        ends: vec![Vec::new(); depth as usize],
        errors: Vec::new(),
    };
    for iteration in 0..iterations {
        races.iteration(iteration, depth);
    }
    if races.errors.is_empty() { Ok(()) } else { Err(races.errors) }
}

struct Races<'a> {
    program: &'a Program,
    plan: &'a Plan,
    accesses: Accesses<'a>,
    clocks: Clocks,
    /// The places of the operations of the iterations that may be under way, which take turns.
    places: Vec<Vec<Place>>,
    /// How many operations each stream had at the end of these iterations.
    ends: Vec<Vec<u32>>,
    errors: Vec<PlanError>,
}

impl Races<'_> {
    fn iteration(&mut self, iteration: u32, depth: u32) {
        let program = self.program;
        let index = iteration as usize % program.cycle.len();
        let step = &program.cycle[index];
        let graph = &self.plan.steps[index];
        let turn = |iteration: u32| (iteration % depth) as usize;
        // Iterations that can no longer be under way are complete for everybody.
        if iteration >= depth {
            self.clocks.complete(&self.ends[turn(iteration)]);
        }
        self.places[turn(iteration)].clear();
        let waiters = self.plan.waiters(index, depth, |step, op| program.cycle[step].op(op).stream.0);
        let mut across = graph.across.iter().peekable();
        let mut found = Vec::new();
        for op in step.ids() {
            let stream = step.op(op).stream;
            for edge in graph.incoming(op) {
                self.wait(stream, self.places[turn(iteration)][edge.from.index()]);
            }
            while let Some(edge) = across.next_if(|edge| edge.to == op) {
                if edge.distance < depth && edge.distance <= iteration {
                    self.wait(stream, self.places[turn(iteration - edge.distance)][edge.from.index()]);
                }
            }
            let at = At::new(iteration, op);
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

    fn wait(&mut self, stream: StreamId, place: Place) {
        if place.queue != stream.0 {
            self.clocks.wait(stream.0, place);
        }
    }

    fn report(&mut self, at: At, view: ViewId, access: Access, hazard: Hazard) {
        let program = self.program;
        let op = |at: At| program.cycle[at.iteration() as usize % program.cycle.len()].op(at.op);
        let (first, second) = (op(access.at), op(at));
        let same = |error: &PlanError| {
            matches!(error, PlanError::Race { first_at, second_at, .. }
                if (*first_at, *second_at) == (first.span.into(), second.span.into()))
        };
        if self.errors.len() >= MAX_RACES || self.errors.iter().any(same) {
            return;
        }
        let name = |op: &crate::model::Op| program.op_text(op);
        let before = at.iteration() - access.at.iteration();
        self.errors.push(PlanError::Race {
            missing: missing(program, first, second, before).into(),
            first: name(first),
            second: name(second),
            memory: program.names.name(program.memory(program.views.memory(view)).name).to_owned(),
            first_at: first.span.into(),
            first_does: if hazard == Hazard::WriteAfterRead { "reads" } else { "writes" },
            first_slice: program.view_text(access.view),
            first_stream: program.streams[first.stream.index()].name.as_str().into(),
            second_at: second.span.into(),
            second_does: if hazard == Hazard::ReadAfterWrite { "reads" } else { "writes" },
            second_slice: program.view_text(view),
            second_stream: program.streams[second.stream.index()].name.as_str().into(),
        });
    }
}

/// What to write so that `second` waits for `first`, which is of an iteration `before` it.
fn missing(program: &Program, first: &crate::model::Op, second: &crate::model::Op, before: u32) -> String {
    let stream = &program.streams[second.stream.index()].name;
    let label = program.label_text(first.label);
    let (named, give) = match &label {
        Some(label) => (label.as_str(), String::new()),
        None => ("l", format!("name the first, `l: {}(…)`, and ", program.op_name(first))),
    };
    match before {
        0 => format!("{give}write `on {stream} after {named} {{ … }}`"),
        1 => format!("{give}write `on {stream} after prev({named}) {{ … }}`"),
        _ => format!("{give}lower `depth` to {before}, or let the iterations wait for each other: `sync: iteration`"),
    }
}
