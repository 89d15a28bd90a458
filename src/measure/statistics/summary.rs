//! The statistics of a series that reports and metrics use. Independent of units.

use serde::{Deserialize, Serialize};

use super::quantile::quantile;
use super::stats::{Moments, percentile, samples_for, sorted};

/// Statistics of a series. Percentiles are `None` if there are too few samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    pub n: usize,
    pub p50: f64,
    /// Interval that contains the true median with 95 % confidence; `None` below 6 independent samples.
    pub interval: Option<(f64, f64)>,
    pub mean: f64,
    /// Sample standard deviation (n - 1); `None` for one sample.
    pub std: Option<f64>,
    pub min: f64,
    pub max: f64,
    pub p5: Option<f64>,
    pub p95: Option<f64>,
    pub p99: Option<f64>,
}

impl Summary {
    /// Statistics of a series in the order in which it was taken; `None` if it is empty.
    pub fn of(samples: &[f64]) -> Option<Summary> {
        let n = samples.len();
        let sorted = sorted(samples);
        let moments = Moments::of(&sorted)?;
        let tail = |wanted: f64| (n >= samples_for(wanted)).then(|| percentile(&sorted, wanted));
        Some(Summary {
            n,
            p50: percentile(&sorted, 50.0),
            interval: quantile(samples, 50.0).and_then(|median| median.interval),
            mean: moments.mean,
            std: moments.variance().map(f64::sqrt),
            min: sorted[0],
            max: sorted[n - 1],
            p5: tail(5.0),
            p95: tail(95.0),
            p99: tail(99.0),
        })
    }

    /// Coefficient of variation: standard deviation over mean; `None` with one sample or a mean of 0.
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
