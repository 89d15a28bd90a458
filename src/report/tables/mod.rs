//! Tables and tensors as files.

pub(super) mod csv;
pub(super) mod npy;
