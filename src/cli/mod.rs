//! The command line: the only code that prints, reads arguments and the environment, and picks exit codes.

mod backends;
mod commands;
mod environment;
mod error;
mod inputs;
mod io;
mod numbers;
mod processes;
mod targets;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ContextKind;
use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

pub use environment::{library_paths, rocm_paths};

use crate::config::{MAX_CYCLE, SyncSetting};
use crate::render::DiagnosticFormat;

use commands::{
    ab, baseline, bundle, check, compare, completions, devices, dump, exec, explain, fmt, list, new, other_tools, plan,
    profile, report, show, suite, sweep, view,
};
use error::{CliError, InputError};
use io::output;

/// A declarative workload language for GPU streams, and its executor.
#[derive(Debug, Parser)]
#[command(name = "aorta", version, max_term_width = 100, after_help = AFTER_HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// How errors and warnings are shown
    #[arg(long, global = true, value_name = "FORMAT", default_value = "text", hide_default_value = true)]
    diagnostics: DiagnosticFormat,
}

const AFTER_HELP: &str = "\
A FILE is a path, `-` for standard input, or the bare name of a workload of the project or of a shipped \
one (`aorta list` shows them). It may be a scenario (`.ron`), a bundle (`.aortab`), or the record of a \
run (`.json`), which runs again.

Exit codes: 0 done; 1 a check failed: an expectation, a limit, a verification, `--fail-on`, `--strict`, \
`fmt --check`, or two plans differ; 2 bad input; 3 no such device or backend; 4 the run failed, or its \
output is lost; 130 interrupted; 101 a bug.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a workload and report where the time goes
    Exec(Box<exec::ExecArgs>),
    /// Compare two variants of a run, measured in alternating blocks
    Ab(Box<ab::AbArgs>),
    /// Check a file without running it
    Check(check::CheckArgs),
    /// Run a workload for all combinations of values: parameters, streams, ranks, variables
    Sweep(Box<sweep::SweepArgs>),
    /// Run the cases of a suite and report them on one page
    Suite(Box<suite::SuiteArgs>),
    /// Run KernelBench's problems and write their times as its scripts read them
    Baseline(Box<baseline::BaselineArgs>),
    /// Format files
    Fmt(fmt::FmtArgs),
    /// List the files of the project and the shipped workloads
    List,
    /// Show the content of a file, a scenario, a bundle or a record
    Show(show::ShowArgs),
    /// Show the dependencies of operations, and why they exist
    Plan(plan::PlanArgs),
    /// Print a compilation stage, to work on aorta itself
    Dump(dump::DumpArgs),
    /// Run a workload under a vendor's profiler
    Profile(profile::ProfileArgs),
    /// Show the devices that a run can use
    Devices(devices::DevicesArgs),
    /// Explain an error, a warning, an operation or a metric
    Explain(explain::ExplainArgs),
    /// Write a scenario or a workload with every file that it needs as one text
    Bundle(bundle::BundleArgs),
    /// Make a folder of a bundle, or of the files in a record
    Unbundle(bundle::UnbundleArgs),
    /// Write a file to start from
    New(new::NewArgs),
    /// Print a completion script for a shell
    Completions(completions::CompletionsArgs),
    /// Show a record written by `exec --json`, or a sweep's cases
    Report(report::ReportArgs),
    /// Write records as an HTML page and open it: timeline, where the time goes, operations
    View(view::ViewArgs),
    /// Compare earlier runs: what differs, how certain that is, and whether it matters
    Compare(Box<compare::CompareArgs>),
}

/// Options that select a workload and the values of its parameters.
#[derive(Clone, Debug, Default, PartialEq, Args)]
struct WorkloadArgs {
    /// Set a parameter
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// Use the parameters of a preset
    #[arg(long, value_name = "NAME")]
    preset: Option<String>,
    /// Value of the parameter `streams` if the file has one, otherwise the maximum number of real streams
    #[arg(long, value_name = "N")]
    streams: Option<u32>,
    /// When an iteration may begin, instead of what the step declares
    #[arg(long, value_name = "WHEN")]
    sync: Option<SyncSetting>,
    /// Number of iterations planned in advance if the step depends on their number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MAX_CYCLE))]
    cycle: Option<u64>,
    /// Fuse chains of elementwise operations, reductions and the epilogues of products into one kernel each
    #[arg(long)]
    fuse: bool,
}

impl WorkloadArgs {
    /// Returns these arguments, completed by those of `below` that they do not override.
    fn over(self, below: WorkloadArgs) -> WorkloadArgs {
        let named = |pair: &str| pair.split_once('=').map_or(pair, |(name, _)| name).trim().to_owned();
        let is_set =
            |name: &str| (name == "streams" && self.streams.is_some()) || self.set.iter().any(|own| named(own) == name);
        let streams = self.streams.or(below.streams.filter(|_| !is_set("streams")));
        let set = below.set.into_iter().filter(|pair| !is_set(&named(pair))).collect::<Vec<_>>();
        WorkloadArgs {
            set: [set, self.set].concat(),
            preset: self.preset.or(below.preset),
            streams,
            sync: self.sync.or(below.sync),
            cycle: self.cycle.or(below.cycle),
            fuse: self.fuse || below.fuse,
        }
    }

    /// The arguments as typed.
    fn words(&self) -> Vec<String> {
        let mut words: Vec<String> = self.set.iter().flat_map(|pair| ["--set".to_owned(), pair.clone()]).collect();
        let sync = self.sync.map(|sync| sync.name().to_owned());
        let others = [
            ("--preset", self.preset.clone()),
            ("--streams", self.streams.map(|streams| streams.to_string())),
            ("--sync", sync),
            ("--cycle", self.cycle.map(|cycle| cycle.to_string())),
        ];
        for (option, value) in others {
            words.extend(value.into_iter().flat_map(|value| [option.to_owned(), value]));
        }
        words.extend(self.fuse.then(|| "--fuse".to_owned()));
        words
    }
}

/// Sources of settings.
#[derive(Clone, Debug, Default, Args)]
struct ConfigArgs {
    /// Change a setting, such as `timeout=120s`
    #[arg(long, value_name = "KEY=VALUE", value_parser = completions::SettingParser, hide_possible_values = true)]
    config: Vec<String>,
    /// Read settings from this file instead of your own
    #[arg(long, value_name = "PATH")]
    config_file: Option<PathBuf>,
}

/// The definition of the command line: its commands and their options.
pub fn definition() -> clap::Command {
    Cli::command()
}

/// Parses the arguments and runs the command.
pub fn run() -> ExitCode {
    let words = ab::quoted(std::env::args_os().collect());
    let (cli, matches) = match parsed(&words) {
        Ok(parsed) => parsed,
        Err(mut error) => {
            let typed: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
            let tip = other_tools::tip(&error, &typed);
            if tip.is_some() {
                error.remove(ContextKind::Suggested);
                error.remove(ContextKind::SuggestedArg);
                error.remove(ContextKind::SuggestedSubcommand);
                error.remove(ContextKind::SuggestedValue);
            }
            if error.use_stderr() {
                refuse(&error, tip, &typed);
                return ExitCode::from(2);
            }
            // Help and version are not failures.
            output::print(&numbers::parse_error_text(&error));
            return ExitCode::from(with_output_check(DONE, DiagnosticFormat::Text));
        }
    };
    let how = cli.diagnostics;
    if let Some((_, given)) = matches.subcommand()
        && let Err(error) = targets::check(given)
    {
        let error = CliError::from(error);
        error.print(how);
        return ExitCode::from(error.code());
    }
    let result = match cli.command {
        Command::Exec(args) => exec::run(*args, how),
        Command::Ab(args) => ab::run(*args),
        Command::Check(args) => check::run(args, how),
        Command::Sweep(args) => sweep::run(*args, how),
        Command::Suite(args) => suite::run(*args),
        Command::Baseline(args) => baseline::run(*args),
        Command::Fmt(args) => fmt::run(args, how),
        Command::List => list::run(),
        Command::Show(args) => show::run(args),
        Command::Plan(args) => plan::run(args),
        Command::Dump(args) => dump::run(args),
        Command::Profile(args) => profile::run(&args),
        Command::Devices(args) => devices::run(&args),
        Command::Explain(args) => explain::run(args),
        Command::Bundle(args) => bundle::bundle(args),
        Command::Unbundle(args) => bundle::unbundle(args),
        Command::New(args) => new::run(args),
        Command::Completions(args) => completions::run(args),
        Command::Report(args) => report::run(args),
        Command::View(args) => view::run(&args),
        Command::Compare(args) => compare::run(*args),
    };
    match result {
        // An iteration may still be executing on a device, also if another rank has reported the error. A regular exit
        // would wait for it.
        Ok(code @ (INTERRUPTED | FAILED)) => crate::backend::leave(with_output_check(code, how)),
        Ok(code) => ExitCode::from(with_output_check(code, how)),
        Err(error) => {
            error.print(how);
            if error.leaves_work() {
                // A regular exit would wait for work on the device.
                crate::backend::leave(error.code());
            }
            ExitCode::from(error.code())
        }
    }
}

/// Parses the words of a command line. Returns the options as they were typed too.
fn parsed(words: &[OsString]) -> Result<(Cli, ArgMatches), clap::Error> {
    let matches = definition().try_get_matches_from(words)?;
    let cli = Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut definition()))?;
    Ok((cli, matches))
}

/// Shows an error of the parser of arguments, with the tip that is known for it, in the format that `words` name.
fn refuse(error: &clap::Error, tip: Option<String>, words: &[String]) {
    match typed_format(words) {
        DiagnosticFormat::Text => {
            let tip = tip.map(|tip| format!("\ntip: {tip}\n")).unwrap_or_default();
            output::eprint(&(numbers::parse_error_text(error) + &tip));
        }
        how => {
            let exec::ArgumentError { why, help } = exec::ArgumentError::new(error, &other_tools::command_name(words));
            CliError::from(InputError::Arguments { why, help: tip.unwrap_or(help) }).print(how);
        }
    }
}

/// The value of `--diagnostics` in the words of a command line that cannot be parsed; `text` if it has none or another one.
fn typed_format(words: &[String]) -> DiagnosticFormat {
    let value = words.iter().enumerate().find_map(|(at, word)| match word.strip_prefix("--diagnostics")? {
        "" => words.get(at + 1).map(String::as_str),
        rest => rest.strip_prefix('='),
    });
    value.and_then(|value| DiagnosticFormat::from_str(value, false).ok()).unwrap_or_default()
}

/// The exit code of a command that has ended with `code`. Lost output turns success into a failure.
fn with_output_check(code: u8, how: DiagnosticFormat) -> u8 {
    match output::lost_output() {
        Some(lost) if code != INTERRUPTED => {
            let error = CliError::from(lost);
            error.print(how);
            error.code()
        }
        _ => code,
    }
}

/// Success.
const DONE: u8 = 0;
/// An expectation failed, or a file is not formatted.
const CHECK_FAILED: u8 = 1;
/// Two plans differ.
const DIFFERENT: u8 = 1;
/// A comparison found what `--fail-on` names.
const REGRESSED: u8 = 1;
/// The run failed.
const FAILED: u8 = 4;
/// The run was interrupted.
const INTERRUPTED: u8 = 130;

type CliResult = Result<u8, CliError>;
