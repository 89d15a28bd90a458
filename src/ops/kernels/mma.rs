//! Device functions that multiply small matrices with the matrix units of a warp.
//!
//! The same text serves `mma.sync` of NVIDIA (compute capability 8.0 and later), MFMA of AMD's CDNA (gfx90a and later), and
//! devices without such units, whose lanes exchange the factors by shuffles. A kernel works with tiles of 16 × 16: a `Factor` of
//! [`FUNCTIONS`] holds 16-bit elements, and `Sums` hold the `f32` elements of a product. The assignment of elements to lanes
//! depends on the device; `lane_row` and `lane_column` return it. The sums of a product can be the left factor of the next
//! product without an exchange between lanes.
//!
//! Layouts of fragments: PTX ISA, "Matrix Fragments for mma.m16n8k16"; AMD Instinct MI300 ISA, "Matrix Arithmetic
//! Instructions", `V_MFMA_F32_16X16X16_F16`.

/// Kernel text of the device functions, which need the prelude of [`super::kernel::source`]:
///
/// - `LANES`: number of threads of a warp.
/// - `Tile<ROWS, WIDTH>`: 16-bit elements in shared memory; `chunk(row, column)` is the position of eight neighbouring ones.
/// - `left`, `left_turned`, `right`, `right_turned`: load the factor that begins at a row and a column of a `Tile`. A row of the
///   `Tile` is a row of the factor for `left` and `right_turned`, and a column of it for `left_turned` and `right`.
/// - `multiply<T>`: adds the product of a left and a right factor to sums.
/// - `left_of<T>`: converts sums to a left factor, rounded to `T`.
/// - `across_row(value, join)`: combines the values of all lanes that hold sums of the same rows.
/// - `load_rows`, `load_matrix`: copy rows from global memory to a `Tile`, asynchronously if the device supports it.
///   `loads_issued` ends a group of copies, `loads_done` waits for all copies, also those that are in no group yet, and
///   `loads_pending<N>` until at most `N` groups are in flight.
pub const FUNCTIONS: &str = r#"
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define MMA 1
#else
#define MMA 0
#endif
#if defined(__gfx90a__) || defined(__gfx940__) || defined(__gfx941__) || defined(__gfx942__) || defined(__gfx950__)
#define MFMA 1
#else
#define MFMA 0
#endif
#define LANES (MFMA ? 64 : 32)
// Number of rows of a product's tile of which a lane holds sums, four per row.
#define LANE_ROWS (MFMA ? 1 : 2)
#define FACTORS (MFMA ? 2 : 4)
#if defined(__HIPCC_RTC__) || defined(__HIP__)
#define SHUFFLE_FROM(value, lane) __shfl(value, lane, 32)
#define WARP_BARRIER __syncthreads()
__device__ inline f32 exp2_fast(f32 x) { return exp2f(x); }
__device__ inline f32 log2_fast(f32 x) { return log2f(x); }
#else
#define SHUFFLE_FROM(value, lane) __shfl_sync(0xffffffffu, value, lane)
#define WARP_BARRIER __syncwarp()
__device__ inline f32 exp2_fast(f32 x) { f32 y; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
__device__ inline f32 log2_fast(f32 x) { f32 y; asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
#endif

typedef unsigned short u16;
struct Factor { u32 at[FACTORS]; };
struct Sums { f32 at[LANE_ROWS][4]; };

__device__ inline u32 lane_of() { return threadIdx.x % LANES; }
// Row in the tile of a lane's sums `at[h]`, and column of its sums `at[..][i]`.
__device__ inline u32 lane_row(int h) { return MFMA ? lane_of() % 16 : lane_of() / 4 + 8 * h; }
__device__ inline u32 lane_column(int i) {
  return MFMA ? lane_of() / 16 * 4 + i : i / 2 * 8 + lane_of() % 4 * 2 + i % 2;
}
template <typename V, typename F> __device__ inline V across_row(V value, F join) {
  value = join(value, SHUFFLE_XOR(value, (MFMA ? 16 : 1)));
  return join(value, SHUFFLE_XOR(value, (MFMA ? 32 : 2)));
}

// Rows of `WIDTH` elements in chunks of eight. The chunks of eight rows at the same column lie in different banks.
template <int ROWS, int WIDTH> struct Tile {
  enum { TURNS = WIDTH % 64 == 0, STRIDE = TURNS ? WIDTH : WIDTH + 8, SIZE = ROWS * STRIDE };
  u16* at;
  __device__ inline u16* chunk(u32 row, u32 column) const {
    return at + row * STRIDE + (TURNS ? ((column / 8) ^ (row % 8)) * 8 : column);
  }
  __device__ inline u16* element(u32 row, u32 column) const { return chunk(row, column / 8 * 8) + column % 8; }
};

#if MMA
__device__ inline u32 shared_address(const void* at) { return (u32)__cvta_generic_to_shared(at); }
__device__ inline Factor load_matrices(u32 row) {
  Factor f;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
    : "=r"(f.at[0]), "=r"(f.at[1]), "=r"(f.at[2]), "=r"(f.at[3]) : "r"(row) : "memory");
  return f;
}
__device__ inline Factor load_matrices_turned(u32 row) {
  Factor f;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
    : "=r"(f.at[0]), "=r"(f.at[1]), "=r"(f.at[2]), "=r"(f.at[3]) : "r"(row) : "memory");
  return f;
}
// Each lane addresses one of eight rows of one of four matrices. Like `chunk`, split into a part that all tiles share.
template <int ROWS, int WIDTH>
__device__ inline u32 named_row(const Tile<ROWS, WIDTH>& tile, u32 row, u32 column, u32 lane_row, u32 lane_column) {
  typedef Tile<ROWS, WIDTH> L;
  u32 base = shared_address(tile.at) + (row + lane_row) * (u32)(L::STRIDE * 2);
  return L::TURNS ? base + ((column * 2) ^ (lane_column * 2 ^ lane_row % 8 * 16)) : base + (column + lane_column) * 2;
}
template <typename L> __device__ inline Factor left(const L& tile, u32 row, u32 column) {
  u32 l = lane_of();
  return load_matrices(named_row(tile, row, column, l % 16, l / 16 * 8));
}
template <typename L> __device__ inline Factor left_turned(const L& tile, u32 row, u32 column) {
  u32 l = lane_of();
  return load_matrices_turned(named_row(tile, row, column, l % 8 + l / 16 * 8, l / 8 % 2 * 8));
}
template <typename L> __device__ inline Factor right(const L& tile, u32 row, u32 column) {
  u32 l = lane_of();
  return load_matrices(named_row(tile, row, column, l % 8 + l / 16 * 8, l / 8 % 2 * 8));
}
template <typename L> __device__ inline Factor right_turned(const L& tile, u32 row, u32 column) {
  u32 l = lane_of();
  return load_matrices_turned(named_row(tile, row, column, l % 16, l / 16 * 8));
}
template <typename T> struct Unit;
#define UNIT(T, SUFFIX) \
  template <> struct Unit<T> { \
    static __device__ inline void multiply(f32& a, f32& b, f32& c, f32& d, const Factor& l, u32 r, u32 s) { \
      asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." SUFFIX "." SUFFIX ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
        : "+f"(a), "+f"(b), "+f"(c), "+f"(d) : "r"(l.at[0]), "r"(l.at[1]), "r"(l.at[2]), "r"(l.at[3]), "r"(r), "r"(s)); \
    } \
    static __device__ inline u32 pack(f32 low, f32 high) { \
      u32 both; \
      asm("cvt.rn." SUFFIX "x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low)); \
      return both; \
    } \
  };
UNIT(f16, "f16")
UNIT(bf16, "bf16")
template <typename T> __device__ inline u32 pack_two(f32 low, f32 high) { return Unit<T>::pack(low, high); }
template <typename T> __device__ inline void multiply(Sums& s, const Factor& l, const Factor& r) {
  Unit<T>::multiply(s.at[0][0], s.at[0][1], s.at[1][0], s.at[1][1], l, r.at[0], r.at[1]);
  Unit<T>::multiply(s.at[0][2], s.at[0][3], s.at[1][2], s.at[1][3], l, r.at[2], r.at[3]);
}
#else
template <typename T> __device__ inline u32 pack_two(f32 low, f32 high) {
  T a, b;
  store<f32>(a, low);
  store<f32>(b, high);
  return a.bits | (u32)b.bits << 16;
}
template <typename L> __device__ inline u32 two_of(const L& tile, u32 row, u32 column) {
  return *(const u32*)tile.element(row, column);
}
template <typename L> __device__ inline u32 two_turned(const L& tile, u32 row, u32 column) {
  return *tile.element(row, column) | (u32)*tile.element(row + 1, column) << 16;
}
#if MFMA
template <typename L> __device__ inline Factor left(const L& tile, u32 row, u32 column) {
  row += lane_of() % 16;
  column += lane_of() / 16 * 4;
  return {{two_of(tile, row, column), two_of(tile, row, column + 2)}};
}
template <typename L> __device__ inline Factor right(const L& tile, u32 row, u32 column) { return left(tile, row, column); }
template <typename L> __device__ inline Factor right_turned(const L& tile, u32 row, u32 column) {
  row += lane_of() / 16 * 4;
  column += lane_of() % 16;
  return {{two_turned(tile, row, column), two_turned(tile, row + 2, column)}};
}
template <typename L> __device__ inline Factor left_turned(const L& tile, u32 row, u32 column) {
  return right_turned(tile, row, column);
}
#ifndef FOUR
#define FOUR(T) T __attribute__((ext_vector_type(4)))
#endif
typedef FOUR(_Float16) FourHalves;
typedef FOUR(short) FourShorts;
typedef FOUR(f32) FourFloats;
// The matrix unit computes the transposed product: lanes of the right factor are rows.
__device__ inline FourFloats products(f16, const Factor& l, const Factor& r, FourFloats sums) {
  union { Factor bits; FourHalves factor; } left = {l}, right = {r};
  return __builtin_amdgcn_mfma_f32_16x16x16f16(right.factor, left.factor, sums, 0, 0, 0);
}
__device__ inline FourFloats products(bf16, const Factor& l, const Factor& r, FourFloats sums) {
  union { Factor bits; FourShorts factor; } left = {l}, right = {r};
  return __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(right.factor, left.factor, sums, 0, 0, 0);
}
template <typename T> __device__ inline void multiply(Sums& s, const Factor& l, const Factor& r) {
  FourFloats sums = {s.at[0][0], s.at[0][1], s.at[0][2], s.at[0][3]};
  sums = products(T(), l, r, sums);
#pragma unroll
  for (int i = 0; i < 4; i++) s.at[0][i] = sums[i];
}
#else
// Multiplies the fragments of `mma.m16n8k16` with the vector units.
template <typename L> __device__ inline Factor left(const L& tile, u32 row, u32 column) {
  row += lane_of() / 4;
  column += lane_of() % 4 * 2;
  return {{two_of(tile, row, column), two_of(tile, row + 8, column), two_of(tile, row, column + 8), two_of(tile, row + 8, column + 8)}};
}
template <typename L> __device__ inline Factor right(const L& tile, u32 row, u32 column) {
  row += lane_of() / 4;
  column += lane_of() % 4 * 2;
  return {{two_of(tile, row, column), two_of(tile, row, column + 8), two_of(tile, row + 8, column), two_of(tile, row + 8, column + 8)}};
}
template <typename L> __device__ inline Factor right_turned(const L& tile, u32 row, u32 column) {
  row += lane_of() % 4 * 2;
  column += lane_of() / 4;
  return {{two_turned(tile, row, column), two_turned(tile, row + 8, column), two_turned(tile, row, column + 8), two_turned(tile, row + 8, column + 8)}};
}
template <typename L> __device__ inline Factor left_turned(const L& tile, u32 row, u32 column) {
  row += lane_of() % 4 * 2;
  column += lane_of() / 4;
  return {{two_turned(tile, row, column), two_turned(tile, row, column + 8), two_turned(tile, row + 8, column), two_turned(tile, row + 8, column + 8)}};
}
template <typename T> __device__ inline f32 dot_two(u32 a, u32 b) {
  T x = {(u16)a}, y = {(u16)b}, z = {(u16)(a >> 16)}, w = {(u16)(b >> 16)};
  return load<f32>(x) * load<f32>(y) + load<f32>(z) * load<f32>(w);
}
template <typename T> __device__ inline void multiply(Sums& s, const Factor& l, const Factor& r) {
  for (int from = 0; from < 4; from++) {
    u64 own[2], other[2][2];
    for (int h = 0; h < 2; h++) {
      own[h] = SHUFFLE_FROM(l.at[h] | (u64)l.at[h + 2] << 32, (int)(lane_of() / 4 * 4 + from));
      for (int e = 0; e < 2; e++)
        other[h][e] = SHUFFLE_FROM(r.at[2 * h] | (u64)r.at[2 * h + 1] << 32, (int)((lane_of() % 4 * 2 + e) * 4 + from));
    }
    for (int h = 0; h < 2; h++)
      for (int i = 0; i < 4; i++) {
        u64 b = other[i / 2][i % 2];
        s.at[h][i] += dot_two<T>((u32)own[h], (u32)b) + dot_two<T>((u32)(own[h] >> 32), (u32)(b >> 32));
      }
  }
}
#endif
#endif

template <typename T> __device__ inline Factor left_of(const Sums& s) {
  Factor f;
#pragma unroll
  for (int i = 0; i < FACTORS; i++)
    f.at[i] = pack_two<T>(s.at[i % LANE_ROWS][i / LANE_ROWS * 2], s.at[i % LANE_ROWS][i / LANE_ROWS * 2 + 1]);
  return f;
}

__device__ inline void load_chunk(u16* to, const void* from, bool exists) {
#if MMA
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(shared_address(to)), "l"(from), "r"(exists ? 16 : 0) : "memory");
#else
  Pack<u32, 4> none = {};
  *(Pack<u32, 4>*)to = exists ? *(const Pack<u32, 4>*)from : none;
#endif
}
__device__ inline void loads_issued() {
#if MMA
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
__device__ inline void loads_done() {
#if MMA
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}
template <int N> __device__ inline void loads_pending() {
#if MMA
  asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory");
#endif
}
// Reads elements of a row of `width` from `column` on, at any alignment, by the aligned packs that hold them. Elements behind the
// row are zero. Allocations begin and end at multiples of a pack.
template <typename T> __device__ inline Pack<u16, 8> neighbours(const T* row, u32 column, u32 width) {
  union Words { u32 w[8]; Pack<u32, 4> packs[2]; Pack<u16, 8> elements; __device__ Words() {} } words;
  u64 at = (u64)(row + column);
  u32 shift = (u32)(at % 16), count = width - column < 8 ? width - column : 8;
  const Pack<u32, 4>* from = (const Pack<u32, 4>*)(at - shift);
  words.packs[0] = from[0];
  words.packs[1] = {};
  if (shift + count * 2 > 16) words.packs[1] = from[1];
  if (shift & 8) {
#pragma unroll
    for (int i = 0; i < 6; i++) words.w[i] = words.w[i + 2];
  }
  if (shift & 4) {
#pragma unroll
    for (int i = 0; i < 5; i++) words.w[i] = words.w[i + 1];
  }
  if (shift & 2) {
#pragma unroll
    for (int i = 0; i < 4; i++) words.w[i] = words.w[i] >> 16 | words.w[i + 1] << 16;
  }
#pragma unroll
  for (u32 i = 0; i < 8; i++)
    if (i >= count) words.elements.at[i] = 0;
  return words.elements;
}
// Copies eight elements of a row of `width` from `column` on; zeros behind its end, or if `row` is null.
template <bool PACKS, typename T> __device__ inline void load_pack(u16* to, const T* row, u32 column, u32 width, i64 step) {
  if (PACKS) {
    load_chunk(to, row + column, row && column < width);
    return;
  }
  Pack<u16, 8> pack = {};
  if (step == 1) {
    if (row && column < width) pack = neighbours(row, column, width);
  } else {
#pragma unroll
    for (u32 i = 0; i < 8; i++) pack.at[i] = row && column + i < width ? row[(i64)(column + i) * step].bits : 0;
  }
  *(Pack<u16, 8>*)to = pack;
}
// `row(r)` is the address of row `r` of the tile, or null for a missing row. Elements from `width` on are zero, up to `COLUMNS`.
template <int THREADS, bool PACKS, int ROWS, int COLUMNS, typename T, int WIDTH, typename F>
__device__ inline void load_rows(const Tile<ROWS, WIDTH>& tile, F row, u32 width, i64 step) {
  const int CHUNKS = COLUMNS / 8, PASSES = (ROWS * CHUNKS + THREADS - 1) / THREADS;
  // `row` may load an entry of a page table. All addresses are computed before the first copy, so that these loads overlap.
  const T* from[PASSES];
#pragma unroll
  for (int pass = 0; pass < PASSES; pass++) {
    u32 number = pass * THREADS + threadIdx.x;
    from[pass] = number < ROWS * CHUNKS ? row(number / CHUNKS) : (const T*)0;
  }
#pragma unroll
  for (int pass = 0; pass < PASSES; pass++) {
    u32 number = pass * THREADS + threadIdx.x, r = number / CHUNKS, column = number % CHUNKS * 8;
    if (ROWS * CHUNKS % THREADS != 0 && number >= ROWS * CHUNKS) break;
    load_pack<PACKS>(tile.chunk(r, column), from[pass], column, width, step);
  }
}
// Does the same for rows with a stride of `stride` elements, of which the first `rows` exist.
template <int THREADS, bool PACKS, int COLUMNS = 0, int ROWS, int WIDTH, typename T>
__device__ inline void load_matrix(const Tile<ROWS, WIDTH>& tile, const T* from, i64 stride, u32 rows, u32 width, i64 step) {
  const int SIZE = COLUMNS ? COLUMNS : WIDTH, CHUNKS = SIZE / 8, PASS = THREADS / CHUNKS;
  if (PACKS && THREADS % CHUNKS == 0) {
    u32 r = threadIdx.x / CHUNKS, column = threadIdx.x % CHUNKS * 8;
    from += (i64)r * stride + column;
#pragma unroll
    for (int first = 0; first < ROWS; first += PASS) {
      if (first + PASS > ROWS && first + r >= ROWS) break;
      load_chunk(tile.chunk(first + r, column), from, first + r < rows && column < width);
      from += PASS * stride;
    }
  } else if (PACKS) {
#pragma unroll
    for (int first = 0; first < ROWS * CHUNKS; first += THREADS) {
      u32 number = first + threadIdx.x, r = number / CHUNKS, column = number % CHUNKS * 8;
      if (ROWS * CHUNKS % THREADS != 0 && number >= ROWS * CHUNKS) break;
      load_chunk(tile.chunk(r, column), from + (i64)r * stride + column, r < rows && column < width);
    }
  } else {
    auto row = [&](u32 r) { return r < rows ? from + (i64)r * stride : (const T*)0; };
    load_rows<THREADS, PACKS, ROWS, SIZE, T>(tile, row, width, step);
  }
}
"#;
