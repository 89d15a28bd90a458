//! Lowers a schedule to the image for a backend and to the state that its session keeps.

pub(super) mod capture;
pub(super) mod image;
pub(super) mod queues;
pub(super) mod rank_schedule;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::base::{Around, Bytes, MemoryId, Nanos, OnceBlock, Space, SrcSpan};
use crate::config::{CacheSetting, DataSetting, Effort, GateSetting, ObserveSetting, Settings};
use crate::model::{Program, Sync};
use crate::ops::init::Init;
use crate::ops::{Collective, CollectiveKind, Launch};
use crate::schedule::Schedule;
use crate::schedule::{self, Placement};

use super::observe::clock;
use super::run::gate::Gate;
use super::run::session::RING;
use super::{Backend, ExecError, Session};
use image::{Comm, Commands, Image, ImageOp, StepCommands};
use rank_schedule::RankSchedule;

/// Settings of a session: how it prepares, launches and observes iterations.
#[derive(Clone, Copy, Debug)]
pub struct SessionOptions {
    /// Number of iterations that the host may run ahead of the device, if iterations do not overlap.
    pub in_flight: u32,
    /// Timeout of an iteration, and of preparation without progress.
    pub timeout: Nanos,
    pub gemm_candidates: u32,
    /// True if chosen algorithms are kept on disk.
    pub keep_algorithms: bool,
    /// Maximum number of operations of an observed iteration.
    pub observed_operations: usize,
    /// Method of timing operations in observed iterations.
    pub observe: ObserveSetting,
    /// Number of commands that every hardware queue can hold. Iterations that fit are gated. 0 disables the gate.
    pub gate_depth: u32,
    /// Flush the data caches before each iteration.
    pub cold: bool,
    /// Initial contents of floats that the file declares random.
    pub contents: DataSetting,
}

impl SessionOptions {
    /// Options of a session with these settings.
    pub fn of(settings: &Settings) -> SessionOptions {
        SessionOptions {
            in_flight: settings.in_flight,
            timeout: settings.timeout,
            // Without a measurement, the speed of algorithms does not matter.
            gemm_candidates: if settings.effort == Effort::Sanity { 1 } else { settings.gemm_candidates },
            keep_algorithms: settings.keep_algorithms,
            observed_operations: settings.observed_operations,
            observe: settings.observe,
            gate_depth: if settings.gate == GateSetting::Auto { settings.gate_depth } else { 0 },
            cold: settings.cache == CacheSetting::Cold,
            contents: settings.data,
        }
    }

    /// True if the data caches of a device are flushed before each iteration, which is possible only if iterations do not overlap.
    pub fn flushes(&self, schedule: &Schedule) -> bool {
        self.cold && schedule.sync != Sync::End
    }
}

/// By launch number: each transfer's direction (true: send) and peer rank.
pub(super) type Transfers = BTreeMap<u32, Vec<(bool, u32)>>;

/// The commands that a session issues, with the names and locations that messages need. Cheap to clone; the watchdog
/// has a copy.
#[derive(Clone)]
pub(super) struct CommandOutline {
    pub period: Arc<[StepCommands]>,
    /// The block around the iterations that these commands belong to; `None` for the iterations.
    pub block: Option<OnceBlock>,
    /// Name and source location of each launch, for messages.
    pub launches: Arc<[(&'static str, SrcSpan)]>,
    pub lanes: Arc<[String]>,
    pub comms: Arc<[Comm]>,
    /// Communicator number of each launch; [`image::NO_COMM`] if it is not a collective.
    pub comm_of: Arc<[u32]>,
    /// Peers of each launch that consists of sends and receives alone.
    pub transfers: Arc<Transfers>,
    /// Timeout of an iteration.
    pub timeout: Nanos,
}

/// The state that a session keeps of a lowered schedule.
pub(super) struct LoweredSchedule {
    pub outline: CommandOutline,
    /// The commands of the blocks around the iterations, each as a period of one iteration.
    pub around: Around<CommandOutline>,
    /// Placement of each memory, with its offset in the space.
    pub placements: Vec<(Placement, u64)>,
    pub sync: Sync,
    /// Number of iterations that may be issued beyond the last completed one.
    pub ahead: u64,
    /// First of the events that join lanes.
    pub joins: u32,
    /// The lane that records stamps if iterations overlap.
    pub clock: u32,
    /// First of the stamps around operations; `None` if an iteration has too many operations to observe.
    pub observed: Option<u32>,
    /// First of the stamps that align clocks; `None` if no other rank is compared with this one.
    pub clock_stamps: Option<u32>,
    pub gate: Gate,
    /// True if the data caches are flushed before each iteration.
    pub cold: bool,
    /// The ranks that this one exchanges data with. May include itself.
    pub partners: Vec<u32>,
}

/// Opens a backend for a program with one rank, and creates everything that its schedule needs.
pub fn prepare(rank: RankSchedule, backend: &dyn Backend, options: &SessionOptions) -> Result<Session, ExecError> {
    let ranks = super::ranks::prepare_ranks(&[rank], backend, options)?;
    Ok(ranks.into_only().expect("a backend gives a driver for each image"))
}

/// Returns the image for a backend and the state of its session. `alter` may change the image and the period before
/// they are final; launches that it adds get the highest numbers.
pub(super) fn lower(
    rank: &RankSchedule,
    options: &SessionOptions,
    alter: impl FnOnce(&mut Image, &mut Commands),
) -> (Image, LoweredSchedule) {
    let (program, schedule) = (rank.program, rank.schedule);
    let lanes = schedule.lanes.len() as u32;
    let most = schedule.operations();
    let observed = (most <= options.observed_operations).then_some(2 * RING as u32);
    let mut stamps = 2 * RING as u32 + observed.map_or(0, |_| 2 * most as u32);
    let clock_stamps = observed.filter(|_| program.world > 1).map(|_| stamps);
    stamps += clock_stamps.map_or(0, |_| clock::STAMPS);
    let overlapping = schedule.sync == Sync::End;
    let extra: Vec<_> = overlapping.then(image::clock_lane).into_iter().collect();
    let (mut image, mut commands) = image::lower(rank, &extra, stamps, options.gemm_candidates);
    image.keep_algorithms = options.keep_algorithms;
    match options.contents {
        DataSetting::Normal => {}
        DataSetting::Zeros => image.replace_random(&Init::Zeros),
        DataSetting::Ones => image.replace_random(&Init::Ones),
        DataSetting::Iota => image.replace_random(&Init::Iota),
    }
    alter(&mut image, &mut commands);
    image.find_predecessors(&commands);
    let joins = image.events;
    image.events += lanes + 1;
    image.timeout = options.timeout;
    let launches = image
        .ops
        .iter()
        .map(|op| {
            let work = &image.works[op.work as usize];
            (work.spec.operation.name(), work.span)
        })
        .collect();
    let launches = spans_of(program, &commands, launches);
    let Commands { period, around } = commands;
    // Only iterations that do not overlap can be gated.
    let depth = if overlapping { 0 } else { options.gate_depth };
    let gate = Gate::new(&image, &period, depth, RING);
    let records = matches!(options.observe, ObserveSetting::Auto | ObserveSetting::Vendor);
    image.gates = if gate.on || (gate.graphs && records) { RING as u32 } else { 0 };
    if options.flushes(schedule) {
        let before = period.iter().scan(0, |ops, step| Some(std::mem::replace(ops, *ops + step.ops.len() as u32)));
        image.cold = before.collect();
    }
    let cold = !image.cold.is_empty();
    let placements = (0..program.memories.len())
        .map(MemoryId::from)
        .map(|id| (*schedule.memory.placement(id), schedule.memory.offset(id, 0).1))
        .collect();
    let transfers = transfers(&image);
    let partners = partners(&image, &transfers);
    let outline = CommandOutline {
        period: period.into(),
        block: None,
        launches: launches.into(),
        lanes: image.lanes.iter().map(|lane| lane.name.clone()).collect(),
        comms: image.comms.as_slice().into(),
        comm_of: image.ops.iter().map(|op| op.comm).collect(),
        transfers: Arc::new(transfers),
        timeout: options.timeout,
    };
    let of_block = |which, block| CommandOutline { period: vec![block].into(), block: Some(which), ..outline.clone() };
    let around = Around {
        setup: around.setup.map(|block| of_block(OnceBlock::Setup, block)),
        teardown: around.teardown.map(|block| of_block(OnceBlock::Teardown, block)),
    };
    let lowered = LoweredSchedule {
        outline,
        around,
        placements,
        sync: schedule.sync,
        ahead: u64::from(if overlapping { schedule.depth } else { options.in_flight.max(1) }),
        joins,
        clock: lanes,
        observed,
        clock_stamps,
        gate,
        cold,
        partners,
    };
    (image, lowered)
}

/// Finds the launches that consist of sends and receives alone.
fn transfers(image: &Image) -> Transfers {
    let directions = |op: &ImageOp| {
        let comm = image.comms.get(op.comm as usize)?;
        let work = &image.works[op.work as usize];
        let of_transfers = |calls: &&[Collective]| !calls.is_empty() && calls.iter().all(Collective::is_transfer);
        let calls = work.launches.iter().map(Launch::collectives).find(of_transfers)?;
        let side = |one: &Collective| Some((one.kind == CollectiveKind::Send, *comm.ranks.get(one.peer as usize)?));
        Some(calls.iter().filter_map(side).collect())
    };
    (0..).zip(&image.ops).filter_map(|(number, op)| Some((number, directions(op)?))).collect()
}

/// Returns the ranks with which some operation exchanges data.
fn partners(image: &Image, transfers: &Transfers) -> Vec<u32> {
    let mut partners = BTreeSet::new();
    for (number, op) in (0..).zip(&image.ops) {
        match (transfers.get(&number), image.comms.get(op.comm as usize)) {
            (Some(sides), _) => partners.extend(sides.iter().map(|(_, rank)| *rank)),
            (None, Some(comm)) => partners.extend(&comm.ranks),
            (None, None) => {}
        }
        for launch in image.works[op.work as usize].launches.iter() {
            if let Launch::Peer(peer) = launch {
                partners.extend(peer.from.iter().copied().chain(peer.sends.iter().map(|sent| sent.to)));
            }
        }
    }
    partners.into_iter().collect()
}

/// Gives each launch the source location of its own operation; operations with equal specs share a work.
fn spans_of(
    program: &Program,
    commands: &Commands,
    mut launches: Vec<(&'static str, SrcSpan)>,
) -> Vec<(&'static str, SrcSpan)> {
    let blocks = commands.around.as_ref().zip(program.around.as_ref());
    let blocks = blocks.iter().map(|(_, (block, program))| (*block, &***program)).collect::<Vec<_>>();
    let steps = commands.period.iter().map(|step| (step, program)).chain(blocks);
    let mut index = 0;
    for (step, program) in steps {
        for &op in &step.ops {
            launches[index].1 = program.cycle[step.step].op(op).span;
            index += 1;
        }
    }
    launches
}

/// Fails if the device or the host reports less memory than the image needs.
pub(super) fn check_room(program: &Program, image: &Image, backend: &dyn Backend) -> Result<(), ExecError> {
    let info = backend.device();
    let [device, on_host @ ..] = image.bytes;
    let shared = if info.memory_bytes.is_none() { device } else { 0 };
    // Managed memory can be larger than a device, since its pages can lie in the host's memory.
    let on_host = on_host.into_iter().fold(shared, u64::saturating_add);
    let rooms = [(device, info.memory_bytes, Space::Device.name()), (on_host, info.host_memory_bytes, "the host's")];
    for (needed, available, space) in rooms {
        if let Some(available) = available.filter(|available| needed > *available) {
            return Err(ExecError::OutOfMemory {
                needed: Bytes(needed).to_string(),
                space,
                available: format!("{} are available", Bytes(available)),
                largest: schedule::largest(program, |_| true).1,
            });
        }
    }
    Ok(())
}
