//! Text of the kernels of [`super::search`].

/// Kernel text: the number of the row that an index names among the `own` rows from `first` on; `none` if it is not one of them.
pub const OWN_ROW: &str = r#"
template <typename T> __device__ inline u32 own_row(T index, u64 first, u32 own, u32 none) {
  if (sizeof(T) == 4) {
    // Indices of 32 bits name no row beyond.
    const u32 from_first = (u32)index - (u32)first, reach = first >> 31 != 0 ? 0 : own;
    return from_first < reach ? from_first : none;
  }
  const u64 from_first = (u64)index - first;
  return from_first < own ? (u32)from_first : none;
}
"#;

/// Kernel text: the block has the indices from `begin` to `limit`, of which each warp has consecutive ones. `read_indices` reads them and lists
/// the terms of few rows, and `count_rows` counts the terms of each row and warp. `found` is the number of terms.
pub const FIND: &str = r#"  typedef Pack<C, V> Sum;
  const u32 WARPS = THREADS / 32, GROUPS = THREADS / LANES;
  const u32 t = threadIdx.x, lane32 = t % 32, warp = t / 32, lane = t % LANES, group = t / LANES;
  const u32 chunk = blockIdx.x % CHUNKS, segment = blockIdx.x / CHUNKS % SEGMENTS;
  const u64 first = (u64)(blockIdx.x / CHUNKS / SEGMENTS) * OWN;
  const P begin = segment * SHARE, limit = count - begin < SHARE ? (P)count : begin + SHARE;
  const u32 own_rows = (u32)(rows - first < OWN ? rows - first : OWN);
  __shared__ union Room { u32 keys[FEW]; Pack<u32, 4> fours[FEW / 4]; u32 counts[WARPS * OWN]; Sum parts[2 * GROUPS * LANES]; } room;
  __shared__ u32 starts[OWN + 1], part_starts[OWN + 1], found;
  __shared__ unsigned short order[SHARE];
  Block block = {0};
  auto column_of = [&](u32 own) { return (i64)(chunk * LANES + lane) * V - LEAD(y + (first + own) * sy); };
#if CLEARS
  // The rows that have terms, in any order.
  __shared__ u32 named_rows[OWN], named;
  if (t == 0) named = 0;
  // Sets the block's part of its rows to zero.
  auto clear_rows = [&]() {
#if CHUNKS == 1
    set_zero(y + first * sy, y + (first + own_rows) * sy, t, THREADS);
#else
    Pack<E, V> zeros;
#pragma unroll
    for (int c = 0; c < V; c++) zeros.at[c] = E{};
    for (u32 own = group; own < own_rows; own += GROUPS) {
      const i64 column = column_of(own);
      if (column < (i64)n) PUT(y + (first + own) * sy, column, zeros);
    }
#endif
  };
#endif
  // The warp's positions are from `from` to `to`. `of_position` returns the row of the thread's h-th position, or `OWN`, from a register
  // that has four of them.
  const u32 OF_WARP = ((SHARE + 31) / 32 + WARPS - 1) / WARPS * 32, HELD = OF_WARP / 32;
  const P from = begin + warp * OF_WARP + lane32;
  u32 owns[(HELD + 3) / 4] = {};
  auto of_position = [&](u32 h) { return owns[h / 4] >> h % 4 * 8 & 0xffu; };
  auto position_of = [&](u32 h) { return from + h * 32; };
  // Reads the indices. Lists the terms of few rows, in any order, as keys of the row and the position, if `lists`.
  auto read_indices = [&](bool lists) {
    if (lists) {
      if (t < FEW) room.keys[t] = 0xffffffffu;
      if (t == 0) found = 0;
    }
#pragma unroll
    for (u32 base = 0; base < HELD; base += EACH) {
      Index index[EACH];
#pragma unroll
      for (u32 e = 0; e < EACH; e++) {
        const u32 h = base + e;
        index[e] = h < HELD && position_of(h) < limit ? INDEX(position_of(h)) : (Index)-1;
      }
      if (base == 0) {
#if CLEARS
        clear_rows();
#endif
        if (lists) __syncthreads();
      }
      bool has_room = lists;
#pragma unroll
      for (u32 e = 0; e < EACH; e++) {
        const u32 h = base + e, own = own_row(index[e], first, own_rows, OWN);
        if (h < HELD) owns[h / 4] |= own << h % 4 * 8;
        if (own == OWN || !has_room) continue;
        const u32 slot = atomicAdd(&found, 1u);
        // More terms are counted again.
        has_room = slot < FEW;
        if (has_room) room.keys[slot] = own << 16 | (position_of(h) - begin);
      }
    }
    __syncthreads();
  };
  auto count_rows = [&]() {
    for (u32 k = t; k < WARPS * OWN; k += THREADS) room.counts[k] = 0;
    if (t == 0) found = 0;
    __syncthreads();
    u32 mine = 0;
#pragma unroll
    for (u32 h = 0; h < HELD; h++) {
      const u32 own = of_position(h);
      if (own < OWN) atomicAdd(&room.counts[warp * OWN + own], 1u);
      mine += own < OWN;
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
  // The thread's row has this many terms.
  auto name_row = [&](u32 terms) {
#if CLEARS
    if (terms > 0) named_rows[atomicAdd(&named, 1u)] = t;
#endif
  };
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
    const u32 own_terms = t < OWN ? starts[t + 1] - starts[t] : 0, own_parts = parts_of(own_terms);
    name_row(own_terms);
    parts = 0;
    if (block.votes(own_parts > 0) == 0) return;
    const u32 before = block.before(own_parts, parts);
    if (t < OWN) part_starts[t] = before;
    if (t == 0) part_starts[OWN] = parts;
    __syncthreads();
  };
  auto sort_rows = [&]() {
    set_part();
    u32 terms = 0, all_terms = 0;
    if (t < OWN) {
#pragma unroll
      for (u32 w = 0; w < WARPS; w++) terms += room.counts[w * OWN + t];
    }
    name_row(terms);
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
#pragma unroll
    for (u32 h = 0; h < HELD; h++) {
      const u32 own = of_position(h);
      // Votes and shuffles need all threads of a wavefront, which can be two of these warps.
      if (!any_vote(own < OWN)) continue;
      u32 same, leader, lower = equals32(own, same, leader), slot = 0;
      if (lower == 0 && own < OWN) {
        slot = room.counts[warp * OWN + own];
        room.counts[warp * OWN + own] = slot + same;
      }
      slot = SHUFFLE(slot, leader) + lower;
      if (own < OWN) order[slot] = (unsigned short)(position_of(h) - begin);
      order_warp();
    }
    __syncthreads();
  };
"#;

/// Kernel text: a group of `LANES` threads adds the terms of every `GROUPS`-th row. Rows of more than `part` terms are divided into parts of so
/// many; a warp adds the sums of the parts of a row.
pub const ADD: &str = r#"  auto write = [&](u32 own, i64 column, const C* sum) {
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
  auto add = [&]() {
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
#if CLEARS
    const u32 all_rows = named;
#else
    const u32 all_rows = own_rows;
#endif
    for (u32 item = group; item < all_rows + parts; item += GROUPS) {
      const bool is_part = item >= all_rows;
      u32 own = item, l, end;
      if (is_part) {
        // The last row whose parts do not begin behind this one.
        own = 0;
        for (u32 past = OWN; past - own > 1;) {
          const u32 middle = (own + past) / 2;
          if (part_starts[middle] <= item - all_rows) own = middle;
          else past = middle;
        }
        l = starts[own] + (item - all_rows - part_starts[own]) * part;
        end = l + part < starts[own + 1] ? l + part : starts[own + 1];
      } else {
#if CLEARS
        own = named_rows[item];
#endif
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
        for (int c = 0; c < V; c++) room.parts[(item - all_rows) * LANES + lane].at[c] = sum[c];
      } else if (column < (i64)n) {
        write(own, column, sum);
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
      if (lane32 < LANES && column < (i64)n) write(own, column, sum);
    }
  };
  read_indices(FEW_EXPECTED);
  const bool is_few = FEW_EXPECTED && found <= FEW;
  if (!is_few) {
    __syncthreads();
    count_rows();
  }
  if (is_few) sort_few();
  else sort_rows();
  add();
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
