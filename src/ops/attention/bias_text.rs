//! Kernel text that copies the bias of scores to shared memory.

use super::shape::bias;
use super::*;
use crate::ops::kernels::kernel::c_type;

/// Defines `BIAS_COPIED`, and `BiasTile` where it is 1: on devices with asynchronous copies, if threads can copy `BIAS_PACK` bytes of a
/// `BiasType` at once, and if a block can have the `BIAS_SHARED` bytes that it then needs. Each warp copies the bias of its own scores, in most
/// kernels while it computes those of the tile before, since loads to registers would wait for the memory in every tile.
pub const BIAS: &str = r#"
#if __CUDA_ARCH__ == 800 || __CUDA_ARCH__ == 870
#define MAX_SHARED (163 << 10)
#elif __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1200
#define MAX_SHARED (227 << 10)
#else
#define MAX_SHARED (99 << 10)
#endif
#if MMA && BIAS_PACK > 0 && BIAS_SHARED <= MAX_SHARED
#define BIAS_COPIED 1
template <int BYTES> __device__ inline void load_bytes(void* to, const void* from, bool exists) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
    :: "r"(shared_address(to)), "l"(from), "n"(BYTES), "r"(exists ? BYTES : 0) : "memory");
}
// Rows of `COLUMNS` elements, a power of 2. Every `ROWS_OF_TURN` rows, the elements move by another multiple of `TURN`, so that elements
// that lanes read at the same time lie in different banks.
template <int COLUMNS, int ROWS_OF_TURN, int TURN> struct BiasTile {
  BiasType* at;
  __device__ inline BiasType* element(u32 row, u32 column) const {
    return at + row * COLUMNS + (column ^ row / ROWS_OF_TURN * TURN % COLUMNS);
  }
  // Copies elements from `first` on, up to `end`. `row(r)` is the address of row `r`, or null for a missing row. All lanes of a warp
  // take part.
  template <int ROWS, typename F> __device__ inline void copy(F row, u32 first, u32 end, i64 step) const {
    const int EACH = BIAS_PACK / sizeof(BiasType), PACKS_OF_ROW = COLUMNS / EACH;
#pragma unroll
    for (int pass = 0; pass < ROWS * PACKS_OF_ROW / LANES; pass++) {
      u32 number = pass * LANES + lane_of(), r = number / PACKS_OF_ROW, column = number % PACKS_OF_ROW * EACH;
      const BiasType* from = row(r);
      load_bytes<BIAS_PACK>(element(r, column), from + (EACH > 1 ? (i64)(first + column) : (i64)(first + column) * step), from && first + column < end);
    }
  }
};
#else
#define BIAS_COPIED 0
#endif
"#;

/// Returns the kernel text with the definitions for a bias of which threads copy `pack` bytes at once.
pub fn definitions(spec: &Spec, pack: u64) -> String {
    match bias(spec) {
        Some(bias) => format!("#define BIAS 1\n#define BIAS_PACK {pack}\ntypedef {} BiasType;\n", c_type(bias.dtype)),
        None => "#define BIAS 0\n#define BIAS_PACK 0\n".to_owned(),
    }
}
