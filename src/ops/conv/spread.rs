//! The last step of a strided transposed convolution of a kernel with one element: a kernel writes the elements that windows cover, which
//! a product has left in the workspace, and the zeros between them.

use super::super::kernel::{bounds, kernel, param, u32_param};
use super::*;

/// Bytes that a thread writes at once, if the alignment of the result permits.
const PACK_BYTES: u64 = 16;

/// Returns the kernel for a result `x` from values at the begin of the workspace: one for each window of each channel.
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
  u32 row = first / length, column = first - row * length, from = 0;
  bool exists = false;
  // Finds the values of a row: first one, and whether there are any.
  auto find = [&]() {
    u32 rest = row, scale = windows;
    from = 0, exists = true;
#pragma unroll
    for (int j = DIMS - 2; j >= 0; j--) {
      const u32 size = (u32)sizes.result[j], next = rest / size, at = rest - next * size, window = at / STRIDE(j);
      exists = exists && at % STRIDE(j) == 0 && window < (u32)sizes.windows[j];
      from += window * scale;
      scale *= (u32)sizes.windows[j];
      rest = next;
    }
    from += rest * scale;
  };
  find();
  Pack<T, V> pack;
#pragma unroll
  for (int i = 0; i < V; i++) {
    if (column == length) {
      column = 0, row++;
      find();
    }
    const u32 window = column / STRIDE(DIMS - 1);
    const bool has_value = exists && column % STRIDE(DIMS - 1) == 0 && window < windows && first + i < count;
    pack.at[i] = has_value ? values[from + window] : T(0);
    column++;
  }
  if (first + V <= count) {
    *(Pack<T, V>*)(out + first) = pack;
  } else {
#pragma unroll
    for (int i = 0; i < V; i++) if (first + i < count) out[first + i] = pack.at[i];
  }
"#;
