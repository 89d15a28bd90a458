//! Chooses the algorithm of each matrix product and library call by timing candidates.

pub(super) mod final_choice;
pub(super) mod library;
pub(super) mod products;
pub(super) mod timing;
pub(super) mod trial;
