//! Plan to schedule: real streams and hardware queues, the order of issue, the fewest events, memory.
//!
//! Knows how many queues the device has and how many streams the caller allows; nothing else of the device, and no
//! handle of any kind.

mod durations;
mod events;
mod lanes;
mod lint;
mod memory;

use crate::base::{EventId, LaneId, OpId, Space, StreamId};
use crate::config::Profile;
use crate::model::{Priority, Program, Sync, Units};
use crate::plan::Plan;

pub use durations::{cached, durations};
pub use lint::{ScheduleAdvice, ScheduleError, check_memory, lint};
pub use memory::{MemoryPlan, Placement};

/// What runs where, when it is issued and what it waits for.
#[derive(Debug)]
pub struct Schedule {
    pub lanes: Vec<Lane>,
    /// The lane of each of the program's streams.
    pub lane_of: Vec<LaneId>,
    pub memory: MemoryPlan,
    /// The iterations of the period, which then repeats.
    pub period: Vec<StepSchedule>,
    pub events: u32,
    pub sync: Sync,
    /// Iterations that may be under way; 1 where they do not overlap.
    pub depth: u32,
}

/// A real stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Lane {
    /// The program's stream, or the first of those that share the lane.
    pub name: String,
    pub streams: Vec<StreamId>,
    pub priority: Priority,
    /// The part of the device that it keeps to, where its streams say so.
    pub units: Option<Units>,
    /// The hardware queue that it is expected on.
    pub queue: u32,
}

/// One iteration.
#[derive(Debug)]
pub struct StepSchedule {
    /// Which slot of the program's cycle it is.
    pub step: usize,
    /// Which copy of the scratch memory it uses.
    pub copy: u32,
    pub commands: Vec<Command>,
    /// Lanes with work in this iteration.
    pub used: Vec<LaneId>,
    /// Lanes whose end no other lane waits for: when these are done, the iteration is.
    pub leaves: Vec<LaneId>,
}

/// What the host issues, in this order.
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
    /// `across`: the event is an earlier iteration's.
    Wait {
        event: EventId,
        lane: LaneId,
        across: bool,
    },
}

/// What the schedule has to know of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Topology {
    /// Hardware queues that streams are spread over.
    pub queues: u32,
    /// Each priority has queues of its own.
    pub by_priority: bool,
    /// A stream that keeps to a part of the device has a queue of its own, beyond those that the others share.
    pub units_apart: bool,
}

impl Topology {
    /// That of a device with a profile. Where priorities have queues of their own, as ROCm makes them, so have streams
    /// that keep to a part.
    pub fn of(profile: &Profile) -> Topology {
        let by_priority = profile.queues.by_priority;
        Topology { queues: profile.queues.count.value() as u32, by_priority, units_apart: by_priority }
    }
}

/// What the caller decides about a schedule.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Real streams at most.
    pub streams: Option<u32>,
    /// Scratch tensors may lie in the same memory when their lives do not meet.
    pub share_scratch: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { streams: None, share_scratch: true }
    }
}

/// Places a program on a device's streams.
pub fn place(program: &Program, plan: &Plan, topology: Topology, options: &Options) -> Schedule {
    let (lanes, lane_of) = lanes::assign(program, topology, options.streams);
    events::walk(program, plan, lanes, lane_of, options)
}

impl Schedule {
    /// Waits between lanes, in one round of the period.
    pub fn waits(&self) -> usize {
        let waits = |step: &StepSchedule| {
            step.commands.iter().filter(|command| matches!(command, Command::Wait { .. })).count()
        };
        self.period.iter().map(waits).sum()
    }

    /// Bytes in a space, all copies of scratch memory included.
    pub fn bytes(&self, space: Space) -> u64 {
        self.memory.bytes(space)
    }
}
