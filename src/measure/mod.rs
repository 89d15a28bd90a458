//! Session to record: warm-up, samples, statistics, metrics, expectations. Knows no backend.

mod metrics;
pub mod record;
mod run;
pub mod stats;
mod verify;

pub use metrics::totals;
pub use record::RunRecord;
pub use run::{Measured, Request, iterations, measure};
pub use verify::{Comparison, Question, Verification, buffers, compare, verify};
