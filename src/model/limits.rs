//! Fixed limits of a program, so that no file exhausts memory or the stack.
//!
//! Other limits are settings: see [`AnalysisOptions`](super::AnalysisOptions) and
//! [`SyntaxLimits`](crate::syntax::SyntaxLimits).

/// Maximum number of streams of a program.
pub const STREAMS: u64 = 4096;

/// Maximum number of buffers along one index of a family.
pub const BUFFERS: u64 = 1 << 24;

/// Maximum nesting of calls of definitions.
pub const CALLS: usize = 32;

/// Maximum number of turns of loops in a program, as a multiple of its maximum number of operations. A call of a
/// definition counts as this many turns.
pub const TURNS_PER_OPERATION: usize = 4;

/// Longest cycle, in iterations.
pub const CYCLE: u64 = 4096;

/// Maximum number of values in a list, including nested lists.
pub const LIST: usize = 1 << 16;

/// Maximum nesting of lists, which limits recursion.
pub const LIST_DEPTH: usize = 16;

/// Maximum number of values in all lists of a file, which take up to two hundred megabytes.
pub const MEMBERS: usize = 1 << 22;

/// Maximum number of metrics in all families of a file: each is evaluated over every observed operation.
pub const FIGURES: usize = 4096;

/// Maximum number of tensors in one elementwise expression.
pub const INPUTS: usize = 16;

/// Maximum number of threads of a block of a declared kernel, with CUDA and HIP.
pub const BLOCK_THREADS: u32 = 1024;

/// Maximum dynamic shared memory of a block of a declared kernel, in bytes, on any device.
pub const MAX_SHARED_MEMORY: u32 = 1 << 20;
