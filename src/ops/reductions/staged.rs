//! Reductions of many short rows. A block copies its rows, which are contiguous, to shared memory in packs of 16 bytes that may span rows.
//! Then each thread reduces rows of its own: neighbouring threads that shared a row would exchange accumulators, which takes more
//! instructions than the terms themselves.

use super::super::kernel::BLOCK;
use super::super::occupancy::{UNIT_REGISTERS, UNIT_SHARED, UNIT_THREADS, UNITS, WARP, share_among};
use super::*;

/// Number of bytes of a block's rows. Twelve such blocks fit the shared memory of an SM, which are enough bytes in flight.
const STAGE_BYTES: u64 = 16 << 10;
/// Size of a pack in bytes.
const PACK_BYTES: u64 = 16;
/// Minimum number of threads of a block, which bounds the length of a row.
const MIN_THREADS: u64 = 2 * WARP;
/// Maximum number of rows of a thread.
const MAX_ROWS: u64 = 8;
/// Maximum number of terms that a thread takes at once.
const MAX_TERMS: u64 = 16;
/// Number of packs that a thread loads before it stores the first one to shared memory.
const AHEAD: u64 = 4;
/// Number of registers of a thread, for the packs that it loads or the terms that it takes.
const REGISTERS: u64 = 40;

/// Instructions per pack, which a thread loads and stores to shared memory.
const PER_PACK: f64 = 8.0;
/// Instructions per access to a row in shared memory.
const PER_ACCESS: f64 = 1.0;
/// Instructions per row, for its position and its result.
const PER_ROW: f64 = 30.0;

/// Division of rows among blocks.
#[derive(Debug)]
pub struct StagedRows {
    /// The input that has the rows. The others have one element for all terms of a row.
    pub input: usize,
    /// Number of rows.
    rows: u64,
    /// Number of terms of a row.
    pub terms: u64,
    /// Number of neighbouring terms that one instruction reads from shared memory.
    pub pack: u64,
    /// Size of an element in bytes.
    size: u64,
    /// Number of threads of a block.
    pub threads: u64,
    /// Number of rows of a thread.
    pub several: u64,
}

impl StagedRows {
    /// Returns the division of rows of the input `input`, of which packs of `pack` terms are aligned in every row. `None` if rows are long,
    /// if they begin at packs of 16 bytes or have gaps, if they do not fill the device with a thread each, or if another input has
    /// several elements for a row.
    pub fn of(spec: &Spec, kept: &Geometry, reduced: &Geometry, input: usize, pack: u64) -> Option<StagedRows> {
        let (&[rows], &[terms]) = (&*kept.dims, &*reduced.dims) else { return None };
        let tensor = &spec.inputs[input];
        let size = tensor.dtype.size();
        let is_flat = *reduced.strides[input + 1] == [1]
            && *kept.strides[input + 1] == [terms]
            && u64::from(tensor.align) >= PACK_BYTES;
        let is_alone = (0..spec.inputs.len()).all(|other| other == input || *reduced.strides[other + 1] == [0]);
        let room = STAGE_BYTES / (terms * size).max(1);
        if !is_flat || !is_alone || pack * size >= PACK_BYTES || rows < UNITS * UNIT_THREADS || room < MIN_THREADS {
            return None;
        }
        let room = 1 << room.ilog2();
        let threads = u64::from(BLOCK).min(room);
        Some(StagedRows { input, rows, terms, pack, size, threads, several: (room / threads).min(MAX_ROWS) })
    }

    /// Number of rows of a block.
    pub fn block_rows(&self) -> u64 {
        self.threads * self.several
    }

    /// Number of blocks.
    pub fn blocks(&self) -> u64 {
        self.rows.div_ceil(self.block_rows())
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
        let shared = self.block_rows() * self.terms * self.size;
        let resident =
            (UNIT_THREADS / self.threads).min(UNIT_SHARED / shared).min(UNIT_REGISTERS / (self.threads * REGISTERS));
        Cost {
            instructions: (f64::from(expression.instructions()) + own + PER_ACCESS / self.pack as f64) * elements
                + PER_PACK * elements * self.size as f64 / PACK_BYTES as f64
                + PER_ROW * rows,
            special: (f64::from(expression.special()) + special) * elements,
            blocks: self.blocks(),
            share: share_among(resident),
            exchanges: 1.0,
            ..spec.streaming_cost((f64::from(expression.flops()) + sums) * elements, 1)
        }
    }

    /// Returns kernel text before the loop over a thread's rows, which copies the rows of a block to `staged`.
    pub fn stage(&self, dtype: &str) -> String {
        let StagedRows { input, terms, pack, size, threads, several, .. } = self;
        let of_pack = PACK_BYTES / size;
        let packs = self.block_rows() * terms / of_pack;
        format!(
            r#"  typedef Pack<{dtype}, {of_pack}> Packed;
  typedef Pack<{dtype}, {pack}> Piece;
  const u32 ROWS = {rows}, TERMS = {terms}, AT_ONCE = {at_once}, SEVERAL = {several};
  __shared__ Packed staged[{packs}];
  const u64 begin = (u64)blockIdx.x * ROWS;
  const u32 live = results - begin < ROWS ? (u32)(results - begin) : ROWS, packs = (live * TERMS + {before_next}) / {of_pack};
  // The last pack never crosses the end of allocated memory.
  const Packed* first = (const Packed*)(a{input} + begin * TERMS);
  for (u32 i = threadIdx.x; i < packs; i += {ahead} * {threads}) {{
    Packed held[{ahead}];
#pragma unroll
    for (u32 e = 0; e < {ahead}; e++) if (i + e * {threads} < packs) held[e] = first[i + e * {threads}];
#pragma unroll
    for (u32 e = 0; e < {ahead}; e++) if (i + e * {threads} < packs) staged[i + e * {threads}] = held[e];
  }}
  __syncthreads();
"#,
            rows = self.block_rows(),
            at_once = self.at_once(),
            before_next = of_pack - 1,
            ahead = AHEAD.min(packs.div_ceil(*threads)),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
                let bytes = rows.block_rows() * terms * dtype.size();
                assert!(bytes <= STAGE_BYTES && bytes.is_multiple_of(PACK_BYTES), "{dtype:?} {terms}");
                assert!(rows.at_once().is_multiple_of(rows.pack) && rows.at_once() < MAX_TERMS + rows.pack, "{terms}");
            }
        }
    }

    #[test]
    fn rows_that_fill_the_device_are_staged_unless_they_are_packs() {
        let of = |terms: u64| staged(DType::BF16, 300_000, terms).map(|rows| (rows.threads, rows.several, rows.pack));
        assert_eq!(of(7), Some((256, 4, 1)));
        assert_eq!(of(100), Some((64, 1, 4)));
        assert_eq!(of(16), None);
        assert_eq!(of(129), None);
        assert!(staged(DType::BF16, 30_000, 7).is_none());
    }
}
