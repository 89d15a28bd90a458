//! A percentile of a series, with its confidence interval. Independent of units.
//!
//! The interval's ends are order statistics, so it assumes no distribution and uses no random numbers. Autocorrelated
//! samples count for less: for a percentile it matters whether samples *exceed it* in bursts.

use super::series;
use super::stats::{percentile, samples_for, sorted};

/// Probability outside of the interval, at each end.
const TAIL: f64 = 0.025;

/// Expected number of samples beyond the percentile up to which ranks are computed exactly. Above it, the normal
/// approximation is used.
const EXACT: f64 = 200.0;

/// Maximum number of pairs of autocorrelations in the sum. The trend reports longer memory.
const PAIRS: usize = 500;

/// A percentile of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantile {
    pub value: f64,
    /// Interval that contains the true value with 95 % confidence; `None` with too few independent samples: fewer than
    /// 6 for the median, 72 for the 95th percentile, 368 for the 99th.
    pub interval: Option<(f64, f64)>,
}

/// Percentile, from 50 on, of samples in the order in which they were taken. `None` if there are too few samples, or
/// one is NaN.
pub fn quantile(samples: &[f64], wanted: f64) -> Option<Quantile> {
    debug_assert!((50.0..100.0).contains(&wanted));
    let n = samples.len();
    let fewest = if wanted == 50.0 { 1 } else { samples_for(wanted) };
    if n < fewest || !samples.iter().all(|sample| sample.is_finite()) {
        return None;
    }
    let sorted = sorted(samples);
    let independent = (effective(samples, wanted) as usize).clamp(1, n);
    let interval = beyond(independent, 1.0 - wanted / 100.0).map(|(fewest, most)| {
        // Ranks counted from the largest, scaled from the independent samples to all.
        let (upper, lower) = (fewest * n / independent, (most * n).div_ceil(independent));
        (sorted[n - lower.min(n)], sorted[n - upper])
    });
    Some(Quantile { value: percentile(&sorted, wanted), interval })
}

/// Ranks, counted from the largest of `n` independent samples, between which the value lies that a sample exceeds with
/// probability `share`, with 95 % confidence. `None` if even the extremes do not contain it.
fn beyond(n: usize, share: f64) -> Option<(usize, usize)> {
    let expected = n as f64 * share;
    if expected > EXACT {
        let reach = 1.96 * (expected * (1.0 - share)).sqrt();
        return Some(((expected - reach) as usize, (expected + reach).ceil() as usize + 1));
    }
    // Binomial distribution: `below` is the probability that at most `count` samples exceed the value.
    let mut term = (1.0 - share).powi(n as i32);
    let (mut below, mut count) = (term, 0);
    let mut fewest = 0;
    loop {
        if below <= TAIL {
            fewest = count + 1;
        }
        if below >= 1.0 - TAIL || count == n {
            break;
        }
        count += 1;
        term *= (n + 1 - count) as f64 / count as f64 * share / (1.0 - share);
        below += term;
    }
    (fewest > 0 && count < n).then_some((fewest, count + 1))
}

/// Effective number of independent samples for a percentile. The smaller of two estimates: one from the rank
/// autocorrelation of neighbours, as for an AR(1) process; one from the indicator series of samples that exceed the
/// percentile, by Geyer's initial positive sequence.
pub fn effective(samples: &[f64], wanted: f64) -> f64 {
    let n = samples.len();
    let neighbours = match series::autocorrelation(samples) {
        Some(rho) if rho > 0.0 => n as f64 * (1.0 - rho) / (1.0 + rho),
        _ => n as f64,
    };
    if n < series::TREND_SAMPLES {
        return neighbours;
    }
    let sorted = sorted(samples);
    let level = percentile(&sorted, wanted);
    let exceeds: Vec<f64> = samples.iter().map(|&sample| f64::from(u8::from(sample > level))).collect();
    let mean = exceeds.iter().sum::<f64>() / n as f64;
    let deviations: Vec<f64> = exceeds.iter().map(|value| value - mean).collect();
    let squares: f64 = deviations.iter().map(|value| value * value).sum();
    if squares == 0.0 {
        return neighbours;
    }
    let at = |lag: usize| deviations.iter().zip(&deviations[lag..]).map(|(a, b)| a * b).sum::<f64>() / squares;
    let pairs = (0..(n / 2 - 1).min(PAIRS)).map(|pair| at(2 * pair) + at(2 * pair + 1)).take_while(|sum| *sum > 0.0);
    let time = (2.0 * pairs.sum::<f64>() - 1.0).max(1.0);
    (n as f64 / time).min(neighbours)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::statistics::noise::Random;

    #[test]
    fn ranks_are_those_of_the_tables() {
        // The expected ranks are from tables of order statistics, counted from the largest.
        for (n, ranks) in [(6, (1, 6)), (10, (2, 9)), (30, (10, 21)), (100, (40, 61))] {
            assert_eq!(beyond(n, 0.5), Some(ranks), "{n} samples");
        }
        assert_eq!(beyond(5, 0.5), None);
        assert_eq!((beyond(71, 0.05), beyond(72, 0.05).map(|ranks| ranks.0)), (None, Some(1)));
        assert_eq!((beyond(367, 0.01), beyond(368, 0.01).map(|ranks| ranks.0)), (None, Some(1)));
        // The exact and the approximate method agree at the limit between them.
        let (exact, normal) = (beyond(400, 0.5).unwrap(), beyond(401, 0.5).unwrap());
        assert!(exact.0.abs_diff(normal.0) <= 1 && exact.1.abs_diff(normal.1) <= 1, "{exact:?} {normal:?}");
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
            // If neighbours are equal by chance, there may be none.
            let interval = quantile(&samples, 50.0).unwrap().interval;
            interval.is_none_or(|(low, high)| (low..=high).contains(&0.125))
        });
        let share = held.count() as f64 / 2000.0;
        assert!((0.94..0.99).contains(&share), "{share}");
    }

    #[test]
    fn few_samples_carry_no_tail() {
        let samples: Vec<f64> = (0..100).map(|index| f64::from(index * 37 % 100 + 1)).collect();
        assert_eq!(quantile(&samples, 50.0), Some(Quantile { value: 50.5, interval: Some((40.0, 61.0)) }));
        assert_eq!(quantile(&samples[..19], 95.0), None);
        let tail = quantile(&samples[..60], 95.0).unwrap();
        assert_eq!(tail.interval, None);
        assert_eq!(quantile(&samples, 99.0).unwrap().value, 99.0);
        assert_eq!(quantile(&[], 50.0), None);
        assert_eq!(quantile(&[1.0, f64::NAN], 50.0), None);
        assert_eq!(quantile(&[4.0], 50.0), Some(Quantile { value: 4.0, interval: None }));
    }

    #[test]
    fn equal_samples_have_an_interval_without_width() {
        let same = quantile(&[7.0; 30], 50.0).unwrap();
        assert_eq!(same, Quantile { value: 7.0, interval: Some((7.0, 7.0)) });
    }

    #[test]
    fn neighbours_that_resemble_each_other_count_less() {
        let mut random = Random(1);
        let mut last = 0.0;
        let sample = |_| {
            last = 0.8 * last + random.normal();
            last
        };
        let series: Vec<f64> = (0..1000).map(sample).collect();
        let rho = series::autocorrelation(&series).unwrap();
        assert!((rho - 0.8).abs() < 0.06, "{rho}");
        // (1 - 0.8) / (1 + 0.8) of them.
        assert!((effective(&series, 50.0) - 111.0).abs() < 40.0, "{}", effective(&series, 50.0));
        // Alternating samples count no more than independent ones.
        let alternating: Vec<f64> = (0..20).map(|index| f64::from(index % 2)).collect();
        assert_eq!(effective(&alternating, 50.0), 20.0);
    }

    #[test]
    fn bursts_count_less_than_single_ones() {
        // A twentieth of the samples exceeds the percentile: each alone, or five in a row.
        let alone: Vec<f64> = (0..1000).map(|index| if index % 20 == 3 { 9.0 } else { 1.0 }).collect();
        let bursts: Vec<f64> = (0..1000).map(|index| if index % 97 < 5 { 9.0 } else { 1.0 }).collect();
        assert_eq!(effective(&alone, 95.0), 1000.0);
        assert!(effective(&bursts, 94.0) < 250.0, "{}", effective(&bursts, 94.0));
    }
}
