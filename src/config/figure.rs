//! A figure of a device, with its source.

use serde::{Deserialize, Serialize};

use crate::base::visible;

/// A figure and its source: a page, a measurement, or "assumed".
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SourcedFigure(pub f64, #[serde(deserialize_with = "visible::read_line")] pub String);

impl SourcedFigure {
    /// The figure 1 of a profile that does not give one.
    pub(super) fn one() -> SourcedFigure {
        SourcedFigure(1.0, "one: the profile does not say".to_owned())
    }

    /// The figure 0 of a profile that does not give one.
    pub(super) fn none() -> SourcedFigure {
        SourcedFigure(0.0, "none: the profile does not say".to_owned())
    }

    pub fn value(&self) -> f64 {
        self.0
    }
}
