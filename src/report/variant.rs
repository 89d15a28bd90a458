//! Names of variants in reports, and the rank that a report shows of one.

pub(super) use crate::measure::record::launched;
use crate::measure::record::{RankRecord, RunRecord, Variant, observer_effect_text};

/// The rank of a variant that is shown: the one with that number, or the first. `None` if the record does not have it.
pub(super) fn shown(variant: &Variant, rank: Option<u32>) -> Option<&RankRecord> {
    variant.ranks.iter().find(|record| rank.is_none_or(|rank| record.rank == rank))
}

/// The mark after every figure: `, simulated`, `, emulated`, both, or nothing.
pub(super) fn marks(record: &RunRecord) -> &'static str {
    match (record.simulated, record.emulated.is_some()) {
        (false, false) => "",
        (true, false) => ", simulated",
        (false, true) => ", emulated",
        (true, true) => ", simulated, emulated",
    }
}

/// The launch mode with the record's mark: `as streams`, or `as a graph, simulated`.
pub(super) fn variant_of(record: &RunRecord, launch: &str) -> String {
    format!("{}{}", launched(launch), marks(record))
}

/// The name of a variant in reports, such as `as streams, simulated`.
pub(super) fn variant_name(record: &RunRecord, variant: &Variant) -> String {
    variant_of(record, &variant.launch)
}

/// Share by which observing may change an iteration before figures of single operations count as disturbed.
const DISTURBED: f64 = 0.05;

/// The mark after figures of single operations of a rank: `, disturbed: observed iterations take 47 % more time` if observing
/// changes the iteration by more than 5 %, otherwise nothing.
pub(super) fn disturbed(rank: &RankRecord) -> String {
    match rank.observer_effect.filter(|effect| effect.abs() > DISTURBED) {
        Some(effect) => format!(", disturbed: observed iterations take {}", observer_effect_text(effect)),
        None => String::new(),
    }
}

/// Each variant of some records with its name: `as streams, simulated`, after the number and the name of the workload
/// if there are several records.
pub(super) fn named(records: &[RunRecord]) -> impl Iterator<Item = (String, &Variant)> {
    records.iter().enumerate().flat_map(move |(index, record)| {
        let several = records.len() > 1;
        let prefix = if several { format!("{}. {}, ", index + 1, record.workload.name) } else { String::new() };
        record.variants.iter().map(move |variant| (format!("{prefix}{}", variant_name(record, variant)), variant))
    })
}

/// The name of a rank of a variant: that of the variant, with the rank's number if there are several.
pub(super) fn rank_name(variant: &Variant, name: &str, rank: &RankRecord) -> String {
    if variant.ranks.len() > 1 { format!("{name}, rank {}", rank.rank) } else { name.to_owned() }
}
