//! Races: two operations that touch the same memory, at least one writing, with no order between them, where the text
//! declares the order itself.

use crate::base::{StreamId, ViewId};
use crate::model::{Op, Program, Step, Sync};

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
        let name = |op: &Op| program.op_text(op);
        let before = at.iteration() - access.at.iteration();
        let step = &program.cycle[at.iteration() as usize % program.cycle.len()];
        self.errors.push(PlanError::Race {
            missing: missing(program, first, second, before, step).into(),
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
            second_when: match before {
                0 => "",
                1 => ", in the next iteration",
                _ => ", in a later iteration",
            },
        });
    }
}

/// What to write so that `second` waits for `first`, which is of an iteration `before` it; `step` is the second's.
fn missing(program: &Program, first: &Op, second: &Op, before: u32, step: &Step) -> String {
    let stream = &program.streams[second.stream.index()].name;
    let label = program.label_text(first.label);
    let turns = |op: &Op| step.ops.iter().filter(|other| other.span == op.span).count() > 1;
    if before < 2 && (turns(first) || turns(second)) {
        return missing_in_loop(program, first, second, before, label.as_deref());
    }
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

/// The same where one of them comes several times: a label needs the loop's variable, which may be called otherwise.
fn missing_in_loop(program: &Program, first: &Op, second: &Op, before: u32, label: Option<&str>) -> String {
    let name = label.map_or("l", |label| label.split('[').next().unwrap_or(label));
    let give = match label {
        Some(_) => String::new(),
        None => {
            format!("give the first a label with the variable of its loop, `l[i]: {}(…)`, and ", program.op_name(first))
        }
    };
    // Where the first stands below the second, it is of a turn before.
    let wait = match before {
        0 if first.span <= second.span => format!("for that turn: `after {name}[i]`"),
        0 => format!("for the turn before: `after {name}[i - 1] when i > 0`"),
        _ => format!("for all turns of the iteration before: `after prev({name})`"),
    };
    format!("{give}let the block of the second wait {wait}")
}
