//! Losses: `cross_entropy` of rows, comparisons of rows, and losses that are an expression of each element and its target.
//! All are reductions, so that nothing but the loss is stored.

mod cross_entropy;
mod distances;
mod elements;

pub use cross_entropy::CrossEntropy;
pub use distances::Distance;
pub use elements::{ElementLoss, Loss};
