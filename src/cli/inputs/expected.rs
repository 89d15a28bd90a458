//! Finds the normal ranges that figures are compared with, for `exec` and `report`.

use std::path::Path;

use clap::Args;

use crate::config::Expected;
use crate::measure::{RunRecord, expected};
use crate::report;
use crate::report::page::Page;

use super::load;
use crate::cli::error::CliError;

#[derive(Clone, Debug, Default, Args)]
pub struct ExpectedArgs {
    /// List every figure with its normal range on the device and the source; with `=PATH`, use your own ranges
    #[arg(long, value_name = "PATH", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    expected: Option<String>,
}

impl ExpectedArgs {
    /// Returns these options, or those of `below` if no option was given.
    pub fn over(self, below: ExpectedArgs) -> ExpectedArgs {
        ExpectedArgs { expected: self.expected.or(below.expected) }
    }

    /// The file that the user named; `None` without one.
    pub fn path(&self) -> Option<&str> {
        self.expected.as_deref().filter(|path| !path.is_empty())
    }

    /// The option as typed; `None` if it was not given.
    pub fn word(&self) -> Option<String> {
        let path = self.expected.as_deref()?;
        Some(if path.is_empty() { "--expected".to_owned() } else { format!("--expected={path}") })
    }

    /// The ranges in the file that the user named; `None` without one. Read before a run, so that mistakes are found
    /// early.
    pub fn own(&self) -> Result<Option<Expected>, CliError> {
        let read = |path: &str| -> Result<Expected, CliError> {
            Ok(Expected::parse(path, &load::read(Path::new(path), load::FileKind::Expected)?)?)
        };
        self.path().map(read).transpose()
    }

    /// The page of ranges; `None` if it was not requested.
    pub fn page(&self, record: &RunRecord, own: Option<&Expected>) -> Option<Page> {
        self.expected.as_ref()?;
        if !record.expected.is_empty() {
            return Some(report::expected(record));
        }
        let why = match of(record, own) {
            None => format!("no normal ranges are known for {}", record.device.name),
            Some(known) => expected::why_inapplicable(record, &known)
                .unwrap_or_else(|| format!("{} has no ranges for the figures of this run", known.file)),
        };
        Some(Page { summary: format!("no verdict: {why}"), ..Page::default() })
    }

    /// True if the user's options can change a record's verdicts.
    pub fn given(&self) -> bool {
        self.expected.is_some()
    }
}

/// The ranges for a record: the user's own, or those shipped for its device; `None` if there are none for it.
fn of(record: &RunRecord, own: Option<&Expected>) -> Option<Expected> {
    own.cloned().or_else(|| Expected::of(&record.device.name))
}

/// Adds verdicts by normal ranges to a record.
pub fn judge(record: &mut RunRecord, own: Option<&Expected>) {
    if let Some(known) = of(record, own) {
        record.expected = expected::judge(record, &known);
    }
}
