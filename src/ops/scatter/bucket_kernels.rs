//! Text of the kernels of [`super::buckets`].
//!
//! A number of 32 bits holds the counts of two buckets, or of two rows: at most 4096 each.

/// Kernel text: a block sorts the positions of its tile by bucket, and writes them and the offset of each bucket. A word has the counts
/// of two buckets. The blocks also set the numbers for [`RUNS`] to zero.
pub const SPLIT: &str = r#"  const u32 WARPS = THREADS / 32, HELD = TILE / THREADS, WORDS = (BUCKETS + 1) / 2, WORDS_EACH = (WORDS + THREADS - 1) / THREADS;
  __shared__ u32 cursor[WARPS][WORDS], sorted[TILE];
  const u32 t = threadIdx.x, lane32 = t % 32, warp = t / 32;
  u32* entries = (u32*)workspace + (u64)blockIdx.x * TILE;
  u32* offsets = (u32*)(workspace + offsets_at) + (u64)blockIdx.x * (WORDS + 1);
  Block block = {0};
  i64 index[HELD];
  u32 rank[HELD];
#pragma unroll
  for (u32 h = 0; h < HELD; h++) {
    const u64 p = (u64)blockIdx.x * TILE + warp * (32 * HELD) + h * 32 + lane32;
    index[h] = p < count ? (i64)INDEX((P)p) : -1;
  }
  for (u32 k = t; k < WARPS * WORDS; k += THREADS) (&cursor[0][0])[k] = 0;
  for (u32 k = blockIdx.x * THREADS + t; k < HEADS; k += TILES * THREADS) ((u32*)(workspace + heads_at))[k] = 0;
  __syncthreads();
  auto bucket_of = [&](i64 index) { return index >= 0 && (u64)index < rows ? (u32)index / OWN : BUCKETS; };
#pragma unroll
  for (u32 h = 0; h < HELD; h++) {
    const u32 bucket = bucket_of(index[h]), shift = bucket % 2 * 16;
    const u32 equal = equal_bits<BUCKETS_BITS>(bucket), lower = __popc(equal & ((1u << lane32) - 1));
    u32 first = 0;
    if (lower == 0 && bucket < BUCKETS) first = atomicAdd(&cursor[warp][bucket / 2], (u32)__popc(equal) << shift) >> shift & 0xffffu;
    rank[h] = SHUFFLE(first, __popc((equal & (~equal + 1)) - 1)) + lower;
  }
  __syncthreads();
  u32 of_thread = 0, all = 0;
  for (u32 word = t * WORDS_EACH; word < (t + 1) * WORDS_EACH && word < WORDS; word++) {
    u32 sum = 0;
#pragma unroll
    for (u32 w = 0; w < WARPS; w++) sum += cursor[w][word];
    of_thread += (sum & 0xffffu) + (sum >> 16);
  }
  u32 at = block.before(of_thread, all);
  for (u32 word = t * WORDS_EACH; word < (t + 1) * WORDS_EACH && word < WORDS; word++) {
    u32 sum = 0;
#pragma unroll
    for (u32 w = 0; w < WARPS; w++) sum += cursor[w][word];
    const u32 next = at + (sum & 0xffffu);
    u32 here = at | next << 16;
    offsets[word] = here;
#pragma unroll
    for (u32 w = 0; w < WARPS; w++) {
      const u32 of_warp = cursor[w][word];
      cursor[w][word] = here;
      here += of_warp;
    }
    at = next + (sum >> 16);
  }
  if (t == 0) offsets[WORDS] = all;
  __syncthreads();
#pragma unroll
  for (u32 h = 0; h < HELD; h++) {
    const u32 bucket = bucket_of(index[h]), shift = bucket % 2 * 16;
    if (bucket == BUCKETS) continue;
    const u32 to = (cursor[warp][bucket / 2] >> shift & 0xffffu) + rank[h];
    sorted[to] = (u32)index[h] % OWN << 16 | (warp * (32 * HELD) + h * 32 + lane32);
  }
  __syncthreads();
  for (u32 k = t; k < all; k += THREADS) entries[k] = sorted[k];
"#;

/// Kernel text: a block owns consecutive rows.
pub const CONSECUTIVE: &str = "#define ROW_AT(own) (first + (own))\n";

/// Kernel text: `take_item` sets the item that the block processes next: a bucket, the columns of a chunk, and the indices of a
/// segment. `ROW_AT(own)` is the row that has this number among those of the bucket.
pub const OWN_ROWS: &str = r#"  typedef Pack<C, V> Sum;
  const u32 WARPS = THREADS / 32, GROUPS = THREADS / LANES;
  const u32 t = threadIdx.x, lane32 = t % 32, warp = t / 32, lane = t % LANES, group = t / LANES;
  u32 chunk, segment, bucket, own_rows;
  u64 first;
  __shared__ union Found { u32 at[ROUND]; Sum carries[WARPS * LANES]; } found;
  __shared__ unsigned short row_of[ROUND], order[ROUND];
  __shared__ u32 carry_rows[WARPS];
  __shared__ Sum sums[COPIES * OWN * LANES];
  Block block = {0};
  auto take_item = [&](u32 item) {
    chunk = item % CHUNKS;
    segment = item / CHUNKS % SEGMENTS;
    bucket = item / CHUNKS / SEGMENTS;
    first = (u64)bucket * OWN;
    own_rows = (u32)(rows - first < OWN ? rows - first : OWN);
    for (u32 k = t; k < COPIES * OWN * LANES; k += THREADS) {
#pragma unroll
      for (int c = 0; c < V; c++) sums[k].at[c] = 0;
    }
  };
  auto column_of = [&](u32 own) { return (i64)(chunk * LANES + lane) * V - LEAD(y + ROW_AT(own) * sy); };
"#;

/// Kernel text: sorts the `m` positions of a round by row. A word has the counts of two rows.
pub const GROUP: &str = r#"#if SORTS
  const u32 WORDS = (OWN + 1) / 2, WORDS_EACH = (WORDS + THREADS - 1) / THREADS, PLACES = (ROUND + THREADS - 1) / THREADS;
  __shared__ u32 cursor[WARPS][WORDS];
#endif
  auto arrange = [&](u32 m) {
#if SORTS
    for (u32 k = t; k < WARPS * WORDS; k += THREADS) (&cursor[0][0])[k] = 0;
    __syncthreads();
    const u32 each = (m + THREADS - 1) / THREADS;
    u32 row[PLACES], rank[PLACES];
#pragma unroll
    for (u32 e = 0; e < PLACES; e++) {
      if (e >= each) continue;
      const u32 l = warp * (32 * each) + e * 32 + lane32;
      row[e] = l < m ? row_of[l] : OWN;
      const u32 shift = row[e] % 2 * 16;
      u32 same, leader, lower = equals32(row[e], same, leader), begin = 0;
      if (lower == 0 && row[e] < OWN) begin = atomicAdd(&cursor[warp][row[e] / 2], same << shift) >> shift & 0xffffu;
      rank[e] = SHUFFLE(begin, leader) + lower;
    }
    __syncthreads();
    u32 of_thread = 0, all = 0, totals[WORDS_EACH];
#pragma unroll
    for (u32 c = 0; c < WORDS_EACH; c++) {
      const u32 word = t * WORDS_EACH + c;
      totals[c] = 0;
      if (word < WORDS) {
#pragma unroll
        for (u32 w = 0; w < WARPS; w++) totals[c] += cursor[w][word];
      }
      of_thread += (totals[c] & 0xffffu) + (totals[c] >> 16);
    }
    u32 at = block.before(of_thread, all);
#pragma unroll
    for (u32 c = 0; c < WORDS_EACH; c++) {
      const u32 word = t * WORDS_EACH + c, next = at + (totals[c] & 0xffffu);
      u32 here = at | next << 16;
      if (word < WORDS) {
#pragma unroll
        for (u32 w = 0; w < WARPS; w++) {
          const u32 of_warp = cursor[w][word];
          cursor[w][word] = here;
          here += of_warp;
        }
      }
      at = next + (totals[c] >> 16);
    }
    __syncthreads();
#pragma unroll
    for (u32 e = 0; e < PLACES; e++) {
      if (e >= each || row[e] == OWN) continue;
      const u32 to = (cursor[warp][row[e] / 2] >> row[e] % 2 * 16 & 0xffffu) + rank[e];
      order[to] = (unsigned short)(warp * (32 * each) + e * 32 + lane32);
    }
    __syncthreads();
#endif
  };
"#;

/// Kernel text: adds the terms of `m` grouped positions to the block's sums. A group of threads has consecutive terms. It adds the sum of
/// each row that begins among them but at its first term to the block's sums itself; the sum of the row of its first term is carried: over
/// the groups of a warp by shuffles, then over the warps.
pub const ADD: &str = r#"  auto add = [&](u32 m) {
    const u32 NONE = 0xffffffffu, each = (m + GROUPS - 1) / GROUPS, from = group * each, to = from + each < m ? from + each : m;
    C sum[V] = {}, carry[V] = {};
    u32 row = NONE, carry_row = NONE;
    auto flush = [&]() {
      if (carry_row == NONE) {
        carry_row = row;
#pragma unroll
        for (int c = 0; c < V; c++) carry[c] = sum[c];
        return;
      }
#pragma unroll
      for (int c = 0; c < V; c++) sums[row * LANES + lane].at[c] += sum[c];
    };
    for (u32 l = from; l < to; l += AHEAD) {
      Raw raw[AHEAD];
      C weight[AHEAD];
      u32 rows_here[AHEAD];
#pragma unroll
      for (u32 a = 0; a < AHEAD; a++) {
        if (l + a >= to) continue;
        const u32 k = SORTS ? order[l + a] : l + a, p = found.at[k];
        rows_here[a] = OWN > 1 ? row_of[k] : 0;
        const i64 column = column_of(rows_here[a]);
        raw[a] = {};
        if (column < (i64)n) raw[a] = READ_ROW(x + outer.offset(p, 0), column);
        weight[a] = WEIGHT(p);
      }
#pragma unroll
      for (u32 a = 0; a < AHEAD; a++) {
        if (l + a >= to) continue;
        if (rows_here[a] != row) {
          if (row != NONE) flush();
          row = rows_here[a];
#pragma unroll
          for (int c = 0; c < V; c++) sum[c] = 0;
        }
        const Pack<E, V> v = ELEMENTS(raw[a]);
#pragma unroll
        for (int c = 0; c < V; c++) sum[c] += weight[a] * load<C>(v.at[c]);
      }
    }
    if (row != NONE) flush();
    // The first carried sum of a row in a warp gets the sum of all of them.
    bool leads = false;
    if (t / 64 * 64 / LANES * each < m) {
#pragma unroll
      for (u32 step = LANES; step < 32; step *= 2) {
        const bool is_same = SHUFFLE(carry_row, (lane32 + step) % 32) == carry_row && lane32 + step < 32;
#pragma unroll
        for (int c = 0; c < V; c++) {
          const C other = SHUFFLE(carry[c], (lane32 + step) % 32);
          if (is_same) carry[c] += other;
        }
      }
      leads = SHUFFLE(carry_row, (lane32 + 32 - LANES) % 32) != carry_row && lane32 >= LANES && carry_row != NONE;
    }
    __syncthreads();
    if (leads) {
#pragma unroll
      for (int c = 0; c < V; c++) sums[carry_row * LANES + lane].at[c] += carry[c];
    }
    if (lane32 < LANES) {
#pragma unroll
      for (int c = 0; c < V; c++) found.carries[warp * LANES + lane].at[c] = carry[c];
      carry_rows[warp] = carry_row;
    }
    __syncthreads();
    // Rows increase, so that carried sums of a row are neighbours.
    const u32 carried = group < WARPS ? carry_rows[group] : NONE;
    if (carried != NONE && (group == 0 || carry_rows[group - 1] != carried)) {
      Sum all = found.carries[group * LANES + lane];
      for (u32 other = group + 1; other < WARPS && carry_rows[other] == carried; other++) {
#pragma unroll
        for (int c = 0; c < V; c++) all.at[c] += found.carries[other * LANES + lane].at[c];
      }
#pragma unroll
      for (int c = 0; c < V; c++) sums[carried * LANES + lane].at[c] += all.at[c];
    }
    __syncthreads();
  };
  auto add_up = [&]() {};
"#;

/// Minimum number of neighbouring terms of a warp with the same row that are added by shuffles.
pub const CROWD: u64 = 6;

/// Kernel text: adds the terms of `m` positions in their order to the sums of each warp. A warp has consecutive terms, `TERMS` at a time. If
/// several of them have the same row, they are added one after the other; many are added by shuffles first. Terms of a warp that all have the same row
/// are added up by each thread first.
pub const ADD_RANKED: &str = r#"  // A bit for each thread of the warp with the same row.
  auto same_row = [](u32 row) {
#if defined(__CUDA_ARCH__)
    return __match_any_sync(0xffffffffu, row);
#else
    return equal_bits<OWN_BITS>(row);
#endif
  };
  auto add = [&](u32 m) {
    const u32 TERMS = 32 / LANES, each = (m + COPIES * TERMS - 1) / (COPIES * TERMS);
    Sum* own = sums + warp * (OWN * LANES) + lane;
    // The sum of successive terms of a warp that all have the same row.
    C run[V] = {};
    u32 run_row = OWN;
    auto end_run = [&](bool ends) {
      if (!any_vote(ends)) return;
#pragma unroll
      for (int c = 0; c < V; c++) {
        C all = ends ? run[c] : C(0);
#pragma unroll
        for (u32 mask = 16; mask >= LANES; mask /= 2) all += SHUFFLE_XOR(all, mask);
        if (ends && lane32 < LANES) own[run_row * LANES].at[c] += all;
        if (ends) run[c] = 0;
      }
      if (ends) run_row = OWN;
      order_warp();
    };
    // The warps of a wavefront take the same number of steps.
    for (u32 step = 0; warp / 2 * 2 < COPIES && step < each; step += AHEAD) {
      Raw raw[AHEAD];
      C weight[AHEAD];
      u32 row[AHEAD];
#pragma unroll
      for (u32 a = 0; a < AHEAD; a++) {
        const u32 l = (warp * each + step + a) * TERMS + lane32 / LANES;
        row[a] = OWN;
        raw[a] = {};
        weight[a] = 0;
        if (step + a >= each || l >= m) continue;
        const u32 p = found.at[l];
        row[a] = row_of[l];
        const i64 column = column_of(row[a]);
        if (column < (i64)n) raw[a] = READ_ROW(x + outer.offset(p, 0), column);
        weight[a] = WEIGHT(p);
      }
#pragma unroll
      for (u32 a = 0; a < AHEAD; a++) {
        if (step + a >= each) continue;
        const Pack<E, V> v = ELEMENTS(raw[a]);
        C term[V];
#pragma unroll
        for (int c = 0; c < V; c++) term[c] = weight[a] * load<C>(v.at[c]);
        const u32 equal = same_row(row[a]), rank = __popc(equal & ((1u << lane32) - 1)) / LANES;
        const bool is_run = equal == 0xffffffffu && row[a] < OWN;
        end_run(is_run && run_row < OWN && run_row != row[a]);
        if (is_run) {
          run_row = row[a];
#pragma unroll
          for (int c = 0; c < V; c++) run[c] += term[c];
        }
        bool is_left = row[a] < OWN && !is_run;
        u32 crowds = TERMS < CROWD ? 0 : votes32(is_left && __popc(equal) >= CROWD * LANES);
        while (TERMS >= CROWD && any_vote(crowds != 0)) {
          const u32 first = crowds == 0 ? 0 : __ffsll((i64)crowds) - 1, same = SHUFFLE(equal, first), crowd = crowds == 0 ? 0 : same;
          const bool is_mine = (crowd >> lane32 & 1) != 0;
#pragma unroll
          for (int c = 0; c < V; c++) {
            C all = is_mine ? term[c] : C(0);
#pragma unroll
            for (u32 mask = 16; mask >= LANES; mask /= 2) all += SHUFFLE_XOR(all, mask);
            if (is_mine && rank == 0) own[row[a] * LANES].at[c] += all;
          }
          is_left = is_left && !is_mine;
          crowds &= ~crowd;
        }
        for (u32 turn = 0; any_vote(is_left && rank >= turn); turn++) {
          if (is_left && rank == turn) {
#pragma unroll
            for (int c = 0; c < V; c++) own[row[a] * LANES].at[c] += term[c];
          }
          order_warp();
        }
        order_warp();
      }
    }
    end_run(run_row < OWN);
    __syncthreads();
  };
  // Adds up the sums of all warps.
  auto add_up = [&]() {
    for (u32 k = t; k < OWN * LANES; k += THREADS) {
#pragma unroll
      for (u32 w = 1; w < COPIES; w++) {
#pragma unroll
        for (int c = 0; c < V; c++) sums[k].at[c] += sums[w * (OWN * LANES) + k].at[c];
      }
    }
    __syncthreads();
  };
"#;

/// Kernel text: a block reads the runs of its bucket, one for each tile.
///
/// An item of more than `HEAVY` positions is divided into parts of `PART` positions, which depend on the indices alone. Its block lists
/// it; then blocks without other work take parts, until none is left. No block waits for another one. `records` has four numbers for each
/// listed item: the item and one, its number of positions, the number of its first part among those of all items, and how many parts are
/// taken.
pub const RUNS: &str = r#"  __shared__ u32 left_of[THREADS], task[4], record;
  __shared__ unsigned short at_of[THREADS];
  const u32 WORDS_OF_TILE = (BUCKETS + 1) / 2 + 1, TILES_EACH = (TILES + SEGMENTS - 1) / SEGMENTS, NO_TASK = 0xffffffffu;
  const u32* entries = (const u32*)workspace;
  const unsigned short* offsets = (const unsigned short*)(workspace + offsets_at);
  u32* heads = (u32*)(workspace + heads_at);
  volatile u32* records = heads + 2;
  // Reads the runs of the item in the tiles from `base` on, one for each thread; returns their number of positions.
  auto read_runs = [&](u32 base) {
    u32 at = 0, length = 0, all = 0;
    const u32 tile = segment * TILES_EACH + base + t;
    if (base + t < TILES_EACH && tile < TILES) {
      const unsigned short* of_tile = offsets + (u64)tile * WORDS_OF_TILE * 2 + bucket;
      at = of_tile[0];
      length = of_tile[1] - at;
    }
    left_of[t] = block.before(length, all);
    at_of[t] = (unsigned short)at;
    __syncthreads();
    return all;
  };
  auto parts_of = [](u32 positions) { return (positions + PART - 1) / PART; };
  take_item(blockIdx.x);
  u32 in_runs = 0, positions = 0;
  for (u32 base = 0; base < TILES_EACH; base += THREADS) {
    if (base > 0) __syncthreads();
    in_runs = read_runs(base);
    positions += in_runs;
  }
  bool is_shared = positions > HEAVY;
  if (t == 0) record = 0;
  if (is_shared && t == 0) {
    const u32 slot = atomicAdd(&heads[1], parts_of(positions)), own = 4 * atomicAdd(&heads[0], 1u);
    records[own + 1] = positions;
    records[own + 2] = slot;
    __threadfence();
    atomicExch((u32*)&records[own], blockIdx.x + 1);
  }
  for (bool has_item = !is_shared;; has_item = true) {
    u32 known = 0;
    if (has_item) {
      const u32 from = is_shared ? task[3] * PART : 0, to = is_shared && from + PART < task[1] ? from + PART : 0xffffffffu;
      u32 passed = 0;
      for (u32 base = 0; base < TILES_EACH && passed < to; base += THREADS) {
        if (is_shared || TILES_EACH > THREADS) in_runs = read_runs(base);
        const u32 end = to - passed < in_runs ? to - passed : in_runs;
        for (u32 window = from > passed ? from - passed : 0; window < end; window += ROUND) {
          const u32 here = end - window < ROUND ? end - window : ROUND;
          // Several entries are on their way at once.
          const u32 last = window + here - 1;
          for (u32 next = t; next < here; next += EACH * THREADS) {
            u32 tile[EACH], entry[EACH];
#pragma unroll
            for (u32 e = 0; e < EACH; e++) {
              // The last run that does not begin behind the position.
              const u32 wanted = window + next + e * THREADS, place = wanted < last ? wanted : last;
              u32 run = 0;
#pragma unroll
              for (u32 step = THREADS / 2; step > 0; step /= 2) run += left_of[run + step] <= place ? step : 0;
              tile[e] = (segment * TILES_EACH + base + run) * TILE;
              entry[e] = entries[(u64)tile[e] + at_of[run] + place - left_of[run]];
            }
#pragma unroll
            for (u32 e = 0; e < EACH; e++) {
              const u32 k = next + e * THREADS;
              if (k >= here) continue;
              found.at[k] = tile[e] + (entry[e] & 0xffffu);
              row_of[k] = (unsigned short)(entry[e] >> 16);
            }
          }
          __syncthreads();
          arrange(here);
          add(here);
        }
        passed += in_runs;
        __syncthreads();
      }
      if (t == 0) known = *(volatile u32*)heads;
      if (COPIES > 1) add_up();
      if (!is_shared || join(task[2], task[3], parts_of(task[1]))) write_sums();
    } else if (t == 0) {
      known = *(volatile u32*)heads;
    }
    // The item, its positions, the number of its first part, and the next part that no block has taken.
    if (t == 0) {
      task[0] = NO_TASK;
      for (; record < known; record++) {
        volatile u32* own = records + 4 * record;
        if (own[0] == 0) continue;
        __threadfence();
        const u32 next = atomicAdd((u32*)own + 3, 1u);
        if (next >= parts_of(own[1])) continue;
        task[0] = own[0] - 1;
        task[1] = own[1];
        task[2] = own[2];
        task[3] = next;
        break;
      }
    }
    __syncthreads();
    const u32 item = task[0];
    if (item == NO_TASK) break;
    is_shared = true;
    take_item(item);
    __syncthreads();
  }
"#;

/// Kernel text: `join` adds the block's sums to those of the other parts of its item; true for the block that has the sum of all. The last
/// block of every `JOINED` parts adds up their sums in the order of the parts; then the last of as many such groups, and so on.
/// A group's sums take the place of those of its first part.
pub const JOIN_PARTS: &str = r#"  auto join = [&](u32 slot, u32 part, u32 parts) {
    __shared__ bool is_last;
    const u32 ALL = OWN * LANES * V;
    C *own = (C*)sums, *shared = partials + SHARED_AT + (u64)slot * ALL;
    u32* done = (u32*)(workspace + heads_at) + 2 + 4 * RECORDS + slot;
    for (u32 level = 0, wide = 1; parts > 1; level++, wide *= JOINED) {
      for (u32 e = t; e < ALL; e += THREADS) shared[(u64)part * wide * ALL + e] = own[e];
      __threadfence();
      __syncthreads();
      const u32 head = part / JOINED * JOINED, size = parts - head < JOINED ? parts - head : JOINED;
      if (t == 0) is_last = atomicAdd(&done[head * wide + level], 1u) + 1 == size;
      __syncthreads();
      if (!is_last) return false;
      __threadfence();
      for (u32 e = t; e < ALL; e += THREADS) {
        C sum = 0;
#pragma unroll
        for (u32 other = 0; other < JOINED; other++) {
          if (other < size) sum += *(const volatile C*)&shared[(u64)(head + other) * wide * ALL + e];
        }
        own[e] = sum;
      }
      __syncthreads();
      part /= JOINED;
      parts = (parts + JOINED - 1) / JOINED;
    }
    return true;
  };
"#;

/// Kernel text: writes the block's sums.
pub const WRITE: &str = r#"  auto write_sums = [&]() {
    for (u32 own = group; own < own_rows; own += GROUPS) {
      const i64 column = column_of(own);
      if (column >= (i64)n) continue;
      const Sum sum = sums[own * LANES + lane];
#if SEGMENTS > 1
      ((Sum*)partials)[(((u64)segment * rows + ROW_AT(own)) * CHUNKS + chunk) * LANES + lane] = sum;
#else
      Pack<E, V> v;
#pragma unroll
      for (int c = 0; c < V; c++) store<C>(v.at[c], sum.at[c]);
      PUT(y + ROW_AT(own) * sy, column, v);
#endif
    }
  };
"#;
