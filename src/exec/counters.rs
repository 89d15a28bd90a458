//! Hardware events that a vendor's library counts while one operation runs alone.

use serde::{Deserialize, Serialize};

use crate::base::OpId;

/// A quantity that a device counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// The vendor's name.
    pub name: &'static str,
    /// Its meaning, such as `read from device memory`.
    pub text: &'static str,
    /// `%` or `B`.
    pub unit: &'static str,
}

/// A vendor's library that counts while one operation runs alone. The errors say in words why it cannot.
pub trait Counters: Send {
    /// The metrics that are counted.
    fn metrics(&self) -> &[Metric];

    /// Begins the next pass. The device is idle.
    fn begin(&mut self) -> Result<(), String>;

    /// Ends the pass, when the device is idle again. Returns true once all passes are complete.
    fn end(&mut self) -> Result<bool, String>;

    /// Returns the value of each metric, and begins anew.
    fn values(&mut self) -> Result<Vec<f64>, String>;
}

/// A value that a device counted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Count {
    /// The vendor's name of the metric.
    pub metric: String,
    /// Its meaning, such as `read from device memory`.
    pub text: String,
    /// `%` or `B`.
    pub unit: String,
    pub value: f64,
}

/// What the device counted while an operation ran alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Counted {
    pub op: OpId,
    /// Number of times that the operation ran for it.
    pub passes: u64,
    pub counts: Vec<Count>,
}
