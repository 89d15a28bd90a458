//! A schedule as a backend sees it: plain numbers, places in memory, things to launch.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::base::{DType, GroupId, Nanos, OpId, Space, SrcSpan, StreamId};
use crate::model::{MemoryKind, OpKind, Priority, Units};
use crate::ops::init::Init;
use crate::ops::{Category, Collective, Launch, Spec};
use crate::schedule::Command;

use super::error::ExecError;
use super::ranks::Rank;

/// Everything that has to be made before a run.
#[derive(Debug)]
pub struct Image {
    pub rank: u32,
    /// What its collectives run over, in an order that is the same on all ranks.
    pub comms: Vec<Comm>,
    /// Places at which ranks copy to each other; the same on all ranks.
    pub crossings: u32,
    pub lanes: Vec<ImageLane>,
    pub events: u32,
    /// Events that can be timed.
    pub stamps: u32,
    /// Gates at which lanes can be held.
    pub gates: u32,
    /// The operations before which the caches of data are emptied: each iteration's first; none where they stay.
    pub cold: Vec<u32>,
    /// Bytes of `device`, `pinned` and `host` memory.
    pub bytes: [u64; 3],
    /// What memory holds at the beginning; everything else is poisoned.
    pub fills: Vec<Fill>,
    /// Distinct things to run.
    pub works: Vec<Work>,
    /// What is launched, by number.
    pub ops: Vec<ImageOp>,
    /// Where the operands of all operations lie.
    pub addresses: Vec<Address>,
    /// Algorithms of the vendor's library that are timed for each matrix product.
    pub gemm_candidates: u32,
    /// How long ranks that prepare themselves may be without any progress.
    pub timeout: Nanos,
}

/// A communicator: a group of ranks, for one of the program's streams. Equal ones on several ranks are one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Comm {
    /// In the order of the group's numbers.
    pub ranks: Vec<u32>,
    pub stream: String,
}

#[derive(Clone, Debug)]
pub struct ImageLane {
    pub name: String,
    pub priority: Priority,
    /// The part of the device that it keeps to.
    pub units: Option<Units>,
    pub queue: u32,
}

/// Contents of a stretch of memory.
#[derive(Clone, Copy, Debug)]
pub struct Fill {
    pub space: Space,
    pub offset: u64,
    pub dtype: DType,
    pub elements: u64,
    pub init: Init,
}

/// A spec with what is launched for it.
#[derive(Clone, Debug)]
pub struct Work {
    pub spec: Arc<Spec>,
    pub launches: Arc<[Launch]>,
    /// Where one of its uses stands, for messages.
    pub span: SrcSpan,
}

/// One operation of one iteration.
#[derive(Clone, Copy, Debug)]
pub struct ImageOp {
    pub work: u32,
    pub lane: u32,
    /// The communicator of a collective, by its number; [`NO_COMM`] for everything else.
    pub comm: u32,
    /// The place of a copy between ranks, the same number on all that come by it; [`NO_CROSSING`] for everything else.
    pub crossing: u32,
    /// The operation that is launched directly before it in its lane: nothing is recorded or awaited between them.
    pub behind: Option<u32>,
    /// The first of its operands in `Image::addresses`: inputs, then outputs.
    pub operands: u32,
    /// Where it stands in the text.
    pub span: SrcSpan,
}

/// What stands in place of a communicator's number where there is none.
pub const NO_COMM: u32 = u32::MAX;

/// What stands in place of a crossing's number where there is none.
pub const NO_CROSSING: u32 = u32::MAX;

/// A place in memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    pub space: Space,
    pub offset: u64,
}

/// What a session issues, resolved: the numbers are the image's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Launch { op: u32, lane: u32 },
    Record { event: u32, lane: u32 },
    Wait { lane: u32, event: u32, across: bool },
}

/// One iteration of the period.
#[derive(Debug)]
pub struct StepCommands {
    /// Which slot of the program's cycle it is.
    pub step: usize,
    pub commands: Vec<Step>,
    /// The operation of each launch, in their order.
    pub ops: Vec<OpId>,
    pub used: Vec<u32>,
    pub leaves: Vec<u32>,
}

/// Lowers a schedule. `extra_lanes` are added behind its own, `stamps` made beside its events.
pub fn lower(rank: &Rank, extra_lanes: &[ImageLane], stamps: u32, gemm_candidates: u32) -> (Image, Vec<StepCommands>) {
    let (program, schedule) = (rank.program, rank.schedule);
    let mut works: Vec<Option<u32>> = vec![None; program.specs.len()];
    let mut comms = Comms::of(rank);
    let mut image = Image {
        rank: rank.number,
        comms: Vec::new(),
        crossings: program.crossings * schedule.period.len() as u32,
        lanes: schedule
            .lanes
            .iter()
            .map(|lane| ImageLane {
                name: lane.name.clone(),
                priority: lane.priority,
                units: lane.units,
                queue: lane.queue,
            })
            .chain(extra_lanes.iter().cloned())
            .collect(),
        events: schedule.events,
        stamps,
        gates: 0,
        cold: Vec::new(),
        bytes: [Space::Device, Space::Pinned, Space::Host].map(|space| schedule.bytes(space)),
        fills: fills(rank),
        works: Vec::new(),
        ops: Vec::new(),
        addresses: Vec::new(),
        gemm_candidates,
        timeout: Nanos(i64::MAX),
    };
    let mut period = Vec::with_capacity(schedule.period.len());
    for (turn, planned) in (0..).zip(&schedule.period) {
        let step = &program.cycle[planned.step];
        let mut commands = Vec::with_capacity(planned.commands.len());
        let mut ops = Vec::new();
        for command in &planned.commands {
            commands.push(match *command {
                Command::Record { event, lane } => Step::Record { event: event.0, lane: lane.0 },
                Command::Wait { event, lane, across } => Step::Wait { lane: lane.0, event: event.0, across },
                Command::Launch { op, lane } => {
                    let OpKind::Run(spec_id) = step.op(op).kind else {
                        unreachable!("only what runs is launched");
                    };
                    let work = *works[spec_id.index()].get_or_insert_with(|| {
                        let spec = Arc::new(program.spec(spec_id).clone());
                        let launches = launches(&spec, rank);
                        image.works.push(Work { spec, launches, span: step.op(op).span });
                        image.works.len() as u32 - 1
                    });
                    let operands = image.addresses.len() as u32;
                    for &view in step.inputs(op).iter().chain(step.outputs(op)) {
                        let memory = program.views.memory(view);
                        let layout = program.layout(memory);
                        let (space, base) = schedule.memory.offset(memory, planned.copy);
                        let offset = base + program.views.offset(view, &layout.dims) * layout.dtype.size();
                        image.addresses.push(Address { space, offset });
                    }
                    ops.push(op);
                    let launches = &image.works[work as usize].launches;
                    let comm = comms.number(step.op(op).stream, launches);
                    let crossing = match (launches.first(), step.peer(op)) {
                        (Some(Launch::Peer(_)), Some(peer)) => turn * program.crossings + peer.crossing,
                        _ => NO_CROSSING,
                    };
                    let (lane, span) = (lane.0, step.op(op).span);
                    image.ops.push(ImageOp { work, lane, comm, crossing, behind: None, operands, span });
                    Step::Launch { op: image.ops.len() as u32 - 1, lane }
                }
            });
        }
        period.push(StepCommands {
            step: planned.step,
            commands,
            ops,
            used: planned.used.iter().map(|lane| lane.0).collect(),
            leaves: planned.leaves.iter().map(|lane| lane.0).collect(),
        });
    }
    image.comms = comms.into_list();
    (image, period)
}

/// What is launched for a spec. Ranks may share a program: a collective then says only here whose it is.
fn launches(spec: &Spec, rank: &Rank) -> Arc<[Launch]> {
    let own = |launch: Launch| match launch {
        Launch::Collective(collectives) => {
            let own = |mut one: Collective| {
                one.rank = rank.program.groups[one.group.index()].number_of(rank.number);
                one
            };
            Launch::Collective(collectives.iter().cloned().map(own).collect())
        }
        other => other,
    };
    spec.launch().into_iter().map(own).collect()
}

/// The communicators of a program: for each group and stream that needs one.
struct Comms<'a> {
    rank: &'a Rank<'a>,
    numbers: BTreeMap<(GroupId, StreamId), u32>,
}

impl<'a> Comms<'a> {
    /// All that the program's collectives ask for, so that their order depends on groups and streams alone.
    fn of(rank: &'a Rank<'a>) -> Self {
        let program = rank.program;
        let mut numbers = BTreeMap::new();
        for op in program.cycle.iter().flat_map(|step| &step.ops) {
            if let Some(spec) = program.op_spec(op)
                && spec.operation.category() == Category::Collective
            {
                numbers.insert((spec.team.group, op.stream), NO_COMM);
            }
        }
        for (index, number) in numbers.values_mut().enumerate() {
            *number = index as u32;
        }
        Comms { rank, numbers }
    }

    fn number(&mut self, stream: StreamId, launches: &[Launch]) -> u32 {
        let group = launches.iter().find_map(|launch| match launch {
            Launch::Collective(collectives) => collectives.first().map(|collective| collective.group),
            _ => None,
        });
        group.and_then(|group| self.numbers.get(&(group, stream)).copied()).unwrap_or(NO_COMM)
    }

    fn into_list(self) -> Vec<Comm> {
        let Comms { rank, numbers } = self;
        let comm = |&(group, stream): &(GroupId, StreamId)| Comm {
            ranks: rank.program.groups[group.index()].members_with(rank.number).collect(),
            stream: rank.program.streams[stream.index()].name.clone(),
        };
        numbers.keys().map(comm).collect()
    }
}

fn fills(rank: &Rank) -> Vec<Fill> {
    let (program, schedule) = (rank.program, rank.schedule);
    (0..program.memories.len())
        .map(crate::base::MemoryId::from)
        .filter_map(|id| {
            let (MemoryKind::Buffer(init) | MemoryKind::Bare(init)) = program.memory(id).kind else { return None };
            let layout = program.layout(id);
            let (space, offset) = schedule.memory.offset(id, 0);
            let elements = layout.dims.iter().product();
            Some(Fill { space, offset, dtype: layout.dtype, elements, init: init.of_rank(rank.number) })
        })
        .collect()
}

impl Image {
    /// Gives floats other contents where they begin with random ones. Integers may be indices, and keep theirs.
    pub fn replace_random(&mut self, init: Init) {
        for fill in &mut self.fills {
            if fill.dtype.is_float() && matches!(fill.init, Init::Random { .. }) {
                fill.init = init;
            }
        }
    }

    /// Finds the operations that stand directly behind others, once nothing is added to the period any more.
    pub fn find_rows(&mut self, period: &[StepCommands]) {
        let mut last = vec![None; self.lanes.len()];
        for step in period {
            last.fill(None);
            for command in &step.commands {
                match *command {
                    Step::Launch { op, lane } => self.ops[op as usize].behind = last[lane as usize].replace(op),
                    Step::Record { lane, .. } | Step::Wait { lane, .. } => last[lane as usize] = None,
                }
            }
        }
    }

    /// Where an operation's operands lie, inputs first.
    pub fn operands(&self, op: &ImageOp) -> &[Address] {
        let spec = &self.works[op.work as usize].spec;
        &self.addresses[op.operands as usize..][..spec.inputs.len() + spec.outputs.len()]
    }
}

/// Copies between ranks reach those of this process only: an error where an image has others.
pub fn check_peers(images: &[Image]) -> Result<(), ExecError> {
    let works = images.iter().flat_map(|image| image.ops.iter().map(|op| &image.works[op.work as usize]));
    let others = works.filter_map(|work| match work.launches.first()? {
        Launch::Peer(peer) => Some(peer.sends.iter().map(|sent| sent.to).chain(peer.from.iter().copied())),
        _ => None,
    });
    match others.flatten().find(|rank| images.iter().all(|image| image.rank != *rank)) {
        None => Ok(()),
        Some(rank) => Err(ExecError::Device {
            fault: format!("a copy goes to or from rank {rank}, which runs in another process"),
            help: Some("run all ranks in one process, by `--ranks N`; only GPUs copy between processes".to_owned()),
        }),
    }
}

/// The clock lane's share in an image: it has no work, and is asked for the time.
pub fn clock_lane() -> ImageLane {
    ImageLane { name: "clock".to_owned(), priority: Priority::Normal, units: None, queue: 0 }
}
