//! `aorta check`: reports the diagnostics of files without running them.

use std::collections::BTreeSet;

use clap::Args;
use miette::Diagnostic;

use crate::base::{counted, shell};
use crate::compile::{Boxed, Ranks, boxed};
use crate::config::{Scenario, Settings};
use crate::ops::user_kernel;
use crate::plan::Rank;
use crate::schedule::{self, Topology};

use super::diagnostics::{self, DiagnosticsArg};
use super::error::CliError;
use super::{
    CHECK_FAILED, CliResult, ConfigArgs, DONE, MAX_RANKS, WorkloadArgs, ab, backends, exec, kinds, load, output,
    project, suite, sweep,
};

#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Files to check
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
    /// Give advice for this device too: `h200`, `mi300x`, or a profile (`.ron`)
    #[arg(long, value_name = "PROFILE")]
    profile: Option<String>,
    /// Check all ranks together for worlds of these sizes
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1", hide_default_value = true)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=MAX_RANKS))]
    ranks: Vec<u32>,
    /// Fail if there is a warning
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
        let path = project::resolve(file)?;
        if path.ends_with(".ron") {
            output::print(&match kinds::supporting(&path)? {
                Some((kind, text)) => format!("{file}: good: {}\n", kinds::describe(kind, &path, &text)?),
                None if suite::is_suite(&path)? => suite::check(&path, &args.config)?,
                None => scenario(file, &args.workload, &args.config)?,
            });
            continue;
        }
        // Every file is checked. The errors of all but the last are shown here, those of the last by the caller.
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
        None if warned && args.strict => Ok(CHECK_FAILED),
        None => Ok(DONE),
    }
}

/// Describes what a scenario, a bundle or a record would do, for a user who decides whether to run it.
pub fn scenario(file: &str, workload: &WorkloadArgs, config: &ConfigArgs) -> Result<String, CliError> {
    let (settled, settings) = exec::target(file, workload, config)?;
    let set: Vec<&str> = settled.env.iter().map(String::as_str).collect();
    let mut rows = vec![("runs", shell::command(settled.words()))];
    rows.push(("sets", if set.is_empty() { "no variables".to_owned() } else { shell::command(set) }));
    rows.push(("simulates", settings.profile.clone()));
    if let Some(scenario) = settled.scenario.as_deref() {
        rows.extend(beyond_exec(scenario));
    }
    let loaded = exec::compile(&settled, &settings)?;
    exec::check_scenario(file, &settled, &loaded)?;
    rows.push(("workload", format!("{} ({})", loaded.origin, loaded.compiled.name)));
    rows.push(("has", summary(&loaded.compiled.ranks)));
    let kernels = loaded.compiled.program().specs.iter().filter_map(user_kernel).map(|kernel| kernel.name.to_string());
    let kernels: Vec<String> = kernels.collect::<BTreeSet<_>>().into_iter().collect();
    if !kernels.is_empty() {
        rows.push(("kernels", format!("{}: on a GPU, only with --allow-kernels", kernels.join(", "))));
    }
    let lines = rows.into_iter().map(|(name, value)| format!("  {name:9} {value}\n"));
    Ok(format!("{file}: good\n{}", lines.collect::<String>()))
}

/// Rows for the fields of a scenario that are not arguments of `aorta exec`: its limits, its axes and its sides.
fn beyond_exec(scenario: &Scenario) -> Vec<(&'static str, String)> {
    let limits: Vec<String> = scenario.limits.iter().map(|(metric, span)| format!("{metric}: {span}")).collect();
    let rows = [
        ("limits", limits.join(", ")),
        ("sweeps", shell::command(sweep::scenario_words(scenario))),
        ("compares", shell::command(ab::scenario_words(scenario))),
    ];
    rows.into_iter().filter(|(_, value)| !value.is_empty()).collect()
}

/// Checks one file for each world size and returns the number of warnings.
fn check(file: &str, args: &CheckArgs, settings: &Settings, how: DiagnosticsArg) -> Result<usize, CliError> {
    let text = load::find(file, settings)?;
    if let Some(user) = load::user_of_module(&text, settings)? {
        let loaded = load::load(&user, &args.workload, settings, Ranks::Exactly(1))?;
        if how == DiagnosticsArg::Text {
            let used = counted(loaded.files.parts.len().saturating_sub(2), "other file");
            output::print(&format!("{}: good: a module, which uses {used}\n", text.name));
        }
        return Ok(0);
    }
    let mut warnings = 0;
    for (place, &world) in args.ranks.iter().enumerate() {
        warnings += check_world(&text, (world, place == 0), args, settings, how)?;
    }
    Ok(warnings)
}

fn check_world(
    text: &load::Text,
    (world, first): (u32, bool),
    args: &CheckArgs,
    settings: &Settings,
    how: DiagnosticsArg,
) -> Result<usize, CliError> {
    let loaded = load::load(text, &args.workload, settings, Ranks::Exactly(world))?;
    let profile = backends::profile(settings)?;
    let (available, has) = match &args.profile {
        Some(_) => (profile.memory.value() as u64, format!("an {} has", profile.name)),
        None => (settings.max_memory.0, "allowed are".to_owned()),
    };
    let topology = Topology::of(&profile);
    let alone = loaded.compiled.ranks.windows(2).filter(|pair| !pair[1].shares_with(&pair[0])).map(|pair| &pair[1]);
    for rank in std::iter::once(&loaded.compiled.ranks[0]).chain(alone) {
        let schedule = loaded.compiled.place(rank, topology);
        schedule::check_memory(&rank.program, &schedule, available, &has).map_err(|error| CliError::Source {
            diagnostics: vec![error],
            sources: loaded.compiled.sources.clone(),
            check: None,
        })?;
    }
    // Lints do not depend on the world size, so they are reported once.
    let mut lints: Vec<Boxed> = if first { loaded.compiled.lint() } else { Vec::new() };
    if first && args.profile.is_some() {
        let Rank { program, plan } = &loaded.compiled.ranks[0];
        let schedule = loaded.compiled.place(&loaded.compiled.ranks[0], topology);
        lints.extend(boxed(schedule::lint(program, plan, &schedule, &profile)));
        lints.extend(boxed(schedule::advise(program, plan, &schedule, &profile)));
    }
    if !lints.is_empty() {
        diagnostics::show(lints.iter().map(|one| one.as_ref() as &dyn Diagnostic), &loaded.compiled.sources, how);
    }
    if how == DiagnosticsArg::Text {
        output::print(&format!("{}: good: {}\n", loaded.compiled.name, summary(&loaded.compiled.ranks)));
    }
    Ok(diagnostics::warnings(&lints))
}

/// Summarizes the programs, such as `3 operations on 2 streams`; for several ranks, the minimum and the maximum.
fn summary(ranks: &[Rank]) -> String {
    let operations = |rank: &Rank| rank.program.cycle.iter().map(|step| step.ops.len()).sum::<usize>();
    let most = ranks.iter().map(operations).max().unwrap_or(0);
    let fewest = ranks.iter().map(operations).min().unwrap_or(0);
    let from = if fewest < most { format!("{fewest} to ") } else { String::new() };
    let program = &ranks[0].program;
    let mut on = format!("{from}{} on {}", counted(most, "operation"), counted(program.streams.len(), "stream"));
    if ranks.len() > 1 {
        on += &format!(" on each of {} ranks", ranks.len());
    }
    match program.cycle.len() {
        1 => on,
        cycle => format!("{on} in a cycle of {cycle} iterations"),
    }
}
