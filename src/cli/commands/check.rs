//! `aorta check`: reports the diagnostics of files without running them.

use std::collections::BTreeSet;
use std::path::Path;

use clap::Args;
use miette::Diagnostic;

use crate::base::{MAX_RANKS, counted, shell, visible};
use crate::compile::{BoxedDiagnostic, Compiled, RankCount, boxed};
use crate::config::{Expected, RonKind, Scenario, Settings};
use crate::ops::user_kernel;
use crate::plan::RankPlan;
use crate::render::DiagnosticFormat;
use crate::schedule::{self, Topology};

use super::{ab, exec, scenario as scenarios, suite, sweep};
use crate::cli::error::{CliError, Note};
use crate::cli::inputs::{container, kinds, library, load, project};
use crate::cli::io::diagnostics::{self, FileResults};
use crate::cli::io::output;
use crate::cli::{CliResult, ConfigArgs, WorkloadArgs, backends};

#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Files to check
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
    /// Give advice for this device too: a value of the setting `profile`, such as `h200`, `mi355x` or a `.ron` file
    #[arg(long, value_name = "PROFILE")]
    profile: Option<String>,
    /// Check all ranks together for worlds of these sizes, 1 to 16384
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

pub fn run(args: CheckArgs, how: DiagnosticFormat) -> CliResult {
    let mut settings = load::settings(&args.config)?;
    if let Some(profile) = &args.profile {
        settings.profile = profile.clone();
    }
    let mut results = FileResults::new(how);
    for file in &args.files {
        results.add(check_file(file, &args, &settings, how).map(|warnings| warnings > 0));
    }
    results.end(args.strict)
}

/// Checks a file of any kind, and returns the number of warnings.
fn check_file(file: &str, args: &CheckArgs, settings: &Settings, how: DiagnosticFormat) -> Result<usize, CliError> {
    let path = project::resolve(file)?;
    if !path.ends_with(".ron") {
        return check(file, args, settings, how);
    }
    output::print(&match kinds::supporting(&path)? {
        Some((kind, text)) => {
            let about = kinds::describe(kind, &path, &text)?;
            let missing = if kind == RonKind::Ranges { ranges(&path, &args.config)? } else { String::new() };
            format!("{file}: good: {about}{missing}\n")
        }
        None if suite::is_suite(&path)? => suite::check(&path, &args.config, how)?,
        None => scenario(file, &args.workload, &args.config)?,
    });
    Ok(0)
}

/// Checks the ranges on metrics of workloads that the file at `path` can name. Returns a note on the other workloads.
fn ranges(path: &str, config: &ConfigArgs) -> Result<String, CliError> {
    let expected = Expected::parse(path, &load::read(Path::new(path), load::FileKind::Expected)?)?;
    let names: BTreeSet<&String> = expected.ranges.iter().filter_map(|range| range.workload.as_ref()).collect();
    let mut missing = Vec::new();
    for name in names {
        let found = [name.clone(), format!("{name}.aorta")].into_iter().find_map(|name| {
            let file = scenarios::workload(Path::new(path), &name).ok()?;
            (library::find(&file).is_some() || container::is_file(Path::new(&file))).then_some(file)
        });
        let loaded = found.map(|file| exec::target(&file, &WorkloadArgs::default(), config));
        let loaded = loaded.and_then(|target| target.and_then(|(args, settings)| exec::compile(&args, &settings)).ok());
        match loaded {
            Some(loaded) => exec::check_ranges(path, &loaded)?,
            None => missing.push(format!("`{name}`")),
        }
    }
    let note = format!("; not checked: metrics of {}, which cannot be found here", missing.join(", "));
    Ok(if missing.is_empty() { String::new() } else { note })
}

/// Describes the run of a scenario, a bundle or a record, so that the user can decide whether to start it.
pub fn scenario(file: &str, workload: &WorkloadArgs, config: &ConfigArgs) -> Result<String, CliError> {
    let (settled, settings) = exec::target(file, workload, config)?;
    let set: Vec<&str> = settled.env.iter().map(String::as_str).collect();
    let mut rows = settled.scenario.as_deref().map(about).unwrap_or_default();
    rows.push(("runs", shell::command(settled.words())));
    rows.push(("sets", if set.is_empty() { "no variables".to_owned() } else { shell::command(set) }));
    rows.push(("simulates", settings.profile.clone()));
    if let Some(scenario) = settled.scenario.as_deref() {
        rows.extend(beyond_exec(scenario));
    }
    let loaded = exec::compile(&settled, &settings)?;
    exec::check_scenario(file, &settled, &loaded)?;
    let topology = Topology::of(&backends::profile_for(&settings, &settled.env)?);
    rows.push(("workload", format!("{} ({})", loaded.origin, loaded.compiled.name)));
    rows.push(("has", summary(&loaded.compiled, topology)));
    let kernels = loaded.compiled.program().specs.iter().filter_map(user_kernel).map(|kernel| kernel.name.to_string());
    let kernels: Vec<String> = kernels.collect::<BTreeSet<_>>().into_iter().collect();
    if !kernels.is_empty() {
        rows.push(("kernels", format!("{}: on a GPU, only with --allow-kernels", kernels.join(", "))));
    }
    let lines = rows.into_iter().map(|(name, value)| format!("  {name:9} {value}\n"));
    Ok(format!("{file}: good\n{}", lines.collect::<String>()))
}

/// Rows for the fields of a scenario that tell a reader what it is.
fn about(scenario: &Scenario) -> Vec<(&'static str, String)> {
    let rows = [
        ("about", scenario.description.clone().unwrap_or_default()),
        ("authors", scenario.authors.join(", ")),
        ("licence", scenario.licence.clone().unwrap_or_default()),
    ];
    let lines = rows.into_iter().map(|(name, value)| (name, visible::one_line(&value).into_owned()));
    lines.filter(|(_, value)| !value.is_empty()).collect()
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

/// Checks a workload or a module for each world size and returns the number of warnings.
fn check(file: &str, args: &CheckArgs, settings: &Settings, how: DiagnosticFormat) -> Result<usize, CliError> {
    let text = load::find(file, settings)?;
    if let Some(user) = load::user_of_module(&text, settings)? {
        let loaded = load::load(&user, &args.workload, settings, RankCount::Exactly(1))?;
        if how == DiagnosticFormat::Text {
            let used = counted(loaded.files.parts.len().saturating_sub(2), "other file");
            output::print(&format!("{}: good: a module, which uses {used}\n", text.name));
        }
        return Ok(0);
    }
    let mut warnings = None;
    let mut failures: Vec<(CliError, Vec<u32>)> = Vec::new();
    let mut numbers = args.ranks.clone();
    numbers.sort_unstable();
    numbers.dedup();
    for &world in &numbers {
        match check_world(&text, (world, warnings.is_none()), args, settings, how) {
            Ok(found) => warnings = Some(warnings.unwrap_or(0) + found),
            Err(error) => match failures.iter_mut().find(|(known, _)| known.is_same(&error)) {
                Some((_, worlds)) => worlds.push(world),
                None => failures.push((error, vec![world])),
            },
        }
    }
    let several = numbers.len() > 1;
    let mut last: Option<CliError> = None;
    for (mut error, worlds) in failures {
        if let CliError::Source { note, .. } = &mut error
            && several
        {
            *note = Note { text: format!(" with {}", in_words(&worlds)), ranks: worlds };
        }
        if let Some(before) = last.replace(error) {
            before.print(how);
        }
    }
    last.map_or(Ok(warnings.unwrap_or(0)), Err)
}

/// Numbers of ranks in words, such as `1 rank` or `1, 2 and 4 ranks`.
fn in_words(worlds: &[u32]) -> String {
    let texts: Vec<String> = worlds.iter().map(u32::to_string).collect();
    match texts.as_slice() {
        [others @ .., last] if !others.is_empty() => format!("{} and {last} ranks", others.join(", ")),
        _ => worlds.iter().map(|&world| counted(world as usize, "rank")).collect(),
    }
}

fn check_world(
    text: &load::WorkloadText,
    (world, first): (u32, bool),
    args: &CheckArgs,
    settings: &Settings,
    how: DiagnosticFormat,
) -> Result<usize, CliError> {
    let loaded = load::load(text, &args.workload, settings, RankCount::Exactly(world))?;
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
            note: Note::default(),
        })?;
    }
    // Lints do not depend on the world size, so they are reported once.
    let mut lints: Vec<BoxedDiagnostic> = if first { loaded.compiled.lint() } else { Vec::new() };
    if first && args.profile.is_some() {
        let RankPlan { program, plan } = &loaded.compiled.ranks[0];
        let schedule = loaded.compiled.place(&loaded.compiled.ranks[0], topology);
        lints.extend(boxed(schedule::lint(program, plan, &schedule, &profile)));
        lints.extend(boxed(schedule::advise(program, plan, &schedule, &profile)));
    }
    if !lints.is_empty() {
        diagnostics::show(lints.iter().map(|one| one.as_ref() as &dyn Diagnostic), &loaded.compiled.sources, how);
    }
    if how == DiagnosticFormat::Text {
        output::print(&format!("{}: good: {}\n", loaded.compiled.name, summary(&loaded.compiled, topology)));
    }
    Ok(diagnostics::warnings(&lints))
}

/// Summarizes the programs, such as `3 operations on 2 streams`; for several ranks, the minimum and the maximum. Streams are real ones,
/// whose number `--streams` can limit.
fn summary(compiled: &Compiled, topology: Topology) -> String {
    let ranks = &compiled.ranks;
    let real = compiled.place(&ranks[0], topology).lanes.len();
    let operations = |rank: &RankPlan| rank.program.cycle.iter().map(|step| step.ops.len()).sum::<usize>();
    let most = ranks.iter().map(operations).max().unwrap_or(0);
    let fewest = ranks.iter().map(operations).min().unwrap_or(0);
    let from = if fewest < most { format!("{fewest} to ") } else { String::new() };
    let program = &ranks[0].program;
    let declared = program.streams.len();
    let mut on = format!("{from}{} on {}", counted(most, "operation"), counted(real, "stream"));
    if real < declared {
        on += &format!(" for {declared} declared");
    }
    if ranks.len() > 1 {
        on += &format!(" on each of {} ranks", ranks.len());
    }
    if program.cycle.len() > 1 {
        on += &format!(" in a cycle of {} iterations", program.cycle.len());
    }
    for (which, block) in program.around.iter() {
        let operations: usize = block.cycle.iter().map(|step| step.ops.len()).sum();
        if operations > 0 {
            on += &format!(", and {} in `{}`", counted(operations, "operation"), which.name());
        }
    }
    on
}
