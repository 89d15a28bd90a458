//! The simulated device: a discrete-event simulation between whose events rates are constant.
//!
//! Kernels hold compute units by blocks and share the memory's bandwidth; copies hold an engine and share their link;
//! hardware queues hold back what stands behind their head. Everything is deterministic: ties are broken by number.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use crate::config::{Profile, QueueRule};
use crate::cost::{self, Task};
use crate::ops::{Cost, Direction};

use super::fluid::Fluid;

/// Rounds in which a kernel's blocks are dealt out at most; more are put together.
const ROUNDS: u64 = 16;

/// A share of the memory's bandwidth below which nobody notices.
const SMALL_DEMAND: f64 = 1e-3;

/// A task by its number, counted over the whole run.
pub type TaskId = u64;

/// What a task does.
#[derive(Clone, Copy, Debug)]
pub enum Action {
    /// A place in a lane: the beginning or end of a graph, or a stamp, by its number.
    Mark(Option<u32>),
    Run(Task),
}

/// Where a task runs.
#[derive(Clone, Copy, Debug)]
pub struct Placing {
    pub lane: u32,
    /// The hardware queue that it goes through; nothing for a node of a graph.
    pub queue: Option<u32>,
    /// Less is more urgent.
    pub priority: i32,
}

#[derive(Debug)]
struct State {
    action: Action,
    placing: Placing,
    /// What it waits for and has not ended.
    open: u32,
    /// The earliest time at which it may start.
    ready: f64,
    /// Whom it holds up, and how long after its end these may start.
    followers: Vec<(TaskId, f64)>,
    end: Option<f64>,
    /// Blocks of a kernel that have not begun, and that have not ended.
    waiting: u64,
    running: u64,
    /// Stamps that its start and its end set.
    observed: [Option<u32>; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// A task's predecessors have ended.
    Ready(TaskId),
    /// A kernel's blocks may begin.
    Begin(TaskId),
    /// Blocks end that no shared capacity slows down.
    BlocksEnd(u32),
    /// A copy's latency has passed.
    CopyStarts(TaskId),
}

#[derive(Clone, Copy, Debug)]
struct Event {
    time: f64,
    number: u64,
    what: What,
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Event {}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Event {
    // Reversed: the heap gives the largest first.
    fn cmp(&self, other: &Self) -> Ordering {
        other.time.total_cmp(&self.time).then(other.number.cmp(&self.number))
    }
}

/// Blocks of a kernel that began together.
#[derive(Clone, Copy, Debug)]
struct Blocks {
    task: TaskId,
    count: u64,
    /// Compute units held, in 1/32.
    held: u64,
}

#[derive(Debug)]
struct Engines {
    free: u32,
    waiting: VecDeque<TaskId>,
    link: Fluid,
    latency: f64,
    /// The share of the link that one engine can fill.
    demand: f64,
    /// Bytes in a ns of one engine.
    rate: f64,
}

/// The device.
#[derive(Debug)]
pub struct Machine {
    now: f64,
    events: BinaryHeap<Event>,
    event_number: u64,
    tasks: VecDeque<State>,
    first: TaskId,
    /// Free compute units, in 1/32.
    free: u64,
    capacity: u64,
    /// Kernels whose blocks wait for units: the most urgent first, then the earlier.
    admitted: Vec<TaskId>,
    blocks: Vec<Blocks>,
    unused_blocks: Vec<u32>,
    memory: Fluid,
    copies: [Engines; 2],
    queues: Vec<VecDeque<TaskId>>,
    rule: QueueRule,
    pageable_rate: f64,
    /// Calls whose work has not ended, by lane.
    outstanding: Vec<u32>,
    /// Stamps that have been reached, with their times.
    stamps: Vec<(u32, f64)>,
}

impl Machine {
    pub fn new(profile: &Profile, lanes: usize, queues: usize) -> Machine {
        let capacity = profile.units.value() as u64 * u64::from(Cost::WHOLE_UNIT);
        let engines = |direction: Direction| {
            let engines = cost::engines(direction, profile);
            let rate = engines.bandwidth.value().min(engines.link.value());
            Engines {
                free: engines.engines.value() as u32,
                waiting: VecDeque::new(),
                link: Fluid::default(),
                latency: engines.latency.value(),
                demand: rate / engines.link.value(),
                rate: rate * 1e-9,
            }
        };
        Machine {
            now: 0.0,
            events: BinaryHeap::new(),
            event_number: 0,
            tasks: VecDeque::new(),
            first: 0,
            free: capacity,
            capacity,
            admitted: Vec::new(),
            blocks: Vec::new(),
            unused_blocks: Vec::new(),
            memory: Fluid::default(),
            copies: [engines(Direction::HostToDevice), engines(Direction::DeviceToHost)],
            queues: (0..queues).map(|_| VecDeque::new()).collect(),
            rule: profile.queues.rule,
            pageable_rate: profile.pageable_bandwidth.value() * 1e-9,
            outstanding: vec![0; lanes],
            stamps: Vec::new(),
        }
    }

    /// The device's time, in ns.
    pub fn now(&self) -> f64 {
        self.now
    }

    /// Calls on a lane whose work has not ended; a graph is one.
    pub fn outstanding(&self, lane: u32) -> u32 {
        self.outstanding[lane as usize]
    }

    /// The stamps that have been reached since the last time, with their times in ns.
    pub fn take_stamps(&mut self) -> std::vec::Drain<'_, (u32, f64)> {
        self.stamps.drain(..)
    }

    fn has_ended(&self, task: TaskId) -> bool {
        // Tasks that were forgotten ended long ago.
        task.checked_sub(self.first).is_none_or(|index| self.tasks[index as usize].end.is_some())
    }

    /// Submits a task that may start at `visible` at the earliest, and a given time after each of `after` has ended.
    pub fn submit(
        &mut self,
        action: Action,
        placing: Placing,
        visible: f64,
        after: impl IntoIterator<Item = (TaskId, f64)>,
    ) -> TaskId {
        let id = self.first + self.tasks.len() as u64;
        let mut open = 0;
        let mut ready = visible;
        for (task, gap) in after {
            let Some(index) = task.checked_sub(self.first) else { continue };
            let state = &mut self.tasks[index as usize];
            match state.end {
                Some(end) => ready = ready.max(end + gap),
                None => {
                    state.followers.push((id, gap));
                    open += 1;
                }
            }
        }
        let blocks = match action {
            Action::Run(Task::Kernel { blocks, .. }) => blocks,
            _ => 0,
        };
        let followers = Vec::new();
        let observed = [None, None];
        let state = State { action, placing, open, ready, followers, end: None, waiting: blocks, running: 0, observed };
        self.tasks.push_back(state);
        self.outstanding[placing.lane as usize] += u32::from(placing.queue.is_some());
        if let (Some(queue), Action::Run(Task::Kernel { .. })) = (placing.queue, action) {
            self.queues[queue as usize].push_back(id);
        }
        if open == 0 {
            self.at(ready, What::Ready(id));
        }
        id
    }

    /// Submits what does not end before `release` says so, and takes no place in a lane.
    pub fn hold(&mut self, lane: u32) -> TaskId {
        let placing = Placing { lane, queue: None, priority: 0 };
        self.tasks.push_back(State {
            action: Action::Mark(None),
            placing,
            open: 1,
            ready: 0.0,
            followers: Vec::new(),
            end: None,
            waiting: 0,
            running: 0,
            observed: [None, None],
        });
        self.first + self.tasks.len() as u64 - 1
    }

    /// Ends what was held, at `time`.
    pub fn release(&mut self, task: TaskId, time: f64) {
        self.state(task).open = 0;
        self.at(time, What::Ready(task));
    }

    /// Lets a task that was just submitted set stamps when it starts and when it ends.
    pub fn observe(&mut self, task: TaskId, start: Option<u32>, end: Option<u32>) {
        let observed = &mut self.state(task).observed;
        *observed = [start.or(observed[0]), end.or(observed[1])];
    }

    fn started(&mut self, task: TaskId) {
        let now = self.now;
        if let [Some(stamp), _] = self.state(task).observed {
            self.stamps.push((stamp, now));
        }
    }

    /// Lets time pass until a task has ended. False when it never will: nothing is left to happen.
    pub fn run_until(&mut self, task: TaskId) -> bool {
        while !self.has_ended(task) {
            if !self.step() {
                return false;
            }
        }
        true
    }

    /// Lets time pass until a lane has fewer tasks than `limit`.
    pub fn drain_lane(&mut self, lane: u32, limit: u32) {
        while self.outstanding[lane as usize] >= limit && self.step() {}
    }

    fn at(&mut self, time: f64, what: What) {
        self.event_number += 1;
        self.events.push(Event { time: time.max(self.now), number: self.event_number, what });
    }

    fn state(&mut self, task: TaskId) -> &mut State {
        let index = (task - self.first) as usize;
        &mut self.tasks[index]
    }

    /// The next thing that happens. False when there is none.
    fn step(&mut self) -> bool {
        let flows = [self.memory.next(), self.copies[0].link.next(), self.copies[1].link.next()];
        let flow = flows
            .iter()
            .enumerate()
            .filter_map(|(index, time)| time.map(|time| (time, index)))
            .min_by(|a, b| a.0.total_cmp(&b.0));
        match (flow, self.events.peek().map(|event| event.time)) {
            (None, None) => return false,
            (Some((time, index)), event) if event.is_none_or(|event| time < event) => {
                self.now = self.now.max(time);
                self.flow_ends(index);
            }
            _ => {
                let event = self.events.pop().expect("peeked above");
                self.now = event.time;
                self.happen(event.what);
            }
        }
        true
    }

    fn flow_ends(&mut self, index: usize) {
        match index {
            0 => {
                if let Some(group) = self.memory.finish() {
                    self.blocks_end(group);
                }
            }
            _ => {
                let engines = &mut self.copies[index - 1];
                if let Some(flow) = engines.link.finish() {
                    engines.free += 1;
                    // Flows carry the lower half of the number; only tasks that are kept can be meant.
                    let task = self.first + u64::from(flow.wrapping_sub(self.first as u32));
                    self.ended(task);
                    self.start_copies(index - 1);
                }
            }
        }
    }

    fn happen(&mut self, what: What) {
        match what {
            What::Ready(task) => self.ready(task),
            What::Begin(task) => {
                self.admit(task);
                self.deal();
            }
            What::BlocksEnd(group) => self.blocks_end(group),
            What::CopyStarts(task) => {
                let Action::Run(Task::Copy { direction, bytes, pageable }) = self.state(task).action else {
                    unreachable!("only copies start as such");
                };
                let index = usize::from(direction == Direction::DeviceToHost);
                let pageable_rate = self.pageable_rate;
                let engines = &mut self.copies[index];
                let (rate, demand) = if pageable {
                    let rate = engines.rate.min(pageable_rate);
                    (rate, engines.demand * rate / engines.rate)
                } else {
                    (engines.rate, engines.demand)
                };
                engines.link.add(self.now, task as u32, bytes / rate, demand);
            }
        }
    }

    /// A task's predecessors have ended.
    fn ready(&mut self, task: TaskId) {
        let state = self.state(task);
        // From now on `open` says that it has come this far.
        state.open = u32::MAX;
        let (action, placing) = (state.action, state.placing);
        match (action, placing.queue) {
            (Action::Mark(_), _) => self.ended(task),
            (Action::Run(Task::Copy { direction, .. }), _) => {
                let index = usize::from(direction == Direction::DeviceToHost);
                self.copies[index].waiting.push_back(task);
                self.start_copies(index);
            }
            (Action::Run(Task::Kernel { floor, .. }), None) => {
                self.started(task);
                self.at(self.now + floor, What::Begin(task));
            }
            (Action::Run(Task::Kernel { .. }), Some(queue)) => self.pull(queue),
        }
    }

    /// Starts what stands at the head of a hardware queue, as far as it is ready.
    fn pull(&mut self, queue: u32) {
        while let Some(&head) = self.queues[queue as usize].front() {
            let now = self.now;
            let rule = self.rule;
            let state = self.state(head);
            if state.open != u32::MAX {
                return;
            }
            let Action::Run(Task::Kernel { floor, .. }) = state.action else {
                unreachable!("queues hold kernels");
            };
            // Marks the head of a serial queue as started, so that it is started once.
            state.open = u32::MAX - 1;
            self.started(head);
            self.at(now + floor, What::Begin(head));
            if rule == QueueRule::Serial {
                return;
            }
            self.queues[queue as usize].pop_front();
        }
    }

    fn admit(&mut self, task: TaskId) {
        let priority = self.state(task).placing.priority;
        let first = self.first;
        let tasks = &self.tasks;
        let urgency = |other: &TaskId| tasks[(*other - first) as usize].placing.priority <= priority;
        let place = self.admitted.partition_point(urgency);
        self.admitted.insert(place, task);
    }

    /// Deals free compute units out: as many as it can use to the first kernel, what is left to the next.
    fn deal(&mut self) {
        let mut index = 0;
        while index < self.admitted.len() && self.free > 0 {
            let task = self.admitted[index];
            let (free, capacity) = (self.free, self.capacity);
            let state = self.state(task);
            let Action::Run(Task::Kernel { blocks, share, block_time, memory_time, .. }) = state.action else {
                unreachable!("only kernels are admitted");
            };
            let share = u64::from(share).min(capacity);
            let fit = state.waiting.min(free / share);
            if fit == 0 {
                index += 1;
                continue;
            }
            // Of a kernel that takes many rounds of the whole device, several go together as one long one.
            let rounds = (blocks / (capacity / share)).div_ceil(ROUNDS).max(1);
            let count = (fit * rounds).min(state.waiting);
            state.waiting -= count;
            state.running += count;
            let exhausted = state.waiting == 0;
            let compute = block_time * count.div_ceil(fit) as f64;
            let memory = memory_time * count as f64 / blocks as f64;
            let alone = compute.max(memory);
            let demand = if alone > 0.0 { memory / alone } else { 0.0 };
            let held = fit * share;
            self.free -= held;
            let group = self.group(Blocks { task, count, held });
            if demand < SMALL_DEMAND {
                self.at(self.now + alone, What::BlocksEnd(group));
            } else {
                self.memory.add(self.now, group, alone, demand);
            }
            if exhausted {
                self.admitted.remove(index);
            } else {
                index += 1;
            }
        }
    }

    fn group(&mut self, blocks: Blocks) -> u32 {
        match self.unused_blocks.pop() {
            Some(index) => {
                self.blocks[index as usize] = blocks;
                index
            }
            None => {
                self.blocks.push(blocks);
                self.blocks.len() as u32 - 1
            }
        }
    }

    fn blocks_end(&mut self, group: u32) {
        let Blocks { task, count, held } = self.blocks[group as usize];
        self.unused_blocks.push(group);
        self.free += held;
        let state = self.state(task);
        state.running -= count;
        if state.running == 0 && state.waiting == 0 {
            self.ended(task);
        }
        self.deal();
    }

    fn start_copies(&mut self, index: usize) {
        while self.copies[index].free > 0 {
            let Some(task) = self.copies[index].waiting.pop_front() else { return };
            self.copies[index].free -= 1;
            self.started(task);
            let latency = self.copies[index].latency;
            self.at(self.now + latency, What::CopyStarts(task));
        }
    }

    fn ended(&mut self, task: TaskId) {
        let now = self.now;
        let state = self.state(task);
        state.end = Some(now);
        let placing = state.placing;
        let action = state.action;
        let followers = std::mem::take(&mut state.followers);
        let marked = match action {
            Action::Mark(stamp) => stamp,
            Action::Run(_) => state.observed[1],
        };
        self.stamps.extend(marked.map(|stamp| (stamp, now)));
        self.outstanding[placing.lane as usize] -= u32::from(placing.queue.is_some());
        for (follower, gap) in followers {
            let state = self.state(follower);
            state.ready = state.ready.max(now + gap);
            state.open -= 1;
            if state.open == 0 {
                let ready = state.ready;
                self.at(ready, What::Ready(follower));
            }
        }
        if let Some(queue) = placing.queue
            && matches!(action, Action::Run(Task::Kernel { .. }))
            && self.rule == QueueRule::Serial
        {
            self.queues[queue as usize].pop_front();
            self.pull(queue);
        }
        while self.tasks.front().is_some_and(|task| task.end.is_some()) {
            self.tasks.pop_front();
            self.first += 1;
        }
    }
}
