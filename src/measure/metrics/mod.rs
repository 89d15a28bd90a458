//! Evaluates metrics and expectations from the samples of figures.
//!
//! An expression is evaluated in a view: over rounds, or in one slot. All figures in it then use samples of the same
//! iterations, so that a rate divides work by the time in which it was done. Observing operations costs time, so a bare
//! `time` next to a figure of observed iterations refers to those iterations; otherwise shares could exceed 1.

pub mod definitions;
pub(super) mod device;
pub(super) mod evidence;
pub mod expected;
pub(super) mod work;

use std::cell::RefCell;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use crate::base::SrcSpan;
use crate::base::units::{self, Dimension};
use crate::model::{Expectation, Figure, FigureExpr, Metric, Op, OpSet, Statistic};
use crate::ops;
use crate::ops::expression::{Binary, Unary};

use super::record::{MetricRecord, OverSlots};
use super::statistics::direction;
use super::statistics::stats::samples_for;
use super::statistics::summary::Summary;
use evidence::{Evidence, FigureSamples, Quotient};

/// The iterations that figures are taken from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct IterationSet {
    slots: ViewedSlots,
    times: TimeBasis,
}

/// The slots whose iterations a view contains.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum ViewedSlots {
    /// Rounds of the listed slots, in increasing order.
    Rounds(Rc<[usize]>),
    Slot(usize),
}

/// The iterations that a bare `time` or `bandwidth` refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum TimeBasis {
    /// Not decided yet: each operand of `and` and `or` decides separately.
    Undecided,
    /// Measured iterations, without the overhead of observation.
    Measured,
    /// Observed iterations, since another figure of the formula needs them.
    Observed,
}

impl IterationSet {
    fn of_slot(slot: usize) -> IterationSet {
        IterationSet { slots: ViewedSlots::Slot(slot), times: TimeBasis::Undecided }
    }

    /// Restricts the view to the slot that an expression names; returns it unchanged if the expression names none.
    fn at(&self, slot: Option<usize>) -> IterationSet {
        IterationSet { slots: slot.map_or_else(|| self.slots.clone(), ViewedSlots::Slot), times: self.times }
    }
}

/// Slots that all parts of an expression have; `None` if no part depends on the slot.
type CommonSlots = Option<Rc<[usize]>>;

/// The metrics and expectations of a rank.
#[derive(Debug)]
pub struct RankMetrics<'a> {
    pub evidence: Evidence<'a>,
    known: MetricCache,
}

/// Cache of evaluated metrics, since metrics may use each other many times.
#[derive(Debug, Default)]
struct MetricCache {
    slots: Memo<usize, CommonSlots>,
    /// By number of the metric: true if it uses figures of observed iterations.
    observed: Memo<usize, bool>,
    /// By number of the metric: true if the program has operations of each of its sets.
    has_operations: Memo<usize, bool>,
    values: Memo<(usize, IterationSet), f64>,
    series: Memo<(usize, IterationSet), SampleSeries>,
}

/// Cached results by key.
#[derive(Debug)]
struct Memo<K, T>(RefCell<FxHashMap<K, Result<T, String>>>);

impl<K, T> Default for Memo<K, T> {
    fn default() -> Self {
        Memo(RefCell::default())
    }
}

impl<K: Eq + std::hash::Hash, T: Clone> Memo<K, T> {
    fn get(&self, key: K, work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
        let known = self.0.borrow().get(&key).cloned();
        known.unwrap_or_else(|| {
            let result = work();
            self.0.borrow_mut().insert(key, result.clone());
            result
        })
    }
}

/// A number, or a number per sample.
#[derive(Clone, Debug)]
enum SampleSeries {
    Constant(f64),
    Samples(Vec<f64>),
}

impl SampleSeries {
    fn of(sampled: &FigureSamples, view: &ViewedSlots) -> Result<SampleSeries, String> {
        let absent = |slot: usize| format!("slot {slot} has no such figure");
        let samples = match (sampled, view) {
            (FigureSamples::Constant(value), _) => return Ok(SampleSeries::Constant(*value)),
            (FigureSamples::Known(values), ViewedSlots::Slot(slot)) => {
                return Ok(SampleSeries::Constant(values[*slot]));
            }
            (FigureSamples::Known(values), ViewedSlots::Rounds(slots)) => {
                let sum: f64 = slots.iter().map(|slot| values[*slot]).sum();
                return Ok(SampleSeries::Constant(sum / slots.len() as f64));
            }
            (FigureSamples::Iterations(samples), ViewedSlots::Slot(slot)) => {
                samples[*slot].iter().map(|sample| sample.over / sample.under).collect()
            }
            (FigureSamples::Operations(samples), ViewedSlots::Slot(slot)) => samples[*slot].clone(),
            (FigureSamples::Operations(samples), ViewedSlots::Rounds(slots)) => {
                slots.iter().flat_map(|slot| &samples[*slot]).copied().collect()
            }
            (FigureSamples::Iterations(samples), ViewedSlots::Rounds(slots)) => {
                let rounds = slots.iter().map(|slot| samples[*slot].len()).min().unwrap_or(0);
                let round = |round: usize| joined(slots.iter().map(|slot| samples[*slot][round]));
                (0..rounds).map(round).collect::<Vec<f64>>()
            }
        };
        match view {
            ViewedSlots::Slot(slot) if samples.is_empty() => Err(absent(*slot)),
            _ => Ok(SampleSeries::Samples(samples)),
        }
    }

    fn map(self, function: impl Fn(f64) -> f64) -> SampleSeries {
        match self {
            SampleSeries::Constant(value) => SampleSeries::Constant(function(value)),
            SampleSeries::Samples(samples) => SampleSeries::Samples(samples.into_iter().map(function).collect()),
        }
    }

    fn median(&self) -> f64 {
        match self {
            SampleSeries::Constant(value) => *value,
            SampleSeries::Samples(samples) => Summary::of(samples).map_or(f64::NAN, |summary| summary.p50),
        }
    }

    fn statistic(&self, statistic: Statistic) -> Result<f64, String> {
        let samples: &[f64] = match self {
            SampleSeries::Constant(value) => std::slice::from_ref(value),
            SampleSeries::Samples(samples) => samples,
        };
        let summary = Summary::of(samples).ok_or("there are no samples")?;
        // A constant is known exactly.
        let interval = match self {
            SampleSeries::Constant(value) => Some((*value, *value)),
            SampleSeries::Samples(_) => summary.interval,
        };
        let needs = |percent: f64| {
            let wanted = samples_for(percent);
            format!(
                "`{}` needs {wanted} samples, and there are {}: `--iterations N` takes more",
                statistic.name(),
                summary.n
            )
        };
        match statistic {
            Statistic::Mean => Ok(summary.mean),
            Statistic::Min => Ok(summary.min),
            Statistic::Max => Ok(summary.max),
            Statistic::P50 => Ok(summary.p50),
            Statistic::Std => summary.std.ok_or_else(|| "`std` needs 2 samples".to_owned()),
            Statistic::Cv => summary.cv().ok_or_else(|| "`cv` needs 2 samples and a mean".to_owned()),
            Statistic::P5 => summary.p5.ok_or_else(|| needs(5.0)),
            Statistic::P95 => summary.p95.ok_or_else(|| needs(95.0)),
            Statistic::P99 => summary.p99.ok_or_else(|| needs(99.0)),
            Statistic::Low | Statistic::High => {
                let why = || {
                    let has = match summary.n {
                        n if n < 6 => format!("this run has {n}"),
                        n => format!("the {n} of this run are correlated"),
                    };
                    format!("`{}` needs 6 independent samples, and {has}", statistic.name())
                };
                let (low, high) = interval.ok_or_else(why)?;
                Ok(if statistic == Statistic::Low { low } else { high })
            }
        }
    }
}

/// Combines samples: the sum of numerators over the sum of denominators.
fn joined(samples: impl Iterator<Item = Quotient>) -> f64 {
    let sum = samples.fold((0.0, 0.0), |sum, sample| (sum.0 + sample.over, sum.1 + sample.under));
    sum.0 / sum.1
}

/// Slots that `a` and `b` have in common; `None` for all slots.
fn common(a: CommonSlots, b: CommonSlots) -> CommonSlots {
    match (a, b) {
        (Some(a), Some(b)) if a == b => Some(a),
        (Some(a), Some(b)) => Some(a.iter().filter(|slot| b.contains(slot)).copied().collect()),
        (a, b) => a.or(b),
    }
}

impl<'a> RankMetrics<'a> {
    pub fn new(evidence: Evidence<'a>) -> RankMetrics<'a> {
        RankMetrics { evidence, known: MetricCache::default() }
    }

    /// The slots that have all figures of an expression, apart from figures of an explicit slot.
    fn slots_of(&self, expr: &FigureExpr) -> Result<CommonSlots, String> {
        let of_leaf = |leaf: &FigureExpr| match leaf {
            FigureExpr::Figure { figure, set, beside, slot: None, .. } => {
                let sampled = self.evidence.sampled(*figure, set.as_ref(), beside.as_ref(), false)?;
                let has = |slot: &usize| match &*sampled {
                    FigureSamples::Constant(_) | FigureSamples::Known(_) => true,
                    FigureSamples::Iterations(samples) => !samples[*slot].is_empty(),
                    FigureSamples::Operations(samples) => !samples[*slot].is_empty(),
                };
                let differs = !matches!(&*sampled, FigureSamples::Constant(_));
                Ok(differs.then(|| (0..self.evidence.slots).filter(has).collect()))
            }
            FigureExpr::Metric { metric, slot: None, .. } => {
                self.known.slots.get(*metric, || self.slots_of(&self.evidence.program.metrics[*metric].value))
            }
            _ => Ok(None),
        };
        expr.leaves().into_iter().try_fold(None, |slots, leaf| Ok(common(slots, of_leaf(leaf)?)))
    }

    /// Values of a metric, evaluated once.
    fn metric(&self, metric: usize, view: &IterationSet) -> Result<SampleSeries, String> {
        let key = (metric, view.clone());
        self.known.series.get(key, || self.series(&self.evidence.program.metrics[metric].value, view))
    }

    /// True if an expression contains a figure that exists for observed iterations only.
    fn observes(&self, expr: &FigureExpr) -> bool {
        expr.leaves().into_iter().any(|leaf| match leaf {
            FigureExpr::Figure { figure, set, .. } => figure.is_observed(set.is_some()),
            FigureExpr::Metric { metric, .. } => {
                let observes = || Ok(self.observes(&self.evidence.program.metrics[*metric].value));
                self.known.observed.get(*metric, observes) == Ok(true)
            }
            _ => false,
        })
    }

    /// The view in which the parts of an expression are evaluated.
    fn decided(&self, expr: &FigureExpr, view: &IterationSet) -> IterationSet {
        let times = match (expr, view.times) {
            (FigureExpr::Binary(Binary::And | Binary::Or, ..), times)
            | (FigureExpr::Unary(Unary::Not, _) | FigureExpr::Metric { .. }, times) => times,
            (_, TimeBasis::Undecided) if self.observes(expr) => TimeBasis::Observed,
            (_, TimeBasis::Undecided) => TimeBasis::Measured,
            (_, times) => times,
        };
        IterationSet { slots: view.slots.clone(), times }
    }

    /// Samples of an expression. A part with an explicit slot gives a single number.
    fn series(&self, expr: &FigureExpr, view: &IterationSet) -> Result<SampleSeries, String> {
        let view = &self.decided(expr, view);
        match expr {
            FigureExpr::Constant(value) => Ok(SampleSeries::Constant(*value)),
            FigureExpr::BySlot(values) => SampleSeries::of(&FigureSamples::Known(values.clone()), &view.slots),
            FigureExpr::Figure { figure, set, beside, slot: None, statistic: None, .. } => {
                let observed = view.times == TimeBasis::Observed;
                SampleSeries::of(
                    &*self.evidence.sampled(*figure, set.as_ref(), beside.as_ref(), observed)?,
                    &view.slots,
                )
            }
            FigureExpr::Metric { metric, slot: None, statistic: None } => self.metric(*metric, view),
            FigureExpr::Figure { .. } | FigureExpr::Metric { .. } => self.value(expr, view).map(SampleSeries::Constant),
            FigureExpr::Unary(function, inner) => Ok(self.series(inner, view)?.map(|value| function.apply(value))),
            FigureExpr::Binary(function, left, right) => match (self.series(left, view)?, self.series(right, view)?) {
                (left, SampleSeries::Constant(right)) => Ok(left.map(|left| function.apply(left, right))),
                (SampleSeries::Constant(left), right) => Ok(right.map(|right| function.apply(left, right))),
                (SampleSeries::Samples(left), SampleSeries::Samples(right)) if left.len() == right.len() => {
                    Ok(SampleSeries::Samples(
                        left.iter().zip(&right).map(|(left, right)| function.apply(*left, *right)).collect(),
                    ))
                }
                (left, right) => Ok(SampleSeries::Constant(function.apply(left.median(), right.median()))),
            },
        }
    }

    /// Value of an expression in a view, in base units, with the median of each bare figure.
    fn value(&self, expr: &FigureExpr, view: &IterationSet) -> Result<f64, String> {
        let view = &self.decided(expr, view);
        let value = match expr {
            FigureExpr::Constant(value) => *value,
            FigureExpr::BySlot(_) => self.series(expr, view)?.median(),
            FigureExpr::Figure { figure, set, beside, slot, statistic, .. } => {
                // Few iterations are observed, so an explicit statistic uses the measured ones.
                let observed = view.times == TimeBasis::Observed && statistic.is_none();
                let sampled = self.evidence.sampled(*figure, set.as_ref(), beside.as_ref(), observed)?;
                let series = SampleSeries::of(&sampled, &view.at(*slot).slots)?;
                match statistic {
                    None => series.median(),
                    Some(statistic) => series.statistic(*statistic)?,
                }
            }
            FigureExpr::Metric { metric, slot, statistic: None } => {
                let (metric, view) = (*metric, view.at(*slot));
                let value = || self.value(&self.evidence.program.metrics[metric].value, &view);
                self.known.values.get((metric, view.clone()), value)?
            }
            FigureExpr::Metric { metric, slot, statistic: Some(statistic) } => {
                self.metric(*metric, &view.at(*slot))?.statistic(*statistic)?
            }
            FigureExpr::Unary(function, inner) => function.apply(self.value(inner, view)?),
            FigureExpr::Binary(function, left, right) => {
                function.apply(self.value(left, view)?, self.value(right, view)?)
            }
        };
        if value.is_finite() { Ok(value) } else { Err("it divides by zero".to_owned()) }
    }

    /// Value of an expression over the rounds of the slots that have all of its figures.
    fn over_rounds(&self, expr: &FigureExpr) -> Result<f64, String> {
        let slots = self.slots_of(expr)?.unwrap_or_else(|| (0..self.evidence.slots).collect());
        if slots.is_empty() {
            return Err("no slot has all figures that it is worked out from: name one for each, as in `time.slot[0]`"
                .to_owned());
        }
        self.value(expr, &IterationSet { slots: ViewedSlots::Rounds(slots), times: TimeBasis::Undecided })
    }

    /// True if this rank's program has operations of each set in an expression.
    fn has_operations(&self, expr: &FigureExpr) -> bool {
        let program = self.evidence.program;
        let has = |is: &dyn Fn(&Op) -> bool| program.cycle.iter().flat_map(|step| &step.ops).any(is);
        let has_any = |set: &OpSet| has(&|op| set.contains(program, op));
        expr.leaves().into_iter().all(|leaf| match leaf {
            FigureExpr::Figure { figure: Figure::BusBandwidth, set, .. } => has(&|op| {
                let crosses = program.op_spec(op).is_some_and(ops::moves_between_ranks);
                crosses && set.as_ref().is_none_or(|set| set.contains(program, op))
            }),
            FigureExpr::Figure { set, beside, .. } => set.iter().chain(beside).all(has_any),
            FigureExpr::Metric { metric, .. } => {
                let has = || Ok(self.has_operations(&self.evidence.program.metrics[*metric].value));
                self.known.has_operations.get(*metric, has) == Ok(true)
            }
            _ => true,
        })
    }

    /// Value of an expression over the rounds; `None` if it has no value because this rank has no operation of a set in
    /// it, as ranks with different roles do not.
    fn on_this_rank(&self, expr: &FigureExpr) -> Option<Result<f64, String>> {
        let value = self.over_rounds(expr);
        (value.is_ok() || self.has_operations(expr)).then_some(value)
    }

    /// Returns the verdict on an expectation: `failed` with the reason if a figure in it does not exist, but `None` if that is because
    /// this rank has no operation of a set in it.
    pub fn verdict(&self, expectation: &Expectation) -> Option<(&'static str, Option<String>)> {
        let truth = |expr: &FigureExpr| Some(self.on_this_rank(expr)?.map(|value| value != 0.0));
        if let Some(when) = &expectation.when {
            match truth(when)? {
                Ok(true) => {}
                Ok(false) => return Some(("skipped", None)),
                Err(why) => return Some(("failed", Some(why))),
            }
        }
        Some(match truth(&expectation.condition)? {
            Ok(true) => ("held", None),
            Ok(false) => ("failed", None),
            Err(why) => ("failed", Some(why)),
        })
    }

    /// The figures of an expression with their values over the rounds, as `name` formats the text of a figure; `None` if one has
    /// no value, or there is none.
    pub fn figures_text(&self, expr: &FigureExpr, name: &dyn Fn(SrcSpan) -> String) -> Option<String> {
        let mut texts: Vec<String> = Vec::new();
        for leaf in expr.leaves() {
            let (name, dimension, statistic) = match leaf {
                FigureExpr::Constant(_) | FigureExpr::BySlot(_) => continue,
                FigureExpr::Figure { figure, statistic, span, .. } => (name(*span), figure.dimension(), *statistic),
                FigureExpr::Metric { metric, statistic, .. } => {
                    let metric = &self.evidence.program.metrics[*metric];
                    (metric.name.clone(), metric.dimension, *statistic)
                }
                FigureExpr::Unary(..) | FigureExpr::Binary(..) => unreachable!("leaves have no parts"),
            };
            let value = self.over_rounds(leaf).ok()?;
            let (suffix, value) = match statistic {
                None if let FigureExpr::Metric { metric, .. } = leaf => {
                    (String::new(), shown(&self.evidence.program.metrics[*metric], value))
                }
                Some(Statistic::Cv) => (".cv".to_owned(), format!("{value:.4}")),
                Some(statistic) => (format!(".{}", statistic.name()), dimension.display(value)),
                None => (String::new(), dimension.display(value)),
            };
            let text = if name.ends_with(&suffix) { name } else { name + &suffix };
            let text = format!("`{text}` is {value}");
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        (!texts.is_empty()).then(|| texts.join(", "))
    }

    /// Value of each metric in each slot; empty for a metric that cannot differ between slots.
    fn slot_values(&self) -> Vec<Vec<Option<f64>>> {
        let metrics = &self.evidence.program.metrics;
        if self.evidence.slots < 2 {
            return vec![Vec::new(); metrics.len()];
        }
        let mut values: Vec<Vec<Option<f64>>> = vec![Vec::new(); metrics.len()];
        for slot in 0..self.evidence.slots {
            let view = IterationSet::of_slot(slot);
            for (index, metric) in metrics.iter().enumerate().filter(|(_, metric)| metric.has_slots) {
                values[index].push(self.value(&metric.value, &view).ok());
            }
            // Drop cached values of this slot, which no other slot needs.
            self.known.values.0.borrow_mut().retain(|(_, of), _| of.slots != view.slots);
            self.known.series.0.borrow_mut().retain(|(_, of), _| of.slots != view.slots);
        }
        values
    }
}

/// Evaluates every metric of the program. Over ranks, a time is that of the slowest, any other metric the mean. Ranks that
/// have no value because they have no operation of a set of the metric are left out. If any other rank lacks a value, or
/// all are left out, the metric has none.
pub fn of_ranks(ranks: &[RankMetrics]) -> Vec<MetricRecord> {
    let Some(first) = ranks.first() else { return Vec::new() };
    let slots: Vec<Vec<Vec<Option<f64>>>> = ranks.iter().map(RankMetrics::slot_values).collect();
    let directions = direction::of_expressions(&first.evidence.program.metrics);
    let metrics = first.evidence.program.metrics.iter().enumerate();
    let all = metrics.map(|(index, metric)| {
        let join = |values: Vec<f64>| match metric.dimension {
            Dimension::TIME => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            _ => values.iter().sum::<f64>() / values.len() as f64,
        };
        let of_rank = |rank: &RankMetrics| rank.on_this_rank(&rank.evidence.program.metrics[index].value);
        let (members, values): (Vec<usize>, Vec<Result<f64, String>>) =
            ranks.iter().map(of_rank).enumerate().filter_map(|(rank, value)| Some((rank, value?))).unzip();
        let value = match members.is_empty() {
            true => first.over_rounds(&metric.value),
            false => values.into_iter().collect::<Result<Vec<f64>, String>>().map(join),
        };
        let slot = |slot: usize| {
            let values: Option<Vec<f64>> = members.iter().map(|&rank| *slots[rank][index].get(slot)?).collect();
            values.filter(|values| !values.is_empty()).map(join)
        };
        let ranks_with_value = (value.is_ok() && members.len() < ranks.len()).then_some(members.len() as u32);
        let record = record(metric, value, (0..slots[0][index].len()).map(slot));
        let known = direction::of(&record.name, &record.unit).is_some();
        let better = directions[index].filter(|_| !known);
        MetricRecord { ranks: ranks_with_value, better, ..record }
    });
    all.collect()
}

fn record(metric: &Metric, value: Result<f64, String>, slots: impl Iterator<Item = Option<f64>>) -> MetricRecord {
    let (value, note) = match value {
        Ok(value) => (Some(value), None),
        Err(note) => (None, Some(note)),
    };
    let to_si = |value: f64| units::unsigned_zero(value * metric.dimension.to_si());
    // The value is in SI units, so a unit of the language, such as `ms`, only affects its text.
    let unit = metric_unit(metric);
    let text = value.map_or_else(|| "–".to_owned(), |value| shown(metric, value));
    let slots: Vec<Option<f64>> = slots.collect();
    let over_slots = Summary::of(&slots.iter().copied().flatten().collect::<Vec<_>>()).map(|summary| OverSlots {
        min: shown(metric, summary.min),
        median: shown(metric, summary.p50),
        max: shown(metric, summary.max),
    });
    let slots = slots.into_iter().map(|value| value.map(to_si)).collect();
    MetricRecord {
        name: metric.name.clone(),
        value: value.map(to_si),
        unit,
        better: None,
        text,
        note,
        ranks: None,
        slots,
        over_slots,
    }
}

/// Formats a value, given in base units, in the metric's unit.
fn shown(metric: &Metric, value: f64) -> String {
    match &metric.unit {
        Some(unit) => metric.dimension.display_in(value, unit),
        None => metric.dimension.display(value),
    }
}

/// The unit of a metric's value in a record: that of the file if the language has none of that name, otherwise the SI unit.
pub fn metric_unit(metric: &Metric) -> String {
    let custom_unit = metric.unit.as_deref().filter(|name| units::unit(name).is_none());
    custom_unit.map_or_else(|| si_unit(metric.dimension), str::to_owned)
}

fn si_unit(dimension: Dimension) -> String {
    match (dimension.time, dimension.bytes, dimension.flops) {
        (0, 0, 0) => String::new(),
        (1, 0, 0) => "s".to_owned(),
        (0, 1, 0) => "B".to_owned(),
        (0, 0, 1) => "FLOP".to_owned(),
        (-1, 0, 0) => "1/s".to_owned(),
        (-1, 1, 0) => "B/s".to_owned(),
        (-1, 0, 1) => "FLOP/s".to_owned(),
        _ => dimension.describe(),
    }
}
