//! Times of the simulated machine, and numbers of its tasks and transfers.

/// A time or duration in whole ns.
pub type Time = i64;

/// Number of a task, counted over the whole run.
pub type TaskId = u64;

/// Number of a transfer in progress.
pub type TransferId = u32;
