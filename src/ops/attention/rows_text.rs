//! Source text of the forward kernel without matrix units.

/// Attention of one row by 32 threads, which share its elements. Supports every type and head dimension.
pub const ROWS: &str = r#"  u64 row = GLOBAL_INDEX / 32;
  u32 lane = threadIdx.x % 32;
  if (row >= count) return;
  i64 at[OPERANDS];
  g.offsets(row / rows, at);
  u32 own = (u32)(row % rows), query = query_of(own, queries);
  i64 own_o = place(so, own, queries), own_lse = place(sl, own, queries);
  q += at[0] + place(sq, own, queries);
  k += at[1];
  v += at[2];
#if BIAS
  bias += at[5] + place(sb, own, queries);
#endif
  SEQUENCE
#if RAGGED
  // The sequence of the row determines the keys.
  Sequence sequence = SEQUENCE_OF(false, own, 1);
  query = sequence.row;
  queries = sequence.count;
  keys = sequence.key_count;
  k += sequence.first_key * sk.query;
  v += sequence.first_key * sv.query;
#endif
  C mine[EACH_Q], sum[EACH_V], top = LOWEST, total = 0;
#pragma unroll
  for (u32 e = 0; e < EACH_Q; e++) {
    u32 column = e * 32 + lane;
    mine[e] = column < d ? load<C>(q[(i64)column * sq.element]) : C(0);
  }
#pragma unroll
  for (u32 e = 0; e < EACH_V; e++) sum[e] = 0;
  u32 to = last_key(query, queries, keys);
  for (u32 key = first_key(query, queries, keys, window); key < to; key++) {
#if PAGED
    const T* of_k = row_of_key(k, key, sk.query, k_page);
    const T* of_v = row_of_key(v, key, sv.query, v_page);
#else
    const T* of_k = k + (i64)key * sk.query;
    const T* of_v = v + (i64)key * sv.query;
#endif
    C score = 0;
#pragma unroll
    for (u32 e = 0; e < EACH_Q; e++)
      if (of_k && e * 32 + lane < d) score += mine[e] * load<C>(of_k[(i64)(e * 32 + lane) * sk.element]);
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) score += SHUFFLE_XOR(score, mask);
    score = capped(score * scale, C(CAP));
#if BIAS
    score += load<C>(bias[(i64)key * sb.element]);
#endif
    C largest = score > top || !(score == score) ? score : top;
    C shrink = top == largest ? C(1) : f_exp(top - largest), p = largest == LOWEST ? C(0) : f_exp(score - largest);
    top = largest;
    total = total * shrink + p;
#pragma unroll
    for (u32 e = 0; e < EACH_V; e++) {
      C value = of_v && e * 32 + lane < dv ? load<C>(of_v[(i64)(e * 32 + lane) * sv.element]) : C(0);
      sum[e] = sum[e] * shrink + p * value;
    }
  }
  o += at[3] + own_o;
#pragma unroll
  for (u32 e = 0; e < EACH_V; e++)
    if (e * 32 + lane < dv) store<C>(o[(i64)(e * 32 + lane) * so.element], total == 0 ? C(0) : sum[e] / total);
  if (lane == 0) lse[at[4] + own_lse] = total == 0 ? LOWEST : top + f_log(total);
"#;
