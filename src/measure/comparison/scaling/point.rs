//! A measured case as a point of a curve.

use crate::base::units;
use crate::measure::comparison::cases::Case;
use crate::measure::record::pace::Pace;
use crate::measure::record::rate::{self, RateUnit};
use crate::measure::record::{RunRecord, Times};

/// A value with its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

impl Interval {
    /// True if two intervals overlap, or lie closer than the share `slack`: then they do not differ significantly.
    pub fn meets(&self, other: &Interval, slack: f64) -> bool {
        self.low <= other.high * (1.0 + slack) && other.low <= self.high * (1.0 + slack)
    }
}

/// Relative difference that medians of the same program may have in two processes, beyond each one's interval: clocks
/// and the placement of memory and threads vary. A simulator's do not.
const BETWEEN_PROCESSES: f64 = 0.01;

/// Relative difference that is required between results of different processes.
pub fn slack(simulated: bool) -> f64 {
    if simulated { 0.0 } else { BETWEEN_PROCESSES }
}

/// The results of a case that a curve needs.
#[derive(Clone, Debug, PartialEq)]
pub struct CurvePoint {
    /// The value along the curve, as given.
    pub value: String,
    /// Median time of an iteration in seconds with its 95 % interval; from minimum to maximum if samples are too few.
    pub time: Interval,
    /// Arithmetic operations of an iteration over all ranks; 0 if unknown, as for `bytes`.
    pub flops: f64,
    pub bytes: f64,
    /// Operations of the first iteration of the first rank.
    pub operations: usize,
}

impl CurvePoint {
    /// Returns the point of a case; `None` if it has no time.
    pub fn of(case: &Case, value: &str, pace: Pace) -> Option<CurvePoint> {
        let record = case.record.as_ref()?;
        let time = seconds(pace.times(record.variants.first()?), record.simulated)?;
        let (flops, bytes) = rate::totals(record).unwrap_or_default();
        let operations = record.program.operations;
        Some(CurvePoint { value: value.to_owned(), time, flops, bytes: bytes as f64, operations })
    }

    /// Work per second.
    pub fn rate(&self, unit: RateUnit) -> Interval {
        let work = unit.amount(self.flops, self.bytes);
        Interval { value: work / self.time.value, low: work / self.time.high, high: work / self.time.low }
    }
}

/// True if a run's times allow conclusions: it is a measurement with more than one sample, or simulated.
pub fn is_conclusive(record: &RunRecord, pace: Pace) -> bool {
    let samples = record.variants.first().map_or(0, |variant| pace.times(variant).rounds());
    record.measurement && (record.simulated || samples > 1)
}

/// Median with its interval, in seconds; `None` without samples. A simulator's median is exact.
pub fn seconds(times: &Times, simulated: bool) -> Option<Interval> {
    let value = times.p50_ns.filter(|median| median.0 > 0)?.seconds();
    if simulated {
        return Some(Interval { value, low: value, high: value });
    }
    let low = times.p50_low_ns.or(times.min_ns)?.seconds().max(f64::MIN_POSITIVE);
    let high = times.p50_high_ns.or(times.max_ns)?.seconds();
    Some(Interval { value, low, high })
}

/// Parses a value as a number in its base unit: `4_096`, `64MiB`, `80%`. `None` for a word or an expression.
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
