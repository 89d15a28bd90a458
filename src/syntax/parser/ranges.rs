//! Help for slices and ranges that could not be parsed.

use super::failure_point::{FailurePoint, leading_word};

const SLICE: &str = "a slice is written `x[0..4]`, with both ends; `..` alone is all of a dimension";

const SLICE_STEP: &str = "a slice has no step: `view(x, [4, 2])[.., 0]` is every second element of the 8 of `x`";

const RANGE: &str = "a range is written `0..n`, or `0..=n` to include the end";

/// A help for a mistake in a slice or a range; `None` if there is none.
pub(super) fn slice(place: &FailurePoint) -> Option<String> {
    let (behind_dots, bracket) = (place.before.ends_with(".."), place.inside() == Some('['));
    let colon = place.rest.starts_with(':');
    if !bracket && place.lead() == "for" && has_step(place) {
        return Some(turns(place));
    }
    let help = match (bracket, behind_dots) {
        (true, true) if place.rest.starts_with('.') => "write `..` once for each dimension: `x[.., .., 0]`",
        (true, _) if has_step(place) => SLICE_STEP,
        (true, _) if colon || behind_dots => SLICE,
        _ if behind_dots || colon && place.lead() == "for" => RANGE,
        _ => return None,
    };
    Some(help.to_owned())
}

/// Help for a loop whose range has a step: the loop with as many turns, as far as they are numbers.
fn turns(place: &FailurePoint) -> String {
    let numbers = || {
        let (from, to) = place.before.rsplit(' ').next()?.trim_end_matches('.').split_once("..")?;
        let step = place.rest.trim_start_matches(|c: char| !c.is_ascii_digit());
        let step: u64 = leading_word(step).parse().ok().filter(|step| *step > 0)?;
        let from: u64 = from.parse().ok()?;
        let to: u64 = to.parse().ok()?;
        Some((from, to.checked_sub(from)?.div_ceil(step), step))
    };
    let (from, turns, step) = numbers().unwrap_or((0, 4, 2));
    let first = if from == 0 { String::new() } else { format!("{from} + ") };
    format!("a range has no step: write `for i in 0..{turns} {{ … }}`, and `{first}{step} * i` inside")
}

/// True if the text goes on with the step of a slice, such as `..2`, `:4:2`, `::2` or `step 2`.
fn has_step(place: &FailurePoint) -> bool {
    let index = place.rest.split([',', ']', '{']).next().unwrap_or_default();
    // A point after a number is read as one of its member: the second `..` of `0..8..2` fails at its second point.
    let after_one = place.before.strip_suffix('.').filter(|before| !before.ends_with('.'));
    let after_none = place.rest.starts_with("..").then_some(place.before);
    let before_dots = after_one.filter(|_| place.rest.starts_with('.')).or(after_none);
    let steps = before_dots.is_some_and(|before| last_index(before).contains(".."));
    steps || index.matches(':').count() > 1 || ["step", "by"].contains(&place.word()) && place.after_value()
}

/// The text of the index that ends a text.
fn last_index(before: &str) -> &str {
    before.rsplit([',', '[', ' ']).next().unwrap_or_default()
}
