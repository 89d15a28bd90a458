//! The last step of a strided transposed convolution of a kernel with one element: a kernel writes the elements that windows cover, which
//! a product has left in the workspace, and the zeros between them.

use super::*;
use crate::ops::kernels::kernel::{bounds, kernel, param, u32_param};

/// Bytes that a thread writes at once, if the alignment of the result permits.
const PACK_BYTES: u64 = 16;

/// Returns the kernel for a result `x` from values at the start of the workspace: one for each window of each channel.
pub fn spread(shape: &Shape, operand: usize, x: &Tensor) -> Kernel {
    let (size, count) = (x.dtype.size(), x.elements());
    let pack = (PACK_BYTES.min(u64::from(x.align)) / size).max(1);
    let each = |name: &str, sizes: &Dims| {
        let values: String = sizes.iter().enumerate().map(|(axis, size)| format!("j == {axis} ? {size}u : ")).collect();
        format!("#define {name}(j) ({values}1u)\n")
    };
    let integer = match size {
        2 => "unsigned short",
        4 => "u32",
        _ => "u64",
    };
    let before = format!(
        "{}typedef {integer} T;\n#define THREADS {THREADS}\n#define DIMS {}\n#define V {pack}\n{}{}",
        bounds(THREADS as u32),
        shape.x.len(),
        each("STRIDE", &shape.stride),
        TYPES,
    );
    let sizes = Arg::Words(shape.x.iter().chain(shape.y.iter()).copied().collect());
    let values = shape.samples * shape.inputs * shape.y.iter().product::<u64>();
    let params = [
        param("const T* values", Arg::Workspace(values * size)),
        param("T* out", Arg::Operand(operand as u8)),
        param("const Sizes sizes", sizes),
        u32_param("count", count),
    ];
    let blocks = count.div_ceil(pack * THREADS).max(1);
    kernel("conv_transposed_spread", &before, &params, SPREAD, blocks, THREADS as u32)
}

/// Kernel text: sizes of the result and of the windows.
const TYPES: &str = "struct Sizes { u64 result[DIMS], windows[DIMS]; };\n";

/// Kernel text: a thread writes neighbouring elements. A row is a line of elements along the last dimension.
const SPREAD: &str = r#"  const u32 first = (blockIdx.x * THREADS + threadIdx.x) * V;
  if (first >= count) return;
  const u32 length = (u32)sizes.result[DIMS - 1], windows = (u32)sizes.windows[DIMS - 1];
  const u32 row = first / length, column = first - row * length;
  // Finds the first value of a row; returns whether the row has any.
  auto find = [&](u32 rest, u32& from) {
    bool exists = true;
    u32 scale = windows;
    from = 0;
#pragma unroll
    for (int j = DIMS - 2; j >= 0; j--) {
      const u32 size = (u32)sizes.result[j], next = rest / size, at = rest - next * size, window = at / STRIDE(j);
      exists = exists && at % STRIDE(j) == 0 && window < (u32)sizes.windows[j];
      from += window * scale;
      scale *= (u32)sizes.windows[j];
      rest = next;
    }
    from += rest * scale;
    return exists;
  };
  // The element at a place of a row with values.
  auto element = [&](u32 from, u32 at) {
    const u32 window = at / STRIDE(DIMS - 1);
    return at % STRIDE(DIMS - 1) == 0 && window < windows ? values[from + window] : T(0);
  };
  u32 from;
  bool exists = find(row, from);
  if (column + V <= length) {
    // Most packs lie in one row, and many rows have no values.
    Pack<T, V> pack;
#pragma unroll
    for (int i = 0; i < V; i++) pack.at[i] = 0;
    if (exists) {
#pragma unroll
      for (int i = 0; i < V; i++) pack.at[i] = element(from, column + i);
    }
    *(Pack<T, V>*)(out + first) = pack;
    return;
  }
  u32 current = row, at = column;
#pragma unroll 1
  for (u32 i = first; i < first + V && i < count; i++) {
    if (at == length) {
      at = 0, current++;
      exists = find(current, from);
    }
    out[i] = exists ? element(from, at) : T(0);
    at++;
  }
"#;
