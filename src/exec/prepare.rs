//! From a schedule to what a session needs: the image for a backend, and what is kept beside it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::base::{Bytes, MemoryId, Nanos, Space, SrcSpan};
use crate::config::{CacheSetting, DataSetting, Effort, GateSetting, Settings};
use crate::model::{MemoryKind, Program, Sync};
use crate::ops::init::Init;
use crate::ops::{Collective, CollectiveKind, Launch};
use crate::schedule::{Placement, Schedule};

use super::clock;
use super::driver::Backend;
use super::error::ExecError;
use super::gate::Gate;
use super::image::{self, Comm, Image, ImageOp, StepCommands};
use super::session::{RING, Session};

/// What the caller decides about a session.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Iterations that the host may be ahead of the device, where they do not overlap.
    pub in_flight: u32,
    pub timeout: Nanos,
    pub gemm_candidates: u32,
    /// Operations of an iteration up to which they can be observed.
    pub observed_operations: usize,
    /// Commands that a hardware queue is sure to take: an iteration that fits is held until all of it is issued. 0 for
    /// no gate.
    pub gate_depth: u32,
    /// Empty the caches of data before each iteration.
    pub cold: bool,
    /// What floats hold at the beginning in place of random values; `None` to keep those.
    pub contents: Option<Init>,
}

impl Options {
    /// What the settings say of a session.
    pub fn of(settings: &Settings) -> Options {
        Options {
            in_flight: settings.in_flight,
            timeout: settings.timeout,
            // What is no measurement need not choose the fastest.
            gemm_candidates: if settings.effort == Effort::Sanity { 1 } else { settings.gemm_candidates },
            observed_operations: settings.observed_operations,
            gate_depth: if settings.gate == GateSetting::Auto { settings.gate_depth } else { 0 },
            cold: settings.cache == CacheSetting::Cold,
            contents: match settings.data {
                DataSetting::Normal => None,
                DataSetting::Zeros => Some(Init::Zeros),
                DataSetting::Ones => Some(Init::Ones),
                DataSetting::Iota => Some(Init::Iota),
            },
        }
    }
}

/// For a launch, by its number: whether it sends, and the other rank.
pub(super) type Transfers = BTreeMap<u32, Vec<(bool, u32)>>;

/// What a session issues, and how long it may take. Who watches it has a copy, which costs little.
#[derive(Clone)]
pub(super) struct Outline {
    pub period: Arc<[StepCommands]>,
    /// What each launch is, for messages: its name and place.
    pub launches: Arc<[(&'static str, SrcSpan)]>,
    pub lanes: Arc<[String]>,
    pub comms: Arc<[Comm]>,
    /// The communicator of each launch, by its number; [`image::NO_COMM`] for what is no collective.
    pub comm_of: Arc<[u32]>,
    /// What each launch that goes from rank to rank alone sends and receives.
    pub transfers: Arc<Transfers>,
    /// How long an iteration may take.
    pub timeout: Nanos,
}

/// What a session keeps of a lowered schedule.
pub(super) struct Lowered {
    pub outline: Outline,
    pub placements: Vec<(Placement, u64)>,
    pub sync: Sync,
    /// Iterations that may be issued beyond the last that is complete.
    pub ahead: u64,
    /// The first of the events that join lanes.
    pub joins: u32,
    /// The lane that tells the time where iterations overlap.
    pub clock: u32,
    /// The first of the stamps around operations; nothing when there are too many to observe.
    pub observed: Option<u32>,
    /// The first of the stamps that find the host's time; nothing where no other rank is to be compared with.
    pub clock_stamps: Option<u32>,
    pub gate: Gate,
    /// The caches of data are emptied before each iteration.
    pub cold: bool,
    /// The ranks that this one exchanges data with, maybe with itself among them.
    pub partners: Vec<u32>,
}

/// Opens a backend for a program that runs alone, and makes everything that the schedule needs.
pub fn prepare(
    program: &Program,
    schedule: &Schedule,
    backend: &dyn Backend,
    options: &Options,
) -> Result<Session, ExecError> {
    let ranks =
        super::ranks::prepare_ranks(&[super::Rank { number: program.rank, program, schedule }], backend, options)?;
    Ok(ranks.into_only().expect("a backend gives a driver for each image"))
}

/// An image for a backend, and what the session keeps. `alter` does something to it before; launches that it adds come
/// behind all others.
pub(super) fn lower(
    rank: &super::Rank,
    options: &Options,
    alter: impl FnOnce(&mut Image, &mut [StepCommands]),
) -> (Image, Lowered) {
    let (program, schedule) = (rank.program, rank.schedule);
    let lanes = schedule.lanes.len() as u32;
    let most = schedule.period.iter().map(|step| step.commands.len()).max().unwrap_or(0);
    let observed = (most <= options.observed_operations).then_some(2 * RING as u32);
    let mut stamps = 2 * RING as u32 + observed.map_or(0, |_| 2 * most as u32);
    let clock_stamps = observed.filter(|_| program.world > 1).map(|_| stamps);
    stamps += clock_stamps.map_or(0, |_| clock::STAMPS);
    let overlapping = schedule.sync == Sync::End;
    let extra: Vec<_> = overlapping.then(image::clock_lane).into_iter().collect();
    let (mut image, mut period) = image::lower(rank, &extra, stamps, options.gemm_candidates);
    if let Some(init) = options.contents {
        image.replace_random(init);
    }
    alter(&mut image, &mut period);
    image.find_rows(&period);
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
    let launches = spans_of(program, &period, launches);
    // Only an iteration that others do not overlap can be held, and only where somebody wants it.
    let depth = if overlapping { 0 } else { options.gate_depth };
    let gate = Gate::new(&image, &period, depth, RING);
    image.gates = if gate.on { RING as u32 } else { 0 };
    if options.cold && !overlapping {
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
    let outline = Outline {
        period: period.into(),
        launches: launches.into(),
        lanes: image.lanes.iter().map(|lane| lane.name.clone()).collect(),
        comms: image.comms.as_slice().into(),
        comm_of: image.ops.iter().map(|op| op.comm).collect(),
        transfers: Arc::new(transfers),
        timeout: options.timeout,
    };
    let lowered = Lowered {
        outline,
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

/// The launches that only send and receive.
fn transfers(image: &Image) -> Transfers {
    let between_two = |one: &Collective| matches!(one.kind, CollectiveKind::Send | CollectiveKind::Recv);
    let of = |op: &ImageOp| {
        let comm = image.comms.get(op.comm as usize)?;
        let work = &image.works[op.work as usize];
        let calls = work.launches.iter().find_map(|launch| match launch {
            Launch::Collective(calls) if calls.iter().all(between_two) => Some(calls),
            _ => None,
        })?;
        let side = |one: &Collective| Some((one.kind == CollectiveKind::Send, *comm.ranks.get(one.peer as usize)?));
        Some(calls.iter().filter_map(side).collect())
    };
    (0..).zip(&image.ops).filter_map(|(number, op)| Some((number, of(op)?))).collect()
}

/// The ranks with which some operation exchanges data.
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

/// Each launch with the place of its own operation, not that of the first with the same spec.
fn spans_of(
    program: &Program,
    period: &[StepCommands],
    mut launches: Vec<(&'static str, SrcSpan)>,
) -> Vec<(&'static str, SrcSpan)> {
    let mut index = 0;
    for step in period {
        for &op in &step.ops {
            launches[index].1 = program.cycle[step.step].op(op).span;
            index += 1;
        }
    }
    launches
}

/// Fails when the device or the host says that it has less memory than the image needs.
pub(super) fn check_room(program: &Program, image: &Image, backend: &dyn Backend) -> Result<(), ExecError> {
    let info = backend.device();
    let [device, pinned, host] = image.bytes;
    let shared = if info.memory_bytes.is_none() { device } else { 0 };
    let rooms = [
        (device, info.memory_bytes, Space::Device.name()),
        (shared.saturating_add(pinned).saturating_add(host), info.host_memory_bytes, "the host's"),
    ];
    for (needed, available, space) in rooms {
        if let Some(available) = available.filter(|available| needed > *available) {
            return Err(ExecError::OutOfMemory {
                needed: Bytes(needed).to_string(),
                space,
                available: format!("{} are there", Bytes(available)),
                largest: largest(program),
            });
        }
    }
    Ok(())
}

/// The largest memories of a program, for messages.
pub fn largest(program: &Program) -> String {
    let mut sizes: Vec<(u64, MemoryId)> =
        (0..program.memories.len()).map(MemoryId::from).map(|id| (program.memory_bytes(id), id)).collect();
    sizes.sort_by_key(|&(bytes, id)| (std::cmp::Reverse(bytes), id));
    let text = |(bytes, id): &(u64, MemoryId)| {
        let memory = program.memory(*id);
        let kind = match memory.kind {
            MemoryKind::Buffer(_) => "",
            MemoryKind::Bare(_) => "input of ",
            MemoryKind::Scratch => "output of ",
        };
        format!("{kind}{} {}", program.names.name(memory.name), Bytes(*bytes))
    };
    sizes.iter().take(3).map(text).collect::<Vec<_>>().join(", ")
}
