//! Limits of a program that no setting raises: they keep any file from exhausting memory or the stack.
//!
//! The others are settings: see [`Options`](super::Options) and [`Limits`](crate::syntax::Limits).

/// Streams of a program.
pub const STREAMS: u64 = 4096;

/// Buffers along one index of a family.
pub const BUFFERS: u64 = 1 << 24;

/// Calls of definitions inside one another.
pub const CALLS: usize = 32;

/// Turns of loops for each operation that is allowed; a call is as much as an operation.
pub const TURNS_PER_OPERATION: usize = 4;

/// The longest cycle of iterations that is worked out ahead.
pub const CYCLE: u64 = 4096;

/// Values in a list and in the lists inside.
pub const LIST: usize = 1 << 16;

/// Lists inside one another: what works on them recurses that deep.
pub const LIST_DEPTH: usize = 16;

/// Values in all lists that a file works out: those that are kept take two hundred megabytes.
pub const MEMBERS: usize = 1 << 22;

/// Figures in all families of a file: each is worked out from every operation that was observed.
pub const FIGURES: usize = 4096;

/// Tensors that one elementwise expression may name.
pub const INPUTS: usize = 16;
