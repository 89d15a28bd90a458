//! Which way a metric is better: by its unit, or by its name where the unit is none.

use crate::measure::effect::Direction;

/// Words in the names of shares and ratios that are better when they are higher.
const HIGHER: [&str; 10] =
    ["overlap", "hidden", "speedup", "gain", "saving", "utilization", "efficiency", "throughput", "at_once", "mfu"];

/// Words in the names of those that are better when they are lower.
const LOWER: [&str; 9] =
    ["exposed", "stretch", "idle", "skew", "imbalance", "slowdown", "overhead", "dropped", "memory"];

/// Which way is better; nothing where neither the unit nor the name says so.
pub fn of(name: &str, unit: &str) -> Option<Direction> {
    if unit.ends_with("/s") || unit.ends_with("FLOPS") {
        return Some(Direction::HigherIsBetter);
    }
    if matches!(unit, "s" | "B") {
        return Some(Direction::LowerIsBetter);
    }
    let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
    match (has(&HIGHER), has(&LOWER)) {
        (true, false) => Some(Direction::HigherIsBetter),
        (false, true) => Some(Direction::LowerIsBetter),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_or_a_name_tells() {
        use Direction::{HigherIsBetter, LowerIsBetter};
        for (name, unit, better) in [
            ("time.p50", "s", Some(LowerIsBetter)),
            ("memory.device", "B", Some(LowerIsBetter)),
            ("tokens_per_second", "tokens/s", Some(HigherIsBetter)),
            ("rate", "B/s", Some(HigherIsBetter)),
            ("throughput", "GFLOPS", Some(HigherIsBetter)),
            ("comm_hidden", "", Some(HigherIsBetter)),
            ("exposed_share", "", Some(LowerIsBetter)),
            ("draft_share", "", None),
            ("hidden_overhead", "", None),
        ] {
            assert_eq!(of(name, unit), better, "{name}");
        }
    }
}
