//! Plans a program: builds the graph of dependencies with their reasons.
//!
//! Independent of devices and real streams. The only module that uses petgraph.

mod accesses;
mod affine;
mod clock;
mod clocks;
mod critical_path;
mod error;
mod flow;
mod graph;
mod hazards;
mod latest;
mod lint;
mod races;
pub mod ranks;
mod regions;
mod remedy;

pub use clocks::{Clocks, QueuePosition};
pub use critical_path::{CriticalPath, TimeBounds};
pub use error::PlanError;
pub use flow::{Flow, InputUse};
pub use graph::{CrossIterationEdge, Edge, Hazard, Plan, Reason, StepPlan};
pub use latest::Latest;
pub use lint::{PlanWarning, lint};
pub use ranks::RankPlan;

use std::sync::Arc;

use crate::model::Program;

/// Finds every dependency of the program and of the blocks around its iterations, and races if the file declares its order itself.
pub fn build(program: &Program) -> Result<Plan, Vec<PlanError>> {
    let plan = hazards::find(program, true)?;
    let around = program.around.as_ref().try_map(|block| build(block).map(Arc::new))?;
    Ok(Plan { around, ..plan })
}
