//! `aorta check`.

use clap::Args;
use miette::Diagnostic;

use crate::base::counted;
use crate::config::Settings;
use crate::model::Program;
use crate::schedule;

use super::diagnostics::{self, Boxed, DiagnosticsArg};
use super::error::CliError;
use super::{CliResult, ConfigArgs, DONE, NOT_HELD, WorkloadArgs, backends, load, output, plan};

#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Files to check
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
    /// Say also what this device makes of them: `h200`, `mi300x`, or a profile (`.ron`)
    #[arg(long, value_name = "PROFILE")]
    profile: Option<String>,
    /// A warning fails the check
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    workload: WorkloadArgs,
    #[command(flatten)]
    config: ConfigArgs,
}

pub fn run(args: CheckArgs, how: DiagnosticsArg) -> CliResult {
    let mut settings = load::settings(&args.config)?;
    if let Some(profile) = &args.profile {
        settings.profile = profile.clone();
    }
    let mut failed = None;
    let mut warned = false;
    for file in &args.files {
        // Every file is checked; the errors of all but the last are shown here.
        match check(file, &args, &settings, how) {
            Ok(warnings) => warned |= warnings > 0,
            Err(error) => {
                if let Some(before) = failed.replace(error) {
                    before.print(how);
                }
            }
        }
    }
    match failed {
        Some(error) => Err(error),
        None if warned && args.strict => Ok(NOT_HELD),
        None => Ok(DONE),
    }
}

/// Checks one file, and gives the number of its warnings.
fn check(file: &str, args: &CheckArgs, settings: &Settings, how: DiagnosticsArg) -> Result<usize, CliError> {
    let text = load::find(file, settings)?;
    let loaded = load::load(text, &args.workload, settings)?;
    let profile = backends::profile(settings)?;
    let schedule = plan::place(&loaded, &profile);
    let (available, has) = match &args.profile {
        Some(_) => (profile.memory.value() as u64, format!("an {} has", profile.name)),
        None => (settings.max_memory.0, "allowed are".to_owned()),
    };
    schedule::check_memory(&loaded.program, &schedule, available, &has)
        .map_err(|error| CliError::Source { diagnostics: vec![error], sources: loaded.sources.clone() })?;
    let mut told: Vec<Boxed> = diagnostics::lint(&loaded);
    if args.profile.is_some() {
        told.extend(diagnostics::lint_on(&loaded, &schedule, &profile));
    }
    if !told.is_empty() {
        diagnostics::show(told.iter().map(|one| one.as_ref() as &dyn Diagnostic), &loaded.sources, how);
    }
    if how == DiagnosticsArg::Text {
        output::print(&format!("{}: good: {}\n", loaded.parsed.name, summary(&loaded.program)));
    }
    Ok(diagnostics::warnings(&told))
}

/// `3 operations on 2 streams`.
fn summary(program: &Program) -> String {
    let operations = program.cycle.iter().map(|step| step.ops.len()).sum();
    let on = format!("{} on {}", counted(operations, "operation"), counted(program.streams.len(), "stream"));
    match program.cycle.len() {
        1 => on,
        cycle => format!("{on} in a cycle of {cycle} iterations"),
    }
}
