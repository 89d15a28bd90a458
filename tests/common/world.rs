//! Programs of all ranks of a world, before a backend opens them.

use aorta::base::Nanos;
use aorta::exec::{self, Backend, ExecError, Rank, Ranks};
use aorta::model::Program;
use aorta::schedule::{self, Schedule};

/// The programs of all ranks, with their schedules. Does not check that ranks match.
pub struct World {
    pub programs: Vec<Program>,
    pub schedules: Vec<Schedule>,
}

impl World {
    pub fn new(text: &str, world: u32, backend: &dyn Backend) -> World {
        let place = |(program, plan): (Program, _)| {
            let schedule = schedule::place(&program, &plan, backend.topology(), &schedule::Options::default());
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
        let ranks: Vec<Rank> =
            both.map(|(program, schedule)| Rank { number: program.rank, program, schedule }).collect();
        exec::prepare_ranks(&ranks, backend, &options(super::exec_options()))
    }
}
