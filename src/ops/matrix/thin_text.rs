//! Texts of the kernels for thin products. [`super::thin`] defines the macros that they use.

/// Kernel text: the thin matrix, reductions, and results.
///
/// `V` is the number of elements that a thread loads at once. Rows of `small` lie along the depth (`ALONG`), or its `THIN` columns are
/// contiguous (`DENSE`), or neither.
pub const COMMON: &str = r#"
#define EACH(i, n) _Pragma("unroll") for (int i = 0; i < n; i++)
// Strides of the result along the large matrix and along the thin one.
struct Steps { u64 wide, thin; };
// The elements of `small` for `V` terms from `term` on.
__device__ inline void terms(const T* small, u64 row_small, u64 term_small, u32 term, C (&values)[THIN][V]) {
#if ALONG
  EACH(n, THIN) {
    const Pack<T, V> pack = *(const Pack<T, V>*)(small + n * row_small + term);
    EACH(v, V) values[n][v] = load<C>(pack.at[v]);
  }
#elif DENSE
  EACH(i, THIN) {
    const Pack<T, V> pack = *(const Pack<T, V>*)(small + (u64)term * THIN + i * V);
    EACH(v, V) values[(i * V + v) % THIN][(i * V + v) / THIN] = load<C>(pack.at[v]);
  }
#else
  EACH(n, THIN) EACH(v, V) values[n][v] = load<C>(small[n * row_small + (term + v) * term_small]);
#endif
}
// Writes a result, or a part of it if blocks share the depth.
#if PARTS
#define PUT(sum, row, column) parts[((u64)part * wide + (row)) * THIN + (column)] = sum
#define BEFORE(row, column) C(0)
#else
#define BEFORE(row, column) previous(row, column, c, step)
#define PUT(sum, row, column) finish(sum, row, column, c, bias, bias_step, step)
#endif
// Returns the contents of the result that the sum is added to.
__device__ inline C previous(u64 row, u32 column, const O* c, const Steps& step) {
#if ADDS
  return load<C>(c[row * step.wide + column * step.thin]);
#else
  return C(0);
#endif
}
__device__ inline void finish(C sum, u64 row, u32 column, O* c, const O* bias, u64 bias_step, const Steps& step) {
  O* to = c + row * step.wide + column * step.thin;
#if BIAS
  store<C>(*to, finished(sum, load<C>(bias[(WIDE_COLUMNS ? row : column) * bias_step])));
#else
  store<C>(*to, finished(sum));
#endif
}
"#;

/// Kernel text: the ends of groups. A group is empty if it ends before an earlier one.
pub const GROUPS: &str = r#"
// Returns the group that has this row or term, which is the first one that ends behind it; `groups` if none does. The search begins at `from`.
__device__ inline u32 group_from(u32 from, i64 place, const I* ends, u64 ends_step, u32 groups) {
  while (from < groups && (i64)ends[from * ends_step] <= place) from++;
  return from;
}
// As `group_from`, by all threads of a block for the same row or term.
__device__ inline u32 first_group(i64 place, const I* ends, u64 ends_step, u32 groups) {
  __shared__ u32 left;
  if (threadIdx.x == 0) left = 0;
  __syncthreads();
  for (u32 group = threadIdx.x; group < groups; group += THREADS) {
    if ((i64)ends[group * ends_step] > place) {
      atomicMax(&left, groups - group);
      break;
    }
  }
  __syncthreads();
  return groups - left;
}
// Range of the terms of a group.
struct Range { u32 begin, end; };
__device__ inline Range terms_of(u32 group, const I* ends, u64 ends_step, u32 depth) {
  i64 begin = 0;
#pragma unroll 8
  for (u32 earlier = 0; earlier < group; earlier++) {
    const i64 end = ends[earlier * ends_step];
    begin = end > begin ? end : begin;
  }
  const i64 end = ends[group * ends_step];
  const u32 first = begin < depth ? (u32)begin : depth;
  return {first, end <= first ? first : end < depth ? (u32)end : depth};
}
"#;

/// Kernel text before either body: the tile and the part of the depth of a block, and its product.
pub const PLACE: &str = r#"  const u32 lane = threadIdx.x % GROUP, slice = threadIdx.x / GROUP;
  u64 rest = blockIdx.x;
  const u32 tile = (u32)(rest % tiles);
  rest /= tiles;
  const u32 split = (u32)(rest % splits);
  rest /= splits;
  i64 at[3];
  batches.offsets(rest, at);
  const T* large = WIDE_COLUMNS ? b + at[1] : a + at[0];
  const T* small = WIDE_COLUMNS ? a + at[0] : b + at[1];
  c += at[2];
  const u64 part = rest * splits + split;
  u32 begin = split * share, end = depth - begin < share ? depth : begin + share;
"#;

/// Kernel text: `GROUP` threads compute `ROWS` rows of the large matrix, which lie along the depth.
///
/// The rows of a thread lie `SLICES` rows apart, so that groups of threads load neighbouring rows at the same time.
pub const ALONG_DEPTH: &str = r#"  const u32 first_row = tile * SLICES * ROWS + slice;
#define ROW(r) (first_row + (r) * SLICES)
  const T* rows[ROWS];
  EACH(r, ROWS) rows[r] = large + (ROW(r) < wide ? ROW(r) : wide - 1) * row_large;
  // First of the sums that the thread has after the reduction, and whether it writes them.
  u32 index = 0;
#pragma unroll
  for (int mask = LANES / 2, left = MANY / 2; mask > 0; mask /= 2, left /= 2) index += threadIdx.x & mask ? left : 0;
  const bool writes = threadIdx.x % (LANES < MANY ? 1 : LANES / MANY) == 0;
#if GROUP <= WARP
  // Threads keep several sums if their group has fewer threads than sums.
  const int KEPT = LANES < MANY ? MANY / LANES : 1;
  C held[KEPT];
  EACH(i, KEPT) {
    const u32 which = index + i, row = ROW(which / THIN);
    held[i] = writes && which < ROWS * THIN && row < wide ? BEFORE(row, which % THIN) : C(0);
  }
#endif
  C sums[ROWS][THIN];
  EACH(r, ROWS) EACH(n, THIN) sums[r][n] = 0;
#if GROUPS_OF_ROWS
  // A thread multiplies its rows by the matrix of each group that has some of them, and keeps the sums of these. Others stay zero.
  u32 group = group_from(first_group(tile * SLICES * ROWS, ends, ends_step, groups), first_row, ends, ends_step, groups), next = 0;
  while (next < ROWS && group < groups) {
    const T* matrix = small + group * group_step;
    const i64 group_end = ends[group * ends_step];
#else
  {
    const T* matrix = small;
#endif
  C own[ROWS][THIN];
  EACH(r, ROWS) EACH(n, THIN) own[r][n] = 0;
  auto add = [&](const Pack<T, V> (&packs)[ROWS], u32 term) {
    C values[THIN][V];
    terms(matrix, row_small, term_small, term, values);
    EACH(r, ROWS) EACH(v, V) {
      const C value = load<C>(packs[r].at[v]);
      EACH(n, THIN) own[r][n] += value * values[n][v];
    }
  };
  // The loads of `AHEAD` packs of each row are under way together. Those beyond the end are replaced by the last one.
  auto add_packs = [&](u32 from, bool is_whole) {
    Pack<T, V> packs[AHEAD][ROWS];
    EACH(u, AHEAD) {
      const u32 term = from + (u * GROUP + lane) * V, existing = is_whole || term < end ? term : end - V;
      EACH(r, ROWS) packs[u][r] = *(const Pack<T, V>*)(rows[r] + existing);
    }
    EACH(u, AHEAD) {
      const u32 term = from + (u * GROUP + lane) * V;
      if (is_whole || term < end) add(packs[u], term);
    }
  };
  u32 from = begin;
  for (; end - from >= AHEAD * GROUP * V; from += AHEAD * GROUP * V) add_packs(from, true);
  if (from < end) add_packs(from, false);
#if GROUPS_OF_ROWS
    EACH(r, ROWS) if (r >= next && ROW(r) < group_end) EACH(n, THIN) sums[r][n] = own[r][n];
    while (next < ROWS && ROW(next) < group_end) next++;
    group = group_from(group + 1, ROW(next), ends, ends_step, groups);
#else
    EACH(r, ROWS) EACH(n, THIN) sums[r][n] = own[r][n];
#endif
  }
  // Each step of the reduction halves the number of sums of a thread while it has several.
  C all[MANY];
  EACH(i, MANY) all[i] = i < ROWS * THIN ? sums[i / THIN % ROWS][i % THIN] : C(0);
#pragma unroll
  for (int mask = LANES / 2, left = MANY / 2; mask > 0; mask /= 2, left /= 2) {
    const bool upper = threadIdx.x & mask;
    EACH(i, MANY / 2) {
      if (i < left) {
        const C sent = upper ? all[i] : all[i + left], kept = upper ? all[i + left] : all[i];
        all[i] = kept + SHUFFLE_XOR(sent, mask);
      }
    }
    if (left == 0) all[0] += SHUFFLE_XOR(all[0], mask);
  }
#if GROUP > WARP
  __shared__ C shared[THREADS / WARP][MANY];
  if (writes) shared[threadIdx.x / WARP][index] = all[0];
  __syncthreads();
  for (u32 i = threadIdx.x; i < SLICES * ROWS * THIN; i += THREADS) {
    const u32 group = i / (ROWS * THIN), which = i % (ROWS * THIN), row = tile * SLICES * ROWS + which / THIN * SLICES + group;
    C sum = 0;
    EACH(w, GROUP / WARP) sum += shared[group * (GROUP / WARP) + w][which];
    if (row < wide) PUT(sum + BEFORE(row, which % THIN), row, which % THIN);
  }
#else
  EACH(i, KEPT) {
    const u32 which = index + i, row = ROW(which / THIN);
    if (writes && which < ROWS * THIN && row < wide) PUT(all[i] + held[i], row, which % THIN);
  }
#endif
"#;

/// Kernel text: a thread computes `V` neighbouring columns of the large matrix over every `SLICES`-th term.
pub const ACROSS_DEPTH: &str = r#"  const u32 column = (tile * GROUP + lane) * V;
  large += column < wide ? column : 0;
  // The small matrix is read from shared memory, a part of the depth after the other.
  __shared__ Pack<C, FACTORS> factors[STAGED];
  __shared__ C shared[SLICES][GROUP * V + 1];
#if GROUPS_OF_DEPTH && PARTS
  const u32 last = end;
  for (u32 group = first_group(begin, ends, ends_step, groups); group < groups && begin < last; begin = end, group++) {
    const i64 own_end = ends[group * ends_step];
    end = own_end <= begin ? begin : own_end < last ? (u32)own_end : last;
    if (begin == end) continue;
    // Blocks and groups are in the same order, so that no two have the same sum of their numbers.
    const u32 part = split + group;
#else
  {
#if GROUPS_OF_DEPTH
    const Range own = terms_of((u32)rest, ends, ends_step, depth);
    begin = own.begin, end = own.end;
#endif
#endif
  C sums[THIN][V];
  EACH(n, THIN) EACH(v, V) sums[n][v] = 0;
  for (u32 start = begin; start < end; start += STAGED) {
    const u32 terms = end - start < STAGED ? end - start : STAGED;
    const T* rows = large + start * row_large;
    // Loads the next packs while it adds the current ones. Rows that do not exist are replaced by the last one.
    Pack<T, V> next[AHEAD];
    auto fetch = [&](u32 term) {
      EACH(u, AHEAD) next[u] = *(const Pack<T, V>*)(rows + (term + u * SLICES < terms ? term + u * SLICES : terms - 1) * row_large);
    };
    fetch(slice);
    if (start > begin) __syncthreads();
    for (u32 i = threadIdx.x; i < terms * THIN; i += THREADS) {
      const u32 term = ALONG ? i % terms : i / THIN, n = ALONG ? i / terms : i % THIN;
      factors[term].at[n] = load<C>(small[n * row_small + (start + term) * term_small]);
    }
    __syncthreads();
    auto add = [&](const Pack<T, V>& pack, u32 term) {
      EACH(n, THIN) {
        const C factor = factors[term].at[n];
        EACH(v, V) sums[n][v] += load<C>(pack.at[v]) * factor;
      }
    };
    for (u32 term = slice; term < terms; term += AHEAD * SLICES) {
      Pack<T, V> packs[AHEAD];
      EACH(u, AHEAD) packs[u] = next[u];
      fetch(term + AHEAD * SLICES);
      EACH(u, AHEAD) if (term + u * SLICES < terms) add(packs[u], term + u * SLICES);
    }
  }
  EACH(n, THIN) {
    if (n > 0) __syncthreads();
    EACH(v, V) shared[slice][lane * V + v] = sums[n][v];
    __syncthreads();
    for (u32 i = threadIdx.x; i < GROUP * V; i += THREADS) {
      C sum = 0;
      EACH(s, SLICES) sum += shared[s][i];
      const u32 row = tile * GROUP * V + i;
      if (row < wide) PUT(sum + BEFORE(row, n), row, n);
    }
  }
  }
"#;

/// Kernel text: adds the parts of blocks that share the depth. Threads of a block add different parts of the same results.
pub const JOIN: &str = r#"  const u32 lane = threadIdx.x % WARP, slice = threadIdx.x / WARP;
  const u64 own = (u64)blockIdx.x * WARP + lane, size = (u64)wide * THIN, index = own < count ? own : 0;
  const u64 matrix = index / size, which = index % size;
#if GROUPS_OF_DEPTH
  const Range terms = terms_of((u32)matrix, ends, ends_step, depth);
  const u32 first = terms.begin / share, added = terms.begin < terms.end ? (terms.end - 1) / share + 1 - first : 0;
  const C* from = parts + (first + matrix) * size + which;
#else
  const u32 added = splits;
  const C* from = parts + matrix * splits * size + which;
#endif
  i64 at[3];
  batches.offsets(matrix, at);
  c += at[2];
  C sum = 0;
#pragma unroll 8
  for (u32 part = slice; part < added; part += THREADS / WARP) sum += from[part * size];
  __shared__ C shared[THREADS / WARP][WARP];
  shared[slice][lane] = sum;
  __syncthreads();
  if (slice > 0 || own >= count) return;
  sum = 0;
  EACH(s, THREADS / WARP) sum += shared[s][lane];
  const u64 row = which / THIN;
  const u32 column = (u32)(which % THIN);
  finish(sum + previous(row, column, c, step), row, column, c, bias, bias_step, step);
"#;
