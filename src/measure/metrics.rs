//! Figures, metrics and expectations from samples.

use std::cell::RefCell;

use rustc_hash::FxHashMap;

use crate::base::Nanos;
use crate::base::units::{self, Dimension};
use crate::exec::Trace;
use crate::model::{Expectation, Figure, FigureExpr, Metric, OpKind, OpSet, Program, Statistic};
use crate::plan::Plan;

use super::alone::Alone;
use super::device::Device;
use super::observed::{self, Observed};
use super::plausible::Limits;
use super::record::{ExpectationRecord, MetricRecord};
use super::stats::{Summary, samples_for};

/// What a variant's figures are worked out from.
#[derive(Debug)]
pub struct Evidence<'a> {
    pub program: &'a Program,
    pub plan: &'a Plan,
    pub time: &'a [Nanos],
    pub serial: Option<&'a [Nanos]>,
    pub traces: &'a [Trace],
    /// What operations take when nothing runs beside them.
    pub alone: Option<&'a Alone>,
    /// Bytes of the device's memory that are laid out.
    pub memory: u64,
    /// What the device can do at most.
    pub limits: Limits<'a>,
    pub device: Device<'a>,
    pub known: Known,
}

/// What metrics are worth, once it has been asked: they may use each other any number of times.
#[derive(Debug, Default)]
pub struct Known {
    values: Memo<f64>,
    series: Memo<Series>,
}

/// Results by the number of their metric.
#[derive(Debug)]
struct Memo<T>(RefCell<FxHashMap<usize, Result<T, String>>>);

impl<T> Default for Memo<T> {
    fn default() -> Self {
        Memo(RefCell::default())
    }
}

impl<T: Clone> Memo<T> {
    fn get(&self, metric: usize, work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
        let known = self.0.borrow().get(&metric).cloned();
        known.unwrap_or_else(|| {
            let result = work();
            self.0.borrow_mut().insert(metric, result.clone());
            result
        })
    }
}

/// One number, or one for each sample.
#[derive(Clone, Debug)]
enum Series {
    Constant(f64),
    Samples(Vec<f64>),
}

impl Series {
    fn map(self, function: impl Fn(f64) -> f64) -> Series {
        match self {
            Series::Constant(value) => Series::Constant(function(value)),
            Series::Samples(samples) => Series::Samples(samples.into_iter().map(function).collect()),
        }
    }

    fn median(&self) -> f64 {
        match self {
            Series::Constant(value) => *value,
            Series::Samples(samples) => Summary::of(samples).map_or(f64::NAN, |summary| summary.p50),
        }
    }

    fn statistic(&self, statistic: Statistic) -> Result<f64, String> {
        let samples: &[f64] = match self {
            Series::Constant(value) => std::slice::from_ref(value),
            Series::Samples(samples) => samples,
        };
        let summary = Summary::of(samples).ok_or("there are no samples")?;
        let needs = |percent: f64| {
            let wanted = samples_for(percent);
            format!("`{}` needs {wanted} samples, and there are {}", statistic.name(), summary.n)
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
        }
    }
}

impl Evidence<'_> {
    /// For each observed iteration, something of the operations of a set, or of all. Nothing of an iteration that has
    /// none of them.
    fn observed(
        &self,
        set: Option<&OpSet>,
        values: impl Fn(&Observed) -> Result<Vec<f64>, String>,
    ) -> Result<Series, String> {
        let mut samples = Vec::new();
        let mut ran = false;
        for trace in self.traces {
            let observed = Observed::of(self.program, self.plan, trace, set);
            if !observed.spans.is_empty() {
                ran = true;
                samples.extend(values(&observed)?);
            }
        }
        let text = set.map_or("the iteration", |set| set.text.as_str());
        match (samples.is_empty(), ran, self.traces.is_empty()) {
            (false, ..) => Ok(Series::Samples(samples)),
            (true, _, true) => Err("no iteration was observed operation by operation".to_owned()),
            (true, true, _) => Err(format!("no operation of `{text}` has what it is measured from")),
            (true, false, _) => Err(format!("no operation that ran belongs to `{text}`")),
        }
    }

    /// For each observed iteration, one number that is a time in which the set does all its work.
    fn worked(&self, set: Option<&OpSet>, value: impl Fn(&Observed) -> f64) -> Result<Series, String> {
        self.observed(set, |observed| {
            let time = value(observed);
            self.limits.check(time, observed.specs())?;
            Ok(vec![time])
        })
    }

    /// A rate of the bytes that `bytes` finds in a set, over the time in which any of what has some runs.
    fn rate(&self, set: Option<&OpSet>, bytes: impl Fn(&crate::ops::Spec) -> Option<f64>) -> Result<Series, String> {
        self.observed(set, |observed| {
            let moving = observed.only(|spec| bytes(spec).is_some());
            let time = moving.busy();
            self.limits.check(time, moving.specs())?;
            let total: f64 = moving.specs().filter_map(&bytes).sum();
            Ok(if moving.spans.is_empty() { Vec::new() } else { vec![total / time] })
        })
    }

    fn times(&self) -> Result<Series, String> {
        if self.time.is_empty() {
            return Err("no iteration was measured".to_owned());
        }
        self.limits.check_iteration(self.program, self.time)?;
        Ok(Series::Samples(self.time.iter().map(|time| time.0 as f64).collect()))
    }

    fn serial(&self) -> Result<Series, String> {
        match self.serial {
            Some(samples) if !samples.is_empty() => {
                Ok(Series::Samples(samples.iter().map(|time| time.0 as f64).collect()))
            }
            _ => Err("the serial run was not measured".to_owned()),
        }
    }

    fn figure(&self, figure: Figure, set: Option<&OpSet>, beside: Option<&OpSet>) -> Result<Series, String> {
        match (figure, set) {
            (Figure::Time, None) => self.times(),
            (Figure::Time, Some(_)) => self.worked(set, |observed| observed.span()),
            (Figure::Busy, _) => self.worked(set, |observed| observed.busy()),
            (Figure::Overlap, _) => self.observed(set, |observed| {
                let other = Observed::of(self.program, self.plan, observed.trace, beside);
                Ok(observed.overlap(&other).into_iter().collect())
            }),
            (Figure::Exposed, None) => self.observed(None, |observed| {
                Ok(vec![observed.only(|spec| !observed::computes(spec.operation.category())).exposed()])
            }),
            (Figure::Exposed, Some(_)) => self.observed(set, |observed| Ok(vec![observed.exposed()])),
            (Figure::Gap, _) => self.observed(set, |observed| Ok(observed.gaps())),
            (Figure::Delay, _) => self.observed(set, |observed| Ok(observed.delays())),
            (Figure::Stretch, _) => {
                let alone = self.alone.ok_or("no operation was timed alone, on one stream")?;
                self.observed(set, |observed| Ok(observed.stretch(alone).into_iter().collect()))
            }
            (Figure::Flops, set) => Ok(Series::Constant(totals(self.program, set).0)),
            (Figure::Bytes, set) => Ok(Series::Constant(totals(self.program, set).1)),
            (Figure::Bandwidth, None) => {
                let bytes = totals(self.program, None).1;
                Ok(self.times()?.map(|time| bytes / time))
            }
            (Figure::Bandwidth, Some(_)) => self.rate(set, |spec| Some(spec.cost().bytes() as f64)),
            (Figure::BusBandwidth, _) => {
                self.rate(set, crate::ops::bus_bytes).map_err(|why| match self.traces.is_empty() {
                    true => why,
                    false => {
                        "no collective of several ranks is among them: on one rank nothing crosses a network".to_owned()
                    }
                })
            }
            (Figure::CriticalPath, _) => self.observed(None, |observed| Ok(vec![observed.critical_path()])),
            (Figure::SerialTime, _) => self.serial(),
            (Figure::Speedup, _) => {
                let serial = self.serial()?.median();
                Ok(self.times()?.map(|time| serial / time))
            }
            (Figure::Slack, _) => self.observed(set, |observed| Ok(observed.slacks())),
            (Figure::Utilization, _) => self.observed(set, |observed| Ok(observed.utilization().into_iter().collect())),
            (Figure::MemoryPeak, _) => Ok(Series::Constant(self.memory as f64)),
            (Figure::DeviceUnits, _) => self.device.units().map(Series::Constant),
            (Figure::DeviceMemory, _) => self.device.memory().map(Series::Constant),
            (Figure::DeviceBandwidth, _) => self.device.bandwidth().map(Series::Constant),
            (Figure::DeviceFlops, _) => self.device.flops(self.program).map(Series::Constant),
        }
    }

    /// The series of a metric, worked out once however often others use it.
    fn metric(&self, metric: usize) -> Result<Series, String> {
        self.known.series.get(metric, || self.series(&self.program.metrics[metric].value))
    }

    fn series(&self, expr: &FigureExpr) -> Result<Series, String> {
        match expr {
            FigureExpr::Constant(value) => Ok(Series::Constant(*value)),
            FigureExpr::Figure { figure, set, beside, statistic, .. } => {
                let series = self.figure(*figure, set.as_ref(), beside.as_ref())?;
                match statistic {
                    None => Ok(series),
                    Some(statistic) => series.statistic(*statistic).map(Series::Constant),
                }
            }
            FigureExpr::Metric { metric, statistic } => {
                let series = self.metric(*metric)?;
                match statistic {
                    None => Ok(series),
                    Some(statistic) => series.statistic(*statistic).map(Series::Constant),
                }
            }
            FigureExpr::Unary(function, inner) => Ok(self.series(inner)?.map(|value| function.apply(value))),
            FigureExpr::Binary(function, left, right) => match (self.series(left)?, self.series(right)?) {
                (left, Series::Constant(right)) => Ok(left.map(|left| function.apply(left, right))),
                (Series::Constant(left), right) => Ok(right.map(|right| function.apply(left, right))),
                (Series::Samples(left), Series::Samples(right)) if left.len() == right.len() => Ok(Series::Samples(
                    left.iter().zip(&right).map(|(left, right)| function.apply(*left, *right)).collect(),
                )),
                (left, right) => Ok(Series::Constant(function.apply(left.median(), right.median()))),
            },
        }
    }

    /// The value of an expression, each bare figure its median, in base units.
    pub fn value(&self, expr: &FigureExpr) -> Result<f64, String> {
        let value = match expr {
            FigureExpr::Constant(value) => *value,
            FigureExpr::Figure { figure, set, beside, statistic, .. } => {
                let series = self.figure(*figure, set.as_ref(), beside.as_ref())?;
                match statistic {
                    None => series.median(),
                    Some(statistic) => series.statistic(*statistic)?,
                }
            }
            FigureExpr::Metric { metric, statistic } => match statistic {
                None => self.known.values.get(*metric, || self.value(&self.program.metrics[*metric].value))?,
                Some(statistic) => self.metric(*metric)?.statistic(*statistic)?,
            },
            FigureExpr::Unary(function, inner) => function.apply(self.value(inner)?),
            FigureExpr::Binary(function, left, right) => function.apply(self.value(left)?, self.value(right)?),
        };
        if value.is_finite() { Ok(value) } else { Err("it divides by zero".to_owned()) }
    }

    /// Whether an expectation holds; a figure that does not exist fails it.
    pub fn expectation(&self, expectation: &Expectation, text: String, place: String) -> ExpectationRecord {
        let truth = |expr: &FigureExpr| self.value(expr).map(|value| value != 0.0);
        let verdict = match expectation.when.as_ref().map(truth) {
            Some(Ok(false)) => "skipped",
            Some(Err(_)) => "failed",
            None | Some(Ok(true)) => match truth(&expectation.condition) {
                Ok(true) => "held",
                _ => "failed",
            },
        };
        ExpectationRecord { text, place, verdict: verdict.to_owned() }
    }
}

/// Every metric of the program: over ranks, a time is the slowest's, anything else the mean; absent where a rank has none.
pub fn of_ranks(ranks: &[Evidence]) -> Vec<MetricRecord> {
    let Some(first) = ranks.first() else { return Vec::new() };
    first
        .program
        .metrics
        .iter()
        .enumerate()
        .map(|(index, metric)| {
            let values: Result<Vec<f64>, String> =
                ranks.iter().map(|rank| rank.value(&rank.program.metrics[index].value)).collect();
            let joined = values.map(|values| match metric.dimension {
                Dimension::TIME => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
                _ => values.iter().sum::<f64>() / values.len() as f64,
            });
            record(metric, joined)
        })
        .collect()
}

fn record(metric: &Metric, value: Result<f64, String>) -> MetricRecord {
    let (value, note) = match value {
        Ok(value) => (Some(value), None),
        Err(note) => (None, Some(note)),
    };
    let si = value.map(|value| units::unsigned_zero(value * metric.dimension.to_si()));
    // The value is in SI units; a unit of the language's own, such as `ms`, is one of the text alone.
    let own = metric.unit.as_deref().filter(|name| units::unit(name).is_none());
    let unit = own.map_or_else(|| si_unit(metric.dimension), str::to_owned);
    let text = match (value, &metric.unit) {
        (Some(value), Some(unit)) => metric.dimension.display_in(value, unit),
        (Some(value), None) => metric.dimension.display(value),
        (None, _) => "–".to_owned(),
    };
    MetricRecord { name: metric.name.clone(), value: si, unit, text, note }
}

/// Operations and bytes of an iteration, or of some of its operations: the mean over the cycle.
pub fn totals(program: &Program, set: Option<&OpSet>) -> (f64, f64) {
    let mut totals = (0.0, 0.0);
    for op in program.cycle.iter().flat_map(|step| &step.ops) {
        if let OpKind::Run(spec) = op.kind
            && set.is_none_or(|set| set.contains(program, op))
        {
            let cost = program.spec(spec).cost();
            totals = (totals.0 + cost.flops, totals.1 + cost.bytes() as f64);
        }
    }
    let cycle = program.cycle.len().max(1) as f64;
    (totals.0 / cycle, totals.1 / cycle)
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
