//! Holds iterations until they are issued, and reads the device's timer.

pub(super) mod gate;
pub mod stamps;
