//! Quantities with units: stored as integers or in one base unit, displayed with unit names.
//!
//! Base units are nanoseconds, bytes and floating-point operations. Sizes are displayed in binary units (MiB), rates in
//! decimal ones (GB/s).

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A duration in whole nanoseconds; signed, since a gap may be negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Nanos(pub i64);

/// An amount of memory or traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

/// Floating-point operations; a fused multiply-add counts as two.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Flops(pub f64);

/// A rate per second, with the name of its unit; displayed in decimal multiples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate<'a>(pub f64, pub &'a str);

/// A count of a unit that the file names: `337.1k kernels/s`. Such a name takes no prefix, so the number does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NamedCount<'a>(pub f64, pub &'a str);

impl Bytes {
    /// True if the amount is zero.
    pub fn is_zero(&self) -> bool {
        self.0 == 0
    }
}

impl Nanos {
    /// Rounds a time in nanoseconds to whole ones.
    pub fn rounded(nanoseconds: f64) -> Nanos {
        Nanos(nanoseconds.round() as i64)
    }

    /// Rounds seconds to whole nanoseconds.
    pub fn from_secs_f64(seconds: f64) -> Nanos {
        Nanos::rounded(seconds * 1e9)
    }

    /// The time as the standard library has it; zero for a negative one.
    pub fn duration(self) -> Duration {
        Duration::from_nanos(self.0.max(0) as u64)
    }

    /// The duration in seconds.
    pub fn seconds(self) -> f64 {
        self.0 as f64 * 1e-9
    }
}

impl std::ops::Add for Nanos {
    type Output = Nanos;
    fn add(self, other: Nanos) -> Nanos {
        Nanos(self.0 + other.0)
    }
}

impl std::ops::AddAssign for Nanos {
    fn add_assign(&mut self, other: Nanos) {
        self.0 += other.0;
    }
}

impl std::ops::Sub for Nanos {
    type Output = Nanos;
    fn sub(self, other: Nanos) -> Nanos {
        Nanos(self.0 - other.0)
    }
}

impl std::iter::Sum for Nanos {
    fn sum<I: Iterator<Item = Nanos>>(iter: I) -> Nanos {
        Nanos(iter.map(|n| n.0).sum())
    }
}

/// Replaces negative zero by 0, for display.
pub fn unsigned_zero(value: f64) -> f64 {
    value + 0.0
}

/// Formats with four significant digits and no trailing zeros: 0.01234, 1.234, 12.34, 123.4, 1234; 1.234e-6 for tiny
/// values.
fn digits(value: f64) -> String {
    let value = unsigned_zero(value);
    let size = value.abs();
    // Each bound is just below a power of ten that it would round up to.
    let places = match size {
        _ if size >= 999.95 => 0,
        _ if size >= 99.995 => 1,
        _ if size >= 9.9995 => 2,
        _ if size >= 0.99995 || size == 0.0 => 3,
        _ if size >= 0.099995 => 4,
        _ if size >= 0.0099995 => 5,
        _ if size >= 0.00099995 => 6,
        _ => return format!("{value:.3e}"),
    };
    format!("{value:.places$}")
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.0 as f64;
        let text = match ns.abs() {
            _ if self.0.unsigned_abs() < 1_000 => format!("{} ns", self.0),
            size if size < 999_950.0 => format!("{} µs", digits(ns / 1e3)),
            size if size < 999_950_000.0 => format!("{} ms", digits(ns / 1e6)),
            _ => format!("{} s", digits(ns / 1e9)),
        };
        f.pad(&text)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
        let mut value = self.0 as f64;
        let mut unit = 0;
        while value >= 1024.0 && unit + 1 < NAMES.len() {
            value /= 1024.0;
            unit += 1;
        }
        let text = if value.fract() == 0.0 {
            format!("{value} {}", NAMES[unit])
        } else {
            format!("{} {}", digits(value), NAMES[unit])
        };
        f.pad(&text)
    }
}

/// Decimal prefixes with their factors, the largest first; the last one is none.
pub const PREFIXES: [(f64, &str); 6] = [(1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")];

/// Scales a value by a decimal prefix; returns both.
fn decimal(value: f64) -> (f64, &'static str) {
    let size = value.abs();
    PREFIXES
        .into_iter()
        .find(|(scale, _)| size >= *scale)
        .map_or((value, ""), |(scale, prefix)| (value / scale, prefix))
}

impl fmt::Display for Flops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Rate(self.0, "FLOP").fmt(f)
    }
}

/// Scales a number by a decimal prefix and formats it; returns text and prefix.
fn scaled(value: f64) -> (String, &'static str) {
    let (scaled, prefix) = decimal(unsigned_zero(value));
    let whole = scaled.fract() == 0.0 && scaled.abs() < 1000.0;
    (if whole { format!("{scaled}") } else { digits(scaled) }, prefix)
}

/// Displayed in place of a missing value.
pub const NO_VALUE: &str = "–";

/// Writes a number with a decimal prefix. `text` joins the two with the unit. NaN and infinity, such as a rate over no
/// time, become [`NO_VALUE`].
fn pad_scaled(value: f64, text: impl Fn(&str, &str) -> String, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if !value.is_finite() {
        return f.pad(NO_VALUE);
    }
    let (number, prefix) = scaled(value);
    f.pad(text(&number, prefix).trim_end())
}

impl fmt::Display for Rate<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        pad_scaled(self.0, |number, prefix| format!("{number} {prefix}{}", self.1), f)
    }
}

impl fmt::Display for NamedCount<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        pad_scaled(self.0, |number, prefix| format!("{number}{prefix} {}", self.1), f)
    }
}

/// Dimension of a number: the powers of time, bytes and operations in its unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Dimension {
    pub time: i8,
    pub bytes: i8,
    pub flops: i8,
}

impl Dimension {
    /// Dimension of a plain number.
    pub const NONE: Dimension = Dimension::new(0, 0, 0);
    pub const TIME: Dimension = Dimension::new(1, 0, 0);
    pub const BYTES: Dimension = Dimension::new(0, 1, 0);
    pub const FLOPS: Dimension = Dimension::new(0, 0, 1);

    const fn new(time: i8, bytes: i8, flops: i8) -> Self {
        Dimension { time, bytes, flops }
    }

    /// Dimension of a product; `None` if a power is too large for any physical quantity.
    pub fn times(self, other: Dimension) -> Option<Dimension> {
        Some(Dimension {
            time: self.time.checked_add(other.time)?,
            bytes: self.bytes.checked_add(other.bytes)?,
            flops: self.flops.checked_add(other.flops)?,
        })
    }

    /// Dimension of the reciprocal.
    pub fn inverse(self) -> Dimension {
        Dimension {
            time: self.time.saturating_neg(),
            bytes: self.bytes.saturating_neg(),
            flops: self.flops.saturating_neg(),
        }
    }

    /// Name of a number of this dimension in messages.
    pub fn describe(self) -> String {
        match (self.time, self.bytes, self.flops) {
            (0, 0, 0) => "a plain number".to_owned(),
            (1, 0, 0) => "a time".to_owned(),
            (0, 1, 0) => "a size in bytes".to_owned(),
            (0, 0, 1) => "a number of operations".to_owned(),
            (-1, 0, 0) => "a rate (1/s)".to_owned(),
            (-1, 1, 0) => "a rate in bytes per second".to_owned(),
            (-1, 0, 1) => "a rate in operations per second".to_owned(),
            _ => format!("a number in {}", self.base_units()),
        }
    }

    /// The base units of this dimension, such as `FLOP/B` or `ns^2`.
    fn base_units(self) -> String {
        let powers = |sign: i16| -> Vec<String> {
            [("ns", self.time), ("B", self.bytes), ("FLOP", self.flops)]
                .into_iter()
                .map(|(name, power)| (name, sign * i16::from(power)))
                .filter(|(_, power)| *power > 0)
                .map(|(name, power)| if power == 1 { name.to_owned() } else { format!("{name}^{power}") })
                .collect()
        };
        let (over, under) = (powers(1).join(" "), powers(-1).join("/"));
        match (over.is_empty(), under.is_empty()) {
            (_, true) => over,
            (true, false) => format!("1/{under}"),
            (false, false) => format!("{over}/{under}"),
        }
    }

    /// Example of a literal, such as `1us`; `None` for a plain number, and if the language has no unit of this
    /// dimension.
    pub fn example(self) -> Option<&'static str> {
        match (self.time, self.bytes, self.flops) {
            (1, 0, 0) => Some("1us"),
            (0, 1, 0) => Some("1MiB"),
            (-1, 1, 0) => Some("1GB/s"),
            (0, 0, 1) => Some("1GFLOP"),
            (-1, 0, 1) => Some("1TFLOP/s"),
            _ => None,
        }
    }

    /// Formats a value in base units: `1.5 ms`, `64 MiB`, `400 GB/s`.
    pub fn display(self, value: f64) -> String {
        match (self.time, self.bytes, self.flops) {
            (0, 0, 0) => plain(value),
            (1, 0, 0) => Nanos::rounded(value).to_string(),
            (0, 1, 0) if value >= 0.0 => Bytes(value.round() as u64).to_string(),
            (0, 0, 1) => Flops(value).to_string(),
            (-1, 0, 0) => Rate(value * 1e9, "/s").to_string(),
            (-1, 1, 0) => Rate(value * 1e9, "B/s").to_string(),
            (-1, 0, 1) => Rate(value * 1e9, "FLOP/s").to_string(),
            _ => format!("{} {}", plain(value), self.base_units()),
        }
    }

    /// Formats a value in base units in the named unit.
    pub fn display_in(self, value: f64, name: &str) -> String {
        match unit(name) {
            None => NamedCount(value * self.to_si(), name).to_string(),
            Some(unit) => {
                let value = unsigned_zero(value / unit.factor);
                let number = if value.fract() == 0.0 && value.abs() < 1e9 { format!("{value}") } else { digits(value) };
                format!("{number} {name}")
            }
        }
    }

    /// True if values can be expressed in a unit of that dimension. A plain number may count bytes or operations.
    pub fn fits(self, unit: Dimension) -> bool {
        self == unit || (self.time == unit.time && self.bytes == 0 && self.flops == 0)
    }

    /// Factor from base units to SI units: seconds instead of nanoseconds.
    pub fn to_si(self) -> f64 {
        1e-9f64.powi(i32::from(self.time))
    }
}

/// Formats a plain number.
pub fn plain(value: f64) -> String {
    let size = value.abs();
    if value.fract() == 0.0 && size < 1e15 {
        return format!("{:.0}", unsigned_zero(value));
    }
    match size {
        _ if size < 1e6 => digits(value),
        _ => NamedCount(value, "").to_string().trim_end().to_owned(),
    }
}

/// A unit of literals: name, dimension, and size in base units.
#[derive(Clone, Copy, Debug)]
pub struct Unit {
    pub name: &'static str,
    pub dimension: Dimension,
    /// Size in base units.
    pub factor: f64,
}

/// Every unit of the language.
pub static UNITS: &[Unit] = &{
    const fn unit(name: &'static str, dimension: Dimension, factor: f64) -> Unit {
        Unit { name, dimension, factor }
    }
    const RATE: Dimension = Dimension::new(-1, 1, 0);
    const FLOP_RATE: Dimension = Dimension::new(-1, 0, 1);
    const KIB: f64 = 1024.0;
    [
        unit("%", Dimension::NONE, 0.01),
        unit("ns", Dimension::TIME, 1.0),
        unit("us", Dimension::TIME, 1e3),
        unit("ms", Dimension::TIME, 1e6),
        unit("s", Dimension::TIME, 1e9),
        unit("B", Dimension::BYTES, 1.0),
        unit("KiB", Dimension::BYTES, KIB),
        unit("MiB", Dimension::BYTES, KIB * KIB),
        unit("GiB", Dimension::BYTES, KIB * KIB * KIB),
        unit("TiB", Dimension::BYTES, KIB * KIB * KIB * KIB),
        unit("KB", Dimension::BYTES, 1e3),
        unit("MB", Dimension::BYTES, 1e6),
        unit("GB", Dimension::BYTES, 1e9),
        unit("TB", Dimension::BYTES, 1e12),
        unit("B/s", RATE, 1e-9),
        unit("KB/s", RATE, 1e-6),
        unit("MB/s", RATE, 1e-3),
        unit("GB/s", RATE, 1.0),
        unit("TB/s", RATE, 1e3),
        unit("FLOP", Dimension::FLOPS, 1.0),
        unit("MFLOP", Dimension::FLOPS, 1e6),
        unit("GFLOP", Dimension::FLOPS, 1e9),
        unit("TFLOP", Dimension::FLOPS, 1e12),
        unit("FLOP/s", FLOP_RATE, 1e-9),
        unit("GFLOP/s", FLOP_RATE, 1.0),
        unit("TFLOP/s", FLOP_RATE, 1e3),
    ]
};

/// The unit of that name; `None` if there is none.
pub fn unit(name: &str) -> Option<&'static Unit> {
    UNITS.iter().find(|unit| unit.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_for_people() {
        assert_eq!(Nanos(950).to_string(), "950 ns");
        assert_eq!(Nanos(1_234).to_string(), "1.234 µs");
        assert_eq!(Nanos(-12_340).to_string(), "-12.34 µs");
        assert_eq!(Nanos(999_960).to_string(), "1.000 ms");
        assert_eq!(Nanos(9_999_960).to_string(), "10.00 ms");
        assert_eq!(Nanos(2_500_000_000).to_string(), "2.500 s");
        assert_eq!(Bytes(64 << 20).to_string(), "64 MiB");
        assert_eq!(Bytes(1536).to_string(), "1.500 KiB");
        assert_eq!(Rate(55.4e9, "B/s").to_string(), "55.40 GB/s");
        assert_eq!(NamedCount(1_234_567.0, "tokens/s").to_string(), "1.235M tokens/s");
        assert_eq!(NamedCount(12.0, "tokens/s").to_string(), "12 tokens/s");
        assert_eq!(plain(0.251_9), "0.2519");
        assert_eq!(plain(0.001_234_6), "0.001235");
        assert_eq!(plain(7.0), "7");
        assert_eq!(plain(2.5e7 + 0.5), "25.00M");
    }

    #[test]
    fn negative_zero_prints_as_zero() {
        let times = [Dimension::NONE, Dimension::TIME, Dimension::TIME.inverse()];
        let all = times.iter().flat_map(|time| [time.bytes, 1].map(|bytes| Dimension { bytes, ..*time }));
        for dimension in all.flat_map(|of| [of.flops, 1].map(|flops| Dimension { flops, ..of })) {
            assert_eq!(dimension.display(-0.0), dimension.display(0.0));
            for unit in UNITS.iter().map(|unit| unit.name).chain(["tokens/s", "kernels"]) {
                assert_eq!(dimension.display_in(-0.0, unit), dimension.display_in(0.0, unit), "{unit}");
            }
        }
        assert_eq!((Flops(-0.0).to_string(), Rate(-0.0, "B/s").to_string()), ("0 FLOP".into(), "0 B/s".into()));
    }

    #[test]
    fn prints_in_units_of_a_file() {
        assert_eq!(Dimension::TIME.display_in(1234.0, "s"), "1.234e-6 s");
        assert_eq!(Dimension::TIME.display_in(12_340_000.0, "s"), "0.01234 s");
        assert_eq!(Dimension::TIME.display_in(1234.0, "us"), "1.234 us");
        assert_eq!(Dimension::TIME.display_in(0.0, "us"), "0 us");
        assert_eq!(Dimension::NONE.display_in(0.25, "%"), "25 %");
        let per_time = Dimension::TIME.inverse();
        assert_eq!(per_time.display_in(337.1e-6, "kernels/s"), "337.1k kernels/s");
        assert_eq!(per_time.display_in(0.012_34e-9, "iterations/s"), "0.01234 iterations/s");
        let rate = Dimension { bytes: 1, ..per_time };
        assert_eq!(rate.display_in(55.4, "GB/s"), "55.40 GB/s");
        assert!(rate.fits(rate) && per_time.fits(rate));
        assert!(!rate.fits(Dimension::BYTES) && !Dimension::NONE.fits(Dimension::TIME));
    }
}
