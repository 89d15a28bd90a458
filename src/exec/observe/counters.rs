//! Hardware events that a vendor's library counts while one operation runs alone, and the compute units that kernels report.

use serde::{Deserialize, Serialize};

use crate::base::OpId;

/// A vendor's library that counts while one operation runs alone. The errors are reasons in words why it cannot.
pub trait Counters: Send {
    /// Begins the next pass. The device must be idle.
    fn begin(&mut self) -> Result<(), String>;

    /// Ends the pass. The device must be idle again. Returns true once all passes are complete.
    fn end(&mut self) -> Result<bool, String>;

    /// Returns the counts of the complete passes, and starts anew.
    fn values(&mut self) -> Result<Vec<CounterValue>, String>;
}

/// A quantity that a device counted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CounterValue {
    /// The vendor's name of the metric, or those of a ratio.
    pub metric: String,
    /// The quantity in words for reports, such as `read from device memory`.
    pub text: String,
    /// Unit of the value: `%` or `B`.
    pub unit: String,
    /// The value; `None` if the vendor's library refuses the metric on this device.
    pub value: Option<f64>,
}

/// The counts of an operation that ran alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CountedOperation {
    pub op: OpId,
    /// Number of times that the operation ran until all counts were complete.
    pub passes: u64,
    pub counts: Vec<CounterValue>,
}

/// The blocks of an operation's kernels that one compute unit ran in one iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitBlocks {
    /// The device's number of the compute unit.
    pub unit: u32,
    /// Number of blocks, at least 1.
    pub blocks: u32,
}
