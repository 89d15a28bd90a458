//! Scaling along the axes of a sweep: growth of the work, efficiency, the best value and the knee.
//!
//! Results are those of a case's first variant.

pub mod axis_effect;
mod point;

use indexmap::IndexMap;

use super::cases::{Axis, Case, CasesHeader};
use crate::measure::record::pace::Pace;
use crate::measure::record::rate;

pub use crate::measure::record::rate::RateUnit;
pub use axis_effect::AxisEffect;
pub use point::{CurvePoint, Interval, is_conclusive, number, seconds};

/// Minimum share of the best rate that counts as practically as good as the best.
pub const ENOUGH: f64 = 0.95;

/// Relative difference below which amounts of work count as equal.
const SAME_WORK: f64 = 0.01;

/// Relative deviation up to which work counts as proportional to the axis.
const PROPORTIONAL: f64 = 0.05;

/// Arithmetic operations per byte above which work counts as computation.
const COMPUTES: f64 = 32.0;

/// Minimum number of points for a knee.
const KNEE_POINTS: usize = 3;

/// Change of the work of an iteration, over all ranks, along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// Constant within 1 %.
    Stays,
    /// Proportional to the axis within 5 %.
    Proportional,
    Varies,
    /// Unknown: only iterations are counted, and they have different numbers of operations.
    Unknown,
}

/// Reference of an efficiency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Baseline {
    /// Rate at the smallest value, scaled by the amount of the resource (streams, ranks): T(1) / (n × T(n)) with constant
    /// work, T(1) / T(n) with proportional work. Over ranks, these are strong and weak scaling.
    First,
    /// The best rate along the axis.
    Best,
}

/// Results along an axis.
#[derive(Clone, Debug)]
pub struct AxisResults {
    /// Name of the axis; several if axes are zipped.
    pub axes: Vec<String>,
    /// The curve through the sweep's best case.
    pub curve: Curve,
    /// Curves with other values of the other axes, in the order of the cases.
    pub elsewhere: Vec<Curve>,
    pub effect: AxisEffect,
}

/// A curve along one axis with all other axes fixed.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Fixed values of the other axes.
    pub fixed: Vec<(String, String)>,
    /// True if a result is simulated.
    pub simulated: bool,
    /// True if a result is of an emulated world.
    pub emulated: bool,
    /// The kind of times that the results use.
    pub pace: Pace,
    /// True if a best value and a knee can be determined: every case is a measurement with several samples, and the growth of the
    /// work is known.
    pub conclusive: bool,
    pub unit: RateUnit,
    /// Points in the order in which values were given, without cases that have no results.
    pub points: Vec<CurvePoint>,
    /// Efficiency of each point; empty if the growth of the work is unknown.
    pub efficiency: Vec<f64>,
    pub baseline: Baseline,
    /// True if the resource is streams, which share one device; false for ranks, and without a resource.
    pub shares_device: bool,
    /// Index of the point that the efficiency compares with.
    pub reference: usize,
    /// The value of that point; with zipped axes, that of the resource.
    pub one: String,
    /// Growth of the work in `unit`.
    pub growth: Growth,
    /// Index of the point with the best rate.
    pub best: usize,
    /// Points that are not distinguishable from the best: the intervals overlap, or lie less than 1 % apart.
    pub alike: Vec<usize>,
    /// Index of the smallest value whose interval reaches 95 % of the best rate; `None` if values are not numbers, or
    /// with fewer than three points.
    pub knee: Option<usize>,
}

/// The kind of times that all measured cases of a sweep have.
pub fn pace(cases: &[&Case]) -> Pace {
    let records = cases.iter().filter_map(|case| case.record.as_ref());
    Pace::common(records.filter(|record| record.measurement).filter_map(|record| record.variants.first()))
}

/// The unit of a sweep's rates, the same for all cases: arithmetic for workloads that compute, bytes for those that
/// move data.
pub fn unit(cases: &[&Case]) -> RateUnit {
    let points: Vec<CurvePoint> = cases.iter().filter_map(|case| CurvePoint::of(case, "", Pace::Headline)).collect();
    let computes = points.iter().any(|point| point.flops > COMPUTES * point.bytes);
    match () {
        () if computes && points.iter().all(|point| point.flops > 0.0) => RateUnit::Flops,
        () if points.iter().all(|point| point.bytes > 0.0) => RateUnit::Bytes,
        () => RateUnit::Iterations,
    }
}

/// True if only iterations are counted, and may do different work, so that their rates do not compare: they have different
/// numbers of operations, or a record lacks the work of some ranks.
pub fn unequal_iterations(unit: RateUnit, cases: &[&Case]) -> bool {
    let records = || cases.iter().filter_map(|case| case.record.as_ref());
    let operations = || records().map(|record| record.program.operations);
    let differ = operations().min() != operations().max();
    unit == RateUnit::Iterations && (differ || records().any(|record| rate::totals(record).is_none()))
}

/// Objective that a search minimizes: time per unit of work in seconds. `None` for a case without results or known work.
pub fn cost(case: &Case, pace: Pace) -> Option<f64> {
    let time = CurvePoint::of(case, "", pace)?.time.value;
    Some(time / rate::work(case.record.as_ref()?)?.1)
}

/// Results along each axis of a sweep, or along all zipped axes together. Omits axes with fewer than two results on
/// every curve.
pub fn along(header: &CasesHeader, cases: &[&Case]) -> Vec<AxisResults> {
    let (unit, pace) = (unit(cases), pace(cases));
    let rate = |case: &Case| CurvePoint::of(case, "", pace).map(|point| point.rate(unit).value);
    let measured: Vec<(&Case, f64)> = cases.iter().filter_map(|case| Some((*case, rate(case)?))).collect();
    // The first of equal ones.
    let Some((best, _)) = measured.iter().rev().max_by(|a, b| a.1.total_cmp(&b.1)) else { return Vec::new() };
    let together: Vec<Vec<&Axis>> = match header.zip {
        true => vec![header.axes.iter().collect()],
        false => header.axes.iter().map(|axis| vec![axis]).collect(),
    };
    let measured: Vec<&Case> = measured.iter().map(|(case, _)| *case).collect();
    together.iter().filter_map(|axes| axis_results(axes, best, &measured, (unit, pace))).collect()
}

fn axis_results(axes: &[&Axis], best: &Case, cases: &[&Case], (unit, pace): (RateUnit, Pace)) -> Option<AxisResults> {
    let mut groups: IndexMap<Vec<(String, String)>, Vec<&Case>> = IndexMap::new();
    for case in cases {
        groups.entry(other_values(axes, case)).or_default().push(case);
    }
    let mut elsewhere = Vec::new();
    let mut curve = None;
    for (fixed, group) in groups {
        let here = fixed == other_values(axes, best);
        let found = self::curve(axes, fixed, &group, (unit, pace));
        if here { curve = found } else { elsewhere.extend(found) }
    }
    // The best case may be the only one with its values.
    let curve = curve.or_else(|| (!elsewhere.is_empty()).then(|| elsewhere.remove(0)))?;
    let effect = AxisEffect::of(axes, cases, pace);
    Some(AxisResults { axes: axes.iter().map(|axis| axis.name.clone()).collect(), curve, elsewhere, effect })
}

/// Values of a case on all other axes.
fn other_values(axes: &[&Axis], case: &Case) -> Vec<(String, String)> {
    let other = |name: &str| axes.iter().all(|axis| axis.name != name);
    let values = case.values.iter().filter(|(name, _)| other(name));
    values.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// True if an axis is an amount of a resource: streams or ranks.
fn is_resource(axis: &Axis) -> bool {
    matches!(axis.name.as_str(), "streams" | "ranks" | "emulate")
}

/// The curve through cases that differ along these axes only; `None` with fewer than two results.
fn curve(
    axes: &[&Axis],
    fixed: Vec<(String, String)>,
    cases: &[&Case],
    (unit, pace): (RateUnit, Pace),
) -> Option<Curve> {
    let points: Vec<CurvePoint> =
        cases.iter().filter_map(|case| CurvePoint::of(case, &label(axes, case), pace)).collect();
    if points.len() < 2 {
        return None;
    }
    let resource = axes.iter().find(|axis| is_resource(axis));
    // Numbers along the axis, those of the resource if there is one.
    let scale = resource.or(axes.first())?;
    let numbers: Option<Vec<f64>> = cases.iter().map(|case| point::number(case.values.get(&scale.name)?)).collect();
    let comparable = !unequal_iterations(unit, cases);
    let baseline = match &numbers {
        Some(numbers) if comparable && resource.is_some() && numbers.iter().all(|number| *number > 0.0) => {
            Baseline::First
        }
        _ => Baseline::Best,
    };
    let rates: Vec<Interval> = points.iter().map(|point| point.rate(unit)).collect();
    let works: Vec<f64> = points.iter().map(|point| unit.amount(point.flops, point.bytes)).collect();
    let best = (0..points.len()).rev().max_by(|a, b| rates[*a].value.total_cmp(&rates[*b].value))?;
    let reference = match (baseline, &numbers) {
        (Baseline::First, Some(numbers)) => smallest(numbers),
        _ => best,
    };
    let growth = if comparable { growth(&works, numbers.as_deref()) } else { Growth::Unknown };
    let records = || cases.iter().filter_map(|case| case.record.as_ref());
    let simulated = records().any(|record| record.simulated);
    let as_good = |other: &usize| *other != best && rates[*other].meets(&rates[best], point::slack(simulated));
    Some(Curve {
        fixed,
        simulated,
        emulated: records().any(|record| record.emulated.is_some()),
        pace,
        conclusive: comparable && records().all(|record| is_conclusive(record, pace)),
        unit,
        efficiency: match comparable {
            true => efficiency(&rates, numbers.as_deref(), baseline, reference),
            false => Vec::new(),
        },
        baseline,
        shares_device: resource.is_some_and(|axis| axis.name == "streams"),
        reference,
        one: match baseline {
            Baseline::First => cases[reference].values.get(&scale.name)?.clone(),
            Baseline::Best => points[reference].value.clone(),
        },
        growth,
        best,
        alike: (0..points.len()).filter(as_good).collect(),
        knee: numbers.and_then(|numbers| knee(&rates, &numbers, rates[best].value)),
        points,
    })
}

/// Value of a case along the curve's axes.
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

/// Rate relative to the reference's, per unit of a resource if there is one.
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

/// Index of the smallest value whose interval reaches [`ENOUGH`] of the best rate; `None` if the curve has too few points.
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
    fn efficiency_covers_strong_and_weak_scaling() {
        let numbers = [1.0, 2.0, 4.0];
        // Strong: 100 of work, in 10, 5 and 4 seconds: T(1) / (n × T(n)).
        let strong = exact(&[100.0 / 10.0, 100.0 / 5.0, 100.0 / 4.0]);
        assert_eq!(efficiency(&strong, Some(&numbers), Baseline::First, 0), [1.0, 1.0, 0.625]);
        // Weak: 100 of work for each, in 10, 10 and 12.5 seconds: T(1) / T(n).
        let weak = exact(&[100.0 / 10.0, 200.0 / 10.0, 400.0 / 12.5]);
        assert_eq!(efficiency(&weak, Some(&numbers), Baseline::First, 0), [1.0, 1.0, 0.8]);
        // The baseline is the smallest value, at any position of the list.
        let turned = exact(&[25.0, 20.0, 10.0]);
        assert_eq!(efficiency(&turned, Some(&[4.0, 2.0, 1.0]), Baseline::First, 2), [0.625, 1.0, 1.0]);
        assert_eq!(efficiency(&exact(&[5.0, 20.0]), None, Baseline::Best, 1), [0.25, 1.0]);
    }

    #[test]
    fn the_knee_is_the_smallest_value_that_is_good_enough() {
        let numbers = [1.0, 2.0, 4.0, 8.0];
        assert_eq!(knee(&exact(&[10.0, 19.0, 19.9, 20.0]), &numbers, 20.0), Some(1));
        assert_eq!(knee(&exact(&[10.0, 18.9, 19.9, 20.0]), &numbers, 20.0), Some(2));
        // A value whose interval is 18 to 19.5 may reach 95 % of the best.
        let mut rates = exact(&[10.0, 18.5, 19.9, 20.0]);
        rates[1] = Interval { value: 18.5, low: 18.0, high: 19.5 };
        assert_eq!(knee(&rates, &numbers, 20.0), Some(1));
        assert_eq!(knee(&exact(&[10.0, 20.0]), &[1.0, 2.0], 20.0), None);
    }
}
