//! Schedules a plan: real streams and hardware queues, order of issue, events, memory layout.
//!
//! The only properties of a device that it uses are its hardware queues.

mod advice;
mod begin_order;
mod durations;
mod events;
mod lanes;
mod lint;
mod memory;

use std::num::NonZeroU32;
use std::sync::Arc;

use crate::base::{Around, EventId, LaneId, OpId, Space, StreamId};
use crate::config::Profile;
use crate::model::{OpKind, Priority, Program, Sync, Units};
use crate::ops;
use crate::plan::Plan;

pub use advice::{Gain, PlanAdvice, advise, often};
pub use begin_order::Predecessors;
pub use durations::{cached, durations, launches_nothing};
pub use lint::{ScheduleAdvice, ScheduleError, check_memory, lacks_format, largest, lint};
pub use memory::{MemoryPlan, Placement};

/// The schedule of one rank.
#[derive(Debug)]
pub struct Schedule {
    pub lanes: Vec<Lane>,
    /// The lane of each of the program's streams.
    pub lane_of: Vec<LaneId>,
    pub memory: MemoryPlan,
    /// The iterations of the period, which repeats.
    pub period: Vec<StepSchedule>,
    pub events: u32,
    pub sync: Sync,
    /// Number of iterations that may be under way; 1 if they do not overlap.
    pub depth: u32,
    /// The schedules of `setup` and `teardown`, with the same lanes and the same place of each declared memory.
    pub around: Around<Arc<Schedule>>,
}

/// A real stream.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lane {
    /// Name of the program's stream, or of the first that shares the lane.
    pub name: String,
    pub streams: Vec<StreamId>,
    pub priority: Priority,
    /// Compute units to which the file limits the lane; `None` for all.
    pub units: Option<Units>,
    /// The predicted hardware queue; on a host stream, a number beyond all queues.
    pub queue: u32,
    /// True if the file requests this queue.
    pub queue_asked: bool,
    /// Number of threads of the CPU that do its work; `None` for a stream of the device.
    pub threads: Option<NonZeroU32>,
}

impl Lane {
    /// Number of compute units to which the lane is limited on a device; `None` if it may use all.
    pub fn unit_limit(&self, profile: &Profile) -> Option<u32> {
        let units = self.units.filter(|_| Topology::of(profile).limits_units)?;
        Some(units.of(profile.units.value() as u32, profile.chips.value() as u32))
    }
}

/// The commands of one iteration, with the lanes that it uses.
#[derive(Debug)]
pub struct StepSchedule {
    /// Slot of the program's cycle.
    pub step: usize,
    /// Index of the copy of the scratch memory that the iteration uses.
    pub copy: u32,
    pub commands: Vec<Command>,
    /// Lanes with work in this iteration.
    pub used: Vec<LaneId>,
    /// Lanes whose last operation no other lane waits for. When all of them are done, so is the iteration.
    pub leaves: Vec<LaneId>,
}

/// A command that the host issues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    Launch {
        op: OpId,
        lane: LaneId,
    },
    Record {
        event: EventId,
        lane: LaneId,
    },
    /// `across`: the event was recorded in an earlier iteration.
    Wait {
        event: EventId,
        lane: LaneId,
        across: bool,
    },
    /// The host waits until everything that it has issued is complete.
    HostSync,
}

/// The hardware queues of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Topology {
    /// Number of hardware queues that streams are distributed over.
    pub queues: u32,
    /// True if each priority has its own queues.
    pub by_priority: bool,
    /// True if a stream can be limited to some compute units. It then has its own queue, in addition to the shared ones.
    pub limits_units: bool,
}

impl Topology {
    /// The queues of a device with a profile. ROCm has queues for each priority and can limit units; CUDA has neither.
    pub fn of(profile: &Profile) -> Topology {
        let by_priority = profile.queues.by_priority;
        Topology { queues: profile.queues.count.value() as u32, by_priority, limits_units: by_priority }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct ScheduleOptions {
    /// Maximum number of real streams; `None` for no limit.
    pub streams: Option<u32>,
    /// True if scratch tensors may share memory if their lifetimes do not overlap.
    pub share_scratch: bool,
}

impl Default for ScheduleOptions {
    fn default() -> Self {
        ScheduleOptions { streams: None, share_scratch: true }
    }
}

/// The real stream of each stream of a program, if there are at most `streams` of them; `None` for no limit.
pub fn real_streams(program: &Program, streams: Option<u32>) -> Vec<LaneId> {
    // Hardware queues have no effect on which streams share a real one.
    let topology = Topology { queues: 1, by_priority: false, limits_units: false };
    lanes::assign(program, topology, streams).1
}

/// Schedules a program on a device's streams, and the blocks around its iterations.
pub fn place(program: &Program, plan: &Plan, topology: Topology, options: &ScheduleOptions) -> Schedule {
    let (lanes, lane_of) = lanes::assign(program, topology, options.streams);
    let schedule = events::walk(program, plan, lanes, lane_of, options);
    let blocks = program.around.as_ref().zip(plan.around.as_ref());
    Schedule { around: blocks.map(|(block, plan)| Arc::new(place(block, plan, topology, options))), ..schedule }
}

impl Schedule {
    /// Number of waits between lanes in one period.
    pub fn waits(&self) -> usize {
        let waits = |step: &StepSchedule| {
            step.commands.iter().filter(|command| matches!(command, Command::Wait { .. })).count()
        };
        self.period.iter().map(waits).sum()
    }

    /// Largest number of operations that an iteration, or a block around the iterations, launches.
    pub fn operations(&self) -> usize {
        let launches = |step: &StepSchedule| {
            step.commands.iter().filter(|command| matches!(command, Command::Launch { .. })).count()
        };
        let blocks = self.around.iter().map(|(_, block)| block.operations());
        self.period.iter().map(launches).chain(blocks).max().unwrap_or(0)
    }

    /// Bytes of the workspaces of all lanes: on each lane, the most that the generated kernels of one operation need. The workspaces of
    /// libraries are not included.
    pub fn workspaces(&self, program: &Program) -> u64 {
        let mut lanes = vec![0; self.lanes.len()];
        self.find_workspaces(program, &mut lanes);
        let blocks = program.around.as_ref().zip(self.around.as_ref());
        blocks.iter().for_each(|(_, (program, schedule))| schedule.find_workspaces(program, &mut lanes));
        lanes.into_iter().sum()
    }

    /// Raises the workspace of each lane to the most that an operation on it needs.
    fn find_workspaces(&self, program: &Program, lanes: &mut [u64]) {
        let mut known = vec![None; program.specs.len()];
        for planned in &self.period {
            for command in &planned.commands {
                if let Command::Launch { op, lane } = *command
                    && let OpKind::Run(id) = program.cycle[planned.step].op(op).kind
                {
                    let of_spec = || ops::workspace(&program.spec(id).launch());
                    let bytes = *known[id.index()].get_or_insert_with(of_spec);
                    let most = &mut lanes[lane.index()];
                    *most = bytes.max(*most);
                }
            }
        }
    }

    /// Bytes used in a space, including all copies of scratch memory, by the iterations or a block around them.
    pub fn bytes(&self, space: Space) -> u64 {
        let blocks = self.around.iter().map(|(_, block)| block.bytes(space));
        blocks.fold(self.memory.bytes(space), u64::max)
    }
}
