//! Prints and writes the results of a run: at its end, or the partial results if the process must exit early.

use std::sync::Mutex;
use std::time::Duration;

use crate::base::threads::lock;
use crate::config::Expected;
use crate::measure::RunRecord;

use super::interrupt::print_in_time;
use super::prepare::PreparedRun;
use crate::cli::error::CliError;
use crate::cli::inputs::expected::{self, ExpectedArgs};
use crate::cli::io::output;
use crate::cli::io::outputs::RunOutputs;

/// Time allowed for the thread that exits the process to report the results.
const REPORT_TIMEOUT: Duration = Duration::from_secs(10);

/// Files and forms of a run's results.
pub(super) struct ResultOutputs {
    /// True if this process prints and writes files.
    leads: bool,
    expected: ExpectedArgs,
    /// The user's own normal ranges; `None` if not given.
    own: Option<Expected>,
    output: RunOutputs,
    kept: Mutex<Partial>,
}

/// Partial results of a run in progress.
#[derive(Default)]
enum Partial {
    #[default]
    Nothing,
    Some(Box<RunRecord>),
    /// A thread has begun to report them.
    Taken,
}

impl ResultOutputs {
    pub fn of(ready: &PreparedRun, leads: bool) -> ResultOutputs {
        let PreparedRun { args, expected, .. } = ready;
        ResultOutputs {
            leads,
            expected: args.expected.clone(),
            own: expected.clone(),
            output: args.output.clone(),
            kept: Mutex::default(),
        }
    }

    /// Keeps partial results in case the process must exit early.
    pub fn keep(&self, record: RunRecord) {
        let mut kept = lock(&self.kept);
        if !matches!(*kept, Partial::Taken) {
            *kept = Partial::Some(Box::new(record));
        }
    }

    /// Claims the right to report. Returns the figures that were kept, or `None` if another thread is already
    /// reporting.
    fn take(&self) -> Option<Partial> {
        let mut kept = lock(&self.kept);
        match std::mem::replace(&mut *kept, Partial::Taken) {
            Partial::Taken => None,
            kept => Some(kept),
        }
    }

    /// Prints and writes a record. If one output fails, the others are still written, and the first error is returned.
    pub fn report(&self, record: &mut RunRecord) -> Result<(), CliError> {
        if self.take().is_none() {
            // Another thread is reporting partial results and will then exit the process.
            std::thread::sleep(REPORT_TIMEOUT);
        }
        self.write(record)
    }

    /// Reports the partial results with `warning`, before the process exits early; if there are none, prints
    /// `without_results`. Returns false if the run's own thread is reporting: it is not stuck and will exit by itself.
    pub fn report_partial(&self, warning: &str, without_results: &str) -> bool {
        let Some(kept) = self.take() else { return false };
        if let Partial::Some(mut record) = kept {
            record.complete = false;
            record.warnings.push(warning.to_owned());
            if let Err(unwritable) = self.write(&mut record) {
                output::eprint(&format!("{}\n", unwritable.text()));
            }
        } else if self.leads {
            print_in_time(without_results.to_owned());
        }
        true
    }

    fn write(&self, record: &mut RunRecord) -> Result<(), CliError> {
        expected::judge(record, self.own.as_ref());
        if !self.leads {
            return Ok(());
        }
        Ok(self.output.show(record, None, self.expected.page(record, self.own.as_ref()))?)
    }
}
