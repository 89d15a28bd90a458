//! Assigns compute units to the blocks of kernels, the most urgent kernels first.

use crate::cost::{self, Busy, Task};

use super::agenda::EventKind;
use super::{Action, Owner, SimMachine, TaskId, Time, whole};

/// Number of groups of blocks into which a less urgent kernel is divided. A more urgent kernel gets the units when a
/// group ends.
const GROUPS_OF_LOW_PRIORITY: u64 = 64;

/// Reciprocal of the minimum share of a device's block slots that a kernel with running blocks gets at once. With
/// smaller shares, kernels whose blocks end at different times would fragment each other's slots endlessly.
const MAX_PARTS: u64 = 8;

/// Blocks of a kernel that began together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocks {
    pub(super) task: TaskId,
    /// Number of blocks.
    pub(super) count: u64,
    /// Compute units that the blocks occupy, in units of 1/32.
    pub(super) held: u64,
}

/// The part of a kernel that determines how its blocks are assigned.
#[derive(Clone, Copy, Debug)]
struct KernelBlocks {
    blocks: u64,
    share: u64,
    block_time: f64,
    busy: Busy,
    /// Minimum duration of the kernel, in whole ns.
    floor: Time,
}

impl SimMachine {
    /// Adds a kernel or an exchange to those that wait for compute units, by its urgency.
    pub(super) fn admit(&mut self, task: TaskId) {
        let priority = self.state(task).placing.priority;
        let first = self.first;
        let tasks = &self.tasks;
        let urgency = |other: &TaskId| tasks[(*other - first) as usize].placing.priority <= priority;
        let admitted = &self.devices[self.device(task)].admitted;
        let index = admitted.partition_point(urgency);
        let device = self.device(task);
        self.devices[device].admitted.insert(index, task);
    }

    /// Assigns a device's free compute units: the first kernel gets as many as it can use, the next ones the rest.
    pub(super) fn assign_units(&mut self, device: usize) {
        let mut index = 0;
        while index < self.devices[device].admitted.len() && self.devices[device].free > 0 {
            let task = self.devices[device].admitted[index];
            let exhausted = match self.state(task).action {
                Action::Run(Task::Kernel { blocks, share, block_time, busy, floor }) => {
                    let floor = whole(floor);
                    let kernel = KernelBlocks { blocks, share: u64::from(share), block_time, busy, floor };
                    self.start_blocks(device, task, kernel)
                }
                Action::Exchange(_) => self.assign_exchange_units(device, task),
                _ => unreachable!("only kernels and exchanges are admitted"),
            };
            if exhausted {
                self.devices[device].admitted.remove(index);
            } else {
                index += 1;
            }
        }
    }

    /// Starts as many blocks of a kernel as fit. Returns whether all blocks have begun.
    fn start_blocks(&mut self, device: usize, task: TaskId, kernel: KernelBlocks) -> bool {
        let KernelBlocks { blocks, share, block_time, busy, floor } = kernel;
        let launched = floor.min(self.kernel_floor);
        let (limit, used) = self.account(task).map_or((u64::MAX, 0), |account| *account);
        let capacity = self.capacity.min(limit);
        let share = share.min(capacity);
        let room = capacity / share;
        let free = self.devices[device].free.min(limit.saturating_sub(used));
        let most_urgent = self.most_urgent;
        let state = self.state(task);
        let fit = state.waiting.min(free / share);
        let least = if state.running == 0 { 1 } else { state.waiting.min(room.div_ceil(MAX_PARTS)) };
        if fit < least {
            return false;
        }
        let groups = if state.placing.priority > most_urgent { GROUPS_OF_LOW_PRIORITY } else { cost::GROUPS };
        let rounds = cost::rounds(blocks, fit, room, groups);
        let count = (fit * rounds).min(state.waiting);
        let is_first = state.waiting == blocks;
        state.waiting -= count;
        state.running += count;
        let exhausted = state.waiting == 0;
        let left_out = std::mem::take(&mut state.left_out);
        let compute = block_time * count.div_ceil(fit) as f64;
        let busy = busy.scaled(count as f64 / blocks as f64);
        let alone = compute.max(busy.longest());
        // The first blocks occupy their units while the kernel takes the rest of its minimum duration.
        let rest = if is_first { floor - launched } else { 0 };
        let time = (alone + left_out).max(0.0) + rest as f64;
        let occupied = fit * share;
        self.devices[device].free -= occupied;
        self.note_units(device);
        self.account(task).into_iter().for_each(|(_, used)| *used += occupied);
        let group = self.blocks.add(Blocks { task, count, held: occupied });
        if is_first {
            self.started(task, self.now - launched);
        }
        let demands = self.paths.kernel(device, &busy, alone + rest as f64, &mut self.flows);
        if demands.is_empty() {
            self.state(task).left_out = time - whole(time) as f64;
            self.at(self.now + whole(time), EventKind::BlocksEnd(group));
        } else {
            self.flows.add(self.now, Owner::Blocks(group), time, demands);
        }
        exhausted
    }

    /// Ends a group of blocks. `left` is the part of its duration in ns that rounding its end to a whole ns has cut
    /// off.
    pub(super) fn blocks_end(&mut self, group: u32, left: f64) {
        let Blocks { task, count, held } = self.blocks.remove(group).expect("it ends once");
        let device = self.device(task);
        self.devices[device].free += held;
        self.note_units(device);
        self.account(task).into_iter().for_each(|(_, used)| *used -= held);
        let state = self.state(task);
        state.running -= count;
        state.left_out += left;
        if state.running == 0 && state.waiting == 0 {
            self.ended(task);
        }
        self.assign_units(device);
    }
}
