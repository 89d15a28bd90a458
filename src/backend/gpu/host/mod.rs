//! Work of the host within an iteration: threads of host streams, files, and pageable memory.

pub(super) mod file_read;
pub(super) mod lanes;
pub(super) mod pageable;
pub(super) mod work;
