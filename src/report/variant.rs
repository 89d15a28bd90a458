//! Names of variants in reports, and the rank that a report shows of one.

use crate::measure::record::{RankRecord, RunRecord, Variant};

/// The rank of a variant that is shown: the one with that number, or the first. `None` if the record does not have it.
pub(super) fn shown(variant: &Variant, rank: Option<u32>) -> Option<&RankRecord> {
    variant.ranks.iter().find(|record| rank.is_none_or(|rank| record.rank == rank))
}

/// The mark beside every figure: `, simulated`, `, emulated`, both, or nothing.
pub(super) fn marks(record: &RunRecord) -> &'static str {
    match (record.simulated, record.emulated.is_some()) {
        (false, false) => "",
        (true, false) => ", simulated",
        (false, true) => ", emulated",
        (true, true) => ", simulated, emulated",
    }
}

/// The launch mode in words: `as streams` or `as a graph`.
pub(super) fn launched(launch: &str) -> &'static str {
    if launch == "graph" { "as a graph" } else { "as streams" }
}

/// The launch mode with the record's mark: `as streams`, or `as a graph, simulated`.
pub(super) fn variant_of(record: &RunRecord, launch: &str) -> String {
    format!("{}{}", launched(launch), marks(record))
}

pub(super) fn variant_name(record: &RunRecord, variant: &Variant) -> String {
    variant_of(record, &variant.launch)
}
