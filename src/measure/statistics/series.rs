//! Properties of a series of samples: trend, two modes, autocorrelation.
//!
//! The tests use ranks or medians, so that outliers neither cause nor hide an alarm, and results do not depend on units.

use super::stats::{median, percentile, sorted};

/// Minimum number of samples for a trend.
pub const TREND_SAMPLES: usize = 10;

/// Minimum number of samples for two modes.
pub const MODE_SAMPLES: usize = 50;

/// Significance level of a rank correlation, in standard deviations: chance exceeds it in one of a hundred series.
const SIGNIFICANT: f64 = 2.576;

/// Trends below this share of the median are ignored.
const TREND: f64 = 0.01;

/// Modes closer than this share of the median are ignored.
const MODES: f64 = 0.02;

/// Minimum distance of two modes, in their pooled spread. Any split of a normal distribution gives about 2.3, of a
/// uniform one 2.7.
const APART: f64 = 6.0;

/// Minimum share of the samples in the smaller mode.
const SMALLER: f64 = 0.1;
/// Minimum number of samples of the smaller mode.
const MIN_SAMPLES: usize = 5;

/// Two modes of the samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Modes {
    /// The modes' medians.
    pub low: f64,
    pub high: f64,
    /// Share of the samples in the upper mode.
    pub upper: f64,
}

/// Each sample relative to the median of its own slot, which removes differences between slots. The only sample of a
/// slot becomes 1.
pub fn relative_to_slot(samples: &[f64], slots: usize) -> Vec<f64> {
    let slots = slots.max(1);
    let medians: Vec<f64> = (0..slots.min(samples.len()))
        .map(|slot| median(&samples.iter().skip(slot).step_by(slots).copied().collect::<Vec<_>>()))
        .collect();
    let share = |(index, sample): (usize, &f64)| match medians[index % slots] {
        0.0 => 1.0,
        median => sample / median,
    };
    samples.iter().enumerate().map(share).collect()
}

/// Maximum number of samples that a trend is computed from.
const MAX_TREND_SAMPLES: usize = 1 << 14;

/// Relative change from the first third's median to the last third's. `None` if ranks do not correlate with time at the
/// level of 1 % (Spearman), if the change is below 1 %, or with fewer than 10 samples. Of more than 16384 samples,
/// evenly spaced ones are used: a million would delay Ctrl-C.
pub fn trend(samples: &[f64]) -> Option<f64> {
    let spaced: Vec<f64> = samples.iter().copied().step_by(samples.len().div_ceil(MAX_TREND_SAMPLES).max(1)).collect();
    let (samples, n) = (&spaced[..], spaced.len());
    if n < TREND_SAMPLES {
        return None;
    }
    let times: Vec<f64> = (0..n).map(|index| index as f64).collect();
    let certain = correlation(&ranks(samples), &times)? * ((n - 1) as f64).sqrt();
    let third = n / 3;
    let change = (median(&samples[n - third..]) - median(&samples[..third])) / median(samples).abs();
    (certain.abs() > SIGNIFICANT && change.abs() > TREND && change.signum() == certain.signum()).then_some(change)
}

/// The two modes of a bimodal series, each with at least a tenth of the samples; `None` if it is not bimodal.
///
/// The series is split to maximize the variance between both parts, with outliers clipped to the 5th and 95th
/// percentile. The parts are modes if their medians are six times their pooled spread apart; the spread is the median
/// absolute deviation, scaled as for a normal distribution.
pub fn modes(samples: &[f64]) -> Option<Modes> {
    let n = samples.len();
    if n < MODE_SAMPLES {
        return None;
    }
    let sorted = sorted(samples);
    let split = split(&sorted)?;
    let (lower, upper) = sorted.split_at(split);
    let (low, high) = (percentile(lower, 50.0), percentile(upper, 50.0));
    let pooled = ((spread(lower, low).powi(2) + spread(upper, high).powi(2)) / 2.0).sqrt();
    let distinct = high - low > APART * pooled && high - low > MODES * percentile(&sorted, 50.0).abs();
    distinct.then_some(Modes { low, high, upper: upper.len() as f64 / n as f64 })
}

/// Index that splits sorted samples with the largest variance between both parts; `None` if no split is allowed.
fn split(sorted: &[f64]) -> Option<usize> {
    let n = sorted.len();
    let (floor, ceiling) = (percentile(sorted, 5.0), percentile(sorted, 95.0));
    let cut = |index: usize| sorted[index].clamp(floor, ceiling);
    let total: f64 = (0..n).map(cut).sum();
    let least = ((SMALLER * n as f64).ceil() as usize).max(MIN_SAMPLES);
    let mut sum = 0.0;
    let mut best: Option<(f64, usize)> = None;
    for index in 0..n - least {
        sum += cut(index);
        let left = index + 1;
        // Equal samples stay in one part.
        if left < least || sorted[index] == sorted[left] {
            continue;
        }
        let apart = (total - sum) / (n - left) as f64 - sum / left as f64;
        let between = (left * (n - left)) as f64 * apart * apart;
        if best.is_none_or(|(most, _)| between > most) {
            best = Some((between, left));
        }
    }
    best.map(|(_, left)| left)
}

/// Median absolute deviation, scaled to the standard deviation of a normal distribution.
fn spread(samples: &[f64], median_of: f64) -> f64 {
    let deviations: Vec<f64> = samples.iter().map(|sample| (sample - median_of).abs()).collect();
    1.4826 * median(&deviations)
}

/// Rank correlation of each sample with the previous one. `None` if chance explains it (two standard deviations), or
/// with fewer than 10 samples.
pub fn autocorrelation(samples: &[f64]) -> Option<f64> {
    let n = samples.len();
    if n < TREND_SAMPLES {
        return None;
    }
    let ranks = ranks(samples);
    let rho = correlation(&ranks[1..], &ranks[..n - 1])?;
    (rho.abs() > 2.0 / (n as f64).sqrt()).then_some(rho)
}

/// Rank of each sample, from 1; equal samples share their mean rank.
fn ranks(samples: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..samples.len()).collect();
    order.sort_by(|&a, &b| samples[a].total_cmp(&samples[b]));
    let mut ranks = vec![0.0; samples.len()];
    let mut first = 0;
    for group in order.chunk_by(|&a, &b| samples[a] == samples[b]) {
        let rank = first as f64 + (group.len() + 1) as f64 / 2.0;
        group.iter().for_each(|&index| ranks[index] = rank);
        first += group.len();
    }
    ranks
}

/// Linear correlation; `None` if one of the two is constant.
fn correlation(a: &[f64], b: &[f64]) -> Option<f64> {
    let n = a.len() as f64;
    let mean = |values: &[f64]| values.iter().sum::<f64>() / n;
    let (mean_a, mean_b) = (mean(a), mean(b));
    let (mut both, mut only_a, mut only_b) = (0.0, 0.0, 0.0);
    for (a, b) in a.iter().zip(b) {
        let (a, b) = (a - mean_a, b - mean_b);
        both += a * b;
        only_a += a * a;
        only_b += b * b;
    }
    (only_a > 0.0 && only_b > 0.0).then(|| both / (only_a * only_b).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::effort;
    use crate::measure::statistics::noise::Random;

    const SERIES: usize = 1000;

    /// The share of random series that raise an alarm.
    fn alarms(n: usize, sample: impl Fn(&mut Random, usize) -> f64, alarm: impl Fn(&[f64]) -> bool) -> f64 {
        let mut random = Random(n as u64);
        let raised = (0..SERIES).filter(|_| {
            let series: Vec<f64> = (0..n).map(|index| sample(&mut random, index)).collect();
            alarm(&series)
        });
        raised.count() as f64 / SERIES as f64
    }

    /// Kinds of noise with one mode and no trend: 20 % normal, uniform, skewed, with outliers, rounded by a clock.
    const NOISE: [fn(&mut Random, usize) -> f64; 5] = [
        |random, _| 100.0 + 20.0 * random.normal(),
        |random, _| 100.0 + 40.0 * random.uniform(),
        |random, _| 100.0 - 30.0 * random.uniform().ln(),
        |random, index| 100.0 + random.normal() + if index % 33 == 7 { 500.0 } else { 0.0 },
        |random, _| (100.0 + 5.0 * random.normal()).round(),
    ];

    #[test]
    fn noise_alone_has_no_trend() {
        for noise in NOISE {
            for n in [10, 30, 100] {
                let rate = alarms(n, noise, |series| trend(series).is_some());
                assert!(rate <= 0.02, "{n} samples: {rate} of the alarms are false");
            }
        }
    }

    #[test]
    fn noise_alone_has_one_mode() {
        for (kind, noise) in effort::chosen((0..).zip(NOISE)) {
            for (n, most) in [(50, 0.02), (100, 0.002), (1000, 0.002)] {
                let rate = alarms(n, noise, |series| modes(series).is_some());
                assert!(rate <= most, "noise {kind}, {n} samples: {rate} of the alarms are false");
            }
        }
    }

    #[test]
    fn noise_alone_seldom_remembers() {
        for n in [30, 100] {
            let rate = alarms(n, NOISE[0], |series| autocorrelation(series).is_some());
            assert!(rate <= 0.07, "{n} samples: {rate} of the alarms are false");
        }
    }

    #[test]
    fn a_trend_is_seen_through_noise() {
        let drifting = |random: &mut Random, index: usize| 100.0 + 0.1 * index as f64 + 2.0 * random.normal();
        assert!(alarms(100, drifting, |series| trend(series).is_some_and(|change| change > 0.03)) > 0.95);
        let falling: Vec<f64> = (0..12).map(|index| 100.0 - f64::from(index)).collect();
        assert_eq!(trend(&falling), Some(-8.0 / 94.5));
        // A trend that is certain, but too small to matter.
        let creeping: Vec<f64> = (0..100).map(|index| 1e6 + f64::from(index)).collect();
        assert_eq!(trend(&creeping), None);
        assert_eq!(trend(&falling[..9]), None);
        assert_eq!(trend(&[5.0; 20]), None);
    }

    #[test]
    fn two_modes_are_seen_beside_outliers() {
        let flips = |random: &mut Random, index: usize| {
            let mode = if index.is_multiple_of(5) { 120.0 } else { 100.0 };
            let outlier = if index % 40 == 3 { 900.0 } else { 0.0 };
            mode + random.normal() + outlier
        };
        assert!(alarms(100, flips, |series| modes(series).is_some()) > 0.99);
        let series: Vec<f64> = (0..60).map(|index| if index % 4 == 0 { 30.0 } else { 20.0 }).collect();
        assert_eq!(modes(&series), Some(Modes { low: 20.0, high: 30.0, upper: 0.25 }));
        assert_eq!(modes(&series[..49]), None);
        assert_eq!(modes(&[7.0; 60]), None);
    }

    #[test]
    fn work_that_differs_is_no_trend() {
        let growing: Vec<f64> = (0..30).map(|index| 100.0 + 10.0 * f64::from(index % 15)).collect();
        assert_eq!(relative_to_slot(&growing, 15), [1.0; 30]);
        assert_eq!(relative_to_slot(&growing[..15], 15), [1.0; 15]);
        assert_eq!(relative_to_slot(&[2.0, 8.0, 4.0, 8.0], 2), [2.0 / 3.0, 1.0, 4.0 / 3.0, 1.0]);
    }

    #[test]
    fn equal_samples_share_a_rank() {
        assert_eq!(ranks(&[3.0, 1.0, 3.0, 2.0]), [3.5, 1.0, 3.5, 2.0]);
    }
}
