//! The effect between two sets of samples: ratio, interval and verdict. Independent of units.
//!
//! An effect is the ratio of the other side to the base, of the median or of a higher percentile. All calculations use
//! logarithms, so that swapping the sides inverts the ratio and changes nothing else.
//!
//! If each side has one run, the interval covers the uncertainty of *these two runs*: it combines the order-statistic
//! intervals of both percentiles by MOVER (Zou and Donner, "Construction of confidence limits about effect measures",
//! 2008). The variation between runs is added separately: see [`Effect::between_runs`]. If a side has several runs,
//! each run is one observation, since runs differ more than iterations: the interval is Welch's, of the difference of
//! mean logarithms. No random numbers are used.

use serde::{Deserialize, Serialize};

use super::quantile::quantile;
use super::stats::{Moments, logs, student};
use crate::base::named::named;

/// Default share below which effects do not matter.
pub const THRESHOLD: f64 = 0.03;

/// Default standard deviation between runs of the same program, as a share, if each side has one run. Covers 95 % of
/// 200 pairs of equal runs on an H200, of the most variable workload (four streams of tiny kernels).
pub const BETWEEN_RUNS: f64 = 0.015;

/// Default standard deviation between runs as graphs, which vary less: of 200 pairs of `moe`, 95 % differed by less
/// than 0.36 %, and none by more than 1.8 %.
pub const BETWEEN_RUNS_OF_GRAPHS: f64 = 0.005;

/// Default standard deviation between runs, for graphs or streams.
pub fn between_runs(graphs: bool) -> f64 {
    if graphs { BETWEEN_RUNS_OF_GRAPHS } else { BETWEEN_RUNS }
}

/// The direction in which a metric gets better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Lower values are better, as of times and memory.
    LowerIsBetter,
    /// Higher values are better, as of throughput, bandwidth and overlap.
    HigherIsBetter,
}

impl Direction {
    pub fn opposite(self) -> Direction {
        match self {
            Direction::LowerIsBetter => Direction::HigherIsBetter,
            Direction::HigherIsBetter => Direction::LowerIsBetter,
        }
    }
}

/// The basis of an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// Iterations of one run per side. The variation between runs is unknown.
    Iterations,
    /// Several runs or blocks of at least one side.
    Groups,
    /// Values without variation.
    Exact,
    /// A single value per side. The variation is unknown.
    Single,
}

named! {
    /// Verdict on an effect.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Verdict {
        /// The interval excludes 1, and the effect exceeds the threshold in the better direction.
        Better = "better",
        /// The whole interval lies within the threshold.
        Same = "same",
        /// The interval excludes 1, and the effect exceeds the threshold in the worse direction.
        Worse = "worse",
        CannotTell = "cannot tell",
    }
}

/// The difference between two sets of samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    /// The percentile of each side; with several groups, their geometric mean.
    pub base: f64,
    pub other: f64,
    /// The other side's value over the base's.
    pub ratio: f64,
    /// Interval that contains the true ratio with 95 % confidence; `None` if samples are too few.
    pub interval: Option<(f64, f64)>,
    pub basis: Basis,
    /// Assumed standard deviation between runs of the same program, as a share; `None` if none was assumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub between_runs: Option<f64>,
    /// Share above which a difference matters: the larger value is more than `1 + threshold` times the smaller.
    pub threshold: f64,
    pub verdict: Verdict,
}

/// A side of the comparison: logarithms of its value and of its interval's ends, if a single run determines them.
struct SideValue {
    center: f64,
    interval: Option<(f64, f64)>,
    /// Variance of the logarithms over groups; `None` for a single group.
    variance: Option<f64>,
    groups: usize,
}

impl Effect {
    /// Effect on a percentile from 50 on. Each group of a side has consecutive samples of a run or a block. `None` if a
    /// side is empty, a group has too few samples for the percentile, or a percentile is not positive.
    pub fn of(
        base: &[&[f64]],
        other: &[&[f64]],
        percentile: f64,
        direction: Direction,
        threshold: f64,
    ) -> Option<Effect> {
        let sides = [SideValue::of_groups(base, percentile)?, SideValue::of_groups(other, percentile)?];
        Some(Effect::between(&sides, Basis::Iterations, direction, threshold))
    }

    /// Effect on a metric with one value per run. `None` if a side is empty or a value is not positive.
    pub fn of_values(base: &[f64], other: &[f64], direction: Direction, threshold: f64) -> Option<Effect> {
        let sides = [SideValue::of_values(base)?, SideValue::of_values(other)?];
        Some(Effect::between(&sides, Basis::Single, direction, threshold))
    }

    /// Effect on a metric without variation. `None` if a value is not positive.
    pub fn exact(base: f64, other: f64, direction: Direction, threshold: f64) -> Option<Effect> {
        let sides = [SideValue::exact(base)?, SideValue::exact(other)?];
        Some(Effect::between(&sides, Basis::Exact, direction, threshold))
    }

    fn between([base, other]: &[SideValue; 2], alone: Basis, direction: Direction, threshold: f64) -> Effect {
        let several = base.groups > 1 || other.groups > 1;
        let interval = if several { welch_interval(base, other) } else { mover_interval(base, other) };
        let change = other.center - base.center;
        Effect {
            base: base.center.exp(),
            other: other.center.exp(),
            ratio: change.exp(),
            interval: interval.map(|(low, high)| (low.exp(), high.exp())),
            basis: if several { Basis::Groups } else { alone },
            between_runs: None,
            threshold,
            verdict: verdict(change, interval, direction, threshold),
        }
    }

    /// Widens the interval for this standard deviation between runs, a share. Applies only if each side has one run:
    /// several runs show their variation.
    pub fn between_runs(self, deviation: f64, direction: Direction) -> Effect {
        if self.basis != Basis::Iterations {
            return self;
        }
        let (interval, verdict) = allow_for_runs(self.ratio, self.interval, deviation, (direction, self.threshold));
        Effect { interval, between_runs: Some(deviation), verdict, ..self }
    }

    /// Effect on the reciprocal, such as a rate in place of a time. The better side stays the better one.
    pub fn inverse(self) -> Effect {
        let interval = self.interval.map(|(low, high)| (1.0 / high, 1.0 / low));
        Effect { base: 1.0 / self.base, other: 1.0 / self.other, ratio: 1.0 / self.ratio, interval, ..self }
    }

    /// True if the effect has an interval that comes from noise.
    pub fn is_uncertain(&self) -> bool {
        self.interval.is_some_and(|(low, high)| low < high)
    }

    /// Reason why there is no interval, in words; `None` if there is one.
    pub fn missing(&self) -> Option<&'static str> {
        match (self.interval, self.basis) {
            (Some(_), _) => None,
            (None, Basis::Single) => Some("one value per side does not show how much it varies"),
            (None, _) => Some(
                "too few independent samples for an interval (the median needs 6, p95 72, p99 368): more iterations help",
            ),
        }
    }

    /// Caveat about the interval, in words; `None` if there is none.
    pub fn caution(&self) -> Option<String> {
        match (self.basis, self.between_runs) {
            (Basis::Iterations, Some(deviation)) => Some(format!(
                "each side is one run, which does not show how much runs of the same program differ: a standard \
                 deviation of {} % is assumed; give several runs of each side to measure it, or let `aorta ab` \
                 measure both",
                (1e4 * deviation).round() / 100.0
            )),
            (Basis::Iterations, None) => Some(
                "each side is one run: the interval covers the uncertainty of these two runs, not the variation \
                 between runs of the same program; give several runs of each side to measure that"
                    .to_owned(),
            ),
            (Basis::Single, _) => Some(
                "each side has one value of this figure, which does not show how much it varies; give several runs of \
                 each side to measure that"
                    .to_owned(),
            ),
            (Basis::Groups | Basis::Exact, _) => None,
        }
    }
}

impl SideValue {
    fn of_groups(groups: &[&[f64]], percentile: f64) -> Option<SideValue> {
        if let [samples] = groups {
            let quantile = quantile(samples, percentile)?;
            let interval = quantile.interval.and_then(|(low, high)| Some((log(low)?, log(high)?)));
            return Some(SideValue { center: log(quantile.value)?, interval, variance: None, groups: 1 });
        }
        let values: Option<Vec<f64>> =
            groups.iter().map(|samples| Some(quantile(samples, percentile)?.value)).collect();
        SideValue::of_values(&values?)
    }

    fn of_values(values: &[f64]) -> Option<SideValue> {
        let moments = Moments::of(&logs(values)?)?;
        Some(SideValue { center: moments.mean, interval: None, variance: moments.variance(), groups: moments.n })
    }

    fn exact(value: f64) -> Option<SideValue> {
        let center = log(value)?;
        Some(SideValue { center, interval: Some((center, center)), variance: None, groups: 1 })
    }
}

fn log(value: f64) -> Option<f64> {
    logs(&[value])?.pop()
}

/// Interval of a difference by MOVER: the distances to the interval's ends add in quadrature. `None` if a side has no interval.
fn mover_interval(base: &SideValue, other: &SideValue) -> Option<(f64, f64)> {
    let ((base_low, base_high), (low, high)) = (base.interval?, other.interval?);
    let change = other.center - base.center;
    let below = (other.center - low).hypot(base_high - base.center);
    let above = (high - other.center).hypot(base.center - base_low);
    Some((change - below, change + above))
}

/// Welch's interval of the difference of two means. A side with one run gets the other side's variance. `None` if both
/// have one run.
fn welch_interval(base: &SideValue, other: &SideValue) -> Option<(f64, f64)> {
    let share = |side: &SideValue, variance: f64| variance / side.groups as f64;
    let degrees = |side: &SideValue| (side.groups - 1) as f64;
    let (error, freedom) = match (base.variance, other.variance) {
        (Some(a), Some(b)) => {
            let (a, b) = (share(base, a), share(other, b));
            let weights = a * a / degrees(base) + b * b / degrees(other);
            let freedom = if weights > 0.0 { (a + b).powi(2) / weights } else { degrees(base) + degrees(other) };
            (a + b, freedom)
        }
        (Some(variance), None) => (share(base, variance) + variance, degrees(base)),
        (None, Some(variance)) => (share(other, variance) + variance, degrees(other)),
        (None, None) => return None,
    };
    let change = other.center - base.center;
    let reach = student(freedom) * error.sqrt();
    Some((change - reach, change + reach))
}

/// The interval of the ratio of two runs, widened for this standard deviation between runs, a share, and the verdict on it.
pub(in crate::measure) fn allow_for_runs(
    ratio: f64,
    interval: Option<(f64, f64)>,
    deviation: f64,
    (direction, threshold): (Direction, f64),
) -> (Option<(f64, f64)>, Verdict) {
    let reach = NORMAL * std::f64::consts::SQRT_2 * deviation.ln_1p();
    let wider = |end: f64| (end / ratio).ln().hypot(reach);
    let logs = interval.map(|(low, high)| (ratio.ln() - wider(low), ratio.ln() + wider(high)));
    (logs.map(|(low, high)| (low.exp(), high.exp())), verdict(ratio.ln(), logs, direction, threshold))
}

/// Quantile of the normal distribution for 2.5 % in each tail, in standard deviations.
const NORMAL: f64 = 1.96;

/// Verdict on the logarithm of a ratio.
pub(in crate::measure) fn verdict(
    change: f64,
    interval: Option<(f64, f64)>,
    direction: Direction,
    threshold: f64,
) -> Verdict {
    let Some((low, high)) = interval else { return Verdict::CannotTell };
    let matters = threshold.ln_1p();
    if -matters <= low && high <= matters {
        return Verdict::Same;
    }
    let lower_wins = direction == Direction::LowerIsBetter;
    if low > 0.0 && change > matters {
        return if lower_wins { Verdict::Worse } else { Verdict::Better };
    }
    if high < 0.0 && change < -matters {
        return if lower_wins { Verdict::Better } else { Verdict::Worse };
    }
    Verdict::CannotTell
}

#[cfg(test)]
mod tests;
