//! The arguments of `aorta suite`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::cli::backends::BackendArg;
use crate::cli::exec::EffortArg;

const AFTER_HELP: &str = "\
A NAME is that of a shipped suite, or the path of your own (`.ron`). Each case is a run of `aorta exec` in a
process of its own.

Exit codes: 0 all cases that ran are held; 1 an expectation, a verification or a limit did not hold; 2 bad
input; 4 a case failed, or no case ran; 130 interrupted. A case that is skipped or missing fails the suite
with `--strict`; without it, as long as another case ran, it does not.";

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct SuiteArgs {
    /// The suite; without it, all that are shipped are listed
    pub name: Option<String>,
    /// What runs the cases
    #[arg(long, value_name = "BACKEND")]
    pub backend: Option<BackendArg>,
    /// The GPU, by its number
    #[arg(long, value_name = "N")]
    pub device: Option<u32>,
    /// How long to measure, in place of what the suite says
    #[arg(long, value_name = "EFFORT")]
    pub effort: Option<EffortArg>,
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
    /// Judge by your own ranges what is normal
    #[arg(long, value_name = "PATH", num_args = 1, require_equals = true)]
    pub expected: Option<PathBuf>,
    /// Set a variable for the vendor's driver
    #[arg(long, value_name = "NAME=VALUE")]
    pub env: Vec<String>,
    #[command(flatten)]
    pub config: crate::cli::ConfigArgs,
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

/// How a value is typed.
fn word<T: ValueEnum>(value: &T) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

impl SuiteArgs {
    /// What every case gets of these, as `aorta exec` takes it.
    pub fn shared(&self) -> Vec<String> {
        let mut shared = Vec::new();
        shared.extend(self.backend.iter().map(|backend| format!("--backend={}", word(backend))));
        shared.extend(self.device.iter().map(|device| format!("--device={device}")));
        shared.extend(self.effort.iter().map(|effort| format!("--effort={}", word(effort))));
        shared.extend(self.expected.iter().map(|path| format!("--expected={}", path.display())));
        shared.extend(self.env.iter().map(|pair| format!("--env={pair}")));
        shared.extend(self.config.config.iter().map(|pair| format!("--config={pair}")));
        shared.extend(self.config.config_file.iter().map(|path| format!("--config-file={}", path.display())));
        shared
    }
}
