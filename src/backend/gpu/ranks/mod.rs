//! Communicators, and copies between the devices of ranks.

pub(super) mod comms;
pub(super) mod flags;
pub(super) mod inter_process;
pub(super) mod peers;
