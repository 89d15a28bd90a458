//! Source text of the forward kernel for wide heads, whose warps divide the columns of the sums.
//!
//! Warps with the same rows divide the keys of a tile for its scores, exchange the largest scores and the weights through
//! shared memory, and multiply all weights by their own columns of the values.

/// Columns of values in a slice, on devices without warpgroup products.
pub const VALUE_SLICE: u64 = 128;

/// Shared memory of a block. With warpgroup products, it has all columns of the queries, of a tile of keys and of a tile of
/// values; otherwise slices of 64 columns of queries and keys, or of 128 columns of values.
pub const MEMORY: &str = r#"#if WARPGROUPS
  extern __shared__ __align__(1024) Pack<u32, 4> memory[];
  Columns<BM, WIDTH> tile_q = {(u16*)memory};
  u16* tile_k = tile_q.at + PARTS * BM * 64;
  u16* tile_v = tile_k + PARTS * BN * 64;
  Tile<BM, 64> tile_p = {tile_v + VALUE_PARTS * BN * 64};
#else
  extern __shared__ Pack<u32, 4> memory[];
  const u32 SLICE = BM > BN ? (BM + BN) * 64 : BN * 128, SLICES = PARTS + VALUE_WIDTH / 128;
  u16* slices = (u16*)memory;
  Tile<BM, 64> tile_p = {slices + STAGES * SLICE};
#endif
  f32 (*exchanged)[BM] = (f32 (*)[BM])(tile_p.at + BM * 64);
"#;

/// Kernel text: the loop over tiles of keys, which accumulates the sums.
///
/// Warpgroups load the next keys while they weigh and multiply the values, and the next values while they multiply the
/// keys, so that the memory is never idle.
pub const LOOP: &str = r#"  // Writes the largest score of each row among the keys of a warp.
  auto compare = [&]() {
    EACH_ROW {
      f32 largest = largest_of(m, h);
      if (lane_column(0) == 0) exchanged[key_warp][own_row + m * 16 + lane_row(h)] = largest;
    }
  };
  // Writes the weights, and rescales the sums.
  auto weigh_all = [&]() {
    EACH_ROW {
      u32 row = own_row + m * 16 + lane_row(h);
      f32 largest = exchanged[0][row];
      EACH_TILE(w, KEY_WARPS) largest = fmaxf(largest, exchanged[w][row]);
      f32 shrink = weigh(m, h, largest);
      EACH_TILE(n, NT) EACH_TILE(j, 2)
        *(u32*)tile_p.element(row, own_key + n * 16 + lane_column(2 * j)) =
          pack_two<T>(score[m][n].at[h][2 * j], score[m][n].at[h][2 * j + 1]);
      EACH_TILE(n, SUM_TILES) EACH_TILE(i, 4) sum[m][n].at[h][i] *= shrink;
    }
  };
#if WARPGROUPS
  // A thread copies 16 bytes of each 64 columns of some keys and their values.
  const int PASSES = BN * 8 / THREADS, PASS = THREADS / 8;
  const u32 own_copy = threadIdx.x / 8, own_column = threadIdx.x % 8 * 8;
#if PAGED
  P own_page[PASSES];
#endif
  // Reads the pages of the keys of a tile.
  auto look_up = [&](u32 start) {
#if PAGED
    EACH_TILE(pass, PASSES) {
      u32 key = start + pass * PASS + own_copy;
      own_page[pass] = key < keys ? pages[(u64)(key / PAGE) * column] : P();
    }
#endif
  };
  auto load_parts = [&](u16* to, int parts, const T* from, u64 page, const Steps& steps, u32 start, u32 width) {
    const T* row[PASSES];
    EACH_TILE(pass, PASSES) {
      u32 key = start + pass * PASS + own_copy;
#if PAGED
      u64 block = (u64)(i64)own_page[pass];
      row[pass] = key < keys && block < pool_blocks ? from + block * page + (i64)(key % PAGE) * steps.query : (const T*)0;
#else
      row[pass] = key < keys ? from + (i64)key * steps.query : (const T*)0;
#endif
    }
#pragma unroll (PACKS ? 16 : 1)
    for (int part = 0; part < parts; part++) EACH_TILE(pass, PASSES) {
      Tile<BN, 64> tile = {to + part * (BN * 64)};
      load_pack<PACKS>(tile.chunk(pass * PASS + own_copy, own_column), row[pass], part * 64 + own_column, width, steps.element);
    }
  };
#if !PAGED
  const u64 k_page = 0, v_page = 0;
#endif
  auto load_k = [&](u32 start) { load_parts(tile_k, PARTS, k, k_page, sk, start, d); };
  auto load_v = [&](u32 start) { load_parts(tile_v, VALUE_PARTS, v, v_page, sv, start, dv); };
  if (low < high) {
    look_up(low);
    load_in_columns<THREADS, PACKS, T>(tile_q, row_of_q, d, sq.element);
    load_k(low);
    loads_issued();
    load_v(low);
    loads_issued();
    look_up(low + BN);
  }
  for (u32 start = low; start < high; start += BN) {
    const bool more = start + BN < high;
    loads_pending<1>();
    written_before();
    __syncthreads();
    multiply_begin();
    EACH_TILE(c, WIDTH / 16) {
      const u16* of_k = tile_k + c / 4 * (BN * 64) + own_key * 64 + c % 4 * 16;
      scores_of(score[0], described<BM>(tile_q.at + c / 4 * (BM * 64) + c % 4 * 16), described<BN>(of_k), c > 0);
    }
    multiply_end();
    multiply_wait<0>();
    settled(score[0]);
    mask(start);
    compare();
    __syncthreads();
    if (more) load_k(start + BN);
    loads_issued();
    weigh_all();
    loads_pending<1>();
    written_before();
    __syncthreads();
    multiply_begin();
    EACH_TILE(c, BN / 16) {
      const u16* of_v = tile_v + key_warp * (SUM_TILES / 4) * (BN * 64) + c * (16 * 64);
      values_of(sum[0], described<BM>(tile_p.at + c * 16), described<BN>(of_v), true);
    }
    multiply_end();
    multiply_wait<0>();
    settled(sum[0]);
    __syncthreads();
    if (more) load_v(start + BN);
    loads_issued();
    look_up(start + 2 * BN);
  }
#else
  u32 stage = 0;
#if PAGED
  // Addresses of the keys and values of two tiles. A thread looks a key up, a tile before the others copy its elements.
  static_assert(BN <= THREADS, "a thread for each key");
  __shared__ const T* rows_of_tile[2][2][BN];
  const T *next_key, *next_value;
  auto look_up = [&](u32 start) {
    const bool own = threadIdx.x < BN && start < high;
    next_key = own ? row_of_key(k, start + threadIdx.x, sk.query, k_page) : (const T*)0;
    next_value = own ? row_of_key(v, start + threadIdx.x, sv.query, v_page) : (const T*)0;
  };
  auto note = [&](u32 start) {
    if (threadIdx.x >= BN) return;
    rows_of_tile[start / BN % 2][0][threadIdx.x] = next_key;
    rows_of_tile[start / BN % 2][1][threadIdx.x] = next_value;
  };
  look_up(low);
  note(low);
  look_up(low + BN);
  __syncthreads();
#endif
  auto row_of = [&](u32 start, u32 r, int which, const T* from, const Steps& steps) {
#if PAGED
    return rows_of_tile[start / BN % 2][which][r];
#else
    return start + r < keys ? from + (i64)(start + r) * steps.query : (const T*)0;
#endif
  };
  auto load_slice = [&](u32 start, u32 slice, u32 to_stage) {
    if (slice >= SLICES) {
      slice -= SLICES;
      start += BN;
    }
    if (start >= high) return;
    u16* to = slices + to_stage * SLICE;
    if (slice < PARTS) {
      u32 first = slice * 64;
      auto part_of_q = [&](u32 r) {
        const T* from = row_of_q(r);
        return from ? from + first * sq.element : from;
      };
      auto part_of_k = [&](u32 r) {
        const T* from = row_of(start, r, 0, k, sk);
        return from ? from + first * sk.element : from;
      };
      load_rows<THREADS, PACKS, BM, 64, T>(Tile<BM, 64>{to}, part_of_q, left_of(d, first), sq.element);
      load_rows<THREADS, PACKS, BN, 64, T>(Tile<BN, 64>{to + BM * 64}, part_of_k, left_of(d, first), sk.element);
    } else {
      u32 first = (slice - PARTS) * 128;
      auto part_of_v = [&](u32 r) {
        const T* from = row_of(start, r, 1, v, sv);
        return from ? from + first * sv.element : from;
      };
      load_rows<THREADS, PACKS, BN, 128, T>(Tile<BN, 128>{to}, part_of_v, left_of(dv, first), sv.element);
    }
  };
  // Waits for a slice, and loads a later one in place of the one before it.
  auto next_slice = [&](u32 start, u32 slice) {
    loads_pending<(STAGES > 1 ? STAGES - 2 : 0)>();
    __syncthreads();
    load_slice(start, slice + STAGES - 1, (stage + STAGES - 1) % STAGES);
    loads_issued();
    if (STAGES == 1) __syncthreads();
    u16* own = slices + stage * SLICE;
    stage = (stage + 1) % STAGES;
    return own;
  };
  static_assert(STAGES - 1 < SLICES, "slices ahead are of at most two tiles");
  EACH_TILE(s, STAGES - 1) {
    load_slice(low, s, s);
    loads_issued();
  }
  for (u32 start = low; start < high; start += BN) {
#if PAGED
    note(start + BN);
    look_up(start + 2 * BN);
#endif
    EACH_TILE(m, MT) EACH_TILE(n, NT) EACH_TILE(h, LANE_ROWS) EACH_TILE(i, 4) score[m][n].at[h][i] = 0;
#pragma unroll 1
    for (u32 part = 0; part < PARTS; part++) {
      u16* slice = next_slice(start, part);
      Tile<BM, 64> part_q = {slice};
      Tile<BN, 64> part_k = {slice + BM * 64};
      EACH_TILE(c, 4) {
        Factor rows_q[MT];
        EACH_TILE(m, MT) rows_q[m] = left(part_q, own_row + m * 16, c * 16);
        EACH_TILE(n, NT) {
          Factor columns = right(part_k, own_key + n * 16, c * 16);
          EACH_TILE(m, MT) multiply<T>(score[m][n], rows_q[m], columns);
        }
      }
    }
    mask(start);
    compare();
    __syncthreads();
    weigh_all();
    EACH_TILE(part, VALUE_WIDTH / 128) {
      // The barrier in `next_slice` follows the weights of all warps.
      Tile<BN, 128> part_v = {next_slice(start, PARTS + part)};
      EACH_TILE(c, BN / 16) {
        Factor weights[MT];
        EACH_TILE(m, MT) weights[m] = left(tile_p, own_row + m * 16, c * 16);
        EACH_TILE(n, 8 / KEY_WARPS) {
          Factor columns = right_turned(part_v, c * 16, (n * KEY_WARPS + key_warp) * 16);
          EACH_TILE(m, MT) multiply<T>(sum[m][part * (8 / KEY_WARPS) + n], weights[m], columns);
        }
      }
    }
  }
#endif
  // Each warp has the weights of its keys.
  EACH_ROW total[m][h] = across_row(total[m][h], Total());
  __syncthreads();
  EACH_ROW if (lane_column(0) == 0) exchanged[key_warp][own_row + m * 16 + lane_row(h)] = total[m][h];
  __syncthreads();
  EACH_ROW {
    total[m][h] = 0;
    EACH_TILE(w, KEY_WARPS) total[m][h] += exchanged[w][own_row + m * 16 + lane_row(h)];
  }
"#;
