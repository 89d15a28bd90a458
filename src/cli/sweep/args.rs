//! The arguments of `aorta sweep`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::axes::shuffled;

const AFTER_HELP: &str = "\
A LIST has commas between its values: `1,2,4`. Commas in brackets and quotes do not count, so that
`[1,2],[3]` are two values. An option with several values is an axis; with one, it is the same in
all cases. All other options are those of `aorta exec`.

Exit codes: 0 all cases were run, also if some could not be or ran out of memory; 1 an expectation
did not hold; 2 bad input, or no case can run; 4 a case failed, or none was measured;
130 interrupted.";

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct SweepArgs {
    /// A workload file, the name of a shipped workload, or a scenario (`.ron`)
    pub file: String,
    /// Presets; a preset that gives a parameter a list makes an axis of it
    #[arg(long, value_name = "LIST", help_heading = "Axes")]
    preset: Option<String>,
    /// A parameter
    #[arg(long, value_name = "NAME=LIST", help_heading = "Axes")]
    set: Vec<String>,
    /// The parameter `streams` where the file has one, else the most real streams
    #[arg(long, value_name = "LIST", help_heading = "Axes")]
    streams: Option<String>,
    /// Ranks, each on a GPU of its own, or simulated
    #[arg(long, value_name = "LIST", help_heading = "Axes")]
    ranks: Option<String>,
    /// How operations reach the device: stream, graph
    #[arg(long, value_name = "LIST", help_heading = "Axes")]
    launch: Option<String>,
    /// How iterations follow each other: iteration, end
    #[arg(long, value_name = "LIST", help_heading = "Axes")]
    sync: Option<String>,
    /// How iterations find the device's caches: hot, cold
    #[arg(long, value_name = "LIST", help_heading = "Axes")]
    cache: Option<String>,
    /// Whether iterations are held until the host has issued them: auto, off
    #[arg(long, value_name = "LIST", help_heading = "Axes")]
    gate: Option<String>,
    /// What floats hold at the beginning where the file says `random`: normal, zeros, ones, iota
    #[arg(long, value_name = "LIST", help_heading = "Axes")]
    data: Option<String>,
    /// GPUs, by their numbers
    #[arg(long, value_name = "LIST", help_heading = "Axes")]
    device: Option<String>,
    /// Worlds of which one device stands for a rank
    #[arg(long, value_name = "LIST", help_heading = "Axes")]
    emulate: Option<String>,
    /// A variable for the vendor's driver; quotes around a value that has commas
    #[arg(long, value_name = "NAME=LIST", help_heading = "Axes")]
    env: Vec<String>,
    /// A setting, such as `profile=h200,mi300x`
    #[arg(long, value_name = "KEY=LIST", help_heading = "Axes")]
    config: Vec<String>,
    /// Go through all axes together, first value with first value, in place of each with each
    #[arg(long)]
    pub zip: bool,
    /// Look for the best case in place of running each: for spaces that are too large for that
    #[arg(long, conflicts_with_all = ["zip", "order", "csv", "retry"], help_heading = "Search")]
    pub search: bool,
    /// Runs that a search may take; comparing its best with the file as it is comes on top
    #[arg(long, value_name = "N", default_value = "40", requires = "search", help_heading = "Search")]
    #[arg(value_parser = clap::value_parser!(u32).range(4..=4096))]
    pub budget: u32,
    /// What a search is drawn from
    #[arg(long, value_name = "N", default_value = "1", requires = "search", help_heading = "Search")]
    pub seed: u64,
    /// In which order cases run
    #[arg(long, value_name = "ORDER", default_value = "shuffled")]
    pub order: Order,
    /// Sort the table by an axis, `median`, `rate` or a metric, the best first; `-NAME` the other way round
    #[arg(long, value_name = "NAME", allow_hyphen_values = true, conflicts_with = "search")]
    pub sort: Option<String>,
    /// Append each case with its record to this file when it has ended, in place of one below ~/.local/state/aorta/sweeps
    #[arg(long, value_name = "PATH")]
    pub json: Option<PathBuf>,
    /// Write a row for each case
    #[arg(long, value_name = "PATH")]
    pub csv: Option<PathBuf>,
    /// Go on with the same sweep: cases that its file has are not run again
    #[arg(long)]
    pub resume: bool,
    /// With `--resume`: run cases again that failed or ran out of memory
    #[arg(long, requires = "resume")]
    pub retry: bool,
    /// What runs it
    #[arg(long, value_name = "BACKEND", help_heading = "Of all cases")]
    backend: Option<String>,
    /// How long to measure: sanity, quick, full
    #[arg(long, value_name = "EFFORT", help_heading = "Of all cases")]
    effort: Option<String>,
    /// Warm-up iterations, in place of the effort's
    #[arg(long, value_name = "N", help_heading = "Of all cases")]
    warmup: Option<String>,
    /// Measured iterations, in place of the effort's
    #[arg(long, value_name = "N", help_heading = "Of all cases")]
    iterations: Option<String>,
    /// How long an iteration may take before a run is called hung, such as `10s`
    #[arg(long, value_name = "TIME", help_heading = "Of all cases")]
    timeout: Option<String>,
    /// Iterations worked out ahead where the step depends on their number
    #[arg(long, value_name = "N", help_heading = "Of all cases")]
    cycle: Option<String>,
    /// Compare every output with the CPU's
    #[arg(long, help_heading = "Of all cases")]
    verify: bool,
    /// Read settings from this file, in place of your own
    #[arg(long, value_name = "PATH", help_heading = "Of all cases")]
    config_file: Option<String>,
}

/// In which order cases run.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub enum Order {
    /// The same mixed order each time: a device that slows down meanwhile makes no trend along an axis
    Shuffled,
    /// As the table has them
    Given,
}

impl Order {
    /// The places of so many cases, in this order.
    pub fn of(self, count: usize) -> Vec<usize> {
        match self {
            Order::Shuffled => shuffled(count),
            Order::Given => (0..count).collect(),
        }
    }
}

impl SweepArgs {
    /// The options of which several values are an axis, in the order of the axes, with what they were given.
    pub fn lists(&self) -> Vec<(&'static str, &str)> {
        let mut all: Vec<(&'static str, &str)> = Vec::new();
        all.extend(self.preset.iter().map(|given| ("preset", given.as_str())));
        all.extend(self.set.iter().map(|given| ("set", given.as_str())));
        let single = [
            ("streams", &self.streams),
            ("ranks", &self.ranks),
            ("launch", &self.launch),
            ("sync", &self.sync),
            ("cache", &self.cache),
            ("gate", &self.gate),
            ("data", &self.data),
            ("device", &self.device),
            ("emulate", &self.emulate),
        ];
        all.extend(single.into_iter().filter_map(|(option, given)| Some((option, given.as_deref()?))));
        all.extend(self.env.iter().map(|given| ("env", given.as_str())));
        all.extend(self.config.iter().map(|given| ("config", given.as_str())));
        all
    }

    /// The options that all cases have, as `aorta exec` takes them.
    pub fn plain(&self) -> Vec<String> {
        let given = [
            ("backend", &self.backend),
            ("effort", &self.effort),
            ("warmup", &self.warmup),
            ("iterations", &self.iterations),
            ("timeout", &self.timeout),
            ("cycle", &self.cycle),
            ("config-file", &self.config_file),
        ];
        let options = given.into_iter().filter_map(|(option, given)| Some(format!("--{option}={}", given.as_ref()?)));
        options.chain(self.verify.then(|| "--verify".to_owned())).collect()
    }
}
