//! The simulated devices, one of each rank: a discrete-event simulation between whose events rates are constant.
//!
//! Kernels hold compute units by blocks and share the memory's bandwidth; copies hold an engine and share their link;
//! hardware queues hold back what stands behind their head; exchanges hold units from where they begin on each device,
//! and go on when all that take part have come. Everything is deterministic: ties are broken by number.

use std::collections::{BinaryHeap, VecDeque};

use rustc_hash::FxHashSet;

use crate::config::{Links, Profile, QueueRule};
use crate::cost::{self, Task};
use crate::ops::{Cost, Direction};

use super::fluid::Fluid;

mod agenda;
mod meetings;
mod units;
mod watched;

use agenda::{Event, FlowEnd, What};
pub use meetings::{Channel, Exchange, Side};
use units::Blocks;

/// A task by its number, counted over the whole run.
pub type TaskId = u64;

/// What a task does.
#[derive(Clone, Copy, Debug)]
pub enum Action {
    /// A place in a lane: the beginning or end of a graph, or a stamp, by its number.
    Mark(Option<u32>),
    Run(Task),
    /// Takes part in an exchange, by the number that [`Machine::exchange`] gave.
    Exchange(u32),
    /// The same without compute units: it is no kernel, and goes through no hardware queue.
    Meet(u32),
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
    /// The lane for which it counts as an operation, and whether its start and its end do.
    counted: Option<(u32, [bool; 2])>,
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

/// One device.
#[derive(Debug)]
struct Device {
    /// Free compute units, in 1/32.
    free: u64,
    /// Kernels whose blocks wait for units: the most urgent first, then the earlier.
    admitted: Vec<TaskId>,
    memory: Fluid,
    /// To the device, from the device, and to other devices.
    copies: [Engines; 3],
}

/// Shared capacities of a device: its memory, and the links of its copy engines.
const FLOWS: usize = 4;

/// The copy engines that a task needs, by their place in [`Device::copies`]; nothing for a kernel.
fn link_of(task: &Task) -> Option<usize> {
    match task {
        Task::Kernel { .. } => None,
        Task::Copy { direction, .. } => Some(usize::from(*direction == Direction::DeviceToHost)),
        Task::Peer { .. } => Some(2),
    }
}

/// The devices.
#[derive(Debug)]
pub struct Machine {
    now: f64,
    events: BinaryHeap<Event>,
    event_number: u64,
    flow_ends: BinaryHeap<FlowEnd>,
    flow_versions: Vec<u64>,
    tasks: VecDeque<State>,
    first: TaskId,
    devices: Vec<Device>,
    /// The device of each lane.
    device_of: Vec<u32>,
    capacity: u64,
    blocks: Vec<Blocks>,
    unused_blocks: Vec<u32>,
    meetings: meetings::Meetings,
    /// Tasks and lanes that a rank waits for, and whether one of them has moved.
    awaited: FxHashSet<TaskId>,
    awaited_lanes: FxHashSet<u32>,
    moved: bool,
    queues: Vec<VecDeque<TaskId>>,
    rule: QueueRule,
    pageable_rate: f64,
    /// Calls whose work has not ended, by lane.
    outstanding: Vec<u32>,
    /// For each lane the compute units that it may hold at once, and those that it holds, in 1/32. Work of a graph is on
    /// no lane's account.
    parts: Vec<(u64, u64)>,
    /// Stamps that have been reached, with their times.
    stamps: Vec<(u32, f64)>,
    /// For each lane, operations that have begun, and that have ended.
    paces: Vec<[u64; 2]>,
}

impl Machine {
    /// Devices of one kind with that many hardware queues each; `device_of` has the device of each lane.
    pub fn new(profile: &Profile, links: &Links, device_of: Vec<u32>, devices: usize, queues: usize) -> Machine {
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
        let link = links.within.bandwidth.value();
        let to_peers = || Engines { demand: 1.0, rate: link * 1e-9, ..engines(Direction::DeviceToHost) };
        let device = |_| Device {
            free: capacity,
            admitted: Vec::new(),
            memory: Fluid::default(),
            copies: [engines(Direction::HostToDevice), engines(Direction::DeviceToHost), to_peers()],
        };
        let lanes = device_of.len();
        Machine {
            now: 0.0,
            events: BinaryHeap::new(),
            event_number: 0,
            flow_ends: BinaryHeap::new(),
            flow_versions: vec![0; FLOWS * devices],
            tasks: VecDeque::new(),
            first: 0,
            devices: (0..devices).map(device).collect(),
            outstanding: vec![0; device_of.len()],
            parts: vec![(u64::MAX, 0); device_of.len()],
            device_of,
            capacity,
            blocks: Vec::new(),
            unused_blocks: Vec::new(),
            meetings: meetings::Meetings::default(),
            awaited: FxHashSet::default(),
            awaited_lanes: FxHashSet::default(),
            moved: false,
            queues: (0..devices * queues).map(|_| VecDeque::new()).collect(),
            rule: profile.queues.rule,
            pageable_rate: profile.pageable_bandwidth.value() * 1e-9,
            stamps: Vec::new(),
            paces: vec![[0; 2]; lanes],
        }
    }

    /// Kernels of a lane hold no more than so many compute units at once.
    pub fn limit(&mut self, lane: u32, units: u32) {
        self.parts[lane as usize].0 = u64::from(units) * u64::from(Cost::WHOLE_UNIT);
    }

    /// The lane on whose account a task holds units.
    fn account(&mut self, task: TaskId) -> Option<&mut (u64, u64)> {
        let placing = self.state(task).placing;
        placing.queue.map(|_| &mut self.parts[placing.lane as usize])
    }

    /// The device's time, in ns.
    pub fn now(&self) -> f64 {
        self.now
    }

    /// Calls on a lane whose work has not ended; a graph is one.
    pub fn outstanding(&self, lane: u32) -> u32 {
        self.outstanding[lane as usize]
    }

    pub fn has_ended(&self, task: TaskId) -> bool {
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
            Action::Exchange(exchange) | Action::Meet(exchange) => {
                self.take_turns(id, placing.lane, exchange);
                self.meetings.exchanges[exchange as usize].units
            }
            _ => 0,
        };
        let followers = Vec::new();
        let observed = [None, None];
        let state = State {
            action,
            placing,
            open,
            ready,
            followers,
            end: None,
            waiting: blocks,
            running: 0,
            observed,
            counted: None,
        };
        self.tasks.push_back(state);
        self.outstanding[placing.lane as usize] += u32::from(placing.queue.is_some());
        if let (Some(queue), Action::Run(Task::Kernel { .. }) | Action::Exchange(_)) = (placing.queue, action) {
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
            counted: None,
        });
        self.first + self.tasks.len() as u64 - 1
    }

    /// Ends what was held, at `time`.
    pub fn release(&mut self, task: TaskId, time: f64) {
        self.state(task).open = 0;
        self.at(time, What::Ready(task));
    }

    /// Has [`Machine::moved`] tell when a task has ended.
    pub fn await_end(&mut self, task: TaskId) {
        self.awaited.insert(task);
    }

    /// Has [`Machine::moved`] tell when a lane has fewer tasks than before.
    pub fn await_room(&mut self, lane: u32) {
        self.awaited_lanes.insert(lane);
    }

    /// Nobody waits for room on a lane any more.
    pub fn has_room(&mut self, lane: u32) {
        self.awaited_lanes.remove(&lane);
    }

    /// Whether something has happened that was waited for, since the last time.
    pub fn moved(&mut self) -> bool {
        std::mem::take(&mut self.moved)
    }

    fn device(&self, task: TaskId) -> usize {
        let lane = self.tasks[(task - self.first) as usize].placing.lane;
        self.device_of[lane as usize] as usize
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
    pub fn step(&mut self) -> bool {
        while self.flow_ends.peek().is_some_and(|end| self.flow_versions[end.index] != end.version) {
            self.flow_ends.pop();
        }
        let flow = self.flow_ends.peek().map(|end| (end.time, end.index));
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

    /// Notes when the next flow of a capacity ends, now that it has changed.
    fn reflow(&mut self, index: usize) {
        self.flow_versions[index] += 1;
        let device = &self.devices[index / FLOWS];
        let next = match index % FLOWS {
            0 => device.memory.next(),
            link => device.copies[link - 1].link.next(),
        };
        let version = self.flow_versions[index];
        self.flow_ends.extend(next.map(|time| FlowEnd { time, index, version }));
    }

    fn flow_ends(&mut self, index: usize) {
        let device = &mut self.devices[index / FLOWS];
        match index % FLOWS {
            0 => {
                let group = device.memory.finish();
                self.reflow(index);
                group.into_iter().for_each(|group| self.blocks_end(group));
            }
            link => {
                let engines = &mut device.copies[link - 1];
                let flow = engines.link.finish();
                engines.free += u32::from(flow.is_some());
                self.reflow(index);
                if let Some(flow) = flow {
                    // Flows carry the lower half of the number; only tasks that are kept can be meant.
                    let task = self.first + u64::from(flow.wrapping_sub(self.first as u32));
                    self.ended(task);
                    self.start_copies(index / FLOWS, link - 1);
                }
            }
        }
    }

    fn happen(&mut self, what: What) {
        match what {
            What::Ready(task) => self.ready(task),
            What::Begin(task) => {
                self.admit(task);
                self.deal(self.device(task));
            }
            What::Exchanged(task) => self.exchanged(task),
            What::BlocksEnd(group) => self.blocks_end(group),
            What::CopyStarts(task) => {
                let Action::Run(run) = self.state(task).action else { unreachable!("only copies start as such") };
                let link = link_of(&run).expect("only copies start as such");
                let pageable_rate = self.pageable_rate;
                let device = self.device(task);
                let engines = &mut self.devices[device].copies[link];
                let (bytes, most) = match run {
                    Task::Copy { bytes, pageable: true, .. } => (bytes, pageable_rate),
                    Task::Copy { bytes, .. } => (bytes, f64::INFINITY),
                    Task::Peer { bytes, rate } => (bytes, rate * 1e-9),
                    Task::Kernel { .. } => unreachable!("it has no link"),
                };
                let rate = engines.rate.min(most);
                let demand = engines.demand * rate / engines.rate;
                engines.link.add(self.now, task as u32, bytes / rate, demand);
                self.reflow(FLOWS * device + 1 + link);
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
            (Action::Meet(_), _) => {
                self.started(task);
                self.come(task);
            }
            (Action::Run(run @ (Task::Copy { .. } | Task::Peer { .. })), _) => {
                let link = link_of(&run).expect("copies have one");
                let device = self.device(task);
                self.devices[device].copies[link].waiting.push_back(task);
                self.start_copies(device, link);
            }
            (_, None) => {
                self.started(task);
                self.at(self.now + self.floor(action), What::Begin(task));
            }
            (_, Some(queue)) => self.pull(queue),
        }
    }

    /// From the start of a kernel or an exchange until it takes units.
    fn floor(&self, action: Action) -> f64 {
        match action {
            Action::Run(Task::Kernel { floor, .. }) => floor,
            Action::Exchange(exchange) => self.meetings.exchanges[exchange as usize].floor,
            _ => 0.0,
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
            // Marks the head of a serial queue as started, so that it is started once.
            state.open = u32::MAX - 1;
            let action = state.action;
            let floor = self.floor(action);
            self.started(head);
            self.at(now + floor, What::Begin(head));
            if rule == QueueRule::Serial {
                return;
            }
            self.queues[queue as usize].pop_front();
        }
    }

    fn start_copies(&mut self, device: usize, link: usize) {
        while self.devices[device].copies[link].free > 0 {
            let engines = &mut self.devices[device].copies[link];
            let Some(task) = engines.waiting.pop_front() else { return };
            engines.free -= 1;
            let latency = engines.latency;
            self.started(task);
            self.at(self.now + latency, What::CopyStarts(task));
        }
    }

    fn ended(&mut self, task: TaskId) {
        let now = self.now;
        let state = self.state(task);
        state.end = Some(now);
        let placing = state.placing;
        let action = state.action;
        let counted = state.counted;
        let followers = std::mem::take(&mut state.followers);
        let marked = match action {
            Action::Mark(stamp) => stamp,
            Action::Run(_) | Action::Exchange(_) | Action::Meet(_) => state.observed[1],
        };
        if let Some((lane, [_, closes])) = counted {
            self.paces[lane as usize][1] += u64::from(closes);
        }
        self.stamps.extend(marked.map(|stamp| (stamp, now)));
        self.outstanding[placing.lane as usize] -= u32::from(placing.queue.is_some());
        self.moved |= self.awaited.remove(&task) || self.awaited_lanes.contains(&placing.lane);
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
            && matches!(action, Action::Run(Task::Kernel { .. }) | Action::Exchange(_))
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
