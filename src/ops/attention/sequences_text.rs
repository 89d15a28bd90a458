//! Text of the kernels for packed sequences: which sequence a block processes.

use super::*;
use crate::ops::kernels::kernel::{Parameter, c_type, param, u32_param, u64_param};

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
// nothing. All threads of a warp call it; each reads the ends of other sequences.
template <bool KEY_ROWS> __device__ inline Sequence sequence_of(const P* ends, u64 step, const N* key_ends, u64 key_step,
                                                                u32 sequences, u32 queries, u32 keys, u32 number, u32 block) {
  const u32 lane = threadIdx.x % 32, EACH = 4;
  auto within = [](i64 end, u32 most) { return end < 0 ? 0 : end < (i64)most ? (u32)end : most; };
  auto end_of = [&](u32 n) { return within(ends[n * step], queries); };
  auto key_end_of = [&](u32 n) { return within(key_ends[n * key_step], keys); };
  // Number of the first block of sequence `n`. The sequences before it need no more blocks, since each leaves at most one block partly empty.
  auto first_block = [&](u32 n, u32 first, u32 first_key) {
    return (KEY_ROWS ? first_key : first * GROUP) / block + (block > 1 ? n : 0);
  };
  u32 found = 0, fallen = 0;
  for (u32 start = 0; start < sequences && found == start; start += 32 * EACH) {
    // Loads come before the first comparison, so that they overlap.
    i64 own_end[EACH], own_key[EACH], end_before[EACH], key_before[EACH];
#pragma unroll
    for (u32 i = 0; i < EACH; i++) {
      const u32 own = start + i * 32 + lane, n = own < sequences ? own : sequences - 1, before = n > 0 ? n - 1 : 0;
      own_end[i] = ends[n * step], own_key[i] = key_ends[n * key_step];
      end_before[i] = ends[before * step], key_before[i] = key_ends[before * key_step];
    }
    u32 passed = 0;
#pragma unroll
    for (u32 i = 0; i < EACH; i++) {
      const u32 own = start + i * 32 + lane;
      fallen |= (own_end[i] < end_before[i]) | (own_key[i] < key_before[i]);
      passed += own < sequences && first_block(own + 1, within(own_end[i], queries), within(own_key[i], keys)) <= number;
    }
    found += lanes_total(passed);
  }
  Sequence s = {};
  if (found > 0) s.first = end_of(found - 1), s.first_key = key_end_of(found - 1);
  if (lanes_total(fallen) > 0) {
    // A sequence begins at the largest end so far.
    s.first = s.first_key = 0;
    for (found = 0; found < sequences; found++) {
      const u32 end = end_of(found), key_end = key_end_of(found);
      const u32 next = end > s.first ? end : s.first, next_key = key_end > s.first_key ? key_end : s.first_key;
      if (first_block(found + 1, next, next_key) > number) break;
      s.first = next, s.first_key = next_key;
    }
  }
  s.row = (number - first_block(found, s.first, s.first_key)) * block;
  const bool behind = found == sequences;
  const u32 last = behind ? queries : end_of(found), last_key = behind ? keys : key_end_of(found);
  s.count = (behind && KEY_ROWS) || last < s.first ? 0 : last - s.first;
  s.key_count = (behind && !KEY_ROWS) || last_key < s.first_key ? 0 : last_key - s.first_key;
  return s;
}
#define SEQUENCE_OF(key_rows, number, block) \
  sequence_of<key_rows>(ends, ends_step, key_ends, key_ends_step, sequences, queries, keys, number, block)
#endif
"#;

/// Returns the number of blocks for the rows of one index of the geometry. Each packed sequence begins a new block, and
/// so do the rows after the last one. The number is an upper bound, since lengths are known only at run time.
pub fn row_blocks(shape: &Shape, rows: u64, of_a_block: u64) -> u64 {
    match shape.sequences {
        Some(sequences) => rows / of_a_block + sequences + 1,
        None => rows.div_ceil(of_a_block),
    }
}

/// Returns the kernel text with the definitions for packed sequences.
pub fn definitions(spec: &Spec) -> String {
    match input(spec, ENDS) {
        Some(ends) => {
            let [ends, key_ends] = [ends, ends + 1].map(|input| c_type(spec.inputs[input].dtype));
            format!("#define RAGGED 1\ntypedef {ends} P;\ntypedef {key_ends} N;\n")
        }
        None => "#define RAGGED 0\n".to_owned(),
    }
}

/// Returns parameters for the ends of packed sequences; none if the use has no sequences.
pub fn params(spec: &Spec) -> Vec<Parameter> {
    let Some(ends) = input(spec, ENDS) else { return Vec::new() };
    vec![
        param("const P* ends", Arg::Operand(ends as u8)),
        param("const N* key_ends", Arg::Operand(ends as u8 + 1)),
        u32_param("sequences", spec.inputs[ends].dims[0]),
        u64_param("ends_step", spec.inputs[ends].strides[0]),
        u64_param("key_ends_step", spec.inputs[ends + 1].strides[0]),
    ]
}
