//! Losses: `cross_entropy`, row comparisons, and elementwise losses of predictions and targets. All are implemented as
//! reductions and store only the loss.

mod cross_entropy;
mod cross_entropy_gradient;
mod distances;
mod elements;

pub use cross_entropy::CrossEntropy;
pub use cross_entropy_gradient::CROSS_ENTROPY_GRADIENT;
pub use distances::Distance;
pub use elements::{ElementLoss, Loss};
