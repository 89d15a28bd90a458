//! What runs operations: a simulator, the CPU, GPUs. Siblings that know nothing of each other.
//!
//! The only code that may be `unsafe`, and the only one that knows a vendor's library.

pub mod host;
pub mod sim;
