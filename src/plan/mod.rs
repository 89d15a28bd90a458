//! Plans a program: finds the dependencies between its operations, each with its reason.
//!
//! This module knows neither devices nor real streams. No other module uses petgraph.

mod accesses;
mod affine;
mod callers;
mod clock;
mod clocks;
mod critical_path;
mod error;
mod flow;
mod graph;
mod hazards;
mod last_accesses;
mod lint;
mod races;
pub mod ranks;
mod regions;
mod remedy;

pub use clocks::{Clocks, QueuePosition};
pub use critical_path::{CriticalPath, TimeBounds};
pub use error::PlanError;
pub use flow::{Flow, InputUse};
pub use graph::{Edge, Hazard, Plan, Reason, StepPlan};
pub use last_accesses::LastAccesses;
pub use lint::{PlanWarning, lint};
pub use ranks::RankPlan;

use std::sync::Arc;

use crate::model::Program;

/// Finds all dependencies of a program and of its blocks around the iterations. The error has the races of a file that
/// declares its own order, and memories with too many overlapping slices.
pub fn build(program: &Program) -> Result<Plan, Vec<PlanError>> {
    let plan = hazards::find(program, true)?;
    let around = program.around.as_ref().try_map(|block| build(block).map(Arc::new))?;
    Ok(Plan { around, ..plan })
}
