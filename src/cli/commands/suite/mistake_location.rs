//! Places the mistakes of a case in the suite's text.

use std::ops::Range;

use crate::cli::error::CliError;
use crate::cli::inputs::mistake_location::{self, FieldPlace, Given};
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
    match *mistake.error {
        CliError::Input(error) => {
            let mut mistakes = mistakes.clone();
            let field: Vec<&str> = mistake.field.iter().map(String::as_str).collect();
            let path = suite.path(case, &field, &mistakes);
            mistakes.add(&words(&path), error);
            ConfigError::from(mistakes).into()
        }
        error => mistake_location::in_file(error, (&suite.name, text), &|given| {
            let find = |names: &[&str]| suite.paths(case, names).iter().find_map(|path| place(path, mistakes));
            match given {
                Given::Preset => find(&["preset"]),
                Given::Param("streams", _) => find(&["streams"]).or_else(|| find(&["params", "streams"])),
                Given::Param(name, _) => find(&["params", name]),
            }
        }),
    }
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
