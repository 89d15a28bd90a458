//! Merges a scenario with the command's arguments, which take precedence.

use std::path::{Path, PathBuf};

use clap::Args;

use super::args::{ExecArgs, Mistake, exec_args, parsed};
use crate::cli::backends::BackendArg;
use crate::cli::error::{CliError, InputError};
use crate::cli::{container, file_access, library, load, project};
use crate::config::{Field, Scenario};

/// Returns the arguments with the file that their name means, completed by a scenario if it is one.
pub(super) fn with_scenario(mut args: ExecArgs) -> Result<ExecArgs, CliError> {
    args.file = project::resolve(&args.file)?;
    let path = PathBuf::from(&args.file);
    if let Some(inside) = container::inside(&path)?
        && !container::is_bundle(&inside.container.display().to_string())
    {
        args.repeats = Some(inside.container);
    }
    if !args.file.ends_with(".ron") {
        return Ok(args);
    }
    let scenario = read(&path)?;
    let words: Vec<String> = chosen(&scenario, &args).into_iter().flat_map(|(_, words)| words).collect();
    let below = exec_args(&[vec![scenario.workload.clone()], words].concat())
        .map_err(|mistake| invalid::<ExecArgs>("exec", &path, &scenario, mistake))?;
    let scenario = Some(Box::new(scenario));
    Ok(ExecArgs { scenario, ..args.over(below) })
}

/// Reads a scenario, and finds the files that it names.
///
/// # Errors
///
/// A file is out of its reach.
pub fn read(path: &Path) -> Result<Scenario, CliError> {
    let name = path.display().to_string();
    let mut scenario = Scenario::parse(&name, &load::read(path, load::FileKind::Scenario)?)?;
    scenario.workload = workload(path, &scenario.workload)?;
    let files = [
        ("profile", &mut scenario.profile),
        ("topology", &mut scenario.topology),
        ("expected", &mut scenario.expected),
    ];
    for (what, file) in files {
        if let Some(file) = file.as_mut().filter(|file| file.ends_with(".ron")) {
            let found = beside(path, file).unwrap_or_else(|| PathBuf::from(&*file));
            file_access::check(path, &found, what)?;
            *file = found.display().to_string();
        }
    }
    Ok(scenario)
}

/// A file that a scenario names by a path relative to itself; `None` if there is none.
fn beside(scenario: &Path, name: &str) -> Option<PathBuf> {
    scenario.parent().map(|folder| folder.join(name)).filter(|file| container::is_file(file))
}

/// The `FILE` argument for a workload that a scenario or a suite names: a file beside it, a workload of its project or a
/// shipped one, or any other file within its reach.
pub fn workload(by: &Path, name: &str) -> Result<String, CliError> {
    let found = match beside(by, name) {
        Some(file) => file,
        None => {
            let folder = by.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            match project::find(name, folder)? {
                Some(file) => file,
                None if library::find(name).is_some() => return Ok(name.to_owned()),
                None => PathBuf::from(name),
            }
        }
    };
    file_access::check(by, &found, "workload")?;
    Ok(found.display().to_string())
}

/// The fields of a scenario with their arguments, without those that the command's own arguments replace.
fn chosen(scenario: &Scenario, args: &ExecArgs) -> Vec<(&'static Field, Vec<String>)> {
    // The scenario's device index refers to a GPU, so it does not apply to the CPU or the simulator.
    let elsewhere = matches!(args.backend, Some(BackendArg::Sim | BackendArg::Host));
    let configured = |name: &str| {
        let mut pairs = args.config.config.iter().filter_map(|pair| pair.split_once('='));
        pairs.any(|(key, _)| key.trim() == name)
    };
    let is_replaced = |name: &str| match name {
        "device" => elsewhere,
        "ranks" => args.emulate.is_some(),
        "emulate" | "rank" => args.emulate.is_some() || args.ranks.is_some(),
        name => configured(name),
    };
    scenario.arguments("exec").into_iter().filter(|(field, _)| !is_replaced(field.name)).collect()
}

/// The arguments of a command, such as `sweep`, that the scenario at `path` gives.
///
/// # Errors
///
/// The command does not accept a value.
pub fn scenario_arguments<A: Args>(command: &'static str, path: &Path, scenario: &Scenario) -> Result<A, InputError> {
    let words: Vec<String> = scenario.arguments(command).into_iter().flat_map(|(_, words)| words).collect();
    parsed(command, &[vec![path.display().to_string()], words].concat())
        .map_err(|mistake| invalid::<A>(command, path, scenario, mistake))
}

/// The error of a scenario whose arguments are invalid. Names the field, if it is invalid by itself.
fn invalid<A: Args>(command: &'static str, path: &Path, scenario: &Scenario, all: Mistake) -> InputError {
    for (field, words) in scenario.arguments(command) {
        // A rank is only valid with the world that it belongs to.
        if field.name == "rank" {
            continue;
        }
        for word in words {
            let value = word.strip_prefix(field.option).unwrap_or_default().to_owned();
            if let Err(mistake) = parsed::<A>(command, &["file".to_owned(), word]) {
                return mistake.of(&format!("`{}` of {}", field.name, path.display()), &value);
            }
        }
    }
    all.of("the scenario", &path.display().to_string())
}
