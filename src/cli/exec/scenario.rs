//! Merges a scenario with the command's arguments, which take precedence.

use std::path::PathBuf;

use super::args::{ExecArgs, exec_args};
use crate::cli::error::CliError;
use crate::cli::{container, project, scenario};
use crate::config::{BackendSetting, Field, Scenario};

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
    let scenario = scenario::read(&path)?;
    let words: Vec<String> = chosen(&scenario, &args).into_iter().flat_map(|(_, words)| words).collect();
    let below = exec_args(&[vec![scenario.workload.clone()], words].concat())
        .map_err(|mistake| mistake.of("the scenario", &args.file))?;
    let scenario = Some(Box::new(scenario));
    Ok(ExecArgs { scenario, ..args.over(below) })
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
