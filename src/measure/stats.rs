//! Statistics of samples. Knows no unit.

use serde::{Deserialize, Serialize};

use super::series;

/// Independent samples up to which the interval's ranks are worked out exactly; beyond, the normal distribution serves.
const EXACT: usize = 1000;

/// What is said of a series of samples. Percentiles are absent where the samples are too few to carry them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    pub n: usize,
    pub p50: f64,
    /// The ends of an interval that holds the true median with 95 % confidence; absent below 6 independent samples.
    pub interval: Option<(f64, f64)>,
    pub mean: f64,
    /// Sample standard deviation (n - 1); absent for one sample.
    pub std: Option<f64>,
    pub min: f64,
    pub max: f64,
    pub p5: Option<f64>,
    pub p95: Option<f64>,
    pub p99: Option<f64>,
}

/// The smallest number of samples for which a percentile is told: with fewer, it is the maximum by another name.
pub fn samples_for(percentile: f64) -> usize {
    let tail = (1.0 - percentile / 100.0).min(percentile / 100.0);
    (1.0 / tail).round() as usize
}

/// Nearest rank: the smallest sample that at least that share of all does not exceed. The median of an even number
/// is the mean of the middle two.
pub fn percentile(sorted: &[f64], percentile: f64) -> f64 {
    let n = sorted.len();
    if n == 0 {
        return f64::NAN;
    }
    if percentile == 50.0 {
        return (sorted[(n - 1) / 2] + sorted[n / 2]) / 2.0;
    }
    let rank = (percentile / 100.0 * n as f64).ceil() as usize;
    sorted[rank.clamp(1, n) - 1]
}

/// How many samples from either end the interval of the median begins: the largest `k` such that the true median lies
/// below the `k`-th smallest of `n` independent samples with a probability of 2.5 % at most. Nothing where `n` is less
/// than 6: then even the extremes do not hold it with 95 %.
pub fn interval_rank(n: usize) -> Option<usize> {
    if n < 6 {
        return None;
    }
    if n > EXACT {
        return Some(((n as f64 - 1.96 * (n as f64).sqrt()) / 2.0) as usize);
    }
    // Binomial with one half: `below` is the probability that fewer than `rank` samples lie below the median.
    let mut term = 0.5f64.powi(n as i32);
    let (mut below, mut rank) = (term, 0);
    while below <= 0.025 {
        rank += 1;
        term *= (n - rank + 1) as f64 / rank as f64;
        below += term;
    }
    Some(rank)
}

/// The interval of the median of samples that tell as much as `effective` independent ones.
fn interval(sorted: &[f64], effective: f64) -> Option<(f64, f64)> {
    let n = sorted.len();
    let independent = (effective as usize).min(n);
    let rank = interval_rank(independent)? * n / independent;
    Some((sorted[rank - 1], sorted[n - rank]))
}

impl Summary {
    /// The summary of a series in the order in which it was taken; nothing of an empty one.
    pub fn of(samples: &[f64]) -> Option<Summary> {
        let n = samples.len();
        if n == 0 {
            return None;
        }
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let mean = sorted.iter().sum::<f64>() / n as f64;
        let squares: f64 = sorted.iter().map(|sample| (sample - mean).powi(2)).sum();
        let tail = |wanted: f64| (n >= samples_for(wanted)).then(|| percentile(&sorted, wanted));
        Some(Summary {
            n,
            p50: percentile(&sorted, 50.0),
            interval: interval(&sorted, series::effective(samples)),
            mean,
            std: (n > 1).then(|| (squares / (n - 1) as f64).sqrt()),
            min: sorted[0],
            max: sorted[n - 1],
            p5: tail(5.0),
            p95: tail(95.0),
            p99: tail(99.0),
        })
    }

    /// The standard deviation as a share of the mean.
    pub fn cv(&self) -> Option<f64> {
        self.std.filter(|_| self.mean != 0.0).map(|std| std / self.mean.abs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answers() {
        let samples: Vec<f64> = (1..=100).map(f64::from).collect();
        let summary = Summary::of(&samples).unwrap();
        assert_eq!((summary.p50, summary.mean, summary.min, summary.max), (50.5, 50.5, 1.0, 100.0));
        assert_eq!((summary.p5, summary.p95, summary.p99), (Some(5.0), Some(95.0), Some(99.0)));
        assert!((summary.std.unwrap() - 29.011_491_975_882).abs() < 1e-9);
    }

    #[test]
    fn the_interval_of_the_median_is_that_of_the_tables() {
        // As in tables of order statistics: of 100 samples the 40th and the 61st.
        for (n, rank) in [(6, 1), (8, 1), (9, 2), (10, 2), (20, 6), (30, 10), (50, 18), (100, 40)] {
            assert_eq!(interval_rank(n), Some(rank), "{n} samples");
        }
        assert_eq!(interval_rank(5), None);
        // Both ways agree where they meet.
        let normal = (1000.0 - 1.96 * 1000f64.sqrt()) / 2.0;
        assert!((interval_rank(1000).unwrap() as f64 - normal).abs() <= 1.0);
        // No order in them, so that they count as independent.
        let samples: Vec<f64> = (0..100).map(|index| f64::from(index * 37 % 100 + 1)).collect();
        assert_eq!(Summary::of(&samples).unwrap().interval, Some((40.0, 61.0)));
        assert_eq!(Summary::of(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap().interval, None);
    }

    #[test]
    fn the_interval_holds_the_median_as_often_as_it_says() {
        let mut state = 1u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as f64 / (1u64 << 31) as f64
        };
        let held = (0..2000).filter(|_| {
            let samples: Vec<f64> = (0..25).map(|_| random().powi(3)).collect();
            // Where chance makes neighbours alike, there may be none.
            let interval = Summary::of(&samples).unwrap().interval;
            interval.is_none_or(|(low, high)| (low..=high).contains(&0.125))
        });
        let share = held.count() as f64 / 2000.0;
        assert!((0.94..0.99).contains(&share), "{share}");
    }

    #[test]
    fn few_samples_carry_no_tail() {
        let summary = Summary::of(&[3.0, 1.0, 2.0]).unwrap();
        assert_eq!((summary.p50, summary.p95, summary.p99), (2.0, None, None));
        assert_eq!(Summary::of(&[1.0]).unwrap().std, None);
        assert_eq!(Summary::of(&[]), None);
        assert_eq!((samples_for(99.0), samples_for(95.0), samples_for(5.0)), (100, 20, 20));
    }
}
