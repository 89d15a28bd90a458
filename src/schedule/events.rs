//! Computes the commands of each iteration, with the minimum of events that keeps every dependency.
//!
//! A wait is needed only if neither the lane's order nor another wait implies it. Vector clocks decide this in one pass
//! in the order of issue. The result is the transitive reduction of the dependencies between lanes, which is unique: no
//! wait can be removed, and waits and lane orders together imply exactly the plan. An explicit `signal` or `wait` of
//! the file is always issued, since it reproduces a pattern.

use std::cmp::Reverse;

use crate::base::{Around, EventId, LaneId, OpId, gcd};
use crate::model::{OpKind, Program};
use crate::plan::{Clocks, Plan, QueuePosition};

use super::memory::Placer;
use super::{Command, Lane, Schedule, ScheduleOptions, StepSchedule};

/// Computes the commands of every iteration of the period.
pub fn walk(
    program: &Program,
    plan: &Plan,
    lanes: Vec<Lane>,
    lane_of: Vec<LaneId>,
    options: &ScheduleOptions,
) -> Schedule {
    let depth = program.step.under_way();
    let cycle = program.cycle.len() as u32;
    let period = cycle / gcd(cycle.into(), depth.into()) as u32 * depth;
    let mut placer = Placer::new(program, options.share_scratch, depth);
    let mut walk = EventWalk {
        program,
        plan,
        lane_of: &lane_of,
        clocks: Clocks::new(lanes.len()),
        under_way: (0..depth).map(|_| UnderWay::default()).collect(),
        events: Events::new(program, period),
        depth,
        before: Vec::new(),
    };
    // With overlapping iterations, walk until the first ones, which differ, are over.
    let start = if depth > 1 { period.max(depth) } else { 0 };
    let mut steps = Vec::with_capacity(period as usize);
    for iteration in 0..start + period {
        walk.events.counts = iteration >= start;
        let step = walk.iteration(iteration, &mut placer);
        if iteration >= start {
            steps.push(step);
        }
    }
    // The period begins at `start`, which is a multiple of it.
    let events = walk.events.number(&mut steps);
    let (memory, around) = (placer.finish(), Around::default());
    Schedule { memory, lanes, lane_of, period: steps, events, sync: program.step.sync, depth, around }
}

/// Events of a period. Each operation of each of its iterations may have one.
struct Events {
    /// For each iteration of the period, the event number of its first operation.
    first: Vec<u32>,
    /// Events that are waited for in the period, or that are explicit in the file.
    needed: Vec<bool>,
    /// True once the walk is in the period; waits of the iterations before it are not counted, since those iterations
    /// differ.
    counts: bool,
}

impl Events {
    fn new(program: &Program, period: u32) -> Self {
        let mut first = Vec::with_capacity(period as usize);
        let mut count = 0;
        for iteration in 0..period as usize {
            first.push(count as u32);
            count += program.cycle[iteration % program.cycle.len()].ops.len();
        }
        Events { first, needed: vec![false; count], counts: false }
    }

    /// Returns the event that follows an operation.
    fn of(&self, iteration: u32, op: OpId) -> EventId {
        EventId(self.first[iteration as usize % self.first.len()] + op.0)
    }

    fn need(&mut self, event: EventId) {
        self.needed[event.index()] |= self.counts;
    }

    /// Removes unneeded recordings and renumbers the events without gaps. Returns their number.
    fn number(self, steps: &mut [StepSchedule]) -> u32 {
        for step in &mut *steps {
            step.commands.retain(|command| match command {
                Command::Record { event, .. } => self.needed[event.index()],
                _ => true,
            });
            step.commands.shrink_to_fit();
        }
        const NONE: EventId = EventId(u32::MAX);
        let mut numbers = vec![NONE; self.needed.len()];
        let mut count = 0;
        for command in steps.iter_mut().flat_map(|step| &mut step.commands) {
            if let Command::Record { event, .. } | Command::Wait { event, .. } = command {
                let number = &mut numbers[event.index()];
                if *number == NONE {
                    *number = EventId(count);
                    count += 1;
                }
                *event = *number;
            }
        }
        count
    }
}

/// Positions of an iteration that may be under way, and the number of operations on each lane at its end.
#[derive(Default)]
struct UnderWay {
    places: Vec<QueuePosition>,
    ends: Vec<u32>,
}

/// An operation that another one might have to wait for.
#[derive(Clone, Copy)]
struct WaitCandidate {
    place: QueuePosition,
    event: EventId,
    /// True if the operation belongs to an earlier iteration.
    across: bool,
    /// True if the file declares this wait, so that it must be issued.
    explicit: bool,
}

/// Issues the iterations of the period one after the other, and finds the waits and events that they need.
struct EventWalk<'a> {
    program: &'a Program,
    plan: &'a Plan,
    lane_of: &'a [LaneId],
    clocks: Clocks,
    /// Iterations that may be under way, as a ring.
    under_way: Vec<UnderWay>,
    events: Events,
    depth: u32,
    /// Operations on other lanes that the current operation depends on.
    before: Vec<WaitCandidate>,
}

impl EventWalk<'_> {
    fn lane(&self, step: usize, op: OpId) -> LaneId {
        self.lane_of[self.program.cycle[step].op(op).stream.index()]
    }

    /// Computes the commands of one iteration.
    fn iteration(&mut self, iteration: u32, placer: &mut Placer) -> StepSchedule {
        let index = iteration as usize % self.program.cycle.len();
        let step = &self.program.cycle[index];
        let graph = &self.plan.steps[index];
        let in_ring = (iteration % self.depth) as usize;
        if iteration >= self.depth {
            self.clocks.complete(&self.under_way[in_ring].ends);
        }
        self.under_way[in_ring].places.clear();
        self.under_way[in_ring].places.reserve(step.ops.len());
        let waiters = self.plan.waiters(index, self.depth, |step, op| self.lane(step, op).0);
        let mut ends = LaneEnds::new(self.clocks.lengths().len());
        // The upper bound; most programs come close.
        let records = waiters.iter().filter(|count| **count > 0).count();
        let waits: usize = waiters.iter().map(|count| *count as usize).sum();
        let mut commands = Vec::with_capacity(step.ops.len() + records + waits);
        placer.begin(step);
        for op in step.ids() {
            let info = step.op(op);
            let lane = self.lane(index, op);
            let explicit = |from: OpId, previous: bool| {
                info.kind == OpKind::Wait
                    && step.after(op).iter().any(|after| after.op == from && after.previous == previous)
            };
            let depth = self.depth;
            for edge in graph.waits(op).filter(|edge| edge.distance < depth && edge.distance <= iteration) {
                let across = edge.distance > 0;
                self.add_before(lane, iteration - edge.distance, edge.from, across, explicit(edge.from, across));
            }
            self.choose(lane);
            for WaitCandidate { place, event, across, .. } in self.before.drain(..) {
                commands.push(Command::Wait { event, lane, across });
                self.events.need(event);
                ends.wait(place);
            }
            placer.before(step, op, lane.0, &self.clocks);
            let uses = waiters[op.index()];
            let place = match info.kind {
                OpKind::Run(_) => {
                    commands.push(Command::Launch { op, lane });
                    self.clocks.push(lane.0, uses)
                }
                kind => {
                    if kind == OpKind::HostSync {
                        commands.push(Command::HostSync);
                    }
                    self.clocks.push_marker(lane.0, uses)
                }
            };
            self.under_way[in_ring].places.push(place);
            ends.add(place);
            placer.after(step, op, place);
            let event = self.events.of(iteration, op);
            // Unneeded recordings of events are removed at the end; explicit ones are kept.
            if info.kind == OpKind::Signal {
                self.events.need(event);
            }
            if info.kind == OpKind::Signal || uses > 0 {
                commands.push(Command::Record { event, lane });
            }
        }
        placer.end();
        self.under_way[in_ring].ends = self.clocks.lengths();
        let copy = iteration % self.depth;
        StepSchedule { step: index, copy, commands, used: ends.used(), leaves: ends.leaves() }
    }

    /// Adds operation `from` of an iteration to the candidates, unless it is on `lane` itself.
    fn add_before(&mut self, lane: LaneId, iteration: u32, from: OpId, across: bool, explicit: bool) {
        let place = self.under_way[(iteration % self.depth) as usize].places[from.index()];
        if place.queue != lane.0 {
            self.before.push(WaitCandidate { place, event: self.events.of(iteration, from), across, explicit });
        }
    }

    /// Reduces the candidates to the necessary waits: explicit ones, and those that neither the lane's knowledge nor
    /// another candidate implies; sorts them by position. A candidate that implies another is stronger, so candidates
    /// are tried in the order of decreasing knowledge. Of equivalent ones, such as markers, the first is kept.
    fn choose(&mut self, lane: LaneId) {
        let clocks = &mut self.clocks;
        if self.before.len() > 1 {
            let order = |before: &WaitCandidate| (!before.explicit, Reverse(clocks.weight(before.place)), before.place);
            self.before.sort_by_cached_key(order);
        }
        self.before.retain(|before| {
            let needed = before.explicit || !clocks.knows(lane.0, before.place);
            match needed {
                true => clocks.wait(lane.0, before.place),
                false => clocks.release(before.place),
            }
            needed
        });
        self.before.sort_unstable_by_key(|before| before.place);
    }
}

/// State of each lane at the end of an iteration.
struct LaneEnds {
    last: Vec<Option<QueuePosition>>,
    /// The last position of the lane that another lane waits for.
    waited: Vec<Option<QueuePosition>>,
}

impl LaneEnds {
    fn new(lanes: usize) -> Self {
        LaneEnds { last: vec![None; lanes], waited: vec![None; lanes] }
    }

    fn add(&mut self, place: QueuePosition) {
        self.last[place.queue as usize] = Some(place);
    }

    fn wait(&mut self, place: QueuePosition) {
        let waited = &mut self.waited[place.queue as usize];
        *waited = (*waited).max(Some(place));
    }

    /// Lanes with work.
    fn used(&self) -> Vec<LaneId> {
        (0..self.last.len()).filter(|&lane| self.last[lane].is_some()).map(LaneId::from).collect()
    }

    /// Lanes whose last operation no other lane waits for.
    fn leaves(&self) -> Vec<LaneId> {
        let mut used = self.used();
        used.retain(|lane| self.last[lane.index()] != self.waited[lane.index()]);
        used
    }
}
