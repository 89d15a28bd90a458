//! The sweep that a scenario describes: its axes and options.

use std::path::Path;

use crate::base::suggest;
use crate::cli::commands::forwarded_options::{ForwardedOptions, exec_args};
use crate::cli::commands::scenario;
use crate::cli::error::{CliError, InputError};
use crate::cli::inputs::load::{self, FileKind};
use crate::cli::inputs::mistake_location::{self, Given};
use crate::cli::targets;
use crate::config::{Mistakes, Scenario, check_setting, check_variable};
use crate::measure::cases::NAMED_OPTIONS;
use crate::syntax::Ast;

use super::args::{Axes, SweepArgs};
use super::axes::SweepOptions;
use super::values;

/// The arguments, completed by the options of a scenario.
pub fn completed(args: SweepArgs) -> Result<SweepArgs, CliError> {
    match scenario::named(&args.file)? {
        Some((file, scenario)) => Ok(args.over(scenario::arguments("sweep", &file, &scenario)?)?),
        None => {
            args.check_search(false)?;
            Ok(args)
        }
    }
}

/// Adds the axes of a scenario, except those that the command gives itself.
pub fn add_axes(args: &SweepArgs, options: &mut SweepOptions) -> Result<(), CliError> {
    let Some((file, scenario)) = scenario::named(&args.file)? else { return Ok(()) };
    let own = [args.lists.words(), args.same.words()].concat();
    for (axis, list) in &scenario.axes {
        let (option, name) = split(axis)?;
        values::split(list).into_iter().try_for_each(|value| check_value(&file, option, name, value))?;
        let given = if name.is_empty() { list.clone() } else { format!("{name}={list}") };
        if !targets::is_set(&own, option, &given) {
            options.add(option, &given)?;
        }
    }
    Ok(())
}

/// The option of an axis, and the name that follows it: `set` and `n` of `set n`. Fails if the option takes no list.
fn split(axis: &str) -> Result<(&'static str, &str), InputError> {
    let (option, name) = axis.split_once(' ').unwrap_or((axis, ""));
    let Some(option) = Axes::OPTIONS.iter().find(|known| **known == option) else {
        let help = format!("options with lists are {}", suggest::listed(Axes::OPTIONS));
        let help = suggest::nearest(option, Axes::OPTIONS.iter().copied())
            .map_or(help, |near| format!("did you mean `{near}`?"));
        let why = "it is not an option of `aorta sweep` that takes a list";
        return Err(InputError::bad_value("an axis", axis, why, &help));
    };
    let is_named = NAMED_OPTIONS.contains(option);
    if is_named && name.is_empty() {
        let help = format!("write the name behind it: `{{\"{option} NAME\": [1, 2]}}`");
        return Err(InputError::bad_value("an axis", axis, "it has no name of what varies", &help));
    }
    if !is_named && !name.is_empty() {
        let help = format!("write `{option}`; a parameter is `\"set {name}\"`");
        return Err(InputError::bad_value("an axis", axis, &format!("`{option}` has no name behind it"), &help));
    }
    Ok((option, name))
}

/// Fails if a scenario cannot give this value to an option.
fn check_value(file: &str, option: &str, name: &str, value: &str) -> Result<(), InputError> {
    match option {
        "env" => check_variable(file, name, values::unquoted(value))?,
        "config" => check_setting(file, name, value)?,
        "set" => {}
        option => drop(
            exec_args(&["file".to_owned(), format!("--{option}={value}")])
                .map_err(|mistake| mistake.of(&format!("`{option}`"), value))?,
        ),
    }
    Ok(())
}

/// The error of a value of an axis, with the line of the scenario that gives it; the same error for other files.
pub fn placed(file: &str, error: CliError) -> Result<CliError, CliError> {
    let Some((file, scenario)) = scenario::named(file)? else { return Ok(error) };
    let text = load::read(Path::new(&file), FileKind::Scenario)?;
    let (_, mistakes) = Scenario::read(&file, &text);
    let place = |axis: &str, value: &str| {
        let (axis, list) = scenario.axes.get_key_value(axis)?;
        let index = values::split(list).iter().position(|known| *known == value)?.to_string();
        mistakes.place(&["axes", axis, &index]).or_else(|| mistakes.place(&["axes", axis]))
    };
    Ok(mistake_location::in_file(error, (&file, &text), &|given| match given {
        Given::Param(name, value) => place(&format!("set {name}"), value).or_else(|| place(name, value)),
        Given::Preset => None,
    }))
}

/// Reports the axes of parameters and presets that the workload does not have.
pub fn check_program(scenario: &Scenario, ast: &Ast, mistakes: &mut Mistakes) {
    let params: Vec<&str> = ast.params().map(|name| ast.names.name(name.symbol)).collect();
    let presets: Vec<&str> = ast.presets().map(|(name, _)| ast.names.name(name.symbol)).collect();
    let mut unknown = |path: &[&str], what: &str, name: &str, known: &[&str]| {
        let help = suggest::did_you_mean(name, known.to_vec());
        let help = help.unwrap_or_else(|| format!("`aorta show {}` lists each {what}", scenario.workload));
        let why = format!("the workload has no {what} of that name");
        mistakes.add(path, InputError::bad_value(&format!("the {what} of an axis"), name, &why, &help));
    };
    for (axis, list) in &scenario.axes {
        match axis.split_once(' ') {
            Some(("set", name)) if !params.contains(&name.trim()) => {
                unknown(&["axes", axis], "parameter", name, &params);
            }
            None if axis == "preset" => {
                for (preset, index) in values::split(list).into_iter().zip(0usize..) {
                    if !presets.contains(&preset) {
                        unknown(&["axes", axis, &index.to_string()], "preset", preset, &presets);
                    }
                }
            }
            _ => {}
        }
    }
}

/// Reports the axes that a scenario cannot have.
pub fn check(file: &str, scenario: &Scenario, mistakes: &mut Mistakes) {
    for (axis, list) in &scenario.axes {
        match split(axis) {
            Err(error) => mistakes.add(&["axes", axis], error),
            Ok((option, name)) => {
                for (value, index) in values::split(list).into_iter().zip(0usize..) {
                    if let Err(error) = check_value(file, option, name, value) {
                        mistakes.add(&["axes", axis, &index.to_string()], error);
                    }
                }
            }
        }
    }
}

/// The options of `aorta sweep` that a scenario gives, as they would be typed; empty without any.
pub fn words(scenario: &Scenario) -> Vec<String> {
    let axis = |(axis, list): (&String, &String)| match axis.split_once(' ') {
        Some((option, name)) => [format!("--{option}"), format!("{name}={list}")],
        None => [format!("--{axis}"), list.clone()],
    };
    scenario::words("sweep", scenario.axes.iter().flat_map(axis).collect(), scenario)
}
