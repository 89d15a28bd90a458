//! The arguments of `aorta sweep`.

use clap::{Args, ValueEnum};

use super::axes::shuffled;
use crate::cli::outputs::{Files, PageArgs};
use crate::cli::passed::{Passed, PassedOptions};
use crate::measure::cases::Partition;

const AFTER_HELP: &str = "\
A LIST has commas between its values: `1,2,4`. Commas in brackets and quotes do not count, so that
`[1,2],[3]` are two values. An option with several values is an axis; with one, it is the same in
all cases. A preset that gives a parameter a list makes an axis of it. The other options are those
of `aorta exec`. Without `--json`, cases are kept below ~/.local/state/aorta/sweeps.

Exit codes: 0 all cases were run, also if some could not be or ran out of memory; 1 an expectation
did not hold; 2 bad input, or no case can run; 4 a case failed, or none was measured;
130 interrupted.";

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct SweepArgs {
    /// A workload file, the name of a shipped workload, or a scenario (`.ron`)
    pub file: String,
    #[command(flatten)]
    pub lists: Passed<Axes>,
    /// Combine the first values of all axes, the second values, and so on, instead of each with each
    #[arg(long)]
    pub zip: bool,
    /// Search for the best case instead of running all of them, for large spaces
    #[arg(long, conflicts_with_all = ["zip", "order", "csv", "retry", "format", "output", "html"], help_heading = "Search")]
    pub search: bool,
    /// Runs that a search may make, in addition to comparing its best case with the unchanged file
    #[arg(long, value_name = "N", default_value = "40", requires = "search", help_heading = "Search")]
    #[arg(value_parser = clap::value_parser!(u32).range(4..=4096))]
    pub budget: u32,
    /// Seed of the search
    #[arg(long, value_name = "N", default_value = "1", requires = "search", help_heading = "Search")]
    pub seed: u64,
    /// In which order cases run
    #[arg(long, value_name = "ORDER", default_value = "shuffled")]
    pub order: Order,
    /// Sort the table by an axis, `median`, `rate` or a metric, the best first; `-NAME` reverses the order
    #[arg(long, value_name = "NAME", allow_hyphen_values = true, conflicts_with = "search")]
    pub sort: Option<String>,
    /// Run part K of N of the cases, for several machines; `aorta report` joins their files
    #[arg(long, value_name = "K/N", conflicts_with = "search")]
    pub partition: Option<Partition>,
    #[command(flatten)]
    pub page: PageArgs,
    #[command(flatten)]
    pub files: Files,
    /// Continue the same sweep: cases that are in its file do not run again
    #[arg(long)]
    pub resume: bool,
    /// With `--resume`: run cases again that failed or ran out of memory
    #[arg(long, requires = "resume")]
    pub retry: bool,
    #[command(flatten)]
    pub same: Passed<CaseOptions>,
}

/// Options that become an axis if they have several values, in the order of the axes.
#[derive(Clone, Debug)]
pub struct Axes;

impl PassedOptions for Axes {
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

impl PassedOptions for CaseOptions {
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

/// The order in which cases run.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub enum Order {
    /// A fixed shuffled order, so that a device that slows down causes no trend along an axis
    Shuffled,
    /// The order of the table
    Given,
}

impl Order {
    /// The indices of `count` cases in this order.
    pub fn of(self, count: usize) -> Vec<usize> {
        match self {
            Order::Shuffled => shuffled(count),
            Order::Given => (0..count).collect(),
        }
    }
}
