//! Compute units: they are dealt out to the blocks of kernels, the most urgent first, as far as there are any.

use crate::cost::Task;

use super::agenda::What;
use super::{Action, FLOWS, Machine, TaskId};

/// Rounds in which a kernel's blocks are dealt out at most; more are put together.
const ROUNDS: u64 = 16;

/// A share of the memory's bandwidth below which nobody notices.
const SMALL_DEMAND: f64 = 1e-3;

/// Blocks of a kernel that began together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocks {
    pub(super) task: TaskId,
    pub(super) count: u64,
    /// Compute units held, in 1/32.
    pub(super) held: u64,
}

/// A kernel's blocks, for dealing them out.
#[derive(Clone, Copy, Debug)]
struct KernelBlocks {
    blocks: u64,
    share: u64,
    block_time: f64,
    memory_time: f64,
}

impl Machine {
    pub(super) fn admit(&mut self, task: TaskId) {
        let priority = self.state(task).placing.priority;
        let first = self.first;
        let tasks = &self.tasks;
        let urgency = |other: &TaskId| tasks[(*other - first) as usize].placing.priority <= priority;
        let admitted = &self.devices[self.device(task)].admitted;
        let place = admitted.partition_point(urgency);
        let device = self.device(task);
        self.devices[device].admitted.insert(place, task);
    }

    /// Deals a device's free compute units out: as many as it can use to the first kernel, what is left to the next.
    pub(super) fn deal(&mut self, device: usize) {
        let mut index = 0;
        while index < self.devices[device].admitted.len() && self.devices[device].free > 0 {
            let task = self.devices[device].admitted[index];
            let exhausted = match self.state(task).action {
                Action::Run(Task::Kernel { blocks, share, block_time, memory_time, .. }) => {
                    let kernel = KernelBlocks { blocks, share: u64::from(share), block_time, memory_time };
                    self.deal_blocks(device, task, kernel)
                }
                Action::Exchange(_) => self.deal_units(device, task),
                _ => unreachable!("only kernels and exchanges are admitted"),
            };
            if exhausted {
                self.devices[device].admitted.remove(index);
            } else {
                index += 1;
            }
        }
    }

    /// Lets as many blocks of a kernel begin as there is room for; says whether none are left.
    fn deal_blocks(&mut self, device: usize, task: TaskId, kernel: KernelBlocks) -> bool {
        let KernelBlocks { blocks, share, block_time, memory_time } = kernel;
        let (limit, used) = self.account(task).map_or((u64::MAX, 0), |account| *account);
        let capacity = self.capacity.min(limit);
        let share = share.min(capacity);
        let free = self.devices[device].free.min(limit.saturating_sub(used));
        let state = self.state(task);
        let fit = state.waiting.min(free / share);
        if fit == 0 {
            return false;
        }
        // Of a kernel that takes many rounds of the whole device, several go together as one long one.
        let rounds = (blocks / (capacity / share)).div_ceil(ROUNDS).max(1);
        let count = (fit * rounds).min(state.waiting);
        state.waiting -= count;
        state.running += count;
        let exhausted = state.waiting == 0;
        let compute = block_time * count.div_ceil(fit) as f64;
        let memory = memory_time * count as f64 / blocks as f64;
        let alone = compute.max(memory);
        let demand = if alone > 0.0 { memory / alone } else { 0.0 };
        let held = fit * share;
        self.devices[device].free -= held;
        self.account(task).into_iter().for_each(|(_, used)| *used += held);
        let group = self.group(Blocks { task, count, held });
        if demand < SMALL_DEMAND {
            self.at(self.now + alone, What::BlocksEnd(group));
        } else {
            self.devices[device].memory.add(self.now, group, alone, demand);
            self.reflow(FLOWS * device);
        }
        exhausted
    }

    pub(super) fn group(&mut self, blocks: Blocks) -> u32 {
        match self.unused_blocks.pop() {
            Some(index) => {
                self.blocks[index as usize] = blocks;
                index
            }
            None => {
                self.blocks.push(blocks);
                self.blocks.len() as u32 - 1
            }
        }
    }

    pub(super) fn blocks_end(&mut self, group: u32) {
        let Blocks { task, count, held } = self.blocks[group as usize];
        self.unused_blocks.push(group);
        let device = self.device(task);
        self.devices[device].free += held;
        self.account(task).into_iter().for_each(|(_, used)| *used -= held);
        let state = self.state(task);
        state.running -= count;
        if state.running == 0 && state.waiting == 0 {
            self.ended(task);
        }
        self.deal(device);
    }
}
