//! Turns sessions into records: warm-up, samples, statistics, metrics, expectations, verification, comparisons.
//! Independent of backends.

pub mod ab;
mod alone;
mod analysis;
mod arrivals;
mod balance;
mod beside;
mod blocks;
pub mod cases;
pub mod compare;
mod contents;
pub mod counters;
pub mod definitions;
mod device;
pub mod direction;
mod doubts;
pub mod effect;
#[cfg(test)]
#[expect(dead_code, reason = "the program `suite` uses the rest")]
#[path = "../../tests/common/effort.rs"]
mod effort;
mod evidence;
pub mod expected;
pub mod kernelbench;
mod metrics;
mod new_record;
#[cfg(test)]
mod noise;
mod observed;
mod occupied;
mod operations;
pub mod order;
pub mod pace;
pub mod paired;
mod plausible;
mod quantile;
mod queue_waits;
pub mod rate;
pub mod record;
mod request;
mod run;
mod sampled;
pub mod scaling;
pub mod search;
pub mod series;
pub mod skew;
mod slots;
mod spans;
mod split;
pub mod stats;
mod subject;
mod summary;
mod times;
mod usual;
mod valid;
mod variant;
pub mod verdict;
mod verify;
mod waiting;
mod warm_session;
mod warmup;
mod work;

pub use contents::buffers;
pub use metrics::metric_unit;
pub use record::RunRecord;
pub use request::{Measured, Request};
pub use run::{iterations, measure};
pub use variant::STOPPED_OPERATIONS;
pub use verify::{OutputDifference, Verification, VerifyRequest, compare, verify};
pub use warm_session::{BlockResult, WarmSession, WarmSessionOptions};
pub use work::totals;

#[cfg(test)]
mod tests;
