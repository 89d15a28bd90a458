//! The arguments of `aorta ab`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::config::MAX_ITERATIONS;
use crate::measure::effect::THRESHOLD;
use crate::measure::paired::FEWEST;

const AFTER_HELP: &str = "\
A side is a text in quotes with options of `aorta exec`: `--a \"--streams 8\" --b \"--streams 16 --env
GPU_MAX_HW_QUEUES=8\"`. It may begin with a file of its own. A side overrides options of both sides.
A side that is not given is the file as it is. The quotes may be left out: `--a --streams 8 --b
--streams 16`; the options up to the next side are then that side's.

Exit codes: 0 compared; 1 b is what `--fail-on` names; 2 bad input; 3 no such device or backend; 4 a
side failed; 130 interrupted.";

/// Rounds where nobody says how many.
pub const ROUNDS: u32 = 16;

/// Rounds at most.
const MOST_ROUNDS: i64 = 1024;

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct AbArgs {
    /// A workload file, the name of a shipped workload, or a scenario (`.ron`)
    pub file: String,
    /// What the first side is given
    #[arg(long, value_name = "OPTIONS", default_value = "", hide_default_value = true, allow_hyphen_values = true)]
    pub a: String,
    /// What the second side is given
    #[arg(long, value_name = "OPTIONS", default_value = "", hide_default_value = true, allow_hyphen_values = true)]
    pub b: String,
    /// Rounds of four blocks: A B B A, or B A A B
    #[arg(long, value_name = "N", default_value_t = ROUNDS)]
    #[arg(value_parser = clap::value_parser!(u32).range(FEWEST as i64..=MOST_ROUNDS))]
    pub rounds: u32,
    /// Iterations of a block, in place of as many as take about 20 ms
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_ITERATIONS)))]
    pub iterations: Option<u32>,
    /// The difference that matters, 3% where nothing is said
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub threshold: Option<f64>,
    /// What the order of the blocks is drawn from
    #[arg(long, value_name = "N", default_value = "1")]
    pub seed: u64,
    /// Give each block a process of its own: what differs from one process to the next is then part of the interval
    #[arg(long)]
    pub fresh: bool,
    /// Leave out the runs of each side by itself
    #[arg(long)]
    pub no_apart: bool,
    /// What makes the exit code 1
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    pub fail_on: Vec<FailOnArg>,
    /// Write the record of the comparison, with every sample
    #[arg(long, value_name = "PATH")]
    pub json: Option<PathBuf>,
    #[command(flatten)]
    pub both: BothArgs,
}

/// What `--fail-on` may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FailOnArg {
    /// B is worse than A
    Worse,
    /// Nothing can be said
    CannotTell,
}

/// Options of `aorta exec` that both sides have. They are handed on as they are.
#[derive(Debug, Args)]
#[command(next_help_heading = "Of both sides")]
pub struct BothArgs {
    /// What runs it
    #[arg(long, value_name = "BACKEND")]
    backend: Option<String>,
    /// The GPU, by its number
    #[arg(long, value_name = "N")]
    device: Option<String>,
    /// Ranks, each on a GPU of its own, or simulated
    #[arg(long, value_name = "N")]
    ranks: Option<String>,
    /// Give a parameter a value
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// Take the parameters of a preset
    #[arg(long, value_name = "NAME")]
    preset: Option<String>,
    /// The parameter `streams` where the file has one, else the most real streams
    #[arg(long, value_name = "N")]
    streams: Option<String>,
    /// How operations reach the device: stream, graph
    #[arg(long, value_name = "HOW")]
    launch: Option<String>,
    /// Warm-up iterations
    #[arg(long, value_name = "N")]
    warmup: Option<String>,
    /// How long an iteration may take before a run is called hung, such as `10s`
    #[arg(long, value_name = "TIME")]
    timeout: Option<String>,
    /// Set a variable for the vendor's driver
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// Change a setting
    #[arg(long, value_name = "KEY=VALUE")]
    config: Vec<String>,
    /// Read settings from this file, in place of your own
    #[arg(long, value_name = "PATH")]
    config_file: Option<String>,
}

impl AbArgs {
    pub fn threshold(&self) -> f64 {
        self.threshold.unwrap_or(THRESHOLD)
    }
}

impl BothArgs {
    /// The options as `aorta exec` takes them, each a word of its own.
    pub fn words(&self) -> Vec<String> {
        let single = [
            ("backend", &self.backend),
            ("device", &self.device),
            ("ranks", &self.ranks),
            ("preset", &self.preset),
            ("streams", &self.streams),
            ("launch", &self.launch),
            ("warmup", &self.warmup),
            ("timeout", &self.timeout),
            ("config-file", &self.config_file),
        ];
        let single = single.into_iter().filter_map(|(option, value)| Some((option, value.as_ref()?)));
        let several = [("set", &self.set), ("env", &self.env), ("config", &self.config)];
        let several = several.into_iter().flat_map(|(option, values)| values.iter().map(move |value| (option, value)));
        single.chain(several).map(|(option, value)| format!("--{option}={value}")).collect()
    }
}

/// A share: `3%`, or `0.03`.
pub fn share(text: &str) -> Result<f64, String> {
    let parsed = match text.trim().strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().map(|percent| percent / 100.0),
        None => text.trim().parse::<f64>(),
    };
    let share = parsed.ok().filter(|share| (0.0..1.0).contains(share));
    share.ok_or_else(|| "a share is between 0 and 1, such as `3%` or `0.03`".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_read_both_ways() {
        assert_eq!((share("3%"), share("0.03"), share(" 0 ")), (Ok(0.03), Ok(0.03), Ok(0.0)));
        for wrong in ["", "%", "3", "-1%", "100%", "NaN", "a"] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
    }
}
