//! The thread of a lane, which runs the commands that it is sent, in order.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Condvar, Mutex};

use crate::backend::system;
use crate::base::computing::compute;
use crate::base::threads::{lock, unpoisoned};
use crate::base::{Nanos, Space};
use crate::exec::{Address, Image, ImageOp};
use crate::ops::{Collective, Hold, Launch, Tensor, contiguous_runs};

use super::exchange::{CommState, CopiesInFlight};
use super::memory::HostMemory;

/// A command to the thread of a lane.
#[derive(Clone, Copy, Debug)]
pub enum LaneCommand {
    Run(u32),
    /// Marks an event as recorded for the `count`-th time, counted from 1.
    Record {
        event: u32,
        count: u64,
    },
    Wait {
        event: u32,
        count: u64,
    },
    Stamp(u32),
    WaitStamp(u32),
}

/// An event: counts how many times it has been recorded.
#[derive(Debug, Default)]
pub struct RecordedEvent {
    count: Mutex<u64>,
    changed: Condvar,
}

impl RecordedEvent {
    fn reach(&self, count: u64) {
        let mut reached = lock(&self.count);
        *reached = (*reached).max(count);
        self.changed.notify_all();
    }

    /// True if the event has been recorded `count` times.
    pub fn has_reached(&self, count: u64) -> bool {
        *lock(&self.count) >= count
    }

    /// Blocks until the event has been recorded `count` times.
    pub fn wait(&self, count: u64) {
        let reached = lock(&self.count);
        let waited = self.changed.wait_while(reached, |reached| *reached < count);
        drop(unpoisoned(waited));
    }
}

/// A timestamp, once it has been reached.
#[derive(Debug, Default)]
pub struct Stamp {
    time: Mutex<Option<Nanos>>,
    changed: Condvar,
}

impl Stamp {
    /// Clears the time before the stamp is recorded again.
    pub fn clear(&self) {
        *lock(&self.time) = None;
    }

    /// Time at which the stamp was reached; `None` before that.
    pub fn time(&self) -> Option<Nanos> {
        *lock(&self.time)
    }

    fn reach(&self) {
        *lock(&self.time) = Some(system::now());
        self.changed.notify_all();
    }

    fn wait(&self) {
        let time = lock(&self.time);
        let waited = self.changed.wait_while(time, |time| time.is_none());
        drop(unpoisoned(waited));
    }
}

/// Progress of a lane, read by the watchdog.
#[derive(Debug, Default)]
pub struct LaneProgress {
    /// Number of operations that have ended.
    pub ended: AtomicU64,
    /// True while an operation runs.
    pub running: AtomicBool,
}

/// State that all lanes of a rank share.
#[derive(Debug)]
pub struct RankState {
    pub image: Image,
    /// Progress of each lane.
    pub progress: Vec<LaneProgress>,
    pub spaces: [HostMemory; Space::COUNT],
    pub events: Vec<RecordedEvent>,
    pub stamps: Vec<Stamp>,
    /// The state of each communicator, by the communicator's number in the image.
    pub comm_states: Vec<Arc<CommState>>,
    /// Data of copies between ranks.
    pub crossings: Arc<CopiesInFlight>,
}

impl RankState {
    /// The memory of a space.
    pub fn memory(&self, space: Space) -> &HostMemory {
        &self.spaces[space.index()]
    }
}

/// Buffers of a lane, reused by all operations.
#[derive(Debug, Default)]
struct Workspace {
    inputs: Vec<Vec<f64>>,
    outputs: Vec<Vec<f64>>,
    bytes: Vec<u8>,
}

/// Maximum number of inputs of an operation.
const MAX_INPUTS: usize = 32;

/// Executes the commands of a lane until its channel closes.
pub fn work(shared: &Arc<RankState>, messages: &Receiver<LaneCommand>) {
    let mut workspace = Workspace::default();
    while let Ok(message) = messages.recv() {
        match message {
            LaneCommand::Run(op) => {
                let lane_progress = &shared.progress[shared.image.ops[op as usize].lane as usize];
                lane_progress.running.store(true, Ordering::Release);
                run(shared, op, &mut workspace);
                lane_progress.ended.fetch_add(1, Ordering::Release);
                lane_progress.running.store(false, Ordering::Release);
            }
            LaneCommand::Record { event, count } => shared.events[event as usize].reach(count),
            LaneCommand::Wait { event, count } => shared.events[event as usize].wait(count),
            LaneCommand::Stamp(stamp) => shared.stamps[stamp as usize].reach(),
            LaneCommand::WaitStamp(stamp) => shared.stamps[stamp as usize].wait(),
        }
    }
}

fn run(shared: &RankState, op: u32, workspace: &mut Workspace) {
    let op = &shared.image.ops[op as usize];
    let spec = &shared.image.works[op.work as usize].spec;
    if let Some(Hold::Block(time)) = spec.cost().hold {
        // A spinning lane would take CPU time from lanes that compute.
        std::thread::sleep(time.duration());
        return;
    }
    let addresses = shared.image.operands(op);
    let (input_places, output_places) = addresses.split_at(spec.inputs.len());
    let Workspace { inputs, outputs, bytes } = workspace;
    inputs.resize_with(inputs.len().max(spec.inputs.len()), Vec::new);
    outputs.resize_with(spec.outputs.len(), Vec::new);
    for ((tensor, place), values) in spec.inputs.iter().zip(input_places).zip(inputs.iter_mut()) {
        gather(shared, tensor, *place, values, bytes);
    }
    for ((tensor, place), values) in spec.outputs.iter().zip(output_places).zip(outputs.iter_mut()) {
        gather(shared, tensor, *place, values, bytes);
    }
    let launches = &shared.image.works[op.work as usize].launches;
    match (exchange(shared, op), launches.first()) {
        (None, Some(Launch::Peer(peer))) => {
            shared.crossings.pass(op.crossing, peer, &inputs[..spec.inputs.len()], outputs);
        }
        (Some((comm_state, collectives)), _) => {
            let team = collectives[0].rank;
            comm_state.take_part(team, spec, collectives, &inputs[..spec.inputs.len()], outputs);
        }
        (None, _) => {
            let mut views: [&[f64]; MAX_INPUTS] = [&[]; MAX_INPUTS];
            for (view, values) in views.iter_mut().zip(inputs.iter()) {
                *view = values;
            }
            compute(|| spec.operation.reference(spec, &views[..spec.inputs.len()], outputs));
        }
    }
    for ((tensor, place), values) in spec.outputs.iter().zip(output_places).zip(outputs.iter()) {
        scatter(shared, tensor, *place, values, bytes);
    }
}

/// The communicator and the collectives of an operation; `None` for an operation without other ranks.
fn exchange<'a>(shared: &'a RankState, op: &ImageOp) -> Option<(&'a CommState, &'a [Collective])> {
    let comm = shared.image.comms.get(op.comm as usize).filter(|comm| comm.ranks.len() > 1)?;
    let launches = &shared.image.works[op.work as usize].launches;
    let collectives = launches.iter().map(Launch::collectives).find(|collectives| !collectives.is_empty())?;
    debug_assert_eq!(comm.ranks.len(), collectives[0].ranks as usize);
    Some((&shared.comm_states[op.comm as usize], collectives))
}

fn gather(shared: &RankState, tensor: &Tensor, place: Address, values: &mut Vec<f64>, bytes: &mut Vec<u8>) {
    let size = tensor.dtype.size();
    let (length, starts) = contiguous_runs(tensor);
    values.resize(tensor.elements() as usize, 0.0);
    bytes.resize((length * size) as usize, 0);
    let memory = shared.memory(place.space);
    for (start, values) in starts.zip(values.chunks_exact_mut(length as usize)) {
        memory.load(place.offset + start * size, bytes);
        tensor.dtype.load_all(bytes, values);
    }
}

fn scatter(shared: &RankState, tensor: &Tensor, place: Address, values: &[f64], bytes: &mut Vec<u8>) {
    let size = tensor.dtype.size();
    let (length, starts) = contiguous_runs(tensor);
    bytes.resize((length * size) as usize, 0);
    let memory = shared.memory(place.space);
    for (start, values) in starts.zip(values.chunks_exact(length as usize)) {
        tensor.dtype.store_all(values, bytes);
        memory.store(place.offset + start * size, bytes);
    }
}
