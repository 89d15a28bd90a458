//! The arguments of `aorta baseline`.

use clap::{Args, ValueEnum};

use crate::cli::commands::forwarded_options::{ForwardedArgs, ForwardedOptions};
use crate::cli::commands::suite::RunArgs;
use crate::cli::error::InputError;
use crate::cli::targets;
use crate::config::Level;

/// Problems of each level with `--test`, as KernelBench's scripts have it.
const TEST_PROBLEMS: u32 = 5;

const AFTER_HELP: &str = "\
Each problem runs as `aorta exec` in its own process, measured with KernelBench's method: 3 trials of \
warm-up, then 100 measured ones, each with a cold cache and after the end of the previous one; times \
include the host's. The options above change that. The files are
    FOLDER/HARDWARE/baseline_time_aorta_eager.json and …_compiled.json
with the problems that ran; those of `--test` and `--problem` end in _test.json. \
`--mode compiled` merges chains of operations and launches one graph: `--fuse --launch graph`.

Exit codes: 0 all problems ran; 2 bad input; 4 a problem failed, or none ran; 130 interrupted.";

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct BaselineArgs {
    /// Levels to run; both by default
    #[arg(long, value_name = "N", num_args = 1.., value_delimiter = ',', default_values_t = 1..=Level::COUNT)]
    #[arg(hide_default_value = true, value_parser = clap::value_parser!(u32).range(1..=i64::from(Level::COUNT)))]
    pub level: Vec<u32>,
    /// Run one problem
    #[arg(long, value_name = "N", conflicts_with_all = ["max_problems", "test"])]
    pub problem: Option<u32>,
    /// The level of that problem
    #[arg(long, value_name = "L", requires = "problem", default_value = "1", hide_default_value = true)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(Level::COUNT)))]
    pub problem_level: u32,
    /// Run the first N problems of each level
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_problems: Option<u32>,
    /// Run the first five problems of each level with ten trials, as a test
    #[arg(long)]
    pub test: bool,
    /// Run in one mode: eager or compiled; both by default
    #[arg(long, value_name = "MODE")]
    pub mode: Option<Mode>,
    /// Name of the folder of this machine's files; the device's name by default
    #[arg(long, value_name = "NAME")]
    pub hardware: Option<String>,
    /// Folder of the folders of all machines
    #[arg(long, value_name = "PATH", default_value = "results/timing")]
    pub folder: std::path::PathBuf,
    /// Take the variables of a scenario's environment for all problems
    #[arg(long, value_name = "PATH")]
    pub scenario: Option<std::path::PathBuf>,
    #[command(flatten)]
    pub run: RunArgs,
    #[command(flatten)]
    pub same: ForwardedArgs<ProblemOptions>,
}

/// How problems are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// A kernel for each call, launched as streams
    Eager,
    /// Chains of operations merged, launched as one graph: `--fuse --launch graph`
    Compiled,
}

/// Options of `aorta exec` that apply to all problems.
#[derive(Clone, Debug)]
pub struct ProblemOptions;

impl ForwardedOptions for ProblemOptions {
    const HEADING: &str = "Of all problems";
    const OPTIONS: &[&str] = &[
        "backend",
        "device",
        "set",
        "effort",
        "warmup",
        "iterations",
        "cache",
        "gate",
        "data",
        "timeout",
        "verify",
        "env",
        "config",
        "config-file",
    ];
}

impl BaselineArgs {
    /// The chosen modes.
    pub fn modes(&self) -> Vec<Mode> {
        self.mode.map_or_else(|| Mode::value_variants().to_vec(), |mode| vec![mode])
    }

    /// The levels, each with the problems that are chosen.
    pub fn levels(&self) -> Result<Vec<Level>, InputError> {
        let numbers = if self.problem.is_some() { std::slice::from_ref(&self.problem_level) } else { &self.level[..] };
        let mut levels: Vec<Level> = Vec::new();
        for &number in numbers {
            if levels.iter().all(|level| level.number != number) {
                levels.push(Level::of(number)?);
            }
        }
        let most = self.max_problems.or(self.test.then_some(TEST_PROBLEMS)).unwrap_or(u32::MAX);
        for level in &mut levels {
            let count = level.problems.len();
            level.problems.retain(|problem| self.problem.is_none_or(|number| problem.number() == number));
            level.problems.truncate(most as usize);
            if level.problems.is_empty() {
                let why = format!("level {} has problems 1 to {count}", level.number);
                let number = self.problem.unwrap_or(0).to_string();
                return Err(InputError::bad_value("`--problem`", &number, &why, "write `--problem 19`"));
            }
        }
        Ok(levels)
    }

    /// True if the chosen problems are a test, whose files are not those of a baseline.
    pub fn is_test(&self) -> bool {
        self.test || self.problem.is_some()
    }

    /// Options of all problems, with those of KernelBench's method and `others` that are not given otherwise.
    pub fn options(&self, others: impl Iterator<Item = (&'static str, String)>) -> Vec<(&'static str, Option<String>)> {
        let trials = if self.test { "10" } else { "100" };
        let method =
            [("cache", "cold"), ("gate", "off"), ("warmup", "3"), ("iterations", trials), ("config", "in_flight=1")];
        let method = method.into_iter().filter(|(name, _)| !self.shortened(name));
        let given = self.same.words();
        let own = method.map(|(name, value)| (name, value.to_owned())).chain(others);
        let own = own.filter(|(name, value)| !targets::is_set(&given, name, value));
        own.map(|(name, value)| (name, Some(value))).chain(self.same.given.clone()).collect()
    }

    /// True if a given effort determines the option.
    fn shortened(&self, name: &str) -> bool {
        matches!(name, "warmup" | "iterations") && self.same.has("effort")
    }
}
