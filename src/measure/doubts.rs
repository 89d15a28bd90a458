//! What a reader has to know before believing a series of times, in words.

use crate::base::Nanos;

use super::quantile::effective;
use super::record::{Times, WarmupRecord};
use super::series::{self, Modes};
use super::slots;
use super::warmup::beside_own_slot;

/// Variation beyond which a warning is given.
const NOISE: f64 = 0.10;

/// The share of the samples below which it is told that they tell less than their number.
const FEW: f64 = 1.0 / 3.0;

/// The warnings of a series of a program with that many slots. Times are set beside those of their own slot alone: what
/// the file makes different is no noise.
pub fn of(name: &str, times: &Times, warmup: &WarmupRecord, slots: usize) -> Vec<String> {
    let mut doubts = Vec::new();
    let floats: Vec<f64> = times.samples_ns.iter().map(|time| time.0 as f64).collect();
    if let Some(variation) = slots::variation(&floats, slots).filter(|variation| *variation > NOISE) {
        let of = if slots > 1 { "the mean of their slot" } else { "their mean" };
        doubts.push(format!(
            "{name}: the times vary by {:.0} % of {of}: figures that differ by less say nothing",
            variation * 100.0
        ));
    }
    if let (Some(false), Some(trend)) = (warmup.settled, warmup.trend) {
        doubts.push(format!(
            "{name}: after {} iterations to warm up, the times still {} by {:.1} %: the device had not settled, \
             and more `--warmup` may help",
            warmup.iterations,
            moved(trend),
            trend.abs() * 100.0
        ));
    }
    let samples = beside_own_slot(&times.samples_ns, slots);
    if let Some(trend) = series::trend(&samples) {
        doubts.push(format!(
            "{name}: the times {} by {:.1} % from the first third to the last: the device heats up, slows down, or is \
             shared; the median depends on how long was measured",
            moved(trend),
            trend.abs() * 100.0
        ));
    }
    if let Some(modes) = series::modes(&samples) {
        doubts.push(two(name, modes, times));
    }
    let independent = effective(&samples, 50.0);
    if independent < FEW * samples.len() as f64 {
        doubts.push(format!(
            "{name}: neighbouring iterations resemble each other: {} of them tell as much as {} independent ones",
            samples.len(),
            independent.max(1.0) as usize
        ));
    }
    doubts
}

fn moved(trend: f64) -> &'static str {
    if trend > 0.0 { "rose" } else { "fell" }
}

fn two(name: &str, modes: Modes, times: &Times) -> String {
    let median = times.p50_ns.map_or(0.0, |median| median.0 as f64);
    let around = |share: f64| Nanos((share * median).round() as i64);
    format!(
        "{name}: the times fall into two groups, around {} and around {} ({:.0} % of them): a clock or a queue flips, \
         and the median tells of one group only",
        around(modes.low),
        around(modes.high),
        modes.upper * 100.0
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTLED: WarmupRecord = WarmupRecord { iterations: 12, trend: None, settled: Some(true) };

    fn doubts(samples: impl Iterator<Item = i64>, warmup: &WarmupRecord) -> String {
        of("stream", &Times::of(&samples.map(Nanos).collect::<Vec<_>>()), warmup, 1).join("\n")
    }

    #[test]
    fn a_steady_series_raises_none() {
        assert_eq!(doubts((0..100).map(|index| 1000 + index * 37 % 7), &SETTLED), "");
    }

    #[test]
    fn work_that_differs_is_no_noise() {
        let slots = [100_000, 400_000, 2_000_000];
        let times = |noise: &dyn Fn(i64) -> i64| -> Times {
            let time = |index: i64| Nanos(slots[index as usize % 3] * (1000 + noise(index)) / 1000);
            Times::of_slots(&(0..90).map(time).collect::<Vec<_>>(), 3, 0)
        };
        assert_eq!(of("stream", &times(&|index| index * 37 % 7), &SETTLED, 3), Vec::<String>::new());
        let told = of("stream", &times(&|index| index * 37 % 7 * 60), &SETTLED, 3).join("\n");
        assert!(told.starts_with("stream: the times vary by 10 % of the mean of their slot"), "{told}");
        let told = of("stream", &times(&|index| index * 2), &SETTLED, 3).join("\n");
        assert!(told.contains("the times rose by 11.0 % from the first third to the last"), "{told}");
    }

    #[test]
    fn each_is_told_in_words() {
        let unsettled = WarmupRecord { iterations: 102, trend: Some(-0.0312), settled: Some(false) };
        let told = doubts((0..10).map(|_| 1000), &unsettled);
        assert!(told.starts_with("stream: after 102 iterations to warm up, the times still fell by 3.1 %"), "{told}");
        let told = doubts((0..40).map(|index| 1000 + 5 * index), &SETTLED);
        let trend = "stream: the times rose by 12.3 % from the first third to the last";
        assert!(told.starts_with(trend) && told.contains("40 of them tell as much as 1 independent"), "{told}");
        let flips = doubts((0..60).map(|index| 20_000 + 9_000 * (index * 11 % 3 / 2)), &SETTLED);
        assert!(flips.contains("two groups, around 20.00 µs and around 29.00 µs (33 % of them)"), "{flips}");
        assert!(flips.contains("vary by 19 %"), "{flips}");
    }
}
