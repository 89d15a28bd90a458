//! Model of how the vendors' libraries divide a product among blocks.
//!
//! Compared with 300 random products on an H200, times from this model are off by a factor of 1.4 on average
//! (docs/measurements/2026-11-23-unseen-shapes.md).

use super::super::occupancy::UNITS;
use super::*;

/// Rows and columns of a block's tile. The libraries use larger tiles for large results and smaller ones for small
/// results; this value is in between.
const TILE: u64 = 64;

/// Rows and columns of a tile with a scaling factor for each row and column: even a few tiles take as long as if all
/// had this size.
const SCALED_TILE: u64 = 128;

/// Minimum depth per block, if blocks share the depth because there are fewer tiles than SMs.
const MIN_DEPTH: u64 = 512;

/// Alignment of rows in bytes that the fast kernels require (NVIDIA, "Matrix Multiplication Background User's Guide").
const ALIGNMENT: u64 = 16;

/// Alignment in bytes that they require of the result's rows, which they write in smaller pieces.
const RESULT_ALIGNMENT: u64 = 4;

/// Returns the number of blocks, and how they divide the product.
pub fn tiling(gemm: &Gemm, spec: &Spec) -> (u64, Tiling) {
    let (m, n, k, batch) = sizes(spec);
    let flops = |rows: u64, columns: u64| 2.0 * rows as f64 * columns as f64 * k as f64 * batch as f64;
    let is_narrow = spec.inputs[0].dtype.size() <= 2;
    let is_alone = !is_narrow || library_epilogue(spec).is_none();
    let is_vector = matches!(gemm, Gemm::Plain) && m.min(n) <= 1 && is_alone;
    if is_vector || thin::applies(spec) {
        // A kernel without matrix units, which reads rows of any alignment or is generated for this one.
        let blocks = (m.max(n).div_ceil(TILE) * batch).max(UNITS);
        return (blocks, Tiling { flops: flops(m, n), ..Tiling::default() });
    }
    let by_row = matches!(gemm, Gemm::Scaled) && spec.inputs[2..].iter().take(2).any(|factor| factor.elements() > 1);
    let tile = if by_row { SCALED_TILE } else { TILE };
    let (rows, columns) = (m.div_ceil(tile), n.div_ceil(tile));
    let tiles = (rows * columns * batch).max(1);
    let parts = if by_row { 1 } else { (UNITS / tiles).min(k / MIN_DEPTH).max(1) };
    // The kernels for any alignment of the result are slow with all operands.
    let is_odd = spec.outputs.iter().any(|tensor| !has_rows_at(tensor, RESULT_ALIGNMENT));
    let operands = spec.inputs[..2].iter().chain(if is_odd { &*spec.outputs } else { &[] });
    let unaligned = operands.filter(|tensor| is_narrow && (is_odd || !has_rows_at(tensor, ALIGNMENT)));
    let tiling = Tiling {
        flops: flops(rows * tile, columns * tile),
        shares_depth: parts > 1,
        unaligned: unaligned.map(Tensor::bytes).sum(),
        ..Tiling::default()
    };
    (tiles * parts, tiling)
}

/// Whether each row of a matrix begins at a multiple of this many bytes.
fn has_rows_at(tensor: &Tensor, alignment: u64) -> bool {
    let lead = &tensor.strides[..tensor.dims.len() - 1];
    u64::from(tensor.align).is_multiple_of(alignment)
        && lead.iter().all(|stride| (stride * tensor.dtype.size()).is_multiple_of(alignment))
}

/// Returns the cost of a plain product of the library as a launch of another operation.
pub fn product_cost(gemm: &launch::Gemm) -> Cost {
    let launch::Gemm { m, n, k, batch, .. } = *gemm;
    let flops = |rows: u64, columns: u64| 2.0 * rows as f64 * columns as f64 * k as f64 * batch as f64;
    let tiles = (m.div_ceil(TILE) * n.div_ceil(TILE) * batch).max(1);
    let parts = (UNITS / tiles).min(k / MIN_DEPTH).max(1);
    let size = gemm.a.dtype.size();
    let starts_at = |matrix: &launch::Matrix, alignment: u64| {
        let bytes = matrix.dtype.size();
        u64::from(matrix.align).is_multiple_of(alignment)
            && [matrix.row, matrix.batch].iter().all(|stride| (stride * bytes).is_multiple_of(alignment))
    };
    let elements = [m * k, k * n, m * n].map(|elements| elements * batch);
    let bytes = |index: usize, matrix: &launch::Matrix| elements[index] * matrix.dtype.size();
    let is_odd = !starts_at(&gemm.c, RESULT_ALIGNMENT);
    let factors = [(0, &gemm.a), (1, &gemm.b)];
    let unaligned = factors.into_iter().filter(|(_, matrix)| size <= 2 && (is_odd || !starts_at(matrix, ALIGNMENT)));
    let read = factors.into_iter().map(|(index, matrix)| bytes(index, matrix)).sum();
    Cost {
        flops: flops(m, n),
        read: Traffic::of(Space::Device, read),
        written: Traffic::of(Space::Device, bytes(2, &gemm.c)),
        blocks: tiles * parts,
        share: Cost::WHOLE_UNIT,
        matrix: Some(gemm.arithmetic),
        tiling: Tiling {
            flops: flops(m.next_multiple_of(TILE), n.next_multiple_of(TILE)),
            shares_depth: parts > 1,
            unaligned: unaligned.map(|(index, matrix)| bytes(index, matrix)).sum(),
            ..Tiling::default()
        },
        ..Cost::default()
    }
}
