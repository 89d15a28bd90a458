//! Help for slices and ranges that could not be parsed.

use super::super::words::is_word;
use super::failure_point::FailurePoint;

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
        (true, _) if colon => return Some(ends(place).unwrap_or_else(|| SLICE.to_owned())),
        (true, true) => SLICE,
        _ if behind_dots || colon && place.lead() == "for" => RANGE,
        _ => return None,
    };
    Some(help.to_owned())
}

/// Help for a slice such as `0:n`, with its own ends; `None` if one of them is missing.
fn ends(place: &FailurePoint) -> Option<String> {
    let from = last_index(place.before).trim();
    let to = place.rest[1..].split([',', ']']).next()?.trim();
    let is_end = |text: &str| !text.is_empty() && text.chars().all(|c| is_word(c) || " +-*/".contains(c));
    let from = if from.is_empty() { "0" } else { from };
    (is_end(from) && is_end(to))
        .then(|| format!("a slice has two points between its ends: `{from}..{to}`; `..` alone is all of a dimension"))
}

/// Help for a loop whose range has a step: the loop with as many turns.
fn turns(place: &FailurePoint) -> String {
    let space = if place.is_joined { "" } else { " " };
    let head = format!("{}{space}{}", place.before, place.rest);
    let (variable, range) = head.trim_start_matches("for ").split_once(" in ").unwrap_or_default();
    let range = range.split('{').next().unwrap_or_default().trim();
    let between = ["..=", "..", ":"].into_iter().filter_map(|mark| Some((range.find(mark)?, mark)));
    let parts = between.min_by_key(|(at, mark)| (*at, usize::MAX - mark.len())).and_then(|(at, mark)| {
        let behind = &range[at + mark.len()..];
        let step = ["..", ":", " step ", " by "].into_iter().find_map(|mark| behind.split_once(mark));
        let (to, step) = step?;
        let to = if mark == "..=" { format!("{to} + 1") } else { to.to_owned() };
        Some([range[..at].trim().to_owned(), to.trim().to_owned(), step.trim_matches(['=', ' ']).to_owned()])
    });
    match parts.and_then(|[from, to, step]| loop_with_step(variable.trim(), &from, &to, &step)) {
        Some(help) => format!("a range has no step: {help}"),
        None => "a range has no step: write `for i in 0..4 { … }`, and `2 * i` inside".to_owned(),
    }
}

/// Says how to write a loop from `from` to `to` with a step: `` write `for i in 0..8 { … }`, and `2 * i` inside ``. `None` if one
/// of them is no plain text.
pub fn loop_with_step(variable: &str, from: &str, to: &str, step: &str) -> Option<String> {
    let is_plain = |text: &&str| !text.is_empty() && text.chars().all(|c| is_word(c) || " +-*/.()[]".contains(c));
    if ![variable, from, to, step].iter().all(is_plain) {
        return None;
    }
    if step == "-1" {
        let [first, last] = [from, to].map(|end| end.parse::<i64>().ok());
        let (first, last) = (first?.checked_add(1)?, last?.checked_add(1)?);
        return Some(format!("write `for {variable} in rev({last}..{first}) {{ … }}`"));
    }
    if step.starts_with('-') {
        return None;
    }
    let grouped =
        |text: &str| if text.contains([' ', '+', '-', '/', '*']) { format!("({text})") } else { text.to_owned() };
    let numbers = || {
        let to = to.split(" + ").try_fold(0u64, |sum, part| sum.checked_add(part.parse().ok()?))?;
        let step = step.parse::<u64>().ok().filter(|step| *step > 0)?;
        Some(to.checked_sub(from.parse().ok()?)?.div_ceil(step).to_string())
    };
    let length = if from == "0" { to.to_owned() } else { format!("{to} - {}", grouped(from)) };
    let turns = numbers().unwrap_or_else(|| format!("ceil_div({length}, {step})"));
    let first = if from == "0" { String::new() } else { format!("{from} + ") };
    Some(format!("write `for {variable} in 0..{turns} {{ … }}`, and `{first}{} * {variable}` inside", grouped(step)))
}

/// True if the text goes on with the step of a slice, such as `..2`, `:4:2`, `::2` or `step 2`.
fn has_step(place: &FailurePoint) -> bool {
    let index = place.rest.split([',', ']', '{']).next().unwrap_or_default();
    // A point after a number is read as one of its member: the second `..` of `0..8..2` fails at its second point.
    let after_one = place.before.strip_suffix('.').filter(|before| !before.ends_with('.'));
    let after_none = place.rest.starts_with("..").then_some(place.before);
    let before_dots = after_one.filter(|_| place.rest.starts_with('.')).or(after_none);
    let before_step = before_dots.or(place.rest.starts_with(':').then_some(place.before));
    let steps = before_step.is_some_and(|before| last_index(before).contains(".."));
    steps || index.matches(':').count() > 1 || ["step", "by"].contains(&place.word()) && place.after_value()
}

/// The text of the index, or of the range of a loop, that ends a text.
fn last_index(before: &str) -> &str {
    let index = before.rsplit([',', '[']).next().unwrap_or_default();
    index.rsplit_once(" in ").map_or(index, |(_, range)| range)
}
