//! Text of the kernels of [`super::search`].

/// Kernel text: the block has the indices from `all_begin` to `all_end`. `count_rows` counts the terms of each row and warp among the positions
/// from `begin` to `end`, of which each warp has consecutive ones. `found` is the number of all.
pub const FIND: &str = r#"  typedef Pack<C, V> Sum;
  const u32 WARPS = THREADS / 32, GROUPS = THREADS / LANES;
  const u32 t = threadIdx.x, lane32 = t % 32, warp = t / 32, lane = t % LANES, group = t / LANES;
  const u32 chunk = blockIdx.x % CHUNKS, segment = blockIdx.x / CHUNKS % SEGMENTS;
  const u64 first = (u64)(blockIdx.x / CHUNKS / SEGMENTS) * OWN;
  const P all_begin = segment * SHARE, all_end = count - all_begin < SHARE ? (P)count : all_begin + SHARE;
  const u32 own_rows = (u32)(rows - first < OWN ? rows - first : OWN);
  __shared__ union Room { u32 keys[FEW]; Pack<u32, 4> fours[FEW / 4]; u32 counts[WARPS * OWN]; Sum parts[2 * GROUPS * LANES]; } room;
  __shared__ u32 starts[OWN + 1], part_starts[OWN + 1], found;
  __shared__ unsigned short order[ROUND];
  Block block = {0};
  // Indices of 32 bits name no row beyond.
  const u32 reach = sizeof(Index) == 4 && first >> 31 != 0 ? 0 : own_rows;
  auto row_of = [&](Index index) {
    if (sizeof(Index) == 4) return (u32)index - (u32)first < reach ? (u32)index - (u32)first : OWN;
    return (u64)((i64)index - (i64)first) < reach ? (u32)((i64)index - (i64)first) : OWN;
  };
  auto column_of = [&](u32 own) { return (i64)(chunk * LANES + lane) * V - LEAD(y + (first + own) * sy); };
  // Lists the terms of few rows, in any order, as keys of the row and the position.
  auto find_few = [&]() {
    if (t < FEW) room.keys[t] = 0xffffffffu;
    if (t == 0) found = 0;
    __syncthreads();
    for (P base = all_begin + t; base < all_end; base += EACH * THREADS) {
      u32 bits = 0;
#pragma unroll
      for (u32 e = 0; e < EACH; e++) {
        const P p = base + e * THREADS;
        bits |= (u32)(p < all_end && row_of(INDEX(p)) < OWN) << e;
      }
      for (; bits != 0; bits &= bits - 1) {
        const P p = base + (__ffsll((i64)bits) - 1) * THREADS;
        const u32 slot = atomicAdd(&found, 1u);
        // The terms are counted again.
        if (slot >= FEW) break;
        room.keys[slot] = row_of(INDEX(p)) << 16 | (p - all_begin);
      }
    }
    __syncthreads();
  };
  // The warp's first and last position among those from `begin` to `end`.
  P from = 0, to = 0;
  u32 share = 0;
  auto count_rows = [&](P begin, P end) {
    share = ((end - begin + 31) / 32 + WARPS - 1) / WARPS * 32;
    from = begin + warp * share;
    to = from + share < end ? from + share : end;
    for (u32 k = t; k < WARPS * OWN; k += THREADS) room.counts[k] = 0;
    if (t == 0) found = 0;
    __syncthreads();
    u32 mine = 0;
    for (P base = from; base < to; base += 32 * EACH) {
      u32 own[EACH];
#pragma unroll
      for (u32 e = 0; e < EACH; e++) own[e] = base + e * 32 + lane32 < to ? row_of(INDEX(base + e * 32 + lane32)) : OWN;
#pragma unroll
      for (u32 e = 0; e < EACH; e++) {
        if (own[e] < OWN) atomicAdd(&room.counts[warp * OWN + own[e]], 1u);
        mine += own[e] < OWN;
      }
    }
    mine = sum32(mine);
    if (lane32 == 0 && mine > 0) atomicAdd(&found, mine);
    __syncthreads();
  };
"#;

/// Kernel text: `sort_few` sorts the listed terms by row and position: the place of a term is the number of lower keys. `sort_rows` sorts the
/// counted positions by row; those of a row keep their order. `part` is the maximum number of terms that a group of threads adds, and `parts`
/// the number of parts of rows that have more.
pub const SORT: &str = r#"  u32 part = 0, parts = 0;
  // At most twice as many parts as groups have terms.
  auto parts_of = [&](u32 terms) { return ADDS && terms > part ? (terms + part - 1) / part : 0; };
  auto set_part = [&]() { part = ((found + GROUPS - 1) / GROUPS + AHEAD - 1) / AHEAD * AHEAD; };
  auto sort_few = [&]() {
    set_part();
    const u32 held = found, mine = t < held ? room.keys[t] : 0, row = t << 16;
    u32 lower = 0, before_row = 0;
    if (t < held || t <= OWN) {
      for (u32 k = 0; k < held; k += 4) {
        const Pack<u32, 4> four = room.fours[k / 4];
#pragma unroll
        for (u32 o = 0; o < 4; o++) {
          lower += four.at[o] < mine;
          before_row += four.at[o] < row;
        }
      }
    }
    if (t < held) order[lower] = (unsigned short)mine;
    if (t <= OWN) starts[t] = before_row;
    __syncthreads();
    const u32 own_parts = t < OWN ? parts_of(starts[t + 1] - starts[t]) : 0;
    parts = 0;
    if (block.votes(own_parts > 0) == 0) return;
    const u32 before = block.before(own_parts, parts);
    if (t < OWN) part_starts[t] = before;
    if (t == 0) part_starts[OWN] = parts;
    __syncthreads();
  };
  auto sort_rows = [&](P begin) {
    set_part();
    u32 terms = 0, all_terms = 0;
    if (t < OWN) {
#pragma unroll
      for (u32 w = 0; w < WARPS; w++) terms += room.counts[w * OWN + t];
    }
    const u32 before = block.before(terms | parts_of(terms) << 16, all_terms);
    parts = all_terms >> 16;
    if (t < OWN) {
      u32 at = before & 0xffffu;
      starts[t] = at;
      part_starts[t] = before >> 16;
#pragma unroll
      for (u32 w = 0; w < WARPS; w++) {
        const u32 of_warp = room.counts[w * OWN + t];
        room.counts[w * OWN + t] = at;
        at += of_warp;
      }
    }
    if (t == 0) {
      starts[OWN] = all_terms & 0xffffu;
      part_starts[OWN] = parts;
    }
    __syncthreads();
    // Votes and shuffles need all threads of a wavefront, which can be two of these warps.
    for (u32 done = 0; done < share; done += 32 * EACH) {
      const P base = from + done;
      u32 own[EACH];
#pragma unroll
      for (u32 e = 0; e < EACH; e++) own[e] = base + e * 32 + lane32 < to ? row_of(INDEX(base + e * 32 + lane32)) : OWN;
#pragma unroll
      for (u32 e = 0; e < EACH; e++) {
        if (!any_vote(own[e] < OWN)) continue;
        u32 same, leader, lower = equals32(own[e], same, leader), slot = 0;
        if (lower == 0 && own[e] < OWN) {
          slot = room.counts[warp * OWN + own[e]];
          room.counts[warp * OWN + own[e]] = slot + same;
        }
        slot = SHUFFLE(slot, leader) + lower;
        if (own[e] < OWN) order[slot] = (unsigned short)(base + e * 32 + lane32 - begin);
        order_warp();
      }
    }
    __syncthreads();
  };
"#;

/// Kernel text: a group of `LANES` threads adds the terms of every `GROUPS`-th row. Rows of more than `part` terms are divided into parts of so
/// many; a warp adds the sums of the parts of a row.
pub const ADD: &str = r#"#if OVERFLOWS
  __shared__ Sum sums[OWN * LANES];
  for (u32 k = t; k < OWN * LANES; k += THREADS) {
#pragma unroll
    for (int c = 0; c < V; c++) sums[k].at[c] = 0;
  }
#endif
  auto write = [&](u32 own, i64 column, const C* sum) {
#if SEGMENTS > 1
    Sum& partial = ((Sum*)partials)[(((u64)segment * rows + first + own) * CHUNKS + chunk) * LANES + lane];
#pragma unroll
    for (int c = 0; c < V; c++) partial.at[c] = sum[c];
#else
    Pack<E, V> v;
#pragma unroll
    for (int c = 0; c < V; c++) store<C>(v.at[c], sum[c]);
    PUT(y + (first + own) * sy, column, v);
#endif
  };
  // Takes the sum of a row's terms of a round.
  auto take = [&](u32 own, i64 column, const C* sum) {
#if OVERFLOWS
#pragma unroll
    for (int c = 0; c < V; c++) sums[own * LANES + lane].at[c] += sum[c];
#else
    write(own, column, sum);
#endif
  };
  auto add_round = [&](P begin) {
    auto add_terms = [&](u32 l, u32 end, i64 column, C* sum) {
      for (; l < end; l += AHEAD) {
        Raw raw[AHEAD];
        C weight[AHEAD];
#pragma unroll
        for (u32 a = 0; a < AHEAD; a++) {
          if (l + a >= end) continue;
          const P p = begin + order[l + a];
          raw[a] = READ_ROW(x + outer.offset(p, 0), column);
          weight[a] = WEIGHT(p);
        }
#pragma unroll
        for (u32 a = 0; a < AHEAD; a++) {
          if (l + a >= end) continue;
          const Pack<E, V> v = ELEMENTS(raw[a]);
#pragma unroll
          for (int c = 0; c < V; c++) sum[c] += weight[a] * load<C>(v.at[c]);
        }
      }
    };
    for (u32 item = group; item < own_rows + parts; item += GROUPS) {
      const bool is_part = item >= own_rows;
      u32 own = item, l, end;
      if (is_part) {
        // The last row whose parts do not begin behind this one.
        own = 0;
        for (u32 past = OWN; past - own > 1;) {
          const u32 middle = (own + past) / 2;
          if (part_starts[middle] <= item - own_rows) own = middle;
          else past = middle;
        }
        l = starts[own] + (item - own_rows - part_starts[own]) * part;
        end = l + part < starts[own + 1] ? l + part : starts[own + 1];
      } else {
        l = starts[own];
        end = starts[own + 1];
        if (ADDS && end - l > part) continue;
        if (!ADDS && l < end) l = end - 1;
      }
      const i64 column = column_of(own);
      C sum[V] = {};
      if (column < (i64)n) add_terms(l, end, column, sum);
      if (is_part) {
#pragma unroll
        for (int c = 0; c < V; c++) room.parts[(item - own_rows) * LANES + lane].at[c] = sum[c];
      } else if (column < (i64)n) {
        take(own, column, sum);
      }
    }
    if (parts == 0) return;
    __syncthreads();
    for (u32 base = 0; base < own_rows; base += WARPS) {
      const u32 own = base + warp;
      const bool divided = own < own_rows && starts[own + 1] - starts[own] > part;
      if (!any_vote(divided)) continue;
      C sum[V] = {};
#pragma unroll 4
      for (u32 item = divided ? part_starts[own] + lane32 / LANES : 0; divided && item < part_starts[own + 1]; item += 32 / LANES) {
#pragma unroll
        for (int c = 0; c < V; c++) sum[c] += room.parts[item * LANES + lane].at[c];
      }
#pragma unroll
      for (u32 mask = LANES; mask < 32; mask *= 2) {
#pragma unroll
        for (int c = 0; c < V; c++) sum[c] += SHUFFLE_XOR(sum[c], mask);
      }
      const i64 column = divided ? column_of(own) : (i64)n;
      if (lane32 < LANES && column < (i64)n) take(own, column, sum);
    }
  };
#if FEW_EXPECTED
  find_few();
  const bool is_few = found <= FEW;
  if (!is_few) {
    __syncthreads();
    count_rows(all_begin, all_end);
  }
#else
  const bool is_few = false;
  count_rows(all_begin, all_end);
#endif
  const bool is_counted = !OVERFLOWS || found <= ROUND;
  const P step = is_counted ? SHARE : ROUND;
  for (P begin = all_begin; begin < all_end; begin += step) {
    if (!is_counted) {
      __syncthreads();
      count_rows(begin, all_end - begin < step ? all_end : begin + step);
    }
    if (is_few) sort_few();
    else sort_rows(begin);
    add_round(begin);
  }
#if OVERFLOWS
  __syncthreads();
  for (u32 own = group; own < own_rows; own += GROUPS) {
    const i64 column = column_of(own);
    if (column < (i64)n) write(own, column, sums[own * LANES + lane].at);
  }
#endif
"#;

/// Kernel text: `JOINERS` threads add the segments' sums of one pack of a row.
pub const JOIN: &str = r#"  const u64 item = GLOBAL_INDEX / JOINERS, row = item / (CHUNKS * LANES), pack = item % (CHUNKS * LANES);
  const bool makes = row < rows;
  C sum[V] = {};
#pragma unroll 4
  for (u32 segment = threadIdx.x % JOINERS; makes && segment < SEGMENTS; segment += JOINERS) {
    const Pack<C, V> partial = ((const Pack<C, V>*)partials)[(segment * rows + row) * (CHUNKS * LANES) + pack];
#pragma unroll
    for (int c = 0; c < V; c++) sum[c] += partial.at[c];
  }
#pragma unroll
  for (u32 mask = 1; mask < JOINERS; mask *= 2) {
#pragma unroll
    for (int c = 0; c < V; c++) sum[c] += SHUFFLE_XOR(sum[c], mask);
  }
  const i64 column = makes ? (i64)pack * V - LEAD(y + row * sy) : 0;
  if (!makes || threadIdx.x % JOINERS != 0 || column >= (i64)n) return;
  Pack<E, V> v;
#pragma unroll
  for (int c = 0; c < V; c++) store<C>(v.at[c], sum[c]);
  PUT(y + row * sy, column, v);
"#;
