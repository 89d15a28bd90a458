//! The arguments of `aorta exec`.

use std::path::PathBuf;

use clap::Args;
use clap::error::{ContextKind, ContextValue};
use miette::Diagnostic;

use crate::backend::ranges::RangeLibrary;
use crate::config::{
    BackendSetting, CacheSetting, DataSetting, Effort, GateSetting, LaunchSetting, MAX_ITERATIONS, ObserveSetting,
    Scenario, Settings,
};
use crate::exec::Diagnosis;

use crate::cli::error::InputError;
use crate::cli::inputs::expected::ExpectedArgs;
use crate::cli::io::outputs::RunOutputs;
use crate::cli::numbers::{NO_NUMBER, parse_error_text, whole_number};
use crate::cli::{ConfigArgs, WorkloadArgs, targets};

const AFTER_HELP: &str = "\
Several processes: `torchrun --nproc-per-node 2 --no-python aorta exec FILE`, and `mpirun` and `srun` \
likewise, give each rank a process and a GPU of its own, on one host or several. Only the first process \
prints.";

/// Maximum number of ranks, since each has a thread.
pub const MAX_RANKS: u32 = 1024;

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct ExecArgs {
    /// A workload file, the name of a workload, a scenario (`.ron`), a bundle (`.aortab`), or a record (`.json`) to repeat
    pub file: String,
    #[command(flatten)]
    pub workload: WorkloadArgs,
    /// The backend to run on
    #[arg(long, value_name = "BACKEND")]
    pub backend: Option<BackendSetting>,
    /// Index of the GPU
    #[arg(long, value_name = "N")]
    pub device: Option<u32>,
    /// Ranks, 1 to 1024, each on its own GPU or simulated; by default, a file with collectives or copies to other ranks uses all GPUs of this machine
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_RANKS)))]
    pub ranks: Option<u32>,
    /// Run one rank of N, 2 to 1024, on one device; kernels of the same duration replace its collectives and transfers
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=i64::from(MAX_RANKS)))]
    #[arg(conflicts_with = "ranks")]
    pub emulate: Option<u32>,
    /// The rank to run with --emulate
    #[arg(long, value_name = "R", requires = "emulate", default_value = "0", hide_default_value = true)]
    pub rank: u32,
    /// Launch the operations on streams, as a graph, or both ways
    #[arg(long, value_name = "HOW")]
    pub launch: Option<LaunchSetting>,
    /// Hold each iteration on the device until the host has launched all of it
    #[arg(long, value_name = "WHEN")]
    pub gate: Option<GateSetting>,
    /// How to time single operations, which is done in additional iterations
    #[arg(long, value_name = "HOW")]
    pub observe: Option<ObserveSetting>,
    /// State of the device's caches at the start of an iteration
    #[arg(long, value_name = "STATE")]
    pub cache: Option<CacheSetting>,
    /// Initial values of floats that the file declares `random`
    #[arg(long, value_name = "WHAT")]
    pub data: Option<DataSetting>,
    #[command(flatten)]
    pub expected: ExpectedArgs,
    /// Time limit of an iteration, such as `10s`; a longer one counts as a hang
    #[arg(long, value_name = "TIME")]
    pub timeout: Option<String>,
    /// How thoroughly to measure
    #[arg(long, value_name = "EFFORT")]
    pub effort: Option<Effort>,
    /// Number of warm-up iterations; `--effort` sets the default
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=i64::from(MAX_ITERATIONS)))]
    pub warmup: Option<u32>,
    /// Number of measured iterations; `--effort` sets the default
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_ITERATIONS)))]
    pub iterations: Option<u32>,
    /// Allow the kernels that the file declares to run on a GPU; read their code first
    #[arg(long)]
    pub allow_kernels: bool,
    /// Verify every output against a computation on the CPU
    #[arg(long)]
    pub verify: bool,
    /// Read hardware counters of the operations with this name or label, and the SMs of their blocks, in additional runs
    #[arg(long, value_name = "OPERATION")]
    pub counters: Option<String>,
    #[command(flatten)]
    pub output: RunOutputs,
    /// Write the contents of every buffer after one iteration, or one round of a cycle, as NumPy files into this folder
    #[arg(long, value_name = "FOLDER")]
    pub outputs: Option<PathBuf>,
    /// Add named ranges for a profiler. Set by `aorta profile`.
    #[arg(long, hide = true)]
    pub ranges: Option<RangeLibrary>,
    /// Set an environment variable for the vendor's driver
    #[arg(long, value_name = "NAME=VALUE")]
    pub env: Vec<String>,
    /// True in the restarted process, whose environment has the variables.
    #[arg(long, hide = true)]
    pub env_is_set: bool,
    /// End when standard input ends. Set by commands that run cases.
    #[arg(long, hide = true)]
    pub until_input_ends: bool,
    /// Measure blocks on request. Set by `aorta ab`.
    #[arg(long, hide = true)]
    pub blocks: bool,
    /// Find the operation that failed. Set when a failed run starts itself again.
    #[arg(long, hide = true)]
    pub diagnose: Option<Diagnosis>,
    #[command(flatten)]
    pub config: ConfigArgs,
    /// The scenario that these arguments have been completed by; `None` without one.
    #[arg(skip)]
    pub scenario: Option<Box<Scenario>>,
    /// The path of the scenario's file.
    #[arg(skip)]
    pub scenario_file: Option<PathBuf>,
    /// The record that the run repeats; `None` if it repeats none.
    #[arg(skip)]
    pub repeats: Option<PathBuf>,
}

impl ExecArgs {
    /// Returns these arguments, completed by those of `below` that a scenario can give.
    pub fn over(self, below: ExecArgs) -> ExecArgs {
        let named = |pair: &String| pair.split_once('=').map(|(name, _)| name.trim().to_owned());
        let given: Vec<Option<String>> = self.env.iter().map(named).collect();
        let env = below.env.into_iter().filter(|pair| !given.contains(&named(pair))).collect();
        let config = [below.config.config, self.config.config].concat();
        ExecArgs {
            file: below.file,
            workload: self.workload.over(below.workload),
            backend: self.backend.or(below.backend),
            device: self.device.or(below.device),
            ranks: self.ranks.or(below.ranks),
            rank: if self.emulate.is_some() { self.rank } else { below.rank },
            emulate: self.emulate.or(below.emulate),
            launch: self.launch.or(below.launch),
            gate: self.gate.or(below.gate),
            observe: self.observe.or(below.observe),
            cache: self.cache.or(below.cache),
            data: self.data.or(below.data),
            expected: self.expected.over(below.expected),
            timeout: self.timeout.or(below.timeout),
            effort: self.effort.or(below.effort),
            warmup: self.warmup.or(below.warmup),
            iterations: self.iterations.or(below.iterations),
            verify: self.verify || below.verify,
            counters: self.counters.or(below.counters),
            env: [self.env, env].concat(),
            config: ConfigArgs { config, ..self.config },
            ..self
        }
    }

    /// Overrides the settings of files and of `--config` by those that have a flag.
    pub fn change(&self, settings: &mut Settings) {
        settings.launch = self.launch.unwrap_or(settings.launch);
        settings.gate = self.gate.unwrap_or(settings.gate);
        settings.observe = self.observe.unwrap_or(settings.observe);
        settings.cache = self.cache.unwrap_or(settings.cache);
        settings.data = self.data.unwrap_or(settings.data);
        settings.effort = self.effort.unwrap_or(settings.effort);
        settings.allow_kernels |= self.allow_kernels;
        let plan = settings.plan_mut(settings.effort);
        plan.warmup = self.warmup.unwrap_or(plan.warmup);
        plan.iterations = self.iterations.unwrap_or(plan.iterations);
    }

    /// The run's command line, as far as a scenario can express it.
    pub fn words(&self) -> Vec<String> {
        let mut words = ["aorta", "exec", &self.file].map(str::to_owned).to_vec();
        words.extend(self.workload.words());
        let others = [
            ("--backend", self.backend.map(|backend| backend.name().to_owned())),
            ("--device", self.device.map(|device| device.to_string())),
            ("--ranks", self.ranks.map(|ranks| ranks.to_string())),
            ("--emulate", self.emulate.map(|ranks| ranks.to_string())),
            ("--rank", self.emulate.map(|_| self.rank.to_string())),
            ("--launch", self.launch.map(|launch| launch.name().to_owned())),
            ("--gate", self.gate.map(|gate| gate.name().to_owned())),
            ("--observe", self.observe.map(|how| how.name().to_owned())),
            ("--cache", self.cache.map(|cache| cache.name().to_owned())),
            ("--data", self.data.map(|data| data.name().to_owned())),
            ("--effort", self.effort.map(|effort| effort.name().to_owned())),
            ("--warmup", self.warmup.map(|count| count.to_string())),
            ("--iterations", self.iterations.map(|count| count.to_string())),
            ("--counters", self.counters.clone()),
        ];
        for (option, value) in others {
            words.extend(value.into_iter().flat_map(|value| [option.to_owned(), value]));
        }
        words.extend(self.verify.then(|| "--verify".to_owned()));
        words.extend(self.expected.word());
        words.extend(self.env.iter().flat_map(|pair| ["--env".to_owned(), pair.clone()]));
        words.extend(self.config.config.iter().flat_map(|pair| ["--config".to_owned(), pair.clone()]));
        words
    }

    /// The first option that only makes sense for a single run and not for a side of `aorta ab`, and what to do
    /// instead. `None` if there is none.
    pub fn by_itself(&self) -> Option<(&'static str, &'static str)> {
        const AB: &str = "leave it out: `--json` of `aorta ab` writes every sample";
        const LONG: &str = "leave it out: `--rounds` and `--iterations` of `aorta ab` say how long";
        const BOTH: &str =
            "a side is measured in one way: `--a \"--launch stream\" --b \"--launch graph\"` compares the two";
        let given = [
            (self.output.files.json.is_some(), "--json", AB),
            (self.output.files.csv.is_some(), "--csv", AB),
            (
                self.output.page.is_given(),
                "--format",
                "leave it out: `--format` of `aorta ab` says how the page is written",
            ),
            (self.output.trace.is_some(), "--trace", AB),
            (self.output.page.html.is_some(), "--html", AB),
            (self.outputs.is_some(), "--outputs", "leave it out: `aorta exec` writes them"),
            (self.output.top.is_some(), "--top", "leave it out: `aorta exec` shows them"),
            (self.counters.is_some(), "--counters", "leave it out: `aorta exec --counters` counts"),
            (self.output.timeline, "--timeline", "leave it out: `aorta exec` draws it"),
            (self.verify, "--verify", "leave it out: `aorta exec --verify` compares with the CPU"),
            (self.effort.is_some(), "--effort", LONG),
            (self.iterations.is_some(), "--iterations", LONG),
            (matches!(self.launch, Some(LaunchSetting::Both)), "--launch both", BOTH),
            (self.ranges.is_some(), "--ranges", "leave it out"),
            (self.diagnose.is_some(), "--diagnose", "leave it out"),
            (self.blocks, "--blocks", "leave it out"),
            (self.until_input_ends, "--until-input-ends", "leave it out"),
        ];
        given.into_iter().find(|(given, ..)| *given).map(|(_, option, instead)| (option, instead))
    }
}

/// Reason why words are not valid arguments of `aorta exec`.
#[derive(Debug)]
pub struct ArgumentError {
    pub why: String,
    pub help: String,
}

impl ArgumentError {
    /// The reason in an error of the parser of arguments; `command` is the command that they were given to.
    pub fn new(error: &clap::Error, command: &str) -> ArgumentError {
        let text = parse_error_text(error);
        let mut lines = text.trim_start_matches("error: ").lines().map(str::trim);
        let why = lines.by_ref().take_while(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
        let tip = lines.find_map(|line| line.strip_prefix("tip: ")).map(|tip| format!("{tip}; ")).unwrap_or_default();
        let of = |kind| match error.get(kind) {
            Some(ContextValue::String(text)) => text.as_str(),
            _ => "",
        };
        let option = of(ContextKind::InvalidArg).split(' ').next().unwrap_or_default();
        let help = match of(ContextKind::InvalidValue).split_once(',') {
            Some((first, _)) if option.starts_with("--") && !first.is_empty() => {
                format!("a run has one value: `{option} {first}`; `aorta sweep FILE` runs each value of a list")
            }
            _ => whole_number(option)
                .filter(|_| why.ends_with(NO_NUMBER))
                .or_else(|| allowed(&why))
                .unwrap_or_else(|| format!("{tip}`{command} --help` says what each option takes")),
        };
        ArgumentError { why, help }
    }

    /// The error that presents the words as `value` of `what`.
    pub fn of(self, what: &str, value: &str) -> InputError {
        InputError::BadValue { what: what.to_owned(), value: value.to_owned(), why: self.why, help: self.help }
    }
}

impl From<InputError> for ArgumentError {
    fn from(error: InputError) -> ArgumentError {
        let help = error.help().map(|help| help.to_string()).unwrap_or_default();
        ArgumentError { why: error.to_string(), help }
    }
}

/// Help for a number outside of its range, for the parser's reason; `None` for another one.
fn allowed(why: &str) -> Option<String> {
    let (first, last) = why.rsplit_once(" is not in ")?.1.split_once("..=")?;
    Some(format!("write a number from {first} to {last}"))
}

/// Parses words as `aorta exec` parses its arguments.
pub fn exec_args(words: &[String]) -> Result<ExecArgs, ArgumentError> {
    parsed("exec", words)
}

/// Parses words as the command with this name parses its arguments.
pub fn parsed<A: Args>(name: &'static str, words: &[String]) -> Result<A, ArgumentError> {
    let command = A::augment_args(clap::Command::new(name).no_binary_name(true));
    let refused = |error: clap::Error| ArgumentError::new(&error, &format!("aorta {name}"));
    let matches = command.try_get_matches_from(words).map_err(refused)?;
    targets::check(&matches)?;
    A::from_arg_matches(&matches).map_err(refused)
}
