//! Session to record: warm-up, samples, statistics, metrics, expectations. Knows no backend.

mod alone;
mod bus;
pub mod definitions;
mod doubts;
mod metrics;
mod observed;
mod plausible;
pub mod record;
mod run;
pub mod series;
mod spans;
pub mod stats;
mod variant;
mod verify;
mod warmup;

pub use metrics::totals;
pub use record::RunRecord;
pub use run::{Measured, RankRequest, Request, iterations, measure};
pub use verify::{Comparison, Question, Verification, buffers, compare, verify};

#[cfg(test)]
mod tests;
