//! Compares the metrics of a matched case: effect, interval, threshold, verdict.

use std::collections::BTreeSet;

use indexmap::{IndexMap, IndexSet};

use crate::measure::record::pace::Pace;
use crate::measure::statistics::effect::{Direction, Effect, THRESHOLD, Verdict};
use crate::measure::statistics::stats::median;

use super::matching::{self, MatchedCase};
use super::point::{ComparedMetric, ComparedRun, MetricValues, OF_ONE_SLOT};
use super::{CaseComparison, CompareOptions, MetricRow, doubts, is_of, operations};

/// The unit of shares.
const PERCENT: &str = "%";

/// Relative rounding error up to which products count as constant.
const ROUNDING: f64 = 1e-9;

/// Shares above which a difference matters, by metric.
#[derive(Clone, Debug)]
pub struct Thresholds {
    pub all: f64,
    /// Thresholds by the metric's name, or by the prefix before its dot.
    pub of: IndexMap<String, f64>,
}

impl Default for Thresholds {
    fn default() -> Self {
        Thresholds { all: THRESHOLD, of: IndexMap::new() }
    }
}

impl Thresholds {
    fn get(&self, metric: &str) -> f64 {
        let family = metric.split('.').next().unwrap_or(metric);
        self.of.get(metric).or_else(|| self.of.get(family)).copied().unwrap_or(self.all)
    }
}

/// The values of a metric in the runs of one side.
struct SideMetric {
    better: Option<Direction>,
    values: Vec<MetricValues>,
}

/// Compares a matched case.
pub fn pair(case: &MatchedCase, names: &BTreeSet<String>, options: &CompareOptions) -> CaseComparison {
    let refused = doubts::refused(case);
    let one_slot = case.is_one_slot();
    let comparable = |name: &&str| one_slot || !OF_ONE_SLOT.iter().any(|of| name.starts_with(of));
    let wanted = |name: &&str| options.metrics.is_empty() || options.metrics.iter().any(|of| is_of(name, of));
    let names_of_rows: Vec<&str> = names_of(case).into_iter().filter(wanted).filter(comparable).collect();
    let mut rows: Vec<MetricRow> = names_of_rows.iter().filter_map(|name| row(case, name, options)).collect();
    let other_units = names_of_rows.iter().filter_map(|name| other_units(case, name));
    if !refused.is_empty() {
        rows.iter_mut().for_each(|row| row.verdict = Verdict::CannotTell);
    }
    let asked = options.operations || matching::differ(case.points().map(|point| &point.device));
    let operations = if asked && one_slot { operations::rows(case) } else { Vec::new() };
    CaseComparison {
        case: matching::label(&case.key, names),
        key: case.key.clone(),
        base_runs: case.base.len(),
        other_runs: case.other.len(),
        base_figures: figures(&case.base),
        other_figures: figures(&case.other),
        doubts: doubts::doubts(case).into_iter().chain(other_units).collect(),
        refused,
        rows,
        operations,
    }
}

/// Kind of results of a side: `measured`, `simulated` or `emulated`.
fn figures(runs: &[&ComparedRun]) -> String {
    let of = |run: &&ComparedRun| match (run.simulated, run.emulated.is_some()) {
        (false, false) => "measured",
        (true, false) => "simulated",
        (false, true) => "emulated",
        (true, true) => "simulated, emulated",
    };
    let kinds: BTreeSet<&str> = runs.iter().map(of).collect();
    kinds.into_iter().collect::<Vec<_>>().join(" and ")
}

/// Names of the first run's metrics, in its order.
fn names_of<'a>(case: &'a MatchedCase) -> Vec<&'a str> {
    let pace = case.pace();
    let names = |run: &&'a ComparedRun| run.figures(pace).iter().map(|figure| figure.name.as_str()).collect();
    case.base.first().map_or_else(Vec::new, names)
}

/// The units in which runs have a metric.
fn units<'a>(case: &'a MatchedCase, name: &str) -> IndexSet<&'a str> {
    let pace = case.pace();
    let figures = case.points().filter_map(|run| run.figures(pace).iter().find(|figure| figure.name == name));
    let mut units: IndexSet<&str> = figures.map(|figure| figure.unit.as_str()).collect();
    // Records of older versions have shares without a unit.
    if units.contains(PERCENT) {
        units.shift_remove("");
    }
    units
}

/// Says that a metric is not compared, since its runs have it in different units; `None` if they do not.
fn other_units(case: &MatchedCase, name: &str) -> Option<String> {
    let named = |unit: &str| if unit.is_empty() { "no unit".to_owned() } else { format!("`{unit}`") };
    let units: Vec<String> = units(case, name).into_iter().map(named).collect();
    (units.len() > 1).then(|| format!("`{name}` is not compared, since its unit differs: {}", units.join(" and ")))
}

/// Compares a metric; `None` unless every run of both sides has it, in the same unit.
fn row(case: &MatchedCase, name: &str, options: &CompareOptions) -> Option<MetricRow> {
    let pace = case.pace();
    let units = units(case, name);
    let unit = *units.first().filter(|_| units.len() == 1)?;
    let metric = |runs| metric(runs, name, pace, unit);
    let (mut base, mut other) = (metric(&case.base)?, metric(&case.other)?);
    follow_time(case, &mut base.values, &mut other.values);
    let threshold = options.thresholds.get(name);
    let better = options.better.get(name).copied().or(base.better).or(other.better);
    let between_runs = options.between_runs.unwrap_or_else(|| case.between_runs());
    let effect = effect((&base.values, &other.values), case.is_simulated(), between_runs, better, threshold);
    let (of_base, of_other) = match effect {
        Some(effect) => (effect.base, effect.other),
        None => (middle(&base.values)?, middle(&other.values)?),
    };
    let (verdict, why) = judge(name, effect.as_ref(), [of_base, of_other], better, case.is_simulated());
    Some(MetricRow {
        metric: name.to_owned(),
        unit: unit.to_owned(),
        better,
        base: of_base,
        other: of_other,
        effect,
        threshold,
        verdict,
        why,
    })
}

/// A metric of one side in a unit; `None` unless all runs have it.
fn metric(runs: &[&ComparedRun], name: &str, pace: Pace, unit: &str) -> Option<SideMetric> {
    let figures: Option<Vec<&ComparedMetric>> =
        runs.iter().map(|run| run.figures(pace).iter().find(|figure| figure.name == name)).collect();
    let figures = figures?;
    let value = |figure: &&ComparedMetric| match &figure.value {
        MetricValues::Single(share) if unit == PERCENT && figure.unit != unit => MetricValues::Single(100.0 * share),
        value => value.clone(),
    };
    Some(SideMetric { better: figures.first()?.better, values: figures.iter().map(value).collect() })
}

/// Gives a metric the samples of the time if it is proportional to the median time or to its reciprocal, with the same
/// factor in all runs of both sides.
fn follow_time(case: &MatchedCase, base: &mut [MetricValues], other: &mut [MetricValues]) {
    let pace = case.pace();
    let times: Option<Vec<(f64, &MetricValues)>> = case.points().map(|run| median_time(run, pace)).collect();
    let Some(times) = times else { return };
    let values = || base.iter().chain(other.iter());
    let single = |value: &MetricValues| if let MetricValues::Single(value) = value { Some(*value) } else { None };
    let Some(singles) =
        values().map(single).collect::<Option<Vec<f64>>>().filter(|singles| singles.iter().all(|value| *value > 0.0))
    else {
        return;
    };
    let constant = |of: fn(f64, f64) -> f64| {
        let mut all = singles.iter().zip(&times).map(|(value, (time, _))| of(*value, *time));
        let first = all.next()?;
        all.all(|value| (value / first - 1.0).abs() < ROUNDING).then_some(first)
    };
    let moved = times.iter().any(|(time, _)| *time != times[0].0);
    if !moved {
        return;
    }
    // Factor of a rate, or of a time per unit.
    let (factor, inverse) = match (constant(|value, time| value / time), constant(|value, time| value * time)) {
        (Some(factor), _) => (factor, false),
        (None, Some(work)) => (1.0 / work, true),
        (None, None) => return,
    };
    for (value, (_, time)) in base.iter_mut().chain(other.iter_mut()).zip(&times) {
        if let MetricValues::Series { samples, percentile, .. } = time {
            let samples = samples.iter().map(|time| factor * time).collect();
            *value = MetricValues::Series { samples, percentile: *percentile, inverse };
        }
    }
}

/// Median time of a run in seconds, and its series; `None` without samples.
fn median_time(run: &ComparedRun, pace: Pace) -> Option<(f64, &MetricValues)> {
    let figure = run.figures(pace).iter().find(|figure| figure.name == "time.p50")?;
    let MetricValues::Series { samples, .. } = &figure.value else { return None };
    Some((median(samples), &figure.value))
}

/// Computes the effect; `None` if a value is not positive or the samples are too few for the percentile.
fn effect(
    (base, other): (&[MetricValues], &[MetricValues]),
    simulated: bool,
    between_runs: f64,
    better: Option<Direction>,
    threshold: f64,
) -> Option<Effect> {
    let better = better.unwrap_or(Direction::LowerIsBetter);
    if let (Some((base, percentile, inverse)), Some((other, ..))) = (groups(base), groups(other)) {
        let better = if inverse { better.opposite() } else { better };
        let effect = Effect::of(&base, &other, percentile, better, threshold)?;
        // A simulation has no noise, so few iterations suffice.
        let effect = match (simulated, effect.interval) {
            (true, None) => Effect::exact(effect.base, effect.other, better, threshold)?,
            (true, Some(_)) => effect,
            (false, _) => effect.between_runs(between_runs, better),
        };
        return Some(if inverse { effect.inverse() } else { effect });
    }
    let (numbers_of_base, numbers_of_other) = (numbers(base)?, numbers(other)?);
    let first = *numbers_of_base.first()?;
    let same = |values: &[f64]| values.iter().all(|value| *value == values[0]);
    let exact = base.iter().chain(other).all(|value| matches!(value, MetricValues::Exact(_))) || simulated;
    let constant = same(&numbers_of_base) && same(&numbers_of_other);
    // Measured numbers that agree exactly count as constant.
    if constant && (exact || first == numbers_of_other[0]) {
        return Effect::exact(first, numbers_of_other[0], better, threshold);
    }
    Effect::of_values(&numbers_of_base, &numbers_of_other, better, threshold)
}

/// Samples of all runs, their percentile, and whether the metric is the reciprocal. `None` if a value has no samples.
fn groups(values: &[MetricValues]) -> Option<(Vec<&[f64]>, f64, bool)> {
    let (mut of, mut inverted) = (50.0, false);
    let groups = values.iter().map(|value| match value {
        MetricValues::Series { samples, percentile, inverse } => {
            (of, inverted) = (*percentile, *inverse);
            Some(&samples[..])
        }
        MetricValues::Single(_) | MetricValues::Exact(_) => None,
    });
    let groups = groups.collect::<Option<Vec<&[f64]>>>()?;
    Some((groups, of, inverted))
}

/// Value of a side that is shown without a ratio; `None` if the samples are too few for the percentile.
fn middle(values: &[MetricValues]) -> Option<f64> {
    numbers(values).filter(|numbers| !numbers.is_empty()).map(|numbers| median(&numbers))
}

/// Returns a number per run; `None` if values have samples.
fn numbers(values: &[MetricValues]) -> Option<Vec<f64>> {
    let number = |value: &MetricValues| match value {
        MetricValues::Single(value) | MetricValues::Exact(value) => Some(*value),
        MetricValues::Series { .. } => None,
    };
    values.iter().map(number).collect()
}

/// The verdict on a metric, and the reason if there is none.
fn judge(
    name: &str,
    effect: Option<&Effect>,
    [base, other]: [f64; 2],
    better: Option<Direction>,
    simulated: bool,
) -> (Verdict, Option<String>) {
    let Some(effect) = effect else {
        return match (base == other, better) {
            (true, _) => (Verdict::Same, None),
            // A change from or to zero without noise.
            (false, Some(better)) if simulated => {
                let lower = better == Direction::LowerIsBetter;
                (if (other < base) == lower { Verdict::Better } else { Verdict::Worse }, None)
            }
            _ => (Verdict::CannotTell, Some("a side is 0 or negative, so there is no ratio".to_owned())),
        };
    };
    match (effect.verdict, better) {
        (Verdict::Better | Verdict::Worse, None) => (
            Verdict::CannotTell,
            Some(format!(
                "it differs, and neither unit, name nor expression says which way is better: `--better {name}=higher` or `=lower`"
            )),
        ),
        (verdict, _) => (verdict, effect.missing().filter(|_| verdict == Verdict::CannotTell).map(str::to_owned)),
    }
}
