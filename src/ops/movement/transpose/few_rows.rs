//! Transposition of matrices with few rows or few columns through shared memory.
//!
//! The short side is whole in each thread: a thread loads or stores an element of each row, and neighbouring threads access
//! neighbouring elements of a row. Shared memory holds the elements in the order of the other tensor, which has no gaps and
//! is accessed in packs of 16 bytes. All loads of a thread are in flight at the same time, and all sectors are written whole.

use crate::ops::kernels::kernel::{BLOCK, bounds, c_type, geometry_param, index_type, launch, param, u64_param};
use crate::ops::kernels::occupancy::{BUSY_BLOCKS, RESIDENT_BLOCKS, SECTOR, WARP};
use crate::ops::layout::halves;
use crate::ops::*;

/// Number of elements of a tensor up to which an elementwise kernel transposes it faster.
pub const WALKED: u64 = 1 << 17;

/// Maximum number of elements of the short side, which a thread holds in registers.
const MAX_ROWS: u64 = 32;
/// Maximum size in bytes of the short side, so that shared memory holds it for each thread of a block.
const MAX_HELD: u64 = 128;
/// Maximum number of bytes that a thread holds of several columns: all resident threads of an SM have 64 KiB in flight, which hide the latency
/// of the memory.
const MAX_OF_SEVERAL: u64 = 32;
/// Minimum number of threads of a block.
const MIN_THREADS: u64 = 64;
/// Size in bytes of a pack.
const PACK: u64 = 16;
/// Size in bytes of a word of each bank of shared memory, together.
const BANKS: u64 = 128;

/// Instructions per element: its load, its store, and its accesses to shared memory.
const PER_ELEMENT: f64 = 4.0;
/// Instructions of a thread for addresses; those of its further columns follow from the first.
const PER_THREAD: f64 = 40.0;

/// Transposition whose short side is whole in each thread.
#[derive(Debug)]
pub struct FewRows {
    /// True if the short side is contiguous in the output. Otherwise, it is contiguous in the input.
    is_written: bool,
    /// Dimensions of the short side, with the strides of the tensor in which they are apart.
    short: Geometry,
    /// The other dimensions, with the strides of the same tensor.
    long: Geometry,
    /// Number of elements of the short side.
    rows: u64,
    /// Number of short sides.
    columns: u64,
    /// Number of threads of a block.
    threads: u64,
    /// Number of short sides per thread.
    each: u64,
}

impl FewRows {
    /// Returns the division of a transposition; `all` has its sizes, and the strides of output and input. `None` if no tensor without gaps
    /// has a short contiguous side beside which the other tensor's elements are contiguous, and for small tensors.
    pub fn of(spec: &Spec, all: &Geometry) -> Option<FewRows> {
        let y = &spec.outputs[0];
        if y.elements() <= WALKED {
            return None;
        }
        [true, false].into_iter().find_map(|is_written| {
            let [whole, apart] = if is_written { [0, 1] } else { [1, 0] };
            let tensor = if is_written { y } else { &spec.inputs[0] };
            let all = layout::by_output(all.dims, &[all.strides[whole], all.strides[apart]]);
            let along = all.strides[1].iter().position(|&stride| stride == 1)?;
            let of = |axes: std::ops::Range<usize>| Geometry {
                dims: all.dims.part(axes.clone()),
                strides: vec![all.strides[1].part(axes)],
            };
            let (long, short) = (of(0..along + 1), of(along + 1..all.dims.len()));
            let [columns, rows] = [&long, &short].map(|side| side.dims.iter().product::<u64>());
            let size = tensor.dtype.size();
            let is_short = (2..=MAX_ROWS).contains(&rows) && rows * size <= MAX_HELD;
            let is_whole = all.strides[0] == all.dims.contiguous_strides() && u64::from(tensor.align) >= PACK;
            if !is_short || !is_whole || all.dims[along] < WARP {
                return None;
            }
            let is_busy = |threads: &u64| *threads == MIN_THREADS || columns.div_ceil(*threads) >= BUSY_BLOCKS;
            let threads = halves(u64::from(BLOCK)).find(is_busy)?;
            // A thread has several columns if not all threads could be resident with one.
            let waves = columns / (RESIDENT_BLOCKS * u64::from(BLOCK));
            let each = (MAX_OF_SEVERAL / (rows * size)).min(waves).max(1);
            Some(FewRows { is_written, short, long, rows, columns, threads, each })
        })
    }

    fn blocks(&self) -> u64 {
        self.columns.div_ceil(self.threads * self.each)
    }

    pub fn cost(&self, spec: &Spec) -> Cost {
        let instructions =
            PER_ELEMENT * spec.outputs[0].elements() as f64 + PER_THREAD * self.columns.div_ceil(self.each) as f64;
        let of_a_block = self.threads * self.each * self.rows;
        Cost { instructions, exchanges: 1.0, blocks: self.blocks(), ..spec.streaming_cost(0.0, of_a_block) }
    }

    pub fn launch(&self, spec: &Spec) -> Launch {
        let (dtype, FewRows { rows, threads, each, .. }) = (spec.outputs[0].dtype, self);
        let (element, size) = (c_type(dtype), dtype.size());
        let params = [
            param("E* __restrict__ y", Arg::Operand(1)),
            param("const E* __restrict__ x", Arg::Operand(0)),
            geometry_param("longer", &self.long),
            u64_param("columns", self.columns),
        ];
        // The offset of a row, an expression of constants.
        let mut after = *rows;
        let terms = self.short.dims.iter().zip(self.short.strides[0].iter()).map(|(length, stride)| {
            after /= length;
            format!("(i64)((r) / {after} % {length}) * {stride}")
        });
        let offset = terms.collect::<Vec<_>>().join(" + ");
        // A gap of a pack after each row of banks: threads that are a multiple of a sector apart use other banks.
        let gap = if (rows * size).is_multiple_of(SECTOR) { PACK / size } else { 0 };
        let before = format!(
            "{}typedef {element} E;\ntypedef {} Index;\n#define V {}\n#define W {}\n#define ROWS {rows}\n#define THREADS {threads}\n#define EACH {each}\n#define ROW(r) ({offset})\n\
             #define AT(e) ((e) + (e) / {} * {gap})\n",
            bounds(*threads as u32),
            index_type(self.columns + threads * each),
            PACK / size,
            halves(PACK / size).find(|width| rows.is_multiple_of(*width)).unwrap_or(1),
            BANKS / size,
        );
        let body = format!("{BLOCK_OF_COLUMNS}{}", if self.is_written { INTERLEAVE } else { SEPARATE });
        launch("transpose_few_rows", &before, &params, &body, self.blocks(), *threads as u32)
    }
}

/// Kernel text: the columns of a block, and the elements of them that are contiguous in one of the tensors.
const BLOCK_OF_COLUMNS: &str = r#"  typedef Pack<u32, 4> Packed;
  __shared__ Packed packs[AT(THREADS * EACH * ROWS) / V + 1];
  E* const staged = (E*)packs;
  const Index begin = (Index)blockIdx.x * (THREADS * EACH), left = (Index)columns - begin;
  const u32 live = left < THREADS * EACH ? (u32)left : THREADS * EACH, count = live * ROWS;
"#;

/// Kernel text: a thread loads an element of each row, and stores packs of columns. Shared memory takes packs of `W` elements of a column.
const INTERLEAVE: &str = r#"  Pack<E, W> held[EACH][ROWS / W];
#pragma unroll
  for (u32 u = 0; u < EACH; u++) {
    const u32 column = threadIdx.x + u * THREADS;
    if (column >= live) continue;
    const E* from = x + longer.offset(begin + column, 0);
#pragma unroll
    for (u32 r = 0; r < ROWS; r++) held[u][r / W].at[r % W] = from[ROW(r)];
  }
#pragma unroll
  for (u32 u = 0; u < EACH; u++) {
    const u32 column = threadIdx.x + u * THREADS;
    if (column >= live) continue;
#pragma unroll
    for (u32 r = 0; r < ROWS; r += W) *(Pack<E, W>*)(staged + AT(column * ROWS + r)) = held[u][r / W];
  }
  __syncthreads();
  E* to = y + (u64)begin * ROWS;
#pragma unroll
  for (u32 step = 0; step < (EACH * ROWS + V - 1) / V; step++) {
    const u32 e = (step * THREADS + threadIdx.x) * V;
    if (e + V <= count) *(Packed*)(to + e) = packs[AT(e) / V];
  }
  const u32 rest = count / V * V + threadIdx.x;
  if (rest < count) to[rest] = staged[AT(rest)];
"#;

/// Kernel text: a thread loads packs of columns, and stores an element of each row.
const SEPARATE: &str = r#"  const E* from = x + (u64)begin * ROWS;
  // A pack never crosses the end of allocated memory.
#pragma unroll
  for (u32 step = 0; step < (EACH * ROWS + V - 1) / V; step++) {
    const u32 e = (step * THREADS + threadIdx.x) * V;
    if (e < count) packs[AT(e) / V] = *(const Packed*)(from + e);
  }
  __syncthreads();
#pragma unroll
  for (u32 u = 0; u < EACH; u++) {
    const u32 column = threadIdx.x + u * THREADS;
    if (column >= live) return;
    E* to = y + longer.offset(begin + column, 0);
#pragma unroll
    for (u32 r = 0; r < ROWS; r += W) {
      const Pack<E, W> held = *(const Pack<E, W>*)(staged + AT(column * ROWS + r));
#pragma unroll
      for (u32 c = 0; c < W; c++) to[ROW(r + c)] = held.at[c];
    }
  }
"#;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::kernels::kernel::BLOCK as THREADS;
    use crate::ops::kernels::occupancy::DEFAULT_SHARED;
    use crate::ops::movement::transpose::word_tiles::tests::rotations;
    use proptest::prelude::*;

    proptest! {
        /// Short sides and columns have all elements, and shared memory holds those of a block.
        #[test]
        fn columns_have_all_elements(
            (spec, all) in rotations(&[DType::U8, DType::BF16, DType::F32, DType::F64])
                .prop_filter("another kernel", |(spec, all)| FewRows::of(spec, all).is_some()),
        ) {
            let few = FewRows::of(&spec, &all).unwrap();
            let size = spec.outputs[0].dtype.size();
            prop_assert!(few.threads <= u64::from(THREADS) && few.rows >= 2 && few.rows * few.each <= MAX_ROWS);
            let held = few.threads * few.each * few.rows * size;
            prop_assert!(held + held / BANKS * PACK + PACK <= DEFAULT_SHARED);
            prop_assert_eq!(few.rows * few.columns, spec.outputs[0].elements());
            // Offsets reach from the first element of a tensor without gaps to its last one.
            let last = |side: &Geometry| side.dims.iter().zip(&*side.strides[0]).map(|(size, stride)| (size - 1) * stride).sum::<u64>();
            prop_assert_eq!(last(&few.short) + last(&few.long) + 1, spec.outputs[0].elements());
            prop_assert_eq!(few.long.strides[0].last(), Some(&1));
        }
    }
}
