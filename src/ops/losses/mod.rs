//! Losses: `cross_entropy` of rows, and those that are an expression of each element and its target. All are reductions,
//! so that nothing but the loss is stored.

mod cross_entropy;
mod elements;

pub use cross_entropy::CrossEntropy;
pub use elements::{ElementLoss, Formula};
