//! Source text that writes the results of a tile.

/// Functions by which warps write their sums through shared memory, and blocks write zeros for tiles without terms.
/// The text follows [`super::text::TILES`].
pub const STORES: &str = r#"
// Number of tiles of 16 columns that a warp writes together: rows of up to 128 bytes. It divides the number of tiles.
#define CHUNK (8 / (int)sizeof(O) >= 4 && NT % 4 == 0 ? 4 : NT % 2 == 0 ? 2 : 1)
// Elements of a pack of 16 bytes, and of a sector of 32 bytes, the unit in which the memory is written.
#define PACK (16 / (int)sizeof(O))
#define SECTOR (2 * PACK)
// Elements of a row of `count` tiles in shared memory. The padding of 16 bytes lets rows begin in different banks.
#define ROOM_ROW(count) ((count) * 16 + (PACKS_C ? 0 : SECTOR) + PACK)
// Elements in shared memory through which a warp writes its sums.
#define WARP_ROOM (16 * ROOM_ROW(CHUNK))
// Writes a warp's sums of `COUNT` tiles by way of its `room` in shared memory, so that neighbouring lanes write neighbouring packs.
//
// A row of the result that begins `shift` elements behind a sector begins there in `room` as well. Its last elements that do not fill
// a sector are kept in front of the next chunk of the row: chunks of a row follow each other from the `first` to the `last`.
template <int COUNT> __device__ inline void store_chunk(O* c, const Strides& sc, const Place& place, u32 columns, u32 warp, u32 m, u32 n,
                                                        const Sums* sums, O* room, bool first, bool last) {
  const u32 ROW = ROOM_ROW(COUNT), WIDTH = COUNT * 16, PACKS = WIDTH / PACK;
  static_assert(NT % COUNT == 0, "the sums of a warp are whole chunks");
  static_assert(16 * PACKS % LANES == 0, "every lane writes the same number of packs");
  u32 row = place.row + row_of(warp, m), column = place.column + column_of(warp, n);
  O* own = c + (IN_DEPTH ? place.group * sc.group : 0) + (i64)row * sc.row + (i64)column * (PACKS_C ? 1 : sc.column);
  bool in_packs = PACKS_C || sc.column == 1;
  u32 left = column < columns ? columns - column : 0, width = left < WIDTH ? left : WIDTH;
  auto exists = [&](u32 r) { return width > 0 && row + r >= place.row_begin && row + r < place.row_end; };
  auto shift_of = [&](u32 r) { return PACKS_C || !in_packs ? 0 : (u32)((u64)(own + (i64)r * sc.row) / sizeof(O) % SECTOR); };
  EACH(h, LANE_ROWS) {
    O* to = room + lane_row(h) * ROW + shift_of(lane_row(h));
    EACH(i, COUNT) EACH(j, 2) {
      Pack<O, 2> two;
      EACH(e, 2) store<f32>(two.at[e], finished(sums[i].at[h][2 * j + e]));
      O* at = to + i * 16 + lane_column(2 * j);
      if (PACKS_C) *(Pack<O, 2>*)at = two;
      else EACH(e, 2) at[e] = two.at[e];
    }
  }
  WARP_BARRIER;
  if (width < WIDTH || column + WIDTH == columns) last = true;
  if (!in_packs) {
    EACH(i, 16 * WIDTH / LANES) {
      u32 number = i * LANES + lane_of(), r = number / WIDTH, at = number % WIDTH;
      if (exists(r) && at < width) own[(i64)r * sc.row + (i64)at * sc.column] = room[r * ROW + at];
    }
    WARP_BARRIER;
    return;
  }
  auto write = [&](u32 r, u32 at, u32 begin, u32 end) {
    if (exists(r) && at >= begin && at + PACK <= end)
      *(Pack<O, PACK>*)(own + (i64)r * sc.row + at - shift_of(r)) = *(const Pack<O, PACK>*)(room + r * ROW + at);
  };
  EACH(i, 16 * PACKS / LANES) {
    u32 number = i * LANES + lane_of(), r = number / PACKS, shift = shift_of(r);
    write(r, number % PACKS * PACK, first ? shift : 0, last ? shift + width : WIDTH);
  }
  if (!PACKS_C) {
    for (u32 i = lane_of(); last && i < 32; i += LANES) write(i / 2, WIDTH + i % 2 * PACK, first ? shift_of(i / 2) : 0, shift_of(i / 2) + width);
    // Elements before the first whole pack of a row, and behind the last one.
    for (u32 i = lane_of(); (first || last) && i < 16 * PACK; i += LANES) {
      u32 r = i / PACK, shift = shift_of(r), end = shift + width, begin = first ? shift : 0;
      O* to = own + (i64)r * sc.row - shift;
      u32 head = begin / PACK * PACK + i % PACK, tail = end / PACK * PACK + i % PACK;
      bool has_head = begin % PACK > 0;
      if (exists(r) && has_head && head >= begin && head < end) to[head] = room[r * ROW + head];
      if (exists(r) && last && tail < end && !(has_head && tail / PACK == begin / PACK)) to[tail] = room[r * ROW + tail];
    }
    WARP_BARRIER;
    for (u32 i = lane_of(); !last && i < 32; i += LANES)
      *(Pack<O, PACK>*)(room + i / 2 * ROW + i % 2 * PACK) = *(const Pack<O, PACK>*)(room + i / 2 * ROW + WIDTH + i % 2 * PACK);
  }
  WARP_BARRIER;
}
// Writes a tile from the sums of all warps; zeros if it has no terms.
__device__ inline void store_tile(O* c, const Strides& sc, const Place& place, u32 columns, u32 steps, const Sums (&sum)[MT][NT], O* room) {
  if (steps > 0 || !PACKS_C) {
    EACH(m, MT) EACH(n, NT / CHUNK)
      store_chunk<CHUNK>(c, sc, place, columns, threadIdx.x / LANES, m, n * CHUNK, sum[m] + n * CHUNK, room, n == 0, n == NT / CHUNK - 1);
    return;
  }
  const int IN_ROW = BN / PACK;
  Pack<O, PACK> zeros = {};
  O* own = c + (IN_DEPTH ? place.group * sc.group : 0);
#pragma unroll 8
  for (u32 i = threadIdx.x; i < BM * IN_ROW; i += THREADS) {
    u32 row = place.row + i / IN_ROW, column = place.column + i % IN_ROW * PACK;
    if (row >= place.row_begin && row < place.row_end && column < columns) *(Pack<O, PACK>*)(own + (i64)row * sc.row + column) = zeros;
  }
}
"#;
