//! Source text of the kernels between the products of [`super::composed`]. A block has one row of scores.

/// Maximum number of scores that a thread holds in registers. Each takes one register of 255, or two in `f64`.
pub const MAX_HELD: u64 = 32;

/// Functions of blocks, and the place of a row of scores among queries and heads.
pub const FUNCTIONS: &str = r#"
__device__ inline u32 query_of_row(u32 row, u32 queries) { return BY_QUERY ? row / GROUP : query_of(row, queries); }
__device__ inline i64 place_of_row(const Steps& steps, u32 row, u32 queries) {
  return BY_QUERY ? (i64)(row / GROUP) * steps.query + (i64)(row % GROUP) * steps.head : place(steps, row, queries);
}
#if PARTS > 1
// Returns the most significant 8 bits of a number, and leaves the others in it.
__device__ inline bf16 next_part(f32& x) {
  const u32 bits = float_to_bits(x), high = x == x ? bits & 0xffff0000u : 0x7fc00000u;
  x = (bits & 0x7f800000u) == 0x7f800000u ? 0.0f : x - bits_to_float(high);
  bf16 part;
  part.bits = (unsigned short)(high >> 16);
  return part;
}
#endif
// Stores a weight or a gradient of a score, or each of its parts in a row of its own.
__device__ inline void store_factor(T* row, u64 columns, u32 key, C x) {
#if PARTS > 1
#pragma unroll
  for (u32 part = 0; part < PARTS; part++) row[part * columns + key] = next_part(x);
#else
  store<C>(row[key], x);
#endif
}
struct Highest { template <typename V> __device__ V operator()(V a, V b) const { return b > a || !(b == b) ? b : a; } };
template <typename V, typename F> __device__ inline V across_block(V value, F join) {
  __shared__ V shared[THREADS / 32];
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) value = join(value, SHUFFLE_XOR(value, mask));
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  value = shared[0];
#pragma unroll
  for (u32 warp = 1; warp < THREADS / 32; warp++) value = join(value, shared[warp]);
  return value;
}
"#;

/// Start of each kernel: the row's places in the operands, its range of keys, and its scores with scale and bias.
pub const ROW: &str = r#"  u64 number = blockIdx.x;
  u32 own = (u32)(number % rows), query = query_of_row(own, queries);
  i64 at[OPERANDS];
  g.offsets(first + number / rows, at);
  lse += at[at_lse] + member * s_lse.head + place_of_row(s_lse, own, queries);
#if BIAS
  bias += at[at_bias] + member * s_bias.head + place_of_row(s_bias, own, queries);
#endif
  u32 from = first_key(query, queries, keys, window), to = last_key(query, queries, keys);
  const C* scores = (const C*)workspace + number * columns;
  T* weights = (T*)(workspace + weights_at) + number * columns * PARTS;
  auto without_bias = [&](u32 key) { return capped(scores[key] * scale, C(CAP)); };
  auto score = [&](u32 key) {
    C value = without_bias(key);
#if BIAS
    value += load<C>(bias[(i64)key * s_bias.element]);
#endif
    return value;
  };
"#;

/// Weights from scores, and their logsumexp. The columns behind the last key get zeros. A thread holds its scores in registers unless
/// there are too many.
pub const WEIGHTS: &str = r#"  C top = LOWEST, total = 0;
#if HELD
  C held[HELD];
#pragma unroll
  for (u32 i = 0; i < HELD; i++) {
    u32 key = threadIdx.x + i * THREADS;
    held[i] = key >= from && key < to ? score(key) : C(LOWEST);
  }
#pragma unroll
  for (u32 i = 0; i < HELD; i++) top = Highest()(top, held[i]);
#else
  for (u32 key = from + threadIdx.x; key < to; key += THREADS) top = Highest()(top, score(key));
#endif
  top = across_block(top, Highest());
  C base = top == LOWEST ? C(0) : top;
#if HELD
#pragma unroll
  for (u32 i = 0; i < HELD; i++) total += held[i] = f_exp(held[i] - base);
#else
  for (u32 key = from + threadIdx.x; key < to; key += THREADS) total += f_exp(score(key) - base);
#endif
  total = across_block(total, Total());
  C share = total == 0 ? C(0) : C(1) / total;
#if HELD
#pragma unroll
  for (u32 i = 0; i < HELD; i++) {
    u32 key = threadIdx.x + i * THREADS;
    if (key < columns) store_factor(weights, columns, key, key >= from && key < to ? held[i] * share : C(0));
  }
#else
  for (u32 key = threadIdx.x; key < columns; key += THREADS)
    store_factor(weights, columns, key, key >= from && key < to ? f_exp(score(key) - base) * share : C(0));
#endif
  if (threadIdx.x == 0) *lse = total == 0 ? LOWEST : top + f_log(total);
"#;

/// Weights from scores and their logsumexp, and gradients of the scores from those of the weights. Both may replace what they are
/// computed from.
pub const SLOPES: &str = r#"  o += at[at_o] + member * s_o.head + place_of_row(s_o, own, queries);
  dy += at[at_dy] + member * s_dy.head + place_of_row(s_dy, own, queries);
  C log = *lse, delta = 0;
  for (u32 column = threadIdx.x; column < dv; column += THREADS)
    delta += load<C>(o[(i64)column * s_o.element]) * load<C>(dy[(i64)column * s_dy.element]);
  delta = across_block(delta, Total());
#if DLSE
  delta -= dlse[at[at_dlse] + member * s_dlse.head + place_of_row(s_dlse, own, queries)];
#endif
#if SLOPES
  slopes += at[at_slopes] + member * s_slopes.head + place_of_row(s_slopes, own, queries);
#endif
  const C* of_weights = (const C*)(workspace + slopes_at) + number * columns;
  T* gradients = (T*)(workspace + gradients_at) + number * columns * PARTS;
  for (u32 key = threadIdx.x; key < columns; key += THREADS) {
    C weight = key >= from && key < to && log != LOWEST ? f_exp(score(key) - log) : C(0);
    C slope = weight == 0 ? C(0) : weight * (of_weights[key] - delta);
#if SLOPES
    if (key < keys) store<C>(slopes[(i64)key * s_slopes.element], slope);
#endif
    // The scores of masked keys are not computed.
    C of_product = slope == 0 ? C(0) : slope * capped_slope(without_bias(key), C(CAP)) * scale;
    store_factor(weights, columns, key, weight);
    store_factor(gradients, columns, key, of_product);
  }
"#;

/// Rounds the sums of the gradients of a key and of its value.
pub const ROUNDING: &str = r#"  u64 number = blockIdx.x, key = number % keys;
  i64 at[OPERANDS];
  g.offsets(first + number / keys, at);
  key_gradients += at[at_key_gradients] + (i64)key * s_key_gradients.query;
  value_gradients += at[at_value_gradients] + (i64)key * s_value_gradients.query;
  u64 row = number / keys * key_rows + key;
  const C* key_sums = (const C*)(workspace + key_sums_at) + row * d;
  const C* value_sums = (const C*)(workspace + value_sums_at) + row * dv;
  for (u32 column = threadIdx.x; column < d; column += THREADS) store<C>(key_gradients[(i64)column * s_key_gradients.element], key_sums[column]);
  for (u32 column = threadIdx.x; column < dv; column += THREADS) 
    store<C>(value_gradients[(i64)column * s_value_gradients.element], value_sums[column]);
"#;

/// Copies a key and its value; zeros for positions after the last key.
pub const PADDING: &str = r#"  u64 number = blockIdx.x, key = number % columns;
  i64 at[OPERANDS];
  g.offsets(first + number / columns, at);
  typedef Pack<T, PACK> Packed;
  const Packed* of_key = (const Packed*)(k + at[at_k] + (i64)key * s_k.query);
  const Packed* of_value = (const Packed*)(v + at[at_v] + (i64)key * s_v.query);
  Packed* key_copy = (Packed*)((T*)(workspace + keys_at) + number * d);
  Packed* value_copy = (Packed*)((T*)(workspace + values_at) + number * dv);
  Packed zeros;
#pragma unroll
  for (u32 i = 0; i < PACK; i++) store<C>(zeros.at[i], C(0));
  for (u32 column = threadIdx.x; column < d / PACK; column += THREADS) key_copy[column] = key < keys ? of_key[column] : zeros;
  for (u32 column = threadIdx.x; column < dv / PACK; column += THREADS) value_copy[column] = key < keys ? of_value[column] : zeros;
"#;

/// Copies a row whose elements are contiguous.
pub const COPY: &str = r#"
template <typename V, u32 PACK> __device__ inline void copy_row(const V* from, V* to, u32 size) {
  typedef Pack<V, PACK> Packed;
  for (u32 column = threadIdx.x; column < size / PACK; column += THREADS) ((Packed*)to)[column] = ((const Packed*)from)[column];
}
"#;

/// Copies a row of `f32` numbers as their parts in the given order, each part a row of `width` columns; and adds the results of products of
/// parts.
pub const PARTS_OF_ROWS: &str = r#"
template <u32 PACK, u32... ORDER> __device__ inline void divide_row(const f32* from, bf16* to, u32 size, u32 width) {
  typedef Pack<f32, PACK> Numbers;
  typedef Pack<bf16, PACK> Packed;
  const u32 order[] = {ORDER...};
  for (u32 column = threadIdx.x * PACK; column < width; column += THREADS * PACK) {
    Numbers numbers;
#pragma unroll
    for (u32 i = 0; i < PACK; i++) numbers.at[i] = 0;
    if (column < size) numbers = *(const Numbers*)(from + column);
    Packed parts[PARTS];
#pragma unroll
    for (u32 part = 0; part < PARTS; part++)
#pragma unroll
      for (u32 i = 0; i < PACK; i++) parts[part].at[i] = next_part(numbers.at[i]);
#pragma unroll
    for (u32 place = 0; place < sizeof...(ORDER); place++) *(Packed*)(to + place * width + column) = parts[order[place]];
  }
}
template <u32 PACK> __device__ inline void add_parts(const f32* from, f32* to, u32 size, u32 width) {
  typedef Pack<f32, PACK> Packed;
  for (u32 column = threadIdx.x * PACK; column < size; column += THREADS * PACK) {
    Packed sum = *(const Packed*)(from + (PARTS - 1) * width + column);
#pragma unroll
    for (u32 part = PARTS - 1; part-- > 0;) {
      Packed own = *(const Packed*)(from + part * width + column);
#pragma unroll
      for (u32 i = 0; i < PACK; i++) sum.at[i] += own.at[i];
    }
    *(Packed*)(to + column) = sum;
  }
}
"#;

/// Start of the kernels that gather rows: the number of the matrix and of the row, and the places of the matrix in the operands.
pub const GATHERED_ROW: &str = r#"  u64 number = blockIdx.x / of_a_unit;
  u32 own = (u32)(blockIdx.x % of_a_unit);
  i64 at[OPERANDS];
  g.offsets(first + number, at);
"#;
