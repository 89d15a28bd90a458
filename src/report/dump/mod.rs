//! Text forms of each compilation stage, for `aorta dump`.
//!
//! Meant for people who work on aorta, and for tests. Source locations are left out, so that a dump changes only if the
//! meaning does.

mod figures;
mod model;
mod plan;
mod schedule;
mod trace;
mod work;

pub use model::model;
pub use plan::plan;
pub use schedule::schedule;
pub use trace::trace;
pub use work::{computes, initial_values, plan_hash, work};

use crate::base::OpId;
use crate::model::{Program, Step};

/// The heading of an operation, such as `#3 map act`.
fn operation(program: &Program, step: &Step, op: OpId) -> String {
    let info = step.op(op);
    let (name, label) = (program.op_name(info), program.op_text(info));
    if name == label { format!("#{} {name}", op.0) } else { format!("#{} {name} {label}", op.0) }
}

/// The heading of a slot.
fn iteration(program: &Program, index: usize) -> String {
    format!("slot {index} of {}\n", program.cycle.len())
}
