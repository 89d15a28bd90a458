//! A comparison for people and for programs. Every form is made from the document alone.

mod github;
mod junit;
mod latex;
mod markdown;
mod table;

use crate::base::units::{Count, plain};
use crate::base::{Bytes, Flops, Nanos, Rate, counted};
use crate::measure::compare::{Against, Comparison, Difference, Lone, Pair, Row, SideRecord};
use crate::measure::effect::Verdict;

pub use github::github;
pub use junit::junit;
pub use latex::latex;
pub use markdown::markdown;
pub use table::table;

/// The document, for programs.
pub fn json(comparison: &Comparison) -> String {
    let mut text = serde_json::to_string_pretty(comparison).expect("a comparison holds nothing that JSON cannot");
    text.push('\n');
    text
}

/// A value in SI units, as people read it.
fn value(value: f64, unit: &str) -> String {
    match unit {
        "s" => Nanos::from_secs_f64(value).to_string(),
        "B" if value >= 0.0 => Bytes(value.round() as u64).to_string(),
        "" => plain(value),
        "FLOP" => Flops(value).to_string(),
        "1/s" => Rate(value, "/s").to_string(),
        "B/s" | "FLOP/s" => Rate(value, unit).to_string(),
        _ => Count(value, unit).to_string(),
    }
}

/// `+5.6 %`; a factor where percents say little.
fn change(ratio: f64) -> String {
    if is_large(ratio) { format!("× {}", plain(ratio)) } else { percent(ratio) }
}

fn is_large(ratio: f64) -> bool {
    !(0.5..2.0).contains(&ratio)
}

fn percent(ratio: f64) -> String {
    let percent = (1000.0 * (ratio - 1.0)).round() / 10.0;
    if percent == 0.0 { "0.0 %".to_owned() } else { format!("{percent:+.1} %") }
}

/// The change of a metric; nothing where there is no ratio.
fn changed(row: &Row) -> Option<String> {
    row.effect.map(|effect| change(effect.ratio))
}

/// The interval of the change; nothing where there is none, or chance decides nothing.
fn interval(row: &Row) -> Option<String> {
    let effect = row.effect.filter(|effect| effect.is_uncertain())?;
    effect.interval.map(|(low, high)| match is_large(low) || is_large(high) {
        true => format!("× {} to {}", plain(low), plain(high)),
        false => format!("{} to {}", percent(low), percent(high)),
    })
}

fn threshold(row: &Row) -> String {
    let percent = (1e4 * row.threshold).round() / 100.0;
    format!("{percent} %")
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Better => "better",
        Verdict::Same => "same",
        Verdict::Worse => "worse",
        Verdict::CannotTell => "cannot tell",
    }
}

/// `simulated`, or `simulated against measured`; nothing of what both have measured.
fn figures(pair: &Pair) -> Option<String> {
    match (pair.base_figures.as_str(), pair.other_figures.as_str()) {
        ("measured", "measured") => None,
        (base, other) if base == other => Some(base.to_owned()),
        (base, other) => Some(format!("{base} against {other}")),
    }
}

/// `driver: 550 -> 560`.
fn difference(difference: &Difference) -> String {
    let side = |value: &Option<String>| value.clone().unwrap_or_else(|| "absent".to_owned());
    format!("{}: {} -> {}", difference.what, side(&difference.base), side(&difference.other))
}

/// `a.json: 3 cases, 9 runs`.
fn side(side: &SideRecord) -> String {
    let cases = counted(side.cases, "case");
    match side.runs == side.cases {
        true => format!("{}: {cases}", side.name),
        false => format!("{}: {cases}, {}", side.name, counted(side.runs, "run")),
    }
}

/// A case without a counterpart, as `only in a.json: …`.
fn lone(of: &str, lone: &Lone) -> String {
    let why = lone.why.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
    format!("only in {of}: {}{why}", lone.case)
}

/// All cases without a counterpart.
fn lones<'a>(base: &'a SideRecord, against: &'a Against) -> impl Iterator<Item = String> + 'a {
    let of_base = against.only_base.iter().map(|one| lone(&base.name, one));
    of_base.chain(against.only_other.iter().map(|one| lone(&against.side.name, one)))
}

/// `1 worse, 2 better, 3 same, 4 cannot be told`.
fn summary(against: &Against) -> String {
    let counts = against.counts();
    let all = [
        (counts.worse, "worse"),
        (counts.better, "better"),
        (counts.same, "the same"),
        (counts.cannot_tell, "cannot be told"),
    ];
    let some: Vec<String> =
        all.iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!("{count} {word}")).collect();
    match some.is_empty() {
        true => "nothing to compare".to_owned(),
        false => format!("{}: {}", counted(all.iter().map(|(count, _)| count).sum(), "metric"), some.join(", ")),
    }
}

/// A metric in one sentence.
fn sentence(row: &Row) -> String {
    let mut text =
        format!("{} went from {} to {}", row.metric, value(row.base, &row.unit), value(row.other, &row.unit));
    if let Some(change) = changed(row) {
        text += &format!(", {change}");
    }
    if let Some(interval) = interval(row) {
        text += &format!(" (95 % interval {interval}, threshold {})", threshold(row));
    }
    if let Some(why) = &row.why {
        text += &format!(": {why}");
    }
    text
}
