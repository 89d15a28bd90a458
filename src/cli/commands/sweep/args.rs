//! The arguments of `aorta sweep`.

use clap::Args;

use super::axes::shuffled;
use crate::cli::commands::forwarded_options::{ForwardedArgs, ForwardedOptions};
use crate::cli::error::InputError;
use crate::cli::io::outputs::{FileOptions, PageArgs};
use crate::config::CaseOrder;
use crate::measure::cases::Partition;

const AFTER_HELP: &str = "\
A LIST has commas between its values: `1,2,4`. Commas in brackets and quotes do not count, so that \
`max(1,2),8` are two values. An option with several values is an axis; with one, it is the same in \
all cases. A preset that gives a parameter a list makes an axis of it. The other options are those \
of `aorta exec`. Without `--json`, cases are kept below ~/.local/state/aorta/sweeps.

Exit codes: 0 all cases were run, also if some could not be or ran out of memory; 1 an expectation \
did not hold; 2 bad input, or no case can run; 4 a case failed, or none was measured; \
130 interrupted.";

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct SweepArgs {
    /// A workload file, the name of a shipped workload, or a scenario (`.ron`)
    pub file: String,
    #[command(flatten)]
    pub lists: ForwardedArgs<Axes>,
    /// Pair the values of all axes by position, instead of running all combinations
    #[arg(long)]
    pub zip: bool,
    /// Search for the best case instead of running all of them, for large spaces
    #[arg(long, conflicts_with_all = ["zip", "order", "csv", "retry", "format", "output", "html"], help_heading = "Search")]
    pub search: bool,
    /// Runs that a search may make, 4 to 4096, in addition to comparing its best case with the unchanged file; 40 by default
    #[arg(long, value_name = "N", help_heading = "Search")]
    #[arg(value_parser = clap::value_parser!(u32).range(4..=4096))]
    pub budget: Option<u32>,
    /// Seed of the search, 1 by default
    #[arg(long, value_name = "N", help_heading = "Search")]
    pub seed: Option<u64>,
    /// Skip the cases of a value that the workload refuses, instead of refusing the sweep
    #[arg(long)]
    pub skip_invalid: bool,
    /// Order in which the cases run, shuffled by default
    #[arg(long, value_name = "ORDER")]
    pub order: Option<CaseOrder>,
    /// Sort the table by an axis, `median`, `rate` or a metric, the best first; `-NAME` reverses the order
    #[arg(long, value_name = "NAME", allow_hyphen_values = true, conflicts_with = "search")]
    pub sort: Option<String>,
    /// Run part K of N of the cases, for several machines; `aorta report` joins their files
    #[arg(long, value_name = "K/N", conflicts_with = "search")]
    pub partition: Option<Partition>,
    #[command(flatten)]
    pub page: PageArgs,
    #[command(flatten)]
    pub files: FileOptions,
    /// Continue the same sweep: cases that are in its file do not run again
    #[arg(long)]
    pub resume: bool,
    /// With `--resume`: run cases again that failed or ran out of memory
    #[arg(long, requires = "resume")]
    pub retry: bool,
    #[command(flatten)]
    pub same: ForwardedArgs<CaseOptions>,
}

/// Options that become an axis if they have several values, in the order of the axes.
#[derive(Clone, Debug)]
pub struct Axes;

impl ForwardedOptions for Axes {
    const HEADING: &str = "Axes";
    const OPTIONS: &[&str] = &[
        "preset", "set", "streams", "ranks", "launch", "sync", "cache", "gate", "data", "device", "emulate", "env",
        "config",
    ];
    const LISTS: bool = true;
}

/// Options that apply to all cases.
#[derive(Clone, Debug)]
pub struct CaseOptions;

impl ForwardedOptions for CaseOptions {
    const HEADING: &str = "Of all cases";
    const OPTIONS: &[&str] = &[
        "backend",
        "effort",
        "warmup",
        "iterations",
        "timeout",
        "cycle",
        "config-file",
        "allow-kernels",
        "fuse",
        "verify",
    ];
}

/// Default number of runs of a search.
const BUDGET: u32 = 40;

/// Default seed of a search.
const SEED: u64 = 1;

impl SweepArgs {
    /// Returns these arguments, completed by those that a scenario gives.
    ///
    /// # Errors
    ///
    /// Fails if an option for a search is given without a search, or an option for a sweep with one.
    pub fn over(self, below: SweepArgs) -> Result<SweepArgs, InputError> {
        self.check_search(below.search)?;
        Ok(SweepArgs {
            zip: self.zip || below.zip,
            skip_invalid: self.skip_invalid || below.skip_invalid,
            search: self.search || below.search,
            budget: self.budget.or(below.budget),
            seed: self.seed.or(below.seed),
            order: self.order.or(below.order),
            sort: self.sort.or(below.sort),
            ..self
        })
    }

    /// Fails if an option only makes sense with a search and there is none, neither here nor in the scenario, or if the
    /// scenario searches and an option makes no sense then.
    pub fn check_search(&self, scenario_searches: bool) -> Result<(), InputError> {
        let of_search = [(self.budget.is_some(), "--budget"), (self.seed.is_some(), "--seed")];
        let of_all = [
            (self.zip, "--zip"),
            (self.order.is_some(), "--order"),
            (self.sort.is_some(), "--sort"),
            (self.partition.is_some(), "--partition"),
            (self.retry, "--retry"),
            (self.files.csv.is_some(), "--csv"),
            (self.page.is_given(), "--format"),
            (self.page.html.is_some(), "--html"),
        ];
        let first =
            |options: &[(bool, &'static str)]| options.iter().find(|(given, _)| *given).map(|(_, option)| *option);
        let (option, why, help) = match (self.search, scenario_searches) {
            (false, false) => (first(&of_search), "is an option of a search", "add `--search`, or leave it out"),
            (_, true) => (
                first(&of_all),
                "does not apply: the scenario searches for the best case instead of running all",
                "leave it out, or take `search: true` out of the scenario",
            ),
            _ => (None, "", ""),
        };
        option
            .map_or(Ok(()), |option| Err(InputError::Axes { why: format!("`{option}` {why}"), help: help.to_owned() }))
    }

    pub fn budget(&self) -> usize {
        self.budget.unwrap_or(BUDGET) as usize
    }

    pub fn seed(&self) -> u64 {
        self.seed.unwrap_or(SEED)
    }

    /// The indices of `count` cases in the order in which they run.
    pub fn order_of(&self, count: usize) -> Vec<usize> {
        match self.order.unwrap_or(CaseOrder::Shuffled) {
            CaseOrder::Shuffled => shuffled(count),
            CaseOrder::Given => (0..count).collect(),
        }
    }
}
