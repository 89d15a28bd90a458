//! Pools whose blocks join the elements of columns along the second dimension, and then the columns of each window. A column belongs to
//! several windows, and threads read neighbouring columns.

use super::grid::{Grid, PerAxis, each};
use crate::ops::kernels::kernel::BLOCK;
use crate::ops::kernels::occupancy::{BUSY_BLOCKS, RESIDENT_BLOCKS, UNIT_THREADS, UNITS, WARP};

/// Maximum number of elements of a window that one thread reads. Several threads read a larger window, or join its columns.
pub const LARGE: u64 = 64;

/// Maximum number of columns of a block, whose results its shared memory holds.
const MAX_COLUMNS: u64 = 2048;

/// Minimum size in bytes of a pack, maximum size of an element, and minimum number of elements of a window, for windows that single threads
/// could read: they read wider elements and fewer of them as fast.
const MIN_PACK: u64 = 8;
const MAX_ELEMENT: u64 = 2;
const MIN_WINDOW: u64 = 25;

/// Maximum number of elements of a column that a thread loads before it uses the first, for results and for places, which occupy more
/// registers.
const RESULTS_AHEAD: u64 = 16;
const PLACES_AHEAD: u64 = 8;

/// The windows and columns of a block.
pub struct Columns {
    /// Number of neighbouring columns that a thread joins, whose elements it reads at once.
    pub pack: u64,
    /// Number of packs of a column that a thread loads before it uses the first.
    ahead: u64,
    /// Number of windows of a block along each dimension.
    tile: PerAxis,
    /// Number of elements of these windows along the first and the last dimension, and number of rows of windows.
    depth: PerAxis,
    /// Number of tiles along each dimension.
    tiles: PerAxis,
    /// Number of planes.
    planes: u64,
}

impl Columns {
    /// Returns the columns of windows in this many planes, whose packs of `pack` elements of `element` bytes are aligned; `None` if windows
    /// have long rows, or if threads for single windows are as fast. Those find the places of small windows, so that only `results` can
    /// come from columns.
    pub fn of(grid: &Grid, planes: u64, pack: u64, element: u64, results: bool) -> Option<Columns> {
        let [size, stride, padding, dilation] = grid.steps?;
        let is_tall = grid.window() > LARGE && size[0] * size[1] > 1;
        let is_small = results
            && (MIN_WINDOW..=LARGE).contains(&grid.window())
            && element <= MAX_ELEMENT
            && pack * element >= MIN_PACK
            && stride[2] <= 2 * size[2]
            && planes * grid.windows() >= UNITS * UNIT_THREADS;
        if size[2] >= WARP || dilation != [1; 3] || !(is_tall || is_small) {
            return None;
        }
        // Tiles are as equal as possible.
        let equal = |axis: usize, most: u64| grid.y[axis].div_ceil(grid.y[axis].div_ceil(most.max(1)));
        let within = |axis: usize, depth: u64| equal(axis, (depth.max(size[axis]) - size[axis]) / stride[axis] + 1);
        // Windows may begin within a pack.
        let is_even = stride[2].is_multiple_of(pack) && padding[2].is_multiple_of(pack);
        let before = if is_even { 0 } else { pack - 1 };
        let columns = (u64::from(BLOCK) * pack).min(MAX_COLUMNS / size[0]);
        let last = within(2, columns.saturating_sub(2 * before));
        let last_depth = ((last - 1) * stride[2] + size[2] + before).next_multiple_of(pack);
        let first = within(0, MAX_COLUMNS / last_depth);
        let first_depth = (first - 1) * stride[0] + size[0];
        let blocks = planes * grid.y[0].div_ceil(first) * grid.y[2].div_ceil(last) * grid.y[1];
        let rows = equal(1, (MAX_COLUMNS / (first_depth * last_depth)).min(blocks / RESIDENT_BLOCKS));
        let tile = [first, rows, last];
        let tiles = [0, 1, 2].map(|axis| grid.y[axis].div_ceil(tile[axis]));
        let steps = size[1].div_ceil(if results { RESULTS_AHEAD } else { PLACES_AHEAD });
        let all = Columns {
            pack,
            ahead: size[1].div_ceil(steps),
            tile,
            depth: [first_depth, rows, last_depth],
            tiles,
            planes,
        };
        // Threads without a column would be idle.
        let fills = (WARP..=MAX_COLUMNS).contains(&all.columns()) && 2 * all.columns() >= pack * all.threads();
        (fills && all.blocks() >= BUSY_BLOCKS).then_some(all)
    }

    /// Number of columns of a block.
    pub fn columns(&self) -> u64 {
        self.depth.iter().product()
    }

    pub fn blocks(&self) -> u64 {
        self.planes * self.tiles.iter().product::<u64>()
    }

    /// Number of threads of a block.
    pub fn threads(&self) -> u64 {
        (self.columns() / self.pack).next_multiple_of(WARP).min(u64::from(BLOCK))
    }

    /// Returns the macro definitions that the kernel texts use.
    pub fn definitions(&self) -> String {
        let sizes = [("TILE", self.tile), ("TILES", self.tiles), ("DEPTH", self.depth)];
        let sizes: String = sizes.iter().map(|(name, values)| each(name, *values, "u")).collect();
        format!("{sizes}#define COLUMN_PACK {}\n#define COLUMN_AHEAD {}\n", self.pack, self.ahead)
    }
}

/// Kernel text: the result of a column. A maximum of 32 bits and its place are one integer, which is larger for a larger number, NaN the
/// largest, and for an earlier place, which is below 2^31.
pub const COLUMN: &str = r#"
#if ORDERED
typedef u64 Column;
__device__ inline Column column_of(const Best& best) {
  // The sum turns -0 into +0, since the two compare as equal. The lowest bit tells them apart: no two places are equal, so that it
  // decides nothing.
  const u32 bits = float_to_bits(best.value + 0.0f), order = bits ^ ((u32)((i32)bits >> 31) | 0x80000000u);
  const u32 low = ~best.place << 1 | (float_to_bits(best.value) == 0x80000000u);
  return (u64)(best.value != best.value ? 0xffffffffu : order) << 32 | low;
}
__device__ inline void join_column(Column& column, Column other) { column = other > column ? other : column; }
__device__ inline u32 place_of(Column column) { return ~(u32)column >> 1; }
__device__ inline C value_of(Column column) {
  const u32 order = (u32)(column >> 32);
  if (order == 0x80000000u) return bits_to_float((u32)column << 31);
  return bits_to_float(order & 0x80000000u ? order & 0x7fffffffu : ~order);
}
#elif PLACES
typedef Best Column;
__device__ inline Column column_of(const Best& best) { return best; }
__device__ inline void join_column(Column& column, const Column& other) { column.join(other.value, other.place); }
__device__ inline u32 place_of(const Column& column) { return column.place; }
__device__ inline C value_of(const Column& column) { return column.value; }
#else
typedef C Column;
__device__ inline Column column_of(const Best& best) { return best.value; }
__device__ inline void join_column(Column& column, Column other) { column = MAX ? larger(column, other) : column + other; }
__device__ inline C value_of(Column column) { return column; }
#endif
"#;

/// Kernel text: a block reads a tile of windows. A thread joins the elements of neighbouring columns along the second dimension, and then
/// the columns of a window.
pub const JOINED: &str = r#"  __shared__ Pack<Column, COLUMN_PACK> columns[DEPTH(0) * DEPTH(1) * DEPTH(2) / COLUMN_PACK];
  const u32 ROW = DEPTH(2) / COLUMN_PACK;
  u32 index = blockIdx.x, first[3];
  first[2] = index % TILES(2) * TILE(2), index /= TILES(2);
  first[1] = index % TILES(1) * TILE(1), index /= TILES(1);
  first[0] = index % TILES(0) * TILE(0);
  const u32 plane = index / TILES(0);
  // First column of the first window, and that of its pack. Positions before the first element wrap around to large numbers.
  const u32 begin = first[2] * STRIDE(2) - PADDING(2), begin_pack = begin & ~(u32)(COLUMN_PACK - 1);
  for (u32 own = threadIdx.x; own < DEPTH(0) * DEPTH(1) * ROW; own += blockDim.x) {
    Best best[COLUMN_PACK];
#pragma unroll
    for (u32 v = 0; v < COLUMN_PACK; v++) best[v] = nothing();
    const u32 row = own / ROW;
    u32 at[3];
    at[0] = first[0] * STRIDE(0) - PADDING(0) + row / DEPTH(1), at[2] = begin_pack + own % ROW * COLUMN_PACK;
    if (at[0] < X(0) && at[2] < X(2)) {
      const T* from = x + plane_at(plane, sx) + (Offset)at[0] * SX(0) + (Offset)at[2] * SX(2);
      const u32 top = (first[1] + row % DEPTH(1)) * STRIDE(1) - PADDING(1);
      // Rows of padding are left out. Without padding, only windows behind the last one have rows that do not exist.
      auto is_inside = [&](u32 j) { return j < SIZE(1) && (PADDING(1) == 0 || top + j < X(1)); };
#pragma unroll 1
      for (u32 start = 0; start < SIZE(1); start += COLUMN_AHEAD) {
        Pack<T, COLUMN_PACK> packs[COLUMN_AHEAD];
#pragma unroll
        for (u32 j = 0; j < COLUMN_AHEAD; j++) {
          // Loads without branches are under way at the same time.
          const u32 at1 = top + start + j < X(1) ? top + start + j : X(1) - 1;
          packs[j] = *(const Pack<T, COLUMN_PACK>*)(from + (Offset)at1 * SX(1));
        }
#pragma unroll
        for (u32 j = 0; j < COLUMN_AHEAD; j++)
          if (is_inside(start + j)) {
#pragma unroll
            for (u32 v = 0; v < COLUMN_PACK; v++)
              best[v].take(load<C>(packs[j].at[v]), (at[0] * X(1) + top + start + j) * X(2) + at[2] + v);
          }
      }
    }
#pragma unroll
    for (u32 v = 0; v < COLUMN_PACK; v++) columns[own].at[v] = column_of(best[v]);
  }
  __syncthreads();
  for (u32 own = threadIdx.x; own < TILE(0) * TILE(1) * TILE(2); own += blockDim.x) {
    u32 within[3], window[3];
    split(own, TILE(1), TILE(2), within);
    EACH_DIM(j) window[j] = first[j] + within[j];
    if (window[0] >= Y(0) || window[1] >= Y(1) || window[2] >= Y(2)) continue;
    const Column* joined = columns[0].at + (within[0] * STRIDE(0) * DEPTH(1) + within[1]) * DEPTH(2) + begin - begin_pack + within[2] * STRIDE(2);
    Column best = column_of(nothing());
#pragma unroll 8
    for (u32 i = 0; i < SIZE(0); i++)
#pragma unroll
      for (u32 k = 0; k < SIZE(2); k++) join_column(best, joined[i * DEPTH(1) * DEPTH(2) + k]);
#if PLACES
    places[(u64)plane * (Y(0) * Y(1) * Y(2)) + (window[0] * Y(1) + window[1]) * Y(2) + window[2]] = place_of(best);
#endif
#if RESULTS
    const C divisor = divisor_of(range_of(window)), value = value_of(best);
    store<C>(y[plane_at(plane, sy) + OFFSET(SY, window)], MAX ? value : quotient(value, divisor, C(1) / divisor));
#endif
  }
"#;
