//! Groups of ranks, and copies between ranks.

pub(super) mod group;
pub(super) mod mesh;
pub(super) mod peers;
