//! Types of the simulated machine's times, and of the numbers of its tasks, transfers and priorities.

use crate::model::Priority;

/// A time or duration in whole ns.
pub type Time = i64;

/// Number of a task in the order of submission, counted over the whole run.
pub type TaskId = u64;

/// Number of a transfer in progress.
pub type TransferId = u32;

/// Number of a priority; lower values are more urgent.
pub fn urgency(priority: Priority) -> i32 {
    match priority {
        Priority::High => -1,
        Priority::Normal => 0,
        Priority::Low => 1,
        Priority::Level(level) => level,
    }
}
