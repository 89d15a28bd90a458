//! Reductions of many short rows. A block copies tiles of rows, which are contiguous, to shared memory in packs of 16 bytes that may span
//! rows. Then each thread reduces rows of its own: neighbouring threads that shared a row would exchange accumulators, which takes more
//! instructions than the terms themselves. While threads reduce a tile, their loads of the block's next tile are under way.

use super::*;
use crate::ops::kernels::occupancy::{ROWS_BLOCK, UNIT_REGISTERS, UNIT_SHARED, UNIT_THREADS, UNITS, share_among};

/// Size of a pack in bytes.
const PACK_BYTES: u64 = 16;
/// Number of bytes of a tile that each thread loads, unless a single row has more.
const THREAD_BYTES: u64 = 64;
/// Maximum size of a row in bytes: a thread has registers for as many.
const MAX_BYTES: u64 = 256;
/// Maximum number of rows of a thread in a tile.
const MAX_ROWS: u64 = 8;
/// Maximum number of terms that a thread takes at once.
const MAX_TERMS: u64 = 16;

/// Minimum number of blocks of several tiles: twice as many as can be resident at the same time, so that the last ones leave few SMs idle.
const MIN_BLOCKS: u64 = 2 * UNITS * (UNIT_THREADS / ROWS_BLOCK);
/// Maximum number of tiles of a block. With more, its first loads, for which it waits, take no smaller part of its time.
const MAX_TILES: u64 = 8;

/// Number of registers of a thread, apart from those of its part of the next tile.
const REGISTERS: u64 = 36;

/// Instructions per pack, which a thread loads and stores to shared memory.
const PER_PACK: f64 = 8.0;
/// Instructions per access to a row in shared memory.
const PER_ACCESS: f64 = 1.0;
/// Instructions per row, for its position and its result.
const PER_ROW: f64 = 30.0;

/// Division of rows among blocks of [`ROWS_BLOCK`] threads.
#[derive(Debug)]
pub struct StagedRows {
    /// The input that has the rows. The others have one element for all terms of a row.
    pub input: usize,
    /// Number of rows.
    rows: u64,
    /// Number of terms of a row.
    terms: u64,
    /// Number of neighbouring terms that one instruction reads from shared memory.
    pub pack: u64,
    /// Size of an element in bytes.
    size: u64,
    /// Number of rows of a thread in a tile.
    several: u64,
    /// Number of tiles of a block.
    tiles: u64,
}

impl StagedRows {
    /// Returns the division of rows of the input `input`, of which packs of `pack` terms are aligned in every row. `None` if rows are long,
    /// if they begin at packs of 16 bytes or have gaps, if they do not fill the device with a thread each, or if another input has
    /// several elements for a row.
    pub fn of(spec: &Spec, kept: &Geometry, reduced: &Geometry, input: usize, pack: u64) -> Option<StagedRows> {
        let (&[rows], &[terms]) = (&*kept.dims, &*reduced.dims) else { return None };
        let tensor = &spec.inputs[input];
        let (size, align) = (tensor.dtype.size(), u64::from(tensor.align));
        let is_flat = *reduced.strides[input + 1] == [1] && *kept.strides[input + 1] == [terms] && align >= PACK_BYTES;
        let is_alone = (0..spec.inputs.len()).all(|other| other == input || *reduced.strides[other + 1] == [0]);
        let is_short = terms * size <= MAX_BYTES && !(terms * size).is_multiple_of(PACK_BYTES);
        if !is_flat || !is_alone || !is_short || rows < UNITS * UNIT_THREADS {
            return None;
        }
        let several = 1 << (THREAD_BYTES / (terms * size)).clamp(1, MAX_ROWS).ilog2();
        let tiles = (rows / (several * ROWS_BLOCK * MIN_BLOCKS)).clamp(1, MAX_TILES);
        Some(StagedRows { input, rows, terms, pack, size, several, tiles })
    }

    /// Number of rows of a tile.
    fn tile_rows(&self) -> u64 {
        ROWS_BLOCK * self.several
    }

    /// Number of packs of a tile.
    fn tile_packs(&self) -> u64 {
        self.tile_rows() * self.terms * self.size / PACK_BYTES
    }

    /// Number of blocks.
    pub fn blocks(&self) -> u64 {
        self.rows.div_ceil(self.tile_rows() * self.tiles)
    }

    /// Number of terms that a thread takes at once: whole packs, as even parts of a row as possible.
    fn at_once(&self) -> u64 {
        let parts = self.terms.div_ceil(MAX_TERMS);
        self.terms.div_ceil(parts).next_multiple_of(self.pack)
    }

    /// Returns the cost of a reduction of an expression whose function takes `own` instructions per term, of which `special` are of the
    /// special-function units.
    pub fn cost(&self, spec: &Spec, expression: &Expression, [own, special]: [f64; 2], sums: f64) -> Cost {
        let (rows, elements) = (self.rows as f64, (self.rows * self.terms) as f64);
        let registers = REGISTERS + self.tile_packs().div_ceil(ROWS_BLOCK) * PACK_BYTES / 4;
        let resident = (UNIT_THREADS / ROWS_BLOCK)
            .min(UNIT_SHARED / (self.tile_packs() * PACK_BYTES))
            .min(UNIT_REGISTERS / (ROWS_BLOCK * registers));
        Cost {
            instructions: (f64::from(expression.instructions()) + own + PER_ACCESS / self.pack as f64) * elements
                + PER_PACK * elements * self.size as f64 / PACK_BYTES as f64
                + PER_ROW * rows,
            special: (f64::from(expression.special()) + special) * elements,
            blocks: self.blocks(),
            share: share_among(resident),
            exchanges: self.tiles as f64,
            ..spec.streaming_cost((f64::from(expression.flops()) + sums) * elements, 1)
        }
    }

    /// Returns kernel text of the constants of the division.
    pub fn constants(&self, dtype: &str) -> String {
        format!(
            "typedef {dtype} Element;\ntypedef Pack<u32, {}> Packed;\ntypedef Pack<Element, {}> Piece;\n#define THREADS {ROWS_BLOCK}\n\
             #define OF_PACK {}u\n#define PACKS {}u\n#define HELD {}u\n#define TERMS {}u\n#define AT_ONCE {}u\n#define SEVERAL {}u\n\
             #define TILES {}u\n",
            PACK_BYTES / 4,
            self.pack,
            PACK_BYTES / self.size,
            self.tile_packs(),
            self.tile_packs().div_ceil(ROWS_BLOCK),
            self.terms,
            self.at_once(),
            self.several,
            self.tiles,
        )
    }
}

/// Kernel text: a loop over the tiles of a block, which loads the next tile after the current one is in shared memory.
pub const STAGE: &str = r#"  __shared__ Packed staged[PACKS];
  const u64 first_row = (u64)blockIdx.x * (TILES * SEVERAL * THREADS);
  u64 begin = first_row;
  Packed held[HELD];
  // Loads the tile that begins at a row. Its last pack never crosses the end of allocated memory.
  auto load_tile = [&](u64 begin) {
    const u64 left = begin < results ? (results - begin) * TERMS : 0;
    const u32 packs = left < PACKS * OF_PACK ? ((u32)left + OF_PACK - 1) / OF_PACK : PACKS;
    const Packed* from = (const Packed*)(INPUT + begin * TERMS) + threadIdx.x;
#pragma unroll
    for (u32 e = 0; e < HELD; e++) if (e * THREADS + threadIdx.x < packs) held[e] = from[e * THREADS];
  };
  load_tile(begin);
  for (u32 tile = 0; tile < TILES && begin < results; tile++, begin += SEVERAL * THREADS) {
#pragma unroll
    for (u32 e = 0; e < HELD; e++) if (e * THREADS + threadIdx.x < PACKS) staged[e * THREADS + threadIdx.x] = held[e];
    __syncthreads();
    if (tile + 1 < TILES) load_tile(begin + SEVERAL * THREADS);
    const u32 live = results - begin < SEVERAL * THREADS ? (u32)(results - begin) : SEVERAL * THREADS;
"#;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::kernels::occupancy::DEFAULT_SHARED;

    fn staged(dtype: DType, rows: u64, terms: u64) -> Option<StagedRows> {
        let (x, y) = (Tensor::packed(dtype, &[rows, terms]), Tensor::packed(DType::F32, &[rows]));
        let spec = Spec::new(&Reduce(Function::Max), Attrs::default(), vec![x], vec![y]);
        Split::of(&spec, &Extent::along(x.dims, 1), DType::F32, Function::Max).staged
    }

    /// Blocks begin at packs of 16 bytes and fit the shared memory that every kernel has, and threads take whole packs.
    #[test]
    fn blocks_hold_their_rows() {
        for dtype in [DType::F64, DType::F32, DType::BF16, DType::U8] {
            for terms in 2..=300 {
                let Some(rows) = staged(dtype, 300_000, terms) else { continue };
                let bytes = rows.tile_rows() * terms * dtype.size();
                assert!(bytes <= DEFAULT_SHARED && bytes == rows.tile_packs() * PACK_BYTES, "{dtype:?} {terms}");
                assert!(rows.at_once().is_multiple_of(rows.pack) && rows.at_once() < MAX_TERMS + rows.pack, "{terms}");
            }
        }
    }

    #[test]
    fn rows_that_fill_the_device_are_staged_unless_they_are_packs() {
        let of = |terms: u64| staged(DType::BF16, 300_000, terms).map(|rows| (rows.several, rows.tiles, rows.pack));
        assert_eq!(of(7), Some((4, 1, 1)));
        assert_eq!(of(100), Some((1, 1, 4)));
        assert_eq!(of(16), None);
        assert_eq!(of(129), None);
        assert!(staged(DType::BF16, 30_000, 7).is_none());
        assert!(staged(DType::E4M3, 300_000, 128).is_none());
    }
}
