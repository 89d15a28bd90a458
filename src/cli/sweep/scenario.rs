//! The sweep that a scenario describes: its axes and options.

use std::path::Path;

use crate::base::suggest;
use crate::cli::error::{CliError, InputError};
use crate::cli::passed::PassedOptions;
use crate::cli::{project, scenario};
use crate::config::{Mistakes, Scenario, check_setting, check_variable};

use super::args::{Axes, SweepArgs};
use super::axes::Options;
use super::values;

/// The scenario that a sweep's file is, with its path; `None` for other files.
fn find(file: &str) -> Result<Option<(String, Scenario)>, CliError> {
    let file = project::resolve(file)?;
    if !file.ends_with(".ron") {
        return Ok(None);
    }
    let scenario = scenario::read(Path::new(&file))?;
    Ok(Some((file, scenario)))
}

/// The arguments, completed by the options of a scenario.
pub fn completed(args: SweepArgs) -> Result<SweepArgs, CliError> {
    match find(&args.file)? {
        Some((file, scenario)) => Ok(args.over(scenario::arguments("sweep", &file, &scenario)?)?),
        None => {
            args.check_search(false)?;
            Ok(args)
        }
    }
}

/// Adds the axes of a scenario, except those that the command gives itself.
pub fn add_axes(args: &SweepArgs, options: &mut Options) -> Result<(), CliError> {
    let Some((file, scenario)) = find(&args.file)? else { return Ok(()) };
    for (axis, list) in &scenario.axes {
        let (option, name) = split(&file, axis, list)?;
        let given = if name.is_empty() { list.clone() } else { format!("{name}={list}") };
        let is_same = |given: &str| name.is_empty() || given.split_once('=').is_some_and(|(own, _)| own.trim() == name);
        let mut own = args.lists.given.iter().filter(|(given, _)| *given == option);
        if !own.any(|(_, given)| is_same(given.as_deref().unwrap_or_default())) {
            options.add(option, &given)?;
        }
    }
    Ok(())
}

/// The option of an axis, and the name that follows it: `set` and `n` of `set n`.
///
/// # Errors
///
/// The option takes no list, or a scenario may not set one of the values.
fn split<'a>(file: &str, axis: &'a str, list: &str) -> Result<(&'static str, &'a str), InputError> {
    let (option, name) = axis.split_once(' ').unwrap_or((axis, ""));
    let Some(option) = Axes::OPTIONS.iter().find(|known| **known == option) else {
        let help = format!("options with lists are {}", suggest::listed(Axes::OPTIONS));
        let help = suggest::nearest(option, Axes::OPTIONS.iter().copied())
            .map_or(help, |near| format!("did you mean `{near}`?"));
        let why = "it is not an option of `aorta sweep` that takes a list";
        return Err(InputError::bad_value("an axis", axis, why, &help));
    };
    for value in values::split(list) {
        match *option {
            "env" => check_variable(file, name, values::unquoted(value))?,
            "config" => check_setting(file, name, value)?,
            _ => {}
        }
    }
    Ok((option, name))
}

/// Reports the axes that a scenario cannot have.
pub fn check(file: &str, scenario: &Scenario, mistakes: &mut Mistakes) {
    for (axis, list) in &scenario.axes {
        if let Err(error) = split(file, axis, list) {
            mistakes.add(&["axes", axis], error);
        }
    }
}

/// The options of `aorta sweep` that a scenario gives, as they would be typed; empty without any.
pub fn words(scenario: &Scenario) -> Vec<String> {
    let axis = |(axis, list): (&String, &String)| match axis.split_once(' ') {
        Some((option, name)) => [format!("--{option}"), format!("{name}={list}")],
        None => [format!("--{axis}"), list.clone()],
    };
    let options = scenario.arguments("sweep").into_iter().filter(|(field, _)| {
        // A seed by itself may be that of a comparison.
        field.commands == ["sweep"] || !scenario.axes.is_empty()
    });
    scenario.axes.iter().flat_map(axis).chain(options.flat_map(|(_, words)| words)).collect()
}
