//! Properties of a large GPU by which kernels choose their grids and blocks.
//!
//! Every device of a run has the same constants, so that the kernels, their costs and the order of summation are the same, too.

use super::kernel::BLOCK;
use crate::ops::{Cost, Tensor};

/// Streaming multiprocessors of the device that kernels are tuned for: an H200 has 132 (NVIDIA H200 data sheet).
pub const UNITS: u64 = 132;

/// Maximum number of resident threads of an SM or compute unit: 2048 for compute capabilities 8.0 and 9.0 (CUDA C++
/// Programming Guide, "Technical Specifications per Compute Capability"), and 32 wavefronts of 64 for AMD's CDNA.
pub const UNIT_THREADS: u64 = 2048;

/// Shared memory of an SM in bytes: 228 KiB for compute capability 9.0 (CUDA C++ Programming Guide, "Technical Specifications per
/// Compute Capability").
pub const UNIT_SHARED: u64 = 228 << 10;

/// Size in bytes of the first-level cache of an SM, of which shared memory is a part: 256 KB for compute capability 9.0 (NVIDIA H100 Tensor Core
/// GPU Architecture, "H100 SM Architecture").
pub const UNIT_CACHE: u64 = 256 << 10;

/// Bytes of [`UNIT_SHARED`] that the system reserves for each resident block (the same section).
pub const RESERVED_SHARED: u64 = 1 << 10;

/// Maximum shared memory in bytes of a block whose kernel needs no attribute for more (the same section).
pub const DEFAULT_SHARED: u64 = 48 << 10;

/// Number of registers of 32 bits of an SM (the same table).
pub const UNIT_REGISTERS: u64 = 64 << 10;

/// Size of the second-level cache in bytes: 50 MB (NVIDIA H100 Tensor Core GPU Architecture, "H100 GPU Full Details").
pub const CACHE: u64 = 50 << 20;

/// Maximum number of threads of a block, on CUDA and HIP.
pub const LARGEST_BLOCK: u64 = 1024;

/// Maximum number of blocks of a cluster that every device with clusters can start (CUDA C++ Programming Guide, "Thread Block
/// Clusters").
pub const LARGEST_CLUSTER: u64 = 8;

/// Threads of a block that processes several short rows.
pub const ROWS_BLOCK: u64 = 128;

/// Granularity of memory accesses in bytes: a sector of a cache line.
pub const SECTOR: u64 = 32;

/// Size of a cache line in bytes. An access of a warp looks up one line after another.
pub const LINE: u64 = 4 * SECTOR;

/// Average number of sectors that hold a part of a row of this many bytes, over all rows of a contiguous tensor.
pub fn sectors_of(bytes: u64) -> f64 {
    let divisor = 1 << bytes.trailing_zeros().min(SECTOR.ilog2());
    (bytes + SECTOR - divisor) as f64 / SECTOR as f64
}

/// Instructions of threads that an SM could issue while its first-level cache looks up a line, which takes a cycle.
pub const PER_LINE: f64 = 4.0 * WARP as f64;

/// Average number of cache lines of a run of elements whose first and last one are this many bytes apart.
pub fn lines_of(bytes: u64) -> f64 {
    1.0 + bytes as f64 / LINE as f64
}

/// Bytes that the device's memory moves at once: two sectors.
pub const MOVED_AT_ONCE: u64 = 2 * SECTOR;

/// Number of bytes that the device's memory moves for a tensor with gaps, beyond those of its elements: it reads [`MOVED_AT_ONCE`] bytes
/// at once, and reads the rest of a sector that is partly written.
pub fn gap_bytes(tensor: &Tensor, is_written: bool) -> u64 {
    if tensor.contiguous() || tensor.space.in_host() {
        return 0;
    }
    let size = tensor.dtype.size();
    let mut dims: Vec<(u64, u64)> =
        tensor.dims.iter().copied().zip(tensor.strides.iter().map(|stride| stride * size)).collect();
    dims.retain(|&(count, stride)| count > 1 && stride > 0);
    dims.sort_by_key(|&(_, stride)| stride);
    let piece = if is_written { SECTOR } else { MOVED_AT_ONCE };
    // Neighbouring elements, or runs of them, that share all pieces form a longer run.
    let (mut run, mut runs, mut elements, mut divisor) = (size, 1, size, piece);
    for (count, stride) in dims {
        elements *= count;
        match runs == 1 && stride <= run.max(piece) {
            true => run += stride * (count - 1),
            false => {
                runs *= count;
                divisor = divisor.min(1 << stride.trailing_zeros().min(piece.ilog2()));
            }
        }
    }
    let whole = elements == run * runs;
    let divisor = divisor.min(1 << run.trailing_zeros().min(piece.ilog2()));
    let pieces = runs as f64 * (run + piece - divisor) as f64 / piece as f64;
    let moved = pieces * piece as f64;
    let partly = match is_written {
        true if whole => (moved - elements as f64).min(runs as f64 * 2.0 * SECTOR as f64),
        true => moved,
        false => 0.0,
    };
    (moved + partly - elements as f64).max(0.0) as u64
}

/// Bytes of its memory that an H100 moves per ns.
pub const BANDWIDTH: f64 = 2970.0;
/// Instructions of its threads that an H100 issues per ns.
pub const INSTRUCTIONS: f64 = 24e3;
/// Operations of products per ns by the matrix units of an H100, in 16-bit types.
pub const MATRIX_OPERATIONS: f64 = 720e3;
/// Operations of products per ns by the vector units of an H100.
pub const VECTOR_OPERATIONS: f64 = 51e3;
/// Time in ns of a launch on an H100.
pub const LAUNCH: f64 = 1600.0;

/// Threads of a warp, which can exchange values by shuffles. A wavefront of 64 counts as two warps.
pub const WARP: u64 = 32;

/// Number of blocks that keeps all SMs busy: two per SM, so that one computes while the other waits for memory.
pub const BUSY_BLOCKS: u64 = 2 * UNITS;

/// Number of blocks of [`BLOCK`] threads that can be resident on the whole device.
pub const RESIDENT_BLOCKS: u64 = UNITS * UNIT_THREADS / BLOCK as u64;

/// Number of blocks of this many threads with this many registers each that an SM can run at the same time.
pub fn resident_blocks(threads: u64, registers: u64) -> u64 {
    (UNIT_THREADS / threads).min(UNIT_REGISTERS / (threads * registers.next_multiple_of(8)))
}

/// Part of an SM that a block of this many threads with this many registers each occupies, in units of [`Cost::share`].
pub fn share_with(threads: u64, registers: u64) -> u32 {
    share_among(resident_blocks(threads.max(1), registers.max(1))).max(share(threads))
}

/// Part of an SM that a block occupies if this many are resident at the same time, in units of [`Cost::share`].
pub fn share_among(blocks: u64) -> u32 {
    u64::from(Cost::WHOLE_UNIT).div_ceil(blocks.max(1)) as u32
}

/// Part of an SM that a block of this many threads occupies, in units of [`Cost::share`].
pub fn share(threads: u64) -> u32 {
    ((threads * u64::from(Cost::WHOLE_UNIT)).div_ceil(UNIT_THREADS) as u32).max(1)
}
