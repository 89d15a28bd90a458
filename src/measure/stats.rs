//! Statistics of samples. Independent of units.

use serde::{Deserialize, Serialize};

use super::quantile::quantile;

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

/// Minimum number of samples for a percentile. With fewer, the percentile is just the maximum.
pub fn samples_for(percentile: f64) -> usize {
    let tail = (1.0 - percentile / 100.0).min(percentile / 100.0);
    (1.0 / tail).round() as usize
}

/// Nearest-rank percentile: the smallest sample that is not exceeded by that share of all. The median of an even number
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

/// Median; of an even number the mean of the middle two.
pub fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    percentile(&sorted, 50.0)
}

/// Logarithm of each value; `None` if a value is not positive and finite.
pub fn logs(values: &[f64]) -> Option<Vec<f64>> {
    values.iter().map(|&value| (value > 0.0 && value.is_finite()).then(|| value.ln())).collect()
}

/// Mean of values and their spread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moments {
    pub n: usize,
    pub mean: f64,
    /// Sum of squared deviations from the mean.
    pub squares: f64,
}

impl Moments {
    /// Moments of values; `None` without values.
    pub fn of(values: &[f64]) -> Option<Moments> {
        let n = values.len();
        let mean = values.iter().sum::<f64>() / n as f64;
        let squares = values.iter().map(|value| (value - mean).powi(2)).sum();
        (n > 0).then_some(Moments { n, mean, squares })
    }

    /// Sample variance (n - 1); `None` for a single value.
    pub fn variance(&self) -> Option<f64> {
        (self.n > 1).then(|| self.squares / (self.n - 1) as f64)
    }

    /// Half the width of Student's 95 % interval of the mean; `None` for a single value.
    pub fn half_width(&self) -> Option<f64> {
        Some(student((self.n - 1) as f64) * (self.variance()? / self.n as f64).sqrt())
    }
}

/// Student's t for 2.5 % in each tail, for 1, 2, 3, … degrees of freedom.
const STUDENT: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

/// Student's t for any degrees of freedom. Interpolates linearly, which is slightly conservative.
pub fn student(freedom: f64) -> f64 {
    let whole = (freedom as usize).max(1);
    let exact = |whole: usize| STUDENT.get(whole - 1).copied().unwrap_or(1.96 + 2.46 / whole as f64);
    let part = (freedom - whole as f64).max(0.0);
    exact(whole) + part * (exact(whole + 1) - exact(whole))
}

impl Summary {
    /// Statistics of a series in the order in which it was taken; `None` if it is empty.
    pub fn of(samples: &[f64]) -> Option<Summary> {
        let n = samples.len();
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
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

    /// Coefficient of variation: standard deviation over mean.
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
