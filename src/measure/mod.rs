//! Session to record: warm-up, samples, statistics, metrics, expectations. Knows no backend.

mod doubts;
mod metrics;
pub mod record;
mod run;
pub mod series;
pub mod stats;
mod verify;
mod warmup;

pub use metrics::totals;
pub use record::RunRecord;
pub use run::{Measured, Request, iterations, measure};
pub use verify::{Comparison, Question, Verification, buffers, compare, verify};
