//! The backends: GPUs, the CPU and the simulator, which are independent of each other.
//!
//! This is the only module that may contain `unsafe` code or call a vendor's library.

#![allow(unsafe_code, reason = "vendors' libraries are called from here and from nowhere else")]

mod collective;
mod crossings;
pub mod cuda;
pub mod emulate;
mod exhausted;
pub mod gpu;
pub mod hip;
pub mod host;
mod id_exchange;
mod libraries;
pub mod ranges;
pub mod rendezvous;
mod shared;
pub mod sim;
mod system;

pub use exhausted::{Allocator, end_threads_without_memory};
pub use libraries::SearchPaths;
pub use system::{leave, lock, preserving_ignored_hangup, terminal_columns, user_id};
