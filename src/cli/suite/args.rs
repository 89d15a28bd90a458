//! The arguments of `aorta suite`.

use clap::Args;

use crate::cli::outputs::{Files, PageArgs};
use crate::cli::passed::{Passed, PassedOptions};

const AFTER_HELP: &str = "\
A NAME is that of a shipped suite, or the path of your own (`.ron`). Each case is a run of `aorta exec` in a
process of its own.

Exit codes: 0 all cases that ran are done; 1 an expectation, a verification or a limit did not hold; 2 bad
input; 4 a case failed, or no case ran; 130 interrupted. A case that is skipped or missing fails the suite
with `--strict`; without it, as long as another case ran, it does not.";

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct SuiteArgs {
    /// The suite; without it, the shipped suites are listed
    pub name: Option<String>,
    /// Run only the cases whose name contains this
    #[arg(long, value_name = "TEXT")]
    pub only: Option<String>,
    /// Print the command of each case without running anything
    #[arg(long)]
    pub dry_run: bool,
    /// Also fail if a case was skipped or is missing
    #[arg(long)]
    pub strict: bool,
    #[command(flatten)]
    pub page: PageArgs,
    #[command(flatten)]
    pub files: Files,
    /// Continue the same suite: cases that are in the file do not run again
    #[arg(long, requires = "json")]
    pub resume: bool,
    #[command(flatten)]
    pub same: Passed<CaseOptions>,
}

/// Options that apply to all cases.
#[derive(Clone, Debug)]
pub struct CaseOptions;

impl PassedOptions for CaseOptions {
    const HEADING: &str = "Of all cases";
    const OPTIONS: &[&str] =
        &["backend", "device", "effort", "expected", "env", "config", "config-file", "allow-kernels"];
}
