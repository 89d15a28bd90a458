//! Checks that a device that executes a mock's calls keeps the order of a plan.
//!
//! It models streams, events, graphs and host waits. Of sessions it only knows the numbers of the stamps that begin and
//! end iterations.

use std::collections::BTreeMap;

use aorta::base::OpId;
use aorta::model::{Program, Sync};
use aorta::plan::Plan;
use aorta::schedule::{Command, Schedule};

use super::oracle::{Before, Set, Unrolled};

/// Stamps of iterations; those around operations have higher numbers.
const STAMPS: usize = 512;

/// A device that executes the calls of one rank.
struct Device<'a> {
    unrolled: &'a Unrolled<'a>,
    /// For each operation of the image, its iteration of the period and its number there, and how often it was
    /// launched.
    launches: Vec<((usize, OpId), usize)>,
    period: usize,
    /// What is complete when a lane executes its next command.
    lanes: BTreeMap<String, Set>,
    /// What is complete where an event or a stamp was last recorded.
    events: BTreeMap<String, Set>,
    /// What the host knows to be complete: later launches cannot begin before it.
    known: Set,
    /// Captured graphs, and the capture under way.
    graphs: Vec<Captured>,
    capture: Option<Captured>,
    found: Found,
}

/// Operations of a graph, each with its predecessors in the graph, as indices.
#[derive(Default)]
struct Captured {
    origin: String,
    nodes: Vec<(usize, Set)>,
    lanes: BTreeMap<String, Set>,
    events: BTreeMap<String, Set>,
}

/// The order that the calls guarantee.
#[derive(Default)]
struct Found {
    /// For each node, what is complete when it starts.
    before: Before,
    /// For each stamp of an iteration, its number and what is complete there.
    stamps: Vec<(usize, Set)>,
    /// What is complete where caches are flushed or a gate is shut, with the number of stamps before.
    leads: Vec<(usize, Set)>,
}

impl Captured {
    fn lane(&mut self, lane: &str) -> &mut Set {
        self.lanes.entry(lane.to_owned()).or_default()
    }
}

impl<'a> Device<'a> {
    fn new(unrolled: &'a Unrolled<'a>, schedule: &Schedule) -> Self {
        let launches = schedule.period.iter().enumerate().flat_map(|(turn, step)| {
            step.commands.iter().filter_map(move |command| match command {
                Command::Launch { op, .. } => Some(((turn, *op), 0)),
                _ => None,
            })
        });
        Device {
            unrolled,
            launches: launches.collect(),
            period: schedule.period.len(),
            lanes: BTreeMap::new(),
            events: BTreeMap::new(),
            known: Set::default(),
            graphs: Vec::new(),
            capture: None,
            found: Found { before: vec![Set::default(); unrolled.nodes.len()], ..Found::default() },
        }
    }

    /// What is complete when a lane executes a command issued now.
    fn lane(&mut self, lane: &str) -> &mut Set {
        let set = self.lanes.entry(lane.to_owned()).or_default();
        set.extend(&self.known);
        set
    }

    /// The node of the next launch of an operation of the image.
    fn node(&mut self, op: usize) -> usize {
        let ((turn, id), count) = &mut self.launches[op];
        let iteration = *turn + self.period * *count;
        *count += 1;
        self.unrolled.number((iteration, *id))
    }

    fn call(&mut self, call: &str) -> Result<(), String> {
        let words: Vec<&str> = call.split(' ').collect();
        match words[..] {
            ["begin", "capture", "on", lane] => {
                self.capture = Some(Captured { origin: lane.to_owned(), ..Captured::default() });
            }
            ["end", "capture", "on", _] => {
                let mut graph = self.capture.take().ok_or("a capture is ended that was not begun")?;
                let origin = graph.origin.clone();
                let joined = graph.lane(&origin).clone();
                if (0..graph.nodes.len()).any(|node| !joined.contains(node)) {
                    return Err("a captured operation is not joined to the origin".to_owned());
                }
                self.graphs.push(graph);
            }
            ["launch", "graph", graph, "on", lane] => self.launch_graph(number(graph), lane),
            ["launch", op, .., "on", lane] => self.launch(number(&op[1..]), lane),
            ["record", event, "on", lane] | ["stamp", event, "on", lane] => self.record(event, lane),
            [lane, "waits", "for", event] => self.wait(lane, event),
            ["is", stamp, "reached?"] => {
                let reached = self.events.get(stamp).ok_or("the host waits for a stamp that was never set")?;
                self.known.extend(reached);
            }
            ["flush", "on", lane, ..] | ["hold", lane, ..] => {
                let (stamps, set) = (self.found.stamps.len(), self.lane(lane).clone());
                self.found.leads.push((stamps, set));
            }
            ["synchronize"] => self.lanes.values().for_each(|set| self.known.extend(set)),
            ["now?"] | ["open", ..] | ["did", ..] | ["from", ..] => {}
            _ => return Err(format!("`{call}` is no call")),
        }
        Ok(())
    }

    fn launch(&mut self, op: usize, lane: &str) {
        if let Some(capture) = &mut self.capture {
            let place = capture.nodes.len();
            let before = capture.lane(lane);
            let node = (op, before.clone());
            before.insert(place);
            capture.nodes.push(node);
            return;
        }
        let node = self.node(op);
        let before = self.lane(lane).clone();
        self.found.before[node] = before;
        self.lane(lane).insert(node);
    }

    fn launch_graph(&mut self, graph: usize, lane: &str) {
        let start = self.lane(lane).clone();
        let captured = self.graphs[graph].nodes.clone();
        let nodes: Vec<usize> = captured.iter().map(|(op, _)| self.node(*op)).collect();
        for (&node, (_, inside)) in nodes.iter().zip(&captured) {
            let before = &mut self.found.before[node];
            *before = start.clone();
            nodes
                .iter()
                .enumerate()
                .filter(|(place, _)| inside.contains(*place))
                .for_each(|(_, &node)| before.insert(node));
        }
        nodes.into_iter().for_each(|node| self.lane(lane).insert(node));
    }

    fn record(&mut self, event: &str, lane: &str) {
        if let Some(capture) = &mut self.capture {
            let passed = capture.lane(lane).clone();
            capture.events.insert(event.to_owned(), passed);
            return;
        }
        let passed = self.lane(lane).clone();
        if let Some(stamp) = event.strip_prefix('t').map(number).filter(|stamp| *stamp < STAMPS) {
            self.found.stamps.push((stamp, passed.clone()));
        }
        self.events.insert(event.to_owned(), passed);
    }

    /// A wait for an event that was never recorded, or not in this capture, has no effect.
    fn wait(&mut self, lane: &str, event: &str) {
        if let Some(capture) = &mut self.capture {
            let passed = capture.events.get(event).cloned().unwrap_or_default();
            capture.lane(lane).extend(&passed);
            return;
        }
        let passed = self.events.get(event).cloned().unwrap_or_default();
        self.lane(lane).extend(&passed);
    }
}

fn number(text: &str) -> usize {
    text.parse().expect("the mock writes numbers")
}

/// Checks that the calls of a run keep every dependency of the plan, within iterations and across them, and that
/// stamps, cache flushes and gates occur while nothing of another iteration is under way. With `exact`, the calls must
/// add no order except that of lanes and graphs. Returns the number of iterations.
pub fn judge(
    (program, plan): (&Program, &Plan),
    schedule: &Schedule,
    calls: &[String],
    exact: bool,
) -> Result<usize, String> {
    let stamps = calls.iter().filter_map(|call| call.strip_prefix("stamp t")?.split(' ').next().map(number));
    let iterations = stamps.filter(|stamp| *stamp < STAMPS && stamp % 2 == 1).count();
    let unrolled = Unrolled::new(program, iterations);
    let mut device = Device::new(&unrolled, schedule);
    for (index, call) in calls.iter().enumerate() {
        device.call(call).map_err(|why| format!("call {index}, `{call}`: {why}"))?;
    }
    let graphs = !device.graphs.is_empty();
    let Found { before, stamps, leads } = device.found;
    let launched = unrolled.launched(0);
    let overlapping = program.step.sync == Sync::End && !graphs;
    let planned = unrolled.closed(&unrolled.planned(plan, Some(&schedule.lane_of)));
    for later in (0..unrolled.nodes.len()).filter(|&later| launched.contains(later)) {
        let iteration = unrolled.nodes[later].0;
        for earlier in (0..later).filter(|&earlier| launched.contains(earlier)) {
            let needed = planned[later].contains(earlier) || (!overlapping && unrolled.nodes[earlier].0 < iteration);
            let found = before[later].contains(earlier);
            if found != needed && (exact || needed) {
                let pair = (unrolled.nodes[earlier], unrolled.nodes[later]);
                return Err(format!("{pair:?} in order: {needed} by the plan, {found} by the calls"));
            }
        }
    }
    let complete = |passed: &Set, iterations: usize| {
        let nodes = (0..unrolled.nodes.len()).filter(|&node| unrolled.nodes[node].0 < iterations);
        nodes.filter(|&node| launched.contains(node)).all(|node| passed.contains(node))
    };
    let mut ended = 0;
    for (stamp, passed) in &stamps {
        let ends = stamp % 2 == 1;
        ended += usize::from(ends);
        if (ends || !overlapping) && !complete(passed, ended) {
            return Err(format!("stamp t{stamp} is set before {ended} iterations are complete"));
        }
    }
    for (stamps, passed) in &leads {
        if !complete(passed, stamps / 2) {
            return Err(format!(
                "caches are emptied, or a gate is shut, before {} iterations are complete",
                stamps / 2
            ));
        }
    }
    Ok(iterations)
}

/// Largest number of commands of one iteration on one hardware queue.
pub fn most_of_a_queue(schedule: &Schedule, calls: &[String]) -> usize {
    let mut queues: BTreeMap<u32, usize> = BTreeMap::new();
    let mut most = 0;
    for call in calls {
        let words: Vec<&str> = call.split(' ').collect();
        let lane = match words[..] {
            ["launch", .., lane] | ["record" | "stamp", .., lane] => lane,
            [lane, "waits", ..] | ["hold", lane, ..] | ["flush", "on", lane, ..] => lane,
            _ => continue,
        };
        let queue = schedule.lanes.iter().find(|known| known.name == lane).expect("the schedule has the lane").queue;
        let count = queues.entry(queue).or_default();
        *count += 1;
        most = most.max(*count);
        let ends = words[0] == "stamp" && number(&words[1][1..]) % 2 == 1;
        if ends {
            queues.clear();
        }
    }
    most
}
