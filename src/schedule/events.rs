//! The commands of each iteration, with the fewest events that keep every dependency.
//!
//! A wait is needed only where neither the lane's own order nor another wait implies it. Vector clocks tell, in one
//! pass in the order of issue; what is left is the transitive reduction of the dependencies across lanes, which is
//! unique. So no wait can be taken away, and the waits with the lanes' orders imply exactly the plan and these orders.
//! A `signal` and a `wait` that the file spells out are issued as they stand, needed or not: they are there to
//! reproduce a pattern.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::base::{EventId, LaneId, OpId};
use crate::model::{OpKind, Program, Sync};
use crate::plan::{Clocks, Place, Plan};

use super::memory::Placer;
use super::{Command, Lane, Options, Schedule, StepSchedule};

/// Places what every iteration of the period issues.
pub fn walk(program: &Program, plan: &Plan, lanes: Vec<Lane>, lane_of: Vec<LaneId>, options: &Options) -> Schedule {
    let depth = match program.step.sync {
        Sync::Iteration => 1,
        Sync::End => program.step.depth.max(1),
    };
    let cycle = program.cycle.len() as u32;
    let period = cycle / gcd(cycle, depth) * depth;
    let mut placer = Placer::new(program, options.share_scratch, depth);
    let mut walk = Walk {
        program,
        plan,
        lane_of: &lane_of,
        clocks: Clocks::new(lanes.len()),
        places: FxHashMap::default(),
        ends: Vec::new(),
        events: FxHashMap::default(),
        period,
        depth,
    };
    // Iterations that overlap are walked until those before them no longer differ from what repeats.
    let start = if depth > 1 { period.max(depth) } else { 0 };
    let mut steps = Vec::with_capacity(period as usize);
    let mut recorded: FxHashSet<EventId> = FxHashSet::default();
    for iteration in 0..start + period {
        let (step, waited) = walk.iteration(iteration, &mut placer);
        if iteration >= start {
            recorded.extend(waited);
            steps.push(step);
        }
    }
    // An event that only the first iterations waited for is not recorded.
    for step in &mut steps {
        step.commands.retain(|command| match command {
            Command::Record { event, .. } => recorded.contains(event),
            _ => true,
        });
    }
    // The period begins at `start`, which is a multiple of it.
    let events = number(&mut steps);
    Schedule { memory: placer.finish(), lanes, lane_of, period: steps, events, sync: program.step.sync, depth }
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Numbers the events anew, without gaps, and says how many there are.
fn number(steps: &mut [StepSchedule]) -> u32 {
    let mut numbers: FxHashMap<EventId, EventId> = FxHashMap::default();
    for step in steps {
        for command in &mut step.commands {
            if let Command::Record { event, .. } | Command::Wait { event, .. } = command {
                let next = EventId::from(numbers.len());
                *event = *numbers.entry(*event).or_insert(next);
            }
        }
    }
    numbers.len() as u32
}

struct Walk<'a> {
    program: &'a Program,
    plan: &'a Plan,
    lane_of: &'a [LaneId],
    clocks: Clocks,
    /// Where the operations of the iterations that may be under way stand, by iteration and operation.
    places: FxHashMap<(u32, OpId), Place>,
    /// For each iteration, how many operations each lane had at its end.
    ends: Vec<Vec<u32>>,
    /// The event behind an operation, by its iteration in the period.
    events: FxHashMap<(u32, OpId), EventId>,
    period: u32,
    depth: u32,
}

impl Walk<'_> {
    fn lane(&self, step: usize, op: OpId) -> LaneId {
        self.lane_of[self.program.cycle[step].op(op).stream.index()]
    }

    /// One iteration's commands, and the events that it needs: those it waits for, and signals.
    fn iteration(&mut self, iteration: u32, placer: &mut Placer) -> (StepSchedule, Vec<EventId>) {
        let cycle = self.program.cycle.len() as u32;
        let index = (iteration % cycle) as usize;
        let step = &self.program.cycle[index];
        let graph = &self.plan.steps[index];
        if let Some(done) = iteration.checked_sub(self.depth) {
            let ends = std::mem::take(&mut self.ends[done as usize]);
            self.clocks.complete(&ends);
            self.places.retain(|(other, _), _| *other > done);
        }
        // How often each operation is waited for, in this iteration and in those that may be under way beside it.
        let mut uses: FxHashMap<OpId, u32> = FxHashMap::default();
        for op in step.ids() {
            let lane = self.lane(index, op);
            for edge in graph.before(op).into_iter().filter(|edge| self.lane(index, edge.from) != lane) {
                *uses.entry(edge.from).or_default() += 1;
            }
        }
        for ahead in 1..self.depth {
            let later = ((iteration + ahead) % cycle) as usize;
            for edge in self.plan.steps[later].across.iter().filter(|edge| edge.distance == ahead) {
                if self.lane(index, edge.from) != self.lane(later, edge.to) {
                    *uses.entry(edge.from).or_default() += 1;
                }
            }
        }
        let mut across: FxHashMap<OpId, Vec<(u32, OpId)>> = FxHashMap::default();
        for edge in graph.across.iter().filter(|edge| edge.distance < self.depth && edge.distance <= iteration) {
            across.entry(edge.to).or_default().push((iteration - edge.distance, edge.from));
        }

        let mut commands = Vec::with_capacity(step.ops.len());
        let mut waited = Vec::new();
        let mut last: Vec<Option<Place>> = vec![None; self.clocks.lengths().len()];
        let mut waits_on: Vec<(LaneId, Place)> = Vec::new();
        placer.begin(step);
        for op in step.ids() {
            let lane = self.lane(index, op);
            let mut before: Vec<(Place, u32, OpId)> = Vec::new();
            let own = graph.before(op).into_iter().map(|edge| (iteration, edge.from));
            let earlier = across.remove(&op).unwrap_or_default();
            for (from_iteration, from) in own.chain(earlier) {
                let from_step = (from_iteration % cycle) as usize;
                if self.lane(from_step, from) == lane {
                    continue;
                }
                if let Some(&place) = self.places.get(&(from_iteration, from)) {
                    before.push((place, from_iteration, from));
                }
            }
            before.sort_unstable_by_key(|(place, ..)| *place);
            let needed: Vec<bool> = before
                .iter()
                .enumerate()
                .map(|(index, (place, ..))| {
                    // Of two marks that stand for the same, the first is waited for.
                    let implied = before.iter().enumerate().any(|(at, (other, ..))| {
                        at != index
                            && self.clocks.implies(*other, *place)
                            && (at < index || !self.clocks.implies(*place, *other))
                    });
                    !implied && !self.clocks.knows(lane.0, *place)
                })
                .collect();
            let spelled_out = step.op(op).kind == OpKind::Wait;
            for ((place, from_iteration, from), needed) in before.into_iter().zip(needed) {
                if !spelled_out && (!needed || self.clocks.knows(lane.0, place)) {
                    self.clocks.release(place);
                    continue;
                }
                let next = EventId::from(self.events.len());
                let key = (from_iteration % self.period, from);
                let event = *self.events.entry(key).or_insert(next);
                commands.push(Command::Wait { event, lane, across: from_iteration != iteration });
                waited.push(event);
                waits_on.push((lane, place));
                self.clocks.wait(lane.0, place);
            }
            placer.before(step, op, lane.0, &self.clocks);
            let waiters = uses.get(&op).copied().unwrap_or(0);
            let place = match step.op(op).kind {
                OpKind::Run(_) => {
                    commands.push(Command::Launch { op, lane });
                    self.clocks.push(lane.0, waiters)
                }
                _ => self.clocks.mark(lane.0, waiters),
            };
            self.places.insert((iteration, op), place);
            last[lane.index()] = Some(place);
            placer.after(step, op, place);
            let signal = step.op(op).kind == OpKind::Signal;
            if signal || uses.contains_key(&op) {
                let next = EventId::from(self.events.len());
                let event = *self.events.entry((iteration % self.period, op)).or_insert(next);
                commands.push(Command::Record { event, lane });
                // What is never waited for is taken out at the end, but for what is spelled out.
                waited.extend(signal.then_some(event));
            }
        }
        placer.end();
        self.ends.push(self.clocks.lengths());
        let used: Vec<LaneId> =
            last.iter().enumerate().filter(|(_, last)| last.is_some()).map(|(lane, _)| LaneId::from(lane)).collect();
        let is_leaf = |lane: &LaneId| {
            let end = last[lane.index()];
            !waits_on.iter().any(|(waiter, place)| waiter != lane && Some(*place) == end)
        };
        let leaves = used.iter().copied().filter(is_leaf).collect();
        let slot = iteration % self.depth;
        (StepSchedule { step: index, slot, commands, used, leaves }, waited)
    }
}
