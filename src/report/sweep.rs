//! A sweep as text: a row for each case, and a curve for each axis.

use std::fmt::Write as _;

use indexmap::IndexMap;

use crate::base::{Bytes, Flops, Nanos, Rate, counted};
use crate::measure::cases::{Case, Header, Status};
use crate::measure::record::{RunRecord, Variant};
use crate::measure::scaling::{self, Baseline, Curve, Effect, Growth, Interval, Point, Unit};

use super::table::{marks, new_table, push};

/// Characters of the longest bar.
const BAR: usize = 30;

/// Rows of cases at most; the file of cases has all of them.
const ROWS: usize = 200;

/// The sweep as tables that somebody understands who sees one for the first time.
pub fn sweep(header: &Header, cases: &[&Case]) -> String {
    let mut out = String::new();
    heading(header, cases, &mut out);
    table(header, cases, &mut out);
    reasons(cases, &mut out);
    for curve in scaling::curves(header, cases) {
        self::curve(&curve, &mut out);
    }
    out
}

fn heading(header: &Header, cases: &[&Case], out: &mut String) {
    let axes = header.axes.iter().map(|axis| format!("{} ({})", axis.name, counted(axis.values.len(), "value")));
    let axes: Vec<String> = axes.collect();
    let how = if header.zip { " with " } else { " × " };
    let _ = writeln!(out, "{}: {} over {}", header.name, counted(cases.len(), "case"), axes.join(how));
    let record = cases.iter().find_map(|case| case.record.as_ref());
    if let Some(record) = record {
        let iterations = record.variants.first().map_or(0, |variant| variant.time.n);
        let no = if record.measurement { "" } else { ", no measurement" };
        let _ = writeln!(out, "{}, {}{no}", record.device.name, counted(iterations, "iteration"));
    }
    let mut counts: IndexMap<&str, usize> = IndexMap::new();
    for status in
        [Status::Done, Status::Unstable, Status::NotHeld, Status::Skipped, Status::OutOfMemory, Status::Failed]
    {
        counts.insert(status.word(), cases.iter().filter(|case| case.status == status).count());
    }
    let told: Vec<String> =
        counts.iter().filter(|(_, count)| **count > 0).map(|(word, count)| format!("{count} {word}")).collect();
    let _ = writeln!(out, "{}\n", told.join(", "));
}

/// What stands beside every figure of a record, without the comma.
fn mark(record: &RunRecord) -> &'static str {
    marks(record).trim_start_matches(", ")
}

fn table(header: &Header, cases: &[&Case], out: &mut String) {
    let unit = scaling::unit(cases);
    let variants = cases.iter().filter_map(|case| case.record.as_ref()).any(|record| record.variants.len() > 1);
    let marked =
        cases.iter().filter_map(|case| case.record.as_ref()).map(|record| mark(record)).find(|mark| !mark.is_empty());
    let mut columns: Vec<String> = header.axes.iter().map(|axis| axis.name.clone()).collect();
    if variants {
        columns.push("launch".to_owned());
    }
    let median = marked.map_or_else(|| "median".to_owned(), |mark| format!("median ({mark})"));
    columns.extend([median, "95 % interval".to_owned(), unit.per_second().to_owned(), "status".to_owned()]);
    let mut table = new_table(&columns);
    for case in cases.iter().take(ROWS) {
        let values = || header.axes.iter().map(|axis| case.values.get(&axis.name).cloned().unwrap_or_default());
        let Some(record) = &case.record else {
            let none = columns.len() - header.axes.len() - 1;
            table.add_row(values().chain((0..none).map(|_| "–".to_owned())).chain([case.status.word().to_owned()]));
            continue;
        };
        for variant in &record.variants {
            let launch = variants.then(|| variant.launch.clone());
            let figures = figures(case, record, variant, unit);
            table.add_row(values().chain(launch).chain(figures).chain([case.status.word().to_owned()]));
        }
    }
    push(out, &table);
    if cases.len() > ROWS {
        let _ = writeln!(out, "{} more cases; --csv and the file of cases have all of them\n", cases.len() - ROWS);
    }
}

/// Median, interval and rate.
fn figures(case: &Case, record: &RunRecord, variant: &Variant, unit: Unit) -> [String; 3] {
    let none = || "–".to_owned();
    let time = &variant.time;
    let interval = match (time.p50_low_ns, time.p50_high_ns) {
        (Some(low), Some(high)) if low.to_string() != high.to_string() => format!("{low} to {high}"),
        _ => none(),
    };
    let seconds = scaling::seconds(time, record.simulated);
    let rate = Point::of(case, "").zip(seconds).map(|(point, time)| Point { time, ..point }.rate(unit).value);
    [
        time.p50_ns.map_or_else(none, |median| median.to_string()),
        interval,
        rate.map_or_else(none, |rate| Rate(rate, unit.per_second()).to_string()),
    ]
}

/// Why cases are not just done, each reason once.
fn reasons(cases: &[&Case], out: &mut String) {
    let mut told: IndexMap<(Status, &str), Vec<&str>> = IndexMap::new();
    for case in cases {
        if let Some(reason) = &case.reason {
            told.entry((case.status, reason)).or_default().push(&case.name);
        }
    }
    for ((status, reason), names) in &told {
        let others = match names.len() {
            1 => String::new(),
            more => format!(" and {}", counted(more - 1, "other")),
        };
        let _ = writeln!(out, "{}: {}{others}: {reason}", status.word(), names[0]);
    }
    if !told.is_empty() {
        out.push('\n');
    }
}

fn curve(curve: &Curve, out: &mut String) {
    let name = curve.axes.join(", ");
    let held: Vec<String> = curve.held.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let held = if held.is_empty() { String::new() } else { format!(", at {}", held.join(", ")) };
    let simulated = if curve.simulated { " (simulated)" } else { "" };
    let _ = writeln!(out, "Over {name}{held}{simulated}");
    let rate = |point: &Point| point.rate(curve.unit).value;
    let most = curve.points.iter().map(rate).fold(0.0, f64::max);
    let mut table = new_table(&[
        name.clone(),
        curve.unit.per_second().to_owned(),
        String::new(),
        "median".to_owned(),
        "efficiency".to_owned(),
    ]);
    if let Some(column) = table.column_mut(2) {
        column.set_cell_alignment(comfy_table::CellAlignment::Left);
    }
    for (point, efficiency) in curve.points.iter().zip(&curve.efficiency) {
        table.add_row([
            point.value.clone(),
            Rate(rate(point), curve.unit.per_second()).to_string(),
            bar(rate(point) / most),
            Nanos::from_secs_f64(point.time.value).to_string(),
            format!("{:.0} %", efficiency * 100.0),
        ]);
    }
    push(out, &table);
    out.pop();
    for line in [work(curve), best(curve), knee(curve)].into_iter().flatten().chain(effect(curve, &name)) {
        let _ = writeln!(out, "{line}");
    }
    out.push('\n');
}

/// A bar of eighths of a character.
fn bar(share: f64) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (share.clamp(0.0, 1.0) * (BAR * 8) as f64).round() as usize;
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

/// What the work does, and what efficiency is said against.
fn work(curve: &Curve) -> Option<String> {
    let (first, last) = (curve.points.first()?, curve.points.last()?);
    let change = |text: fn(&Point) -> String| match (text(first), text(last)) {
        (first, last) if first == last => first,
        (first, last) => format!("{first} to {last}"),
    };
    let amount = format!(
        "{}, {} moved",
        change(|point| Flops(point.flops).to_string()),
        change(|point| Bytes(point.bytes as u64).to_string())
    );
    let smallest = curve.points.iter().zip(&curve.efficiency).find(|(_, efficiency)| **efficiency == 1.0);
    let from = smallest.map_or("the first", |(point, _)| point.value.as_str());
    Some(match (curve.unit, curve.growth, curve.baseline) {
        (Unit::Iterations, _, Baseline::First) => {
            format!(
                "nothing is counted as work, so an iteration is: efficiency is the rate per unit against that of {from}"
            )
        }
        (Unit::Iterations, _, Baseline::Best) => {
            "nothing is counted as work, so an iteration is: efficiency is against the best rate".to_owned()
        }
        (_, Growth::Stays, Baseline::First) => {
            format!(
                "the work stays ({amount}), so this is strong scaling: efficiency is the speedup over {from} for each unit"
            )
        }
        (_, Growth::Proportional, Baseline::First) => {
            format!(
                "the work grows with it ({amount}), so this is weak scaling: efficiency is the time of {from} over the time"
            )
        }
        (_, Growth::Varies, Baseline::First) => {
            format!("the work varies ({amount}): efficiency is the rate per unit against that of {from}")
        }
        (_, Growth::Stays, Baseline::Best) => {
            format!("the work stays ({amount}): efficiency is the least time over the time")
        }
        (_, _, Baseline::Best) => format!("the work varies ({amount}): efficiency is against the best rate"),
    })
}

fn best(curve: &Curve) -> Option<String> {
    if matches!(curve.effect, Effect::None | Effect::ProgramOnly) {
        return None;
    }
    let point = curve.points.get(curve.best)?;
    let Interval { value, low, high } = point.time;
    let [value, low, high] = [value, low, high].map(|seconds| Nanos::from_secs_f64(seconds).to_string());
    let interval = if low == high { String::new() } else { format!(" ({low} to {high})") };
    let alike: Vec<&str> = curve.alike.iter().map(|&index| curve.points[index].value.as_str()).collect();
    let alike = match alike.len() {
        0 => String::new(),
        _ => format!("; not to be told from it: {}", alike.join(", ")),
    };
    Some(format!("best: {} with {value}{interval}{alike}", point.value))
}

fn knee(curve: &Curve) -> Option<String> {
    let knee = curve.knee.filter(|_| !matches!(curve.effect, Effect::None | Effect::ProgramOnly))?;
    let (point, share) = (&curve.points[knee], scaling::ENOUGH * 100.0);
    (knee != curve.best)
        .then(|| format!("knee: {} is the smallest that reaches {share:.0} % of the best rate", point.value))
}

/// What an axis did not change that it should have.
fn effect(curve: &Curve, name: &str) -> Vec<String> {
    match &curve.effect {
        Effect::Unknown => Vec::new(),
        Effect::None => vec![format!(
            "{name} had no effect: all values run the same program on the same streams and queues, and their times are \
             within noise"
        )],
        Effect::TimeOnly => {
            vec![format!("{name} leaves the program, its streams and its queues as they are; times alone differ")]
        }
        Effect::ProgramOnly => {
            vec![format!("{name} changes what runs, and makes no difference to the time beyond noise")]
        }
        Effect::Both { same } => same
            .iter()
            .map(|values| format!("{} run the same program: nothing but noise differs between them", values.join(", ")))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_their_share() {
        assert_eq!(bar(1.0).chars().count(), BAR);
        assert_eq!((bar(0.5), bar(0.0)), ("█".repeat(15), String::new()));
        assert_eq!(bar(1.0 / 240.0), "▏");
        assert_eq!(bar(7.0), bar(1.0));
    }
}
