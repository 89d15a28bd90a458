//! Copies to other ranks: `copy(x -> y at r)`.
//!
//! Every rank executes the statement, and receives the data that other ranks send, at this point of its own program
//! order. A rank's own program determines only where it sends. [`link`] adds the data that other ranks write to its
//! memory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::base::{MemoryId, OnceBlock, OpId, Space, SpecId, SrcSpan, ViewId, lcm};
use crate::ops::{self, OpError, Operation, PeerCopy, Tensor};
use crate::syntax::ast::{AtClause, Call};

use crate::model::analyzer::Analyzer;
use crate::model::calls::call::Inputs;
use crate::model::error::{ModelError, PeerError};
use crate::model::limits::CYCLE;
use crate::model::program::{Memory, MemoryKind, OpKind, Program};

/// Maximum number of errors reported for all ranks.
const MAX_ERRORS: usize = 20;

impl Analyzer<'_> {
    /// The receiver of a call: `None` for a local operation, `Some(None)` if this rank sends nothing. Fails if the rank
    /// does not exist.
    pub(in crate::model) fn peer(
        &mut self,
        operation: &'static dyn Operation,
        call: &Call,
    ) -> Result<Option<Option<u32>>, ()> {
        let Some(AtClause { rank, when }) = call.outputs.first().and_then(|output| output.at.as_ref()) else {
            return Ok(None);
        };
        // The copy differs between ranks.
        self.program.by_rank = true;
        if let Some(when) = when
            && !self.eval_bool(when).ok_or(())?
        {
            return Ok(Some(None));
        }
        let (world, own) = (self.options.world, self.options.rank);
        let number = self.eval_whole(rank).ok_or(())?;
        match u32::try_from(number).ok().filter(|number| *number < world) {
            Some(number) if world == 1 && number == own => Ok(None),
            Some(number) => Ok(Some(Some(number))),
            None => {
                let (why, help) = match world {
                    1 => ("there is one rank, 0".to_owned(), ops::more_ranks(number)),
                    _ => (
                        format!("there are {world}, 0 to {}", world - 1),
                        "`%` wraps: `at (rank + 1) % world`; exclude ranks that have no receiver: \
                         `at rank + 1 when rank + 1 < world`"
                            .to_owned(),
                    ),
                };
                let why = format!("{number} is not a rank: {why}");
                let at = rank.span.into();
                let op = operation.name();
                self.error(OpError::Option { op, option: "at", why, help, at });
                Err(())
            }
        }
    }

    /// True if a copy to another rank goes from device memory to a declared buffer, which exists on every rank; reports
    /// an error otherwise.
    pub(in crate::model) fn fits_peer(&mut self, call: &Call, operands: &Inputs) -> bool {
        if let Some(option) = call.options.iter().find(|option| self.names.name(option.key.symbol) == "indices") {
            let why = "a copy to another rank moves one slice".to_owned();
            let help = "copy the pages into a buffer of this rank first, and send that".to_owned();
            let at = option.key.span.into();
            self.error(OpError::Option { op: "copy", option: "indices", why, help, at });
            return false;
        }
        let source = operands.views.iter().copied().zip(operands.spans.iter().copied());
        let target = operands.written.iter().copied().zip(call.outputs.iter().map(|output| output.value.span));
        let wrong = source.map(|(view, span)| (view, span, false)).chain(target.map(|(view, span)| (view, span, true)));
        for (view, at, is_target) in wrong {
            let memory = self.program.memory(self.program.views.memory(view)).clone();
            let why = match memory.kind {
                MemoryKind::Scratch if is_target => "is no declared buffer".to_owned(),
                _ if memory.space != Space::Device => format!("is in `{}`", memory.space.name()),
                _ => continue,
            };
            let name = self.names.name(memory.name).to_owned();
            self.error(PeerError::Memory { name, why, at: at.into() });
            return false;
        }
        true
    }
}

/// A rank's copy at a location.
#[derive(Clone, Copy, Debug)]
struct SiteCopy {
    rank: usize,
    step: usize,
    op: OpId,
    to: Option<(u32, ViewId)>,
}

/// Identifies a copy on all ranks: the slot, the statement, and how often it was executed before.
type CopySite = (usize, u32, u32);

/// Number of iterations after which the programs of all ranks repeat. The error is for programs with copies to other ranks
/// that have no such number up to the longest cycle.
pub fn common_cycle(programs: &[Program]) -> Result<usize, Vec<ModelError>> {
    let cycles = || programs.iter().map(|program| program.cycle.len().max(1));
    let common = cycles().try_fold(1, |all, cycle| lcm(all, cycle as u64)).filter(|all| *all <= CYCLE);
    common.map(|all| all as usize).ok_or_else(|| {
        let steps = programs.iter().flat_map(|program| &program.cycle);
        let copy = steps.filter_map(|step| step.peers().first().map(|peer| step.op(peer.op).span)).next();
        let lengths: BTreeSet<usize> = cycles().collect();
        let lengths: Vec<String> = lengths.iter().map(usize::to_string).collect();
        vec![ModelError::BadSize {
            what: format!(
                "the number of iterations after which ranks with cycles of {} iterations repeat together",
                lengths.join(", ")
            ),
            value: format!("more than {CYCLE}"),
            at: copy.unwrap_or_default().into(),
            help: "copies to other ranks need it: take remainders of `iteration` by smaller numbers, or by numbers with \
                   common factors",
        }]
    })
}

/// Adds to each rank's program the writes of other ranks' copies to its memory. `programs` are in rank order. Without
/// this, a program's copies receive nothing.
pub fn link(programs: &mut [Program]) -> Result<(), Vec<ModelError>> {
    link_cycles(programs)?;
    for which in OnceBlock::ALL {
        // The ranks of a world have the same file, so either all have the block or none.
        let taken = programs.iter_mut().filter_map(|program| program.around.get_mut(which).take());
        let mut blocks: Vec<Program> = taken.map(Arc::unwrap_or_clone).collect();
        link_cycles(&mut blocks)?;
        for (program, block) in programs.iter_mut().zip(blocks) {
            *program.around.get_mut(which) = Some(Arc::new(block));
        }
    }
    Ok(())
}

fn link_cycles(programs: &mut [Program]) -> Result<(), Vec<ModelError>> {
    let places = peer_copies(programs);
    let mut linker = Linker { memories: vec![None; programs.len()], errors: Vec::new() };
    for (number, copies) in places.values().enumerate() {
        for copy in copies.values() {
            let peers = programs[copy.rank].cycle[copy.step].peers_mut();
            if let Ok(place) = peers.binary_search_by_key(&copy.op, |peer| peer.op) {
                peers[place].crossing = number as u32;
            }
        }
        linker.place(programs, copies);
    }
    for program in programs.iter_mut().filter(|_| !places.is_empty()) {
        program.crossings = places.len() as u32;
        program.views.finish();
    }
    if linker.errors.is_empty() { Ok(()) } else { Err(linker.errors) }
}

/// For each copy, the ranks that take part in it.
fn peer_copies(programs: &[Program]) -> BTreeMap<CopySite, BTreeMap<u32, SiteCopy>> {
    let mut copies: BTreeMap<CopySite, BTreeMap<u32, SiteCopy>> = BTreeMap::new();
    for (rank, program) in programs.iter().enumerate() {
        for (index, step) in program.cycle.iter().enumerate() {
            let mut turns: FxHashMap<u32, u32> = FxHashMap::default();
            for peer in step.peers() {
                let statement = step.op(peer.op).span.start;
                let turn = turns.entry(statement).or_default();
                let copy = SiteCopy { rank, step: index, op: peer.op, to: peer.to };
                copies.entry((index, statement, *turn)).or_default().insert(rank as u32, copy);
                *turn += 1;
            }
        }
    }
    copies
}

/// An arrival on a rank: the sender and the slice that is written.
struct CopyArrival {
    from: u32,
    view: ViewId,
}

/// Adds to the program of each rank what arrives there from copies of other ranks.
struct Linker {
    /// The declared buffers of each rank's program, by name and index.
    memories: Vec<Option<FxHashMap<(String, u32), MemoryId>>>,
    errors: Vec<ModelError>,
}

impl Linker {
    /// Adds the arrivals of a copy to each rank that executes it.
    fn place(&mut self, programs: &mut [Program], copies: &BTreeMap<u32, SiteCopy>) {
        let errors_before = self.errors.len();
        let mut arrivals: BTreeMap<u32, Vec<CopyArrival>> = BTreeMap::new();
        for (&from, sender) in copies {
            let Some((to, target)) = sender.to else { continue };
            let Some(receiver) = copies.get(&to) else {
                self.error(PeerError::Absent { sender: from, receiver: to, at: span(programs, sender).into() }.into());
                continue;
            };
            if let Some(view) = self.arrival(programs, (from, sender, target), (to, receiver)) {
                arrivals.entry(to).or_default().push(CopyArrival { from, view });
            }
        }
        if self.errors.len() > errors_before {
            return;
        }
        for (rank, copy) in copies {
            let arrivals = arrivals.remove(rank).unwrap_or_default();
            match clash(programs, *rank, copy, &arrivals) {
                Some(error) => self.error(error),
                None => replace(&mut programs[copy.rank], *rank, copy, &arrivals),
            }
        }
    }

    fn error(&mut self, error: ModelError) {
        let known = self.errors.iter().any(|other| other.offset() == error.offset());
        if !known && self.errors.len() < MAX_ERRORS {
            self.errors.push(error);
        }
    }

    /// Converts the slice that a sender writes, as a slice of its own memory, to a slice of the receiver's memory.
    fn arrival(
        &mut self,
        programs: &mut [Program],
        (from, sender, view): (u32, &SiteCopy, ViewId),
        (to, receiver): (u32, &SiteCopy),
    ) -> Option<ViewId> {
        let program = &programs[sender.rank];
        if sender.rank == receiver.rank {
            return Some(view);
        }
        let memory = program.views.memory(view);
        let info: Memory = program.memory(memory).clone();
        let name = program.names.name(info.name).to_owned();
        let layout = program.layout(memory);
        let tensor = *program.views.tensor(view);
        let offset = program.views.offset(view, &layout.dims);
        let at = span(programs, sender);

        let other = &mut programs[receiver.rank];
        let found =
            self.memories[receiver.rank].get_or_insert_with(|| buffers(other)).get(&(name.clone(), info.span.start));
        let theirs = found.map(|&memory| (memory, other.layout(memory)));
        let why = match theirs {
            Some((memory, theirs)) if theirs.dims == layout.dims && theirs.dtype == layout.dtype => {
                let fixed = usize::from(info.family);
                let view = other.views.place(memory, (offset, tensor.dims, tensor.strides), fixed, &theirs);
                if view.is_ok() {
                    return view.ok();
                }
                format!("is sliced in dimensions on rank {to} in which the slice of rank {from} is not a box")
            }
            _ => {
                let theirs = theirs.map(|(_, layout)| format!("{}{}", layout.dtype, layout.dims));
                let theirs = theirs.unwrap_or_else(|| "nothing".to_owned());
                format!("is {}{} on rank {from} and {theirs} on rank {to}", layout.dtype, layout.dims)
            }
        };
        self.error(PeerError::Memory { name, why, at: at.into() }.into());
        None
    }
}

fn span(programs: &[Program], copy: &SiteCopy) -> SrcSpan {
    programs[copy.rank].cycle[copy.step].op(copy.op).span
}

fn buffers(program: &Program) -> FxHashMap<(String, u32), MemoryId> {
    let memories = (0..program.memories.len()).map(MemoryId::from);
    let declared = memories.filter(|&id| matches!(program.memory(id).kind, MemoryKind::Buffer(_)));
    declared
        .map(|id| ((program.names.name(program.memory(id).name).to_owned(), program.memory(id).span.start), id))
        .collect()
}

/// Returns the error for two unordered accesses to the same elements of a rank in one copy, at least one of which is a
/// write; `None` if there are none.
fn clash(programs: &[Program], rank: u32, copy: &SiteCopy, arrivals: &[CopyArrival]) -> Option<ModelError> {
    let program = &programs[copy.rank];
    let slice = |view: ViewId| program.view_text(view);
    let at = span(programs, copy).into();
    for (index, one) in arrivals.iter().enumerate() {
        if let Some(other) = arrivals[..index].iter().find(|other| program.views.overlap(one.view, other.view)) {
            let what =
                format!("rank {} and rank {} both write `{}` of rank {rank}", other.from, one.from, slice(one.view));
            let help = format!("give each sender a part of its own: `copy(x -> y[rank] at {rank})`");
            return Some(PeerError::Clash { what, help, at }.into());
        }
        // A rank that sends nothing may have no input.
        let read = program.cycle[copy.step].inputs(copy.op).first().copied().filter(|_| copy.to.is_some());
        if let Some(read) = read.filter(|&read| program.views.overlap(one.view, read)) {
            let (from, sent) = (one.from, slice(read));
            let what =
                format!("rank {from} writes `{}` of rank {rank}, which sends `{sent}` meanwhile", slice(one.view));
            let help =
                "received data needs other memory than sent data: use two buffers, or two parts of one".to_owned();
            return Some(PeerError::Clash { what, help, at }.into());
        }
    }
    None
}

/// Replaces a rank's copy by an operation with everything that it sends and receives. A copy from a rank to itself
/// becomes a plain copy.
fn replace(program: &mut Program, rank: u32, own: &SiteCopy, arrivals: &[CopyArrival]) {
    let step = &program.cycle[own.step];
    let OpKind::Run(id) = step.op(own.op).kind else { return };
    if let (Some((to, _)), [CopyArrival { from, .. }]) = (own.to, arrivals)
        && to == rank
        && *from == rank
    {
        return;
    }
    let copy = program.spec(id).clone();
    let team = ops::Team { rank, ..copy.team };
    let inputs: Vec<ViewId> = step.inputs(own.op).iter().copied().filter(|_| own.to.is_some()).collect();
    let outputs: Vec<ViewId> = arrivals.iter().map(|arrival| arrival.view).collect();
    let tensors: Vec<(u32, Tensor)> =
        arrivals.iter().map(|arrival| (arrival.from, *program.views.tensor(arrival.view))).collect();
    let spec = PeerCopy::of(own.to.map(|(to, _)| (to, copy)), tensors, team);
    let spec = SpecId::from(program.specs.insert_full(spec).0);
    program.cycle[own.step].replace(own.op, OpKind::Run(spec), &inputs, &outputs);
}
