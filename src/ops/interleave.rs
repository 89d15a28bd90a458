//! Transposition of few long rows: each thread interleaves a pack of each row in registers.

use super::kernel::{BLOCK, bounds, c_type, index_type, launch, param, u64_param};
use super::ragged::RAGGED;
use super::*;

/// Number of elements of a tensor up to which an elementwise kernel transposes it faster than tiles or packs.
pub const WALKED: u64 = 1 << 17;
/// Size in bytes of a tensor with a short side up to which an elementwise kernel is faster, since the cache serves its
/// accesses.
pub const WALKED_TENSOR: u64 = 8 << 20;

/// Instructions per element: 344 for 40 elements of 16 bits, in machine code for sm_90 by NVRTC 13.0.
const PER_ELEMENT: f64 = 8.6;

/// Matrices with few rows, which are transposed: their rows become columns.
#[derive(Debug)]
pub struct Interleaved {
    /// Number of matrices.
    count: u64,
    /// Distance from one matrix to the next in the input, in elements.
    step: u64,
    /// Number of rows of a matrix.
    rows: u64,
    /// Number of elements of a row.
    length: u64,
    /// Distance from one row to the next in the input, in elements.
    stride: u64,
}

impl Interleaved {
    /// Returns the matrices that a transposition moves; `all` has its sizes, and the strides of output and input.
    /// `None` if rows are not contiguous in the input, if columns are not contiguous in the output, or if another
    /// kernel is faster for this number and size of rows.
    pub fn of(spec: &Spec, all: &Geometry) -> Option<Interleaved> {
        let (y, rank) = (&spec.outputs[0], all.dims.len());
        if !(2..=3).contains(&rank) {
            return None;
        }
        let [to, from] = [0, 1].map(|tensor| &all.strides[tensor]);
        let (length, rows) = (all.dims[rank - 2], all.dims[rank - 1]);
        let (count, distance, step) = if rank == 3 { (all.dims[0], to[0], from[0]) } else { (1, 0, 0) };
        let pack = 16 / y.dtype.size();
        let is_whole = y.align >= 16 && to[rank - 1] == 1 && to[rank - 2] == rows;
        // A pack of the output begins with a whole column in each matrix.
        let begins = distance.is_multiple_of(pack) || pack.is_multiple_of(rows);
        let is_whole = is_whole && (count == 1 || distance == rows * length && begins);
        let bytes = y.elements() * y.dtype.size();
        // Elementwise kernels write whole packs of four rows of words. Rows of bytes are interleaved up to five. For more or
        // wider rows, tiles write longer ranges.
        let fits = match rows {
            3 => y.elements() > WALKED && y.dtype.size() < 8,
            2 => bytes > WALKED_TENSOR && y.dtype.size() <= 4,
            4 | 5 => bytes > WALKED_TENSOR && y.dtype.size() == 1,
            _ => false,
        };
        let fits = fits && from[rank - 2] == 1;
        (is_whole && fits).then_some(Interleaved { count, step, rows, length, stride: from[rank - 1] })
    }

    /// Number of packs of a row, which begin where packs of the output do.
    fn packs(&self, pack: u64) -> u64 {
        let is_aligned = self.count == 1 || (self.rows * self.length).is_multiple_of(pack);
        (self.length + if is_aligned { 0 } else { pack / self.rows - 1 }).div_ceil(pack)
    }

    pub fn cost(&self, spec: &Spec) -> Cost {
        let elements = spec.outputs[0].elements() as f64;
        let of_a_block = u64::from(BLOCK) * self.rows * (16 / spec.outputs[0].dtype.size());
        Cost { instructions: PER_ELEMENT * elements, ..spec.streaming_cost(0.0, of_a_block) }
    }

    pub fn launch(&self, spec: &Spec) -> Launch {
        let dtype = spec.outputs[0].dtype;
        let (element, pack) = (c_type(dtype), 16 / dtype.size());
        let packs = self.packs(pack);
        let params = [
            param(format!("{element}* __restrict__ y"), Arg::Operand(1)),
            param(format!("const {element}* __restrict__ x"), Arg::Operand(0)),
            u64_param("count", self.count),
            u64_param("step", self.step),
            u64_param("length", self.length),
            u64_param("stride", self.stride),
            u64_param("packs_of_row", packs),
        ];
        let before = format!(
            "{}typedef {} Index;\ntypedef {element} E;\n#define V {pack}\n#define ROWS {}\n{RAGGED}",
            bounds(BLOCK),
            index_type((self.count * packs + u64::from(BLOCK)) * pack),
            self.rows,
        );
        let blocks = (self.count * packs).div_ceil(u64::from(BLOCK)).max(1);
        launch("transpose_interleaved", &before, &params, BODY, blocks, BLOCK)
    }
}

/// Kernel text: a thread reads `V` elements of each row and writes `ROWS * V` neighbouring elements.
const BODY: &str = r#"  const Index packs = (Index)packs_of_row;
  const Index own = (Index)GLOBAL_INDEX, which = own / packs;
  if (which >= (Index)count) return;
  // Columns before the matrix that share its first pack of the output.
  const i64 j = (i64)((own - which * packs) * V) - (i64)(which * (Index)length * ROWS % V / ROWS);
  const E* from = x + which * step;
  Held<E> held[ROWS];
#pragma unroll
  for (u32 r = 0; r < ROWS; r++) held[r] = read_row(from + r * stride, j, (i64)length);
  union Columns { E at[ROWS * V]; Pack<u32, 4> packs[ROWS]; __device__ Columns() {} } columns;
#pragma unroll
  for (u32 r = 0; r < ROWS; r++) {
    const Pack<E, V> row = held[r].elements();
#pragma unroll
    for (u32 v = 0; v < V; v++) columns.at[v * ROWS + r] = row.at[v];
  }
  E* to = y + ((i64)(which * (Index)length) + j) * ROWS;
  if (j >= 0 && j + V <= (i64)length) {
#pragma unroll
    for (u32 r = 0; r < ROWS; r++) store_words((Pack<u32, 4>*)to + r, columns.packs[r].at);
    return;
  }
#pragma unroll
  for (u32 v = 0; v < V; v++) {
    if (j + v >= (i64)length) return;
    if (j + v < 0) continue;
#pragma unroll
    for (u32 r = 0; r < ROWS; r++) to[v * ROWS + r] = columns.at[v * ROWS + r];
  }
"#;
