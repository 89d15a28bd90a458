//! Comparisons of several runs, and the files of their records.

pub mod ab;
pub mod cases;
pub mod compare;
pub mod kernelbench;
pub mod order;
pub mod scaling;
pub mod search;
pub(super) mod valid;
