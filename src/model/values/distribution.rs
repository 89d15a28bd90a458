//! Distributions of `draw`: functions from a uniform number, which comes from a seed and a counter, to a value.
//!
//! Every rank and every machine draws the same values. IEEE 754 fixes each bit of sums, products and quotients.
//! Logarithms, exponentials and powers come from the crate `libm` instead of the system's library, which differs from
//! machine to machine.

use std::f64::consts::TAU;

use crate::base::random::hash;

/// Largest number of trials of a binomial distribution, and largest mean of a Poisson distribution.
pub const TRIALS: i64 = 1 << 31;

/// Maximum number of values of a Zipf distribution.
pub const ZIPF_VALUES: i64 = 1 << 20;

/// Smallest probability of success of a geometric distribution.
pub const RAREST: f64 = 1e-9;

/// Probability, relative to that of the mode, below which a table ends.
const NEGLIGIBLE: f64 = 1e-18;

/// Returns a number from 0 up to, but not including, 1: the upper 53 bits of a hash.
pub fn uniform(seed: u64, counter: u64) -> f64 {
    (hash(seed, counter) >> 11) as f64 / (1u64 << 53) as f64
}

/// Returns a whole number from `low` to `high`, both included. `low` is at most `high`.
pub fn whole(low: i64, high: i64, uniform: f64) -> i64 {
    let count = (i128::from(high) - i128::from(low) + 1) as f64;
    let step = (uniform * count) as i128;
    (i128::from(low) + step).min(i128::from(high)) as i64
}

/// Returns the number of failures before the first success, each trial with probability `success` > 0.
pub fn geometric(success: f64, uniform: f64) -> i64 {
    if success >= 1.0 {
        return 0;
    }
    (libm::log1p(-uniform) / libm::log1p(-success)).floor() as i64
}

/// Returns exp(mu + sigma z), where z is normally distributed (Box and Muller, "A note on the generation of random
/// normal deviates", 1958).
pub fn lognormal(mu: f64, sigma: f64, (radius, angle): (f64, f64)) -> f64 {
    let z = libm::sqrt(-2.0 * libm::log1p(-radius)) * libm::cos(TAU * angle);
    libm::exp(mu + sigma * z)
}

/// A distribution of neighbouring whole numbers by its cumulative sums.
#[derive(Debug)]
pub struct CumulativeTable {
    first: i64,
    /// Sum of the weights up to and including each number.
    sums: Vec<f64>,
}

impl CumulativeTable {
    /// Creates a table of the numbers from `first` on, each with its weight.
    pub fn of(first: i64, weights: impl IntoIterator<Item = f64>) -> CumulativeTable {
        let mut sum = 0.0;
        let add = |weight: f64| {
            sum += weight;
            sum
        };
        CumulativeTable { first, sums: weights.into_iter().map(add).collect() }
    }

    /// Table of the binomial distribution: number of successes in `trials` trials, each with probability `success`.
    pub fn binomial(trials: i64, success: f64) -> CumulativeTable {
        if success <= 0.0 || success >= 1.0 {
            return CumulativeTable::of(if success <= 0.0 { 0 } else { trials }, [1.0]);
        }
        let odds = success / (1.0 - success);
        let mode = (((trials + 1) as f64 * success) as i64).min(trials);
        CumulativeTable::around(mode, trials, |k| (trials - k) as f64 / (k + 1) as f64 * odds)
    }

    /// Table of the Poisson distribution with this mean.
    pub fn poisson(mean: f64) -> CumulativeTable {
        CumulativeTable::around(mean as i64, i64::MAX, |k| mean / (k + 1) as f64)
    }

    /// Table of the Zipf distribution: numbers below `count`, where number k has the weight 1 / (k + 1)^`exponent`.
    pub fn zipf(exponent: f64, count: i64) -> CumulativeTable {
        CumulativeTable::of(0, (1..=count).map(|k| libm::pow(k as f64, -exponent)))
    }

    /// Creates the table of a distribution from 0 to `last` that falls on both sides of `mode`; `ratio(k)` is the
    /// probability of k + 1 over that of k.
    fn around(mode: i64, last: i64, ratio: impl Fn(i64) -> f64) -> CumulativeTable {
        let mut below = Vec::new();
        let mut weight = 1.0;
        for k in (0..mode).rev() {
            weight /= ratio(k);
            if weight < NEGLIGIBLE {
                break;
            }
            below.push(weight);
        }
        let first = mode - below.len() as i64;
        let mut weights: Vec<f64> = below.into_iter().rev().collect();
        let mut weight = 1.0;
        for k in mode..=last {
            weights.push(weight);
            weight *= ratio(k);
            if weight < NEGLIGIBLE {
                break;
            }
        }
        CumulativeTable::of(first, weights)
    }

    /// Returns the number whose interval of the cumulative distribution contains `uniform`.
    pub fn at(&self, uniform: f64) -> i64 {
        let wanted = uniform * self.sums.last().copied().unwrap_or(0.0);
        let index = self.sums.partition_point(|sum| *sum <= wanted);
        self.first + index.min(self.sums.len().saturating_sub(1)) as i64
    }
}

/// Draws how `total` items are distributed over places with these weights; each item is placed independently. `uniform`
/// is called once for each place with a weight except the last. If all weights are 0, all items go to the first place.
pub fn multinomial(total: i64, weights: &[f64], mut uniform: impl FnMut(usize) -> f64) -> Vec<i64> {
    // Sums from the end: then the share of a place among itself and all later ones is at most 1 despite rounding.
    let mut rest = vec![0.0; weights.len() + 1];
    for (index, weight) in weights.iter().enumerate().rev() {
        rest[index] = rest[index + 1] + weight;
    }
    let mut left = total;
    let split = |(index, weight): (usize, &f64)| {
        let share = if rest[index + 1] == 0.0 { 1.0 } else { weight / rest[index] };
        let taken = if left == 0 { 0 } else { CumulativeTable::binomial(left, share).at(uniform(index)) };
        left -= taken;
        taken
    };
    weights.iter().enumerate().map(split).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNT: u64 = 200_000;

    /// Mean and variance of values drawn with one seed.
    fn moments(value: impl Fn(f64) -> f64) -> (f64, f64) {
        let values: Vec<f64> = (0..COUNT).map(|counter| value(uniform(11, counter))).collect();
        let mean = values.iter().sum::<f64>() / COUNT as f64;
        (mean, values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / COUNT as f64)
    }

    /// Five standard errors of a mean of values with this variance.
    fn error(variance: f64) -> f64 {
        5.0 * (variance / COUNT as f64).sqrt()
    }

    fn holds(name: &str, (mean, variance): (f64, f64), (expected_mean, expected_variance): (f64, f64)) {
        assert!((mean - expected_mean).abs() <= error(expected_variance) + 1e-12, "{name}: mean {mean}");
        assert!((variance / expected_variance - 1.0).abs() < 0.05, "{name}: variance {variance}");
    }

    #[test]
    fn means_and_variances_are_those_of_the_definitions() {
        for (n, p) in [(1, 0.5), (10, 0.03), (1000, 0.7), (2_000_000_000, 0.25)] {
            let table = CumulativeTable::binomial(n, p);
            let mean = n as f64 * p;
            holds(&format!("binomial({n}, {p})"), moments(|u| table.at(u) as f64), (mean, mean * (1.0 - p)));
        }
        for mean in [0.01, 3.5, 400.0, 1e9] {
            let table = CumulativeTable::poisson(mean);
            holds(&format!("poisson({mean})"), moments(|u| table.at(u) as f64), (mean, mean));
        }
        for p in [0.02, 0.3, 0.9] {
            let moments = moments(|u| geometric(p, u) as f64);
            holds(&format!("geometric({p})"), moments, ((1.0 - p) / p, (1.0 - p) / (p * p)));
        }
        holds("whole(-3, 8)", moments(|u| whole(-3, 8, u) as f64), (2.5, (144.0 - 1.0) / 12.0));
        let weights: Vec<f64> = (1..=50).map(|k| 1.0 / f64::from(k).powf(1.2)).collect();
        let all: f64 = weights.iter().sum();
        let mean = weights.iter().zip(0..).map(|(weight, k)| weight * f64::from(k)).sum::<f64>() / all;
        let square = weights.iter().zip(0..).map(|(weight, k)| weight * f64::from(k).powi(2)).sum::<f64>() / all;
        let table = CumulativeTable::zipf(1.2, 50);
        holds("zipf(1.2, 50)", moments(|u| table.at(u) as f64), (mean, square - mean * mean));
        let (mean, variance) = moments(|u| lognormal(1.0, 0.5, (u, uniform(12, (u * 1e15) as u64))));
        let expected = (1.0f64 + 0.125).exp();
        holds("lognormal(1, 0.5)", (mean, variance), (expected, (0.25f64.exp() - 1.0) * expected * expected));
    }

    #[test]
    fn a_multinomial_keeps_its_total_and_its_shares() {
        let weights = [5.0, 0.0, 1.0, 2.0, 0.0];
        let mut sums = [0i64; 5];
        for row in 0..2000 {
            let counts = multinomial(1000, &weights, |index| uniform(3, row * 5 + index as u64));
            assert_eq!(counts.iter().sum::<i64>(), 1000);
            sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        for (sum, weight) in sums.into_iter().zip(weights) {
            let share = weight / 8.0;
            let allowed = 5.0 * (2e6 * share * (1.0 - share)).sqrt();
            assert!((sum as f64 - 2e6 * share).abs() <= allowed, "{sum} for a weight of {weight}");
        }
    }

    #[test]
    fn extremes_stay_in_range() {
        let last = 1.0 - 1.0 / (1u64 << 53) as f64;
        for u in [0.0, 0.5, last] {
            assert!((i64::MIN..=i64::MAX).contains(&whole(i64::MIN, i64::MAX, u)));
            assert!((0..=7).contains(&CumulativeTable::binomial(7, 1e-300).at(u)));
            assert_eq!(CumulativeTable::binomial(7, 1.0).at(u), 7);
            assert_eq!(CumulativeTable::binomial(0, 0.5).at(u), 0);
            assert_eq!(CumulativeTable::poisson(0.0).at(u), 0);
            assert!(geometric(RAREST, u) >= 0);
            assert!((0..3).contains(&CumulativeTable::zipf(300.0, 3).at(u)));
            assert!(lognormal(0.0, 1.0, (u, u)) > 0.0);
        }
        assert_eq!(multinomial(9, &[0.0, 0.0], |_| 0.5), [9, 0]);
    }

    /// Pinned values, from exact fractions and a second implementation. A change would make recorded plans worthless.
    #[test]
    fn is_pinned() {
        let drawn: Vec<i64> =
            (0..4).map(|counter| CumulativeTable::binomial(1000, 0.3).at(uniform(1, counter))).collect();
        let zipf: Vec<i64> = (0..6).map(|counter| CumulativeTable::zipf(1.1, 64).at(uniform(2, counter))).collect();
        let lognormal = lognormal(5.0, 1.0, (uniform(3, 0), uniform(3, 1))).to_bits();
        assert_eq!(
            (drawn, zipf, lognormal),
            (vec![287, 298, 301, 295], vec![0, 1, 0, 39, 0, 0], 4_638_042_033_683_966_003)
        );
    }
}
