//! Source text of the kernels of the gradients. [`super::backward_kernel`] defines the macros that they use.
//!
//! Each text serves two kinds of blocks: those whose rows are queries and whose columns are keys, and those whose rows are
//! keys (`KEYS`) and whose columns are queries. `own1` and `own2` are q and dy of the rows, or k and v; `other1` and
//! `other2` are those of the columns. With scores `s` and weights `p = exp(s - lse)`, the gradient of a score is `p *
//! (dp - delta)`, where `dp` is the product of dy and v (Dao, "FlashAttention-2", 2023, algorithm 2). Each row adds up
//! its own gradients, so no block adds to the results of another.

/// Definitions of the query and the key of a row and a column. `others` is the number of columns; columns of several
/// heads are consecutive.
pub const VIEW: &str = r#"
#define KEY(row, column) (KEYS ? (row) : (column))
#if RAGGED
// Offsets addresses and sizes to the sequence of a row.
#define OF_SEQUENCE                                                                                              \
  {                                                                                                              \
    u32 mine = KEYS ? sequence.first_key : sequence.first, theirs = KEYS ? sequence.first : sequence.first_key;  \
    own1 += mine * s_own1.query; own2 += mine * s_own2.query; out1 += mine * s_out1.query;                       \
    if (KEYS) out2 += mine * s_out2.query;                                                                       \
    other1 += theirs * s_other1.query; other2 += theirs * s_other2.query;                                        \
    lse += sequence.first * s_lse.query; delta += sequence.first * s_delta.query;                                \
    queries = sequence.count;                                                                                    \
    keys = sequence.key_count;                                                                                   \
    rows = KEYS ? keys : queries;                                                                                \
    others = KEYS ? queries * GROUP : keys;                                                                      \
  }
#endif
// Queries `first_query` to `last_query`, exclusive, attend to a key.
__device__ inline u32 first_query(u32 key, u32 queries, u32 keys) {
  i64 first = (i64)key + queries - keys;
  return !CAUSAL || first < 0 ? 0 : (u32)first;
}
__device__ inline u32 last_query(u32 key, u32 queries, u32 keys, u32 window) {
  i64 end = (i64)key + queries - keys + window;
  return !window || end > queries ? queries : end < 0 ? 0 : (u32)end;
}
// Columns `FIRST_COLUMN` to `LAST_COLUMN`, exclusive, have the scores of a row that are not masked. Both grow with the row.
#define FIRST_COLUMN(row) (KEYS ? first_query(row, queries, keys) : first_key(row, queries, keys, window))
#define LAST_COLUMN(row) (KEYS ? last_query(row, queries, keys, window) : last_key(row, queries, keys))
// Offset of the bias of a score, and of its gradient, in a head of those that share keys.
#define OF_SCORE(steps, of, row, column) \
  (KEYS ? (i64)(of) * steps.head + (i64)(column) * steps.query + (i64)(row) * steps.element \
        : place_of_own(steps, row) + (i64)(column) * steps.element)
__device__ inline i64 place_of_own(const Steps& steps, u32 row) { return (i64)row * steps.query; }
#define place_of_other(steps, row, queries) (KEYS ? place(steps, row, queries) : (i64)(row) * (steps).query)
"#;

/// Columns per tile by device, and the text that all devices share.
///
/// On Hopper, a warpgroup of four warps multiplies by `wgmma`: the rows and the columns of a tile are in shared memory for the
/// products of scores and of their gradients, which are in registers for the products that add up the results.
pub const DEVICES: &str = r#"
#define MAX_ROW_WARPS 4
#if defined(__CUDA_ARCH_FEAT_SM90_ALL) && BM * 2 == THREADS
#define WARPGROUPS 1
#define BN HOPPER_COLUMNS
#else
#define WARPGROUPS 0
#define BN OTHER_COLUMNS
#endif
// Number of columns of 64 elements that hold a row of each operand.
#define PARTS ((WIDTH + 63) / 64)
#define VALUE_PARTS ((VALUE_WIDTH + 63) / 64)
// Stores two neighbouring elements of a row, without those behind its end.
template <typename V> __device__ inline void store_two(V* row, u32 column, u32 end, i64 step, const f32* values, f32 scale) {
  Pack<V, 2> two;
  for (int i = 0; i < 2; i++) store<f32>(two.at[i], values[i] * scale);
  if (PAIRS) {
    if (column < end) *(Pack<V, 2>*)(row + column) = two;
  } else {
    for (u32 i = 0; i < 2; i++) if (column + i < end) row[(i64)(column + i) * step] = two.at[i];
  }
}
"#;

/// Processes block number `block`: `BM` rows, divided among its warps, and all of their columns in tiles of `BN`.
pub const TILES: &str = r#"#if WARPGROUPS
  extern __shared__ __align__(1024) Pack<u32, 4> memory[];
  // Double buffering of the tiles of columns.
  const u32 STAGES = 2, STAGE = (PARTS + VALUE_PARTS) * BN * 64;
  Columns<BM, WIDTH> tile_own1 = {(u16*)memory};
  Columns<BM, VALUE_WIDTH> tile_own2 = {tile_own1.at + PARTS * BM * 64};
  u16* tiles = tile_own2.at + VALUE_PARTS * BM * 64;
  f32* logs = (f32*)(tiles + STAGES * STAGE);
#else
  extern __shared__ Pack<u32, 4> memory[];
  const u32 STAGES = 1;
  Tile<BM, WIDTH> tile_own1 = {(u16*)memory};
  Tile<BM, VALUE_WIDTH> tile_own2 = {tile_own1.at + tile_own1.SIZE};
  Tile<BN, WIDTH> tile_other1 = {tile_own2.at + tile_own2.SIZE};
  Tile<BN, VALUE_WIDTH> tile_other2 = {tile_other1.at + tile_other1.SIZE};
  f32* logs = (f32*)(tile_other2.at + tile_other2.SIZE);
#endif
  f32* deltas = logs + STAGES * BN;
#if BIAS_COPIED
  BiasType* bias_tiles = (BiasType*)(deltas + STAGES * BN) + threadIdx.x / LANES * (MT * 16 * BN);
#if KEYS
  const int OF_BANKS = 16 / sizeof(BiasType);
  BiasTile<MT * 16, OF_BANKS / 2, OF_BANKS> tile_bias = {bias_tiles};
#else
  BiasTile<BN, 1, 8> tile_bias = {bias_tiles};
#endif
#endif
#if RAGGED
  u32 blocks = rows / BM + sequences + 1;
#else
  u32 blocks = (rows + BM - 1) / BM;
#endif
  // Blocks start with the first keys and the last queries: with a causal mask, these have the most pairs.
  u32 split = block % SPLITS, rest = block / SPLITS;
  u32 index = rest / blocks, number = KEYS ? rest % blocks : blocks - 1 - rest % blocks;
#if RAGGED
  Sequence sequence = SEQUENCE_OF(KEYS, number, BM);
  u32 first_row = sequence.row;
#else
  u32 first_row = number * BM;
#endif
  i64 at[OPERANDS];
  g.offsets(index, at);
  own1 += at[0]; own2 += at[1]; other1 += at[2]; other2 += at[3]; lse += at[4]; delta += at[5]; out1 += at[6];
  if (KEYS) out2 += at[7];
#if BIAS
  bias += at[8];
#endif
#if SLOPES
  slopes += at[9];
#endif
  u32 first_of_sequence = 0;
#if RAGGED
  OF_SEQUENCE
  if (first_row >= rows) return;
  first_of_sequence = KEYS ? sequence.first_key : sequence.first;
#endif
  // Tiles of columns do not span heads.
  others = KEYS ? queries : keys;
  u32 last_row = first_row + BM < rows ? first_row + BM - 1 : rows - 1;
  u32 own_row = threadIdx.x / LANES * MT * 16;

  Sums sum1[MT][WIDTH / 16], sum2[MT][KEYS ? VALUE_WIDTH / 16 : 1], weight[MT][NT], slope[MT][NT];
  f32 own_log[MT][LANE_ROWS], own_delta[MT][LANE_ROWS];
  EACH_ROW {
    u32 row = first_row + own_row + m * 16 + lane_row(h);
    own_log[m][h] = !KEYS && row < rows ? lse[place_of_own(s_lse, row)] * LOG2_E : 0;
    own_delta[m][h] = !KEYS && row < rows ? delta[place_of_own(s_delta, row)] : 0;
    EACH_TILE(n, WIDTH / 16) EACH_TILE(i, 4) sum1[m][n].at[h][i] = 0;
    EACH_TILE(n, (KEYS ? VALUE_WIDTH / 16 : 1)) EACH_TILE(i, 4) sum2[m][n].at[h][i] = 0;
  }
  // Columns that some row of the block has unmasked scores in, from the start of a tile on, and columns without masked scores.
  u32 low = FIRST_COLUMN(first_row) / BN * BN, high = LAST_COLUMN(last_row);
  u32 full_low = FIRST_COLUMN(last_row), full_high = LAST_COLUMN(first_row);
#if SLOPES
  // Gradients of masked scores are zero and must be written.
  low = 0;
  high = others;
#endif
  // Head, and first column, of the current tile.
  u32 head = low < high ? 0 : GROUP, start = low;
  // Moves over a number of tiles. Blocks that share rows take turns.
  auto advance = [&](u32 tiles) {
    for (; tiles > 0 && head < GROUP; tiles--) {
      start += BN;
      if (start >= high) {
        start = low;
        head++;
      }
    }
  };
  auto of_column = [&](const f32* numbers, const Steps& steps) {
    u32 column = start + threadIdx.x < others ? start + threadIdx.x : others - 1;
    return numbers[head * steps.head + column * steps.query];
  };
#if BIAS_COPIED
  // Copies the bias of the current tile.
  auto load_bias = [&]() {
    // The copy replaces the bias of the last tile, which every lane of the warp must have read.
    WARP_BARRIER;
    if (head >= GROUP) return;
    const u32 own = first_row + own_row;
#if KEYS
    auto row = [&](u32 r) {
      return start + r < others ? bias + head * s_bias.head + (i64)(start + r) * s_bias.query : (const BiasType*)0;
    };
    tile_bias.copy<BN>(row, own, rows, s_bias.element);
#else
    auto row = [&](u32 r) { return own + r < rows ? bias + place_of_own(s_bias, own + r) : (const BiasType*)0; };
    tile_bias.copy<MT * 16>(row, start, others, s_bias.element);
#endif
  };
#endif
#if BIAS
  // Scales products and adds the bias.
  auto add_bias = [&](u32 head, u32 start) {
    EACH_ROW EACH_TILE(n, NT) EACH_TILE(j, 2) {
      u32 place = n * 16 + lane_column(2 * j);
      Pack<BiasType, 2> two;
#if BIAS_COPIED && KEYS
      EACH_TILE(i, 2) two.at[i] = *tile_bias.element(place + i, m * 16 + lane_row(h));
#elif BIAS_COPIED
      two = *(const Pack<BiasType, 2>*)tile_bias.element(m * 16 + lane_row(h), place);
#else
      // A condition on each load would make a thread wait for one after the other.
      u32 own = first_row + own_row + m * 16 + lane_row(h), row = own < rows ? own : last_row;
      EACH_TILE(i, 2) {
        u32 column = start + place + i < others ? start + place + i : others - 1;
        two.at[i] = bias[OF_SCORE(s_bias, head, row, column)];
      }
#endif
      EACH_TILE(i, 2) weight[m][n].at[h][2 * j + i] = weight[m][n].at[h][2 * j + i] * scale_log2 + load<f32>(two.at[i]) * LOG2_E;
    }
  };
#endif
  // Replaces scores by weights.
  auto weigh = [&](u32 head, u32 start, const f32* logs) {
#if BIAS
    add_bias(head, start);
#endif
    EACH_ROW {
      EACH_TILE(n, NT) EACH_TILE(i, 4) {
        u32 place = n * 16 + lane_column(i);
        f32 log = KEYS ? logs[place] : own_log[m][h], score = weight[m][n].at[h][i] * (BIAS ? 1 : scale_log2);
#if SOFTCAP
        score = capped(score, CAP_LOG2);
#endif
#if BIAS
        // The query may attend to no key; its `lse` is then the lowest number too.
        f32 p = score == LOWEST ? 0 : exp2_fast(score - log);
#else
        f32 p = exp2_fast(score - log);
#endif
        weight[m][n].at[h][i] = p;
      }
    }
    // Masks have a branch of their own. In the loop above, the compiler would test each score, also of tiles without masked ones.
    if (start >= full_low && start + BN <= full_high) return;
    EACH_ROW {
      u32 row = first_row + own_row + m * 16 + lane_row(h), from = FIRST_COLUMN(row), to = LAST_COLUMN(row);
      EACH_TILE(n, NT) EACH_TILE(i, 4) {
        u32 column = start + n * 16 + lane_column(i);
        if (column < from || column >= to) weight[m][n].at[h][i] = 0;
      }
    }
  };
  // Replaces products of gradients and values by gradients of scores. The logarithm of a weight gives back the capped score.
  auto incline = [&](u32 head, u32 start, const f32* deltas, const f32* logs) {
    EACH_ROW {
      EACH_TILE(n, NT) EACH_TILE(i, 4) {
        u32 place = n * 16 + lane_column(i);
        f32 less = KEYS ? deltas[place] : own_delta[m][h], p = weight[m][n].at[h][i];
        slope[m][n].at[h][i] = p == 0 ? 0 : p * (slope[m][n].at[h][i] - less);
#if SOFTCAP
        if (p != 0) slope[m][n].at[h][i] *= capped_slope(log2f(p) + (KEYS ? logs[place] : own_log[m][h]), CAP_LOG2);
#endif
      }
#if SLOPES
      u32 row = first_row + own_row + m * 16 + lane_row(h);
      auto* of_row = slopes + place_of_own(s_slopes, row);
      if (row < rows)
        EACH_TILE(n, NT) EACH_TILE(j, 2) store_two(of_row, start + n * 16 + lane_column(2 * j), others, s_slopes.element, &slope[m][n].at[h][2 * j], 1);
#endif
    }
  };
  advance(split);
#if WARPGROUPS
  load_in_columns<THREADS, PACKS>(tile_own1, own1 + place_of_own(s_own1, first_row), s_own1.query, rows - first_row, d, s_own1.element);
  load_in_columns<THREADS, PACKS>(tile_own2, own2 + place_of_own(s_own2, first_row), s_own2.query, rows - first_row, dv, s_own2.element);
  f32 next_log = 0, next_delta = 0;
  auto load_columns = [&](u32 stage) {
    Columns<BN, WIDTH> tile_other1 = {tiles + stage * STAGE};
    Columns<BN, VALUE_WIDTH> tile_other2 = {tile_other1.at + PARTS * BN * 64};
    const T* from1 = other1 + head * s_other1.head + (i64)start * s_other1.query;
    const T* from2 = other2 + head * s_other2.head + (i64)start * s_other2.query;
    load_in_columns<THREADS, PACKS>(tile_other1, from1, s_other1.query, others - start, d, s_other1.element);
    load_in_columns<THREADS, PACKS>(tile_other2, from2, s_other2.query, others - start, dv, s_other2.element);
    if (KEYS && threadIdx.x < BN) {
      next_log = of_column(lse, s_lse);
      next_delta = of_column(delta, s_delta);
    }
  };
  const u64 of_own1 = described<BM>(tile_own1.at), of_own2 = described<BM>(tile_own2.at);
  if (head < GROUP) load_columns(0);
  loads_issued();
#if BIAS_COPIED
  load_bias();
  loads_issued();
#endif
  for (u32 stage = 0; head < GROUP; stage = 1 - stage) {
    const u64 of_other1 = behind(described<BN>(tiles), stage * STAGE), of_other2 = behind(of_other1, PARTS * BN * 64);
    if (KEYS && threadIdx.x < BN) {
      // The load of the previous tile has arrived here. Right behind a load, the multiplication would delay the products of the tile.
      logs[stage * BN + threadIdx.x] = next_log * LOG2_E;
      deltas[stage * BN + threadIdx.x] = next_delta;
    }
    // The bias of the tile may still be in flight.
    loads_pending<BIAS_COPIED>();
    written_before();
    // Behind this barrier, no warp multiplies the other tile any more.
    __syncthreads();
    const u32 own_head = head, own = start;
    advance(SPLITS);
    if (head < GROUP) load_columns(1 - stage);
    loads_issued();
    multiply_begin();
    EACH_TILE(c, WIDTH / 16)
      scores_of(weight[0], behind(of_own1, c / 4 * (BM * 64) + c % 4 * 16), behind(of_other1, c / 4 * (BN * 64) + c % 4 * 16), c > 0);
    multiply_end();
    EACH_TILE(c, VALUE_WIDTH / 16)
      scores_of(slope[0], behind(of_own2, c / 4 * (BM * 64) + c % 4 * 16), behind(of_other2, c / 4 * (BN * 64) + c % 4 * 16), c > 0);
    multiply_end();
    multiply_wait<1>();
    settled(weight[0]);
#if BIAS_COPIED
    // The next columns may still be in flight.
    loads_pending<1>();
    WARP_BARRIER;
#endif
    weigh(own_head, own, logs + stage * BN);
#if BIAS_COPIED
    load_bias();
    loads_issued();
#endif
    Factor inclines[NT];
#if KEYS
    Factor weights[NT];
    EACH_TILE(c, NT) weights[c] = left_of<T>(weight[0][c]);
    multiply_begin();
    EACH_TILE(c, NT) values_of(sum2[0], weights[c], behind(of_other2, c * (16 * 64)), true);
    multiply_end();
#endif
    multiply_wait<KEYS>();
    settled(slope[0]);
    incline(own_head, own, deltas + stage * BN, logs + stage * BN);
    EACH_TILE(c, NT) inclines[c] = left_of<T>(slope[0][c]);
    multiply_begin();
    EACH_TILE(c, NT) products_of(sum1[0], inclines[c], behind(of_other1, c * (16 * 64)), true);
    multiply_end();
    multiply_wait<0>();
    settled(sum1[0]);
#if KEYS
    settled(sum2[0]);
#endif
  }
#else
  load_matrix<THREADS, PACKS>(tile_own1, own1 + place_of_own(s_own1, first_row), s_own1.query, rows - first_row, d, s_own1.element);
  load_matrix<THREADS, PACKS>(tile_own2, own2 + place_of_own(s_own2, first_row), s_own2.query, rows - first_row, dv, s_own2.element);
  for (; head < GROUP; advance(SPLITS)) {
    __syncthreads();
    const T* from1 = other1 + head * s_other1.head + (i64)start * s_other1.query;
    const T* from2 = other2 + head * s_other2.head + (i64)start * s_other2.query;
    load_matrix<THREADS, PACKS>(tile_other1, from1, s_other1.query, others - start, d, s_other1.element);
    load_matrix<THREADS, PACKS>(tile_other2, from2, s_other2.query, others - start, dv, s_other2.element);
#if BIAS_COPIED
    load_bias();
#endif
    loads_issued();
    if (KEYS && threadIdx.x < BN) {
      logs[threadIdx.x] = of_column(lse, s_lse) * LOG2_E;
      deltas[threadIdx.x] = of_column(delta, s_delta);
    }
    loads_done();
    __syncthreads();
    EACH_TILE(m, MT) EACH_TILE(n, NT) EACH_TILE(h, LANE_ROWS) EACH_TILE(i, 4) weight[m][n].at[h][i] = slope[m][n].at[h][i] = 0;
    EACH_TILE(c, WIDTH / 16) {
      Factor factor[MT];
      EACH_TILE(m, MT) factor[m] = left(tile_own1, own_row + m * 16, c * 16);
      EACH_TILE(n, NT) {
        Factor columns = right(tile_other1, n * 16, c * 16);
        EACH_TILE(m, MT) multiply<T>(weight[m][n], factor[m], columns);
      }
    }
    EACH_TILE(c, VALUE_WIDTH / 16) {
      Factor factor[MT];
      EACH_TILE(m, MT) factor[m] = left(tile_own2, own_row + m * 16, c * 16);
      EACH_TILE(n, NT) {
        Factor columns = right(tile_other2, n * 16, c * 16);
        EACH_TILE(m, MT) multiply<T>(slope[m][n], factor[m], columns);
      }
    }
    weigh(head, start, logs);
    incline(head, start, deltas, logs);
    EACH_TILE(c, NT) {
      Factor factor[MT];
      if (KEYS) {
        EACH_TILE(m, MT) factor[m] = left_of<T>(weight[m][c]);
        EACH_TILE(n, (KEYS ? VALUE_WIDTH / 16 : 1)) {
          Factor columns = right_turned(tile_other2, c * 16, n * 16);
          EACH_TILE(m, MT) multiply<T>(sum2[m][n], factor[m], columns);
        }
      }
      EACH_TILE(m, MT) factor[m] = left_of<T>(slope[m][c]);
      EACH_TILE(n, WIDTH / 16) {
        Factor columns = right_turned(tile_other1, c * 16, n * 16);
        EACH_TILE(m, MT) multiply<T>(sum1[m][n], factor[m], columns);
      }
    }
  }
#endif
  loads_done();
  EACH_ROW {
    u32 row = first_row + own_row + m * 16 + lane_row(h);
    if (row >= rows) continue;
#if SPLITS > 1
    // The results of a block's tiles, which another kernel adds.
    f32* to = parts + (((u64)split * indices + index) * all_rows + first_of_sequence + row) * (d + dv);
    EACH_TILE(n, WIDTH / 16) EACH_TILE(i, 4) {
      u32 column = n * 16 + lane_column(i);
      if (column < d) to[column] = sum1[m][n].at[h][i] * scale;
    }
    EACH_TILE(n, VALUE_WIDTH / 16) EACH_TILE(i, 4) {
      u32 column = n * 16 + lane_column(i);
      if (column < dv) to[d + column] = sum2[m][n].at[h][i];
    }
#else
    auto* to1 = out1 + place_of_own(s_out1, row);
    EACH_TILE(n, WIDTH / 16) EACH_TILE(j, 2) store_two(to1, n * 16 + lane_column(2 * j), d, s_out1.element, &sum1[m][n].at[h][2 * j], scale);
    if (KEYS) {
      auto* to2 = out2 + place_of_own(s_out2, row);
      EACH_TILE(n, (KEYS ? VALUE_WIDTH / 16 : 1)) EACH_TILE(j, 2)
        store_two(to2, n * 16 + lane_column(2 * j), dv, s_out2.element, &sum2[m][n].at[h][2 * j], 1);
    }
#endif
  }
"#;

/// Computes the gradients of one row with 32 threads, which share its elements. Supports every type and head dimension.
pub const ROWS: &str = r#"  u64 number = GLOBAL_INDEX / 32;
  u32 lane = threadIdx.x % 32;
  if (number >= count) return;
  i64 at[OPERANDS];
  g.offsets(number / rows, at);
  u32 row = (u32)(number % rows);
  own1 += at[0]; own2 += at[1]; other1 += at[2]; other2 += at[3]; lse += at[4]; delta += at[5]; out1 += at[6];
  if (KEYS) out2 += at[7];
#if BIAS
  bias += at[8];
#endif
#if SLOPES
  slopes += at[9];
#endif
#if RAGGED
  Sequence sequence = SEQUENCE_OF(KEYS, row, 1);
  row = sequence.row;
  OF_SEQUENCE
#endif
  own1 += place_of_own(s_own1, row);
  own2 += place_of_own(s_own2, row);
  C mine1[EACH_Q], mine2[EACH_V], sum1[EACH_Q], sum2[EACH_V];
#define EACH_OF(e, n) _Pragma("unroll") for (u32 e = 0; e < n; e++)
  EACH_OF(e, EACH_Q) {
    u32 column = e * 32 + lane;
    mine1[e] = column < d ? load<C>(own1[(i64)column * s_own1.element]) : C(0);
    sum1[e] = 0;
  }
  EACH_OF(e, EACH_V) {
    u32 column = e * 32 + lane;
    mine2[e] = column < dv ? load<C>(own2[(i64)column * s_own2.element]) : C(0);
    sum2[e] = 0;
  }
  for (u32 other = 0; other < others; other++) {
    u32 query = KEYS ? query_of(other, queries) : row, key = KEY(row, other);
    bool seen = key >= first_key(query, queries, keys, window) && key < last_key(query, queries, keys);
#if SLOPES
    if (!seen && lane == 0) store<C>(slopes[OF_SCORE(s_slopes, 0, row, other)], C(0));
#endif
    if (!seen) continue;
    const T* from1 = other1 + place_of_other(s_other1, other, queries);
    const T* from2 = other2 + place_of_other(s_other2, other, queries);
    C score = 0, slope = 0, theirs1[EACH_Q], theirs2[EACH_V];
    EACH_OF(e, EACH_Q) {
      u32 column = e * 32 + lane;
      theirs1[e] = column < d ? load<C>(from1[(i64)column * s_other1.element]) : C(0);
      score += mine1[e] * theirs1[e];
    }
    EACH_OF(e, EACH_V) {
      u32 column = e * 32 + lane;
      theirs2[e] = column < dv ? load<C>(from2[(i64)column * s_other2.element]) : C(0);
      slope += mine2[e] * theirs2[e];
    }
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) {
      score += SHUFFLE_XOR(score, mask);
      slope += SHUFFLE_XOR(slope, mask);
    }
    i64 log = KEYS ? place_of_other(s_lse, other, queries) : place_of_own(s_lse, row);
    i64 less = KEYS ? place_of_other(s_delta, other, queries) : place_of_own(s_delta, row);
    score = capped(score * scale, C(CAP));
    C of_product = capped_slope(score, C(CAP));
#if BIAS
    score += load<C>(bias[OF_SCORE(s_bias, other / queries, row, KEYS ? query : other)]);
    // The query may attend to no key; its `lse` is then the lowest number too.
    C p = score == LOWEST ? C(0) : f_exp(score - lse[log]);
#else
    C p = f_exp(score - lse[log]);
#endif
    C change = p == C(0) ? C(0) : p * (slope - delta[less]);
#if SLOPES
    if (lane == 0) store<C>(slopes[OF_SCORE(s_slopes, 0, row, other)], change);
#endif
    EACH_OF(e, EACH_Q) sum1[e] += change * of_product * theirs1[e];
    EACH_OF(e, EACH_V) sum2[e] += p * theirs2[e];
  }
  auto* to1 = out1 + place_of_own(s_out1, row);
  EACH_OF(e, EACH_Q) if (e * 32 + lane < d) store<C>(to1[(i64)(e * 32 + lane) * s_out1.element], sum1[e] * scale);
  if (KEYS) {
    auto* to2 = out2 + place_of_own(s_out2, row);
    EACH_OF(e, EACH_V) if (e * 32 + lane < dv) store<C>(to2[(i64)(e * 32 + lane) * s_out2.element], sum2[e]);
  }
"#;

/// Computes the row sums of `dy * o` with `ROW_LANES` threads per query, each of which loads `EACH` neighbouring elements at once.
pub const SUMS: &str = r#"  // Threads behind the last query take part in the shuffles.
  u64 number = GLOBAL_INDEX / ROW_LANES, row = number < count ? number : count - 1;
  u32 lane = threadIdx.x % ROW_LANES;
  i64 at[OPERANDS];
  g.offsets(row / queries, at);
  i64 query = (i64)(row % queries);
  o += at[0] + query * s_o.query;
  dy += at[1] + query * s_dy.query;
  C sum = 0;
  for (u32 column = lane * EACH; column < dv; column += ROW_LANES * EACH) {
#if EACH > 1
    Pack<T, EACH> of_o = *(const Pack<T, EACH>*)(o + column), of_dy = *(const Pack<T, EACH>*)(dy + column);
#pragma unroll
    for (u32 e = 0; e < EACH; e++) sum += load<C>(of_o.at[e]) * load<C>(of_dy.at[e]);
#else
    sum += load<C>(o[(i64)column * s_o.element]) * load<C>(dy[(i64)column * s_dy.element]);
#endif
  }
#pragma unroll
  for (int mask = ROW_LANES / 2; mask > 0; mask /= 2) sum += SHUFFLE_XOR(sum, mask);
#if DLSE
  if (lane == 0) sum -= load<C>(dlse[at[2] + query * s_dlse.query]);
#endif
  if (lane == 0 && number < count) sums[row] = sum;
"#;

/// Adds the gradients of keys and values of blocks that share rows.
pub const JOIN: &str = r#"  u64 number = GLOBAL_INDEX;
  if (number >= count) return;
  u32 column = (u32)(number % (d + dv));
  u64 row = number / (d + dv) % all_rows, index = number / (d + dv) / all_rows;
  f32 sum = 0;
#pragma unroll
  for (int split = 0; split < SPLITS; split++) sum += parts[split * count + number];
  i64 at[OPERANDS];
  g.offsets(index, at);
  if (column < d) store<f32>(out1[at[6] + (i64)row * s_out1.query + (i64)column * s_out1.element], sum);
  else store<f32>(out2[at[7] + (i64)row * s_out2.query + (i64)(column - d) * s_out2.element], sum);
"#;
