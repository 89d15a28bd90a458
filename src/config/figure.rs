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

impl SourcedFigure {
    /// The figure 1 of a profile that does not give one.
    pub(super) fn one() -> SourcedFigure {
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
