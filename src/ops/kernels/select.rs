//! Kernel text that selects the largest elements: integer keys with the order of the elements, and a search for the
//! smallest selected key.

use crate::base::DType;

use super::kernel::c_type;

/// Returns kernel text that defines the key type `K`, the width `BITS` of keys, and `order`, which returns the key of
/// an element.
///
/// A larger element has a larger key. NaN has the largest key, and both zeros have the same key. No element has key 0.
pub fn keys(dtype: DType) -> String {
    let (key, bits, body) = match dtype {
        // The two smallest numbers share a key.
        DType::I64 => ("u64", 64, "u64 u = (u64)x ^ 1ull << 63; return u == 0 ? 1 : u;"),
        DType::I32 => ("u64", 33, "return (u64)((u32)x ^ 1u << 31) + 1;"),
        DType::I8 => ("u32", 9, "return (u32)((i32)x + 129);"),
        DType::U8 => ("u32", 9, "return (u32)x + 1;"),
        _ => ordered(dtype),
    };
    format!("{}{THRESHOLD}", key_text(dtype, key, bits, body))
}

/// True if the type `K` of the keys of [`keys`] has 64 bits.
pub fn is_wide(dtype: DType) -> bool {
    matches!(dtype, DType::F64 | DType::I64 | DType::I32)
}

/// Kernel text that defines `K`, `BITS` and `order` as [`keys`] does, except that different numbers have different keys,
/// of which one may be 0.
pub fn sorted_keys(dtype: DType) -> String {
    let (key, bits, body) = ordered(dtype);
    key_text(dtype, key, bits, body)
}

/// Number of bits of the keys of [`sorted_keys`].
pub fn sorted_bits(dtype: DType) -> u32 {
    ordered(dtype).1
}

/// Type and number of bits of a key, and the body of the function that returns it.
fn ordered(dtype: DType) -> (&'static str, u32, &'static str) {
    match dtype {
        DType::F64 => (
            "u64",
            64,
            "union { f64 f; u64 u; } v; v.f = x == 0.0 ? 0.0 : x; \
             return !(x == x) ? ~0ull : v.u >> 63 ? ~v.u : v.u | 1ull << 63;",
        ),
        DType::F32 => (
            "u32",
            32,
            "u32 u = float_to_bits(x == 0.0f ? 0.0f : x); return !(x == x) ? ~0u : u >> 31 ? ~u : u | 1u << 31;",
        ),
        DType::F16 => ("u32", 16, "return order16(x.bits, 0x7c00u);"),
        DType::BF16 => ("u32", 16, "return order16(x.bits, 0x7f80u);"),
        DType::E4M3 => ("u32", 16, "return order16((u32)x.bits << 8, 0x7e00u);"),
        DType::E5M2 => ("u32", 16, "return order16((u32)x.bits << 8, 0x7c00u);"),
        DType::I64 => ("u64", 64, "return (u64)x ^ 1ull << 63;"),
        DType::I32 => ("u32", 32, "return (u32)x ^ 1u << 31;"),
        DType::I8 => ("u32", 8, "return (u32)((i32)x + 128);"),
        DType::U8 => ("u32", 8, "return (u32)x;"),
    }
}

fn key_text(dtype: DType, key: &str, bits: u32, body: &str) -> String {
    let element = c_type(dtype);
    format!(
        "{ORDER16}typedef {key} K;\n#define BITS {bits}\n\
         __device__ inline K order({element} x) {{ {body} }}\n{GROUPS}"
    )
}

const ORDER16: &str = r#"
__device__ inline u32 order16(u32 u, u32 infinity) {
  // Without branches, so that the loads of several elements are in flight at the same time.
  const u32 size = u & 0x7fffu, key = u ^ (0x8000u | ((0u - (u >> 15)) & 0x7fffu));
  return size > infinity ? 0xffffu : size == 0 ? 0x8000u : key;
}
"#;

/// Kernel text for groups of threads that count together: 32 consecutive threads, which may be half a wavefront, or a
/// whole block.
pub const GROUPS: &str = r#"
__device__ inline u64 sum32(u64 v) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) v += SHUFFLE_XOR(v, mask);
  return v;
}
__device__ inline u32 sum32(u32 v) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  return __reduce_add_sync(0xffffffffu, v);
#else
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) v += SHUFFLE_XOR(v, mask);
  return v;
#endif
}

// Returns the sum over lower threads; `v` becomes the sum over all 32.
template <typename N> __device__ inline N scan32(N& v) {
  N left = 0;
#pragma unroll
  for (int mask = 1; mask < 32; mask *= 2) {
    N other = SHUFFLE_XOR(v, mask);
    if (threadIdx.x & mask) left += other;
    v += other;
  }
  return left;
}

struct Warp {
  __device__ inline u32 sum(u32 v) { return sum32(v); }
  __device__ inline u32 votes(bool v) { return sum32((u32)v); }
};

// The threads of a block, a multiple of 32.
struct Block {
  // Consecutive calls alternate between two rows, so that each needs only one barrier.
  u32 turn;
  __device__ inline u32 votes(bool v) { return (u32)__syncthreads_count(v); }
  __device__ inline u32 sum(u32 v) {
    u32 all;
    before(v, all);
    return all;
  }
  // Returns the sum over lower threads; `all` becomes the sum over all threads.
  template <typename N> __device__ inline N before(N v, N& all) {
    __shared__ N part[2][32];
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    N* row = part[turn++ & 1];
    N left = scan32(v);
    if (lane == 0) row[warp] = v;
    __syncthreads();
    N of_warp = lane < blockDim.x / 32 ? row[lane] : (N)0;
    all = sum32(of_warp);
    return left + sum32(lane < warp ? of_warp : (N)0);
  }
};
"#;

/// The searches. `key(r)` is the r-th key of the calling thread. Each thread has `N` keys, or `n` if `N` is 0.
const THRESHOLD: &str = r#"
// Returns the largest T such that at least `k` keys of the group are T or larger, or a T for which at most `more`
// additional keys are; 0 if fewer than `k` keys are above 0.
template <typename Q, int N, typename F, typename G>
__device__ inline Q threshold(F key, u32 n, int bits, u32 k, u32 more, G& group) {
  Q least = 0;
  for (int bit = bits - 1; bit >= 0; bit--) {
    Q next = least | (Q)1 << bit;
    u32 count = 0;
    if (N == 1) {
      count = group.votes(key(0) >= next);
    } else {
#pragma unroll
      for (u32 r = 0; r < (N > 0 ? (u32)N : n); r++) count += key(r) >= next;
      count = group.sum(count);
    }
    if (count < k) continue;
    least = next;
    if (count <= k + more) break;
  }
  return least;
}

// Among equal keys, selects the lowest indices: those whose `~place` is at least the result.
template <typename Q, int N, typename F, typename P, typename G>
__device__ inline u32 last_equal(F key, P place, u32 n, Q least, u32 k, G& group) {
  u32 above = 0, equal = 0;
#pragma unroll
  for (u32 r = 0; r < (N > 0 ? (u32)N : n); r++) {
    above += key(r) > least;
    equal += key(r) == least;
  }
  above = group.sum(above);
  equal = group.sum(equal);
  if (above + equal <= k) return 0;
  auto earlier = [&](u32 r) { return key(r) == least ? ~place(r) : 0u; };
  return threshold<u32, N>(earlier, n, 32, k - above, 0, group);
}
"#;
