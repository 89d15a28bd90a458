//! Text of the kernels for packed sequences: which sequence a block processes.

/// Kernel text that defines `SEQUENCE_OF` if `RAGGED` is 1. It needs `GROUP`, and `P` and `N`, the types of the ends.
pub const SEQUENCES: &str = r#"
#if RAGGED
#ifndef SHUFFLE_FROM
#if defined(__HIPCC_RTC__) || defined(__HIP__)
#define SHUFFLE_FROM(value, lane) __shfl(value, lane, 32)
#else
#define SHUFFLE_FROM(value, lane) __shfl_sync(0xffffffffu, value, lane)
#endif
#endif
// Sum of the numbers of 32 lanes.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
__device__ inline u32 lanes_total(u32 value) { return __reduce_add_sync(0xffffffffu, value); }
#else
__device__ inline u32 lanes_total(u32 value) {
#pragma unroll
  for (u32 mask = 16; mask > 0; mask /= 2) value += SHUFFLE_XOR(value, mask);
  return value;
}
#endif
// First query and first key of a sequence, their numbers, and a row of the sequence: of the queries in all heads of a
// group, or of the keys.
struct Sequence { u32 first, count, first_key, key_count, row; };
// Returns the sequence that a block processes. Each sequence begins a new block. Rows behind the last end attend to
// nothing. All threads of a warp call it; each reads the ends of another sequence.
template <bool KEY_ROWS> __device__ inline Sequence sequence_of(const P* ends, u64 step, const N* key_ends, u64 key_step,
                                                                u32 sequences, u32 queries, u32 keys, u32 number, u32 block) {
  const u32 lane = threadIdx.x % 32;
  // Ends and number of blocks of the sequences before those of the warp.
  u32 first = 0, first_key = 0, before = 0, start = 0;
  auto end_of = [&](u32 n) { const i64 end = (i64)ends[n * step]; return end < 0 ? 0 : end < (i64)queries ? (u32)end : queries; };
  auto key_end_of = [&](u32 n) { const i64 end = (i64)key_ends[n * key_step]; return end < 0 ? 0 : end < (i64)keys ? (u32)end : keys; };
  // Skips 32 sequences at once if all of their blocks come before this one and no end is below the one before it: a sum takes far less
  // time than the ends and blocks of each.
  for (; start + 32 <= sequences; start += 32) {
    const u32 n = start + lane, last = end_of(n), last_key = key_end_of(n);
    const u32 begin = n > 0 ? end_of(n - 1) : 0, begin_key = n > 0 ? key_end_of(n - 1) : 0;
    const bool falls = last < begin || last_key < begin_key;
    const u32 rows = KEY_ROWS ? last_key - begin_key : (last - begin) * GROUP;
    const u32 until = before + lanes_total(falls ? 0 : (rows + block - 1) / block);
    if (lanes_total(falls) > 0 || number < until) break;
    before = until;
  }
  if (start > 0) first = end_of(start - 1), first_key = key_end_of(start - 1);
  for (;; start += 32) {
    const u32 n = start + lane;
    const bool behind = n >= sequences;
    const i64 end = behind ? (i64)queries : (i64)ends[n * step], key_end = behind ? (i64)keys : (i64)key_ends[n * key_step];
    u32 last = end < (i64)first ? first : end < (i64)queries ? (u32)end : queries;
    u32 last_key = key_end < (i64)first_key ? first_key : key_end < (i64)keys ? (u32)key_end : keys;
    // A sequence begins at the largest end so far.
#pragma unroll
    for (u32 apart = 1; apart < 32; apart *= 2) {
      const u32 other = SHUFFLE_FROM(last, (lane + 32 - apart) % 32), other_key = SHUFFLE_FROM(last_key, (lane + 32 - apart) % 32);
      if (lane >= apart && other > last) last = other;
      if (lane >= apart && other_key > last_key) last_key = other_key;
    }
    const u32 previous = SHUFFLE_FROM(last, (lane + 31) % 32), previous_key = SHUFFLE_FROM(last_key, (lane + 31) % 32);
    Sequence s;
    s.first = lane > 0 ? previous : first;
    s.first_key = lane > 0 ? previous_key : first_key;
    s.count = last - s.first;
    s.key_count = last_key - s.first_key;
    const u32 blocks = ((KEY_ROWS ? s.key_count : s.count * GROUP) + block - 1) / block;
    u32 until = blocks;
#pragma unroll
    for (u32 apart = 1; apart < 32; apart *= 2) {
      const u32 other = SHUFFLE_FROM(until, (lane + 32 - apart) % 32);
      if (lane >= apart) until += other;
    }
    until += before;
    // The first sequence that ends behind the block, or the rows behind all of them.
    u32 found = n == sequences || number < until ? lane : 32;
#pragma unroll
    for (u32 mask = 16; mask > 0; mask /= 2) {
      const u32 other = SHUFFLE_XOR(found, mask);
      if (other < found) found = other;
    }
    s.row = (number - (until - blocks)) * block;
    if (behind && KEY_ROWS) s.count = 0;
    if (behind && !KEY_ROWS) s.key_count = 0;
    if (found < 32) {
      s.first = SHUFFLE_FROM(s.first, found);
      s.count = SHUFFLE_FROM(s.count, found);
      s.first_key = SHUFFLE_FROM(s.first_key, found);
      s.key_count = SHUFFLE_FROM(s.key_count, found);
      s.row = SHUFFLE_FROM(s.row, found);
      return s;
    }
    first = SHUFFLE_FROM(last, 31);
    first_key = SHUFFLE_FROM(last_key, 31);
    before = SHUFFLE_FROM(until, 31);
  }
}
#define SEQUENCE_OF(key_rows, number, block) \
  sequence_of<key_rows>(ends, ends_step, key_ends, key_ends_step, sequences, queries, keys, number, block)
#endif
"#;
