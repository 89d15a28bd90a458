//! Iterations over time: traces for viewers, rates of an iteration, and its timeline in letters.

pub(super) mod chrome_trace;
pub(super) mod common_clock;
pub(super) mod kineto;
pub(super) mod pftrace;
pub(super) mod rates;
pub(super) mod timeline;
