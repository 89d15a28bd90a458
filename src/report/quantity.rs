//! Numbers with the names of their units.

use crate::base::units::{Count, plain};
use crate::base::{Bytes, Flops, Nanos, Rate};

/// Formats a value in an SI unit, with a prefix.
pub fn quantity(value: f64, unit: &str) -> String {
    match unit {
        "s" => Nanos::from_secs_f64(value).to_string(),
        "B" if value >= 0.0 => Bytes(value.round() as u64).to_string(),
        "" => plain(value),
        "FLOP" => Flops(value).to_string(),
        "1/s" => Rate(value, "/s").to_string(),
        "B/s" | "FLOP/s" => Rate(value, unit).to_string(),
        _ => Count(value, unit).to_string(),
    }
}
