//! The work of a run, and the unit of its rate.

use super::{ProgramRecord, RankWork, RunRecord};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateUnit {
    Flops,
    /// Used without arithmetic.
    Bytes,
    /// Used if neither arithmetic nor bytes are known.
    Iterations,
}

impl RateUnit {
    /// The rate's unit as a column title.
    pub fn per_second(self) -> &'static str {
        match self {
            RateUnit::Flops => "FLOP/s",
            RateUnit::Bytes => "B/s",
            RateUnit::Iterations => "iterations/s",
        }
    }

    /// The amount of work in this unit.
    pub fn amount(self, flops: f64, bytes: f64) -> f64 {
        match self {
            RateUnit::Flops => flops,
            RateUnit::Bytes => bytes,
            RateUnit::Iterations => 1.0,
        }
    }
}

/// Unit by which a search compares runs, and the work of an iteration over all ranks in it: arithmetic operations, or bytes
/// without arithmetic, or iterations without either. `None` if the record lacks the work of some ranks.
pub fn work(record: &RunRecord) -> Option<(RateUnit, f64)> {
    let (flops, bytes) = totals(record)?;
    Some(match (flops > 0.0, bytes > 0) {
        (true, _) => (RateUnit::Flops, flops),
        (false, true) => (RateUnit::Bytes, bytes as f64),
        (false, false) => (RateUnit::Iterations, 1.0),
    })
}

/// Arithmetic operations and bytes of an iteration over all ranks; `None` if the record lacks the work of some, as records of
/// older versions do.
pub fn totals(record: &RunRecord) -> Option<(f64, u64)> {
    let ProgramRecord { flops, bytes, ref ranks, .. } = record.program;
    match record.emulated.unwrap_or(record.settings.ranks) {
        0 | 1 => Some((flops, bytes)),
        world => (ranks.len() == world as usize).then(|| {
            let add =
                |(flops, bytes): (f64, u64), rank: &RankWork| (flops + rank.flops, bytes.saturating_add(rank.bytes));
            ranks.iter().fold((0.0, 0), add)
        }),
    }
}
