//! Where each memory lies.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::base::{MemoryId, OpId, Space};
use crate::model::{MemoryKind, Program, Step};
use crate::plan::{Clocks, Place};

/// Every memory begins at a multiple of this many bytes.
const ALIGN: u64 = 512;

/// Blocks of one size that are looked at for one to use again.
const TRIES: usize = 16;

/// One stretch of memory for each space, and where in it everything lies.
#[derive(Debug)]
pub struct MemoryPlan {
    placements: Vec<Placement>,
    /// Bytes of what lives as long as the run, by space.
    fixed: [u64; 3],
    /// Bytes of one copy of the scratch memory, which lies in `device`.
    pub scratch: u64,
    /// Copies of it.
    pub slots: u32,
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
    /// Where a memory begins, for an iteration that uses the `slot`-th copy of scratch memory.
    pub fn offset(&self, memory: MemoryId, slot: u32) -> (Space, u64) {
        let placement = &self.placements[memory.index()];
        let base = if placement.scratch { self.fixed[0] + self.scratch * u64::from(slot) } else { 0 };
        (placement.space, base + placement.offset)
    }

    pub fn placement(&self, memory: MemoryId) -> &Placement {
        &self.placements[memory.index()]
    }

    pub fn bytes(&self, space: Space) -> u64 {
        match space {
            Space::Device => self.fixed[0] + self.scratch * u64::from(self.slots),
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
    live: FxHashMap<MemoryId, Live>,
}

#[derive(Debug)]
struct Block {
    offset: u64,
    /// The last operations that touch it, one for each lane.
    last: Vec<Place>,
}

#[derive(Debug)]
struct Live {
    offset: u64,
    size: u64,
    /// Accesses that are still to come.
    left: u32,
    last: Vec<Place>,
}

impl<'a> Placer<'a> {
    pub fn new(program: &'a Program, share: bool, slots: u32) -> Self {
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
            plan: MemoryPlan { placements, fixed, scratch: 0, slots },
            end: 0,
            free: BTreeMap::new(),
            live: FxHashMap::default(),
        }
    }

    /// Begins an iteration: counts how often each scratch memory is touched.
    pub fn begin(&mut self, step: &Step) {
        self.end = 0;
        self.free.clear();
        self.live.clear();
        for op in step.ids() {
            for &view in step.inputs(op).iter().chain(step.outputs(op)) {
                let memory = self.program.views.memory(view);
                let placement = self.plan.placements[memory.index()];
                if placement.scratch {
                    let size = placement.bytes.next_multiple_of(ALIGN);
                    let unplaced = Live { offset: u64::MAX, size, left: 0, last: Vec::new() };
                    self.live.entry(memory).or_insert(unplaced).left += 1;
                }
            }
        }
    }

    /// Gives scratch memory to what an operation touches first; `clocks` knows what is complete when it starts.
    pub fn before(&mut self, step: &Step, op: OpId, lane: u32, clocks: &Clocks) {
        for &view in step.inputs(op).iter().chain(step.outputs(op)) {
            let memory = self.program.views.memory(view);
            let Some(live) = self.live.get(&memory) else { continue };
            if live.offset != u64::MAX {
                continue;
            }
            let size = live.size;
            let offset = self.take(size, lane, clocks).unwrap_or_else(|| {
                let offset = self.end;
                self.end += size;
                offset
            });
            self.plan.placements[memory.index()].offset = offset;
            if let Some(live) = self.live.get_mut(&memory) {
                live.offset = offset;
            }
        }
    }

    /// A block that is large enough, not wasteful, and surely no longer in use.
    fn take(&mut self, size: u64, lane: u32, clocks: &Clocks) -> Option<u64> {
        let done = |block: &Block| block.last.iter().all(|&place| clocks.knows(lane, place));
        for (_, blocks) in self.free.range_mut(size..=size.saturating_mul(2)) {
            let recent = blocks.len().saturating_sub(TRIES)..blocks.len();
            if let Some(place) = recent.rev().find(|&index| done(&blocks[index])) {
                return Some(blocks.remove(place).offset);
            }
        }
        None
    }

    /// Notes that an operation has been issued at `place`, and frees what it was the last to touch.
    pub fn after(&mut self, step: &Step, op: OpId, place: Place) {
        for &view in step.inputs(op).iter().chain(step.outputs(op)) {
            let memory = self.program.views.memory(view);
            let Some(live) = self.live.get_mut(&memory) else { continue };
            match live.last.iter_mut().find(|last| last.queue == place.queue) {
                Some(last) => *last = place,
                None => live.last.push(place),
            }
            live.left -= 1;
            if live.left == 0
                && let Some(live) = self.live.remove(&memory)
                && self.share
            {
                let block = Block { offset: live.offset, last: live.last };
                self.free.entry(live.size).or_default().push(block);
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
