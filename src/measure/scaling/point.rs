//! A measured case as a point of a curve.

use crate::base::units;
use crate::measure::cases::Case;
use crate::measure::pace::Pace;
use crate::measure::record::{RunRecord, Times};

/// A figure and what it lies between.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

impl Interval {
    /// Whether two have a part in common, or lie closer than that share of them: then nothing says that they differ.
    pub fn meets(&self, other: &Interval, slack: f64) -> bool {
        self.low <= other.high * (1.0 + slack) && other.low <= self.high * (1.0 + slack)
    }
}

/// How far medians of the same program may lie apart in two processes, beyond what each process knows of its own: clocks,
/// the places of memory and of threads differ from process to process. A simulator's do not.
const BETWEEN_PROCESSES: f64 = 0.01;

/// The share by which figures have to differ to be different.
pub fn slack(simulated: bool) -> f64 {
    if simulated { 0.0 } else { BETWEEN_PROCESSES }
}

/// What a curve knows of a case.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// The value along the curve, as it was given.
    pub value: String,
    /// The median of an iteration in seconds, and the interval that holds it with 95 % confidence. Where there are too
    /// few samples for one, from the least to the greatest.
    pub time: Interval,
    /// Of an iteration, over all ranks, as those of the first.
    pub flops: f64,
    pub bytes: f64,
}

impl Point {
    /// `None` of a case without a time.
    pub fn of(case: &Case, value: &str, pace: Pace) -> Option<Point> {
        let record = case.record.as_ref()?;
        let time = seconds(pace.times(record.variants.first()?), record.simulated)?;
        let ranks = f64::from(record.emulated.unwrap_or(record.settings.ranks).max(1));
        let (flops, bytes) = (record.program.flops * ranks, record.program.bytes as f64 * ranks);
        Some(Point { value: value.to_owned(), time, flops, bytes })
    }

    /// What is done in a second.
    pub fn rate(&self, unit: super::Unit) -> Interval {
        let work = unit.of(self);
        Interval { value: work / self.time.value, low: work / self.time.high, high: work / self.time.low }
    }
}

/// Whether something can be concluded from a run's times: it is a measurement, and noise shows in more than one sample. A
/// simulator has no noise.
pub fn is_conclusive(record: &RunRecord, pace: Pace) -> bool {
    let samples = record.variants.first().map_or(0, |variant| pace.times(variant).rounds());
    record.measurement && (record.simulated || samples > 1)
}

/// The median and its interval. A simulator's is known exactly.
pub fn seconds(times: &Times, simulated: bool) -> Option<Interval> {
    let value = times.p50_ns.filter(|median| median.0 > 0)?.seconds();
    if simulated {
        return Some(Interval { value, low: value, high: value });
    }
    let low = times.p50_low_ns.or(times.min_ns)?.seconds().max(f64::MIN_POSITIVE);
    let high = times.p50_high_ns.or(times.max_ns)?.seconds();
    Some(Interval { value, low, high })
}

/// The number that a value is, in the base unit of what it measures: `4_096`, `64MiB`, `80%`. Nothing of a word or an
/// expression.
pub fn number(value: &str) -> Option<f64> {
    let end = value.find(|c: char| !c.is_ascii_digit() && !matches!(c, '_' | '.' | '-')).unwrap_or(value.len());
    let (digits, name) = value.split_at(end);
    let factor = if name.is_empty() { 1.0 } else { units::unit(name)?.factor };
    Some(digits.replace('_', "").parse::<f64>().ok()? * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_with_units_are_numbers() {
        assert_eq!(["4_096", "64KiB", "50%", "-2.5"].map(number), [Some(4096.0), Some(65536.0), Some(0.5), Some(-2.5)]);
        assert_eq!(["bf16", "2*n", "", "8 elephants", "graph"].map(number), [None; 5]);
    }

    #[test]
    fn intervals_meet_where_they_touch() {
        let interval = |low: f64, high: f64| Interval { value: low, low, high };
        assert!(interval(1.0, 2.0).meets(&interval(2.0, 3.0), 0.0));
        assert!(!interval(1.0, 2.0).meets(&interval(2.1, 3.0), 0.0));
        assert!(interval(1.0, 4.0).meets(&interval(2.0, 3.0), 0.0));
        assert!(interval(1.0, 2.0).meets(&interval(2.015, 3.0), 0.01));
        assert!(interval(2.015, 3.0).meets(&interval(1.0, 2.0), 0.01));
    }
}
