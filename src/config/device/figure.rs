//! A figure of a device, with its source.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use crate::base::visible;

/// A figure, finite and not negative, and its source: a page, a measurement, or "assumed".
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SourcedFigure(
    #[serde(deserialize_with = "read_number")] pub f64,
    #[serde(deserialize_with = "visible::read_line")] pub String,
);

fn read_number<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    let number = f64::deserialize(from)?;
    match number.is_finite() && number >= 0.0 {
        true => Ok(number),
        false => Err(D::Error::custom(format!("a figure is a number from 0 on, not {number}"))),
    }
}

/// The unit of a figure, which determines the values that it can have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum FigureUnit {
    /// Bytes or operations per second.
    PerSecond,
    /// A part of 1.
    Share,
    /// A number of things.
    Count,
    Bytes,
    Nanoseconds,
}

impl FigureUnit {
    /// Why no device has this value, as a clause; `None` if one can have it. The limits keep sums of simulated times within
    /// the range of their integers.
    pub fn refusal(self, value: f64) -> Option<&'static str> {
        let (is_good, why) = match self {
            FigureUnit::PerSecond => ((1e6..=1e18).contains(&value), "a rate is 1e6 to 1e18 per second"),
            FigureUnit::Share => ((1e-3..=1.0).contains(&value), "a share is 0.001 to 1"),
            FigureUnit::Count => {
                ((1.0..=1e6).contains(&value) && value.fract() == 0.0, "a count is a whole number from 1 to 1000000")
            }
            FigureUnit::Bytes => ((1e4..=1e15).contains(&value), "a size is 1e4 to 1e15 bytes"),
            FigureUnit::Nanoseconds => ((0.0..=1e9).contains(&value), "a time is 0 to 1e9 ns"),
        };
        (!is_good).then_some(why)
    }
}

impl SourcedFigure {
    /// The figure 1 of a profile that does not give one.
    pub(in crate::config) fn one() -> SourcedFigure {
        SourcedFigure(1.0, "one: the profile does not say".to_owned())
    }

    /// The figure 0 of a profile that does not give one.
    pub(super) fn none() -> SourcedFigure {
        SourcedFigure(0.0, "none: the profile does not say".to_owned())
    }

    /// The value in base units: nanoseconds, bytes, operations, and rates per second.
    pub fn value(&self) -> f64 {
        self.0
    }
}
