//! Kernels: compiled by the host's C++ compiler, loaded as shared objects, run block by block.

mod block;
mod compile;
mod fiber;
mod module;

pub use block::Grid;
pub use compile::{Program, compile};
pub use module::{FUNCTIONS, MODULES, Module, launch};
