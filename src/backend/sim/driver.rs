//! The simulated driver of one rank: translates host calls to tasks on the machine.

use std::sync::{Arc, MutexGuard};

use crate::base::{Nanos, Space};
use crate::config::Profile;
use crate::exec::{Driver, Fault, Image, Issued, LaneCompletion, Repeat};
use crate::model::Priority;

use super::costs::Costs;
use super::exchange::Exchanges;
use super::graphs::{Capture, CapturedGraph, GraphNode};
use super::machine::{Action, Placing, SimMachine, TaskId, Time};
use super::numbers::urgency;
use super::parts::{self, KnownParts, OperationParts, Parts, SimLaunch};
use super::world::{Awaited, DriverView, SharedState, World};

struct SimDriver {
    world: Arc<World>,
    place: RankBase,
    costs: Costs,
    /// Time of the host's clock, in ns.
    host: Time,
    /// Number of calls since the last iteration was issued.
    calls: u64,
    issued: Option<Issued>,
    /// For each operation, its ranges in `parts`.
    ops: Vec<OperationParts>,
    parts: Vec<SimLaunch>,
    /// For each lane: lane and queue of its tasks, its last task, and the tasks on which its next task depends besides
    /// that.
    lanes: Vec<(Placing, Option<TaskId>, Vec<TaskId>)>,
    events: Vec<Option<TaskId>>,
    stamps: Vec<Option<TaskId>>,
    graphs: Vec<CapturedGraph>,
    /// For each gate, the task that holds it while it is closed; `None` while it is open.
    gates: Vec<Option<TaskId>>,
    capture: Option<Capture>,
    /// The lane of the first launch outside of a capture; `None` before it.
    first_lane: Option<u32>,
    /// True once operations were launched on several lanes outside of captures.
    several_lanes: bool,
    observing: bool,
    /// The stamp that the start of the next operation records; `None` if it records none.
    opening: Option<u32>,
    /// The task or captured node of the last operation; `None` before the first operation.
    last: Option<LastLaunch>,
    notes: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
enum LastLaunch {
    Task(TaskId),
    /// A task that had ended when its call returned, by the time of its end.
    Ended(Time),
    Node(u32),
}

/// Opens a driver for each image, all on one simulated machine. `notes` are those of all ranks. With `each`, every
/// iteration is simulated, even if it equals an earlier one.
pub fn open(profile: &Profile, images: &[Image], notes: &[String], each: bool) -> Vec<Box<dyn Driver>> {
    let shared = 3 * profile.queues.count.value() as usize;
    // Streams with limited compute units have their own queues, after those of all priorities.
    let apart = images.iter().map(|image| image.lanes.iter().filter_map(|lane| lane.unit_limit(profile)).count());
    let queues = shared + apart.max().unwrap_or(0);
    let lanes =
        (0..).zip(images).flat_map(|(rank, image)| image.lanes.iter().map(move |lane| (rank, urgency(lane.priority))));
    let ranks = images.iter().map(|image| image.rank).collect();
    let is_cold = images.iter().any(|image| parts::evicts(image, profile));
    let mut machine = SimMachine::new(profile, &lanes.collect::<Vec<_>>(), ranks, queues, is_cold);
    for (lane, info) in (0..).zip(images.iter().flat_map(|image| &image.lanes)) {
        info.unit_limit(profile).iter().for_each(|&units| machine.limit(lane, units));
    }
    let exchanges = Exchanges::new(images, profile);
    let mut known = KnownParts::default();
    let parts: Vec<_> = images.iter().map(|image| known.parts(image, profile, &exchanges, &mut machine)).collect();
    let stamps: Vec<u32> = images.iter().map(|image| image.stamps).collect();
    let world = Arc::new(World::new(machine, &stamps, each));
    let (mut first_lane, mut first_stamp) = (0, 0);
    let drivers = images.iter().zip(parts).enumerate().map(|(rank, (image, parts))| {
        let base = RankBase { rank, first_lane, first_stamp, first_queue: (rank * queues) as u32 };
        first_lane += image.lanes.len() as u32;
        first_stamp += image.stamps;
        let notes = notes.to_vec();
        Box::new(SimDriver { notes, ..SimDriver::new(profile, image, world.clone(), base, parts) }) as Box<dyn Driver>
    });
    drivers.collect()
}

/// Offsets of the numbers of a rank's lanes, stamps and queues among those of the machine.
#[derive(Clone, Copy, Debug)]
struct RankBase {
    /// Index of the rank in this process.
    rank: usize,
    first_lane: u32,
    first_stamp: u32,
    first_queue: u32,
}

impl SimDriver {
    fn new(profile: &Profile, image: &Image, world: Arc<World>, place: RankBase, (ops, parts): Parts) -> Self {
        let queue_base = |priority: Priority| match (profile.queues.by_priority, priority) {
            (false, _) => 0,
            (true, Priority::High) => 1,
            (true, Priority::Low) => 2,
            (true, _) => 0,
        };
        let queues = profile.queues.count.value() as u32;
        let lane = |(lane, info): (usize, &crate::schedule::Lane)| {
            let base = if info.queue >= queues { 2 } else { queue_base(info.priority) };
            // No task of a host stream goes through a hardware queue.
            let number = if info.threads.is_some() { 0 } else { base * queues + info.queue };
            let queue = place.first_queue + number;
            let lane = place.first_lane + lane as u32;
            (Placing { lane, queue: Some(queue), priority: urgency(info.priority), stamps_before: 0 }, None, Vec::new())
        };
        SimDriver {
            world,
            place,
            costs: Costs::new(profile, parts::evicts(image, profile)),
            host: 0,
            calls: 0,
            issued: None,
            ops,
            parts,
            lanes: image.lanes.iter().enumerate().map(lane).collect(),
            events: vec![None; image.events as usize],
            stamps: vec![None; image.stamps as usize],
            graphs: Vec::new(),
            gates: vec![None; image.gates as usize],
            capture: None,
            first_lane: None,
            several_lanes: false,
            observing: false,
            opening: None,
            last: None,
            notes: Vec::new(),
        }
    }

    /// The machine's number of one of this rank's stamps.
    fn stamp_of(&self, stamp: u32) -> u32 {
        self.place.first_stamp + stamp
    }

    /// Advances the simulation until the awaited event has happened. Fails if it can never happen.
    fn wait_for<'a>(
        &mut self,
        world: &'a World,
        state: MutexGuard<'a, SharedState>,
        awaited: Awaited,
        call: &'static str,
    ) -> Result<MutexGuard<'a, SharedState>, Box<Fault>> {
        world.wait(state, self.place.rank, awaited, || self.view()).ok_or_else(|| Self::stuck(call))
    }

    /// State that determines what this rank does next.
    fn view(&self) -> DriverView {
        let lane = |(_, last, waits): &(Placing, Option<TaskId>, Vec<TaskId>)| {
            std::iter::once(*last).chain(waits.iter().copied().map(Some)).collect()
        };
        let mut tasks: Vec<Vec<Option<TaskId>>> = self.lanes.iter().map(lane).collect();
        tasks.push(self.events.clone());
        tasks.push(self.graphs.iter().map(|graph| graph.end).collect());
        if let Some(Issued { under_way, next_stamp, stamps, .. }) = self.issued {
            // Stamps of the iteration being issued, of those under way, and of the one before.
            let window = under_way as u32 + 2;
            let ago = |list: &[Option<TaskId>], next: u32, ring: u32, count: u32| {
                (0..count.min(ring))
                    .map(|ago| list.get(((next + ring - ago) % ring) as usize).copied().flatten())
                    .collect()
            };
            tasks.push(ago(&self.stamps, next_stamp + 1, stamps, 2 * window));
            tasks.push(ago(&self.gates, next_stamp / 2, stamps / 2, window));
        }
        DriverView { clock: self.host, calls: self.calls, tasks }
    }

    /// Submits a task after the last one of its lane and after the lane's pending dependencies. Blocks while the queue
    /// is full.
    fn submit(&mut self, lane: u32, action: Action, counted: Option<(u32, [bool; 2])>) -> Result<TaskId, Box<Fault>> {
        self.submit_after(lane, action, counted, &[])
    }

    /// Makes the next task of a lane wait for a task.
    fn add_wait(&mut self, lane: u32, task: TaskId) {
        let waits = &mut self.lanes[lane as usize].2;
        waits.push(task);
        let gap = self.costs.gap_event + waits.len() as Time * self.costs.gap_wait;
        self.world.lock().machine.keep_ends(gap);
    }

    /// Submits a task as `submit` does, but also after the end of each task in `ends`, without a gap.
    fn submit_after(
        &mut self,
        lane: u32,
        action: Action,
        counted: Option<(u32, [bool; 2])>,
        ends: &[TaskId],
    ) -> Result<TaskId, Box<Fault>> {
        self.calls += 1;
        let world = self.world.clone();
        let mut state = world.lock();
        let (placing, last, waits) = &mut self.lanes[lane as usize];
        // A mark has no gap before it besides the lane's waits, since it is a position on the lane.
        let (same, event) = match action {
            Action::Mark(_) | Action::Meet(_) | Action::BranchEnd => (0, 0),
            Action::Run(_) | Action::Exchange(_) => (self.costs.gap_same, self.costs.gap_event),
        };
        // The lane executes its waits one after the other, also those for events that have happened.
        let wait = self.costs.gap_wait;
        let count = waits.len() as Time;
        let own = last.iter().map(|&task| (task, same.max(count * wait)));
        let others = (1..).zip(waits.drain(..)).map(|(number, task)| (task, event + (count - number) * wait));
        let after = own.chain(others).chain(ends.iter().map(|&task| (task, 0)));
        // A position is no work that the host could bring too late. A graph's start follows it while the call is under way.
        let visible = if matches!(action, Action::Mark(None)) { 0 } else { self.host + self.costs.latency };
        let task = state.machine.submit(action, *placing, visible, after);
        if let Some((lane, counted)) = counted {
            state.machine.count(task, lane, counted);
        }
        *last = Some(task);
        let lane = placing.lane;
        if state.machine.outstanding(lane) > self.costs.depth {
            // With a full queue, the call blocks until there is room.
            let room = Awaited::Room { lane, limit: self.costs.depth + 1 };
            state = self.wait_for(&world, state, room, "launch")?;
            self.host = self.host.max(state.machine.now());
        }
        drop(state);
        Ok(task)
    }

    fn note(&mut self, lane: u32, action: Action) -> u32 {
        let priority = self.lanes[lane as usize].0.priority;
        let capture = self.capture.as_mut().expect("called while capturing");
        let node = capture.nodes.len() as u32;
        let (last, waits) = &mut capture.lanes[lane as usize];
        let after = last.iter().copied().chain(waits.drain(..)).collect();
        *last = Some(node);
        capture.nodes.push(GraphNode { action, priority, after, observed: [None; 2], counted: None });
        node
    }

    /// Handles a stamp beside an operation: the first of a pair records the start of the next operation, the second its
    /// end.
    fn observe(&mut self, stamp: u32) {
        let number = self.stamp_of(stamp);
        match self.last.take() {
            None => self.opening = Some(number),
            Some(LastLaunch::Task(task)) => self.world.lock().machine.observe(task, None, Some(number)),
            Some(LastLaunch::Ended(time)) => self.world.lock().times[number as usize] = Some(time),
            Some(LastLaunch::Node(node)) => {
                let capture = self.capture.as_mut().expect("the node is its");
                capture.nodes[node as usize].observed[1] = Some(number);
            }
        }
    }

    /// Clears the previous record of a stamp.
    fn forget(&mut self, stamp: u32) {
        let number = self.stamp_of(stamp) as usize;
        let mut state = self.world.lock();
        state.take_stamps();
        state.times[number] = None;
    }

    fn stuck(call: &'static str) -> Box<Fault> {
        Fault::new(call, "no event is left, and this one has not happened: the schedule waits in a cycle")
    }
}

impl Driver for SimDriver {
    fn launch(&mut self, op: u32) -> Result<(), Box<Fault>> {
        let OperationParts { lane, parts, observed } = self.ops[op as usize].clone();
        let parts = if self.observing { observed } else { parts };
        let placed = self.lanes[lane as usize].0.lane;
        if self.capture.is_none() {
            self.several_lanes |= *self.first_lane.get_or_insert(lane) != lane;
        }
        for index in parts.clone() {
            let part = self.parts[index as usize];
            let counted = Some((placed, [index == parts.start, index + 1 == parts.end]));
            if self.capture.is_some() {
                if part.reads_counts {
                    return Err(Fault::counts_in_graph());
                }
                let node = self.note(lane, part.action);
                let start = self.opening.take();
                let capture = self.capture.as_mut().expect("checked above");
                capture.nodes[node as usize].observed[0] = start;
                capture.nodes[node as usize].counted = counted;
                self.last = Some(LastLaunch::Node(node));
                continue;
            }
            self.host += part.host;
            let task = self.submit(lane, part.action, counted)?;
            let world = self.world.clone();
            let mut state = world.lock();
            state.machine.observe(task, self.opening.take(), None);
            self.last = Some(LastLaunch::Task(task));
            if part.holds_host {
                state = self.wait_for(&world, state, Awaited::End(task), "copy")?;
                self.last = Some(LastLaunch::Ended(state.machine.now()));
                self.host = self.host.max(state.machine.now());
            }
        }
        Ok(())
    }

    fn record(&mut self, event: u32, lane: u32) -> Result<(), Box<Fault>> {
        if let Some(capture) = &mut self.capture {
            let (last, waits) = &capture.lanes[lane as usize];
            capture.events[event as usize] = last.iter().copied().chain(waits.iter().copied()).collect();
            return Ok(());
        }
        self.calls += 1;
        self.host += self.costs.record;
        if !self.lanes[lane as usize].2.is_empty() {
            self.submit(lane, Action::Mark(None), None)?;
        }
        self.events[event as usize] = self.lanes[lane as usize].1;
        Ok(())
    }

    fn wait(&mut self, lane: u32, event: u32) -> Result<(), Box<Fault>> {
        if let Some(capture) = &mut self.capture {
            let nodes = capture.events[event as usize].clone();
            capture.lanes[lane as usize].1.extend(nodes);
            return Ok(());
        }
        self.calls += 1;
        self.host += self.costs.wait;
        if let Some(task) = self.events[event as usize] {
            self.add_wait(lane, task);
        }
        Ok(())
    }

    fn stamp(&mut self, stamp: u32, lane: u32) -> Result<(), Box<Fault>> {
        if self.observing {
            self.observe(stamp);
            return Ok(());
        }
        if self.capture.is_some() {
            self.note(lane, Action::Mark(Some(stamp)));
            return Ok(());
        }
        self.host += self.costs.stamp;
        // The stamp's previous time has been read, so it can be recorded anew.
        self.forget(stamp);
        let task = self.submit(lane, Action::Mark(Some(self.stamp_of(stamp))), None)?;
        self.stamps[stamp as usize] = Some(task);
        self.lanes.iter_mut().for_each(|(placing, ..)| placing.stamps_before += 1);
        Ok(())
    }

    fn wait_stamp(&mut self, lane: u32, stamp: u32) -> Result<(), Box<Fault>> {
        self.calls += 1;
        self.host += self.costs.wait;
        if let Some(task) = self.stamps[stamp as usize] {
            self.add_wait(lane, task);
        }
        Ok(())
    }

    fn launch_graph(&mut self, graph: u32, lane: u32) -> Result<(), Box<Fault>> {
        let number = graph as usize;
        let mut graph = std::mem::take(&mut self.graphs[number]);
        self.host += self.costs.graph_launch + self.costs.graph_branch * Time::from(graph.branches.saturating_sub(1));
        let start = self.submit(lane, Action::Mark(None), None)?;
        let placed = self.lanes[lane as usize].0.lane;
        let cold = if graph.is_chain { 0 } else { self.costs.graph_cold };
        // The front end of a process that has launched on several streams reads once more for each node.
        let later = if self.several_lanes { self.costs.graph_read } else { 0 };
        let gap = self.costs.graph_gap + cold + later;
        self.world.lock().machine.keep_ends(gap);
        // The device reads a launch that it waits for: a description, and then the arguments. Before, these reads are part of the start.
        let visible = self.host + self.costs.latency + 2 * self.costs.graph_read;
        let mut tasks: Vec<TaskId> = Vec::with_capacity(graph.nodes.len());
        let begin = self.costs.graph_start + self.costs.forks(graph.branches.into()) + cold + later;
        let mut roots: u64 = 0;
        for node in &graph.nodes {
            let (gap, action) = match node.action {
                Action::Mark(stamp) => (0, Action::Mark(stamp.map(|stamp| self.stamp_of(stamp)))),
                Action::Run(_) | Action::Exchange(_) => (gap, node.action),
                Action::Meet(_) | Action::BranchEnd => (0, node.action),
            };
            if let Action::Mark(Some(stamp)) = node.action {
                self.forget(stamp);
            }
            let placing = Placing { lane: placed, queue: None, priority: node.priority, stamps_before: 0 };
            let before = node.after.iter().map(|&before| (tasks[before as usize], gap));
            let mut state = self.world.lock();
            let is_launched = matches!(node.action, Action::Run(_) | Action::Exchange(_));
            let root = || self.costs.root(roots.min(u64::from(graph.branches) - 1), graph.branches.into());
            let engine = if node.action.is_copy() { self.costs.gap_engine } else { 0 };
            let first = node.after.is_empty().then(|| (start, begin + root() + engine));
            roots += u64::from(first.is_some() && is_launched);
            let task = state.machine.submit(action, placing, visible, before.chain(first));
            let [started, ended] = node.observed;
            state.machine.observe(task, started, ended);
            if let Some((lane, counted)) = node.counted {
                state.machine.count(task, lane, counted);
            }
            drop(state);
            if let Action::Mark(Some(stamp)) = node.action {
                self.stamps[stamp as usize] = Some(task);
            }
            tasks.push(task);
        }
        if let Some(previous) = graph.end {
            let delay = graph.waits_again() * self.costs.branch_wait;
            self.world.lock().machine.relaunch(previous, start, self.host, delay);
        }
        let mut ends: Vec<TaskId> = graph.last.iter().map(|&node| tasks[node as usize]).collect();
        if ends.len() > 1 {
            let placing = Placing { lane: placed, queue: None, priority: 0, stamps_before: 0 };
            let mut state = self.world.lock();
            // The front end changes between its queues until it has launched the last root, and handles no end before.
            let launched = (start, begin + self.costs.last_root(graph.branches.into()));
            let mut end =
                |&last: &TaskId| state.machine.submit(Action::BranchEnd, placing, visible, [(last, 0), launched]);
            ends = ends.iter().map(&mut end).collect();
        }
        graph.end = Some(self.submit_after(lane, Action::Mark(None), None, &ends)?);
        self.graphs[number] = graph;
        Ok(())
    }

    fn reached(&mut self, stamp: u32) -> Result<bool, Box<Fault>> {
        let Some(task) = self.stamps[stamp as usize] else {
            return Err(Fault::new("reached", "the stamp was never set"));
        };
        self.calls += 1;
        let world = self.world.clone();
        let mut state = self.wait_for(&world, world.lock(), Awaited::End(task), "reached")?;
        state.take_stamps();
        let reached = state.times[self.stamp_of(stamp) as usize];
        self.host = self.host.max(reached.unwrap_or(self.host));
        Ok(true)
    }

    fn elapsed(&mut self, from: u32, to: u32) -> Result<Nanos, Box<Fault>> {
        let state = self.world.lock();
        let time = |stamp| state.times[self.stamp_of(stamp) as usize];
        let (Some(from), Some(to)) = (time(from), time(to)) else {
            return Err(Fault::new("elapsed", "a stamp has not been reached"));
        };
        Ok(Nanos(to - from))
    }

    fn gates(&self) -> bool {
        true
    }

    fn queues_observed_stamps(&self) -> bool {
        false
    }

    /// The call costs the host nothing, since it is outside of all measured times.
    fn hold(&mut self, gate: u32, lane: u32) -> Result<(), Box<Fault>> {
        let (placing, _, waits) = &mut self.lanes[lane as usize];
        let shut = self.world.lock().machine.hold(placing.lane);
        self.gates[gate as usize] = Some(shut);
        waits.push(shut);
        Ok(())
    }

    fn issued(&mut self, wait: bool, issued: Issued) {
        self.calls = 0;
        self.issued = Some(issued);
        self.host = self.world.issued(self.place.rank, wait, issued, || self.view());
    }

    fn repeats(&mut self) -> Option<Repeat> {
        self.world.repeats(self.place.rank)
    }

    fn release(&mut self, gate: u32) {
        if let Some(shut) = self.gates[gate as usize].take() {
            self.world.lock().machine.release(shut, self.host + self.costs.latency);
        }
    }

    fn flushes(&self) -> bool {
        true
    }

    /// The flush takes time on the device, for which the host is ahead. Costs of operations contain its effect on the cache.
    fn flush(&mut self, lane: u32) -> Result<(), Box<Fault>> {
        let (host, task) = self.costs.flush;
        self.host += host;
        self.submit(lane, Action::Run(task), None).map(drop)
    }

    fn now(&self) -> Nanos {
        Nanos(self.host)
    }

    /// False: all ranks share the simulated machine's time.
    fn has_clock(&self) -> bool {
        false
    }

    fn reached_at(&mut self, stamp: u32) -> Result<Nanos, Box<Fault>> {
        let time = self.world.lock().times[self.stamp_of(stamp) as usize];
        time.map(Nanos).ok_or_else(|| Fault::new("reached_at", "a stamp has not been reached"))
    }

    fn begin_capture(&mut self, _lane: u32) -> Result<(), Box<Fault>> {
        self.capture = Some(Capture {
            nodes: Vec::new(),
            lanes: vec![(None, Vec::new()); self.lanes.len()],
            events: vec![Vec::new(); self.events.len()],
        });
        Ok(())
    }

    fn end_capture(&mut self, _lane: u32) -> Result<u32, Box<Fault>> {
        let Some(capture) = self.capture.take() else {
            return Err(Fault::new("end_capture", "nothing is being captured"));
        };
        self.graphs.push(capture.graph());
        Ok(self.graphs.len() as u32 - 1)
    }

    fn enter(&mut self) -> Result<(), Box<Fault>> {
        self.world.enter(self.place.rank);
        Ok(())
    }

    fn leave(&mut self) {
        self.world.leave(self.place.rank);
    }

    fn runs_ranks_concurrently(&self) -> bool {
        false
    }

    fn observing(&mut self, on: bool) {
        self.observing = on;
        self.opening = None;
        self.last = None;
    }

    fn watch_units(&mut self) {
        self.world.lock().machine.watch_units(self.place.rank);
    }

    fn units_since(&mut self, begin: u32) -> Vec<(Nanos, u32)> {
        let mut state = self.world.lock();
        let changes = state.machine.take_units(self.place.rank);
        let Some(begin) = state.times[self.stamp_of(begin) as usize] else { return Vec::new() };
        let before = changes.partition_point(|(time, _)| *time <= begin).saturating_sub(1);
        changes[before..].iter().map(|(time, units)| (Nanos((*time - begin).max(0)), *units)).collect()
    }

    fn synchronize(&mut self) -> Result<(), Box<Fault>> {
        let world = self.world.clone();
        let mut state = world.lock();
        for lane in 0..self.lanes.len() {
            if let Some(task) = self.lanes[lane].1 {
                state = self.wait_for(&world, state, Awaited::End(task), "synchronize")?;
                self.host = self.host.max(state.machine.now());
            }
        }
        state.take_stamps();
        Ok(())
    }

    fn idle(&mut self, lane: u32) -> Result<bool, Box<Fault>> {
        Ok(self.world.lock().machine.outstanding(self.lanes[lane as usize].0.lane) == 0)
    }

    fn progress(&mut self, lane: u32) -> Option<LaneCompletion> {
        let [begun, ended] = self.world.lock().machine.pace(self.lanes[lane as usize].0.lane);
        Some(LaneCompletion { ended, running: begun > ended })
    }

    fn stuck(&mut self) -> bool {
        self.world.lock().is_stuck()
    }

    fn reset(&mut self) -> Result<(), Box<Fault>> {
        Ok(())
    }

    fn read(&mut self, _: Space, _: u64, _: &mut [u8]) -> Result<bool, Box<Fault>> {
        Ok(false)
    }

    fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }
}
