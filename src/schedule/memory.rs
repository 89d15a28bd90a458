//! Where each memory lies.

use std::collections::BTreeMap;

use crate::base::{MemoryId, OpId, Space, StreamId};
use crate::model::{MemoryKind, Program, Step};
use crate::plan::{Clocks, Latest, QueuePosition};

/// Every memory begins at a multiple of this many bytes.
const ALIGN: u64 = 512;

/// Blocks of one size that are looked at for one to use again.
const TRIES: usize = 16;

/// Sizes that are looked at.
const SIZES: usize = 64;

/// Where scratch memory lies that has no place yet.
const NOWHERE: u64 = u64::MAX;

/// One stretch of memory for each space, and where in it everything lies.
#[derive(Debug)]
pub struct MemoryPlan {
    placements: Vec<Placement>,
    /// Bytes of what lives as long as the run, by space.
    fixed: [u64; 3],
    /// Bytes of one copy of the scratch memory, which lies in `device`.
    pub scratch: u64,
    /// Copies of it.
    pub copies: u32,
}

/// Where a memory lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    pub space: Space,
    /// Bytes from the beginning of the space; of scratch, from the beginning of its copy.
    pub offset: u64,
    pub bytes: u64,
    pub scratch: bool,
}

impl MemoryPlan {
    /// Where a memory begins, for an iteration that uses the `copy`-th copy of scratch memory.
    pub fn offset(&self, memory: MemoryId, copy: u32) -> (Space, u64) {
        let placement = &self.placements[memory.index()];
        let base = if placement.scratch { self.fixed[0] + self.scratch * u64::from(copy) } else { 0 };
        (placement.space, base + placement.offset)
    }

    pub fn placement(&self, memory: MemoryId) -> &Placement {
        &self.placements[memory.index()]
    }

    pub fn bytes(&self, space: Space) -> u64 {
        match space {
            Space::Device => self.fixed[0] + self.scratch * u64::from(self.copies),
            Space::Pinned => self.fixed[1],
            Space::Host => self.fixed[2],
        }
    }
}

fn space_index(space: Space) -> usize {
    match space {
        Space::Device => 0,
        Space::Pinned => 1,
        Space::Host => 2,
    }
}

/// Lays out memory while the events are placed: the clocks say what is complete when.
pub(super) struct Placer<'a> {
    program: &'a Program,
    share: bool,
    plan: MemoryPlan,
    /// End of what one iteration has taken.
    end: u64,
    /// Blocks that nothing will touch again in this iteration, by size.
    free: BTreeMap<u64, Vec<Block>>,
    /// For each memory, accesses that are still to come in this iteration; counted for scratch alone.
    left: Vec<u32>,
    /// For each scratch memory, the order of its accesses in this iteration.
    order: Vec<Order>,
    /// For each scratch memory, the number of the last operation of each lane that touched it, until its block is used
    /// again.
    last: Latest<u32>,
}

/// How the accesses of one memory in one iteration follow each other.
#[derive(Clone, Copy, Debug)]
struct Order {
    /// The stream of all accesses so far; None once there are two.
    stream: Option<StreamId>,
    /// Whether every other access waits for the first one: it writes the whole memory, and nothing may race.
    after_first: bool,
}

impl Order {
    /// Whether whatever is complete when the first access starts is complete for all others too. Only then may the memory
    /// lie where another one has been.
    fn is_kept(self) -> bool {
        self.after_first || self.stream.is_some()
    }
}

#[derive(Debug)]
struct Block {
    offset: u64,
    /// What lay there last.
    memory: MemoryId,
}

impl<'a> Placer<'a> {
    pub fn new(program: &'a Program, share: bool, copies: u32) -> Self {
        let mut fixed = [0u64; 3];
        let placements = (0..program.memories.len())
            .map(MemoryId::from)
            .map(|id| {
                let memory = program.memory(id);
                let bytes = program.memory_bytes(id);
                let scratch = memory.kind == MemoryKind::Scratch;
                let mut offset = 0;
                if !scratch {
                    let end = &mut fixed[space_index(memory.space)];
                    offset = *end;
                    *end += bytes.next_multiple_of(ALIGN);
                }
                Placement { space: memory.space, offset, bytes, scratch }
            })
            .collect();
        Placer {
            program,
            share,
            plan: MemoryPlan { placements, fixed, scratch: 0, copies },
            end: 0,
            free: BTreeMap::new(),
            left: vec![0; program.memories.len()],
            order: vec![Order { stream: None, after_first: false }; program.memories.len()],
            last: Latest::new(program.memories.len()),
        }
    }

    /// Begins an iteration: counts the accesses of each scratch memory, and finds out how they follow each other.
    pub fn begin(&mut self, step: &Step) {
        self.end = 0;
        for block in std::mem::take(&mut self.free).into_values().flatten() {
            self.last.clear(block.memory.0);
        }
        let races = self.program.step.declared_order && self.program.step.allow_races;
        for (op, (view, writes)) in step.ids().flat_map(|op| step.operands(op).map(move |operand| (op, operand))) {
            let memory = self.program.views.memory(view);
            let placement = &mut self.plan.placements[memory.index()];
            if placement.scratch {
                placement.offset = NOWHERE;
                let (order, stream) = (&mut self.order[memory.index()], step.op(op).stream);
                match self.left[memory.index()] {
                    0 => {
                        let dims = self.program.layout(memory).dims;
                        let mut parts = self.program.views.extents(view).iter().zip(dims.iter());
                        let whole = parts.all(|(part, size)| part.len == *size);
                        *order = Order { stream: Some(stream), after_first: writes && whole && !races };
                    }
                    _ => order.stream = order.stream.filter(|earlier| *earlier == stream),
                }
                self.left[memory.index()] += 1;
            }
        }
    }

    /// Gives scratch memory to what an operation touches first; `clocks` knows what is complete when it starts.
    pub fn before(&mut self, step: &Step, op: OpId, lane: u32, clocks: &Clocks) {
        for (view, _) in step.operands(op) {
            let memory = self.program.views.memory(view);
            let placement = self.plan.placements[memory.index()];
            if placement.scratch && placement.offset == NOWHERE {
                let size = placement.bytes.next_multiple_of(ALIGN);
                let kept = self.order[memory.index()].is_kept();
                let again = if kept { self.take(size, lane, clocks) } else { None };
                let offset = again.unwrap_or_else(|| {
                    let offset = self.end;
                    self.end += size;
                    offset
                });
                self.plan.placements[memory.index()].offset = offset;
            }
        }
    }

    /// A block that is large enough, not wasteful, and surely no longer in use.
    fn take(&mut self, size: u64, lane: u32, clocks: &Clocks) -> Option<u64> {
        let done = |block: &Block| {
            let mut last = self.last.of(block.memory.0);
            last.all(|(queue, number)| clocks.knows(lane, QueuePosition { queue, number, mark: 0 }))
        };
        let sizes = self.free.range(size..=size.saturating_mul(2)).take(SIZES);
        let (size, index) = sizes.into_iter().find_map(|(&size, blocks)| {
            let recent = blocks.len().saturating_sub(TRIES)..blocks.len();
            recent.rev().find(|&index| done(&blocks[index])).map(|index| (size, index))
        })?;
        let blocks = self.free.get_mut(&size)?;
        let block = blocks.remove(index);
        if blocks.is_empty() {
            self.free.remove(&size);
        }
        self.last.clear(block.memory.0);
        Some(block.offset)
    }

    /// Notes that an operation has been issued at `place`, and frees what it was the last to touch.
    pub fn after(&mut self, step: &Step, op: OpId, place: QueuePosition) {
        for (view, _) in step.operands(op) {
            let memory = self.program.views.memory(view);
            let placement = self.plan.placements[memory.index()];
            if !placement.scratch {
                continue;
            }
            self.last.note(memory.0, place.queue, place.number);
            self.left[memory.index()] -= 1;
            if self.left[memory.index()] == 0 {
                if self.share {
                    let size = placement.bytes.next_multiple_of(ALIGN);
                    self.free.entry(size).or_default().push(Block { offset: placement.offset, memory });
                } else {
                    self.last.clear(memory.0);
                }
            }
        }
    }

    pub fn end(&mut self) {
        self.plan.scratch = self.plan.scratch.max(self.end);
    }

    pub fn finish(self) -> MemoryPlan {
        self.plan
    }
}
