//! The command line: the only code that prints, reads arguments and the environment, and picks exit codes.

mod ab;
mod backends;
mod blocks;
mod cases;
mod check;
mod child;
mod compare;
mod completions;
mod devices;
mod diagnostics;
mod dump;
mod environment;
mod error;
mod exec;
mod expected;
mod explain;
mod fmt;
mod launcher;
mod library;
mod list;
mod load;
mod new;
mod output;
mod outputs;
mod own;
mod passed;
mod plan;
mod profile;
mod progress;
mod reach;
mod report;
mod secret;
mod show;
mod suite;
mod sweep;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub use environment::{library_paths, rocm_paths};

use crate::config::MAX_CYCLE;

use diagnostics::DiagnosticsArg;
use error::CliError;

/// A declarative workload language for GPU streams, and its executor.
#[derive(Debug, Parser)]
#[command(name = "aorta", version, max_term_width = 100, after_help = AFTER_HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// How errors and warnings are shown
    #[arg(long, global = true, value_name = "FORMAT", default_value = "text", hide_default_value = true)]
    diagnostics: DiagnosticsArg,
}

const AFTER_HELP: &str = "\
A FILE is a path, `-` for standard input, or the bare name of a shipped workload (`aorta list` shows
them).

Exit codes: 0 done; 1 an expectation did not hold, plans differ, `compare` found a metric worse,
`check --strict` warned, or `fmt --check` found something to change; 2 bad input; 3 no such device or backend; 4 the run failed, or its output is lost;
130 interrupted; 101 a bug.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a workload, and say where the time went
    Exec(Box<exec::ExecArgs>),
    /// Compare two variants of a run, measured in turn
    Ab(Box<ab::AbArgs>),
    /// Check a file without running it
    Check(check::CheckArgs),
    /// Run a workload with one value after the other: streams, parameters, variables, ranks
    Sweep(Box<sweep::SweepArgs>),
    /// Run the cases of a suite, and tell of all on one page
    Suite(Box<suite::SuiteArgs>),
    /// Bring files into their one form
    Fmt(fmt::FmtArgs),
    /// List the shipped workloads
    List,
    /// Show what a file is about: description, parameters, presets, streams, figures
    Show(show::ShowArgs),
    /// Show what waits for what, and why
    Plan(plan::PlanArgs),
    /// Print a stage on the way from the text to the figures: for work on aorta itself
    Dump(dump::DumpArgs),
    /// Run a workload under a vendor's profiler
    Profile(profile::ProfileArgs),
    /// Show the devices that a run can use
    Devices(devices::DevicesArgs),
    /// Explain an error or a warning by its code
    Explain(explain::ExplainArgs),
    /// Write a file to begin with
    New(new::NewArgs),
    /// Print a script that lets a shell complete commands and options
    Completions(completions::CompletionsArgs),
    /// Show a record that `exec --json` wrote, or a sweep's cases
    Report(report::ReportArgs),
    /// Compare runs, case by case: what differs, how sure that is, and whether it matters
    Compare(Box<compare::CompareArgs>),
}

/// Which workload, with which values.
#[derive(Clone, Debug, Default, PartialEq, Args)]
struct WorkloadArgs {
    /// Give a parameter a value; of several for one, the last counts
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// Take the parameters of a preset
    #[arg(long, value_name = "NAME")]
    preset: Option<String>,
    /// The parameter `streams` where the file has one, else the most real streams
    #[arg(long, value_name = "N")]
    streams: Option<u32>,
    /// How iterations follow each other, in place of what the step says
    #[arg(long, value_name = "WHEN")]
    sync: Option<SyncArg>,
    /// Iterations worked out ahead where the step depends on their number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MAX_CYCLE))]
    cycle: Option<u64>,
}

impl WorkloadArgs {
    /// The arguments as they are typed.
    fn words(&self) -> Vec<String> {
        let mut words: Vec<String> = self.set.iter().flat_map(|pair| ["--set".to_owned(), pair.clone()]).collect();
        let sync = self.sync.and_then(|sync| Some(sync.to_possible_value()?.get_name().to_owned()));
        let others = [
            ("--preset", self.preset.clone()),
            ("--streams", self.streams.map(|streams| streams.to_string())),
            ("--sync", sync),
            ("--cycle", self.cycle.map(|cycle| cycle.to_string())),
        ];
        for (option, value) in others {
            words.extend(value.into_iter().flat_map(|value| [option.to_owned(), value]));
        }
        words
    }
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum SyncArg {
    /// An iteration begins when the last is complete
    Iteration,
    /// Only streams and data order iterations
    End,
}

/// Where settings come from.
#[derive(Clone, Debug, Default, Args)]
struct ConfigArgs {
    /// Change a setting, such as `timeout=120s`
    #[arg(long, value_name = "KEY=VALUE", value_parser = completions::SettingParser, hide_possible_values = true)]
    config: Vec<String>,
    /// Read settings from this file, in place of your own
    #[arg(long, value_name = "PATH")]
    config_file: Option<PathBuf>,
}

/// Reads the arguments and does what they say.
pub fn run() -> ExitCode {
    let cli = match Cli::try_parse_from(ab::quoted(std::env::args_os().collect())) {
        Ok(cli) => cli,
        Err(error) => {
            let text = error.render().to_string();
            if error.use_stderr() {
                output::eprint(&text);
                return ExitCode::from(2);
            }
            // Help and version are no failure.
            output::print(&text);
            return ExitCode::from(nothing_lost(DONE, DiagnosticsArg::Text));
        }
    };
    let how = cli.diagnostics;
    let result = match cli.command {
        Command::Exec(args) => exec::run(*args, how),
        Command::Ab(args) => ab::run(&args),
        Command::Check(args) => check::run(args, how),
        Command::Sweep(args) => sweep::run(*args, how),
        Command::Suite(args) => suite::run(*args),
        Command::Fmt(args) => fmt::run(args, how),
        Command::List => list::run(),
        Command::Show(args) => show::run(args),
        Command::Plan(args) => plan::run(args),
        Command::Dump(args) => dump::run(args),
        Command::Profile(args) => profile::run(&args),
        Command::Devices(args) => devices::run(&args),
        Command::Explain(args) => explain::run(args),
        Command::New(args) => new::run(args),
        Command::Completions(args) => completions::run(args),
        Command::Report(args) => report::run(args),
        Command::Compare(args) => compare::run(*args),
    };
    match result {
        // An iteration may be under way on a device, which would be waited for at the program's regular end, also where
        // another rank has told the error.
        Ok(code @ (INTERRUPTED | FAILED)) => crate::backend::leave(nothing_lost(code, how)),
        Ok(code) => ExitCode::from(nothing_lost(code, how)),
        Err(error) => {
            error.print(how);
            if error.leaves_work() {
                // What runs on a device would be waited for at the program's regular end.
                crate::backend::leave(error.code());
            }
            ExitCode::from(error.code())
        }
    }
}

/// The exit code of a command that has ended with `code`. What it said counts only if all of it could be printed.
fn nothing_lost(code: u8, how: DiagnosticsArg) -> u8 {
    match output::lost() {
        Some(lost) if code != INTERRUPTED => {
            let error = CliError::from(lost);
            error.print(how);
            error.code()
        }
        _ => code,
    }
}

/// Ranks of a world: each may have a program of its own.
const MAX_RANKS: i64 = 16384;

/// Done.
const DONE: u8 = 0;
/// An expectation did not hold, or a file is not in its form.
const NOT_HELD: u8 = 1;
/// Two plans differ.
const DIFFERENT: u8 = 1;
/// A comparison found what it was to fail on.
const REGRESSED: u8 = 1;
/// The run failed.
const FAILED: u8 = 4;
/// The run was interrupted.
const INTERRUPTED: u8 = 130;

type CliResult = Result<u8, CliError>;
