//! Types of settings: how RON represents a value, and which values are allowed.

use std::ops::RangeInclusive;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::base::units::{self, Dimension};
use crate::base::{Bytes, Nanos};

/// Largest number of iterations of a run, and of its warm-up.
pub const MAX_ITERATIONS: u32 = 1 << 20;

/// Numbers of warm-up and measured iterations of an effort.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EffortPlan {
    pub warmup: u32,
    pub iterations: u32,
}

/// The type of a setting.
pub(in crate::config) trait SettingValue: Sized {
    /// The representation in RON.
    type Repr: DeserializeOwned + Clone;

    /// Words that a value can be; empty for numbers and names.
    const WORDS: &[&str] = &[];

    /// Converts the RON representation. A number must be in `range`, if there is one.
    fn read(written: Self::Repr, range: Option<RangeInclusive<u64>>) -> Result<Self, InvalidValue>;

    /// The value as `--config` takes it, without loss.
    fn text(&self) -> String;
}

/// Reason why a setting cannot have a value.
pub(in crate::config) struct InvalidValue {
    /// The part of the setting that is wrong, such as `.warmup`; empty for all of it.
    pub part: &'static str,
    pub value: String,
    pub why: String,
}

impl InvalidValue {
    fn new(value: impl ToString, why: &str) -> InvalidValue {
        InvalidValue { part: "", value: value.to_string(), why: why.to_owned() }
    }
}

fn in_range<T: Copy + ToString + TryInto<u64>>(
    number: T,
    range: Option<RangeInclusive<u64>>,
) -> Result<T, InvalidValue> {
    match range.filter(|range| !number.try_into().is_ok_and(|number| range.contains(&number))) {
        None => Ok(number),
        Some(range) => {
            Err(InvalidValue::new(number, &format!("it lies between {} and {}", range.start(), range.end())))
        }
    }
}

macro_rules! numbers {
    ($($type:ty),+) => {$(
        impl SettingValue for $type {
            type Repr = $type;

            fn read(written: $type, range: Option<RangeInclusive<u64>>) -> Result<$type, InvalidValue> {
                in_range(written, range)
            }

            fn text(&self) -> String {
                self.to_string()
            }
        }
    )+};
}

numbers!(u32, u64, usize);

/// A type whose values RON holds as they are.
macro_rules! as_written {
    ($type:ty, $words:expr, $value:ident => $text:expr) => {
        impl $crate::config::values::value::SettingValue for $type {
            type Repr = $type;
            const WORDS: &[&str] = $words;

            fn read(
                written: $type,
                _: Option<std::ops::RangeInclusive<u64>>,
            ) -> Result<$type, $crate::config::values::value::InvalidValue> {
                Ok(written)
            }

            fn text(&self) -> String {
                let $value = self;
                $text
            }
        }
    };
}

as_written!(bool, &["true", "false"], value => value.to_string());
as_written!(String, &[], value => value.clone());

pub(super) use as_written;

impl SettingValue for EffortPlan {
    type Repr = EffortPlan;

    fn read(plan: EffortPlan, _: Option<RangeInclusive<u64>>) -> Result<EffortPlan, InvalidValue> {
        let most = u64::from(MAX_ITERATIONS);
        in_range(plan.warmup, Some(0..=most)).map_err(|wrong| InvalidValue { part: ".warmup", ..wrong })?;
        in_range(plan.iterations, Some(1..=most)).map_err(|wrong| InvalidValue { part: ".iterations", ..wrong })?;
        Ok(plan)
    }

    fn text(&self) -> String {
        format!("(warmup: {}, iterations: {})", self.warmup, self.iterations)
    }
}

/// A name; `auto` is `None`.
impl SettingValue for Option<String> {
    type Repr = String;

    fn read(written: String, _: Option<RangeInclusive<u64>>) -> Result<Option<String>, InvalidValue> {
        Ok(Some(written).filter(|name| name != "auto"))
    }

    fn text(&self) -> String {
        self.clone().unwrap_or_else(|| "auto".to_owned())
    }
}

impl SettingValue for Nanos {
    type Repr = String;

    fn read(written: String, _: Option<RangeInclusive<u64>>) -> Result<Nanos, InvalidValue> {
        measured(written, Dimension::TIME, i64::MAX as f64, "a time", "60s or 1.5ms").map(|time| Nanos(time as i64))
    }

    fn text(&self) -> String {
        format!("{}ns", self.0)
    }
}

impl SettingValue for Bytes {
    type Repr = String;

    fn read(written: String, _: Option<RangeInclusive<u64>>) -> Result<Bytes, InvalidValue> {
        measured(written, Dimension::BYTES, u64::MAX as f64, "a size", "80GiB or 1.5TiB")
            .map(|bytes| Bytes(bytes as u64))
    }

    fn text(&self) -> String {
        format!("{}B", self.0)
    }
}

/// A number with a unit, in base units, at least 1 and less than `end`. `what` is the quantity, and `examples` are texts of it, for
/// messages.
fn measured(text: String, dimension: Dimension, end: f64, what: &str, examples: &str) -> Result<f64, InvalidValue> {
    match quantity(&text, dimension) {
        None if text.contains(|c: char| c.is_alphabetic() || c == '-') => Err(InvalidValue::new(
            text,
            &format!("{what} is a positive number in digits and its unit, such as {examples}"),
        )),
        None => Err(InvalidValue::new(text, &format!("{what} has its unit, such as {examples}"))),
        Some(value) if value < 1.0 => Err(InvalidValue::new(text, "it is too small")),
        Some(value) if value >= end => Err(InvalidValue::new(text, "it is too large")),
        Some(value) => Ok(value),
    }
}

/// Parses a number with a unit, such as `60s` or `1.5TiB`, to base units; `None` if it is no number with a unit of that dimension.
fn quantity(text: &str, dimension: Dimension) -> Option<f64> {
    let split = text.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
    let (number, unit) = text.split_at(split);
    let unit = units::unit(unit.trim()).filter(|unit| unit.dimension == dimension)?;
    Some(number.parse::<f64>().ok()? * unit.factor)
}
