//! Programs of all ranks of a world, before a backend opens them.

use aorta::base::Nanos;
use aorta::exec::{self, Backend, ExecError, RankSchedule, Ranks};
use aorta::model::Program;
use aorta::plan::Plan;
use aorta::schedule::{self, Schedule};

/// The schedules of all ranks on a backend.
pub fn schedules(world: &[(Program, Plan)], backend: &dyn Backend) -> Vec<Schedule> {
    let place = |(program, plan): &(Program, Plan)| {
        schedule::place(program, plan, backend.topology(), &schedule::ScheduleOptions::default())
    };
    world.iter().map(place).collect()
}

/// Each rank of a world with its program, plan and schedule.
pub fn ranks<'a>(world: &'a [(Program, Plan)], schedules: &'a [Schedule]) -> Vec<RankSchedule<'a>> {
    let both = (0..).zip(world.iter().zip(schedules));
    both.map(|(number, ((program, plan), schedule))| RankSchedule { number, program, plan, schedule }).collect()
}

/// The programs of all ranks, with their schedules. Does not check that ranks match.
pub struct World {
    pub ranks: Vec<(Program, Plan)>,
    pub schedules: Vec<Schedule>,
}

impl World {
    pub fn new(text: &str, world: u32, backend: &dyn Backend) -> World {
        let ranks = super::planned_ranks(text, world);
        let schedules = schedules(&ranks, backend);
        World { ranks, schedules }
    }

    /// The ranks with their schedules.
    pub fn ranks(&self) -> Vec<RankSchedule<'_>> {
        ranks(&self.ranks, &self.schedules)
    }

    /// Prepares the ranks in this process. An iteration that takes longer than `timeout` counts as hung.
    pub fn open(&self, backend: &dyn Backend, timeout: Nanos) -> Result<Ranks, ExecError> {
        self.open_with(backend, |options| exec::SessionOptions { timeout, ..options })
    }

    /// Prepares the ranks with other options.
    pub fn open_with(
        &self,
        backend: &dyn Backend,
        options: impl FnOnce(exec::SessionOptions) -> exec::SessionOptions,
    ) -> Result<Ranks, ExecError> {
        exec::prepare_ranks(&self.ranks(), backend, &options(super::exec_options()))
    }
}
