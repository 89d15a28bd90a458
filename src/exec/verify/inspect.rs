//! A session for verification, from which the result of every operation can be read after an iteration.
//!
//! Results that the iteration overwrites are copied aside by extra launches on the operations' own lanes. Most results
//! need no copy, since they are still in place at the end. Results that are overwritten unread are copied only while
//! they are small.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::base::{Around, MemoryId, OpId, Space};
use crate::exec::prepare::image::{ImageCommand, StepCommands};
use crate::exec::ranks::prepare_with;
use crate::exec::{
    Address, Backend, Comm, ExecError, Fill, Image, LoweredSpec, NO_CROSSING, RankSchedule, Ranks, SessionOptions,
};
use crate::ops::{self, Tensor};

/// Alignment of copies in bytes.
const ALIGN: u64 = 256;

/// Maximum bytes of unread results that are copied in an iteration.
const MAX_UNREAD_BYTES: u64 = 64 << 20;

/// Sessions whose results can be read.
pub struct Inspection {
    pub ranks: Ranks,
    /// The ranks of this process, in their order.
    pub inspected: Vec<ReferenceProgram>,
}

/// The program of one rank as needed to compute reference results.
#[derive(Debug)]
pub struct ReferenceProgram {
    /// Bytes of each space.
    pub bytes: [u64; Space::COUNT],
    /// Initial contents of memory. Bytes that no fill covers are poisoned.
    pub fills: Vec<Fill>,
    /// Address and size in bytes of each memory, by its number in the program. For scratch memory with several copies,
    /// those of the first.
    pub places: Vec<(Address, u64)>,
    /// Communicators, by the number in [`MatchBy::Comm`].
    pub comms: Vec<Comm>,
    /// The launches of each iteration of the period, then of each block around the iterations, in the order of issue.
    pub steps: Vec<Vec<LaunchedOperation>>,
    /// Number of iterations of the period.
    pub period: usize,
    /// Indices of the blocks in `steps`.
    pub around: Around<usize>,
}

/// A launched operation of an iteration.
#[derive(Debug)]
pub struct LaunchedOperation {
    /// Slot of the cycle, and operation.
    pub op: (usize, OpId),
    pub work: LoweredSpec,
    pub inputs: Vec<Address>,
    pub outputs: Vec<Address>,
    /// Addresses of the operation's outputs at the end of the iteration; `None` if no operation reads them and no copy was made.
    pub found: Option<Vec<Address>>,
    pub match_by: MatchBy,
}

/// The criterion by which an operation is matched with operations of other ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchBy {
    /// The operation involves no other rank.
    None,
    /// The communicator, by its number on this rank.
    Comm(u32),
    /// A copy between ranks, by its number, which is the same on all ranks.
    Crossing(u32),
}

/// Opens a backend for verification, with copies of results that iterations overwrite.
pub fn inspect(
    ranks: &[RankSchedule],
    backend: &dyn Backend,
    options: &SessionOptions,
) -> Result<Inspection, ExecError> {
    let mut inspected = Vec::new();
    let all = ranks;
    let ranks = prepare_with(ranks, backend, options, |index, image, commands| {
        let RankSchedule { program, schedule, .. } = all[index];
        let address_of = |memory| {
            let (space, offset) = schedule.memory.offset(memory, 0);
            (Address { space, offset }, schedule.memory.placement(memory).bytes)
        };
        let places = (0..program.memories.len()).map(MemoryId::from).map(address_of).collect();
        let (bytes, fills) = (image.bytes, image.fills.clone());
        let mut keeper = CopyInserter { image, end: bytes[0].next_multiple_of(ALIGN), unread: 0 };
        let mut steps: Vec<Vec<LaunchedOperation>> = commands.period.iter_mut().map(|step| keeper.step(step)).collect();
        let period = steps.len();
        let around = commands.around.as_mut().map(|block| {
            steps.push(keeper.step(block));
            steps.len() - 1
        });
        let comms = image.comms.clone();
        inspected.push(ReferenceProgram { bytes, fills, places, comms, steps, period, around });
    })?;
    Ok(Inspection { ranks, inspected })
}

/// Inserts copies into an image.
struct CopyInserter<'a> {
    image: &'a mut Image,
    /// Bytes of device memory, including copies.
    end: u64,
    /// Bytes of copied results in this iteration that only the host reads.
    unread: u64,
}

/// Use of an operation's result later in its iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ResultUse {
    /// True if another operation reads the output, or the output is still in memory at the end.
    live: bool,
    /// True if at least a part of the output is overwritten at the end.
    overwritten: bool,
}

impl CopyInserter<'_> {
    /// Returns the launches of an iteration, after it has inserted the copies that they need.
    fn step(&mut self, step: &mut StepCommands) -> Vec<LaunchedOperation> {
        self.unread = 0;
        let launches: Vec<u32> = step.launches().map(|launch| launch.op).collect();
        let result_uses = result_uses(self.image, &launches);
        let mut launched = Vec::with_capacity(launches.len());
        let mut commands = Vec::with_capacity(step.commands.len());
        for command in std::mem::take(&mut step.commands) {
            commands.push(command);
            let ImageCommand::Launch { op, lane } = command else { continue };
            let index = launched.len();
            let copies = self.launched((step.step, step.ops[index]), op, result_uses[index], &mut launched);
            commands.extend(copies.into_iter().map(|op| ImageCommand::Launch { op, lane }));
        }
        step.commands = commands;
        launched
    }

    /// Adds a launch to `all`; returns the copies that must follow it.
    fn launched(
        &mut self,
        id: (usize, OpId),
        op: u32,
        result_use: ResultUse,
        all: &mut Vec<LaunchedOperation>,
    ) -> Vec<u32> {
        let op = self.image.ops[op as usize];
        let work = self.image.works[op.work as usize].clone();
        let (inputs, outputs) = self.image.operands(&op).split_at(work.spec.inputs.len());
        let (inputs, outputs) = (inputs.to_vec(), outputs.to_vec());
        let mut copies = Vec::new();
        let reach: u64 = work.spec.outputs.iter().map(Tensor::reach).sum();
        if !result_use.live {
            self.unread += reach;
        }
        let found = match result_use {
            ResultUse { overwritten: false, .. } => Some(outputs.clone()),
            ResultUse { live: false, .. } if self.unread > MAX_UNREAD_BYTES => None,
            ResultUse { .. } => {
                let pairs = work.spec.outputs.iter().zip(&outputs);
                Some(pairs.map(|(tensor, &from)| self.keep(tensor, from, op.lane, &mut copies)).collect())
            }
        };
        let match_by = match self.image.comms.get(op.comm as usize) {
            Some(comm) if comm.ranks.len() > 1 => MatchBy::Comm(op.comm),
            _ if op.crossing != NO_CROSSING => MatchBy::Crossing(op.crossing),
            _ => MatchBy::None,
        };
        all.push(LaunchedOperation { op: id, work, inputs, outputs, found, match_by });
        copies
    }

    /// Adds a copy of a tensor's whole range, including gaps between rows; returns its address.
    fn keep(&mut self, tensor: &Tensor, from: Address, lane: u32, copies: &mut Vec<u32>) -> Address {
        let to = Address { space: Space::Device, offset: self.end };
        self.end = (self.end + tensor.reach()).next_multiple_of(ALIGN);
        self.image.bytes[0] = self.end;
        let work = self.image.add_work(ops::copied(tensor.reach(), from.space));
        copies.push(self.image.add_op(work, lane, [from, to]));
        to
    }
}

/// Computes for each launch of an iteration whether its result is read and overwritten later.
fn result_uses(image: &Image, launches: &[u32]) -> Vec<ResultUse> {
    let mut later = NextUses::default();
    let mut result_uses = vec![ResultUse { live: true, overwritten: false }; launches.len()];
    for (result_use, &op) in result_uses.iter_mut().zip(launches).rev() {
        let op = &image.ops[op as usize];
        let spec = &image.works[op.work as usize].spec;
        let (inputs, outputs) = image.operands(op).split_at(spec.inputs.len());
        let reach = |tensor: &Tensor, at: &Address| at.offset..at.offset + tensor.reach();
        let found =
            spec.outputs.iter().zip(outputs).map(|(tensor, at)| later.use_of_result(at.space, reach(tensor, at)));
        let found: Vec<ResultUse> = found.collect();
        *result_use = ResultUse {
            live: found.iter().any(|found| found.live),
            overwritten: found.iter().any(|found| found.overwritten),
        };
        for (tensor, at) in spec.outputs.iter().zip(outputs) {
            // A write with gaps leaves some of the old contents.
            let unread = tensor.contiguous();
            later.note(at.space, reach(tensor, at), |next| Next { unread: unread || next.unread, written: true });
        }
        for (tensor, at) in spec.inputs.iter().zip(inputs) {
            later.note(at.space, reach(tensor, at), |next| Next { unread: false, ..next });
        }
    }
    result_uses
}

/// The next use of a range of memory in the rest of an iteration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Next {
    /// True if the range is overwritten before anything reads it.
    unread: bool,
    /// True if the rest of the iteration overwrites the range at all.
    written: bool,
}

/// The next use of all memory, by space and byte. Ranges that no operation accesses are absent.
#[derive(Debug, Default)]
struct NextUses {
    /// Maps the start of each range to its end and use.
    ranges: BTreeMap<(Space, u64), (u64, Next)>,
}

impl NextUses {
    /// Summarizes the use of a range that an operation writes.
    fn use_of_result(&mut self, space: Space, range: Range<u64>) -> ResultUse {
        self.cut(space, range.start);
        self.cut(space, range.end);
        let (mut covered, mut unread, mut overwritten) = (0, true, false);
        for ((_, start), (end, next)) in self.ranges.range((space, range.start)..(space, range.end)) {
            covered += end - start;
            unread &= next.unread;
            overwritten |= next.written;
        }
        ResultUse { live: !unread || covered < range.end - range.start, overwritten }
    }

    /// Changes the use of a range.
    fn note(&mut self, space: Space, range: Range<u64>, change: impl Fn(Next) -> Next) {
        self.cut(space, range.start);
        self.cut(space, range.end);
        let mut gaps = Vec::new();
        let mut at = range.start;
        for ((_, start), (end, next)) in self.ranges.range_mut((space, range.start)..(space, range.end)) {
            gaps.push(at..*start);
            at = *end;
            *next = change(*next);
        }
        gaps.push(at..range.end);
        for gap in gaps.into_iter().filter(|gap| !gap.is_empty()) {
            self.ranges.insert((space, gap.start), (gap.end, change(Next::default())));
        }
    }

    /// Splits the range that contains byte `at`, so that one begins there.
    fn cut(&mut self, space: Space, at: u64) {
        let before = self.ranges.range_mut((space, 0)..(space, at)).next_back();
        if let Some((_, (end, next))) = before
            && *end > at
        {
            let rest = (std::mem::replace(end, at), *next);
            self.ranges.insert((space, at), rest);
        }
    }
}
