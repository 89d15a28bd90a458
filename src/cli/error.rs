//! Errors of commands, and their exit codes.

use std::path::Path;
use std::sync::Arc;

use indexmap::IndexSet;
use miette::Diagnostic;
use thiserror::Error;

use crate::base::{SourceMap, shell};
use crate::compile::BoxedDiagnostic;
use crate::config::ConfigError;
use crate::exec::ExecError;

/// Any error that ends a command.
#[derive(Debug)]
pub enum CliError {
    /// Mistakes in a file or a value, with the texts that they refer to.
    Source {
        diagnostics: Vec<BoxedDiagnostic>,
        sources: Arc<SourceMap>,
        note: Note,
    },
    Input(InputError),
    Config(ConfigError),
    /// A failure of the device or of the run.
    Exec {
        error: ExecError,
        sources: Arc<SourceMap>,
    },
}

/// Context of the mistakes of a file.
#[derive(Debug, Default)]
pub struct Note {
    /// Text after the number of mistakes: the command that reports the same ones, or the numbers of ranks with them.
    pub text: String,
    /// Numbers of ranks with these mistakes; empty if the command checks one number.
    pub ranks: Vec<u32>,
}

/// Mistakes in arguments, and files that cannot be used.
#[derive(Clone, Debug, Error, Diagnostic)]
pub enum InputError {
    #[error("{name} cannot be read: {why}")]
    #[diagnostic(code(aorta::cli::unreadable))]
    Unreadable {
        name: String,
        why: String,
        #[help]
        help: Option<String>,
    },

    #[error("{name} cannot be written: {why}")]
    #[diagnostic(code(aorta::cli::unwritable))]
    Unwritable {
        name: String,
        why: String,
        #[help]
        help: Option<String>,
    },

    #[error("{why}")]
    #[diagnostic(
        code(aorta::cli::output_lost),
        help("the output is incomplete: free disk space, or write elsewhere, and run the command again")
    )]
    OutputLost { why: String },

    #[error("{name} is being written by {holder}")]
    #[diagnostic(
        code(aorta::cli::cases_busy),
        help("wait until it ends, or name another file: each run writes its own file")
    )]
    CasesBusy { name: String, holder: String },

    #[error("{file} names the {what} `{name}`, {why}")]
    #[diagnostic(
        code(aorta::cli::out_of_reach),
        help(
            "a file may refer to files in its own folder, in its project, and in the current folder: copy the {what} \
             there, run the command in a folder that contains both, or mark such a folder as the project by an `aorta.ron`"
        )
    )]
    OutOfReach { file: String, what: &'static str, name: String, why: String },

    #[error("there is no file and no shipped workload `{name}`")]
    #[diagnostic(code(aorta::cli::unknown_workload))]
    UnknownWorkload {
        name: String,
        #[help]
        help: Option<String>,
    },

    #[error("{what}")]
    #[diagnostic(code(aorta::cli::unknown_code), help("{help}"))]
    UnknownCode { what: String, help: String },

    /// Arguments that the parser refuses. The text for people is the parser's own.
    #[error("{why}")]
    #[diagnostic(help("{help}"))]
    Arguments { why: String, help: String },

    #[error("`--set {given}` is not of the form `name=value`")]
    #[diagnostic(code(aorta::cli::no_pair), help("write `--set tokens=4096`"))]
    NoPair { given: String },

    #[error("`--env {given}` is not of the form `NAME=VALUE`")]
    #[diagnostic(code(aorta::cli::no_variable), help("write `--env CUDA_DEVICE_MAX_CONNECTIONS=32`"))]
    NoVariable { given: String },

    #[error("a simulated device has 1 to 32 hardware queues, not `{name}={value}`")]
    #[diagnostic(
        code(aorta::cli::queues),
        help("write a number of hardware queues from 1 to 32, or unset the variable")
    )]
    Queues { name: &'static str, value: String },

    #[error("this program cannot be started again with the variables of `--env`: {why}")]
    #[diagnostic(code(aorta::cli::no_restart))]
    NoRestart { why: String },

    #[error("{why}")]
    #[diagnostic(code(aorta::cli::axes), help("{help}"))]
    Axes { why: String, help: String },

    #[error("none of the {count} cases can run; the error of the first one, {first}, is shown above")]
    #[diagnostic(
        code(aorta::cli::no_valid_case),
        help("correct what all cases have in common; `aorta exec {command}` runs the first case alone")
    )]
    NoValidCase { count: usize, first: String, command: String },

    #[error("no case of the sweep can have {values}; the reasons are shown above")]
    #[diagnostic(
        code(aorta::cli::refused_values),
        help("correct the values; `--skip-invalid`, in a scenario `skip_invalid: true`, runs the other cases")
    )]
    RefusedValues { values: String },

    #[error("{name} is not a file of cases: {why}")]
    #[diagnostic(code(aorta::cli::no_cases), help("{}", match is_record {
        true => "`aorta compare A B` compares records, and `aorta view A B` shows them on one page",
        false => "`aorta sweep FILE --json PATH` writes one",
    }))]
    NoCases {
        name: String,
        why: String,
        /// True for the record of a run.
        is_record: bool,
    },

    #[error("{name} already exists, with {has}")]
    #[diagnostic(
        code(aorta::cli::cases_there),
        help("continue it with `--resume`, name another file, or remove this one")
    )]
    CasesThere { name: String, has: String },

    #[error("{name} belongs to another sweep: {differences}")]
    #[diagnostic(
        code(aorta::cli::other_sweep),
        help("repeat the original command to continue it, or write another file: `--json PATH`")
    )]
    OtherSweep { name: String, differences: String },

    #[error("the process of a case cannot be started: {why}")]
    #[diagnostic(
        code(aorta::cli::no_case),
        help("each case runs in its own process, with temporary files in the folder of TMPDIR")
    )]
    NoCase { why: String },

    #[error("side {side} failed (`aorta exec {arguments}`): {why}")]
    #[diagnostic(code(aorta::cli::side_failed), help("run this command by itself to see the error"))]
    SideFailed {
        side: &'static str,
        arguments: String,
        why: String,
        /// The exit code of the whole run.
        code: u8,
    },

    #[error("`{name}` was not found in the folders of PATH")]
    #[diagnostic(code(aorta::cli::no_profiler), help("{help}"))]
    NoProfiler { name: &'static str, help: String },

    #[error("{what} cannot be `{value}`: {why}")]
    #[diagnostic(code(aorta::cli::bad_value), help("{help}"))]
    BadValue { what: String, value: String, why: String, help: String },

    #[error("{file} declares the kernel `{kernel}`, whose code runs on a GPU only with `--allow-kernels`")]
    #[diagnostic(
        code(aorta::cli::kernels_not_allowed),
        help(
            "read the code before you add the flag, or `allow_kernels: true` to your own settings; \
             `--backend sim` and `--backend host` run no code of the file"
        )
    )]
    KernelsNotAllowed { file: String, kernel: String },

    #[error("`{flag}` needs results, and {who} computes none")]
    #[diagnostic(code(aorta::cli::no_results), help("{help}"))]
    NoResults { flag: &'static str, who: &'static str, help: &'static str },

    #[error("no operation of {file} is called `{name}`")]
    #[diagnostic(code(aorta::cli::no_operation))]
    NoOperation {
        file: String,
        name: String,
        #[help]
        help: Option<String>,
    },

    #[error("device {device} was requested, but the {backend} has no devices to choose from")]
    #[diagnostic(code(aorta::cli::no_devices), help("`--device` applies to `--backend cuda` and `--backend hip`"))]
    NoDevices { device: u32, backend: &'static str },

    #[error("{why}")]
    #[diagnostic(code(aorta::cli::launcher), help("{help}"))]
    Launcher { why: String, help: String },

    #[error("{why}")]
    #[diagnostic(code(aorta::cli::secret), help("{help}"))]
    Secret { why: String, help: String },

    #[error("the ranks do not run the same: {why}")]
    #[diagnostic(code(aorta::cli::ranks_differ), help("{help}"))]
    RanksDiffer { why: String, help: String },

    #[error("{name} is not the record of a run: {why}")]
    #[diagnostic(code(aorta::cli::no_record), help("{}", record_help(name).unwrap_or_else(|| "`aorta exec FILE --json PATH` writes one".to_owned())))]
    NoRecord { name: String, why: String },

    #[error("{name} has nothing to compare: {why}")]
    #[diagnostic(
        code(aorta::cli::no_runs),
        help(
            "{}",
            record_help(name).unwrap_or_else(|| {
                "`aorta compare` reads records (`aorta exec FILE --json PATH`), files of cases (sweeps and suites), and the \
                 results.json of AORTA's Python harness"
                    .to_owned()
            })
        )
    )]
    NoRuns { name: String, why: String },

    #[error("{base} and {other} have no case in common")]
    #[diagnostic(
        code(aorta::cli::no_common_case),
        help(
            "cases are matched by the name of the workload's file, parameters and launch mode; the lists above show \
             the cases of each side"
        )
    )]
    NoCommonCase { base: String, other: String },

    #[error("{name} is not a plan: {why}")]
    #[diagnostic(code(aorta::cli::no_plan), help("`aorta plan FILE --format json > {name}` writes one"))]
    NoPlan { name: String, why: String },

    #[error("an iteration has more than {most} operations, the maximum that is observed")]
    #[diagnostic(
        code(aorta::cli::too_many_to_observe),
        help("raise the limit, `--config observed_operations=…`, or give smaller parameters")
    )]
    TooManyToObserve { most: usize },

    #[error("the plan of {operations} operations takes more than {most} of output")]
    #[diagnostic(
        code(aorta::cli::too_much_output),
        help("raise the limit, `--config max_output=…`, or give smaller parameters with `--set` or `--preset`")
    )]
    TooMuchOutput { operations: usize, most: String },

    #[error("{name} does not contain the text of {workload}, so it cannot run again")]
    #[diagnostic(
        code(aorta::cli::no_source),
        help(
            "aorta {version} wrote it without the text: run the file whose hash begins with {}, and `aorta compare` both \
             records",
            sha256.get(..12).unwrap_or(sha256)
        )
    )]
    NoSource { name: String, workload: String, sha256: String, version: String },

    #[error("{name} is written in version {language} of the language")]
    #[diagnostic(
        code(aorta::cli::newer_bundle),
        help("this aorta supports versions up to {known}: install a newer one")
    )]
    NewerBundle { name: String, language: i64, known: i64 },

    #[error("the project has two files `{name}`: {first} and {second}")]
    #[diagnostic(code(aorta::cli::several_files), help("name one of them by its path"))]
    SeveralFiles { name: String, first: String, second: String },

    #[error(transparent)]
    #[diagnostic(transparent)]
    Config(#[from] ConfigError),

    #[error("both plans are written already, so parameters can no longer change them")]
    #[diagnostic(
        code(aorta::cli::planned_already),
        help("leave `--set`, `--preset`, `--streams`, `--sync` and `--cycle` out, or compare with a workload's file")
    )]
    PlannedAlready,
}

impl InputError {
    /// An invalid value of the option `what`, written as the user types it.
    pub fn bad_value(what: &str, value: &str, why: &str, help: &str) -> InputError {
        let [what, value, why, help] = [what, value, why, help].map(str::to_owned);
        InputError::BadValue { what, value, why, help }
    }

    /// A file, a folder or another source that cannot be read.
    pub fn unreadable(name: impl AsRef<Path>, why: impl ToString, help: Option<&str>) -> InputError {
        let (name, help) = (name.as_ref().display().to_string(), help.map(str::to_owned));
        InputError::Unreadable { name, why: why.to_string(), help }
    }

    /// A file or a folder that cannot be written.
    pub fn unwritable(name: impl AsRef<Path>, why: impl ToString, help: Option<&str>) -> InputError {
        let (name, help) = (name.as_ref().display().to_string(), help.map(str::to_owned));
        InputError::Unwritable { name, why: why.to_string(), help }
    }

    pub fn code(&self) -> u8 {
        match self {
            InputError::SideFailed { code, .. } => *code,
            InputError::OutputLost { .. } => super::FAILED,
            _ => 2,
        }
    }
}

impl CliError {
    pub fn code(&self) -> u8 {
        match self {
            CliError::Source { .. } | CliError::Config(_) => 2,
            CliError::Input(error) => error.code(),
            CliError::Exec { error, .. } => match error {
                ExecError::NoDevice { .. } | ExecError::MissingLibrary { .. } => 3,
                _ => super::FAILED,
            },
        }
    }

    /// The message without locations and help. If requirements of the file do not hold, other mistakes follow from that.
    pub fn text(&self) -> String {
        match self {
            CliError::Source { diagnostics, .. } => {
                let required = |error: &&BoxedDiagnostic| {
                    error.code().is_some_and(|code| code.to_string() == "aorta::model::requirement")
                };
                let requirements =
                    IndexSet::<String>::from_iter(diagnostics.iter().filter(required).map(ToString::to_string));
                let all = || diagnostics.iter().map(ToString::to_string).collect();
                let shown = if requirements.is_empty() { all() } else { requirements };
                shown.into_iter().collect::<Vec<_>>().join("; ")
            }
            CliError::Input(error) => error.to_string(),
            CliError::Config(error) => error.to_string(),
            CliError::Exec { error, .. } => error.to_string(),
        }
    }

    /// True if the device may still be executing work.
    pub fn leaves_work(&self) -> bool {
        matches!(self, CliError::Exec { error, .. } if error.leaves_work())
    }
}

impl From<InputError> for CliError {
    fn from(error: InputError) -> Self {
        match error {
            InputError::Config(error) => CliError::Config(error),
            error => CliError::Input(error),
        }
    }
}

/// An error without a location in a file.
impl From<ExecError> for CliError {
    fn from(error: ExecError) -> Self {
        CliError::Exec { error, sources: Arc::new(SourceMap::new()) }
    }
}

impl From<ConfigError> for CliError {
    fn from(error: ConfigError) -> Self {
        CliError::Config(error)
    }
}

/// Help for a workload that is given in place of the record of its run; `None` for a file with another ending.
fn record_help(name: &str) -> Option<String> {
    let stem = name.strip_suffix(".aorta")?;
    let run = shell::command(["aorta", "exec", name, "--json", &format!("{stem}.json")]);
    Some(format!("it is a workload: `{run}` runs it and writes its record"))
}
