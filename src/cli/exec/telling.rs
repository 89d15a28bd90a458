//! What is printed and written of a run: in the end, or of as much as there is when the process has to be left.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::config::Expected;
use crate::measure::RunRecord;
use crate::report;

use super::prepare::Ready;
use crate::cli::error::CliError;
use crate::cli::expected::{self, ExpectedArgs};
use crate::cli::output;
use crate::cli::outputs::{Files, PageArgs};

/// How long a thread that is about to end the process may take to tell the figures.
const LEAVING: Duration = Duration::from_secs(10);

/// Where the figures of a run go.
pub(super) struct Telling {
    /// This process prints and writes files.
    leads: bool,
    expected: ExpectedArgs,
    /// The caller's own ranges of what is normal.
    own: Option<Expected>,
    top: Option<u32>,
    page: PageArgs,
    files: Files,
    trace: Option<PathBuf>,
    kept: Mutex<Kept>,
}

/// The figures that there are while a run goes on.
#[derive(Default)]
enum Kept {
    #[default]
    Nothing,
    Some(Box<RunRecord>),
    /// A thread has begun to tell them.
    Told,
}

impl Telling {
    pub fn of(ready: &Ready, leads: bool) -> Telling {
        let Ready { args, expected, .. } = ready;
        Telling {
            leads,
            expected: args.expected.clone(),
            own: expected.clone(),
            top: args.top,
            page: args.page.clone(),
            files: args.files.clone(),
            trace: args.trace.clone(),
            kept: Mutex::default(),
        }
    }

    /// Keeps what has been measured so far, in case that the process has to be left.
    pub fn keep(&self, record: RunRecord) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if !matches!(*kept, Kept::Told) {
            *kept = Kept::Some(Box::new(record));
        }
    }

    /// From now on nobody tells but the caller. Returns what was kept, or `None` where another thread is telling already.
    fn take(&self) -> Option<Kept> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *kept, Kept::Told) {
            Kept::Told => None,
            kept => Some(kept),
        }
    }

    /// Prints and writes a record. What cannot be written does not keep the rest from it: the error is the first of them.
    pub fn tell(&self, record: &mut RunRecord) -> Result<(), CliError> {
        if self.take().is_none() {
            // Another thread is telling what was kept, and then ends the process.
            std::thread::sleep(LEAVING);
        }
        self.write(record)
    }

    /// Tells what was kept of a run, with `warning`, for a process that is about to be left. Returns false where the run's
    /// own thread is telling its figures: then it is not stuck, and ends the process itself.
    pub fn tell_kept(&self, warning: &str) -> bool {
        let Some(kept) = self.take() else { return false };
        if let Kept::Some(mut record) = kept {
            record.complete = false;
            record.warnings.push(warning.to_owned());
            if let Err(unwritable) = self.write(&mut record) {
                output::eprint(&format!("{}\n", unwritable.text()));
            }
        }
        true
    }

    fn write(&self, record: &mut RunRecord) -> Result<(), CliError> {
        expected::judge(record, self.own.as_ref());
        if !self.leads {
            return Ok(());
        }
        let mut pages = vec![report::run(record, None)];
        pages.extend(self.expected.page(record, self.own.as_ref()));
        pages.extend(self.top.map(|top| report::top(record, None, top as usize)));
        let shown = self.page.show(&pages, || record.to_json());
        let written = self.files.write(record, self.trace.as_ref());
        shown?;
        Ok(written?)
    }
}
