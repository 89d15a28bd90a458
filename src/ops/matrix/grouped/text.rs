//! Source text of the kernels. [`super::kernel`] defines the macros that they use.

/// Order of the tiles, and how blocks share them. A block computes a tile of `BM` rows and `BN` columns of one group at
/// a time.
///
/// The tiles of a group are consecutive. Within each band of `BAND` rows of tiles, the order is column by column, so
/// that concurrent blocks read the same rows and columns.
pub const SCHEDULE: &str = r#"
#if defined(__CUDA_ARCH_FEAT_SM90_ALL) && BM % 64 == 0
#define WARPGROUPS 1
#else
#define WARPGROUPS 0
#endif
// Whether one of the `COPIERS` threads behind the others copies the factors by tensor maps; in clusters of blocks.
#define BULK (MAPS && WARPGROUPS)
#if !BULK
#undef CLUSTER_ROWS
#undef CLUSTER_COLUMNS
#undef DEPTH_PARTS
#define CLUSTER_ROWS 1
#define CLUSTER_COLUMNS 1
#define DEPTH_PARTS 1
#define CLUSTER_BOUNDS
#elif CLUSTER_ROWS * CLUSTER_COLUMNS * DEPTH_PARTS == 1
// A cluster of one block takes longer to launch than a block.
#define CLUSTER_BOUNDS
#else
#define CLUSTER_BOUNDS __cluster_dims__(CLUSTER, 1, 1)
#endif
#if defined(__HIPCC_RTC__) || defined(__HIP__)
#define __grid_constant__
#endif
// First element at which the tiles of a group that begins at `begin` can begin: tensor maps copy whole packs of 16 bytes of rows
// that groups divide.
#define ALIGNS (BULK && (ALONG_A || ALONG_B))
#define FIRST(begin) (ALIGNS ? (begin) / 8 * 8 : (begin))
// Number of blocks that copy parts of a tile for each other, and of all blocks of a cluster.
#define SHARERS (CLUSTER_ROWS * CLUSTER_COLUMNS)
#define CLUSTER (SHARERS * DEPTH_PARTS)
#define ALL_THREADS (THREADS + (BULK ? COPIERS : 0))
#define BAND (16 / CLUSTER_ROWS)
// Blocks of a cluster compute the parts of a tile.
#define TILE_ROWS (BM * CLUSTER_ROWS)
#define TILE_COLUMNS (BN * CLUSTER_COLUMNS)
struct Strides { i64 group, row, column; };
struct Larger { __device__ u32 operator()(u32 a, u32 b) const { return a > b ? a : b; } };
// A block's part of a tile: a range of steps of the depth, and the tile's number of steps.
struct Part {
  u32 tile, first, last, steps;
  __device__ inline bool is_whole() const { return first == 0 && last == steps; }
};
struct Total { __device__ u32 operator()(u32 a, u32 b) const { return a + b; } };
// Replaces each of `count` numbers in shared memory by the combination of all numbers up to it. `room` has space for as
// many numbers.
template <typename F> __device__ inline void join_all(u32* values, u32* room, u32 count, F join) {
  for (u32 step = 1; step < count; step *= 2) {
    for (u32 i = threadIdx.x; i < count; i += ALL_THREADS) room[i] = i < step ? values[i] : join(values[i], values[i - step]);
    __syncthreads();
    for (u32 i = threadIdx.x; i < count; i += ALL_THREADS) values[i] = room[i];
    __syncthreads();
  }
}
struct Place {
  u32 group;
  // First row and column of the tile, and range of the rows that are written.
  u32 row, column, row_begin, row_end;
  // Range of the terms of the sums.
  u32 depth, depth_end;
};
struct Schedule {
  // For each group, its end, and the number of rows of tiles up to it. If groups are rows, the rows behind the last
  // group form an additional group without terms. If groups are parts of the depth, all groups have the same number of
  // tiles, and the second number counts the steps of one tile of each group up to it.
  const u32 *ends, *tiles;
  u32 groups, parts, columns, total, row_tiles, steps;

  // `table` has two numbers per group and two more, and must stay valid; `room` has half as many.
  __device__ inline Schedule(u32* table, u32* room, const I* given, u64 step, u32 groups, u32 rows, u32 columns, u32 depth) {
    row_tiles = (rows + TILE_ROWS - 1) / TILE_ROWS;
    steps = steps_of(depth);
    u32 *own_ends = table, *own_tiles = table + groups + 1;
    i64 length = IN_DEPTH ? depth : rows;
    for (u32 g = threadIdx.x; g < groups; g += ALL_THREADS) {
      i64 end = (i64)given[(i64)g * (i64)step];
      own_ends[g] = (u32)(end < 0 ? 0 : end > length ? length : end);
    }
    if (threadIdx.x == 0) own_ends[groups] = (u32)length;
    __syncthreads();
    join_all(own_ends, room, groups, Larger());
    this->groups = groups;
    parts = groups + !IN_DEPTH;
    for (u32 g = threadIdx.x; g < parts; g += ALL_THREADS) {
      u32 begin = g > 0 ? own_ends[g - 1] : 0, own = own_ends[g] > begin ? own_ends[g] - FIRST(begin) : 0;
      own_tiles[g] = IN_DEPTH ? steps_of(own) : (own + TILE_ROWS - 1) / TILE_ROWS;
    }
    __syncthreads();
    join_all(own_tiles, room, parts, Total());
    ends = own_ends;
    tiles = own_tiles;
    this->columns = (columns + TILE_COLUMNS - 1) / TILE_COLUMNS;
    total = (IN_DEPTH ? groups * row_tiles : tiles[parts - 1]) * this->columns;
  }

  // Number of steps of a tile; a tile without terms takes one step.
  __device__ static inline u32 steps_of(u32 terms) { return terms == 0 ? 1 : (terms + BK - 1) / BK; }

  // Returns the first entry of the table whose sum times `each` exceeds `number`.
  __device__ inline u32 find(u32 number, u32 each) const {
    u32 low = 0, high = parts - 1;
    while (low < high) {
      u32 middle = (low + high) / 2;
      if (tiles[middle] * each > number) high = middle; else low = middle + 1;
    }
    return low;
  }

  __device__ inline Place place(u32 tile, u32 rows, u32 depth) const {
    u32 group = IN_DEPTH ? tile / (row_tiles * columns) : find(tile, columns);
    u32 before = IN_DEPTH ? group * row_tiles : group > 0 ? tiles[group - 1] : 0;
    u32 begin = group > 0 ? ends[group - 1] : 0, end = ends[group];
    u32 own = tile - before * columns, band = own / (BAND * columns) * BAND;
    u32 left = (IN_DEPTH ? row_tiles : tiles[group] - before) - band, in_band = left < BAND ? left : BAND;
    own -= band * columns;
    u32 row = (band + own % in_band) * TILE_ROWS, column = own / in_band * TILE_COLUMNS;
    if (IN_DEPTH) return {group, row, column, 0, rows, begin < end ? FIRST(begin) : begin, end};
    return {group, FIRST(begin) + row, column, ALIGNS ? begin : 0, end, 0, group < groups ? depth : 0};
  }

  // Number of steps of a tile of a part of the depth.
  __device__ inline u32 steps_of_tile(u32 tile) const {
    u32 group = tile / (row_tiles * columns);
    return tiles[group] - (group > 0 ? tiles[group - 1] : 0);
  }

  // Number of steps of all earlier tiles.
  __device__ inline u32 steps_before(u32 tile) const {
    if (IN_DEPTH) {
      u32 each = row_tiles * columns, group = tile / each;
      if (group == groups) return tiles[groups - 1] * each;
      u32 before = group > 0 ? tiles[group - 1] : 0;
      return before * each + tile % each * (tiles[group] - before);
    }
    u32 filled = tiles[groups - 1] * columns;
    return tile < filled ? tile * steps : filled * steps + (tile - filled);
  }

  // Returns the part of a tile that begins at this step, counted over all tiles.
  __device__ inline Part part(u32 step) const {
    if (IN_DEPTH) {
      u32 each = row_tiles * columns, group = find(step, each), before = group > 0 ? tiles[group - 1] : 0;
      u32 own = tiles[group] - before, within = step - before * each;
      return {group * each + within / own, within % own, own, own};
    }
    u32 filled = tiles[groups - 1] * columns;
    if (step < filled * steps) return {step / steps, step % steps, steps, steps};
    return {filled + step - filled * steps, 0, 1, 1};
  }
};
"#;

/// Division of a tile among the warps of a block, and the stages in shared memory. A stage holds columns of 64 elements
/// with the swizzle of [`super::super::super::mma`], which `wgmma` reads directly.
pub const TILES: &str = r#"
// Bytes of shared memory of a block, by device.
#if !MMA
#define ROOM (64 << 10)
#elif __CUDA_ARCH__ == 900 || __CUDA_ARCH__ == 1000 || __CUDA_ARCH__ == 1030
#define ROOM (227 << 10)
#elif __CUDA_ARCH__ == 800 || __CUDA_ARCH__ == 870
#define ROOM (163 << 10)
#else
#define ROOM (99 << 10)
#endif
// Elements in shared memory for the results of a warp: those of `ROOMS` boxes if these are copied to the result by a tensor map.
#define RESULTS_ROOM (MAPS_C ? ROOMS * 16 * 64 : WARP_ROOM)
// Bytes of shared memory of a block that copies by tensor maps, for the results of all warps and for barriers.
#define BULK_ROOM (WARPS * RESULTS_ROOM * (int)sizeof(O) + 256)
#define STAGE (BM * WIDTH_A + BN * WIDTH_B)
// Elements of the factors of a step that were shifted into place.
#define PLACED ((SHIFT_A ? BM * BK : 0) + (SHIFT_B ? BN * BK : 0))
#define STAGES_THAT_FIT ((ROOM - TABLE - 2 * PLACED - (BULK ? BULK_ROOM : 0)) / (2 * STAGE))
// Without asynchronous copies, more than one stage has no benefit.
#define STAGES (!MMA ? 1 : STAGES_THAT_FIT < MAX_STAGES ? STAGES_THAT_FIT : MAX_STAGES)
// Number of stages that are loaded ahead. If a block is alone on its SM, `wgmma` may still be reading the stage before. With
// several blocks, each waits for its products, since those of another fill the gap, and loads a stage more.
#define WAITS (!ALONE || PLACED > 0)
#define AHEAD (WARPGROUPS && !WAITS ? STAGES - 2 : STAGES - 1)
#define WARPS (THREADS / LANES)
#define ROW_WARPS (WARPS < MAX_ROW_WARPS ? WARPS : MAX_ROW_WARPS)
#define MT (WARPGROUPS ? BM / 64 / (THREADS / 128) : BM / 16 / ROW_WARPS)
#define NT (WARPGROUPS ? BN / 16 : BN / 16 / (WARPS / ROW_WARPS))
#define ROW_STEP (WARPGROUPS ? 64 : 16)
static_assert(WARPGROUPS || (MT * ROW_WARPS * 16 == BM && NT * (WARPS / ROW_WARPS) * 16 == BN), "all warps have equal parts of a tile");
#define EACH(i, n) _Pragma("unroll") for (int i = 0; i < (n); i++)
// First row and column of the sums `m` and `n` of a warp within a tile.
__device__ inline u32 row_of(u32 warp, u32 m) {
  return (WARPGROUPS ? warp / 4 * (MT * 64) + warp % 4 * 16 : warp % ROW_WARPS * (MT * 16)) + m * ROW_STEP;
}
__device__ inline u32 column_of(u32 warp, u32 n) { return (WARPGROUPS ? 0 : warp / ROW_WARPS * (NT * 16)) + n * 16; }
#if SPLIT
// Whether some of these sums are elements of the result.
__device__ inline bool exist(const Place& place, u32 columns, u32 warp, u32 m, u32 n) {
  return place.row + row_of(warp, m) < place.row_end && place.column + column_of(warp, n) < columns;
}
// Writes the sums of a tile that blocks share to the block's workspace.
__device__ inline void store_part(Pack<f32, 4>* part, const Place& place, u32 columns, const Sums (&sum)[MT][NT]) {
  EACH(m, MT) EACH(n, NT) {
    if (!exist(place, columns, threadIdx.x / LANES, m, n)) continue;
    EACH(h, LANE_ROWS) {
      Pack<f32, 4> four;
      EACH(i, 4) four.at[i] = sum[m][n].at[h][i];
      part[((m * NT + n) * LANE_ROWS + h) * THREADS + threadIdx.x] = four;
    }
  }
}
// Memory for the partial sums of a block: one part for a tile that begins in its steps, one for a tile that began
// earlier.
__device__ inline Pack<f32, 4>* own_parts(Pack<f32, 4>* workspace, u32 block, bool begins) {
  return workspace + (u64)(2 * block + begins) * (BM * BN / 4);
}
#endif
"#;

/// Shared memory of the products of 16-bit factors.
pub const MEMORY: &str = r#"#if MMA
  extern __shared__ __align__(1024) Pack<u32, 4> memory[];
#else
  extern __shared__ Pack<u32, 4> memory[];
#endif
"#;

/// Product of 16-bit factors that all threads copy.
pub const UNITS: &str = r#"  // The last threads are for copies by tensor maps.
  if (MAPS && threadIdx.x >= THREADS) return;
  u16 *placed = (u16*)memory, *stages = placed + PLACED;
  // The table is built before the first loads overwrite the shared memory that it uses temporarily.
  Schedule schedule((u32*)(stages + STAGES * STAGE), (u32*)stages, ends, se, groups, rows, columns, depth);
  u32 own_row = row_of(threadIdx.x / LANES, 0), own_column = column_of(threadIdx.x / LANES, 0);
  auto loaded_a = [&](u32 stage) { return stages + stage * STAGE; };
  auto loaded_b = [&](u32 stage) { return stages + stage * STAGE + BM * WIDTH_A; };
  auto tile_a = [&](u32 stage) { return SHIFT_A ? placed : loaded_a(stage); };
  auto tile_b = [&](u32 stage) { return SHIFT_B ? placed + (SHIFT_A ? BM * BK : 0) : loaded_b(stage); };
  // Loads the factors of a step into a stage; or, with `places`, shifts those that were loaded so into place.
  auto load = [&](const Place& place, u32 stage, u32 step, bool places) {
    u32 k = place.depth + step * BK, terms = place.depth_end - k;
    EACH(part, TURNED_A ? BM / 64 : 1) {
      u32 row = place.row + part * 64, rows = left_of(place.row_end, row);
      const T* from = TURNED_A ? a + k * sa.row + row * sa.column : a + row * sa.row + k * sa.column;
      u16* to = loaded_a(stage) + part * 64 * WIDTH_A;
      if (places) place_part<SHIFT_A, ROWS_A>(tile_a(stage) + part * 64 * BK, to, from, sa.row, TURNED_A ? rows : terms);
      else load_part<SHIFT_A, PACKS_A, ROWS_A>(to, from, sa.row, TURNED_A ? terms : rows, TURNED_A ? rows : terms, sa.column);
    }
    EACH(part, TURNED_B ? 1 : BN / 64) {
      u32 column = place.column + part * 64, own = left_of(columns, column);
      const T* from = b + (IN_DEPTH ? 0 : place.group * sb.group) + (TURNED_B ? column * sb.row + k * sb.column : k * sb.row + column * sb.column);
      u16* to = loaded_b(stage) + part * 64 * WIDTH_B;
      if (places) place_part<SHIFT_B, ROWS_B>(tile_b(stage) + part * 64 * BK, to, from, sb.row, TURNED_B ? terms : own);
      else load_part<SHIFT_B, PACKS_B, ROWS_B>(to, from, sb.row, TURNED_B ? own : terms, TURNED_B ? terms : own, sb.column);
    }
  };
  static_assert(AHEAD > 0 || PLACED == 0, "a stage is loaded while another one is shifted into place");
  // Nothing is loaded into the stages behind those that are loaded ahead while results are written.
  static_assert(WARPS * WARP_ROOM * sizeof(O) <= 2 * STAGE, "the results of all warps fit in a stage");
  O* room = (O*)(stages + AHEAD * STAGE) + threadIdx.x / LANES * WARP_ROOM;
#if SPLIT
  Shares shares(schedule, (u32*)stages, (u32*)(stages + STAGES * STAGE) + 2 * (groups + 1));
  Shared* own_shared = (Shared*)own_parts(workspace, gridDim.x, false) + blockIdx.x;
  if (threadIdx.x == 0) own_shared->others = 0;
#else
  const Schedule& shares = schedule;
#endif
  Work work(shares);
  // Takes the next tile, or the block's part of one, and starts to load it. Returns false if there is none.
  auto advance = [&]() -> bool {
    if (!work.next(schedule, shares, rows, depth)) return false;
#if SPLIT
    if (threadIdx.x == 0 && work.begins_shared()) *own_shared = {work.place, work.others};
#endif
    EACH(stage, AHEAD) {
      if (stage < work.steps) load(work.place, stage, stage, false);
      loads_issued();
    }
    return true;
  };

  bool more = advance();
  while (more) {
    Place place = work.place;
    u32 steps = work.steps;
#if SPLIT
    Part part = work.part;
#endif
    Sums sum[MT][NT];
    EACH(m, MT) EACH(n, NT) EACH(h, LANE_ROWS) EACH(i, 4) sum[m][n].at[h][i] = 0;
    for (u32 step = 0; step < steps; step++) {
      u32 stage = step % STAGES;
      if (AHEAD > 0) {
        loads_pending<(AHEAD > 0 ? AHEAD - 1 : 0)>();
#if WARPGROUPS
        if (WAITS) multiply_wait<0>();
        if (PLACED == 0) written_before();
#endif
        __syncthreads();
#if SHIFT_A || SHIFT_B
        load(place, stage, step, true);
#if WARPGROUPS
        written_before();
#endif
        __syncthreads();
#endif
        if (step + AHEAD < steps) load(place, (step + AHEAD) % STAGES, step + AHEAD, false);
        loads_issued();
      } else {
        __syncthreads();
        load(place, stage, step, false);
        loads_issued();
        loads_done();
        __syncthreads();
      }
#if WARPGROUPS
      multiply_begin();
      EACH(c, BK / 16) EACH(m, MT) {
        u32 row = threadIdx.x / 128 * (MT * 64) + m * 64;
        u16* of_a = TURNED_A ? tile_a(stage) + (row + c * 16) * 64 : tile_a(stage) + row * 64 + c * 16;
        u16* of_b = TURNED_B ? tile_b(stage) + c * 16 : tile_b(stage) + c * 16 * 64;
        multiply_together(sum[m], described<BK>(of_a), described<BK>(of_b), true);
      }
      multiply_end();
      if (!WAITS) multiply_wait<1>();
#else
      EACH(c, BK / 16) {
        Factor factors[MT];
        EACH(m, MT) {
          u32 row = own_row + m * 16;
          factors[m] = TURNED_A ? left_turned(Columns<BK, BM>{tile_a(stage)}[row], c * 16, row % 64)
                                : left(Tile<BM, 64>{tile_a(stage)}, row, c * 16);
        }
        EACH(n, NT) {
          u32 column = own_column + n * 16;
          Factor other = TURNED_B ? right(Tile<BN, 64>{tile_b(stage)}, column, c * 16)
                                  : right_turned(Columns<BK, BN>{tile_b(stage)}[column], c * 16, column % 64);
          EACH(m, MT) multiply<T>(sum[m][n], factors[m], other);
        }
      }
#endif
    }
#if WARPGROUPS
    multiply_wait<0>();
#endif
    // The first stages of the next tile are loaded while the results of this one are written.
    __syncthreads();
    more = advance();
#if SPLIT
    if (!part.is_whole()) {
      store_part(own_parts(workspace, blockIdx.x, part.first == 0), place, columns, sum);
      continue;
    }
#endif
    store_tile(c, sc, place, columns, steps, sum, room);
  }
"#;

/// Product of factors of 32 or 64 bits: each thread computes 4 × 4 elements of a tile.
pub const ELEMENTS: &str = r#"  __shared__ u32 table[2 * (MAX_GROUPS + 1)], room[MAX_GROUPS + 1];
  __shared__ C left[16][BM + 4], right[16][BN + 4];
  Schedule schedule(table, room, ends, se, groups, rows, columns, depth);
  u32 first_row = threadIdx.x / 16 * 4, first_column = threadIdx.x % 16 * 4;
  for (u32 tile = blockIdx.x; tile < schedule.total; tile += gridDim.x) {
    Place place = schedule.place(tile, rows, depth);
    const T* own = b + (IN_DEPTH ? 0 : place.group * sb.group);
    C sum[4][4] = {};
    for (u32 k = place.depth; k < place.depth_end; k += 16) {
      __syncthreads();
      for (u32 i = threadIdx.x; i < BM * 16; i += THREADS) {
        u32 r = TURNED_A ? i % BM : i / 16, term = TURNED_A ? i / BM : i % 16;
        i64 row = (i64)place.row + r, at = (i64)k + term;
        bool exists = row < place.row_end && at < place.depth_end;
        left[term][r] = exists ? load<C>(a[TURNED_A ? at * sa.row + row * sa.column : row * sa.row + at * sa.column]) : C(0);
      }
      for (u32 i = threadIdx.x; i < BN * 16; i += THREADS) {
        u32 r = TURNED_B ? i / 16 : i % BN, term = TURNED_B ? i % 16 : i / BN;
        i64 column = (i64)place.column + r, at = (i64)k + term;
        bool exists = column < columns && at < place.depth_end;
        right[term][r] = exists ? load<C>(own[TURNED_B ? column * sb.row + at * sb.column : at * sb.row + column * sb.column]) : C(0);
      }
      __syncthreads();
#pragma unroll
      for (u32 term = 0; term < 16; term++) {
#pragma unroll
        for (u32 r = 0; r < 4; r++)
#pragma unroll
          for (u32 column = 0; column < 4; column++) sum[r][column] += left[term][first_row + r] * right[term][first_column + column];
      }
    }
    O* to = c + (IN_DEPTH ? place.group * sc.group : 0);
#pragma unroll
    for (u32 r = 0; r < 4; r++) {
      u32 row = place.row + first_row + r;
#pragma unroll
      for (u32 i = 0; i < 4; i++) {
        u32 column = place.column + first_column + i;
        if (row < place.row_end && column < columns) store<C>(to[row * sc.row + column * sc.column], finished(sum[r][i]));
      }
    }
  }
"#;
