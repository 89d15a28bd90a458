//! Merges a scenario with the command's arguments, which take precedence.

use std::path::PathBuf;

use clap::ValueEnum;

use crate::config::{LaunchSetting, Scenario, Settings};

use super::args::{ExecArgs, MAX_RANKS};
use crate::cli::backends::BackendArg;
use crate::cli::error::{CliError, InputError};
use crate::cli::{file_access, library, load};

/// Returns the arguments completed by a scenario.
pub(super) fn with_scenario(mut args: ExecArgs, settings: &mut Settings) -> Result<ExecArgs, CliError> {
    if !args.file.ends_with(".ron") {
        return Ok(args);
    }
    let path = PathBuf::from(&args.file);
    let text = load::read(&path, load::FileKind::Scenario)?;
    let scenario = Scenario::parse(&args.file, &text)?;
    let bad = |what: &str, value: &str, why: &str, instead: &str| InputError::BadValue {
        what: format!("`{what}` of {}", path.display()),
        value: value.to_owned(),
        why: why.to_owned(),
        help: format!("write `{what}: {instead}`, or leave it out"),
    };
    // A path is relative to the scenario; a bare name is looked up as on the command line.
    let beside = path.parent().map(|folder| folder.join(&scenario.workload)).filter(|file| file.is_file());
    if beside.is_some() || library::find(&scenario.workload).is_none() {
        let named = beside.clone().unwrap_or_else(|| PathBuf::from(&scenario.workload));
        file_access::check(&path, &named, "workload")?;
    }
    args.file = beside.map_or(scenario.workload, |file| file.display().to_string());
    args.workload.preset = args.workload.preset.or(scenario.preset);
    args.workload.streams = args.workload.streams.or(scenario.streams);
    let named = |pair: &String| pair.split_once('=').map(|(name, _)| name.trim().to_owned());
    let given: Vec<String> = args.workload.set.iter().filter_map(named).collect();
    for (name, value) in scenario.params {
        let overridden = name == "streams" && args.workload.streams.is_some();
        if !given.contains(&name) && !overridden {
            args.workload.set.push(format!("{name}={value}"));
        }
    }
    // The scenario's device index refers to a GPU, so it does not apply to the CPU or the simulator.
    let elsewhere = matches!(args.backend, Some(BackendArg::Sim | BackendArg::Host));
    args.device = args.device.or(scenario.device.filter(|_| !elsewhere));
    if let Some(backend) = scenario.backend
        && args.backend.is_none()
    {
        let parsed = BackendArg::from_str(&backend, true);
        args.backend =
            Some(parsed.map_err(|_| bad("backend", &backend, "it is auto, cuda, hip, host or sim", "\"sim\""))?);
    }
    if let Some(launch) = scenario.launch
        && args.launch.is_none()
    {
        let parsed = LaunchSetting::from_str(&launch, true);
        args.launch = Some(parsed.map_err(|_| bad("launch", &launch, "it is stream, graph or both", "\"graph\""))?);
    }
    if let Some(ranks) = scenario.ranks.filter(|ranks| !(1..=MAX_RANKS).contains(ranks)) {
        return Err(bad("ranks", &ranks.to_string(), &format!("it is between 1 and {MAX_RANKS}"), "8").into());
    }
    args.ranks = args.ranks.or(scenario.ranks);
    if let Some(profile) = scenario.profile {
        let chosen = args.config.config.iter().any(|pair| pair.starts_with("profile="));
        if !chosen {
            if profile.ends_with(".ron") {
                file_access::check(&path, profile.as_ref(), "profile")?;
            }
            settings.profile = profile;
        }
    }
    args.effort = args.effort.or(scenario.effort);
    let variables: Vec<String> = args.env.iter().filter_map(named).collect();
    for (name, value) in scenario.environment {
        if !variables.contains(&name) {
            args.env.push(format!("{name}={value}"));
        }
    }
    Ok(args)
}
