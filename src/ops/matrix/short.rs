//! Products of few terms whose epilogue a library does not compute: one generated kernel for the product and the
//! epilogue.
//!
//! Writing the result takes most of the time of such a product. A library's product with a kernel after it writes the
//! result twice and reads it once.

use super::super::kernel::{c_type, geometry_param, kernel, param, u32_param, u64_param};
use super::super::layout::in_packs;
use super::super::occupancy::share;
use super::epilogue::Finish;
use super::{arithmetic, batches, library_epilogue, scales, sizes};
use crate::ops::{Arg, Arithmetic, Cost, Launch, Spec};

/// Maximum number of terms: in the time in which an H100 writes a 16-bit element three times, it computes 16 terms
/// without matrix units.
const MAX_DEPTH: u64 = 16;

/// Minimum number of columns, so that most threads of a block have some.
const MIN_COLUMNS: u64 = 256;

/// Number of threads of a block.
const THREADS: u32 = 128;
/// Number of columns that a thread computes.
const EACH: u64 = 4;
/// Number of rows that a block computes.
const ROWS: u64 = 32;

/// Instructions per result apart from its terms and its epilogue: for rounding and storing.
const PER_RESULT: f64 = 6.0;
/// Instructions per row and thread, for loading its terms and for addresses.
const PER_ROW: f64 = 30.0;

/// Maximum number of blocks of the kernel.
const MAX_BLOCKS: u64 = u32::MAX as u64 >> 1;

/// Whether one generated kernel computes the product and its epilogue.
pub fn applies(spec: &Spec) -> bool {
    let (_, n, k, _) = sizes(spec);
    let floats = matches!(arithmetic(spec), Arithmetic::F16 | Arithmetic::BF16 | Arithmetic::F32);
    let separate = Finish::of(spec).has_epilogue() && library_epilogue(spec).is_none();
    separate
        && floats
        && scales(spec).is_none()
        && (1..=MAX_DEPTH).contains(&k)
        && n >= MIN_COLUMNS
        && blocks(spec) <= MAX_BLOCKS
}

/// Number of blocks: one for each tile of each product.
fn blocks(spec: &Spec) -> u64 {
    let (m, n, _, batch) = sizes(spec);
    m.div_ceil(ROWS) * n.div_ceil(EACH * u64::from(THREADS)) * batch
}

/// Returns the cost of the generated kernel.
pub fn cost(spec: &Spec) -> Cost {
    let (_, _, k, _) = sizes(spec);
    let (finish, results) = (Finish::of(spec), spec.outputs[0].elements() as f64);
    let expression = finish.expression();
    Cost {
        flops: results * (2 * k + u64::from(expression.flops())) as f64,
        instructions: results * (PER_RESULT + PER_ROW / EACH as f64 + k as f64 + f64::from(expression.instructions())),
        special: results * f64::from(expression.special()),
        read: Spec::bytes_of(&spec.inputs),
        written: Spec::bytes_of(&spec.outputs),
        blocks: blocks(spec),
        share: share(u64::from(THREADS)),
        ..Cost::default()
    }
}

/// Returns the launch that computes the product and its epilogue.
pub fn launch(spec: &Spec) -> Launch {
    let (m, n, k, _) = sizes(spec);
    let (finish, c, walk) = (Finish::of(spec), &spec.outputs[0], batches(spec));
    let output = spec.inputs.len() as u8;
    let row = |operand: usize| spec.inputs[operand].strides[spec.inputs[operand].dims.len() - 2];
    let mut params = vec![
        param("const T* a", Arg::Operand(0)),
        param("const T* b", Arg::Operand(1)),
        param("O* c", Arg::Operand(output)),
        geometry_param("batches", &walk),
        u32_param("rows", m),
        u32_param("columns", n),
        u64_param("row_a", row(0)),
        u64_param("row_b", row(1)),
        u64_param("row_c", c.strides[c.dims.len() - 2]),
    ];
    params.extend(finish.bias.map(|input| param("const O* bias", Arg::Operand(input as u8))));
    let pack = [EACH, 2, 1].into_iter().find(|&pack| in_packs(c, pack)).unwrap_or(1);
    let turned = ["transpose_a", "transpose_b"].map(|name| u32::from(spec.attrs.bool(name)));
    let before = format!(
        "typedef {} T;\ntypedef {} O;\ntypedef f32 C;\n{}#undef BOUNDS\n#define BOUNDS __launch_bounds__({THREADS})\n\
         #define THREADS {THREADS}\n#define DEPTH {k}\n#define ROWS {ROWS}\n#define PACK {pack}\n#define EACH {}\n\
         #define TURNED_A {}\n#define TURNED_B {}\n#define BIAS {}\n#define ADDS {}\n",
        c_type(spec.inputs[0].dtype),
        c_type(c.dtype),
        finish.function_text(),
        EACH / pack,
        turned[0],
        turned[1],
        u32::from(finish.bias.is_some()),
        u32::from(finish.before.is_some()),
    );
    Launch::Kernel(kernel("gemm_short", &before, &params, TEXT, blocks(spec), THREADS))
}

/// A block computes `ROWS` rows. Each thread keeps its columns of `b` in registers, and reads the rows of `a` from shared memory.
const TEXT: &str = r#"  __shared__ Pack<C, 4> left[ROWS][(DEPTH + 3) / 4];
  const u32 WIDTH = THREADS * EACH * PACK;
  u32 across = (columns + WIDTH - 1) / WIDTH, down = (rows + ROWS - 1) / ROWS;
  u64 tile = blockIdx.x;
  u32 first_column = (u32)(tile % across) * WIDTH + threadIdx.x * PACK;
  tile /= across;
  u32 first_row = (u32)(tile % down) * ROWS;
  i64 at[3];
  batches.offsets(tile / down, at);
  a += at[0], b += at[1], c += at[2];
  u32 count = rows - first_row < ROWS ? rows - first_row : ROWS;
  for (u32 i = threadIdx.x; i < ROWS * DEPTH; i += THREADS) {
    u32 row = TURNED_A ? i % ROWS : i / DEPTH, term = TURNED_A ? i / ROWS : i % DEPTH;
    if (row < count) left[row][term / 4].at[term % 4] = load<C>(a[TURNED_A ? term * row_a + first_row + row : (first_row + row) * row_a + term]);
  }
  C right[EACH][PACK][DEPTH], added[EACH][PACK];
#pragma unroll
  for (u32 e = 0; e < EACH; e++)
#pragma unroll
    for (u32 i = 0; i < PACK; i++) {
      u64 column = first_column + e * THREADS * PACK + i;
      bool exists = column < columns;
#pragma unroll
      for (u32 term = 0; term < DEPTH; term++) right[e][i][term] = exists ? load<C>(b[TURNED_B ? column * row_b + term : term * row_b + column]) : C(0);
#if BIAS
      added[e][i] = exists ? load<C>(bias[column]) : C(0);
#endif
    }
  __syncthreads();
  for (u32 row = 0; row < count; row++) {
    C terms[DEPTH];
#pragma unroll
    for (u32 term = 0; term < DEPTH; term++) terms[term] = left[row][term / 4].at[term % 4];
    O* own = c + (first_row + row) * row_c;
#pragma unroll
    for (u32 e = 0; e < EACH; e++) {
      u32 column = first_column + e * THREADS * PACK;
      if (column >= columns) break;
      Pack<O, PACK> pack;
#if ADDS
      pack = *(const Pack<O, PACK>*)(own + column);
#endif
#pragma unroll
      for (u32 i = 0; i < PACK; i++) {
        C sum = C(0);
#pragma unroll
        for (u32 term = 0; term < DEPTH; term++) sum += terms[term] * right[e][i][term];
#if ADDS
        sum += load<C>(pack.at[i]);
#endif
#if BIAS
        store<C>(pack.at[i], finished(sum, added[e][i]));
#else
        store<C>(pack.at[i], finished(sum));
#endif
      }
      *(Pack<O, PACK>*)(own + column) = pack;
    }
  }
"#;
