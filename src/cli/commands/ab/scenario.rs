//! The comparison that a scenario describes: its sides and options.

use super::args::AbArgs;
use crate::base::shell;
use crate::cli::commands::forwarded_options::exec_args;
use crate::cli::commands::{exec, scenario};
use crate::cli::error::{CliError, InputError};
use crate::config::{FIELDS, Mistakes, Scenario, check_setting, check_variable};

/// Names of the sides.
const SIDES: [&str; 2] = ["a", "b"];

/// The arguments of `aorta ab` that the scenario at `file` gives; `None` for other files.
///
/// # Errors
///
/// The scenario has mistakes.
pub fn arguments(file: &str) -> Result<Option<AbArgs>, CliError> {
    let Some((file, scenario)) = scenario::named(file)? else { return Ok(None) };
    let given: AbArgs = scenario::arguments("ab", &file, &scenario)?;
    let [a, b] = SIDES.map(|name| scenario.sides.get(name).cloned().unwrap_or_default());
    Ok(Some(AbArgs { a, b, ..given }))
}

/// Reports the sides that a scenario cannot have: an unknown one, or one with an option, a variable or a setting that a
/// scenario may not give.
pub fn check(file: &str, scenario: &Scenario, mistakes: &mut Mistakes) {
    for (side, options) in &scenario.sides {
        let bad = |why: &str, help: &str| InputError::bad_value(&format!("the side `{side}`"), options, why, help);
        let checked = match SIDES.contains(&side.as_str()) {
            true => check_options(file, options, &bad),
            false => Err(bad("the sides are `a` and `b`", "write `sides: {\"b\": \"--launch graph\"}`")),
        };
        if let Err(error) = checked {
            mistakes.add(&["sides", side], error);
        }
    }
}

/// Reports the sides of the scenario at `file` whose programs have mistakes.
pub fn check_program(file: &str, scenario: &Scenario, mistakes: &mut Mistakes) {
    for (side, options) in &scenario.sides {
        let words = shell::words(options).unwrap_or_default();
        let Ok(exec) = exec_args(&[vec![file.to_owned()], words].concat()) else { continue };
        if let Err(error) = exec::examine(exec) {
            let help = "correct its options, which are those of `aorta exec`";
            let error = InputError::bad_value(&format!("the side `{side}`"), options, &error.text(), help);
            mistakes.add(&["sides", side], error);
        }
    }
}

/// The options of `aorta ab` that a scenario gives, as they would be typed; empty without any.
pub fn words(scenario: &Scenario) -> Vec<String> {
    let sides = scenario.sides.iter().flat_map(|(side, options)| [format!("--{side}"), options.clone()]);
    scenario::words("ab", sides.collect(), scenario)
}

/// Fails unless a scenario may give these options.
fn check_options(file: &str, options: &str, bad: &dyn Fn(&str, &str) -> InputError) -> Result<(), InputError> {
    let words = shell::words(options).ok_or_else(|| bad("a quote is not closed", "close the quote"))?;
    // Files of a side would need the checks of the scenario's own.
    let is_allowed = |option: &str| {
        option != "--expected"
            && FIELDS
                .iter()
                .any(|field| field.commands.contains(&"exec") && field.option.split('=').next() == Some(option))
    };
    let given = words.iter().map(|word| word.split('=').next().unwrap_or(word)).filter(|word| word.starts_with('-'));
    if let Some(option) = given.into_iter().find(|option| !is_allowed(option)) {
        let why = format!("a scenario cannot give `{option}`");
        return Err(bad(&why, "leave it out, or give it on the command line: `--b \"…\"`"));
    }
    let exec =
        exec_args(&[vec![file.to_owned()], words].concat()).map_err(|mistake| bad(&mistake.why, &mistake.help))?;
    for (name, value) in exec.env.iter().filter_map(|pair| pair.split_once('=')) {
        check_variable(file, name, value)?;
    }
    for (name, value) in exec.config.config.iter().filter_map(|pair| pair.split_once('=')) {
        check_setting(file, name, value)?;
    }
    Ok(())
}
