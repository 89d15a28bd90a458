//! The work of a run, and the unit of its rate.

use super::RunRecord;

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
/// without arithmetic, or iterations without either.
pub fn work(record: &RunRecord) -> (RateUnit, f64) {
    let (flops, bytes) = totals(record);
    match (flops > 0.0, bytes > 0.0) {
        (true, _) => (RateUnit::Flops, flops),
        (false, true) => (RateUnit::Bytes, bytes),
        (false, false) => (RateUnit::Iterations, 1.0),
    }
}

/// Arithmetic operations and bytes of an iteration over all ranks, estimated from the first.
pub fn totals(record: &RunRecord) -> (f64, f64) {
    let ranks = f64::from(record.emulated.unwrap_or(record.settings.ranks).max(1));
    (record.program.flops * ranks, record.program.bytes as f64 * ranks)
}
