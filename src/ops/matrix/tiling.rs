//! How the vendors' libraries divide a product among blocks, as far as its time depends on it.
//!
//! Compared with 300 random products on an H200, the times that follow are off by a factor of 1.4 on average
//! (docs/measurements/2026-11-23-unseen-shapes.md).

use super::super::occupancy::UNITS;
use super::*;

/// Rows and columns of the part of the result that one block computes. The libraries use larger parts where there are many,
/// and smaller ones where there are few; this lies between.
const TILE: u64 = 64;

/// The same where each row and each column has a factor: few tiles take as long as if all were of this size.
const SCALED_TILE: u64 = 128;

/// Depth of a block at least, where blocks share the depth since there are fewer tiles than compute units.
const LEAST_DEPTH: u64 = 512;

/// Bytes at whose multiples rows have to begin for the fast kernels (NVIDIA, "Matrix Multiplication Background User's Guide").
const ALIGNMENT: u64 = 16;

/// Returns the number of blocks, and how they divide the product.
pub fn tiling(gemm: &Gemm, spec: &Spec) -> (u64, Tiling) {
    let (m, n, k, batch) = sizes(spec);
    let flops = |rows: u64, columns: u64| 2.0 * rows as f64 * columns as f64 * k as f64 * batch as f64;
    let is_narrow = spec.inputs[0].dtype.size() <= 2;
    let is_alone = !is_narrow || library_epilogue(spec).is_none();
    if matches!(gemm, Gemm::Plain) && m.min(n) <= 1 && is_alone {
        // A kernel without matrix units, which reads rows of any alignment.
        let blocks = (m.max(n).div_ceil(TILE) * batch).max(UNITS);
        return (blocks, Tiling { flops: flops(m, n), ..Tiling::default() });
    }
    let by_row = matches!(gemm, Gemm::Scaled) && spec.inputs[2..].iter().take(2).any(|factor| factor.elements() > 1);
    let tile = if by_row { SCALED_TILE } else { TILE };
    let (rows, columns) = (m.div_ceil(tile), n.div_ceil(tile));
    let tiles = (rows * columns * batch).max(1);
    let parts = if by_row { 1 } else { (UNITS / tiles).min(k / LEAST_DEPTH).max(1) };
    let operands = spec.inputs[..2].iter().chain(&spec.outputs);
    let tiling = Tiling {
        flops: flops(rows * tile, columns * tile),
        shares_depth: parts > 1,
        unaligned: is_narrow && operands.into_iter().any(|tensor| !is_aligned(tensor)),
    };
    (tiles * parts, tiling)
}

/// Whether each row of a matrix begins at a multiple of [`ALIGNMENT`].
fn is_aligned(tensor: &Tensor) -> bool {
    let lead = &tensor.strides[..tensor.dims.len() - 1];
    u64::from(tensor.align).is_multiple_of(ALIGNMENT)
        && lead.iter().all(|stride| (stride * tensor.dtype.size()).is_multiple_of(ALIGNMENT))
}
