//! Source text of the forward kernels. [`super::kernel`] defines the macros that they use.

/// Offsets of rows, and the range of keys that a row attends to.
///
/// A block processes `BM` rows of one index of the geometry. A row is a query of one of `GROUP` heads that share keys,
/// so there are `GROUP` times `queries` rows.
pub const PLACES: &str = r#"
#define LOWEST (-INFINITE)
struct Larger { template <typename V> __device__ V operator()(V a, V b) const { return a > b ? a : b; } };
struct Total { template <typename V> __device__ V operator()(V a, V b) const { return a + b; } };
struct Steps { i64 query, head, element; };
// Offset of a row; `head` is the stride of the heads that share keys.
__device__ inline i64 place(const Steps& steps, u32 row, u32 queries) {
  return GROUP == 1 ? (i64)row * steps.query : (i64)(row / queries) * steps.head + (i64)(row % queries) * steps.query;
}
__device__ inline u32 query_of(u32 row, u32 queries) { return GROUP == 1 ? row : row % queries; }
// A query attends to keys `first_key` to `last_key`, exclusive.
__device__ inline u32 first_key(u32 query, u32 queries, u32 keys, u32 window) {
  i64 end = (i64)query + 1 + keys - queries;
  return window && end > window ? (u32)(end - window) : 0;
}
__device__ inline u32 last_key(u32 query, u32 queries, u32 keys) {
  i64 end = (i64)query + 1 + keys - queries;
  return !CAUSAL ? keys : end < 0 ? 0 : end < keys ? (u32)end : keys;
}
#define LOG2_E 1.4426950408889634f
#if PAGED
// Defines `keys`, the number of keys of the sequence, and `row_of_key`, which returns the address of a key, or null for
// a key behind the last one or in a page outside of the pool.
#define SEQUENCE                                                                                \
  pages += at[5];                                                                               \
  i64 length = (i64)lengths[at[6]];                                                             \
  keys = length < 0 ? 0 : length < (i64)keys ? (u32)length : keys;                              \
  auto row_of_key = [&](const T* pool, u32 key, i64 row, u64 page) -> const T* {                \
    if (key >= keys) return 0;                                                                  \
    u64 block = (u64)(i64)pages[(u64)(key / PAGE) * column];                                    \
    return block < pool_blocks ? pool + block * page + (i64)(key % PAGE) * row : (const T*)0;        \
  };
#else
#define SEQUENCE
#endif
"#;

/// Keys per tile, warps that divide the rows of a block, and launch bounds, by device.
///
/// On Hopper, a warpgroup of four warps multiplies 64 rows by `wgmma`. As in FlashAttention-3 (Shah and others, 2024),
/// the scores of the next tile are computed while the values of the current one are accumulated.
pub const DEVICES: &str = r#"
#if defined(__CUDA_ARCH_FEAT_SM90_ALL) && BY_WARPGROUPS
#define WARPGROUPS 1
#define BN HOPPER_KEYS
#define MAX_ROW_WARPS (BM / 16)
// The compiler limits the registers of a thread, so that an SM holds this many blocks.
#define LAUNCH_BOUNDS __launch_bounds__(THREADS, RESIDENT_BLOCKS)
#else
#define WARPGROUPS 0
#define BN (MMA ? UNIT_KEYS : OTHER_KEYS)
#define LAUNCH_BOUNDS __launch_bounds__(THREADS)
#define MAX_ROW_WARPS (MMA ? UNIT_ROW_WARPS : OTHER_ROW_WARPS)
#endif
// Number of tiles of keys and values in shared memory. One is multiplied while the others are loaded.
#define STAGES (MMA ? UNIT_STAGES : 1)
// Number of columns of 64 elements that hold a query or key, and a value.
#define PARTS ((WIDTH + 63) / 64)
#define VALUE_PARTS ((VALUE_WIDTH + 63) / 64)
#undef BOUNDS
#if CLUSTER > 1
#define BOUNDS LAUNCH_BOUNDS __cluster_dims__(CLUSTER, 1, 1)
#else
#define BOUNDS LAUNCH_BOUNDS
#endif
"#;

/// Attention of `BM` rows by one block. Warps divide the rows (`ROW_WARPS`) and the keys of each tile (`KEY_WARPS`). As
/// in FlashAttention-2 (Dao, 2023), scores stay in registers, and sums are relative to the largest score so far.
pub const TILES: &str = r#"
#define WARPS (THREADS / LANES)
#define ROW_WARPS (WARPS < MAX_ROW_WARPS ? WARPS : MAX_ROW_WARPS)
#define KEY_WARPS (WARPS / ROW_WARPS)
#define MT (BM / 16 / ROW_WARPS)
#define NT (BN / 16 / KEY_WARPS)
// In wide heads, warps divide the columns of the sums instead of the keys.
#if WIDE
#define JOINS 0
#define SUM_TILES (VALUE_WIDTH / 16 / KEY_WARPS)
#define SUM_COLUMN(n) ((WARPGROUPS ? key_warp * SUM_TILES + n : n * KEY_WARPS + key_warp) * 16)
#else
#define JOINS (KEY_WARPS > 1 || CLUSTER > 1)
#define SUM_TILES (VALUE_WIDTH / 16)
#define SUM_COLUMN(n) (n * 16)
#endif
// With few rows, the ninth and further rows of a tile do not exist.
#if FEW_ROWS
#define OWN_ROWS 1
#else
#define OWN_ROWS LANE_ROWS
#endif
#define EACH_ROW _Pragma("unroll") for (int m = 0; m < MT; m++) _Pragma("unroll") for (int h = 0; h < OWN_ROWS; h++)
#define EACH_TILE(i, n) _Pragma("unroll") for (int i = 0; i < n; i++)
"#;

/// Shared memory of a block: the queries, and tiles of keys and values.
pub const MEMORY: &str = r#"#if WARPGROUPS
  extern __shared__ __align__(1024) Pack<u32, 4> memory[];
  // Double buffering of the tiles of keys and of values.
  Columns<BM, WIDTH> tile_q = {(u16*)memory};
  u16* tiles_k = tile_q.at + PARTS * BM * 64;
  u16* tiles_v = tiles_k + 2 * PARTS * BN * 64;
#if BIAS_COPIED
  BiasType* bias_tiles = (BiasType*)(tiles_v + 2 * VALUE_PARTS * BN * 64);
#endif
#else
  extern __shared__ Pack<u32, 4> memory[];
  typedef Tile<BN, WIDTH> Keys;
  typedef Tile<BN, VALUE_WIDTH> Values;
  Tile<BM, WIDTH> tile_q = {(u16*)memory};
  u16* tiles = tile_q.at + tile_q.SIZE;
#if BIAS_COPIED
  BiasType* bias_tiles = (BiasType*)(tiles + STAGES * (Keys::SIZE + Values::SIZE));
#endif
#endif
"#;

/// Keys that a block attends to, its sums, and the functions that replace scores by weights.
pub const RANGE: &str = r#"  // Blocks start with the last queries: with a causal mask, these attend to the most keys.
#if RAGGED
  u32 blocks = rows / BM + sequences + 1, split = 0, index = blockIdx.x / blocks;
  Sequence sequence = SEQUENCE_OF(false, blocks - 1 - blockIdx.x % blocks, BM);
  u32 first_row = sequence.row;
  queries = sequence.count;
  keys = sequence.key_count;
  rows = queries * GROUP;
  if (first_row >= rows) return;
  q += sequence.first * sq.query; o += sequence.first * so.query; lse += sequence.first * sl.query;
  k += sequence.first_key * sk.query; v += sequence.first_key * sv.query;
#else
  u32 blocks = (rows + BM - 1) / BM, split = blockIdx.x % splits, rest = blockIdx.x / splits;
  u32 index = rest / blocks, first_row = (blocks - 1 - rest % blocks) * BM;
#endif
  i64 at[OPERANDS];
  g.offsets(index, at);
  q += at[0]; k += at[1]; v += at[2]; o += at[3]; lse += at[4];
  SEQUENCE
#if BIAS
  bias += at[5];
#endif
#if BIAS || SOFTCAP
  // The products are scaled before the cap limits them and the bias is added.
  const f32 of_products = scale;
  scale = 1;
#endif
  u32 last_row = first_row + BM < rows ? first_row + BM - 1 : rows - 1;
  // If the rows span several heads, they can be any queries.
  bool several = GROUP > 1 && first_row / queries != last_row / queries;
  u32 low = first_key(several ? 0 : query_of(first_row, queries), queries, keys, window) / BN * BN;
  u32 high = last_key(several ? queries - 1 : query_of(last_row, queries), queries, keys);
  u32 full_low = first_key(several ? queries - 1 : query_of(last_row, queries), queries, keys, window);
  u32 full_high = last_key(several ? 0 : query_of(first_row, queries), queries, keys);
  if (splits > 1) {
    u32 tiles = (high > low ? high - low + BN - 1 : 0) / BN, each = (tiles + splits - 1) / splits;
    low += split * each * BN;
    if (low + each * BN < high) high = low + each * BN;
  }
  u32 warp = threadIdx.x / LANES, row_warp = warp % ROW_WARPS, key_warp = warp / ROW_WARPS;
  u32 own_row = row_warp * MT * 16, own_key = key_warp * NT * 16;

  auto row_of_q = [&](u32 r) { return first_row + r < rows ? q + place(sq, first_row + r, queries) : (const T*)0; };
  Sums sum[MT][SUM_TILES], score[MT][NT];
  f32 top[MT][LANE_ROWS], total[MT][LANE_ROWS];
  EACH_ROW {
    top[m][h] = LOWEST;
    total[m][h] = 0;
  }
  EACH_TILE(m, MT) EACH_TILE(n, SUM_TILES) EACH_TILE(h, LANE_ROWS) EACH_TILE(i, 4) sum[m][n].at[h][i] = 0;
#if BIAS_COPIED
  BiasTile<NT * 16, 1, 8> tile_bias = {bias_tiles + warp * (MT * 16 * NT * 16)};
  // Each lane holds the place of one row of the warp.
  const u32 row_of_lane = first_row + own_row + lane_of();
  const i64 place_of_lane = place(sb, row_of_lane < rows ? row_of_lane : last_row, queries);
  auto load_bias = [&](u32 start) {
    // The copy replaces the bias of the last tile, which every lane of the warp must have read.
    WARP_BARRIER;
    if (start >= high) return;
    auto row = [&](u32 r) { return bias + SHUFFLE_FROM(place_of_lane, r); };
    tile_bias.copy<MT * 16>(row, start + own_key, keys, sb.element);
  };
#endif
  // Limits scores by the cap, adds the bias, and masks the scores of keys that a row does not attend to.
  auto mask = [&](u32 start) {
#if BIAS_COPIED
    loads_pending<STAGES - 1>();
    WARP_BARRIER;
    EACH_ROW EACH_TILE(n, NT) EACH_TILE(j, 2) {
      Pack<BiasType, 2> two = *(const Pack<BiasType, 2>*)tile_bias.element(m * 16 + lane_row(h), n * 16 + lane_column(2 * j));
      EACH_TILE(i, 2)
        score[m][n].at[h][2 * j + i] = CAPPED_EXPONENT(score[m][n].at[h][2 * j + i] * of_products) + load<f32>(two.at[i]) * LOG2_E;
    }
    load_bias(start + BN);
    loads_issued();
#elif BIAS
    EACH_ROW {
      u32 row = first_row + own_row + m * 16 + lane_row(h);
      const auto* of_row = bias + place(sb, row < rows ? row : last_row, queries);
      EACH_TILE(n, NT) EACH_TILE(i, 4) {
        u32 key = start + own_key + n * 16 + lane_column(i);
        // A condition on each load would make a thread wait for one after the other.
        f32 own = load<f32>(of_row[(i64)(key < keys ? key : keys - 1) * sb.element]);
        score[m][n].at[h][i] = CAPPED_EXPONENT(score[m][n].at[h][i] * of_products) + own * LOG2_E;
      }
    }
#elif SOFTCAP
    EACH_ROW EACH_TILE(n, NT) EACH_TILE(i, 4)
      score[m][n].at[h][i] = CAPPED_EXPONENT(score[m][n].at[h][i] * of_products);
#endif
    if (start + BN <= full_high && start >= full_low) return;
    EACH_ROW {
      u32 row = first_row + own_row + m * 16 + lane_row(h), query = query_of(row < rows ? row : last_row, queries);
      u32 from = first_key(query, queries, keys, window), to = last_key(query, queries, keys);
      EACH_TILE(n, NT) EACH_TILE(i, 4) {
        u32 key = start + own_key + n * 16 + lane_column(i);
        if (key < from || key >= to) score[m][n].at[h][i] = LOWEST;
      }
    }
  };
  // The largest score of a row so far, among the keys of this warp.
  auto largest_of = [&](int m, int h) {
    f32 largest = top[m][h];
    EACH_TILE(n, NT) EACH_TILE(i, 4) largest = fmaxf(largest, score[m][n].at[h][i]);
    return across_row(largest, Larger());
  };
  // Replaces the scores of a row by weights. Returns the factor by which earlier sums are rescaled.
  auto weigh = [&](int m, int h, f32 largest) {
    // The row has not seen a key yet.
    f32 base = largest == LOWEST ? 0 : largest * scale;
    f32 shrink = exp2_fast(top[m][h] * scale - base), own = 0;
    top[m][h] = largest;
    EACH_TILE(n, NT) EACH_TILE(i, 4) {
      f32 p = exp2_fast(score[m][n].at[h][i] * scale - base);
      own += p;
      score[m][n].at[h][i] = p;
    }
    total[m][h] = total[m][h] * shrink + own;
    return shrink;
  };
"#;

/// Kernel text: the loop over tiles of keys, which accumulates the sums.
pub const LOOP: &str = r#"#if WARPGROUPS
  auto load_k = [&](u32 start, u32 stage) {
    Columns<BN, WIDTH> tile = {tiles_k + stage * PARTS * (BN * 64)};
#if PAGED
    auto row = [&](u32 r) { return row_of_key(k, start + r, sk.query, k_page); };
    load_in_columns<THREADS, PACKS, T>(tile, row, d, sk.element);
#else
    load_in_columns<THREADS, PACKS>(tile, k + (i64)start * sk.query, sk.query, keys - start, d, sk.element);
#endif
  };
  auto load_v = [&](u32 start, u32 stage) {
    Columns<BN, VALUE_WIDTH> tile = {tiles_v + stage * VALUE_PARTS * (BN * 64)};
#if PAGED
    auto row = [&](u32 r) { return row_of_key(v, start + r, sv.query, v_page); };
    load_in_columns<THREADS, PACKS, T>(tile, row, dv, sv.element);
#else
    load_in_columns<THREADS, PACKS>(tile, v + (i64)start * sv.query, sv.query, keys - start, dv, sv.element);
#endif
  };
  auto multiply_keys = [&](u32 stage) {
    EACH_TILE(c, WIDTH / 16) {
      const u16* of_q = tile_q.at + (c / 4 * BM + warp / 4 * 64) * 64 + c % 4 * 16;
      const u16* of_k = tiles_k + (stage * PARTS + c / 4) * (BN * 64) + c % 4 * 16;
      scores_of(score[0], described<BM>(of_q), described<BN>(of_k), c > 0);
    }
    multiply_end();
  };
  load_in_columns<THREADS, PACKS, T>(tile_q, row_of_q, d, sq.element);
  Factor weights[NT];
  auto multiply_values = [&](u32 stage) {
    const u16* of_v = tiles_v + stage * VALUE_PARTS * (BN * 64);
    EACH_TILE(c, NT) values_of(sum[0], weights[c], described<BN>(of_v + c * (16 * 64)), true);
    multiply_end();
  };
  if (low < high) {
#if BIAS_COPIED
    load_bias(low);
#endif
    load_k(low, 0);
    loads_issued();
    if (low + BN < high) load_k(low + BN, 1);
    load_v(low, 0);
    loads_issued();
    loads_pending<1>();
    written_before();
    __syncthreads();
    multiply_begin();
    multiply_keys(0);
    multiply_wait<0>();
    settled(score[0]);
    mask(low);
    f32 shrink[LANE_ROWS];
    EACH_TILE(h, LANE_ROWS) shrink[h] = weigh(0, h, largest_of(0, h));
    // Waits for the products of values that were in flight while the weights were computed.
    auto take_weights = [&]() {
      multiply_wait<0>();
      settled(sum[0]);
      EACH_TILE(n, NT) weights[n] = left_of<T>(score[0][n]);
      EACH_TILE(n, VALUE_WIDTH / 16) EACH_TILE(h, LANE_ROWS) EACH_TILE(i, 4) sum[0][n].at[h][i] *= shrink[h];
      // The bias of the next tile may still be in flight.
      loads_pending<BIAS_COPIED>();
      written_before();
      __syncthreads();
      multiply_begin();
    };
    u32 stage = 0;
    for (u32 start = low; start + BN < high; start += BN) {
      take_weights();
      multiply_keys(1 - stage);
      multiply_values(stage);
      if (start + 2 * BN < high) load_k(start + 2 * BN, stage);
      load_v(start + BN, 1 - stage);
      loads_issued();
      multiply_wait<1>();
      settled(score[0]);
      mask(start + BN);
      EACH_TILE(h, LANE_ROWS) shrink[h] = weigh(0, h, largest_of(0, h));
      settled(score[0]);
      stage = 1 - stage;
    }
    take_weights();
    multiply_values(stage);
    multiply_wait<0>();
    settled(sum[0]);
  }
#else
  load_rows<THREADS, PACKS, BM, WIDTH, T>(tile_q, row_of_q, d, sq.element);
#if PAGED
  // Addresses of the keys and values of tiles. A thread loads the page of one key while the tile two before is multiplied, and computes
  // addresses afterwards, so that no product waits for the page.
  static_assert(BN <= THREADS, "a thread for each key");
  __shared__ const T* rows_of_tile[STAGES > 1 ? STAGES : 2][2][BN];
  auto page_of_key = [&](u32 start) -> i64 {
    const u32 key = start + threadIdx.x;
    return threadIdx.x < BN && key < high ? (i64)pages[(u64)(key / PAGE) * column] : -1;
  };
  auto note = [&](u32 start, i64 page, u32 slot) {
    if (threadIdx.x >= BN) return;
    const u64 block = (u64)page, in_page = (start + threadIdx.x) % PAGE;
    const bool exists = block < pool_blocks;
    rows_of_tile[slot][0][threadIdx.x] = exists ? k + (block * k_page + in_page * sk.query) : (const T*)0;
    rows_of_tile[slot][1][threadIdx.x] = exists ? v + (block * v_page + in_page * sv.query) : (const T*)0;
  };
  i64 first_pages[STAGES];
  EACH_TILE(s, STAGES) first_pages[s] = page_of_key(low + s * BN);
  EACH_TILE(s, STAGES) note(low + s * BN, first_pages[s], s);
  __syncthreads();
#endif
  // With pages, `slot` has the addresses of the rows.
  auto load_tile = [&](u32 start, u32 stage, u32 slot) {
    if (start >= high) return;
    Keys tile_k = {tiles + stage * (Keys::SIZE + Values::SIZE)};
    Values tile_v = {tile_k.at + Keys::SIZE};
#if PAGED
    auto key = [&](u32 r) { return rows_of_tile[slot][0][r]; };
    auto value = [&](u32 r) { return rows_of_tile[slot][1][r]; };
    load_rows<THREADS, PACKS, BN, WIDTH, T>(tile_k, key, d, sk.element);
    load_rows<THREADS, PACKS, BN, VALUE_WIDTH, T>(tile_v, value, dv, sv.element);
#else
    load_matrix<THREADS, PACKS>(tile_k, k + (i64)start * sk.query, sk.query, keys - start, d, sk.element);
    load_matrix<THREADS, PACKS>(tile_v, v + (i64)start * sv.query, sv.query, keys - start, dv, sv.element);
#endif
  };
  EACH_TILE(s, STAGES) {
    load_tile(low + s * BN, s, s);
#if BIAS_COPIED
    if (s == 0) load_bias(low);
#endif
    loads_issued();
  }
  u32 stage = 0, slot = 0;
  for (u32 start = low; start < high; start += BN) {
    if (start == low)
      loads_pending<STAGES - 1>();
    else
      loads_pending<(STAGES > 1 ? STAGES - 2 : 0) + BIAS_COPIED>();
    __syncthreads();
    // The barrier above is passed once all warps have multiplied the previous tile, so the next copy may overwrite its stage.
    if (start > low) {
      load_tile(start + (STAGES - 1) * BN, (stage + STAGES - 1) % STAGES, slot);
      loads_issued();
      if (STAGES == 1) __syncthreads();
    }
#if PAGED
    const i64 next = page_of_key(start + STAGES * BN);
#endif
    Keys tile_k = {tiles + stage * (Keys::SIZE + Values::SIZE)};
    Values tile_v = {tile_k.at + Keys::SIZE};
    stage = (stage + 1) % STAGES;
    EACH_TILE(m, MT) EACH_TILE(n, NT) EACH_TILE(h, LANE_ROWS) EACH_TILE(i, 4) score[m][n].at[h][i] = 0;
    EACH_TILE(c, WIDTH / 16) {
      Factor rows_q[MT];
      EACH_TILE(m, MT) rows_q[m] = left(tile_q, own_row + m * 16, c * 16);
      EACH_TILE(n, NT) {
        Factor columns = right(tile_k, own_key + n * 16, c * 16);
        EACH_TILE(m, MT) multiply<T>(score[m][n], rows_q[m], columns);
      }
    }
    mask(start);
    EACH_ROW {
      f32 shrink = weigh(m, h, largest_of(m, h));
      EACH_TILE(n, VALUE_WIDTH / 16) EACH_TILE(i, 4) sum[m][n].at[h][i] *= shrink;
    }
    EACH_TILE(c, NT) {
      Factor weights[MT];
      EACH_TILE(m, MT) weights[m] = left_of<T>(score[m][c]);
      EACH_TILE(n, VALUE_WIDTH / 16) {
        Factor columns = right_turned(tile_v, own_key + c * 16, n * 16);
        EACH_TILE(m, MT) multiply<T>(sum[m][n], weights[m], columns);
      }
    }
#if PAGED
    // The other slot may still be read.
    slot = 1 - slot;
    note(start + STAGES * BN, next, slot);
#endif
  }
#endif
  loads_done();
  EACH_ROW total[m][h] = across_row(total[m][h], Total());
"#;

/// Results of a block from its sums.
pub const RESULTS: &str = r#"  // Joins the results of warps with different keys, and of the blocks of a cluster, in shared memory.
#if JOINS
  typedef Pack<f32, 4> Four;
  const u32 SUM_STRIDE = VALUE_WIDTH + 8, FOURS = VALUE_WIDTH / 4;
  f32 (*tops)[BM] = (f32 (*)[BM])memory;
  f32 (*totals)[BM] = tops + KEY_WARPS;
  f32* joined = (f32*)(totals + KEY_WARPS);
  f32 (*sums)[BM][SUM_STRIDE] = (f32 (*)[BM][SUM_STRIDE])(joined + 2 * BM);
  __syncthreads();
  EACH_ROW {
    u32 row = own_row + m * 16 + lane_row(h);
    if (lane_column(0) == 0) {
      tops[key_warp][row] = top[m][h] == LOWEST ? LOWEST : top[m][h] * scale;
      totals[key_warp][row] = total[m][h];
    }
    EACH_TILE(n, VALUE_WIDTH / 16) EACH_TILE(i, 4) sums[key_warp][row][n * 16 + lane_column(i)] = sum[m][n].at[h][i];
  }
  __syncthreads();
  // The factor of each warp's sums replaces its largest score.
  if (threadIdx.x < BM) {
    u32 r = threadIdx.x;
    f32 largest = LOWEST, all = 0;
    EACH_TILE(w, KEY_WARPS) largest = fmaxf(largest, tops[w][r]);
    EACH_TILE(w, KEY_WARPS) {
      tops[w][r] = exp2_fast(tops[w][r] - (largest == LOWEST ? 0 : largest));
      all += totals[w][r] * tops[w][r];
    }
    joined[r] = largest;
    joined[BM + r] = all;
  }
  __syncthreads();
  // Writes four elements of the result. `all` is the sum of the weights relative to 2^largest.
  auto finish = [&](u32 r, u32 column, const Four& value, f32 all, f32 largest) {
    u32 row = first_row + r;
    f32 share = all > 0 ? 1 / all : 0;
    f32 log = all > 0 ? (largest + log2f(all)) * 0.69314718055994531f : LOWEST;
    if (all != all) share = log = all;
    if (splits > CLUSTER) {
      u64 count = splits / CLUSTER, part = ((u64)index * rows + row) * count + split / CLUSTER;
      EACH_TILE(i, 4) if (column + i < dv) parts[part * dv + column + i] = value.at[i] * share;
      if (column == 0) parts[(u64)gridDim.x / (splits * blocks) * rows * count * dv + part] = log;
      return;
    }
    O* own = o + place(so, row, queries);
    EACH_TILE(j, 2) {
      Pack<O, 2> two;
      EACH_TILE(i, 2) store<f32>(two.at[i], value.at[2 * j + i] * share);
      u32 first = column + 2 * j;
      if (PAIRS) {
        if (first < dv) *(Pack<O, 2>*)(own + first) = two;
      } else {
        EACH_TILE(i, 2) if (first + i < dv) own[(i64)(first + i) * so.element] = two.at[i];
      }
    }
    if (column == 0) lse[place(sl, row, queries)] = log;
  };
  u32 present = (rows - first_row < BM ? rows - first_row : BM) * FOURS;
  for (u32 e = threadIdx.x; e < present; e += THREADS) {
    u32 r = e / FOURS, column = e % FOURS * 4;
    Four value = {};
    EACH_TILE(w, KEY_WARPS) {
      Four of_warp = *(const Four*)&sums[w][r][column];
      EACH_TILE(i, 4) value.at[i] += of_warp.at[i] * tops[w][r];
    }
    if (CLUSTER == 1)
      finish(r, column, value, joined[BM + r], joined[r]);
    else
      *(Four*)&sums[0][r][column] = value;
  }
#if CLUSTER > 1
  cluster_barrier();
  for (u32 e = split % CLUSTER * THREADS + threadIdx.x; e < present; e += CLUSTER * THREADS) {
    u32 r = e / FOURS, column = e % FOURS * 4;
    f32 largest = LOWEST, all = 0, of_top[CLUSTER], of_all[CLUSTER];
    Four value = {}, of_value[CLUSTER];
    EACH_TILE(b, CLUSTER) {
      of_top[b] = of_block(&joined[r], b);
      of_all[b] = of_block(&joined[BM + r], b);
      of_value[b] = four_of_block(&sums[0][r][column], b);
    }
    EACH_TILE(b, CLUSTER) largest = fmaxf(largest, of_top[b]);
    EACH_TILE(b, CLUSTER) {
      f32 weight = exp2_fast(of_top[b] - (largest == LOWEST ? 0 : largest));
      all += of_all[b] * weight;
      EACH_TILE(i, 4) value.at[i] += of_value[b].at[i] * weight;
    }
    finish(r, column, value, all, largest);
  }
  // No block ends while others read its sums.
  cluster_barrier();
#endif
#else
  EACH_ROW {
    u32 row = first_row + own_row + m * 16 + lane_row(h);
    if (row >= rows) continue;
    f32 share = total[m][h] > 0 ? 1 / total[m][h] : 0;
    f32 log = total[m][h] > 0 ? (top[m][h] * scale + log2f(total[m][h])) * 0.69314718055994531f : LOWEST;
    if (total[m][h] != total[m][h]) share = log = total[m][h];
    bool first = lane_column(0) == 0 && (!WIDE || key_warp == 0);
    if (splits > 1) {
      u64 part = ((u64)index * rows + row) * splits + split;
      f32* own = parts + part * dv;
      EACH_TILE(n, SUM_TILES) EACH_TILE(j, 2) {
        u32 column = SUM_COLUMN(n) + lane_column(2 * j);
        Pack<f32, 2> two = {{sum[m][n].at[h][2 * j] * share, sum[m][n].at[h][2 * j + 1] * share}};
        if (dv % 2 == 0) {
          if (column < dv) *(Pack<f32, 2>*)(own + column) = two;
        } else {
          EACH_TILE(i, 2) if (column + i < dv) own[column + i] = two.at[i];
        }
      }
      if (first) parts[(u64)gridDim.x / (splits * blocks) * rows * splits * dv + part] = log;
    } else {
      O* own = o + place(so, row, queries);
      EACH_TILE(n, SUM_TILES) EACH_TILE(j, 2) {
        u32 column = SUM_COLUMN(n) + lane_column(2 * j);
        Pack<O, 2> two;
        EACH_TILE(i, 2) store<f32>(two.at[i], sum[m][n].at[h][2 * j + i] * share);
        if (PAIRS) {
          if (column < dv) *(Pack<O, 2>*)(own + column) = two;
        } else {
          EACH_TILE(i, 2) if (column + i < dv) own[(i64)(column + i) * so.element] = two.at[i];
        }
      }
      if (first) lse[place(sl, row, queries)] = log;
    }
  }
#endif
"#;
