//! Merges a scenario with the command's arguments, which take precedence.

use std::path::PathBuf;

use super::args::{ExecArgs, exec_args};
use crate::cli::commands::scenario;
use crate::cli::error::CliError;
use crate::cli::inputs::load::{self, FileKind};
use crate::cli::inputs::mistake_location::{self, Given};
use crate::cli::inputs::{container, project};
use crate::config::{BackendSetting, Field, Scenario};

/// Returns the arguments with their file name resolved and, if the file is a scenario, completed by its fields.
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
    let scenario = scenario::read(&path)?;
    let words: Vec<String> = chosen(&scenario, &args).into_iter().flat_map(|(_, words)| words).collect();
    let below = exec_args(&[vec![scenario.workload.clone()], words].concat())
        .map_err(|mistake| mistake.of("the scenario", &args.file))?;
    let scenario = Some(Box::new(scenario));
    Ok(ExecArgs { scenario, scenario_file: Some(path), ..args.over(below) })
}

/// The error of the run's workload, with the lines of the scenario that gave the values.
pub(super) fn placed(error: CliError, args: &ExecArgs) -> CliError {
    let (Some(scenario), Some(path)) = (&args.scenario, &args.scenario_file) else { return error };
    let Ok(text) = load::read(path, FileKind::Scenario) else { return error };
    let name = path.display().to_string();
    let (_, mistakes) = Scenario::read(&name, &text);
    mistake_location::in_file(error, (&name, &text), &|given| match given {
        Given::Preset if args.workload.preset == scenario.preset => mistakes.place(&["preset"]),
        Given::Param("streams", value) if scenario.streams.is_some_and(|count| count.to_string() == value) => {
            mistakes.place(&["streams"])
        }
        Given::Param(name, value) if scenario.params.get(name).is_some_and(|own| own == value) => {
            mistakes.place(&["params", name])
        }
        _ => None,
    })
}

/// The fields of a scenario with their arguments, without those that the command's own arguments replace.
fn chosen(scenario: &Scenario, args: &ExecArgs) -> Vec<(&'static Field, Vec<String>)> {
    // The scenario's device index refers to a GPU, so it does not apply to the CPU or the simulator.
    let elsewhere = matches!(args.backend, Some(BackendSetting::Sim | BackendSetting::Host));
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
