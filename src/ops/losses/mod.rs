//! Losses: `cross_entropy`, row comparisons, and elementwise losses of predictions and targets. All are implemented as
//! reductions and store only the loss.

mod cross_entropy;
mod distances;
mod elements;

pub use cross_entropy::CrossEntropy;
pub use distances::Distance;
pub use elements::{ElementLoss, Loss};
