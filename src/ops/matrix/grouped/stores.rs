//! Source text that writes the results of a tile.

/// How warps write their sums by way of shared memory, and how blocks write tiles without terms. [`super::text::TILES`] comes
/// before.
pub const STORES: &str = r#"
// Number of tiles of 16 columns that a warp writes together: rows of up to 128 bytes.
#define CHUNK (NT < 8 / (int)sizeof(O) ? NT : 8 / (int)sizeof(O))
// Elements of a row in `room`. The padding of 16 bytes lets rows begin in different banks.
#define CHUNK_ROW (CHUNK * 16 + 16 / (int)sizeof(O))
// Elements in shared memory through which a warp writes its sums.
#define WARP_ROOM (16 * CHUNK_ROW)
// Writes 16 rows of a chunk whose rows begin at any element: packs of 8 bytes, and the elements before and behind them.
__device__ inline void store_unaligned(O* c, i64 stride, const Place& place, u32 row, u32 column, u32 left, const O* room) {
  const u32 PACK = 8 / sizeof(O), IN_ROW = CHUNK * 16 / PACK, EDGES = 2 * PACK;
  u32 width = left < CHUNK * 16 ? left : CHUNK * 16;
  auto begin_of = [&](u32 r) { return c + (i64)(row + r) * stride + column; };
  auto exists = [&](u32 r) { return row + r >= place.row_begin && row + r < place.row_end; };
  // Number of elements before the first pack.
  auto before = [&](const O* begin) {
    u32 count = (PACK - (u32)((u64)begin / sizeof(O) % PACK)) % PACK;
    return count < width ? count : width;
  };
  for (u32 i = lane_of(); i < 16 * IN_ROW; i += LANES) {
    u32 r = i / IN_ROW;
    if (!exists(r)) continue;
    O* begin = begin_of(r);
    u32 at = before(begin) + i % IN_ROW * PACK;
    if (at + PACK > width) continue;
    Pack<O, PACK> pack;
    EACH(e, PACK) pack.at[e] = room[r * CHUNK_ROW + at + e];
    *(Pack<O, PACK>*)(begin + at) = pack;
  }
  for (u32 i = lane_of(); i < 16 * EDGES; i += LANES) {
    u32 r = i / EDGES, edge = i % EDGES;
    if (!exists(r)) continue;
    O* begin = begin_of(r);
    u32 first = before(begin), last = (width - first) % PACK;
    u32 at = edge < PACK ? edge : width - last + edge - PACK;
    if (edge < PACK ? edge < first : edge - PACK < last) begin[at] = room[r * CHUNK_ROW + at];
  }
}
// Writes a chunk of a warp's sums by way of its `room` in shared memory, so that neighbouring lanes write neighbouring elements.
__device__ inline void store_chunk(O* c, const Strides& sc, const Place& place, u32 columns, u32 m, u32 n, const Sums* sums, O* room) {
  EACH(i, CHUNK) EACH(h, LANE_ROWS) EACH(j, 2) {
    Pack<O, 2> two;
    EACH(e, 2) store<f32>(two.at[e], finished(sums[i].at[h][2 * j + e]));
    *(Pack<O, 2>*)(room + lane_row(h) * CHUNK_ROW + i * 16 + lane_column(2 * j)) = two;
  }
  WARP_BARRIER;
  u32 row = place.row + first_row() + m * ROW_STEP, column = place.column + first_column() + n * 16;
  O* own = c + (IN_DEPTH ? place.group * sc.group : 0);
  if (!PACKS_C && sc.column == 1) {
    store_unaligned(own, sc.row, place, row, column, column < columns ? columns - column : 0, room);
    WARP_BARRIER;
    return;
  }
  const int PACK = PACKS_C ? 16 / sizeof(O) : 1, IN_ROW = CHUNK * 16 / PACK;
  static_assert(NT % CHUNK == 0, "the sums of a warp are whole chunks");
  static_assert(16 * IN_ROW % LANES == 0, "every lane writes the same number of packs");
  EACH(i, 16 * IN_ROW / LANES) {
    u32 number = i * LANES + lane_of(), r = number / IN_ROW, at = number % IN_ROW * PACK;
    if (row + r < place.row_begin || row + r >= place.row_end || column + at >= columns) continue;
    *(Pack<O, PACK>*)(own + (i64)(row + r) * sc.row + (i64)(column + at) * (PACKS_C ? 1 : sc.column)) =
        *(const Pack<O, PACK>*)(room + r * CHUNK_ROW + at);
  }
  WARP_BARRIER;
}
// Writes a tile from the sums of all warps; zeros if it has no terms.
__device__ inline void store_tile(O* c, const Strides& sc, const Place& place, u32 columns, u32 steps, const Sums (&sum)[MT][NT], O* room) {
  if (steps > 0) {
    EACH(m, MT) EACH(n, NT / CHUNK) store_chunk(c, sc, place, columns, m, n * CHUNK, sum[m] + n * CHUNK, room);
    return;
  }
  const int PACK = PACKS_C ? 16 / sizeof(O) : 1, IN_ROW = BN / PACK;
  Pack<O, PACK> zeros = {};
  O* own = c + (IN_DEPTH ? place.group * sc.group : 0);
#pragma unroll 8
  for (u32 i = threadIdx.x; i < BM * IN_ROW; i += THREADS) {
    u32 row = place.row + i / IN_ROW, column = place.column + i % IN_ROW * PACK;
    if (row >= place.row_begin && row < place.row_end && column < columns) *(Pack<O, PACK>*)(own + (i64)row * sc.row + (i64)column * (PACKS_C ? 1 : sc.column)) = zeros;
  }
}
"#;
