//! The CPU backend: one thread per stream, real memory, and the reference implementation of every operation.

mod exchange;
mod memory;
mod worker;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use super::system::{self, available_memory};
use crate::base::{Bytes, DType, Nanos, Space, threads};
use crate::exec::{Backend, DeviceInfo, Driver, ExecError, Fault, Image, LaneCompletion, check_peers};
use crate::ops::user_kernel;
use crate::schedule::Topology;

use exchange::CommStates;
use memory::HostMemory;
use worker::{LaneCommand, LaneProgress, RankState, RecordedEvent, Stamp};

/// The CPU as a backend.
#[derive(Debug, Default)]
pub struct Host;

impl Backend for Host {
    fn name(&self) -> &'static str {
        "host"
    }

    fn device(&self) -> DeviceInfo {
        DeviceInfo {
            name: "this CPU".to_owned(),
            simulated: false,
            index: None,
            units: std::thread::available_parallelism().ok().map(|count| count.get() as u32),
            memory_bytes: None,
            host_memory_bytes: available_memory(),
            facts: Vec::new(),
        }
    }

    fn topology(&self) -> Topology {
        // Each thread is a queue of its own.
        Topology { queues: u32::MAX, by_priority: false, limits_units: false }
    }

    fn open(&self, images: Vec<Image>) -> Result<Vec<Box<dyn Driver>>, ExecError> {
        check_peers(&images)?;
        images.iter().try_for_each(check_references)?;
        let comm_states = CommStates::default();
        let driver = |image| Ok(Box::new(HostDriver::new(image, &comm_states)?) as Box<dyn Driver>);
        images.into_iter().map(driver).collect()
    }
}

/// Fails if a declared kernel has no reference, since the CPU can only compute references.
fn check_references(image: &Image) -> Result<(), ExecError> {
    let without = image.works.iter().find_map(|work| {
        let kernel = user_kernel(&work.spec).filter(|kernel| kernel.reference.is_none())?;
        Some(ExecError::NoReference { name: kernel.name.to_string(), at: work.span.into() })
    });
    without.map_or(Ok(()), Err)
}

/// The commands of a graph, each with its lane.
#[derive(Debug, Default)]
struct CapturedGraph {
    /// The lane on which the capture began. A launch waits there, and records its end.
    first_lane: u32,
    commands: Vec<(u32, CapturedCommand)>,
}

/// A captured command of a lane. Events get the numbers of their recordings when the graph is launched.
#[derive(Clone, Copy, Debug)]
enum CapturedCommand {
    Run(u32),
    Record(u32),
    Wait(u32),
    Stamp(u32),
}

struct HostDriver {
    shared: Arc<RankState>,
    lanes: Vec<Sender<LaneCommand>>,
    threads: Vec<JoinHandle<()>>,
    /// For each event, the number of its recordings that were sent to lanes. The last two events are those of graph
    /// launches.
    recorded: Vec<u64>,
    graphs: Vec<CapturedGraph>,
    capture: Option<CapturedGraph>,
    /// True if a command was sent to a lane since the last synchronization.
    busy: bool,
    /// True if a lane may never end, so that nothing may wait for it.
    abandoned: bool,
}

impl HostDriver {
    fn new(image: Image, comm_states: &CommStates) -> Result<Self, ExecError> {
        let memory = |space: Space| {
            let bytes = image.bytes[space.index()];
            HostMemory::new(bytes, DType::POISON).ok_or_else(|| ExecError::OutOfMemory {
                needed: Bytes(bytes).to_string(),
                space: space.name(),
                available: "less than that is available".to_owned(),
                largest: "`aorta plan` shows them".to_owned(),
            })
        };
        let events = image.events as usize + 2;
        let lanes = image.lanes.len();
        let names: Vec<String> = image.lanes.iter().map(|lane| lane.name.clone()).collect();
        let shared = Arc::new(RankState {
            spaces: [memory(Space::Device)?, memory(Space::Pinned)?, memory(Space::Managed)?, memory(Space::Host)?],
            events: (0..events).map(|_| RecordedEvent::default()).collect(),
            stamps: (0..image.stamps).map(|_| Stamp::default()).collect(),
            progress: (0..lanes).map(|_| LaneProgress::default()).collect(),
            comm_states: image.comms.iter().map(|comm| comm_states.of(comm)).collect(),
            crossings: comm_states.crossings.clone(),
            image,
        });
        let mut driver = HostDriver {
            lanes: Vec::with_capacity(lanes),
            threads: Vec::with_capacity(lanes),
            recorded: vec![0; events],
            graphs: Vec::new(),
            capture: None,
            busy: false,
            abandoned: false,
            shared,
        };
        for name in names {
            let (sender, receiver) = channel();
            let shared = driver.shared.clone();
            let builder = std::thread::Builder::new().name(name);
            let thread = threads::spawn(builder, move || worker::work(&shared, &receiver))
                .map_err(|error| ExecError::no_thread("for a stream", &error))?;
            driver.lanes.push(sender);
            driver.threads.push(thread);
        }
        driver.fill();
        Ok(driver)
    }

    fn fill(&self) {
        let mut bytes = Vec::new();
        for fill in &self.shared.image.fills {
            let memory = self.shared.memory(fill.space);
            let size = fill.dtype.size();
            const CHUNK: u64 = 4096;
            for first in (0..fill.elements).step_by(CHUNK as usize) {
                let count = CHUNK.min(fill.elements - first);
                bytes.resize((count * size) as usize, 0);
                for (index, element) in (first..).zip(bytes.chunks_exact_mut(size as usize)) {
                    fill.dtype.store(fill.init.value(fill.dtype, index), element);
                }
                memory.store(fill.offset + first * size, &bytes);
            }
        }
    }

    fn send(&mut self, lane: u32, message: LaneCommand) -> Result<(), Box<Fault>> {
        self.busy = true;
        self.lanes[lane as usize]
            .send(message)
            .map_err(|_| Fault::new("send", "the thread of a stream has ended: a bug in an operation's reference"))
    }

    /// Sends a command to its lane, or adds it to the graph that is being captured.
    fn issue(&mut self, lane: u32, command: CapturedCommand) -> Result<(), Box<Fault>> {
        match &mut self.capture {
            Some(graph) => {
                graph.commands.push((lane, command));
                Ok(())
            }
            None => self.execute(lane, command),
        }
    }

    fn execute(&mut self, lane: u32, command: CapturedCommand) -> Result<(), Box<Fault>> {
        match command {
            CapturedCommand::Run(op) => self.send(lane, LaneCommand::Run(op)),
            CapturedCommand::Record(event) => {
                self.recorded[event as usize] += 1;
                self.send(lane, LaneCommand::Record { event, count: self.recorded[event as usize] })
            }
            CapturedCommand::Wait(event) => {
                self.send(lane, LaneCommand::Wait { event, count: self.recorded[event as usize] })
            }
            CapturedCommand::Stamp(stamp) => {
                self.shared.stamps[stamp as usize].clear();
                self.send(lane, LaneCommand::Stamp(stamp))
            }
        }
    }
}

impl Driver for HostDriver {
    fn launch(&mut self, op: u32) -> Result<(), Box<Fault>> {
        let lane = self.shared.image.ops[op as usize].lane;
        self.issue(lane, CapturedCommand::Run(op))
    }

    fn record(&mut self, event: u32, lane: u32) -> Result<(), Box<Fault>> {
        self.issue(lane, CapturedCommand::Record(event))
    }

    fn wait(&mut self, lane: u32, event: u32) -> Result<(), Box<Fault>> {
        self.issue(lane, CapturedCommand::Wait(event))
    }

    fn stamp(&mut self, stamp: u32, lane: u32) -> Result<(), Box<Fault>> {
        self.issue(lane, CapturedCommand::Stamp(stamp))
    }

    fn wait_stamp(&mut self, lane: u32, stamp: u32) -> Result<(), Box<Fault>> {
        self.send(lane, LaneCommand::WaitStamp(stamp))
    }

    fn launch_graph(&mut self, graph: u32, lane: u32) -> Result<(), Box<Fault>> {
        let number = graph as usize;
        let graph = std::mem::take(&mut self.graphs[number]);
        let begin = self.shared.image.events;
        let end = begin + 1;
        // The captured forks and joins connect the other lanes to the first one.
        self.execute(lane, CapturedCommand::Record(begin))?;
        self.execute(graph.first_lane, CapturedCommand::Wait(begin))?;
        graph.commands.iter().try_for_each(|&(lane, command)| self.execute(lane, command))?;
        self.execute(graph.first_lane, CapturedCommand::Record(end))?;
        self.execute(lane, CapturedCommand::Wait(end))?;
        self.graphs[number] = graph;
        Ok(())
    }

    fn reached(&mut self, stamp: u32) -> Result<bool, Box<Fault>> {
        Ok(self.shared.stamps[stamp as usize].time().is_some())
    }

    fn elapsed(&mut self, from: u32, to: u32) -> Result<Nanos, Box<Fault>> {
        let time = |stamp: u32| self.shared.stamps[stamp as usize].time();
        let (Some(from), Some(to)) = (time(from), time(to)) else {
            return Err(Fault::new("elapsed", "a stamp has not been reached"));
        };
        Ok(to - from)
    }

    fn now(&self) -> Nanos {
        system::now()
    }

    fn host_clock(&self) -> u32 {
        system::clock()
    }

    fn has_clock(&self) -> bool {
        false
    }

    fn reached_at(&mut self, stamp: u32) -> Result<Nanos, Box<Fault>> {
        let time = self.shared.stamps[stamp as usize].time();
        time.ok_or_else(|| Fault::new("reached_at", "a stamp has not been reached"))
    }

    fn begin_capture(&mut self, lane: u32) -> Result<(), Box<Fault>> {
        self.capture = Some(CapturedGraph { first_lane: lane, commands: Vec::new() });
        Ok(())
    }

    fn end_capture(&mut self, _lane: u32) -> Result<u32, Box<Fault>> {
        let Some(graph) = self.capture.take() else {
            return Err(Fault::new("end_capture", "nothing is being captured"));
        };
        self.graphs.push(graph);
        Ok(self.graphs.len() as u32 - 1)
    }

    fn synchronize(&mut self) -> Result<(), Box<Fault>> {
        if !self.busy {
            return Ok(());
        }
        let event = self.shared.image.events;
        for lane in 0..self.lanes.len() as u32 {
            self.execute(lane, CapturedCommand::Record(event))?;
            self.shared.events[event as usize].wait(self.recorded[event as usize]);
        }
        self.busy = false;
        Ok(())
    }

    fn idle(&mut self, lane: u32) -> Result<bool, Box<Fault>> {
        // An idle lane processes a record at once.
        let event = self.shared.image.events;
        self.execute(lane, CapturedCommand::Record(event))?;
        std::thread::sleep(std::time::Duration::from_millis(1));
        Ok(self.shared.events[event as usize].has_reached(self.recorded[event as usize]))
    }

    fn progress(&mut self, lane: u32) -> Option<LaneCompletion> {
        let lane_progress = &self.shared.progress[lane as usize];
        let running = lane_progress.running.load(Ordering::Acquire);
        Some(LaneCompletion { ended: lane_progress.ended.load(Ordering::Acquire), running })
    }

    fn stuck(&mut self) -> bool {
        self.shared.comm_states.iter().any(|comm_state| comm_state.is_mismatched())
    }

    fn abandon(&mut self) {
        self.abandoned = true;
        // Release lanes that wait for other ranks, so that their threads can end.
        self.shared.comm_states.iter().for_each(|comm_state| comm_state.abort());
    }

    fn reset(&mut self) -> Result<(), Box<Fault>> {
        self.synchronize()?;
        for space in Space::ALL {
            self.shared.memory(space).fill(DType::POISON);
        }
        self.fill();
        Ok(())
    }

    fn read(&mut self, space: Space, offset: u64, out: &mut [u8]) -> Result<bool, Box<Fault>> {
        self.synchronize()?;
        self.shared.memory(space).load(offset, out);
        Ok(true)
    }
}

impl Drop for HostDriver {
    fn drop(&mut self) {
        // Threads end when their channels close.
        self.lanes.clear();
        if self.abandoned {
            return;
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
