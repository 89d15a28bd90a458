//! Statistics of samples. Knows no unit.

use serde::{Deserialize, Serialize};

/// What is said of a series of samples. Percentiles are absent where the samples are too few to carry them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    pub n: usize,
    pub p50: f64,
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

impl Summary {
    /// The summary of a series; nothing of an empty one.
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
    fn few_samples_carry_no_tail() {
        let summary = Summary::of(&[3.0, 1.0, 2.0]).unwrap();
        assert_eq!((summary.p50, summary.p95, summary.p99), (2.0, None, None));
        assert_eq!(Summary::of(&[1.0]).unwrap().std, None);
        assert_eq!(Summary::of(&[]), None);
        assert_eq!((samples_for(99.0), samples_for(95.0), samples_for(5.0)), (100, 20, 20));
    }
}
