//! Utilities for all other modules: source positions, ids, units, element types, shapes, suggestions.
//!
//! Independent of the language, devices and file systems.

pub mod around;
pub mod computing;
pub mod dims;
pub mod divisors;
pub mod dtype;
pub mod equal_by;
mod float8;
pub mod ids;
pub mod json;
pub mod named;
pub mod parallel;
pub mod plural;
pub mod random;
pub mod shell;
pub mod source_map;
pub mod space;
pub mod span;
pub mod stage;
pub mod suggest;
pub mod symbol;
pub mod threads;
pub mod units;
pub mod visible;
pub mod workflow;

pub use around::{Around, OnceBlock};
pub use dims::Dims;
pub use divisors::{gcd, lcm};
pub use dtype::DType;
pub use ids::*;
pub use plural::counted;
pub use source_map::SourceMap;
pub use space::Space;
pub use span::SrcSpan;
pub use symbol::{Interner, Symbol};
pub use units::{Bytes, Flops, Nanos, Rate};

/// Formats bytes as hexadecimal digits.
pub fn hex(bytes: impl AsRef<[u8]>) -> String {
    bytes.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}
