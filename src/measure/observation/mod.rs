//! Figures of observed iterations: operations, waiting, the chain of operations that an iteration waits for.

pub(super) mod analysis;
pub(super) mod arrivals;
pub(super) mod balance;
pub mod counters;
pub(super) mod engine_waits;
pub(super) mod observed;
pub(super) mod occupied;
pub(super) mod operations;
pub(super) mod plausible;
pub(super) mod queue_waits;
pub mod skew;
pub(super) mod slowdown_while_waiting;
pub(super) mod solo_durations;
pub(super) mod spans;
pub(super) mod split;
pub(super) mod subject;
pub(super) mod usual_share;
pub mod verdict;
pub(super) mod waiting;
