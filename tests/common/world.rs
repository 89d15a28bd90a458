//! Programs of all ranks of a world, before a backend opens them.

use aorta::base::Nanos;
use aorta::exec::{self, Backend, ExecError, RankSchedule, Ranks};
use aorta::measure::RankRequest;
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

/// All ranks with their schedules, as a session takes them.
pub fn ranks<'a>(world: &'a [(Program, Plan)], schedules: &'a [Schedule]) -> Vec<RankSchedule<'a>> {
    let both = (0..).zip(world.iter().zip(schedules));
    both.map(|(number, ((program, _), schedule))| RankSchedule { number, program, schedule }).collect()
}

/// All ranks with their schedules, as a measurement takes them.
pub fn requests<'a>(world: &'a [(Program, Plan)], schedules: &'a [Schedule]) -> Vec<RankRequest<'a>> {
    let both = (0..).zip(world.iter().zip(schedules));
    both.map(|(number, ((program, plan), schedule))| RankRequest { number, program, plan, schedule }).collect()
}

/// The programs of all ranks, with their schedules. Does not check that ranks match.
pub struct World {
    pub programs: Vec<Program>,
    pub schedules: Vec<Schedule>,
}

impl World {
    pub fn new(text: &str, world: u32, backend: &dyn Backend) -> World {
        let place = |(program, plan): (Program, _)| {
            let schedule = schedule::place(&program, &plan, backend.topology(), &schedule::ScheduleOptions::default());
            (program, schedule)
        };
        let (programs, schedules) = super::planned_ranks(text, world).into_iter().map(place).unzip();
        World { programs, schedules }
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
        let both = self.programs.iter().zip(&self.schedules);
        let ranks: Vec<RankSchedule> =
            both.map(|(program, schedule)| RankSchedule { number: program.rank, program, schedule }).collect();
        exec::prepare_ranks(&ranks, backend, &options(super::exec_options()))
    }
}
