//! The simulated devices, one per rank: a discrete-event simulation with constant rates between events.
//!
//! Kernels occupy compute units by blocks and share memory bandwidth. Copies occupy an engine and share links. Hardware
//! queues delay the tasks behind their head. Exchanges occupy units from their start on each device, and their
//! transfers share links once all participants have arrived. Everything is deterministic: ties are broken by number.
//! Times are whole nanoseconds, so that results do not depend on the start time.

use std::collections::{BinaryHeap, VecDeque};

use rustc_hash::FxHashSet;

use crate::config::{Profile, QueueRule};
use crate::cost::{self, Task};
use crate::ops::{Cost, Direction};

use super::flows::Flows;
use super::numbers::TransferId;
pub use super::numbers::{TaskId, Time};
use super::slots::Slots;

mod agenda;
mod exchanges;
mod front_end;
mod paths;
mod state;
#[cfg(test)]
mod tests;
mod units;
mod watched;

use agenda::{Event, EventKind};
pub use exchanges::{Channel, ChannelSide, Exchange};
use front_end::{FrontEnd, FrontEndTimes};
use paths::Paths;
use units::Blocks;

/// The action of a task.
#[derive(Clone, Copy, Debug)]
pub enum Action {
    /// Nothing, at a position in a lane: begin or end of a graph, or a stamp, whose number is given.
    Mark(Option<u32>),
    Run(Task),
    /// The rank's part in the exchange with this number, which [`SimMachine::exchange`] has returned.
    Exchange(u32),
    /// The rank's part in the exchange with this number, which is not a kernel: it uses neither compute units nor a
    /// hardware queue.
    Meet(u32),
    /// The end of one of several branches of a graph, which the front end handles as it launches a node.
    BranchEnd,
}

impl Action {
    /// True if a copy engine executes the action.
    pub fn is_copy(self) -> bool {
        matches!(self, Action::Run(task) if engines_of(&task).is_some())
    }
}

/// Lane, hardware queue and priority of a task.
#[derive(Clone, Copy, Debug)]
pub struct Placing {
    pub lane: u32,
    /// The hardware queue of the task; `None` for a node of a graph.
    pub queue: Option<u32>,
    /// Priority of the task's lane; lower values are more urgent.
    pub priority: i32,
    /// Number of stamps of iterations that its rank had issued before. The tasks of an iteration have the same number.
    pub stamps_before: u64,
}

/// State of a task that has been submitted.
#[derive(Debug)]
struct TaskState {
    action: Action,
    placing: Placing,
    /// Number of dependencies that have not ended; special values mark later states.
    open: u32,
    /// Earliest time of the start, as far as known.
    ready: Time,
    /// Time from which on the device sees the task.
    visible: Time,
    /// Tasks that depend on this one, each with the minimum time between the end of this task and its start.
    followers: Vec<(TaskId, Time)>,
    end: Option<Time>,
    /// Number of a kernel's blocks that have not begun; of an exchange, number of compute units that it still needs.
    waiting: u64,
    /// Number of a kernel's blocks that run.
    running: u64,
    /// Time in ns by which rounding has shortened the task's blocks so far; later blocks compensate for it.
    left_out: f64,
    /// Stamps that are recorded at the start and at the end of the task.
    observed: [Option<u32>; 2],
    /// Lane whose progress the task changes, and whether its start and its end count as those of an operation; `None` if
    /// neither does.
    counted: Option<(u32, [bool; 2])>,
    /// Next launch of the graph whose launch this task ends: its first task, the time of the call, and the delay in ns of
    /// its roots if the task ends after the call. `None` if the graph was not launched again.
    relaunch: Option<(TaskId, Time, Time)>,
}

impl TaskState {
    /// A task that has not begun, without blocks and followers.
    fn new(action: Action, placing: Placing, open: u32, ready: Time) -> TaskState {
        TaskState {
            action,
            placing,
            open,
            ready,
            visible: 0,
            followers: Vec::new(),
            end: None,
            waiting: 0,
            running: 0,
            left_out: 0.0,
            observed: [None; 2],
            counted: None,
            relaunch: None,
        }
    }
}

/// The copy engines of one direction: number of idle ones, tasks that wait for one, and latency of a copy in ns.
#[derive(Debug)]
struct Engines {
    free: u32,
    waiting: VecDeque<TaskId>,
    latency: Time,
}

/// State of one simulated device.
#[derive(Debug)]
struct SimDevice {
    /// Free compute units, in units of 1/32.
    free: u64,
    /// Kernels with blocks that have not begun: the most urgent ones first, older ones before newer ones.
    admitted: Vec<TaskId>,
    /// Copy engines to the device, from the device, and to other devices.
    copies: [Engines; 3],
    front_end: FrontEnd,
}

/// The work to which a flow belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// Blocks of a kernel that began together, by the index of their group.
    Blocks(u32),
    Copy(TaskId),
    Transfer(TransferId),
}

/// Index in [`SimDevice::copies`] of the engines that execute a task; `None` for a kernel and for work of the host.
fn engines_of(task: &Task) -> Option<usize> {
    match task {
        Task::Kernel { .. } | Task::Host { .. } => None,
        Task::Copy { direction, .. } => Some(usize::from(*direction == Direction::DeviceToHost)),
        Task::Peer { .. } => Some(2),
    }
}

/// Times in ns between a task and a dependent one, besides the gap of a stream or a graph.
#[derive(Clone, Copy, Debug)]
struct FurtherGaps {
    engine: Time,
    stamp: Time,
}

impl FurtherGaps {
    fn longest(self) -> Time {
        self.engine + self.stamp
    }

    fn between(self, before: Action, after: Action) -> Time {
        let engine = |action| match action {
            Action::Run(Task::Host { .. }) | Action::Mark(_) | Action::Meet(_) | Action::BranchEnd => None,
            Action::Run(task) => Some(engines_of(&task)),
            Action::Exchange(_) => Some(None),
        };
        match (before, engine(before), engine(after)) {
            // The engine of kernels executes stamps.
            (Action::Mark(Some(_)), _, Some(_)) => self.stamp + if after.is_copy() { self.engine } else { 0 },
            (_, Some(before), Some(after)) if before != after => self.engine,
            _ => 0,
        }
    }
}

/// Value of [`TaskState::open`] of a task that is ready.
const READY: u32 = u32::MAX;
/// Value of [`TaskState::open`] of a task that the front end knows, or that runs.
const OFFERED: u32 = u32::MAX - 1;
/// Value of [`TaskState::open`] of a task that starts after the front end has polled other queues.
const POLLED_LATER: u32 = u32::MAX - 2;

/// Rounds a time to whole ns.
pub fn whole(time: f64) -> Time {
    time.round() as Time
}

/// The simulated devices.
#[derive(Debug)]
pub struct SimMachine {
    now: Time,
    events: BinaryHeap<Event>,
    event_number: u64,
    flows: Flows<Owner>,
    paths: Paths,
    tasks: VecDeque<TaskState>,
    first: TaskId,
    devices: Vec<SimDevice>,
    /// Index of the device of each lane.
    device_of: Vec<u32>,
    capacity: u64,
    /// Duration of an empty kernel in ns.
    kernel_floor: Time,
    /// The most urgent priority of all lanes.
    most_urgent: i32,
    /// The longest minimum time between a task's end and the start of a dependent task.
    longest_gap: Time,
    further_gaps: FurtherGaps,
    blocks: Slots<Blocks>,
    meetings: exchanges::ExchangeState,
    /// Tasks whose end, and lanes whose room, some rank waits for; `moved` is true once one of them has changed.
    awaited: FxHashSet<TaskId>,
    awaited_lanes: FxHashSet<u32>,
    moved: bool,
    queues: Vec<VecDeque<TaskId>>,
    rule: QueueRule,
    front_end_times: FrontEndTimes,
    /// For each lane, the number of calls whose work has not ended.
    outstanding: Vec<u32>,
    /// For each lane, its limit of occupied compute units, and those that it occupies, in units of 1/32. Nodes of
    /// graphs do not count.
    parts: Vec<(u64, u64)>,
    /// Stamps that were recorded since [`SimMachine::take_stamps`], with their times.
    stamps: Vec<(u32, Time)>,
    /// For each lane, the number of operations that have begun, and the number of those that have ended.
    paces: Vec<[u64; 2]>,
    /// For each device, the times at which the number of its occupied compute units has changed, with the new number in
    /// units of 1/32; `None` while the device is not watched.
    watched: Vec<Option<Vec<(Time, u32)>>>,
}

impl SimMachine {
    /// Creates one device per rank with `queues` hardware queues each. `lanes` has the device and the priority of each
    /// lane; lower values are more urgent.
    /// With `is_cold`, iterations begin with a flush of the caches.
    pub fn new(profile: &Profile, lanes: &[(u32, i32)], ranks: Vec<u32>, queues: usize, is_cold: bool) -> SimMachine {
        let capacity = profile.units.value() as u64 * u64::from(Cost::WHOLE_UNIT);
        let engines = |direction: Direction| {
            let engines = cost::engines(direction, profile);
            let (free, latency) = (engines.engines.value() as u32, whole(engines.latency.value()));
            Engines { free, waiting: VecDeque::new(), latency }
        };
        let device = |_: &u32| SimDevice {
            free: capacity,
            admitted: Vec::new(),
            copies: [Direction::HostToDevice, Direction::DeviceToHost, Direction::DeviceToHost].map(engines),
            front_end: FrontEnd::default(),
        };
        let mut flows = Flows::new(0);
        let paths = Paths::new(profile, &ranks, &mut flows);
        let further_gaps =
            FurtherGaps { engine: whole(profile.gap_engine.value()), stamp: whole(profile.gap_stamp.value()) };
        // A lane can wait for each of the others, one after the other. More waits, as for several events of one lane, call
        // `keep_ends`.
        let event = profile.gap_event.value() + profile.gap_wait.value() * lanes.len() as f64;
        SimMachine {
            now: 0,
            events: BinaryHeap::new(),
            event_number: 0,
            flows,
            paths,
            tasks: VecDeque::new(),
            first: 0,
            devices: ranks.iter().map(device).collect(),
            watched: vec![None; ranks.len()],
            outstanding: vec![0; lanes.len()],
            parts: vec![(u64::MAX, 0); lanes.len()],
            device_of: lanes.iter().map(|(device, _)| *device).collect(),
            capacity,
            kernel_floor: whole(profile.kernel_floor.value()),
            longest_gap: [profile.gap_same.value(), event, profile.graph.gap.value()]
                .map(whole)
                .into_iter()
                .fold(0, Time::max)
                + further_gaps.longest(),
            further_gaps,
            most_urgent: lanes.iter().map(|(_, priority)| *priority).min().unwrap_or(0),
            blocks: Slots::default(),
            meetings: exchanges::ExchangeState::default(),
            awaited: FxHashSet::default(),
            awaited_lanes: FxHashSet::default(),
            moved: false,
            queues: (0..ranks.len() * queues).map(|_| VecDeque::new()).collect(),
            rule: profile.queues.rule,
            front_end_times: FrontEndTimes::new(profile, is_cold),
            stamps: Vec::new(),
            paces: vec![[0; 2]; lanes.len()],
        }
    }

    /// Limits the compute units that kernels of a lane occupy at once.
    pub fn limit(&mut self, lane: u32, units: u32) {
        self.parts[lane as usize].0 = u64::from(units) * u64::from(Cost::WHOLE_UNIT);
    }

    /// Limit and number of occupied compute units of the lane to which a task is charged; `None` for a node of a graph.
    fn account(&mut self, task: TaskId) -> Option<&mut (u64, u64)> {
        let placing = self.state(task).placing;
        placing.queue.map(|_| &mut self.parts[placing.lane as usize])
    }

    /// The simulated time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Number of calls on a lane whose work has not ended. A graph counts as one call.
    pub fn outstanding(&self, lane: u32) -> u32 {
        self.outstanding[lane as usize]
    }

    /// True if a task has ended.
    pub fn has_ended(&self, task: TaskId) -> bool {
        // Tasks that are no longer kept ended long ago.
        task.checked_sub(self.first).is_none_or(|index| self.tasks[index as usize].end.is_some())
    }

    /// Submits a task that starts at `visible` at the earliest, and after each task of `after` has ended and its gap
    /// has passed.
    pub fn submit(
        &mut self,
        action: Action,
        placing: Placing,
        visible: Time,
        after: impl IntoIterator<Item = (TaskId, Time)>,
    ) -> TaskId {
        let id = self.first + self.tasks.len() as u64;
        let mut open = 0;
        let mut ready = visible;
        for (task, gap) in after {
            let Some(index) = task.checked_sub(self.first) else { continue };
            let state = &mut self.tasks[index as usize];
            let gap = gap + self.further_gaps.between(state.action, action);
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
                self.number_on_channels(id, placing.lane, exchange);
                self.meetings.exchanges[exchange as usize].units
            }
            _ => 0,
        };
        let state = TaskState { waiting: blocks, visible, ..TaskState::new(action, placing, open, ready) };
        self.tasks.push_back(state);
        self.outstanding[placing.lane as usize] += u32::from(placing.queue.is_some());
        if let (Some(queue), Action::Run(Task::Kernel { .. }) | Action::Exchange(_)) = (placing.queue, action) {
            self.queues[queue as usize].push_back(id);
        }
        if open == 0 {
            self.at(ready, EventKind::Ready(id));
        }
        id
    }

    /// Delays the tasks that depend on `begin` by `delay` ns if `previous` ends after the time `call`.
    pub fn relaunch(&mut self, previous: TaskId, begin: TaskId, call: Time, delay: Time) {
        // A task that has ended did so before the call, since no call is simulated after later events.
        if !self.has_ended(previous) {
            self.state(previous).relaunch = Some((begin, call, delay));
        }
    }

    /// Keeps the ends of tasks for at least `gap` ns plus the further gaps, so that tasks that start this long after
    /// them can depend on them.
    pub fn keep_ends(&mut self, gap: Time) {
        self.longest_gap = self.longest_gap.max(gap + self.further_gaps.longest());
    }

    /// Submits a task that ends only by [`SimMachine::release`]. The task is no part of the lane's order.
    pub fn hold(&mut self, lane: u32) -> TaskId {
        let placing = Placing { lane, queue: None, priority: 0, stamps_before: 0 };
        self.tasks.push_back(TaskState::new(Action::Mark(None), placing, 1, 0));
        self.first + self.tasks.len() as u64 - 1
    }

    /// Ends a held task at `time`.
    pub fn release(&mut self, task: TaskId, time: Time) {
        self.state(task).open = 0;
        self.at(time, EventKind::Ready(task));
    }

    /// Makes [`SimMachine::moved`] report the end of a task.
    pub fn await_end(&mut self, task: TaskId) {
        self.awaited.insert(task);
    }

    /// Makes [`SimMachine::moved`] report that the number of outstanding calls of a lane has decreased.
    pub fn await_room(&mut self, lane: u32) {
        self.awaited_lanes.insert(lane);
    }

    /// Cancels [`SimMachine::await_room`].
    pub fn has_room(&mut self, lane: u32) {
        self.awaited_lanes.remove(&lane);
    }

    /// True if one of the awaited events has happened since the last call.
    pub fn moved(&mut self) -> bool {
        std::mem::take(&mut self.moved)
    }

    fn device(&self, task: TaskId) -> usize {
        let lane = self.tasks[(task - self.first) as usize].placing.lane;
        self.device_of[lane as usize] as usize
    }

    fn at(&mut self, time: Time, what: EventKind) {
        self.event_number += 1;
        self.events.push(Event { time: time.max(self.now), number: self.event_number, what });
    }

    fn state(&mut self, task: TaskId) -> &mut TaskState {
        let index = (task - self.first) as usize;
        &mut self.tasks[index]
    }

    /// Processes the next event; false if there is none.
    pub fn step(&mut self) -> bool {
        match (self.flows.next(), self.events.peek().map(|event| event.time)) {
            (None, None) => return false,
            (Some(time), event) if event.is_none_or(|event| time < event) => {
                self.now = time;
                match self.flows.finish().expect("the next one was found") {
                    (Owner::Blocks(group), left) => self.blocks_end(group, left),
                    (Owner::Copy(task), _) => self.copied(task),
                    (Owner::Transfer(transfer), _) => self.transferred(transfer),
                }
            }
            _ => {
                let event = self.events.pop().expect("peeked above");
                self.now = event.time;
                self.handle(event.what);
            }
        }
        true
    }

    fn handle(&mut self, what: EventKind) {
        match what {
            EventKind::Ready(task) => self.ready(task),
            EventKind::Dispatch(task) => self.dispatch_reserved(task),
            EventKind::Launched { device, end } => self.launched_node(device, end),
            EventKind::Begin(task) => {
                self.admit(task);
                self.assign_units(self.device(task));
            }
            EventKind::BlocksEnd(group) => self.blocks_end(group, 0.0),
            EventKind::Transferred(transfer) => self.transferred(transfer),
            EventKind::CopyStarts(task) => {
                let Action::Run(run) = self.state(task).action else { unreachable!("only copies start as such") };
                let (time, demands) = self.paths.copy(self.device(task), &run, &mut self.flows);
                self.flows.add(self.now, Owner::Copy(task), time, demands);
            }
        }
    }

    /// Continues with a task whose dependencies have ended.
    fn ready(&mut self, task: TaskId) {
        if self.polls_first(task) {
            return;
        }
        let state = self.state(task);
        // From now on `open` marks this state.
        state.open = READY;
        let (action, placing) = (state.action, state.placing);
        match (action, placing.queue) {
            // A mark may stand for an operation that does nothing on this rank.
            (Action::Mark(_), _) => {
                self.started(task, self.now);
                self.ended(task);
            }
            (Action::Meet(_), _) => {
                self.started(task, self.now);
                self.arrive(task);
            }
            (Action::Run(run @ (Task::Copy { .. } | Task::Peer { .. })), _) => {
                let engines = engines_of(&run).expect("copies have one");
                let device = self.device(task);
                self.devices[device].copies[engines].waiting.push_back(task);
                self.start_copies(device, engines, 0);
            }
            (Action::Run(run @ Task::Host { .. }), _) => {
                self.started(task, self.now);
                let (time, demands) = self.paths.copy(self.device(task), &run, &mut self.flows);
                self.flows.add(self.now, Owner::Copy(task), time, demands);
            }
            (_, None) => self.start_node(task),
            (_, Some(queue)) => self.start_ready(queue),
        }
    }

    /// Starts a kernel or an exchange. It counts as started shortly before its first block, by the time that its launch takes.
    /// While it waits for units, it has not begun.
    fn launch(&mut self, task: TaskId, action: Action) {
        self.at(self.now + self.floor(action), EventKind::Begin(task));
    }

    /// Time in ns from the start of a kernel or an exchange until it occupies compute units. Further parts of a kernel's minimum
    /// duration, such as its first access to memory, belong to its first blocks.
    fn floor(&self, action: Action) -> Time {
        match action {
            Action::Run(Task::Kernel { floor, .. }) => whole(floor).min(self.kernel_floor),
            Action::Exchange(exchange) => self.meetings.exchanges[exchange as usize].floor,
            _ => 0,
        }
    }

    /// Starts copies that wait for engines of a direction, this many ns later than engines that were idle would.
    fn start_copies(&mut self, device: usize, engines: usize, change: Time) {
        while self.devices[device].copies[engines].free > 0 {
            let engines = &mut self.devices[device].copies[engines];
            let Some(task) = engines.waiting.pop_front() else { return };
            engines.free -= 1;
            let latency = engines.latency;
            self.started(task, self.now);
            self.at(self.now + change + latency, EventKind::CopyStarts(task));
        }
    }

    /// Continues after an engine has finished a copy, or after CPU threads have finished their work.
    fn copied(&mut self, task: TaskId) {
        let Action::Run(run) = self.state(task).action else { unreachable!("only copies are copied") };
        let device = self.device(task);
        let engines = engines_of(&run);
        engines.iter().for_each(|&engines| self.devices[device].copies[engines].free += 1);
        self.ended(task);
        // A copy that has waited for the engine is of another stream, since one of the same stream becomes ready later. The engine changes
        // to that stream, which takes as long as a change between engines.
        let change = if matches!(run, Task::Copy { .. }) { self.further_gaps.engine } else { 0 };
        engines.into_iter().for_each(|engines| self.start_copies(device, engines, change));
    }

    fn ended(&mut self, task: TaskId) {
        let now = self.now;
        let state = self.state(task);
        state.end = Some(now);
        let placing = state.placing;
        let action = state.action;
        let counted = state.counted;
        let followers = std::mem::take(&mut state.followers);
        let relaunch = state.relaunch.filter(|&(_, call, _)| now > call);
        let marked = match action {
            Action::Mark(stamp) => stamp.or(state.observed[1]),
            Action::Run(_) | Action::Exchange(_) | Action::Meet(_) | Action::BranchEnd => state.observed[1],
        };
        if let Some((lane, [_, closes])) = counted {
            self.paces[lane as usize][1] += u64::from(closes);
        }
        if let Some((begin, _, delay)) = relaunch {
            self.state(begin).followers.iter_mut().for_each(|(_, gap)| *gap += delay);
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
                self.at(ready, EventKind::Ready(follower));
            }
        }
        if let Some(queue) = placing.queue
            && matches!(action, Action::Run(Task::Kernel { .. }) | Action::Exchange(_))
            && self.rule == QueueRule::Serial
        {
            self.queues[queue as usize].pop_front();
            self.start_ready(queue);
        }
        // A task's end is needed until no dependent can be submitted whose start it affects.
        let forgotten = now - self.longest_gap;
        while self.tasks.front().is_some_and(|task| task.end.is_some_and(|end| end <= forgotten)) {
            self.tasks.pop_front();
            self.first += 1;
        }
    }
}
