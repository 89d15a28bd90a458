//! Finds values of axes that the workload or an option refuses.

use crate::base::shell;
use crate::cli::axis::argument;
use crate::cli::error::CliError;
use crate::cli::placed;
use crate::measure::cases::Axis;

use super::{axes, examine};

/// Returns the error of each value that no case can have, with the argument that sets it, in the order of the axes.
///
/// `fit` is a case that can run, as indices into the axes' values; `cases` are all cases of the sweep. A case that
/// `require` excludes, or for which a combination of values is wrong, refuses no value.
pub fn values(
    axes: &[Axis],
    same: &[String],
    cases: &[Vec<usize>],
    (fit, zip): (&[usize], bool),
) -> Vec<(String, CliError)> {
    let mut refused = Vec::new();
    for (axis, number) in axes.iter().zip(0usize..) {
        for index in (0..axis.values.len()).filter(|index| *index != fit[number]) {
            // The case that differs from the fitting one in this value alone most probably shows whether it is allowed.
            let mut nearest = fit.to_vec();
            nearest[number] = index;
            let with_value = cases.iter().filter(|places| places[number] == index);
            let mut error = None;
            let is_refused = (!zip).then_some(&nearest).into_iter().chain(with_value).all(|places| {
                match examine(&mut axes::case(axes, same, places)) {
                    Err(found) if is_of_value(&found, axis) => {
                        error.get_or_insert(found);
                        true
                    }
                    _ => false,
                }
            });
            let typed = shell::command([argument(axis, &axis.values[index])]);
            refused.extend(error.filter(|_| is_refused).map(|error| (typed, error)));
        }
    }
    refused
}

/// True if the error is about the value of the axis, and not about the program that it makes.
fn is_of_value(error: &CliError, axis: &Axis) -> bool {
    match error {
        CliError::Source { diagnostics, sources, .. } => diagnostics
            .iter()
            .any(|diagnostic| placed::is_of_argument(diagnostic.as_ref(), sources, &axis.option, &axis.name)),
        CliError::Input(_) | CliError::Config(_) => true,
        CliError::Exec { .. } => false,
    }
}
