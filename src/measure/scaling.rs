//! How figures scale along the axes of a sweep: what the work does, how efficient each value is and against what, the
//! best value, and where more gives little.
//!
//! Figures are those of a case's first variant.

pub mod axis_effect;
mod point;

use indexmap::IndexMap;

use super::cases::{Axis, Case, Header};
use super::pace::Pace;

pub use axis_effect::AxisEffect;
pub use point::{Interval, Point, is_conclusive, number, seconds};

/// The share of the best rate from which on a value is as good as the best, for practical purposes.
pub const ENOUGH: f64 = 0.95;

/// Work that differs by less is the same.
const SAME_WORK: f64 = 0.01;

/// How far work may be from growing as the axis does.
const PROPORTIONAL: f64 = 0.05;

/// Operations for each byte from which on something computes.
const COMPUTES: f64 = 32.0;

/// Points from which on a knee is told: of two, one is just the better.
const KNEE_POINTS: usize = 3;

/// What a rate counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Flops,
    /// Where there is no arithmetic.
    Bytes,
    /// Where nothing is known to be computed or moved.
    Iterations,
}

impl Unit {
    /// The rate's unit, as a column's name.
    pub fn per_second(self) -> &'static str {
        match self {
            Unit::Flops => "FLOP/s",
            Unit::Bytes => "B/s",
            Unit::Iterations => "iterations/s",
        }
    }

    /// What an iteration of a point does, in this unit.
    pub fn of(self, point: &Point) -> f64 {
        match self {
            Unit::Flops => point.flops,
            Unit::Bytes => point.bytes,
            Unit::Iterations => 1.0,
        }
    }
}

/// What the work of an iteration, over all ranks, does along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// Within 1 %.
    Stays,
    /// As the axis does, within 5 %.
    Proportional,
    Varies,
}

/// What an efficiency is measured against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Baseline {
    /// The rate of the smallest value, times how much more of a resource there is: streams, ranks. Where the work stays
    /// that is strong scaling, T(1) / (n × T(n)); where it grows alike, weak scaling, T(1) / T(n).
    First,
    /// The best rate along the axis.
    Best,
}

/// What a sweep says of an axis.
#[derive(Clone, Debug)]
pub struct Along {
    /// The axes' names; one, unless they go together.
    pub axes: Vec<String>,
    /// All else at the values of the sweep's best case.
    pub curve: Curve,
    /// All else at other values, in the order of the cases.
    pub elsewhere: Vec<Curve>,
    pub effect: AxisEffect,
}

/// One axis, everything else held.
#[derive(Clone, Debug)]
pub struct Curve {
    /// What the other axes are held at.
    pub held: Vec<(String, String)>,
    /// A figure is a simulator's.
    pub simulated: bool,
    /// A figure is of a device that stands for a rank of several.
    pub emulated: bool,
    /// Which times the figures are made from.
    pub pace: Pace,
    /// Whether a best value and a knee can be told: every case is a measurement of several samples.
    pub conclusive: bool,
    pub unit: Unit,
    /// In the order in which values were given. Those without a figure are left out.
    pub points: Vec<Point>,
    /// Of each point.
    pub efficiency: Vec<f64>,
    pub baseline: Baseline,
    /// The value that efficiency is measured against; of axes that go together, that of the resource.
    pub one: String,
    /// Of the work in `unit`.
    pub growth: Growth,
    /// The place of the point with the best rate.
    pub best: usize,
    /// Others whose rate cannot be told from the best's: the intervals have a part in common, or lie less than 1 % apart.
    pub alike: Vec<usize>,
    /// The point of the smallest value whose interval reaches 95 % of the best rate; nothing where values are no
    /// numbers, or fewer than three.
    pub knee: Option<usize>,
}

/// Which times the cases of a sweep have alike. What is no measurement does not count.
pub fn pace(cases: &[&Case]) -> Pace {
    let records = cases.iter().filter_map(|case| case.record.as_ref());
    Pace::common(records.filter(|record| record.measurement).filter_map(|record| record.variants.first()))
}

/// What the rates of a sweep count: the same for all of its cases. What computes is judged by its arithmetic, what
/// moves by its bytes.
pub fn unit(cases: &[&Case]) -> Unit {
    let points: Vec<Point> = cases.iter().filter_map(|case| Point::of(case, "", Pace::Headline)).collect();
    let computes = points.iter().any(|point| point.flops > COMPUTES * point.bytes);
    match () {
        () if computes && points.iter().all(|point| point.flops > 0.0) => Unit::Flops,
        () if points.iter().all(|point| point.bytes > 0.0) => Unit::Bytes,
        () => Unit::Iterations,
    }
}

/// What a search makes small: the time of a unit of work, in seconds. The work is an iteration's arithmetic, or its bytes
/// where it computes nothing; where it has neither, the iteration itself. `None` of a case without figures.
pub fn cost(case: &Case, pace: Pace) -> Option<f64> {
    let point = Point::of(case, "", pace)?;
    let unit = match (point.flops > 0.0, point.bytes > 0.0) {
        (true, _) => Unit::Flops,
        (false, true) => Unit::Bytes,
        (false, false) => Unit::Iterations,
    };
    Some(1.0 / point.rate(unit).value)
}

/// What there is to say of each axis of a sweep, or of all together that go together. Nothing of an axis with fewer than
/// two figures anywhere.
pub fn along(header: &Header, cases: &[&Case]) -> Vec<Along> {
    let (unit, pace) = (unit(cases), pace(cases));
    let rate = |case: &Case| Point::of(case, "", pace).map(|point| point.rate(unit).value);
    let measured: Vec<(&Case, f64)> = cases.iter().filter_map(|case| Some((*case, rate(case)?))).collect();
    // Of equal ones the first.
    let Some((best, _)) = measured.iter().rev().max_by(|a, b| a.1.total_cmp(&b.1)) else { return Vec::new() };
    let together: Vec<Vec<&Axis>> = match header.zip {
        true => vec![header.axes.iter().collect()],
        false => header.axes.iter().map(|axis| vec![axis]).collect(),
    };
    let measured: Vec<&Case> = measured.iter().map(|(case, _)| *case).collect();
    together.iter().filter_map(|axes| one(axes, best, &measured, (unit, pace))).collect()
}

fn one(axes: &[&Axis], best: &Case, cases: &[&Case], (unit, pace): (Unit, Pace)) -> Option<Along> {
    let mut groups: IndexMap<Vec<(String, String)>, Vec<&Case>> = IndexMap::new();
    for case in cases {
        groups.entry(others(axes, case)).or_default().push(case);
    }
    let mut elsewhere = Vec::new();
    let mut curve = None;
    for (held, group) in groups {
        let here = held == others(axes, best);
        let found = self::curve(axes, held, &group, (unit, pace));
        if here { curve = found } else { elsewhere.extend(found) }
    }
    // The best case may be the only one of its values.
    let curve = curve.or_else(|| (!elsewhere.is_empty()).then(|| elsewhere.remove(0)))?;
    let effect = AxisEffect::of(axes, cases, pace);
    Some(Along { axes: axes.iter().map(|axis| axis.name.clone()).collect(), curve, elsewhere, effect })
}

/// The values of a case on all other axes.
fn others(axes: &[&Axis], case: &Case) -> Vec<(String, String)> {
    let other = |name: &str| axes.iter().all(|axis| axis.name != name);
    let values = case.values.iter().filter(|(name, _)| other(name));
    values.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// An axis of which there is more or less to work with.
fn is_resource(axis: &Axis) -> bool {
    matches!(axis.name.as_str(), "streams" | "ranks" | "emulate")
}

/// A curve through measured cases that differ along these axes alone.
fn curve(axes: &[&Axis], held: Vec<(String, String)>, cases: &[&Case], (unit, pace): (Unit, Pace)) -> Option<Curve> {
    let points: Vec<Point> = cases.iter().filter_map(|case| Point::of(case, &label(axes, case), pace)).collect();
    if points.len() < 2 {
        return None;
    }
    let resource = axes.iter().find(|axis| is_resource(axis));
    // The numbers along the axis: those of the resource, where there is one.
    let scale = resource.or(axes.first())?;
    let numbers: Option<Vec<f64>> = cases.iter().map(|case| point::number(case.values.get(&scale.name)?)).collect();
    let baseline = match &numbers {
        Some(numbers) if resource.is_some() && numbers.iter().all(|number| *number > 0.0) => Baseline::First,
        _ => Baseline::Best,
    };
    let rates: Vec<Interval> = points.iter().map(|point| point.rate(unit)).collect();
    let works: Vec<f64> = points.iter().map(|point| unit.of(point)).collect();
    let best = (0..points.len()).rev().max_by(|a, b| rates[*a].value.total_cmp(&rates[*b].value))?;
    let reference = match (baseline, &numbers) {
        (Baseline::First, Some(numbers)) => smallest(numbers),
        _ => best,
    };
    let records = || cases.iter().filter_map(|case| case.record.as_ref());
    let simulated = records().any(|record| record.simulated);
    let as_good = |other: &usize| *other != best && rates[*other].meets(&rates[best], point::slack(simulated));
    Some(Curve {
        held,
        simulated,
        emulated: records().any(|record| record.emulated.is_some()),
        pace,
        conclusive: records().all(|record| is_conclusive(record, pace)),
        unit,
        efficiency: efficiency(&rates, numbers.as_deref(), baseline, reference),
        baseline,
        one: match baseline {
            Baseline::First => cases[reference].values.get(&scale.name)?.clone(),
            Baseline::Best => points[reference].value.clone(),
        },
        growth: growth(&works, numbers.as_deref()),
        best,
        alike: (0..points.len()).filter(as_good).collect(),
        knee: numbers.and_then(|numbers| knee(&rates, &numbers, rates[best].value)),
        points,
    })
}

/// The value of a case along the axes of a curve.
fn label(axes: &[&Axis], case: &Case) -> String {
    axes.iter().filter_map(|axis| case.values.get(&axis.name)).cloned().collect::<Vec<_>>().join(", ")
}

fn growth(works: &[f64], numbers: Option<&[f64]>) -> Growth {
    let (least, most) = works.iter().fold((f64::MAX, 0f64), |(least, most), work| (least.min(*work), most.max(*work)));
    if most <= least * (1.0 + SAME_WORK) {
        return Growth::Stays;
    }
    let alike = |numbers: &[f64]| {
        let per_unit = works[0] / numbers[0];
        works.iter().zip(numbers).all(|(work, number)| (work / number / per_unit - 1.0).abs() <= PROPORTIONAL)
    };
    if numbers.is_some_and(alike) { Growth::Proportional } else { Growth::Varies }
}

/// The rate over that of the reference, and per unit of a resource.
fn efficiency(rates: &[Interval], numbers: Option<&[f64]>, baseline: Baseline, reference: usize) -> Vec<f64> {
    let more = |index: usize| match (baseline, numbers) {
        (Baseline::First, Some(numbers)) => numbers[index] / numbers[reference],
        _ => 1.0,
    };
    (0..rates.len()).map(|index| rates[index].value / rates[reference].value / more(index)).collect()
}

fn smallest(numbers: &[f64]) -> usize {
    (0..numbers.len()).min_by(|a, b| numbers[*a].total_cmp(&numbers[*b])).unwrap_or(0)
}

/// The smallest value whose interval reaches that share of the best rate.
fn knee(rates: &[Interval], numbers: &[f64], best: f64) -> Option<usize> {
    if rates.len() < KNEE_POINTS {
        return None;
    }
    let reaching = (0..rates.len()).filter(|&index| rates[index].high >= ENOUGH * best);
    reaching.min_by(|a, b| numbers[*a].total_cmp(&numbers[*b]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exact(values: &[f64]) -> Vec<Interval> {
        values.iter().map(|&value| Interval { value, low: value, high: value }).collect()
    }

    #[test]
    fn the_work_stays_grows_alike_or_varies() {
        assert_eq!(growth(&[100.0, 100.5, 100.9], None), Growth::Stays);
        assert_eq!(growth(&[0.0, 0.0], Some(&[1.0, 2.0])), Growth::Stays);
        assert_eq!(growth(&[10.0, 20.2, 39.0], Some(&[1.0, 2.0, 4.0])), Growth::Proportional);
        assert_eq!(growth(&[10.0, 40.0], Some(&[1.0, 2.0])), Growth::Varies);
        assert_eq!(growth(&[10.0, 20.0], None), Growth::Varies);
    }

    #[test]
    fn one_formula_is_strong_and_weak_scaling() {
        let numbers = [1.0, 2.0, 4.0];
        // Strong: 100 of work, in 10, 5 and 4 seconds: T(1) / (n × T(n)).
        let strong = exact(&[100.0 / 10.0, 100.0 / 5.0, 100.0 / 4.0]);
        assert_eq!(efficiency(&strong, Some(&numbers), Baseline::First, 0), [1.0, 1.0, 0.625]);
        // Weak: 100 of work for each, in 10, 10 and 12.5 seconds: T(1) / T(n).
        let weak = exact(&[100.0 / 10.0, 200.0 / 10.0, 400.0 / 12.5]);
        assert_eq!(efficiency(&weak, Some(&numbers), Baseline::First, 0), [1.0, 1.0, 0.8]);
        // The baseline is the smallest value, wherever it stands.
        let turned = exact(&[25.0, 20.0, 10.0]);
        assert_eq!(efficiency(&turned, Some(&[4.0, 2.0, 1.0]), Baseline::First, 2), [0.625, 1.0, 1.0]);
        assert_eq!(efficiency(&exact(&[5.0, 20.0]), None, Baseline::Best, 1), [0.25, 1.0]);
    }

    #[test]
    fn the_knee_is_the_smallest_value_that_is_good_enough() {
        let numbers = [1.0, 2.0, 4.0, 8.0];
        assert_eq!(knee(&exact(&[10.0, 19.0, 19.9, 20.0]), &numbers, 20.0), Some(1));
        assert_eq!(knee(&exact(&[10.0, 18.9, 19.9, 20.0]), &numbers, 20.0), Some(2));
        // What is known to lie between 18 and 19.5 may be good enough.
        let mut rates = exact(&[10.0, 18.5, 19.9, 20.0]);
        rates[1] = Interval { value: 18.5, low: 18.0, high: 19.5 };
        assert_eq!(knee(&rates, &numbers, 20.0), Some(1));
        assert_eq!(knee(&exact(&[10.0, 20.0]), &[1.0, 2.0], 20.0), None);
    }
}
