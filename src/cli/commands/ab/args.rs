//! The arguments of `aorta ab`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::cli::commands::forwarded_options::{ForwardedArgs, ForwardedOptions};
use crate::cli::io::outputs::{PageArgs, share};
use crate::config::MAX_ITERATIONS;
use crate::measure::effect::THRESHOLD;
use crate::measure::paired::MIN_ROUNDS;

const AFTER_HELP: &str = "\
A side is a text in quotes with options of `aorta exec`: `--a \"--streams 8\" --b \"--streams 16 --env \
GPU_MAX_HW_QUEUES=8\"`. It may begin with another file. Its options override those given for both \
sides. A side that is not given runs the unchanged file. Quotes are optional: in `--a --streams 8 --b \
--streams 16`, the options up to the next side belong to the side before them.

Exit codes: 0 compared; 1 b is what `--fail-on` names; 2 bad input; 3 no such device or backend; 4 a \
side failed; 130 interrupted.";

/// Default number of rounds.
pub const ROUNDS: u32 = 16;

/// Default seed of the order of blocks.
pub const SEED: u64 = 1;

/// Largest number of rounds.
const MAX_ROUNDS: i64 = 1024;

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct AbArgs {
    /// A workload file, the name of a shipped workload, or a scenario (`.ron`)
    pub file: String,
    /// Options of the first side, in quotes
    #[arg(long, value_name = "OPTIONS", default_value = "", hide_default_value = true, allow_hyphen_values = true)]
    pub a: String,
    /// Options of the second side, in quotes
    #[arg(long, value_name = "OPTIONS", default_value = "", hide_default_value = true, allow_hyphen_values = true)]
    pub b: String,
    /// Rounds of four blocks, A B B A or B A A B: 6 to 1024, 16 by default
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(MIN_ROUNDS as i64..=MAX_ROUNDS))]
    pub rounds: Option<u32>,
    /// Iterations of a block, instead of as many as take about 20 ms
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_ITERATIONS)))]
    pub iterations: Option<u32>,
    /// Smallest difference that matters, 3% by default
    #[arg(long, value_name = "SHARE", value_parser = share, allow_hyphen_values = true)]
    pub threshold: Option<f64>,
    /// Seed of the random order of blocks, 1 by default
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Run each block in a process of its own: the interval then includes differences between processes
    #[arg(long)]
    pub fresh: bool,
    /// Skip the additional runs of each side by itself
    #[arg(long)]
    pub no_apart: bool,
    /// Exit with code 1 in this case
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    pub fail_on: Vec<FailOnArg>,
    /// Write the record of the comparison, with every sample
    #[arg(long, value_name = "PATH")]
    pub json: Option<PathBuf>,
    #[command(flatten)]
    pub page: PageArgs,
    #[command(flatten)]
    pub both: ForwardedArgs<SideOptions>,
}

/// Values of `--fail-on`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FailOnArg {
    /// B is worse than A
    Worse,
    /// The difference is too uncertain for a verdict
    CannotTell,
}

/// Options that apply to both sides.
#[derive(Clone, Debug)]
pub struct SideOptions;

impl ForwardedOptions for SideOptions {
    const HEADING: &str = "Of both sides";
    const OPTIONS: &[&str] = &[
        "backend",
        "device",
        "ranks",
        "preset",
        "streams",
        "launch",
        "warmup",
        "timeout",
        "config-file",
        "allow-kernels",
        "fuse",
        "set",
        "env",
        "config",
    ];
}

impl AbArgs {
    /// Returns these arguments, completed by those of a scenario. Giving one side replaces both sides of the scenario.
    pub fn over(self, below: AbArgs) -> AbArgs {
        let is_own = !self.a.is_empty() || !self.b.is_empty();
        let (a, b) = if is_own { (self.a, self.b) } else { (below.a, below.b) };
        AbArgs {
            a,
            b,
            rounds: self.rounds.or(below.rounds),
            iterations: self.iterations.or(below.iterations),
            threshold: self.threshold.or(below.threshold),
            seed: self.seed.or(below.seed),
            fresh: self.fresh || below.fresh,
            no_apart: self.no_apart || below.no_apart,
            fail_on: if self.fail_on.is_empty() { below.fail_on } else { self.fail_on },
            ..self
        }
    }

    pub fn threshold(&self) -> f64 {
        self.threshold.unwrap_or(THRESHOLD)
    }
}
