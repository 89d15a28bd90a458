//! A run of which every operation can be looked at: what an iteration computes and then overwrites is copied aside first.
//!
//! The copies are launches like others, on the operations' own lanes. Most operations need none: what they leave is still
//! there when the iteration is over. What is overwritten before anything has read it is copied only where it is small.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crate::base::{MemoryId, OpId, Space};
use crate::ops::{self, Tensor};

use super::driver::Backend;
use super::error::ExecError;
use super::image::{Address, Comm, Fill, Image, ImageOp, NO_COMM, NO_CROSSING, Step, StepCommands, Work};
use super::prepare::Options;
use super::ranks::{Rank, Ranks, prepare_with};

/// Copies begin at multiples of this many bytes.
const ALIGN: u64 = 256;

/// Bytes of results that nothing reads which are copied in an iteration, at most.
const UNREAD: u64 = 64 << 20;

/// Sessions whose operations can be looked at.
pub struct Inspection {
    pub ranks: Ranks,
    /// Of the ranks that run in this process, in their order.
    pub inspected: Vec<Inspected>,
}

/// What a rank runs, with everything that is needed to compute the same.
#[derive(Debug)]
pub struct Inspected {
    /// Bytes of `device`, `pinned` and `host` memory.
    pub bytes: [u64; 3],
    /// What memory holds at the beginning; everything else is poisoned.
    pub fills: Vec<Fill>,
    /// Where each memory lies, by its number in the program, and how many bytes it has; of scratch, the first copy.
    pub places: Vec<(Address, u64)>,
    /// What collectives run over, by the numbers in [`Meeting::Comm`].
    pub comms: Vec<Comm>,
    /// The launches of each iteration of the period, in the order of issue.
    pub steps: Vec<Vec<Launched>>,
}

/// An operation of an iteration.
#[derive(Debug)]
pub struct Launched {
    /// The slot of the cycle, and the operation.
    pub op: (usize, OpId),
    pub work: Work,
    pub inputs: Vec<Address>,
    pub outputs: Vec<Address>,
    /// Where each output can be read when the iteration is over; `None` where nobody reads them and no copy was made.
    pub found: Option<Vec<Address>>,
    pub meeting: Meeting,
}

/// What an operation meets those of other ranks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meeting {
    /// Nothing: it runs by itself.
    None,
    /// A communicator, by its number among those of its rank.
    Comm(u32),
    /// A place at which ranks copy to each other; the number is the same on all of them.
    Crossing(u32),
}

/// Opens a backend with the ranks' operations, and copies of what iterations overwrite.
pub fn inspect(ranks: &[Rank], backend: &dyn Backend, options: &Options) -> Result<Inspection, ExecError> {
    let mut inspected = Vec::new();
    let all = ranks;
    let ranks = prepare_with(ranks, backend, options, |index, image, period| {
        let Rank { program, schedule, .. } = all[index];
        let place = |memory| {
            let (space, offset) = schedule.memory.offset(memory, 0);
            (Address { space, offset }, schedule.memory.placement(memory).bytes)
        };
        let places = (0..program.memories.len()).map(MemoryId::from).map(place).collect();
        let (bytes, fills) = (image.bytes, image.fills.clone());
        let mut keeper = Keeper { image, end: bytes[0].next_multiple_of(ALIGN), unread: 0 };
        let steps = period.iter_mut().map(|step| keeper.step(step)).collect();
        let comms = image.comms.clone();
        inspected.push(Inspected { bytes, fills, places, comms, steps });
    })?;
    Ok(Inspection { ranks, inspected })
}

/// Adds copies to an image.
struct Keeper<'a> {
    image: &'a mut Image,
    /// Bytes of the device's memory.
    end: u64,
    /// Bytes of copies that nobody but the host reads, in this iteration.
    unread: u64,
}

/// Whether what an operation leaves is looked at later in the iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fate {
    /// Something reads it, or it is there at the end.
    live: bool,
    /// It is not all there at the end.
    overwritten: bool,
}

impl Keeper<'_> {
    /// The launches of an iteration; adds copies of what has to be kept.
    fn step(&mut self, step: &mut StepCommands) -> Vec<Launched> {
        self.unread = 0;
        let launches: Vec<u32> = step.commands.iter().filter_map(launch).map(|(op, _)| op).collect();
        let fates = fates(self.image, &launches);
        let mut launched = Vec::with_capacity(launches.len());
        let mut commands = Vec::with_capacity(step.commands.len());
        for command in std::mem::take(&mut step.commands) {
            commands.push(command);
            let Some((op, lane)) = launch(&command) else { continue };
            let turn = launched.len();
            let copies = self.launched((step.step, step.ops[turn]), op, fates[turn], &mut launched);
            commands.extend(copies.into_iter().map(|op| Step::Launch { op, lane }));
        }
        step.commands = commands;
        launched
    }

    /// Notes a launch; returns the copies that follow it.
    fn launched(&mut self, id: (usize, OpId), op: u32, fate: Fate, all: &mut Vec<Launched>) -> Vec<u32> {
        let op = self.image.ops[op as usize];
        let work = self.image.works[op.work as usize].clone();
        let (inputs, outputs) = self.image.operands(&op).split_at(work.spec.inputs.len());
        let (inputs, outputs) = (inputs.to_vec(), outputs.to_vec());
        let mut copies = Vec::new();
        let reach: u64 = work.spec.outputs.iter().map(Tensor::reach).sum();
        if !fate.live {
            self.unread += reach;
        }
        let found = match fate {
            Fate { overwritten: false, .. } => Some(outputs.clone()),
            Fate { live: false, .. } if self.unread > UNREAD => None,
            Fate { .. } => {
                let pairs = work.spec.outputs.iter().zip(&outputs);
                Some(pairs.map(|(tensor, &from)| self.keep(tensor, from, op.lane, &mut copies)).collect())
            }
        };
        let meeting = match self.image.comms.get(op.comm as usize) {
            Some(comm) if comm.ranks.len() > 1 => Meeting::Comm(op.comm),
            _ if op.crossing != NO_CROSSING => Meeting::Crossing(op.crossing),
            _ => Meeting::None,
        };
        all.push(Launched { op: id, work, inputs, outputs, found, meeting });
        copies
    }

    /// Adds a copy of a tensor, with what lies between its rows; returns where it will be.
    fn keep(&mut self, tensor: &Tensor, from: Address, lane: u32, copies: &mut Vec<u32>) -> Address {
        let to = Address { space: Space::Device, offset: self.end };
        self.end = (self.end + tensor.reach()).next_multiple_of(ALIGN);
        self.image.bytes[0] = self.end;
        let spec = ops::copied(tensor.reach(), from.space);
        let work = Work { launches: spec.launch().into(), spec: Arc::new(spec), span: Default::default() };
        self.image.works.push(work);
        let operands = self.image.addresses.len() as u32;
        self.image.addresses.extend([from, to]);
        let work = self.image.works.len() as u32 - 1;
        let (comm, crossing, span) = (NO_COMM, NO_CROSSING, Default::default());
        copies.push(self.image.ops.len() as u32);
        self.image.ops.push(ImageOp { work, lane, comm, crossing, behind: None, operands, span });
        to
    }
}

fn launch(command: &Step) -> Option<(u32, u32)> {
    match *command {
        Step::Launch { op, lane } => Some((op, lane)),
        _ => None,
    }
}

/// What becomes of what each launch of an iteration leaves.
fn fates(image: &Image, launches: &[u32]) -> Vec<Fate> {
    let mut later = Later::default();
    let mut fates = vec![Fate { live: true, overwritten: false }; launches.len()];
    for (fate, &op) in fates.iter_mut().zip(launches).rev() {
        let op = &image.ops[op as usize];
        let spec = &image.works[op.work as usize].spec;
        let (inputs, outputs) = image.operands(op).split_at(spec.inputs.len());
        let reach = |tensor: &Tensor, at: &Address| at.offset..at.offset + tensor.reach();
        let found = spec.outputs.iter().zip(outputs).map(|(tensor, at)| later.fate(at.space, reach(tensor, at)));
        let found: Vec<Fate> = found.collect();
        *fate =
            Fate { live: found.iter().any(|fate| fate.live), overwritten: found.iter().any(|fate| fate.overwritten) };
        for (tensor, at) in spec.outputs.iter().zip(outputs) {
            // What has gaps leaves something of what was there.
            let unread = tensor.contiguous();
            later.note(at.space, reach(tensor, at), |next| Next { unread: unread || next.unread, written: true });
        }
        for (tensor, at) in spec.inputs.iter().zip(inputs) {
            later.note(at.space, reach(tensor, at), |next| Next { unread: false, ..next });
        }
    }
    fates
}

/// What becomes of memory from a place in an iteration on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Next {
    /// It is overwritten before anything reads it.
    unread: bool,
    /// It is overwritten, sooner or later.
    written: bool,
}

/// The same for all memory, by space and byte; stretches that nothing touches are left out.
#[derive(Debug, Default)]
struct Later {
    /// For each beginning the end.
    stretches: BTreeMap<(Space, u64), (u64, Next)>,
}

impl Later {
    /// What becomes of what is written there.
    fn fate(&mut self, space: Space, range: Range<u64>) -> Fate {
        self.cut(space, range.start);
        self.cut(space, range.end);
        let (mut covered, mut unread, mut overwritten) = (0, true, false);
        for ((_, start), (end, next)) in self.stretches.range((space, range.start)..(space, range.end)) {
            covered += end - start;
            unread &= next.unread;
            overwritten |= next.written;
        }
        Fate { live: !unread || covered < range.end - range.start, overwritten }
    }

    /// Changes what is known of a stretch.
    fn note(&mut self, space: Space, range: Range<u64>, change: impl Fn(Next) -> Next) {
        self.cut(space, range.start);
        self.cut(space, range.end);
        let mut gaps = Vec::new();
        let mut at = range.start;
        for ((_, start), (end, next)) in self.stretches.range_mut((space, range.start)..(space, range.end)) {
            gaps.push(at..*start);
            at = *end;
            *next = change(*next);
        }
        gaps.push(at..range.end);
        for gap in gaps.into_iter().filter(|gap| !gap.is_empty()) {
            self.stretches.insert((space, gap.start), (gap.end, change(Next::default())));
        }
    }

    /// Makes a stretch begin there, if one goes across.
    fn cut(&mut self, space: Space, at: u64) {
        let before = self.stretches.range_mut((space, 0)..(space, at)).next_back();
        if let Some((_, (end, next))) = before
            && *end > at
        {
            let rest = (std::mem::replace(end, at), *next);
            self.stretches.insert((space, at), rest);
        }
    }
}
