//! Whether a run's times are steady enough to be set beside those of other runs.

use super::record::{RunRecord, Times, Variant};
use super::series;
use super::warmup::beside_own_slot;

/// How wide the interval of the median may be, as a share of the median.
const WIDTH: f64 = 0.10;

/// How far times may drift from the first third to the last, as a share of the median.
const DRIFT: f64 = 0.05;

/// How far two groups of times may lie apart, as a share of the median.
const APART: f64 = 0.05;

/// Why figures of a run say little, of the first of its variants of which that is so. Nothing where nothing was measured
/// that could say so: a simulator has no noise, and one iteration no spread.
pub fn doubt(record: &RunRecord) -> Option<String> {
    if record.simulated || !record.measurement {
        return None;
    }
    let slots = record.program.cycle;
    let doubt = |variant: &Variant| Some(format!("{}: {}", variant.launch, unsteady(&variant.time, slots)?));
    record.variants.iter().find_map(doubt)
}

/// What is wrong with a series of times of a program with that many slots.
fn unsteady(time: &Times, slots: usize) -> Option<String> {
    let median = time.p50_ns.filter(|median| median.0 > 0)?.0 as f64;
    let samples = beside_own_slot(&time.samples_ns, slots);
    if let Some(trend) = series::trend(&samples).filter(|trend| trend.abs() > DRIFT) {
        let moved = if trend > 0.0 { "rose" } else { "fell" };
        return Some(format!("the times {moved} by {:.0} % while measuring", trend.abs() * 100.0));
    }
    if let Some(modes) = series::modes(&samples).filter(|modes| modes.high - modes.low > APART) {
        return Some(format!("the times fall into two groups, {:.0} % apart", (modes.high - modes.low) * 100.0));
    }
    let width = (time.p50_high_ns?.0 - time.p50_low_ns?.0) as f64 / median;
    (width > WIDTH).then(|| format!("the median is known to {:.0} % only", width * 100.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Nanos;

    fn of(samples: impl Iterator<Item = i64>) -> Option<String> {
        unsteady(&Times::of(&samples.map(Nanos).collect::<Vec<_>>()), 1)
    }

    #[test]
    fn what_says_little_is_told() {
        // Mixed, so that neighbours do not resemble each other.
        let mixed = |index: i64| index * 37 % 100;
        assert_eq!(of((0..100).map(|index| 1000 + mixed(index) / 10)), None);
        let drift = of((0..100).map(|index| 1000 + 2 * index)).unwrap();
        assert!(drift.starts_with("the times rose by 12 %"), "{drift}");
        assert_eq!(of((0..100).map(|index| 10_000 + 2 * index)), None, "a drift of 1 % is none that matters");
        let groups = of((0..100).map(|index| 1000 + 300 * (mixed(index) / 50))).unwrap();
        assert_eq!(groups, "the times fall into two groups, 26 % apart");
        let wide = of((0..20).map(|index| 1000 + 40 * (index * 7 % 20))).unwrap();
        assert!(wide.starts_with("the median is known to "), "{wide}");
        assert_eq!(of(std::iter::empty()), None);
        assert_eq!(of([1000, 5000, 1000].into_iter()), None, "three samples have no interval");
    }
}
