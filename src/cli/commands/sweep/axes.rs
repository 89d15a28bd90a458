//! Derives axes from the options of a sweep, and cases from the axes.

use indexmap::IndexMap;

use crate::base::random::hash;
use crate::base::shell;
use crate::cli::error::InputError;
use crate::cli::processes::cases::PlannedCase;
use crate::measure::cases::{Axis, NAMED_OPTIONS};

use super::values::{split, unquoted};

/// Maximum number of cases.
pub const MAX_CASES: usize = 4096;

/// Maximum number of values of a range that the help for it lists.
const MAX_LISTED: usize = 8;

/// Number of cases tried before a search begins; one of them must be able to run.
const TRIED_CASES: u64 = 64;

/// The options of a sweep: its axes, and the options that all cases share.
#[derive(Debug, Default, PartialEq)]
pub struct SweepOptions {
    pub axes: Vec<Axis>,
    /// Arguments of `aorta exec` that all cases share.
    pub fixed: Vec<String>,
}

impl SweepOptions {
    /// Adds an option. A single value applies to all cases; several values make an axis.
    pub fn add(&mut self, option: &str, given: &str) -> Result<(), InputError> {
        let named = NAMED_OPTIONS.contains(&option);
        let (name, text) = match given.split_once('=') {
            Some((name, text)) if named => (name.trim(), text),
            // The parser of the option reports the mistake in it.
            None if named => ("", given),
            _ => (option, given),
        };
        let values = split(text);
        if option != "env"
            && let Some(list) = listed_range(text)
        {
            let why = format!("`{text}` is a range, and an axis takes a list of values");
            return Err(InputError::Axes {
                why,
                help: format!("list each value that the file allows, such as `{list}`"),
            });
        }
        if let ("set", [value]) = (option, &values[..])
            && let Some(list) = value.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'))
            // Another bracket chooses an element: `[1, 2][n]`.
            && !list.contains('[')
        {
            let why = format!("`{value}` is a list in brackets, and a parameter has no list as its value");
            let list = shell::command(["--set", &format!("{name}={}", split(list).join(","))]);
            return Err(InputError::Axes {
                why,
                help: format!("write the values of the axis without brackets: `{list}`"),
            });
        }
        let is_empty = option == "set" && !name.is_empty() && text.is_empty();
        if values.len() == 1 && !is_empty {
            let value = if option == "env" && !name.is_empty() {
                format!("{name}={}", unquoted(text))
            } else {
                given.to_owned()
            };
            self.fixed.push(format!("--{option}={value}"));
            return Ok(());
        }
        let mut axis = Axis { option: option.to_owned(), name: name.to_owned(), values: Vec::new() };
        for value in values {
            add_value(&mut axis, value)?;
        }
        self.push(axis)
    }

    pub fn push(&mut self, axis: Axis) -> Result<(), InputError> {
        if self.axes.iter().any(|known| known.name == axis.name) {
            let why = format!("two axes are called `{}`", axis.name);
            return Err(InputError::Axes { why, help: "give each its values in one list: `--set n=1,2,4`".to_owned() });
        }
        self.axes.push(axis);
        Ok(())
    }
}

/// A list for a range: the ends of `1..4`, `1..=4` or `1:4`, each value of `1:4:1`; `None` for another text.
fn listed_range(text: &str) -> Option<String> {
    let (from, rest) = text.split_once("..").or_else(|| text.split_once(':'))?;
    let (to, step) = rest.split_once(':').map_or((rest, None), |(to, step)| (to, Some(step)));
    let (from, to): (u64, u64) = (from.trim().parse().ok()?, to.trim_start_matches('=').trim().parse().ok()?);
    let (from, to) = (from.min(to), from.max(to));
    let step = step.map_or(Some(to.saturating_sub(from)), |step| step.trim().parse().ok())?;
    let listed = (from..=to).step_by(usize::try_from(step).ok()?.max(1)).take(MAX_LISTED);
    Some(listed.map(|value| value.to_string()).collect::<Vec<_>>().join(","))
}

/// Adds a value, which must not be there yet.
pub fn add_value(axis: &mut Axis, value: &str) -> Result<(), InputError> {
    let value = if axis.option == "env" { unquoted(value) } else { value };
    let named = NAMED_OPTIONS.contains(&axis.option.as_str());
    let typed = if named { format!("--{} {}", axis.option, axis.name) } else { format!("--{}", axis.option) };
    if value.is_empty() {
        let why = format!("a value of `{typed}` is empty");
        return Err(InputError::Axes { why, help: "write values with one comma between them: `1,2,4`".to_owned() });
    }
    if axis.values.iter().any(|known| known == value) {
        let why = format!("`{typed}` has the value `{value}` twice");
        return Err(InputError::Axes { why, help: "name each value once: it is one case".to_owned() });
    }
    axis.values.push(value.to_owned());
    Ok(())
}

/// Returns the cases as indices into the axes' values: each value with each, the last axis varying fastest; or, with `zip`, the
/// first values, the second values, and so on.
pub fn cases(axes: &[Axis], zip: bool) -> Result<Vec<Vec<usize>>, InputError> {
    let Some(first) = axes.first() else { return Ok(Vec::new()) };
    if zip && let Some(other) = axes.iter().find(|axis| axis.values.len() != first.values.len()) {
        let why = format!(
            "`--zip` goes through all axes together, and `{}` has {} values, `{}` {}",
            first.name,
            first.values.len(),
            other.name,
            other.values.len()
        );
        let help = "give all axes as many values, or leave `--zip` out for each value with each".to_owned();
        return Err(InputError::Axes { why, help });
    }
    let product = axes.iter().try_fold(1usize, |all, axis| all.checked_mul(axis.values.len()));
    let count = if zip { first.values.len() } else { product.unwrap_or(usize::MAX) };
    if count > MAX_CASES {
        let why = format!("the axes make {count} cases, and a sweep has {MAX_CASES} at most");
        let help = "give fewer values, or `--zip` to go through the axes together".to_owned();
        return Err(InputError::Axes { why, help });
    }
    Ok((0..count).map(|index| places(axes, zip, index)).collect())
}

/// Up to 64 cases that cover every value, to check that at least one can run.
pub fn covering(axes: &[Axis]) -> Vec<Vec<usize>> {
    let drawn = |case: u64, axis: u64, values: usize| (hash(case, axis) % values as u64) as usize;
    let places = |case: u64| {
        let place = |(number, axis): (u64, &Axis)| match case {
            0 => 0,
            1 => axis.values.len() - 1,
            _ => drawn(case, number, axis.values.len()),
        };
        (0..).zip(axes).map(place).collect()
    };
    (0..TRIED_CASES).map(places).collect()
}

fn places(axes: &[Axis], zip: bool, index: usize) -> Vec<usize> {
    // Number of consecutive cases with the same value of this axis.
    let mut lasts: usize = axes.iter().map(|axis| axis.values.len()).product::<usize>().max(1);
    let place = |axis: &Axis| {
        lasts /= axis.values.len();
        if zip { index } else { index / lasts % axis.values.len() }
    };
    axes.iter().map(place).collect()
}

/// The case with these values, given as indices into the axes. `same` are the arguments that all cases share.
pub fn case(axes: &[Axis], same: &[String], places: &[usize]) -> PlannedCase {
    let (mut values, mut arguments) = (IndexMap::new(), same.to_vec());
    for (axis, &place) in axes.iter().zip(places) {
        let value = &axis.values[place];
        values.insert(axis.name.clone(), value.clone());
        arguments.push(axis.argument(value));
    }
    let named = values.iter().map(|(name, value)| format!("{name}={value}"));
    PlannedCase { name: named.collect::<Vec<_>>().join(", "), values, command: Ok(arguments) }
}

/// A permutation that is the same for the same number of cases and does not correlate with an axis, so that a device
/// that heats up or slows down adds noise rather than a trend.
pub fn shuffled(count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by_key(|&index| (hash(0, index as u64), index));
    order
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn options(given: &[(&str, &str)]) -> Result<SweepOptions, InputError> {
        let mut options = SweepOptions::default();
        given.iter().try_for_each(|(option, text)| options.add(option, text))?;
        Ok(options)
    }

    fn names(given: &[(&str, &str)], zip: bool) -> Vec<String> {
        let axes = options(given).unwrap().axes;
        cases(&axes, zip).unwrap().iter().map(|places| case(&axes, &[], places).name).collect()
    }

    fn wrong(given: &[(&str, &str)], zip: bool) -> String {
        options(given).and_then(|options| cases(&options.axes, zip)).unwrap_err().to_string()
    }

    #[test]
    fn several_values_make_an_axis() {
        let made = options(&[("streams", "1,2"), ("set", "n=4"), ("set", "m=[1, 2],8"), ("env", "A=\"0,1\"")]).unwrap();
        assert_eq!(made.fixed, ["--set=n=4", "--env=A=0,1"]);
        let typed: Vec<_> = made.axes.iter().map(Axis::typed).collect();
        assert_eq!(typed, ["--streams 1,2", "--set m=[1, 2],8"]);
        let last = case(&made.axes, &["x".to_owned()], &[1, 1]);
        assert_eq!(last.command.unwrap(), ["x", "--streams=2", "--set=m=8"]);
    }

    #[test]
    fn the_last_axis_is_the_fastest() {
        let given = [("streams", "1,2"), ("set", "n=8,16")];
        assert_eq!(names(&given, false), ["streams=1, n=8", "streams=1, n=16", "streams=2, n=8", "streams=2, n=16"]);
        assert_eq!(names(&given, true), ["streams=1, n=8", "streams=2, n=16"]);
    }

    #[test]
    fn axes_without_cases_are_reported() {
        assert_eq!(wrong(&[("streams", "1,,2")], false), "a value of `--streams` is empty");
        assert_eq!(wrong(&[("set", "n=4:8")], false), "`4:8` is a range, and an axis takes a list of values");
        assert_eq!(listed_range("4:8").as_deref(), Some("4,8"));
        assert_eq!(listed_range("1024:4096:1024").as_deref(), Some("1024,2048,3072,4096"));
        assert_eq!(listed_range("8..=2").as_deref(), Some("2,8"));
        assert_eq!(options(&[("set", "n=[1, 2][m]")]).unwrap().fixed, ["--set=n=[1, 2][m]"]);
        assert!(wrong(&[("set", "n=[1, 2]")], false).starts_with("`[1, 2]` is a list in brackets"));
        assert_eq!(wrong(&[("set", "n=1,2,1")], false), "`--set n` has the value `1` twice");
        assert_eq!(wrong(&[("set", "streams=1,2"), ("streams", "4,8")], false), "two axes are called `streams`");
        assert!(wrong(&[("ranks", "1,2"), ("set", "n=1,2,3")], true).contains("`ranks` has 2 values, `n` 3"));
        let many = (0..65).map(|value| value.to_string()).collect::<Vec<_>>().join(",");
        let (a, b) = (format!("a={many}"), format!("b={many}"));
        assert!(wrong(&[("set", &a), ("set", &b)], false).contains("the axes make 4225 cases"));
    }

    proptest! {
        #[test]
        fn a_product_has_each_case_once(lengths in prop::collection::vec(1usize..5, 1..5)) {
            let axis = |(index, length): (usize, &usize)| Axis {
                option: "set".to_owned(),
                name: format!("p{index}"),
                values: (0..*length).map(|value| value.to_string()).collect(),
            };
            let axes: Vec<Axis> = lengths.iter().enumerate().map(axis).collect();
            let all = cases(&axes, false).unwrap();
            prop_assert_eq!(all.len(), lengths.iter().product::<usize>());
            let distinct: BTreeSet<String> = all.iter().map(|places| case(&axes, &[], places).name).collect();
            prop_assert_eq!(distinct.len(), all.len());
            for (index, axis) in axes.iter().enumerate() {
                // Each value occurs in equally many cases.
                for value in 0..axis.values.len() {
                    let of_it = all.iter().filter(|places| places[index] == value).count();
                    prop_assert_eq!(of_it * axis.values.len(), all.len());
                }
            }
        }

        #[test]
        fn an_order_has_each_case_once(count in 0usize..300) {
            let mut order = shuffled(count);
            order.sort_unstable();
            prop_assert_eq!(order, (0..count).collect::<Vec<_>>());
        }
    }
}
