//! Types of the simulated machine's times, and of the numbers of its tasks and transfers.

/// A time or duration in whole ns.
pub type Time = i64;

/// Number of a task in the order of submission, counted over the whole run.
pub type TaskId = u64;

/// Number of a transfer in progress.
pub type TransferId = u32;
