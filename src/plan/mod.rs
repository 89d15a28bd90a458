//! From program to plan: the graph of dependencies with their reasons.
//!
//! Independent of devices and real streams. The only module that uses petgraph.

mod accesses;
mod affine;
mod clock;
mod clocks;
mod critical_path;
mod error;
mod graph;
mod hazards;
mod latest;
mod lint;
mod races;
pub mod ranks;
mod regions;
mod remedy;

pub use clocks::{Clocks, QueuePosition};
pub use critical_path::{CriticalPath, Timing};
pub use error::PlanError;
pub use graph::{Across, Edge, Hazard, Plan, Reason, StepPlan};
pub use latest::Latest;
pub use lint::{PlanWarning, lint};
pub use ranks::Rank;

use crate::model::Program;

/// Finds every dependency of the program, and races if the file declares its order itself.
pub fn build(program: &Program) -> Result<Plan, Vec<PlanError>> {
    hazards::find(program, true)
}
