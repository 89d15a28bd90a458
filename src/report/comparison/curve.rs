//! The scaling curve along an axis of a sweep: bars, work, efficiency, best value, knee.

use crate::base::units::NamedCount;
use crate::base::{Bytes, Flops, Nanos, Rate, counted};
use crate::measure::pace::Pace;
use crate::measure::scaling::{self, AxisEffect, AxisResults, Baseline, Curve, CurvePoint, Growth, Interval, RateUnit};
use crate::report::page::{Section, Table, cell};
use crate::report::run::percent;

/// Length of the longest bar in characters.
const BAR: usize = 30;

/// Maximum number of curves at other values of the other axes.
const MAX_OTHER_CURVES: usize = 8;

pub fn section(along: &AxisResults) -> Section {
    let name = along.axes.join(", ");
    let curve = &along.curve;
    let marks =
        [(curve.simulated, "simulated"), (curve.emulated, "emulated"), (curve.pace == Pace::Host, "host-paced")];
    let marks: Vec<&str> = marks.into_iter().filter(|(is, _)| *is).map(|(_, mark)| mark).collect();
    let mark = if marks.is_empty() { String::new() } else { format!(" ({})", marks.join(", ")) };
    let at = if curve.fixed.is_empty() { String::new() } else { format!(", at {}", fixed(curve)) };
    Section {
        title: format!("Over {name}{at}{mark}"),
        table: Some(bars(curve, &name)),
        notes: notes(along, &name),
        ..Section::default()
    }
}

fn notes(along: &AxisResults, name: &str) -> Vec<String> {
    let curve = &along.curve;
    let moves = !matches!(along.effect, AxisEffect::None | AxisEffect::ProgramOnly);
    let mut notes = vec![work(curve)];
    if !curve.conclusive && curve.growth != Growth::Unknown {
        notes.push("no conclusion: a case is not a measurement, or has a single sample".to_owned());
    } else if curve.conclusive && moves {
        notes.push(format!("{}: {}", best_of(curve), best(curve, name)));
        notes.extend(curve.knee.filter(|knee| *knee != curve.best).map(|knee| {
            let (value, share) = (&curve.points[knee].value, scaling::ENOUGH * 100.0);
            format!("knee: {name} = {value} is the smallest value that reaches {share:.0} % of the best rate")
        }));
    }
    notes.extend(effect(&along.effect, name));
    if moves {
        notes.extend(along.elsewhere.iter().take(MAX_OTHER_CURVES).map(|curve| {
            let best =
                if curve.conclusive { format!(" {}: {}", best_of(curve), best(curve, name)) } else { String::new() };
            format!("at {}: {}{best}", fixed(curve), sparkline(curve))
        }));
        let hidden = along.elsewhere.len().saturating_sub(MAX_OTHER_CURVES);
        notes.extend((hidden > 0).then(|| format!("and {} more", counted(hidden, "curve"))));
    }
    notes
}

fn fixed(curve: &Curve) -> String {
    curve.fixed.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(", ")
}

fn rate(curve: &Curve, point: &CurvePoint) -> f64 {
    point.rate(curve.unit).value
}

/// Formats a rate.
pub(super) fn rate_text(unit: RateUnit, rate: f64) -> String {
    match unit {
        RateUnit::Iterations => NamedCount(rate, unit.per_second()).to_string(),
        RateUnit::Flops | RateUnit::Bytes => Rate(rate, unit.per_second()).to_string(),
    }
}

fn share(curve: &Curve, point: &CurvePoint) -> f64 {
    rate(curve, point) / rate(curve, &curve.points[curve.best])
}

fn bars(curve: &Curve, name: &str) -> Table {
    let mut table = Table::new([name, curve.unit.per_second(), "", "median", "efficiency"]).left(2);
    for (index, point) in curve.points.iter().enumerate() {
        table.row([
            point.value.clone(),
            rate_text(curve.unit, rate(curve, point)),
            bar(share(curve, point)),
            Nanos::from_secs_f64(point.time.value).to_string(),
            cell(curve.efficiency.get(index).copied().map(percent)),
        ]);
    }
    table
}

/// A bar in units of an eighth of a character.
fn bar(share: f64) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (share.clamp(0.0, 1.0) * (BAR * 8) as f64).round() as usize;
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

/// A sparkline with one character per point.
fn sparkline(curve: &Curve) -> String {
    const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let height = |point: &CurvePoint| HEIGHTS[((share(curve, point) * 8.0).ceil() as usize).clamp(1, 8) - 1];
    curve.points.iter().map(height).collect()
}

/// True if two amounts are shown with the same number and unit. Only an amount that is rounded ends with zeros.
fn is_alike(first: &str, last: &str) -> bool {
    let number = |text: &str| Some((text.split(' ').next()?.parse::<f64>().ok()?, text.split(' ').nth(1)?.to_owned()));
    first == last || number(first).is_some_and(|number_of_first| number(last) == Some(number_of_first))
}

/// Describes how the work changes along the axis, and the baseline of the efficiency.
fn work(curve: &Curve) -> String {
    let (first, last) = (&curve.points[0], &curve.points[curve.points.len() - 1]);
    let change = |text: fn(&CurvePoint) -> String| match (text(first), text(last)) {
        (first, last) if is_alike(&first, &last) => first,
        (first, last) => format!("{first} to {last}"),
    };
    let flops = change(|point| Flops(point.flops).to_string());
    let bytes = change(|point| Bytes(point.bytes as u64).to_string());
    let amount = format!("{flops}, {bytes} moved");
    let one = &curve.one;
    let strong = if one == "1" { "T(1) / (n × T(n))".to_owned() } else { format!("{one} × T({one}) / (n × T(n))") };
    // Streams share one device, so strong and weak scaling, which compare devices, are not the terms for them.
    let per_stream = format!("the throughput per stream, relative to that of {one}");
    let how = match curve.growth {
        Growth::Unknown => {
            let operations = change(|point| point.operations.to_string());
            let differ = match first.operations == last.operations {
                true => "may differ".to_owned(),
                false => format!("differ ({operations} operations)"),
            };
            return format!(
                "the work is not known, and iterations {differ}: their rates do not compare, so there is neither an efficiency \
                 nor a best value"
            );
        }
        Growth::Stays if curve.unit == RateUnit::Iterations => {
            "the work is not known, so iterations are counted".to_owned()
        }
        Growth::Stays => format!("the work stays ({amount})"),
        Growth::Proportional => format!("the work grows in proportion ({amount})"),
        Growth::Varies => format!("the work varies ({amount})"),
    };
    let efficiency = match (curve.growth, curve.baseline) {
        (Growth::Stays, Baseline::First) if curve.shares_device => format!("efficiency is {strong}, {per_stream}"),
        (Growth::Stays, Baseline::First) if curve.unit == RateUnit::Iterations => format!("efficiency is {strong}"),
        (Growth::Stays, Baseline::First) => format!("strong scaling, efficiency is {strong}"),
        (Growth::Proportional, Baseline::First) if curve.shares_device => format!(
            "efficiency is T({one}) / T(n), {per_stream}; the best total throughput is {:.2} times that of {one}",
            rate(curve, &curve.points[curve.best]) / rate(curve, &curve.points[curve.reference])
        ),
        (Growth::Proportional, Baseline::First) => format!("weak scaling, efficiency is T({one}) / T(n)"),
        (_, Baseline::First) => format!("efficiency is the rate for each unit, against that of {one}"),
        (Growth::Stays, Baseline::Best) => format!("efficiency is T({one}) / T"),
        (_, Baseline::Best) => "efficiency is against the best rate".to_owned(),
    };
    format!("{how}: {efficiency}")
}

/// Names what decides between the values of an axis: the rate if their work differs, otherwise the time.
fn best_of(curve: &Curve) -> &'static str {
    if curve.growth == Growth::Stays { "best" } else { "best rate" }
}

/// The best value of an axis, and the values that cannot be distinguished from it. With its time, and before that with its
/// rate if the work differs, because the rate then decides.
fn best(curve: &Curve, name: &str) -> String {
    let point = &curve.points[curve.best];
    let Interval { value, low, high } = point.time;
    let [time, low, high] = [value, low, high].map(|seconds| Nanos::from_secs_f64(seconds).to_string());
    let interval = if low == high { String::new() } else { format!(", 95 % interval {low} to {high}") };
    let alike: Vec<&str> = curve.alike.iter().map(|&index| curve.points[index].value.as_str()).collect();
    let alike = match alike.len() {
        0 => String::new(),
        1 => format!("; {} is within noise of it", alike[0]),
        _ => format!("; {} are within noise of it", alike.join(", ")),
    };
    let rate = match curve.growth {
        Growth::Stays | Growth::Unknown => String::new(),
        Growth::Proportional | Growth::Varies => format!("{}; ", rate_text(curve.unit, rate(curve, point))),
    };
    format!("{name} = {} ({rate}{time}{interval}){alike}", point.value)
}

/// Effects of an axis that are smaller than they should be.
fn effect(effect: &AxisEffect, name: &str) -> Vec<String> {
    match effect {
        AxisEffect::Unknown => Vec::new(),
        AxisEffect::None => vec![format!(
            "{name} had no effect: all values run the same program by the same plan, and their times are within noise"
        )],
        AxisEffect::TimeOnly => {
            vec![format!("{name} leaves the program and its plan as they are: times alone differ")]
        }
        AxisEffect::ProgramOnly => {
            vec![format!("{name} changes the program or its plan, and makes no difference to the time beyond noise")]
        }
        AxisEffect::Both { same } => same
            .iter()
            .map(|values| {
                let values = values.join(", ");
                format!("{name} = {values}: the same program runs by the same plan, so that only noise differs")
            })
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
