//! The arguments of `aorta suite`.

use clap::Args;

use crate::cli::ConfigArgs;
use crate::cli::commands::forwarded_options::{ForwardedArgs, ForwardedOptions};
use crate::cli::io::outputs::{FileOptions, PageArgs};
use crate::measure::cases::Partition;

const AFTER_HELP: &str = "\
NAME is the name of a shipped suite, or the path of your own (`.ron`). Each case runs as `aorta exec` in its \
own process.

Exit codes: 0 all cases that ran are done; 1 an expectation, a verification or a limit did not hold; 2 bad \
input; 4 a case failed, or no case ran; 130 interrupted. A case that is skipped or missing fails the suite \
with `--strict`; without it, as long as another case ran, it does not.";

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct SuiteArgs {
    /// The suite; without it, the shipped suites are listed
    pub name: Option<String>,
    /// Run only the cases whose name contains this
    #[arg(long, value_name = "TEXT", requires = "name")]
    pub only: Option<String>,
    /// Also fail if a case was skipped or is missing
    #[arg(long, requires = "name")]
    pub strict: bool,
    /// Run part K of N of the cases, for several machines; `aorta report` joins their files
    #[arg(long, value_name = "K/N", requires = "name")]
    pub partition: Option<Partition>,
    #[command(flatten)]
    pub run: RunArgs,
    #[command(flatten)]
    pub same: ForwardedArgs<CaseOptions>,
}

/// Options that `aorta suite` shares with `aorta baseline`.
#[derive(Debug, Default, Args)]
pub struct RunArgs {
    /// Print the command of each case without running anything
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub page: PageArgs,
    #[command(flatten)]
    pub files: FileOptions,
    /// Continue an interrupted run: cases that are in its file do not run again
    #[arg(long, requires = "json")]
    pub resume: bool,
}

impl SuiteArgs {
    /// The arguments of a suite whose cases are compiled for the simulator.
    pub fn simulated(name: &str, config: &ConfigArgs) -> SuiteArgs {
        let mut given = vec![("backend", Some("sim".to_owned()))];
        given.extend(config.config.iter().map(|pair| ("config", Some(pair.clone()))));
        given.extend(config.config_file.iter().map(|path| ("config-file", Some(path.display().to_string()))));
        SuiteArgs {
            name: Some(name.to_owned()),
            only: None,
            strict: false,
            partition: None,
            run: RunArgs { dry_run: true, ..RunArgs::default() },
            same: ForwardedArgs::new(given),
        }
    }
}

/// Options that apply to all cases.
#[derive(Clone, Debug)]
pub struct CaseOptions;

impl ForwardedOptions for CaseOptions {
    const HEADING: &str = "Of all cases";
    const OPTIONS: &[&str] =
        &["backend", "device", "effort", "expected", "set", "env", "config", "config-file", "allow-kernels", "fuse"];
}
