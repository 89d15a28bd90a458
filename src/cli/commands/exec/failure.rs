//! Diagnoses a failed run: if the failing operation is not certain, the same command runs once more to find it.
//!
//! The diagnostic run is a new process. A failed device does not work again within this one, and one that hangs keeps its memory.

use crate::backend;
use crate::exec::{self, Diagnosis, ExecError};

use super::measuring::RunContext;
use super::multi_process;
use super::restart::restart;
use crate::cli::error::CliError;
use crate::cli::io::output;
use crate::cli::{CliResult, FAILED};
use crate::render::DiagnosticFormat;

/// The actions when a run fails.
#[derive(Clone, Copy, Debug)]
pub struct OnFailure {
    how: DiagnosticFormat,
    /// The rank of this process; `None` if no launcher has started several.
    rank: Option<u32>,
    /// True if the command can run again: it is not a second run already, no profiler is attached, and its file can be
    /// read again.
    again: bool,
}

impl OnFailure {
    pub fn of(args: &super::ExecArgs, how: DiagnosticFormat) -> OnFailure {
        OnFailure {
            how,
            rank: None,
            again: args.diagnose.is_none() && args.ranges.is_none() && !args.blocks && args.file != "-",
        }
    }

    /// Returns the actions for one of several processes, which never runs the command again.
    pub fn once(how: DiagnosticFormat, rank: u32) -> OnFailure {
        OnFailure { how, rank: Some(rank), again: false }
    }

    /// Prints the error and runs the command again if that may reveal its cause. Returns if it does not.
    pub fn rerun(self, error: &CliError) {
        let CliError::Exec { error: failure, .. } = error else { return };
        if !self.again || !failure.wants_diagnosis() {
            return;
        }
        let what = match failure {
            ExecError::Late { .. } => Diagnosis::Fault,
            _ => Diagnosis::Hang,
        };
        error.print(self.how);
        output::eprint(match what {
            Diagnosis::Hang => "Running it once more, with a mark at each operation, to find where it hangs:\n",
            Diagnosis::Fault => "Running it once more, one operation after the other, to find which one fails:\n",
        });
        // Returns only if the process cannot be replaced. The error has been printed already.
        let _ = restart(&["--diagnose", what.name()], &[]);
        backend::leave(FAILED);
    }

    /// Ends the program because a thread is stuck in a call, so the run cannot end regularly.
    pub fn leave(self, error: CliError) -> ! {
        self.rerun(&error);
        if self.rank.is_none_or(|rank| multi_process::prints_error(&error, rank)) {
            error.print(self.how);
        }
        backend::leave(error.code());
    }
}

impl RunContext<'_> {
    /// Searches for the operation that failed.
    pub(super) fn diagnose(&self, what: Diagnosis) -> CliResult {
        let schedules = self.schedules();
        let ranks = exec::RankSchedule::all(0, &self.loaded.compiled.ranks, &schedules);
        let opened = exec::prepare_ranks(&ranks, self.chosen.backend.as_ref(), &self.exec_options());
        let nothing = match what {
            Diagnosis::Hang => "It did not hang again: its first iterations completed.\n",
            Diagnosis::Fault => {
                "It did not fail again with one operation after the other: the failure depends on concurrency, as a race \
                 does, or on the machine.\n"
            }
        };
        let found = opened.and_then(|mut ranks| ranks.diagnose(what, &self.control));
        found.map_err(|error| self.failed(error))?;
        output::eprint(nothing);
        Ok(FAILED)
    }
}
