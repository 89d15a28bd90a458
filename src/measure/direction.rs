//! Decides whether higher or lower values of a metric are better, by its unit or its name.

use crate::measure::effect::Direction;

/// Words in names of ratios that are better when higher.
const HIGHER: [&str; 10] =
    ["overlap", "hidden", "speedup", "gain", "saving", "utilization", "efficiency", "throughput", "at_once", "mfu"];

/// Words in names of ratios that are better when lower.
const LOWER: [&str; 9] =
    ["exposed", "stretch", "idle", "skew", "imbalance", "slowdown", "overhead", "dropped", "memory"];

/// Direction of a metric; `None` if neither unit nor name implies one.
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
