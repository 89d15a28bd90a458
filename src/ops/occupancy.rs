//! Figures of large GPUs by which kernels choose their blocks.
//!
//! The figures do not depend on the device of a run, so that kernels, costs and the order of sums do not either.

use super::Cost;
use super::kernel::BLOCK;

/// Streaming multiprocessors of the device that kernels are tuned for: an H200 has 132 (NVIDIA H200 data sheet).
pub const UNITS: u64 = 132;

/// Threads that a compute unit holds at the same time: 2048 for compute capabilities 8.0 and 9.0 (CUDA C++ Programming
/// Guide, "Technical Specifications per Compute Capability"), and 32 wavefronts of 64 for AMD's CDNA.
pub const UNIT_THREADS: u64 = 2048;

/// Shared memory of a compute unit in bytes: 228 KiB for compute capability 9.0, of which 1 KiB is the system's for each
/// block (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability").
pub const UNIT_SHARED: u64 = 228 << 10;

/// The largest block that CUDA and HIP launch, in threads.
pub const LARGEST_BLOCK: u64 = 1024;

/// Threads of a block that has several short rows.
pub const ROWS_BLOCK: u64 = 128;

/// Bytes that memory moves at least for an access: a sector of a cache line.
pub const SECTOR: u64 = 32;

/// Threads of a warp, which exchange values without shared memory. A wavefront of 64 counts as two.
pub const WARP: u64 = 32;

/// Blocks that occupy every unit: two for each, so that one computes while the other waits for memory.
pub const BUSY_BLOCKS: u64 = 2 * UNITS;

/// Blocks of [`BLOCK`] threads that the whole device holds at the same time.
pub const RESIDENT_BLOCKS: u64 = UNITS * UNIT_THREADS / BLOCK as u64;

/// The share of a compute unit that a block of so many threads occupies, in the unit of [`Cost::share`].
pub fn share(threads: u64) -> u32 {
    ((threads * u64::from(Cost::WHOLE_UNIT)).div_ceil(UNIT_THREADS) as u32).max(1)
}
