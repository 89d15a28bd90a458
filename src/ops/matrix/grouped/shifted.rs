//! Source text for factors whose rows are not aligned to 16 bytes.

/// Functions that copy whole packs of 16 bytes to shared memory and shift their elements into tiles. They follow
/// [`super::super::super::mma`].
///
/// - `load_part<SHIFTS, PACKS, ROWS>(to, from, stride, count, width, step)`: loads `ROWS` rows of 64 elements of a tile, of which
///   `count` rows and `width` elements of a row exist. With `SHIFTS`, it copies the packs that hold them to rows of nine packs.
/// - `place_part<SHIFTS, ROWS>(to, packs, from, stride, width)`: shifts the elements of these packs into place.
pub const LOADS: &str = r#"
// Whether packs of a factor are copied ahead as they lie in memory.
#define SHIFT_A (MMA && !BULK && LIES_A && !PACKS_A)
#define SHIFT_B (MMA && !BULK && LIES_B && !PACKS_B)
// Elements of shared memory for 64 elements of a row: nine packs hold them at any alignment.
#define WIDTH_A (SHIFT_A ? 72 : 64)
#define WIDTH_B (SHIFT_B ? 72 : 64)
// Rows of a part of a tile.
#define ROWS_A (TURNED_A ? BK : BM)
#define ROWS_B (TURNED_B ? BN : BK)
template <bool SHIFTS, bool PACKS, int ROWS, typename T>
__device__ inline void load_part(u16* to, const T* from, i64 stride, u32 count, u32 width, i64 step) {
  if (!SHIFTS) return load_matrix<THREADS, PACKS>(Tile<ROWS, 64>{to}, from, stride, count, width, step);
  u32 row = threadIdx.x / 8, pack = threadIdx.x % 8 * 8;
  if (width > 64) width = 64;
#pragma unroll
  for (int first = 0; first < ROWS; first += THREADS / 8, row += THREADS / 8) {
    if (first + THREADS / 8 > ROWS && row >= ROWS) break;
    const T* own = from + (i64)row * stride;
    u32 shift = (u32)((u64)own % 16) / 2, end = row < count ? shift + width : 0;
    load_chunk(to + row * 72 + pack, own - shift + pack, pack < end);
    if (pack == 56) load_chunk(to + row * 72 + 64, own - shift + 64, 64 < end);
  }
}
template <bool SHIFTS, int ROWS, typename T>
__device__ inline void place_part(u16* to, const u16* packs, const T* from, i64 stride, u32 width) {
#if MMA
  if (!SHIFTS) return;
  // A thread loads the packs of four rows before it shifts any of them: its stores might otherwise delay its loads.
  const int PASS = THREADS / 8, COUNT = ROWS < 4 * PASS ? (ROWS + PASS - 1) / PASS : 4;
  u32 column = threadIdx.x % 8 * 8;
#pragma unroll
  for (int first = 0; first < ROWS; first += COUNT * PASS) {
    union Words { u32 w[8]; Pack<u32, 4> packs[2]; Pack<u16, 8> elements; __device__ Words() {} } words[COUNT];
    auto row_at = [&](int i) { return threadIdx.x / 8 + first + i * PASS; };
    auto exists = [&](int i) { return first + (i + 1) * PASS <= ROWS || row_at(i) < ROWS; };
    EACH(i, COUNT) {
      if (!exists(i)) continue;
      const Pack<u32, 4>* own = (const Pack<u32, 4>*)(packs + row_at(i) * 72 + column);
      words[i].packs[0] = own[0];
      words[i].packs[1] = own[1];
    }
    EACH(i, COUNT) {
      if (!exists(i)) continue;
      Words& own = words[i];
      u32 shift = ((u32)(u64)from / 2 + row_at(i) * (u32)stride) % 8;
      EACH(w, 6) own.w[w] = shift & 4 ? own.w[w + 2] : own.w[w];
      EACH(w, 5) own.w[w] = shift & 2 ? own.w[w + 1] : own.w[w];
      EACH(w, 4) own.w[w] = __funnelshift_r(own.w[w], own.w[w + 1], shift % 2 * 16);
      if (column + 8 > width) {
        EACH(e, 8) if (column + e >= width) own.elements.at[e] = 0;
      }
      *(Pack<u16, 8>*)Tile<ROWS, 64>{to}.chunk(row_at(i), column) = own.elements;
    }
  }
#endif
}
"#;
