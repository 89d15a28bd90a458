//! Turns sessions into records: warm-up, samples, statistics, metrics, expectations, verification, comparisons.
//! Independent of backends.

mod comparison;
#[cfg(test)]
#[expect(dead_code, reason = "the program `suite` uses the rest")]
#[path = "../../tests/common/effort.rs"]
mod effort;
mod metrics;
mod observation;
pub mod record;
mod request;
mod run;
mod statistics;
mod verify;

pub use comparison::{ab, cases, compare, kernelbench, order, scaling, search};
pub use metrics::{definitions, expected, metric_unit, work::totals};
pub use observation::{counters, skew, verdict};
pub use record::{RunRecord, pace, rate};
pub use request::{Measured, Request};
pub use run::contents::buffers;
pub use run::variant::STOPPED_OPERATIONS;
pub use run::warm_session::{BlockResult, WarmSession, WarmSessionOptions};
pub use run::{iterations, measure};
pub use statistics::{direction, effect, paired, series, stats};
pub use verify::{OutputDifference, Verification, VerifyRequest, compare, verify};

#[cfg(test)]
mod tests;
