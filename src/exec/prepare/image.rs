//! The image: a schedule as numbers for a backend, with launches, addresses and initial contents.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::base::{Around, DType, GroupId, Nanos, OpId, Space, SrcSpan, StreamId};
use crate::exec::ExecError;
use crate::model::{MemoryKind, OpKind};
use crate::ops::init::Init;
use crate::ops::{Category, Collective, Launch, Spec};
use crate::schedule::{Command, Lane, Predecessors};

use super::rank_schedule::RankSchedule;

/// The resources that a backend creates for one rank before a run.
#[derive(Debug, Default)]
pub struct Image {
    pub rank: u32,
    /// Communicators of the image's collectives, in the same order on all ranks.
    pub comms: Vec<Comm>,
    /// Number of copies between ranks; the same on all ranks.
    pub crossings: u32,
    pub lanes: Vec<Lane>,
    pub events: u32,
    /// Number of stamps, events with a timestamp.
    pub stamps: u32,
    pub gates: u32,
    /// Operations before which the data caches are flushed: the first of each iteration. Empty if the caches stay warm.
    pub cold: Vec<u32>,
    /// Bytes of each space.
    pub bytes: [u64; Space::COUNT],
    /// Initial contents of memory. Bytes that no fill covers are poisoned.
    pub fills: Vec<Fill>,
    /// Distinct specs with their launches.
    pub works: Vec<LoweredSpec>,
    /// Operations of all iterations of the period, by number.
    pub ops: Vec<ImageOp>,
    /// The operations that each operation of the period waits for. The operations of the period are the first of `ops`.
    pub predecessors: Predecessors,
    /// Addresses of the operands of all operations.
    pub addresses: Vec<Address>,
    /// Number of algorithms of the vendor's library that are timed for each matrix product.
    pub gemm_candidates: u32,
    /// True if chosen algorithms of matrix products are kept on disk.
    pub keep_algorithms: bool,
    /// Longest time that ranks may make no progress while they prepare.
    pub timeout: Nanos,
}

impl Image {
    /// Adds an internal operation's spec, which has no source location, and returns its number.
    pub(in crate::exec) fn add_work(&mut self, spec: Spec) -> u32 {
        let launches = spec.launch().into();
        self.works.push(LoweredSpec { spec: Arc::new(spec), launches, span: SrcSpan::default() });
        self.works.len() as u32 - 1
    }

    /// Adds an internal operation on a lane with these operands, and returns its number.
    pub(in crate::exec) fn add_op(&mut self, work: u32, lane: u32, operands: impl IntoIterator<Item = Address>) -> u32 {
        let first = self.addresses.len() as u32;
        self.addresses.extend(operands);
        let (comm, crossing, span) = (NO_COMM, NO_CROSSING, SrcSpan::default());
        self.ops.push(ImageOp { work, lane, comm, crossing, behind: None, operands: first, report: None, span });
        self.ops.len() as u32 - 1
    }
}

/// A communicator: a group of ranks, for one stream of the program. Equal values on several ranks denote the same
/// communicator.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Comm {
    /// Ranks of the group, in the group's order.
    pub ranks: Vec<u32>,
    pub stream: String,
}

/// Initial contents of a range of memory.
#[derive(Clone, Debug)]
pub struct Fill {
    pub space: Space,
    pub offset: u64,
    pub dtype: DType,
    pub elements: u64,
    pub init: Init,
}

/// A spec with its launches.
#[derive(Clone, Debug)]
pub struct LoweredSpec {
    pub spec: Arc<Spec>,
    pub launches: Arc<[Launch]>,
    /// Source location of one use of the spec, for messages.
    pub span: SrcSpan,
}

/// An operation in one iteration of the period.
#[derive(Clone, Copy, Debug)]
pub struct ImageOp {
    pub work: u32,
    pub lane: u32,
    /// Number of a collective's communicator; [`NO_COMM`] for other operations.
    pub comm: u32,
    /// Number of a copy between ranks, the same on all ranks that take part; [`NO_CROSSING`] for other operations.
    pub crossing: u32,
    /// The operation directly before this one on the same lane; `None` if a record or a wait lies in between.
    pub behind: Option<u32>,
    /// Index of the operation's first operand in `Image::addresses`: inputs, then outputs.
    pub operands: u32,
    /// Address of the counters by which its kernels report their compute units, the operand after the outputs; `None` if
    /// they report nothing.
    pub report: Option<Address>,
    /// Source location of the operation.
    pub span: SrcSpan,
}

/// Value of [`ImageOp::comm`] for operations without a communicator.
pub const NO_COMM: u32 = u32::MAX;

/// Value of [`ImageOp::crossing`] for operations that copy nothing between ranks.
pub const NO_CROSSING: u32 = u32::MAX;

/// Address in bytes within a memory space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    pub space: Space,
    pub offset: u64,
}

/// A command that a session issues, with the numbers of the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageCommand {
    Launch {
        op: u32,
        lane: u32,
    },
    Record {
        event: u32,
        lane: u32,
    },
    Wait {
        lane: u32,
        event: u32,
        /// True if the event was recorded in an earlier iteration.
        across: bool,
    },
    /// The host waits until everything that it has issued is complete.
    HostSync,
}

/// The commands of one iteration of the period.
#[derive(Debug)]
pub struct StepCommands {
    /// Slot of the iteration in the program's cycle.
    pub step: usize,
    pub commands: Vec<ImageCommand>,
    /// The operation of each launch, in the order of issue.
    pub ops: Vec<OpId>,
    /// Lanes with work in this iteration.
    pub used: Vec<u32>,
    /// Lanes whose last operation no other lane waits for. When all of them are done, so is the iteration.
    pub leaves: Vec<u32>,
}

/// A launch of an iteration: the index of its command, the operation of the image, and the lane.
#[derive(Clone, Copy, Debug)]
pub struct StepLaunch {
    pub command: usize,
    pub op: u32,
    pub lane: u32,
}

impl StepCommands {
    /// The launches among the commands of the iteration, in the order in which the host issues them.
    pub fn launches(&self) -> impl Iterator<Item = StepLaunch> {
        self.commands.iter().enumerate().filter_map(|(command, step)| match *step {
            ImageCommand::Launch { op, lane } => Some(StepLaunch { command, op, lane }),
            _ => None,
        })
    }
}

/// The commands of a rank: those of the period, and those around it.
#[derive(Debug)]
pub struct Commands {
    /// The iterations of the period.
    pub period: Vec<StepCommands>,
    /// The blocks around the iterations.
    pub around: Around<StepCommands>,
}

impl Commands {
    /// The iterations, then the blocks around them: the order of the image's operations.
    pub fn iter(&self) -> impl Iterator<Item = &StepCommands> {
        self.period.iter().chain(self.around.iter().map(|(_, block)| block))
    }
}

/// Lowers a rank's schedule to an image. Appends `extra_lanes` to its lanes and creates `stamps` stamps. Also returns
/// its commands.
pub fn lower(rank: &RankSchedule, extra_lanes: &[Lane], stamps: u32, gemm_candidates: u32) -> (Image, Commands) {
    let schedule = rank.schedule;
    let mut comms = Comms::of(rank);
    let mut image = Image {
        rank: rank.number,
        lanes: [schedule.lanes.as_slice(), extra_lanes].concat(),
        stamps,
        bytes: Space::ALL.map(|space| schedule.bytes(space)),
        fills: fills(rank),
        predecessors: Predecessors::of(schedule),
        gemm_candidates,
        timeout: Nanos(i64::MAX),
        ..Image::default()
    };
    let period = lower_period(rank, &mut image, &mut comms);
    let blocks = rank.program.around.as_ref().zip(schedule.around.as_ref());
    let around = blocks.map(|(program, schedule)| {
        let block = RankSchedule { program, schedule, ..*rank };
        lower_period(&block, &mut image, &mut comms).pop().expect("a block is a cycle of one slot")
    });
    image.comms = comms.list;
    (image, Commands { period, around })
}

/// Adds the operations of a schedule's period to an image, and returns its commands.
fn lower_period(rank: &RankSchedule, image: &mut Image, comms: &mut Comms) -> Vec<StepCommands> {
    let (program, schedule) = (rank.program, rank.schedule);
    let mut works: Vec<Option<u32>> = vec![None; program.specs.len()];
    let (events, crossings) = (image.events, image.crossings);
    image.events += schedule.events;
    image.crossings += program.crossings * schedule.period.len() as u32;
    let mut period = Vec::with_capacity(schedule.period.len());
    for (iteration, planned) in (0..).zip(&schedule.period) {
        let step = &program.cycle[planned.step];
        let mut commands = Vec::with_capacity(planned.commands.len());
        let mut ops = Vec::new();
        for command in &planned.commands {
            commands.push(match *command {
                Command::Record { event, lane } => ImageCommand::Record { event: events + event.0, lane: lane.0 },
                Command::Wait { event, lane, across } => {
                    ImageCommand::Wait { lane: lane.0, event: events + event.0, across }
                }
                Command::HostSync => ImageCommand::HostSync,
                Command::Launch { op, lane } => {
                    let OpKind::Run(spec_id) = step.op(op).kind else {
                        unreachable!("only what runs is launched");
                    };
                    let work = *works[spec_id.index()].get_or_insert_with(|| {
                        let spec = Arc::new(program.spec(spec_id).clone());
                        let launches = launches(&spec, rank);
                        image.works.push(LoweredSpec { spec, launches, span: step.op(op).span });
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
                        (Some(Launch::Peer(_)), Some(peer)) => {
                            crossings + iteration * program.crossings + peer.crossing
                        }
                        _ => NO_CROSSING,
                    };
                    let (lane, span) = (lane.0, step.op(op).span);
                    image.ops.push(ImageOp { work, lane, comm, crossing, behind: None, operands, report: None, span });
                    ImageCommand::Launch { op: image.ops.len() as u32 - 1, lane }
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
    period
}

/// Returns the launches of a spec for this rank. Ranks may share a program, so the rank enters a collective's launches
/// here.
fn launches(spec: &Spec, rank: &RankSchedule) -> Arc<[Launch]> {
    let of_rank = |launch: Launch| match launch {
        Launch::Collective(collectives) => {
            let of_rank = |mut one: Collective| {
                one.rank = rank.program.groups[one.group.index()].number_of(rank.number);
                one
            };
            Launch::Collective(collectives.iter().cloned().map(of_rank).collect())
        }
        other => other,
    };
    spec.launch().into_iter().map(of_rank).collect()
}

/// The communicators of a program, one for each list of ranks and stream that needs one. Groups with the same ranks, such
/// as the world and a mesh with one factor, share theirs.
struct Comms {
    list: Vec<Comm>,
    numbers: BTreeMap<(GroupId, StreamId), u32>,
}

impl Comms {
    /// Collects the communicators of all collectives, in an order that depends on groups and streams alone.
    fn of(rank: &RankSchedule) -> Self {
        let program = rank.program;
        let mut numbers = BTreeMap::new();
        let blocks = program.around.iter().flat_map(|(_, block)| block.cycle.iter().map(move |step| (&**block, step)));
        let steps = program.cycle.iter().map(|step| (program, step)).chain(blocks);
        for (program, op) in steps.flat_map(|(program, step)| step.ops.iter().map(move |op| (program, op))) {
            if let Some(spec) = program.op_spec(op)
                && spec.operation.category() == Category::Collective
            {
                numbers.insert((spec.team.group, op.stream), NO_COMM);
            }
        }
        let mut list: Vec<Comm> = Vec::new();
        for (&(group, stream), number) in &mut numbers {
            let comm = Comm {
                ranks: program.groups[group.index()].members_with(rank.number).collect(),
                stream: program.streams[stream.index()].name.clone(),
            };
            let known = list.iter().position(|other| *other == comm);
            *number = known.unwrap_or(list.len()) as u32;
            list.extend(known.is_none().then_some(comm));
        }
        Comms { list, numbers }
    }

    fn number(&mut self, stream: StreamId, launches: &[Launch]) -> u32 {
        let group = launches.iter().flat_map(Launch::collectives).next().map(|collective| collective.group);
        group.and_then(|group| self.numbers.get(&(group, stream)).copied()).unwrap_or(NO_COMM)
    }
}

/// Initial contents of the memory of a rank's program, by address.
fn fills(rank: &RankSchedule) -> Vec<Fill> {
    let (program, schedule) = (rank.program, rank.schedule);
    (0..program.memories.len())
        .map(crate::base::MemoryId::from)
        .filter_map(|id| {
            let (MemoryKind::Buffer(init) | MemoryKind::Bare(init)) = &program.memory(id).kind else { return None };
            let layout = program.layout(id);
            let (space, offset) = schedule.memory.offset(id, 0);
            let elements = layout.dims.iter().product();
            Some(Fill { space, offset, dtype: layout.dtype, elements, init: init.of_rank(rank.number) })
        })
        .collect()
}

impl Image {
    /// Replaces random initial contents of floats by `init`. Integers keep theirs, since they may be indices.
    pub fn replace_random(&mut self, init: &Init) {
        for fill in &mut self.fills {
            if fill.dtype.is_float() && matches!(fill.init, Init::Random { .. }) {
                fill.init = init.clone();
            }
        }
    }

    /// Sets [`ImageOp::behind`]. Called once all commands are final.
    pub fn find_predecessors(&mut self, commands: &Commands) {
        let mut last = vec![None; self.lanes.len()];
        for step in commands.iter() {
            last.fill(None);
            for command in &step.commands {
                match *command {
                    ImageCommand::Launch { op, lane } => self.ops[op as usize].behind = last[lane as usize].replace(op),
                    ImageCommand::Record { lane, .. } | ImageCommand::Wait { lane, .. } => last[lane as usize] = None,
                    ImageCommand::HostSync => last.fill(None),
                }
            }
        }
    }

    /// Addresses of an operation's operands, inputs first.
    pub fn operands(&self, op: &ImageOp) -> &[Address] {
        let spec = &self.works[op.work as usize].spec;
        &self.addresses[op.operands as usize..][..spec.inputs.len() + spec.outputs.len()]
    }
}

/// Fails if a rank copies to a rank of another process.
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

/// Returns the lane that records the stamps of overlapping iterations. It runs no operations.
pub fn clock_lane() -> Lane {
    Lane { name: "clock".to_owned(), ..Lane::default() }
}
