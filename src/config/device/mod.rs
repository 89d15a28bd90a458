//! Describes devices: their figures, links and partitions, and the normal ranges of metrics.

pub mod expected;
pub(super) mod figure;
pub(super) mod links;
pub(super) mod partition;
pub(super) mod profile;
