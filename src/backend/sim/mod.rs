//! A simulated device: a deterministic stand-in for a GPU, from a profile.
//!
//! The host's calls cost what the profile says and are visible to the device after its latency; what they launch runs
//! on the machine. Nothing is computed: there is no memory. Every figure from here is simulated.

mod cache;
mod fluid;
mod machine;

use rustc_hash::FxHashMap;

use crate::base::{Nanos, Space};
use crate::config::Profile;
use crate::cost::{self, Task};
use crate::exec::{Backend, DeviceInfo, Driver, ExecError, Fault, Image};
use crate::model::Priority;
use crate::schedule::Topology;

use machine::{Action, Machine, Placing, TaskId};

/// The simulator as a backend.
#[derive(Debug)]
pub struct Sim {
    profile: Profile,
}

impl Sim {
    pub fn new(profile: Profile) -> Self {
        Sim { profile }
    }
}

impl Backend for Sim {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn device(&self) -> DeviceInfo {
        DeviceInfo {
            name: format!("{} (simulated)", self.profile.name),
            simulated: true,
            index: None,
            units: Some(self.profile.units.value() as u32),
            memory_bytes: Some(self.profile.memory.value() as u64),
            host_memory_bytes: None,
            facts: vec![("architecture".to_owned(), self.profile.architecture.clone())],
        }
    }

    fn topology(&self) -> Topology {
        Topology { queues: self.profile.queues.count.value() as u32, by_priority: self.profile.queues.by_priority }
    }

    fn open(&self, image: Image) -> Result<Box<dyn Driver>, ExecError> {
        Ok(Box::new(SimDriver::new(&self.profile, &image)))
    }
}

/// What one launch is to the simulator.
#[derive(Clone, Copy, Debug)]
struct Part {
    task: Task,
    /// What the call costs the host.
    host: f64,
    holds_host: bool,
}

/// A node of a captured graph.
#[derive(Clone, Debug)]
struct Node {
    action: Action,
    priority: i32,
    after: Vec<u32>,
    /// Stamps that its start and its end set.
    observed: [Option<u32>; 2],
}

#[derive(Clone, Debug, Default)]
struct Graph {
    nodes: Vec<Node>,
    /// Nodes that nothing in the graph waits for.
    last: Vec<u32>,
    /// Nodes that wait for nothing.
    branches: u32,
}

/// A capture under way.
#[derive(Debug, Default)]
struct Capture {
    nodes: Vec<Node>,
    /// For each lane the last node, and what its next has to wait for.
    lanes: Vec<(Option<u32>, Vec<u32>)>,
    events: Vec<Vec<u32>>,
}

struct Costs {
    record: f64,
    wait: f64,
    stamp: f64,
    gap_same: f64,
    gap_event: f64,
    latency: f64,
    graph_launch: f64,
    graph_branch: f64,
    graph_gap: f64,
    graph_dispatch: f64,
    depth: u32,
}

struct SimDriver {
    machine: Machine,
    costs: Costs,
    /// The host's time, in ns.
    host: f64,
    /// For each operation its lane and parts.
    ops: Vec<(u32, std::ops::Range<u32>)>,
    parts: Vec<Part>,
    /// For each lane its placing, its last task, and what the next waits for.
    lanes: Vec<(Placing, Option<TaskId>, Vec<TaskId>)>,
    events: Vec<Option<TaskId>>,
    stamps: Vec<Option<TaskId>>,
    /// When each stamp was reached, in ns; NaN while it has not been.
    times: Vec<f64>,
    graphs: Vec<Graph>,
    /// What each gate that is shut holds up.
    gates: Vec<Option<TaskId>>,
    capture: Option<Capture>,
    observing: bool,
    /// The stamp that the next operation's start sets.
    opening: Option<u32>,
    /// What the last operation came to: a task, or a node of the capture under way.
    last: Option<Launched>,
}

#[derive(Clone, Copy, Debug)]
enum Launched {
    Task(TaskId),
    /// A task that had ended when its call returned, and when that was, in ns.
    Ended(f64),
    Node(u32),
}

impl SimDriver {
    fn new(profile: &Profile, image: &Image) -> Self {
        let mut parts = Vec::new();
        let fits = |work: u32| cost::fits_cache(&image.works[work as usize].spec, profile);
        let shares = cache::shares(image, profile, |work| if fits(work) { cache::WHOLE } else { 0 });
        let mut known: FxHashMap<(u32, u8), std::ops::Range<u32>> = FxHashMap::default();
        let ops = image
            .ops
            .iter()
            .zip(shares)
            .map(|(op, share)| {
                let range = known.entry((op.work, share)).or_insert_with(|| {
                    let work = &image.works[op.work as usize];
                    let first = parts.len() as u32;
                    let cached = f64::from(share) / f64::from(cache::WHOLE);
                    let tasks = cost::tasks(&work.spec, &work.launches, cached, profile);
                    parts.extend(work.launches.iter().zip(tasks).map(|(launch, task)| Part {
                        task,
                        host: cost::issue(launch, profile),
                        holds_host: matches!(task, Task::Copy { pageable: true, .. }),
                    }));
                    first..parts.len() as u32
                });
                (op.lane, range.clone())
            })
            .collect();
        let queue_base = |priority: Priority| match (profile.queues.by_priority, priority) {
            (false, _) => 0,
            (true, Priority::High) => 1,
            (true, Priority::Low) => 2,
            (true, _) => 0,
        };
        let queues = profile.queues.count.value() as u32;
        let lanes = image
            .lanes
            .iter()
            .enumerate()
            .map(|(lane, info)| {
                let queue = queue_base(info.priority) * queues + info.queue;
                let placing = Placing { lane: lane as u32, queue: Some(queue), priority: urgency(info.priority) };
                (placing, None, Vec::new())
            })
            .collect();
        SimDriver {
            machine: Machine::new(profile, image.lanes.len(), 3 * queues as usize),
            costs: Costs {
                record: profile.host.record.value(),
                wait: profile.host.wait.value(),
                stamp: profile.host.stamp.value(),
                gap_same: profile.gap_same.value(),
                gap_event: profile.gap_event.value(),
                latency: profile.launch_latency.value(),
                graph_launch: profile.graph.launch.value(),
                graph_branch: profile.graph.launch_branch.value(),
                graph_gap: profile.graph.gap.value(),
                graph_dispatch: profile.graph.dispatch.value(),
                depth: profile.host.queue_depth.value() as u32,
            },
            host: 0.0,
            ops,
            parts,
            lanes,
            events: vec![None; image.events as usize],
            stamps: vec![None; image.stamps as usize],
            times: vec![f64::NAN; image.stamps as usize],
            graphs: Vec::new(),
            gates: vec![None; image.gates as usize],
            capture: None,
            observing: false,
            opening: None,
            last: None,
        }
    }

    /// Puts a task behind a lane's last, and behind what the lane was told to wait for.
    fn submit(&mut self, lane: u32, action: Action) -> TaskId {
        let (placing, last, waits) = &mut self.lanes[lane as usize];
        // A mark has no gap before it: it is where the lane is.
        let (same, event) = match action {
            Action::Mark(_) => (0.0, 0.0),
            Action::Run(_) => (self.costs.gap_same, self.costs.gap_event),
        };
        let after = last.iter().map(|&task| (task, same)).chain(waits.drain(..).map(|task| (task, event)));
        let task = self.machine.submit(action, *placing, self.host + self.costs.latency, after);
        *last = Some(task);
        if self.machine.outstanding(lane) > self.costs.depth {
            // The queue is full: the call returns when there is room.
            self.machine.drain_lane(lane, self.costs.depth + 1);
            self.host = self.host.max(self.machine.now());
        }
        task
    }

    fn note(&mut self, lane: u32, action: Action) -> u32 {
        let priority = self.lanes[lane as usize].0.priority;
        let capture = self.capture.as_mut().expect("called while capturing");
        let node = capture.nodes.len() as u32;
        let (last, waits) = &mut capture.lanes[lane as usize];
        let after = last.iter().copied().chain(waits.drain(..)).collect();
        *last = Some(node);
        capture.nodes.push(Node { action, priority, after, observed: [None; 2] });
        node
    }

    /// A stamp around an operation: the first of a pair is for the next operation's start, the second for its end.
    fn observe(&mut self, stamp: u32) {
        match self.last.take() {
            None => self.opening = Some(stamp),
            Some(Launched::Task(task)) => self.machine.observe(task, None, Some(stamp)),
            Some(Launched::Ended(time)) => self.times[stamp as usize] = time,
            Some(Launched::Node(node)) => {
                let capture = self.capture.as_mut().expect("the node is its");
                capture.nodes[node as usize].observed[1] = Some(stamp);
            }
        }
    }

    fn set_stamp(&mut self, stamp: u32, task: TaskId) {
        // Anything reached before belongs to the stamp's last use.
        self.take_stamps();
        self.stamps[stamp as usize] = Some(task);
        self.times[stamp as usize] = f64::NAN;
    }

    fn take_stamps(&mut self) {
        for (stamp, time) in self.machine.take_stamps() {
            self.times[stamp as usize] = time;
        }
    }

    fn stuck(call: &'static str) -> Box<Fault> {
        Fault::new(call, "nothing is left to happen, and this has not: the schedule waits in a circle")
    }
}

fn urgency(priority: Priority) -> i32 {
    match priority {
        Priority::High => -1,
        Priority::Normal => 0,
        Priority::Low => 1,
        Priority::Level(level) => level,
    }
}

impl Driver for SimDriver {
    fn launch(&mut self, op: u32) -> Result<(), Box<Fault>> {
        let (lane, parts) = self.ops[op as usize].clone();
        for index in parts {
            let part = self.parts[index as usize];
            if self.capture.is_some() {
                let node = self.note(lane, Action::Run(part.task));
                let start = self.opening.take();
                let capture = self.capture.as_mut().expect("checked above");
                capture.nodes[node as usize].observed[0] = start;
                self.last = Some(Launched::Node(node));
                continue;
            }
            self.host += part.host;
            let task = self.submit(lane, Action::Run(part.task));
            self.machine.observe(task, self.opening.take(), None);
            self.last = Some(Launched::Task(task));
            if part.holds_host {
                if !self.machine.run_until(task) {
                    return Err(Self::stuck("copy"));
                }
                self.last = Some(Launched::Ended(self.machine.now()));
                self.host = self.host.max(self.machine.now());
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
        self.host += self.costs.record;
        if !self.lanes[lane as usize].2.is_empty() {
            self.submit(lane, Action::Mark(None));
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
        self.host += self.costs.wait;
        if let Some(task) = self.events[event as usize] {
            self.lanes[lane as usize].2.push(task);
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
        let task = self.submit(lane, Action::Mark(Some(stamp)));
        self.set_stamp(stamp, task);
        Ok(())
    }

    fn wait_stamp(&mut self, lane: u32, stamp: u32) -> Result<(), Box<Fault>> {
        self.host += self.costs.wait;
        if let Some(task) = self.stamps[stamp as usize] {
            self.lanes[lane as usize].2.push(task);
        }
        Ok(())
    }

    fn launch_graph(&mut self, graph: u32, lane: u32) -> Result<(), Box<Fault>> {
        let number = graph as usize;
        let graph = std::mem::take(&mut self.graphs[number]);
        self.host += self.costs.graph_launch + self.costs.graph_branch * f64::from(graph.branches.saturating_sub(1));
        let start = self.submit(lane, Action::Mark(None));
        let (gap, dispatch) = (self.costs.graph_gap, self.costs.graph_dispatch);
        let visible = self.host + self.costs.latency;
        let mut tasks: Vec<TaskId> = Vec::with_capacity(graph.nodes.len());
        let mut dispatched = 0.0;
        for node in &graph.nodes {
            let gap = match node.action {
                Action::Mark(_) => 0.0,
                Action::Run(_) => gap,
            };
            let placing = Placing { lane, queue: None, priority: node.priority };
            let before = node.after.iter().map(|&before| (tasks[before as usize], gap));
            let task = self.machine.submit(node.action, placing, visible, before.chain([(start, dispatched)]));
            if matches!(node.action, Action::Run(_)) {
                dispatched += dispatch;
            }
            if let Action::Mark(Some(stamp)) = node.action {
                self.set_stamp(stamp, task);
            }
            let [start, end] = node.observed;
            self.machine.observe(task, start, end);
            tasks.push(task);
        }
        self.lanes[lane as usize].2.extend(graph.last.iter().map(|&node| tasks[node as usize]));
        self.graphs[number] = graph;
        self.submit(lane, Action::Mark(None));
        Ok(())
    }

    fn reached(&mut self, stamp: u32) -> Result<bool, Box<Fault>> {
        let Some(task) = self.stamps[stamp as usize] else {
            return Err(Fault::new("reached", "the stamp was never set"));
        };
        if !self.machine.run_until(task) {
            return Err(Self::stuck("reached"));
        }
        self.take_stamps();
        self.host = self.host.max(self.times[stamp as usize]);
        Ok(true)
    }

    fn elapsed(&mut self, from: u32, to: u32) -> Result<Nanos, Box<Fault>> {
        let time = self.times[to as usize] - self.times[from as usize];
        if time.is_nan() {
            return Err(Fault::new("elapsed", "a stamp has not been reached"));
        }
        Ok(Nanos(time.round() as i64))
    }

    fn gates(&self) -> bool {
        true
    }

    /// The gate's own call costs the host nothing: it is outside of everything that is told.
    fn hold(&mut self, gate: u32, lane: u32) -> Result<(), Box<Fault>> {
        let shut = self.machine.hold(lane);
        self.gates[gate as usize] = Some(shut);
        self.lanes[lane as usize].2.push(shut);
        Ok(())
    }

    fn release(&mut self, gate: u32) {
        if let Some(shut) = self.gates[gate as usize].take() {
            self.machine.release(shut, self.host + self.costs.latency);
        }
    }

    fn flushes(&self) -> bool {
        true
    }

    /// What lies in the cache was worked out with the image.
    fn flush(&mut self, _lane: u32) -> Result<(), Box<Fault>> {
        Ok(())
    }

    fn now(&self) -> Nanos {
        Nanos(self.host.round() as i64)
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
        let mut waited = vec![false; capture.nodes.len()];
        for node in &capture.nodes {
            node.after.iter().for_each(|&before| waited[before as usize] = true);
        }
        let last = (0..capture.nodes.len() as u32).filter(|&node| !waited[node as usize]).collect();
        let branches = capture.nodes.iter().filter(|node| node.after.is_empty()).count() as u32;
        self.graphs.push(Graph { nodes: capture.nodes, last, branches });
        Ok(self.graphs.len() as u32 - 1)
    }

    fn observing(&mut self, on: bool) {
        self.observing = on;
        self.opening = None;
        self.last = None;
    }

    fn synchronize(&mut self) -> Result<(), Box<Fault>> {
        for lane in 0..self.lanes.len() {
            if let Some(task) = self.lanes[lane].1 {
                if !self.machine.run_until(task) {
                    return Err(Self::stuck("synchronize"));
                }
                self.host = self.host.max(self.machine.now());
            }
        }
        self.take_stamps();
        Ok(())
    }

    fn idle(&mut self, lane: u32) -> Result<bool, Box<Fault>> {
        Ok(self.machine.outstanding(lane) == 0)
    }

    fn reset(&mut self) -> Result<(), Box<Fault>> {
        Ok(())
    }

    fn read(&mut self, _: Space, _: u64, _: u64) -> Result<Option<Vec<u8>>, Box<Fault>> {
        Ok(None)
    }
}
