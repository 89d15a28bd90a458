//! The arguments of `aorta suite`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::cli::passed::{Passed, Passing};

const AFTER_HELP: &str = "\
A NAME is that of a shipped suite, or the path of your own (`.ron`). Each case is a run of `aorta exec` in a
process of its own.

Exit codes: 0 all cases that ran are done; 1 an expectation, a verification or a limit did not hold; 2 bad
input; 4 a case failed, or no case ran; 130 interrupted. A case that is skipped or missing fails the suite
with `--strict`; without it, as long as another case ran, it does not.";

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct SuiteArgs {
    /// The suite; without it, all that are shipped are listed
    pub name: Option<String>,
    /// Run only the cases whose name contains this
    #[arg(long, value_name = "TEXT")]
    pub only: Option<String>,
    /// Print the command of each case, and run nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Fail too where a case was skipped or is missing
    #[arg(long)]
    pub strict: bool,
    /// How the page looks
    #[arg(long, value_name = "FORMAT", default_value = "table", hide_default_value = true)]
    pub format: FormatArg,
    /// Append each case with its record to this file when it has ended
    #[arg(long, value_name = "PATH")]
    pub json: Option<PathBuf>,
    /// Go on with the same suite: cases that the file has are not run again
    #[arg(long, requires = "json")]
    pub resume: bool,
    #[command(flatten)]
    pub same: Passed<OfAllCases>,
}

/// Options that all cases have.
#[derive(Clone, Debug)]
pub struct OfAllCases;

impl Passing for OfAllCases {
    const HEADING: &str = "Of all cases";
    const OPTIONS: &[&str] = &["backend", "device", "effort", "expected", "env", "config", "config-file"];
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FormatArg {
    /// For the terminal
    Table,
    /// For pages and comments
    Markdown,
    /// For machines that build and test
    Junit,
}
