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
#else
#define PUT(sum, row, column) finish(sum, row, column, c, bias, bias_step, step)
#endif
__device__ inline void finish(C sum, u64 row, u32 column, O* c, const O* bias, u64 bias_step, const Steps& step) {
  O* to = c + row * step.wide + column * step.thin;
#if ADDS
  sum += load<C>(*to);
#endif
#if BIAS
  store<C>(*to, finished(sum, load<C>(bias[(WIDE_COLUMNS ? row : column) * bias_step])));
#else
  store<C>(*to, finished(sum));
#endif
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
  const u32 begin = split * share, end = depth - begin < share ? depth : begin + share;
"#;

/// Kernel text: `GROUP` threads compute `ROWS` rows of the large matrix, which lie along the depth.
pub const ALONG_DEPTH: &str = r#"  const u32 first_row = (tile * SLICES + slice) * ROWS;
  const T* rows[ROWS];
  EACH(r, ROWS) rows[r] = large + (first_row + r < wide ? first_row + r : wide - 1) * row_large;
  C sums[ROWS][THIN];
  EACH(r, ROWS) EACH(n, THIN) sums[r][n] = 0;
  auto add = [&](const Pack<T, V> (&packs)[ROWS], u32 term) {
    C values[THIN][V];
    terms(small, row_small, term_small, term, values);
    EACH(r, ROWS) EACH(v, V) {
      const C value = load<C>(packs[r].at[v]);
      EACH(n, THIN) sums[r][n] += value * values[n][v];
    }
  };
  u32 term = begin + lane * V;
  // The loads of `COUNT` packs of each row are under way together.
#define ADD_PACKS(COUNT) \
  for (; term + (COUNT - 1) * GROUP * V < end; term += COUNT * GROUP * V) { \
    Pack<T, V> packs[COUNT][ROWS]; \
    EACH(u, COUNT) EACH(r, ROWS) packs[u][r] = *(const Pack<T, V>*)(rows[r] + term + u * GROUP * V); \
    EACH(u, COUNT) add(packs[u], term + u * GROUP * V); \
  }
  ADD_PACKS(AHEAD)
#if AHEAD > 4
  ADD_PACKS(4)
#endif
  ADD_PACKS(1)
  // Each step of the reduction halves the number of sums of a thread while it has several.
  C all[MANY];
  EACH(i, MANY) all[i] = i < ROWS * THIN ? sums[i / THIN % ROWS][i % THIN] : C(0);
  u32 index = 0;
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
    index += upper ? left : 0;
  }
  const bool writes = threadIdx.x % (LANES < MANY ? 1 : LANES / MANY) == 0;
#if GROUP > WARP
  __shared__ C shared[THREADS / WARP][MANY];
  if (writes) shared[threadIdx.x / WARP][index] = all[0];
  __syncthreads();
  for (u32 i = threadIdx.x; i < SLICES * ROWS * THIN; i += THREADS) {
    const u32 group = i / (ROWS * THIN), which = i % (ROWS * THIN), row = (tile * SLICES + group) * ROWS + which / THIN;
    C sum = 0;
    EACH(w, GROUP / WARP) sum += shared[group * (GROUP / WARP) + w][which];
    if (row < wide) PUT(sum, row, which % THIN);
  }
#else
  // Threads keep several sums if their group has fewer threads than sums.
  EACH(i, (LANES < MANY ? MANY / LANES : 1)) {
    const u32 which = index + i, row = first_row + which / THIN;
    if (writes && which < ROWS * THIN && row < wide) PUT(all[i], row, which % THIN);
  }
#endif
"#;

/// Kernel text: a thread computes `V` neighbouring columns of the large matrix over every `SLICES`-th term.
pub const ACROSS_DEPTH: &str = r#"  const u32 column = (tile * GROUP + lane) * V;
  large += column < wide ? column : 0;
  C sums[THIN][V];
  EACH(n, THIN) EACH(v, V) sums[n][v] = 0;
  // The small matrix is read from shared memory, a part of the depth after the other.
  __shared__ Pack<C, FACTORS> factors[STAGED];
  for (u32 start = begin; start < end; start += STAGED) {
    const u32 terms = end - start < STAGED ? end - start : STAGED;
    if (start > begin) __syncthreads();
    for (u32 i = threadIdx.x; i < terms * THIN; i += THREADS) {
      const u32 term = ALONG ? i % terms : i / THIN, n = ALONG ? i / terms : i % THIN;
      factors[term].at[n] = load<C>(small[n * row_small + (start + term) * term_small]);
    }
    __syncthreads();
    const T* rows = large + start * row_large;
    auto add = [&](const Pack<T, V>& pack, u32 term) {
      EACH(n, THIN) {
        const C factor = factors[term].at[n];
        EACH(v, V) sums[n][v] += load<C>(pack.at[v]) * factor;
      }
    };
    // Loads the next packs while it adds the current ones. Rows that do not exist are replaced by the last one.
    Pack<T, V> next[AHEAD];
    auto fetch = [&](u32 term) {
      EACH(u, AHEAD) next[u] = *(const Pack<T, V>*)(rows + (term + u * SLICES < terms ? term + u * SLICES : terms - 1) * row_large);
    };
    fetch(slice);
    for (u32 term = slice; term < terms; term += AHEAD * SLICES) {
      Pack<T, V> packs[AHEAD];
      EACH(u, AHEAD) packs[u] = next[u];
      fetch(term + AHEAD * SLICES);
      EACH(u, AHEAD) if (term + u * SLICES < terms) add(packs[u], term + u * SLICES);
    }
  }
  __shared__ C shared[SLICES][GROUP * V + 1];
  EACH(n, THIN) {
    if (n > 0) __syncthreads();
    EACH(v, V) shared[slice][lane * V + v] = sums[n][v];
    __syncthreads();
    for (u32 i = threadIdx.x; i < GROUP * V; i += THREADS) {
      C sum = 0;
      EACH(s, SLICES) sum += shared[s][i];
      const u32 row = tile * GROUP * V + i;
      if (row < wide) PUT(sum, row, n);
    }
  }
"#;

/// Kernel text: adds the parts of blocks that share the depth.
pub const JOIN: &str = r#"  const u64 index = GLOBAL_INDEX, size = (u64)wide * THIN;
  if (index >= count) return;
  const u64 batch = index / size, which = index % size;
  const C* from = parts + batch * splits * size + which;
  C sum = 0;
#pragma unroll 8
  for (u32 split = 0; split < splits; split++) sum += from[split * size];
  i64 at[3];
  batches.offsets(batch, at);
  finish(sum, which / THIN, (u32)(which % THIN), c + at[2], bias, bias_step, step);
"#;
