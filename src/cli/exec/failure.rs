//! What follows when a run has failed: where it is not certain which operation it is about, the same command goes once
//! more, to find out.
//!
//! It goes as a program of its own. A device that has failed in this one does not work again before it has ended, and
//! one that hangs keeps its memory.

use clap::ValueEnum;

use crate::backend;
use crate::exec::{self, Diagnosis, ExecError};

use super::measuring::Run;
use super::restart::restart;
use super::together;
use crate::cli::diagnostics::DiagnosticsArg;
use crate::cli::error::CliError;
use crate::cli::{CliResult, FAILED, output};

/// What `--diagnose` may be.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum DiagnoseArg {
    /// Where an iteration hangs
    Hang,
    /// Which operation fails
    Fault,
}

impl DiagnoseArg {
    fn name(self) -> &'static str {
        match self {
            DiagnoseArg::Hang => "hang",
            DiagnoseArg::Fault => "fault",
        }
    }
}

/// What is done about a failure.
#[derive(Clone, Copy, Debug)]
pub struct Aftermath {
    how: DiagnosticsArg,
    /// The rank of this process, where a launcher has started several.
    rank: Option<u32>,
    /// The command can go once more: it is not that already, no profiler watches, and its file can be read again.
    again: bool,
}

impl Aftermath {
    pub fn of(args: &super::ExecArgs, how: DiagnosticsArg) -> Aftermath {
        Aftermath {
            how,
            rank: None,
            again: args.diagnose.is_none() && args.ranges.is_none() && !args.blocks && args.file != "-",
        }
    }

    /// That of the process of a rank among others: none of them runs again by itself.
    pub fn once(how: DiagnosticsArg, rank: u32) -> Aftermath {
        Aftermath { how, rank: Some(rank), again: false }
    }

    /// Starts the command once more where that may say more about an error, which is told before. Comes back where it
    /// does not.
    pub fn look_again(self, error: &CliError) {
        let CliError::Exec { error: failure, .. } = error else { return };
        if !self.again || !failure.wants_diagnosis() {
            return;
        }
        let what = match failure {
            ExecError::Late { .. } => DiagnoseArg::Fault,
            _ => DiagnoseArg::Hang,
        };
        error.print(self.how);
        output::eprint(match what {
            DiagnoseArg::Hang => "Running it once more, with a mark at each operation, to find where it hangs:\n",
            DiagnoseArg::Fault => "Running it once more, one operation after the other, to find which one fails:\n",
        });
        // Where it can take this one's place it does so here. The error has been told in any case.
        let code = restart(&["--diagnose", what.name()], &[]).unwrap_or(FAILED);
        backend::leave(code);
    }

    /// A thread does not come back from a call, so that the run cannot end: the program does.
    pub fn leave(self, error: CliError) -> ! {
        self.look_again(&error);
        if self.rank.is_none_or(|rank| together::tells(&error, rank)) {
            error.print(self.how);
        }
        backend::leave(error.code());
    }
}

impl Run<'_> {
    /// Looks for the operation that a run failed at.
    pub(super) fn diagnose(&self, what: DiagnoseArg) -> CliResult {
        let schedules = self.schedules();
        let ranks: Vec<exec::Rank> =
            (0..).zip(&self.loaded.compiled.ranks).zip(&schedules).map(super::measuring::one).collect();
        let opened = exec::prepare_ranks(&ranks, self.chosen.backend.as_ref(), &self.exec_options());
        let (diagnosis, nothing) = match what {
            DiagnoseArg::Hang => {
                (Diagnosis::Hang, "It did not hang again: in its first iterations everything came to its end.\n")
            }
            DiagnoseArg::Fault => (
                Diagnosis::Fault,
                "It did not fail again, one operation after the other: what failed needs them side by side, as a race \
                 does, or came from the machine.\n",
            ),
        };
        let found = opened.and_then(|mut ranks| ranks.diagnose(diagnosis, &self.control));
        found.map_err(|error| self.failed(error))?;
        output::eprint(nothing);
        Ok(FAILED)
    }
}
