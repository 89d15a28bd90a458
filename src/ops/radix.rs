//! Stable radix sort of row indices, whose time does not depend on the values.
//!
//! Each pass sorts by some bits of the row index. A block processes a tile of consecutive positions. One kernel counts
//! the positions of each tile per bin; the next moves them to their bins, after those of earlier tiles, which
//! preserves their order. A short list is a single tile, which one kernel sorts in all passes.

use super::kernel::{BLOCK, bounds, c_type, geometry_param, index_type, launch, param, u32_param, u64_param};
use super::select::GROUPS;
use super::*;

/// Bits per pass. Each thread of a block has a two-byte counter per bin in shared memory.
const BITS: u32 = 6;

/// Maximum number of positions that a single block sorts.
const ALONE: u64 = 4096;

/// Minimum number of positions per tile, and maximum number of tiles, as long as two-byte counters suffice.
const TILE: u64 = 1024;
const TILES: u64 = 132;
const LARGEST_TILE: u64 = (1 << 16) - BLOCK as u64;

/// Maximum number of positions per thread that stay in registers, so that each pass reads them once.
const HELD: u64 = 16;

/// Instructions per position and pass.
const OF_A_PLACE: f64 = 40.0;

/// Sorts the positions of `count` indices by row.
///
/// The workspace begins with the result: the number of positions with a valid row, then their rows in ascending order,
/// then the positions. [`RowSort::text`] defines accessors.
#[derive(Clone, Copy, Debug)]
pub struct RowSort {
    count: u64,
    rows: u64,
    passes: u32,
    /// Number of bits by which each pass sorts.
    bits: u32,
    tiles: u64,
}

impl RowSort {
    pub fn of(count: u64, rows: u64) -> RowSort {
        let all = (u64::BITS - rows.saturating_sub(1).leading_zeros()).max(1);
        let passes = all.div_ceil(BITS);
        let tiles = match count {
            0..=ALONE => 1,
            _ => count.div_ceil(TILE).min(TILES).max(count.div_ceil(LARGEST_TILE)),
        };
        RowSort { count, rows, passes, bits: all.div_ceil(passes), tiles }
    }

    /// Bytes of workspace.
    pub fn workspace(&self) -> u64 {
        let counted = if self.tiles > 1 { self.tiles << self.bits } else { 0 };
        16 + 2 * self.count * (bytes(index_type(self.rows)) + bytes(index_type(self.count))) + 4 * counted
    }

    /// Bytes read and written in device memory by all kernels, excluding the indices.
    pub fn moved(&self) -> u64 {
        u64::from(self.passes) * self.count * (bytes(index_type(self.rows)) + bytes(index_type(self.count)))
    }

    pub fn instructions(&self) -> f64 {
        OF_A_PLACE * f64::from(self.passes) * self.count as f64
    }

    /// Total number of blocks of all kernels.
    pub fn blocks(&self) -> u64 {
        if self.tiles == 1 { 1 } else { 2 * u64::from(self.passes) * self.tiles }
    }

    /// Kernel text of the types, and of accessors to the workspace: `live(workspace)` is the number of valid
    /// positions; `rows_of(workspace, side, count)` and `places_of(…)` return the sorted rows and positions in half
    /// [`RowSort::side`].
    pub fn text(&self) -> String {
        format!("typedef {} Row;\ntypedef {} P;\n{PARTS}", index_type(self.rows), index_type(self.count))
    }

    /// Half of the workspace, 0 or 1, that holds the result.
    pub fn side(&self) -> u32 {
        (self.passes - 1) % 2
    }

    /// Returns the kernels. `indices` is operand number `operand`, and tensor `which` of `walk`.
    pub fn launches(&self, indices: &Tensor, operand: u8, walk: &Geometry, which: usize) -> Vec<Launch> {
        let each = self.count.div_ceil(self.tiles).div_ceil(u64::from(BLOCK)).max(1);
        let before = format!(
            "{}{}#define BITS {}\n#define PASSES {}\n#define ALONE {}\n#define TILES {}\n#define HELD {}\n#define WHICH {which}\n{GROUPS}",
            bounds(BLOCK),
            self.text(),
            self.bits,
            self.passes,
            u32::from(self.tiles == 1),
            self.tiles,
            if each <= HELD { each } else { 0 },
        );
        let of_pass = |name, body: &str, pass: u32| {
            let params = [
                param("u8* workspace", Arg::Workspace(self.workspace())),
                param(format!("const {}* __restrict__ i", c_type(indices.dtype)), Arg::Operand(operand)),
                geometry_param("walk", walk),
                u64_param("count", self.count),
                u64_param("rows", self.rows),
                u32_param("pass", u64::from(pass)),
            ];
            launch(name, &before, &params, &format!("{READ}{body}"), self.tiles, BLOCK)
        };
        match self.tiles {
            1 => vec![of_pass("sort_rows", MOVE, 0)],
            _ => (0..self.passes)
                .flat_map(|pass| [of_pass("sort_count", COUNT, pass), of_pass("sort_move", MOVE, pass)])
                .collect(),
        }
    }
}

/// Size of an index type in bytes.
fn bytes(index: &str) -> u64 {
    if index == "u32" { 4 } else { 8 }
}

const PARTS: &str = r#"
__device__ inline P& live(void* workspace) { return *(P*)workspace; }
__device__ inline P* places_of(void* workspace, u32 side, u64 count) { return (P*)((u8*)workspace + 16) + side * count; }
__device__ inline Row* rows_of(void* workspace, u32 side, u64 count) {
  return (Row*)((u8*)workspace + 16 + 2 * count * sizeof(P)) + side * count;
}
"#;

/// Reads the row at a position of the pass, from the indices or from the result of the previous pass. Returns `BINS` if
/// there is none.
const READ: &str = r#"  const u32 BINS = 1u << BITS;
  u32* counted = (u32*)(workspace + 16 + 2 * count * (sizeof(P) + sizeof(Row)));
  P tile = (P)((count + TILES - 1) / TILES), first = (P)((u64)tile * blockIdx.x < count ? (u64)tile * blockIdx.x : count);
  auto bin = [&](P p, u32 pass, Row& row) {
    if (pass == 0) {
      i64 index = (i64)i[walk.offset(p, WHICH)];
      if (index < 0 || (u64)index >= rows) return BINS;
      row = (Row)index;
    } else {
      row = rows_of(workspace, (pass - 1) % 2, count)[p];
    }
    return (u32)(row >> pass * BITS) & (BINS - 1);
  };
  auto end = [&](u32 pass) {
    P all = pass == 0 ? (P)count : live(workspace);
    return all < first ? first : all - first < tile ? all : first + tile;
  };
"#;

/// Counts the positions of the block's tile per bin.
const COUNT: &str = r#"  __shared__ u32 counts[8][1 << BITS];
  u32 warp = threadIdx.x / 32;
  for (u32 b = threadIdx.x; b < 8 * BINS; b += blockDim.x) (&counts[0][0])[b] = 0;
  __syncthreads();
  P last = end(pass);
  Row row;
#pragma unroll 4
  for (P p = first + threadIdx.x; p < last; p += blockDim.x) {
    u32 b = bin(p, pass, row);
    if (b < BINS) atomicAdd(&counts[warp][b], 1u);
  }
  __syncthreads();
  for (u32 b = threadIdx.x; b < BINS; b += blockDim.x) {
    u32 sum = 0;
#pragma unroll
    for (int w = 0; w < 8; w++) sum += counts[w][b];
    counted[(u64)blockIdx.x * BINS + b] = sum;
  }
"#;

/// Moves the positions of the block's tile. A thread has consecutive positions and counts them per bin; prefix sums
/// over the threads determine their destinations.
const MOVE: &str = r#"  __shared__ Pack<unsigned short, 8> packs[32 << BITS];
  __shared__ P starts[1 << BITS], totals[1 << BITS], parts[2][256];
  unsigned short* counts = packs[0].at;
  u32 t = threadIdx.x, lane = t % 32, warp = t / 32;
  Block block = {0};
  for (u32 turn = 0; turn < (ALONE ? PASSES : 1); turn++) {
    u32 now = pass + turn;
    P last = end(now), each = (last - first + 255) / 256;
    P from = first + each * t < last ? first + each * t : last;
    P to = last - from < each ? last : from + each;
    for (u32 b = 0; b < BINS; b++) counts[b * 256 + t] = 0;
    Row row = 0;
#if HELD
    Row rows_held[HELD];
    P places_held[HELD];
    u32 bins[HELD];
#pragma unroll
    for (u32 h = 0; h < HELD; h++) {
      bins[h] = BINS;
      if (from + h >= to) continue;
      bins[h] = bin(from + h, now, rows_held[h]);
      places_held[h] = now == 0 ? from + h : places_of(workspace, (now + 1) % 2, count)[from + h];
    }
#pragma unroll
    for (u32 h = 0; h < HELD; h++) if (bins[h] < BINS) counts[bins[h] * 256 + t]++;
#else
#pragma unroll 4
    for (P p = from; p < to; p++) {
      u32 b = bin(p, now, row);
      if (b < BINS) counts[b * 256 + t]++;
    }
#endif
    __syncthreads();
    // 32 threads process a bin, each with the counts of eight threads. All threads of a wave of up to 64 have the same
    // number of rounds.
    for (u32 base = 0; base < BINS; base += 8) {
      u32 b = base + warp;
      Pack<unsigned short, 8> pack = {};
      u32 sum = 0;
      if (b < BINS) pack = packs[b * 32 + lane];
#pragma unroll
      for (int c = 0; c < 8; c++) {
        u32 of_thread = pack.at[c];
        pack.at[c] = (unsigned short)sum;
        sum += of_thread;
      }
      u32 left = scan32(sum);
#pragma unroll
      for (int c = 0; c < 8; c++) pack.at[c] += (unsigned short)left;
      if (b < BINS) packs[b * 32 + lane] = pack;
      if (b < BINS && lane == 0) totals[b] = sum;
    }
    __syncthreads();
    P all = 0, before = 0;
    if (ALONE) {
      if (t < BINS) all = totals[t];
    } else {
      // Several threads share a bin and each adds the counts of some tiles.
      for (u32 other = t / BINS; other < TILES; other += 256 / BINS) {
        u32 of_tile = counted[(u64)other * BINS + t % BINS];
        all += of_tile;
        if (other < blockIdx.x) before += of_tile;
      }
      parts[0][t] = all;
      parts[1][t] = before;
      __syncthreads();
      all = before = 0;
      for (u32 part = t; t < BINS && part < 256; part += BINS) {
        all += parts[0][part];
        before += parts[1][part];
      }
    }
    P sum, start = block.before(all, sum);
    if (t < BINS) starts[t] = start + before;
    __syncthreads();
    Row* rows_to = rows_of(workspace, now % 2, count);
    P* places_to = places_of(workspace, now % 2, count);
#if HELD
#pragma unroll
    for (u32 h = 0; h < HELD; h++) {
      if (bins[h] == BINS) continue;
      P at = starts[bins[h]] + counts[bins[h] * 256 + t]++;
      rows_to[at] = rows_held[h];
      places_to[at] = places_held[h];
    }
#else
    const P* places_from = places_of(workspace, (now + 1) % 2, count);
#pragma unroll 4
    for (P p = from; p < to; p++) {
      u32 b = bin(p, now, row);
      if (b == BINS) continue;
      P at = starts[b] + counts[b * 256 + t]++;
      rows_to[at] = row;
      places_to[at] = now == 0 ? p : places_from[p];
    }
#endif
    if (now == 0 && blockIdx.x == 0 && t == 0) live(workspace) = sum;
    __syncthreads();
  }
"#;
