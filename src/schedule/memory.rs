//! Memory layout: offsets of all buffers and of scratch memory.

use std::collections::BTreeMap;

use crate::base::{MemoryId, OpId, Space, StreamId};
use crate::model::{MemoryKind, Program, Step};
use crate::plan::{Clocks, LastAccesses, QueuePosition};

/// Alignment of memories in bytes.
const ALIGN: u64 = 512;

/// Maximum number of free blocks of one size that are tried.
const TRIES: usize = 16;

/// Maximum number of sizes that are tried.
const SIZES: usize = 64;

/// Offset of scratch memory that is not placed yet.
const NOWHERE: u64 = u64::MAX;

/// The layout: one allocation per space, and the offset of everything in it.
#[derive(Debug)]
pub struct MemoryPlan {
    placements: Vec<Placement>,
    /// Bytes per space that are allocated for the whole run.
    fixed: [u64; Space::COUNT],
    /// Bytes of one copy of the scratch memory, in `device`.
    pub scratch: u64,
    /// Number of copies of the scratch memory.
    pub copies: u32,
}

/// Position of a memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    pub space: Space,
    /// Offset in bytes from the start of the space; for scratch memory, of its copy.
    pub offset: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// True for scratch memory, which exists once for each copy of the iteration.
    pub scratch: bool,
}

impl MemoryPlan {
    /// Space and offset of a memory, for an iteration that uses the `copy`-th copy of scratch memory.
    pub fn offset(&self, memory: MemoryId, copy: u32) -> (Space, u64) {
        let placement = &self.placements[memory.index()];
        let base = if placement.scratch { self.fixed[0] + self.scratch * u64::from(copy) } else { 0 };
        (placement.space, base + placement.offset)
    }

    /// The place of a memory in its space.
    pub fn placement(&self, memory: MemoryId) -> &Placement {
        &self.placements[memory.index()]
    }

    /// Bytes used in a space, including all copies of scratch memory.
    pub fn bytes(&self, space: Space) -> u64 {
        let scratch = if space == Space::Device { self.scratch * u64::from(self.copies) } else { 0 };
        self.fixed[space.index()] + scratch
    }
}

/// Lays out memory while events are placed; the clocks show which operations are complete.
pub(super) struct Placer<'a> {
    program: &'a Program,
    share: bool,
    plan: MemoryPlan,
    /// End of the memory that one iteration uses.
    end: u64,
    /// Blocks that this iteration does not touch again, by size.
    free: BTreeMap<u64, Vec<FreeBlock>>,
    /// Remaining accesses of each memory in this iteration; only counted for scratch.
    left: Vec<u32>,
    /// Order of the accesses to each scratch memory in this iteration.
    order: Vec<Order>,
    /// For each scratch memory, the last operation of each lane that touched it, until its block is reused.
    last: LastAccesses<u32>,
}

/// Order of the accesses to one memory in one iteration.
#[derive(Clone, Copy, Debug)]
struct Order {
    /// The stream of all accesses so far; `None` if there is more than one.
    stream: Option<StreamId>,
    /// True if all other accesses depend on the first one: it writes the whole memory, and races are excluded.
    after_first: bool,
}

impl Order {
    /// True if everything that is complete when the first access starts is also complete for all others. Only then may
    /// the memory reuse another one's block.
    fn is_kept(self) -> bool {
        self.after_first || self.stream.is_some()
    }
}

/// A part of the scratch memory that another memory can reuse.
#[derive(Debug)]
struct FreeBlock {
    /// Offset in bytes in the scratch memory of an iteration.
    offset: u64,
    /// The memory that used the block last.
    memory: MemoryId,
}

impl<'a> Placer<'a> {
    pub fn new(program: &'a Program, share: bool, copies: u32) -> Self {
        let mut fixed = [0; Space::COUNT];
        let placements = (0..program.memories.len())
            .map(MemoryId::from)
            .map(|id| {
                let memory = program.memory(id);
                let bytes = program.memory_bytes(id);
                let scratch = memory.kind == MemoryKind::Scratch;
                let mut offset = 0;
                if !scratch {
                    let end = &mut fixed[memory.space.index()];
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
            last: LastAccesses::new(program.memories.len()),
        }
    }

    /// Begins an iteration: counts the accesses of each scratch memory and determines their order.
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
                        let whole = self.program.views.covers_all(view, &dims);
                        *order = Order { stream: Some(stream), after_first: writes && whole && !races };
                    }
                    _ => order.stream = order.stream.filter(|earlier| *earlier == stream),
                }
                self.left[memory.index()] += 1;
            }
        }
    }

    /// Places scratch memory that an operation is the first to touch. `clocks` shows what is complete when it starts.
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

    /// Takes a free block that is large enough, not too large, and certainly unused by now; `None` if there is none.
    fn take(&mut self, size: u64, lane: u32, clocks: &Clocks) -> Option<u64> {
        let done = |block: &FreeBlock| {
            let mut last = self.last.of(block.memory.0);
            last.all(|(queue, number)| clocks.knows(lane, QueuePosition { queue, number, marker: 0 }))
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

    /// Records that an operation was issued at `place`, and frees the memory that it was the last to touch.
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
                    self.free.entry(size).or_default().push(FreeBlock { offset: placement.offset, memory });
                } else {
                    self.last.clear(memory.0);
                }
            }
        }
    }

    /// Ends an iteration: adds its use of scratch memory to the layout.
    pub fn end(&mut self) {
        self.plan.scratch = self.plan.scratch.max(self.end);
    }

    /// Returns the layout.
    pub fn finish(self) -> MemoryPlan {
        self.plan
    }
}
