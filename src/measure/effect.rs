//! How much one set of samples differs from another, how sure that is, and whether it matters. Knows no unit.
//!
//! An effect is a ratio: what the other has over what the base has, of the median or of a higher percentile. All is
//! worked out from logarithms, so that exchanging the sides turns the ratio over and changes nothing else.
//!
//! Where each side has one run, its interval says how well the iterations of *these two runs* are known: from the
//! order-statistic intervals of both percentiles, joined by MOVER (Zou and Donner, "Construction of confidence limits about
//! effect measures", 2008). How much runs differ has to be said beside it: see [`Effect::between_runs`]. Where a side has
//! several runs, the run is the unit, since runs differ by more than iterations do: Welch's interval of the difference of
//! the runs' mean logarithms. It needs no random numbers.

use serde::{Deserialize, Serialize};

use super::quantile::quantile;
use super::stats::{Moments, logs, student};

/// Effects below this share do not matter, unless somebody says otherwise.
pub const THRESHOLD: f64 = 0.03;

/// How much runs of the same program are taken to differ where each side has one: the standard deviation, as a share. Of
/// 200 pairs of equal runs on an H200, of the file that differed the most, four streams of tiny kernels, about one in
/// twenty lies beyond what this allows for.
pub const BETWEEN_RUNS: f64 = 0.015;

/// The same of graphs, which leave less to chance: of 200 pairs of `moe`, 95 % were less than 0.36 % apart, and none by
/// more than 1.8 %.
pub const BETWEEN_RUNS_OF_GRAPHS: f64 = 0.005;

/// What is taken for the difference of runs that were launched as graphs, or in another way.
pub fn between_runs(graphs: bool) -> f64 {
    if graphs { BETWEEN_RUNS_OF_GRAPHS } else { BETWEEN_RUNS }
}

/// Which way is the better one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Times, and memory.
    LowerIsBetter,
    /// Throughput, bandwidth, overlap.
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

/// What the interval was worked out from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// The iterations of one run a side: how runs differ is not known.
    Iterations,
    /// Several runs, or blocks, of a side at least.
    Groups,
    /// Values that are not measured and do not vary.
    Exact,
    /// One value a side: nothing says how it varies.
    Single,
}

/// What is to be said of an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// No difference is outside of the interval, and the effect is beyond the threshold.
    Better,
    /// The whole interval lies within the threshold.
    Same,
    /// As `Better`, to the other side.
    Worse,
    CannotTell,
}

/// The difference of two sets of samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    /// Of each side: the percentile, over several groups the geometric mean of theirs.
    pub base: f64,
    pub other: f64,
    /// The other's over the base's.
    pub ratio: f64,
    /// Holds the true ratio with 95 % confidence; absent where the samples are too few.
    pub interval: Option<(f64, f64)>,
    pub basis: Basis,
    /// The standard deviation between runs of the same program that was assumed, as a share; absent where none was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub between_runs: Option<f64>,
    /// The share beyond which a difference matters: the larger is more than `1 + threshold` times the smaller.
    pub threshold: f64,
    pub verdict: Verdict,
}

/// One side: the logarithm of its value, and of its interval's ends, where one run tells them.
struct SideValue {
    center: f64,
    interval: Option<(f64, f64)>,
    /// Of the logarithms over groups; nothing of a single one.
    variance: Option<f64>,
    groups: usize,
}

impl Effect {
    /// The effect on a percentile, from 50 on. Each side has groups of samples that were taken together, in their order:
    /// of a run, or of a block of one. `None` where a side is empty, one of its groups cannot carry the percentile, or a
    /// percentile is not positive.
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

    /// The effect on a figure of which each run has one value. Nothing where a side is empty or a value not positive.
    pub fn of_values(base: &[f64], other: &[f64], direction: Direction, threshold: f64) -> Option<Effect> {
        let sides = [SideValue::of_values(base)?, SideValue::of_values(other)?];
        Some(Effect::between(&sides, Basis::Single, direction, threshold))
    }

    /// The effect on a figure that does not vary: it is what it is. Nothing where a value is not positive.
    pub fn exact(base: f64, other: f64, direction: Direction, threshold: f64) -> Option<Effect> {
        let sides = [SideValue::exact(base)?, SideValue::exact(other)?];
        Some(Effect::between(&sides, Basis::Exact, direction, threshold))
    }

    fn between([base, other]: &[SideValue; 2], alone: Basis, direction: Direction, threshold: f64) -> Effect {
        let several = base.groups > 1 || other.groups > 1;
        let interval = if several { welch(base, other) } else { mover(base, other) };
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

    /// The same, where runs of one program differ by this standard deviation, a share. It is said of one run a side alone:
    /// several runs show by themselves how they differ.
    pub fn between_runs(self, deviation: f64, direction: Direction) -> Effect {
        if self.basis != Basis::Iterations {
            return self;
        }
        let interval = self.interval.map(|interval| allow_for_runs(self.ratio, interval, deviation));
        let verdict = judge(self.ratio, interval, direction, self.threshold);
        Effect { interval, between_runs: Some(deviation), verdict, ..self }
    }

    /// The effect on what is one over this: rates in place of times. What is better stays better.
    pub fn inverse(self) -> Effect {
        let interval = self.interval.map(|(low, high)| (1.0 / high, 1.0 / low));
        Effect { base: 1.0 / self.base, other: 1.0 / self.other, ratio: 1.0 / self.ratio, interval, ..self }
    }

    /// Whether there is an interval, and chance decided its ends.
    pub fn is_uncertain(&self) -> bool {
        self.interval.is_some_and(|(low, high)| low < high)
    }

    /// Why there is no interval, in words.
    pub fn missing(&self) -> Option<&'static str> {
        match (self.interval, self.basis) {
            (Some(_), _) => None,
            (None, Basis::Single) => Some("one value a side says nothing of how much it varies"),
            (None, _) => Some(
                "too few independent samples for an interval (the median needs 6, p95 72, p99 368): more iterations help",
            ),
        }
    }

    /// What a reader has to know before believing the interval, in words.
    pub fn caution(&self) -> Option<String> {
        match (self.basis, self.between_runs) {
            (Basis::Iterations, Some(deviation)) => Some(format!(
                "each side is one run, and says nothing of how much runs of the same program differ: a standard \
                 deviation of {} % is assumed; give several runs of each side to learn it, or let `aorta ab` measure both",
                (1e4 * deviation).round() / 100.0
            )),
            (Basis::Iterations, None) => Some(
                "each side is one run: the interval says how well these two runs are known, and not how much \
                 runs of the same program differ from each other; give several runs of each side to learn that"
                    .to_owned(),
            ),
            (Basis::Single, _) => Some(
                "each side has one value of this figure, and nothing says how much it varies; give several runs of \
                 each side to learn that"
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

/// The interval of a difference from those of both sides: the distances to their ends add up as squares do.
fn mover(base: &SideValue, other: &SideValue) -> Option<(f64, f64)> {
    let ((base_low, base_high), (low, high)) = (base.interval?, other.interval?);
    let change = other.center - base.center;
    let below = (other.center - low).hypot(base_high - base.center);
    let above = (high - other.center).hypot(base.center - base_low);
    Some((change - below, change + above))
}

/// Welch's interval of the difference of two means. A side of one run is taken to vary as the other's runs do.
fn welch(base: &SideValue, other: &SideValue) -> Option<(f64, f64)> {
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

/// The interval of the ratio of two runs, where runs of one program differ by this standard deviation, a share.
pub(super) fn allow_for_runs(ratio: f64, (low, high): (f64, f64), deviation: f64) -> (f64, f64) {
    let reach = NORMAL * std::f64::consts::SQRT_2 * deviation.ln_1p();
    let wider = |end: f64| (end / ratio).ln().hypot(reach).exp();
    (ratio / wider(low), ratio * wider(high))
}

/// What a bell curve exceeds to either side with 2.5 %, in standard deviations.
const NORMAL: f64 = 1.96;

/// The verdict on a ratio.
pub(super) fn judge(ratio: f64, interval: Option<(f64, f64)>, direction: Direction, threshold: f64) -> Verdict {
    verdict(ratio.ln(), interval.map(|(low, high)| (low.ln(), high.ln())), direction, threshold)
}

/// The verdict on a logarithm.
pub(super) fn verdict(change: f64, interval: Option<(f64, f64)>, direction: Direction, threshold: f64) -> Verdict {
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
