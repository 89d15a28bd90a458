//! Operations that order the elements of rows.

pub(super) mod sort;
pub(super) mod top_k;
