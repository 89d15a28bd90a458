//! Elementary statistics: percentiles, moments and Student's t. Independent of units.

/// Minimum number of samples for a percentile. With fewer, the percentile is an extreme: the maximum
/// above 50, the minimum below.
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
    percentile(&sorted(samples), 50.0)
}

/// Returns the samples in ascending order.
pub fn sorted(samples: &[f64]) -> Vec<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
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
