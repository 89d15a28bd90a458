//! Prepares a device and an image: probes hardware queues and copy units, compiles kernels, resolves calls.

pub(super) mod copy_units;
pub(super) mod declared;
pub(super) mod disk_cache;
pub(super) mod kernels;
pub(super) mod lower;
pub(super) mod opening;
pub(super) mod queues;
pub(super) mod streams;
pub(super) mod timer;
