//! Places the mistakes of a case in the suite's text.

use std::ops::Range;

use crate::cli::error::CliError;
use crate::cli::placed::{self, FieldPlace, Given};
use crate::config::{ConfigError, Mistakes, SuiteCase, SuiteFile};

use super::plan::CaseMistake;

/// Returns the error of a case, with the lines of the suite that have caused it. `text` is the text of the suite, and `mistakes`
/// are the mistakes in its values found so far.
pub fn placed(
    mistake: CaseMistake,
    case: &SuiteCase,
    (suite, text): (&SuiteFile, &str),
    mistakes: &Mistakes,
) -> CliError {
    let paths = |names: &[&str]| paths(case, suite, names);
    match *mistake.error {
        CliError::Input(error) => {
            let mut mistakes = mistakes.clone();
            let field: Vec<&str> = mistake.field.iter().map(String::as_str).collect();
            let path = paths(&field).into_iter().find(|path| mistakes.has(&words(path)));
            let path = path.unwrap_or_else(|| within(case, &field));
            mistakes.add(&words(&path), error);
            ConfigError::from(mistakes).into()
        }
        error => placed::in_file(error, (&suite.name, text), &|given| {
            let find = |names: &[&str]| paths(names).iter().find_map(|path| place(path, mistakes));
            match given {
                Given::Preset => find(&["preset"]),
                Given::Param("streams", _) => find(&["streams"]).or_else(|| find(&["params", "streams"])),
                Given::Param(name, _) => find(&["params", name]),
            }
        }),
    }
}

/// Paths at which a field of an expanded case can stand, the one that takes precedence first.
fn paths(case: &SuiteCase, suite: &SuiteFile, field: &[&str]) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    let axes = suite.cases.get(case.declared).map(|declared| &declared.axes[..]).unwrap_or_default();
    for (number, axis) in axes.iter().enumerate().rev() {
        let Some(value) = case.values.get(&axis.name) else { continue };
        let number = number.to_string();
        if let (["params", name], Some(param)) = (field, &axis.param)
            && name == param
            && let Some(index) = axis.values.iter().position(|known| known == value)
        {
            paths.push(within(case, &["axes", &number, "values", &index.to_string()]));
        }
        paths.push(within(case, &[&["axes", &number, "cases", value], field].concat()));
    }
    paths.push(within(case, field));
    paths
}

/// The path of a field of the case as the suite declares it.
fn within(case: &SuiteCase, field: &[&str]) -> Vec<String> {
    let index = case.declared.to_string();
    [&["cases", &index], field].concat().into_iter().map(str::to_owned).collect()
}

fn words(path: &[String]) -> Vec<&str> {
    path.iter().map(String::as_str).collect()
}

/// Bytes of the name and of the value at a path; `None` if nothing is there. The name of an axis's value is its `param`.
fn place(path: &[String], mistakes: &Mistakes) -> Option<FieldPlace> {
    let (name, value): (Range<usize>, Range<usize>) = mistakes.place(&words(path))?;
    match words(path).as_slice() {
        [axis @ .., "values", _] => {
            let (_, param) = mistakes.place(&[axis, &["param"]].concat())?;
            Some((param, value))
        }
        _ => Some((name, value)),
    }
}
