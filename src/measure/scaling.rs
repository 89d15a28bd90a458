//! How figures scale along the axes of a sweep: what the work does, how efficient each value is and against what, the
//! best value, and where more gives little.
//!
//! Along an axis everything else is held at the values of the sweep's best case. Figures are those of a case's first
//! variant.

pub mod effect;
mod point;

use super::cases::{Axis, Case, Header};

pub use effect::Effect;
pub use point::{Interval, Point, seconds};

/// The share of the best rate from which on a value is as good as the best, for practical purposes.
pub const ENOUGH: f64 = 0.95;

/// Work that differs by less is the same.
const SAME_WORK: f64 = 0.01;

/// How far work may be from growing as the axis does.
const PROPORTIONAL: f64 = 0.05;

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

/// One axis, everything else held.
#[derive(Clone, Debug)]
pub struct Curve {
    /// The axes' names; one, unless they go together.
    pub axes: Vec<String>,
    /// What the other axes are held at.
    pub held: Vec<(String, String)>,
    pub simulated: bool,
    pub unit: Unit,
    /// In the order in which values were given. Those without a figure are left out.
    pub points: Vec<Point>,
    /// Of each point.
    pub efficiency: Vec<f64>,
    pub baseline: Baseline,
    /// Of the work in `unit`.
    pub growth: Growth,
    /// The place of the point with the best rate.
    pub best: usize,
    /// Others whose rate cannot be told from the best's: the intervals have a part in common.
    pub alike: Vec<usize>,
    /// The point of the smallest value whose interval reaches 95 % of the best rate; nothing where values are no
    /// numbers, or fewer than three.
    pub knee: Option<usize>,
    pub effect: Effect,
}

/// What the rates of a sweep count: the same for all of its cases.
pub fn unit(cases: &[&Case]) -> Unit {
    let points: Vec<Point> = cases.iter().filter_map(|case| Point::of(case, "")).collect();
    match () {
        () if points.iter().all(|point| point.flops > 0.0) => Unit::Flops,
        () if points.iter().all(|point| point.bytes > 0.0) => Unit::Bytes,
        () => Unit::Iterations,
    }
}

/// A curve for each axis of a sweep, or one for all that go together. None for an axis with fewer than two figures.
pub fn curves(header: &Header, cases: &[&Case]) -> Vec<Curve> {
    let unit = unit(cases);
    let rate = |case: &&Case| Point::of(case, "").map(|point| point.rate(unit).value);
    let measured = cases.iter().copied().filter(|case| rate(case).is_some());
    // Of equal ones the first.
    let Some(best) = measured.rev().max_by(|a, b| rate(a).partial_cmp(&rate(b)).unwrap_or(std::cmp::Ordering::Equal))
    else {
        return Vec::new();
    };
    let groups: Vec<Vec<&Axis>> = match header.zip {
        true => vec![header.axes.iter().collect()],
        false => header.axes.iter().map(|axis| vec![axis]).collect(),
    };
    groups.iter().filter_map(|axes| curve(axes, best, cases, unit)).collect()
}

/// An axis of which there is more or less to work with.
fn is_resource(axis: &Axis) -> bool {
    matches!(axis.name.as_str(), "streams" | "ranks" | "emulate")
}

fn curve(axes: &[&Axis], best: &Case, cases: &[&Case], unit: Unit) -> Option<Curve> {
    let along = |name: &str| axes.iter().any(|axis| axis.name == name);
    let held: Vec<(String, String)> = best
        .values
        .iter()
        .filter(|(name, _)| !along(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let here = |case: &&&Case| held.iter().all(|(name, value)| case.values.get(name) == Some(value));
    let resource = axes.iter().find(|axis| is_resource(axis));
    // The numbers along the axis: those of the resource, where there is one.
    let scale = resource.or(axes.first())?;
    let points: Vec<Point> = cases.iter().filter(here).filter_map(|case| Point::of(case, &label(axes, case))).collect();
    let numbers: Vec<Option<f64>> = cases
        .iter()
        .filter(here)
        .filter(|case| Point::of(case, "").is_some())
        .map(|case| point::number(&case.values[&scale.name]))
        .collect();
    if points.len() < 2 {
        return None;
    }
    let numbers: Option<Vec<f64>> = numbers.into_iter().collect();
    let rates: Vec<Interval> = points.iter().map(|point| point.rate(unit)).collect();
    let top = (0..points.len()).rev().max_by(|a, b| rates[*a].value.total_cmp(&rates[*b].value))?;
    let works: Vec<f64> = points.iter().map(|point| unit.of(point)).collect();
    let baseline = match (&numbers, resource) {
        (Some(numbers), Some(_)) if numbers.iter().all(|number| *number > 0.0) => Baseline::First,
        _ => Baseline::Best,
    };
    let growth = growth(&works, numbers.as_deref());
    let efficiency = efficiency(&rates, numbers.as_deref(), baseline, top);
    let alike = (0..points.len()).filter(|&other| other != top && rates[other].meets(&rates[top])).collect();
    let knee = numbers.as_ref().and_then(|numbers| knee(&rates, numbers, rates[top].value));
    Some(Curve {
        axes: axes.iter().map(|axis| axis.name.clone()).collect(),
        held,
        simulated: best.record.as_ref().is_some_and(|record| record.simulated),
        unit,
        efficiency,
        baseline,
        growth,
        best: top,
        alike,
        knee,
        effect: Effect::of(axes, cases),
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

fn efficiency(rates: &[Interval], numbers: Option<&[f64]>, baseline: Baseline, best: usize) -> Vec<f64> {
    match (baseline, numbers) {
        (Baseline::First, Some(numbers)) => {
            let first = smallest(numbers);
            let per_unit = rates[first].value / numbers[first];
            rates.iter().zip(numbers).map(|(rate, number)| rate.value / number / per_unit).collect()
        }
        _ => rates.iter().map(|rate| rate.value / rates[best].value).collect(),
    }
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
        assert_eq!(efficiency(&strong, Some(&numbers), Baseline::First, 2), [1.0, 1.0, 0.625]);
        // Weak: 100 of work for each, in 10, 10 and 12.5 seconds: T(1) / T(n).
        let weak = exact(&[100.0 / 10.0, 200.0 / 10.0, 400.0 / 12.5]);
        assert_eq!(efficiency(&weak, Some(&numbers), Baseline::First, 2), [1.0, 1.0, 0.8]);
        // The baseline is the smallest value, wherever it stands.
        let turned = exact(&[25.0, 20.0, 10.0]);
        assert_eq!(efficiency(&turned, Some(&[4.0, 2.0, 1.0]), Baseline::First, 0), [0.625, 1.0, 1.0]);
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
