//! What every other module may use: source positions, ids, units, element types, shapes, suggestions.
//!
//! Nothing here knows the language, a device or a file system.

pub mod computing;
pub mod dims;
pub mod divisors;
pub mod dtype;
pub mod ids;
pub mod json;
pub mod parallel;
pub mod plural;
pub mod random;
pub mod shell;
pub mod source_map;
pub mod space;
pub mod span;
pub mod suggest;
pub mod symbol;
pub mod units;
pub mod visible;
pub mod workflow;

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

/// Bytes as hexadecimal digits.
pub fn hex(bytes: impl AsRef<[u8]>) -> String {
    bytes.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}
