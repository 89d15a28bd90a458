//! Finds values of axes that the workload or an option refuses.

use crate::base::shell;
use crate::cli::error::CliError;
use crate::cli::inputs::mistake_location;
use crate::measure::cases::Axis;

use super::{axes, examine};

/// Number of cases that fail with the same error about a value before the other cases with it count as refused as well.
/// Compiling all of them could take as long as the sweep.
const WITNESSES: usize = 8;

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
            let with_value: Vec<&Vec<usize>> = cases.iter().filter(|places| places[number] == index).collect();
            let others = axes::shuffled(with_value.len()).into_iter().map(|place| with_value[place]);
            let tried = (!zip).then_some(&nearest).into_iter().chain(others);
            let examined = tried.map(|places| examine(&mut axes::case(axes, same, places)).err());
            let typed = shell::command([axis.argument(&axis.values[index])]);
            refused.extend(common(examined, axis).map(|error| (typed, error)));
        }
    }
    refused
}

/// The first of the errors of cases if all of them are about the value of the axis; `None` otherwise. Ends early if many
/// cases have the same error.
fn common(mut examined: impl Iterator<Item = Option<CliError>>, axis: &Axis) -> Option<CliError> {
    let is_of_axis = |error: &CliError| is_of_value(error, axis);
    let first = examined.next()?.filter(is_of_axis)?;
    let (text, mut is_same) = (first.text(), true);
    for (other, count) in examined.zip(2..) {
        is_same &= other.filter(is_of_axis)?.text() == text;
        if is_same && count >= WITNESSES {
            break;
        }
    }
    Some(first)
}

/// True if the error is about the value of the axis, and not about the program that it makes.
fn is_of_value(error: &CliError, axis: &Axis) -> bool {
    match error {
        CliError::Source { diagnostics, sources, .. } => diagnostics
            .iter()
            .any(|diagnostic| mistake_location::is_of_argument(diagnostic.as_ref(), sources, &axis.option, &axis.name)),
        CliError::Input(_) | CliError::Config(_) => true,
        CliError::Exec { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::cli::error::InputError;

    #[test]
    fn the_same_error_many_times_is_enough() {
        let axis = Axis { option: "set".to_owned(), name: "n".to_owned(), values: Vec::new() };
        let refused = |why: &str| Some(CliError::from(InputError::bad_value("`n`", "7", why, "write `8`")));
        let examined = |errors: Vec<Option<CliError>>| {
            let count = Cell::new(0);
            let found = common(errors.into_iter().inspect(|_| count.set(count.get() + 1)), &axis);
            (found.map(|error| error.text()), count.get())
        };
        let all = |count: usize| (0..count).map(|_| refused("it is odd")).collect::<Vec<_>>();
        let text = refused("it is odd").map(|error| error.text());
        assert_eq!(examined(all(1000)), (text.clone(), WITNESSES));
        assert_eq!(examined(all(3)), (text.clone(), 3));
        assert_eq!(examined(Vec::new()), (None, 0));
        // An error that depends on the other values is examined in every case.
        let several =
            |last| all(1).into_iter().chain([refused("it is more than 4")]).chain(all(20)).chain([last]).collect();
        assert_eq!(examined(several(refused("it is odd"))), (text, 23));
        assert_eq!(examined(several(None)), (None, 23));
    }
}
