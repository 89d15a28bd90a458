//! Numbers with the names of their units.

use crate::base::units::{NamedCount, plain};
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
        _ => NamedCount(value, unit).to_string(),
    }
}

/// A share in whole percent, such as `12 %`; `< 1 %` if it would round to zero without being zero.
pub fn whole_percent(share: f64) -> String {
    if 0.0 < share && share < 0.005 { "< 1 %".to_owned() } else { format!("{:.0} %", 100.0 * share) }
}

/// The share of a time in a whole, in whole percent.
pub fn share_of(part: Nanos, whole: Nanos) -> String {
    whole_percent(part.0 as f64 / whole.0.max(1) as f64)
}

/// A ratio as a change, such as `+5.63 %`; as a factor, such as `× 3.1`, if it is large.
pub fn change(ratio: f64) -> String {
    if is_large(ratio) { format!("× {}", plain(ratio)) } else { percent(ratio) }
}

/// The ends of an interval of a ratio as changes; one if both look the same.
pub fn changes((low, high): (f64, f64)) -> String {
    let (from, to) = match is_large(low) || is_large(high) {
        true => (format!("× {}", plain(low)), plain(high)),
        false => (percent(low), percent(high)),
    };
    if from.trim_start_matches("× ") == to { from } else { format!("{from} to {to}") }
}

fn is_large(ratio: f64) -> bool {
    !(0.1..10.0).contains(&ratio)
}

fn percent(ratio: f64) -> String {
    let percent = (1e4 * (ratio - 1.0)).round() / 100.0;
    if percent == 0.0 { "0.00 %".to_owned() } else { format!("{percent:+.2} %") }
}
