//! Session to record: warm-up, samples, statistics, metrics, expectations. Knows no backend.

mod alone;
mod analysis;
mod blocks;
pub mod cases;
pub mod compare;
pub mod definitions;
mod device;
mod doubts;
pub mod effect;
mod metrics;
mod observed;
mod operations;
mod plausible;
mod quantile;
pub mod record;
mod run;
pub mod scaling;
pub mod series;
pub mod skew;
mod spans;
mod split;
pub mod stats;
mod steady;
mod variant;
pub mod verdict;
mod verify;
mod visits;
mod warmup;

pub use metrics::totals;
pub use record::RunRecord;
pub use run::{Measured, RankRequest, Request, iterations, measure};
pub use verify::{Comparison, Question, Verification, buffers, compare, verify};

#[cfg(test)]
mod tests;
