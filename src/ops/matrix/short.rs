//! Products of few terms: one generated kernel for the product and its epilogue, if a library does not compute both at the speed of the
//! memory.
//!
//! Writing the result takes most of the time of such a product. A library's product with a kernel after it writes the result twice and reads
//! it once. Its kernels for 16-bit rows that are not whole packs write elements one by one, which takes several times as long.

use super::super::layout::in_packs;
use super::epilogue::Finish;
use super::{arithmetic, batches, is_odd, library_epilogue, scales, sizes};
use crate::ops::kernels::kernel::{c_type, geometry_param, kernel, param, u32_param, u64_param};
use crate::ops::kernels::occupancy::{UNITS, share};
use crate::ops::{Arg, Arithmetic, Cost, Launch, Spec};

/// Maximum number of terms: in the time in which an H100 writes a 16-bit element three times, it computes 16 terms
/// without matrix units.
const MAX_DEPTH: u64 = 16;

/// Maximum number of terms if a library computes the epilogue: up to here, the instructions of a result, about 13 and one for each term, take
/// at most one and a half times as long as an H100 takes to write its 16 bits.
const MAX_WRITTEN_DEPTH: u64 = 8;

/// Minimum number of columns: a row of the result then fills at least two cache lines in 16 bits.
const MIN_COLUMNS: u64 = 64;

/// Number of threads of a block.
const THREADS: u64 = 128;
/// Number of columns that a thread computes.
const EACH: u64 = 4;
/// Numbers of rows that a thread can compute. It keeps its columns of `b` in registers for all of them.
const ROWS: [u64; 4] = [32, 16, 8, 4];
/// Minimum number of blocks, so that others of an SM multiply while one loads its columns of `b`.
const MIN_BLOCKS: u64 = 4 * UNITS;

/// Instructions per result apart from its terms and its epilogue: for rounding and storing.
const PER_RESULT: f64 = 6.0;
/// Instructions per term of a column, which a thread loads and converts.
const PER_TERM: f64 = 3.0;
/// Instructions per row and thread, for loading its terms and for addresses.
const PER_ROW: f64 = 30.0;
/// Instructions of a thread for its place: a count in code for sm_90a by NVRTC 13.0.
const PER_THREAD: f64 = 100.0;

/// Maximum number of blocks of the kernel.
const MAX_BLOCKS: u64 = u32::MAX as u64 >> 1;

/// Division of a short product among blocks.
struct Division {
    /// Number of threads of a block that share a row; the others have other rows.
    across: u64,
    /// Number of rows of a block.
    rows: u64,
    /// Number of rows that a thread computes.
    rows_each: u64,
    /// Number of blocks: one for each tile of each product.
    blocks: u64,
}

impl Division {
    /// Returns the division whose threads compute the most rows, if there are enough blocks; otherwise the one with the most blocks.
    fn of(spec: &Spec) -> Division {
        let (m, n, _, batch) = sizes(spec);
        let across = n.div_ceil(EACH).next_power_of_two().clamp(MIN_COLUMNS / EACH, THREADS);
        let with = |rows_each: u64| {
            let rows = rows_each * (THREADS / across);
            Division { across, rows, rows_each, blocks: m.div_ceil(rows) * n.div_ceil(EACH * across) * batch }
        };
        let [.., least] = ROWS;
        ROWS.into_iter().map(with).find(|division| division.blocks >= MIN_BLOCKS).unwrap_or_else(|| with(least))
    }
}

/// True if one generated kernel computes the product and its epilogue.
pub fn applies(spec: &Spec) -> bool {
    let (_, n, k, _) = sizes(spec);
    let arithmetic = arithmetic(spec);
    let floats = matches!(arithmetic, Arithmetic::F16 | Arithmetic::BF16 | Arithmetic::F32 | Arithmetic::Tf32);
    let finish = Finish::of(spec);
    let separate = || finish.has_epilogue() && library_epilogue(spec).is_none();
    // A thread waits for the previous contents of each result.
    let writes_faster =
        || k <= MAX_WRITTEN_DEPTH && spec.outputs[0].dtype.size() == 2 && finish.before.is_none() && is_odd(spec);
    floats
        && scales(spec).is_none()
        && (1..=MAX_DEPTH).contains(&k)
        && n >= MIN_COLUMNS
        && (separate() || writes_faster())
        && Division::of(spec).blocks <= MAX_BLOCKS
}

/// Returns the cost of the generated kernel.
pub fn cost(spec: &Spec) -> Cost {
    let (_, _, k, _) = sizes(spec);
    let (finish, results) = (Finish::of(spec), spec.outputs[0].elements() as f64);
    let expression = finish.expression();
    let Division { blocks, rows_each, .. } = Division::of(spec);
    let of_columns = PER_TERM * k as f64 / rows_each as f64;
    let terms = k as f64 + of_columns + f64::from(expression.instructions());
    Cost {
        flops: results * (2 * k + u64::from(expression.flops())) as f64,
        instructions: results * (PER_RESULT + PER_ROW / EACH as f64 + terms) + (blocks * THREADS) as f64 * PER_THREAD,
        special: results * f64::from(expression.special()),
        read: Spec::bytes_of(&spec.inputs),
        written: Spec::bytes_of(&spec.outputs),
        blocks,
        share: share(THREADS),
        // A block reads the terms of its rows into shared memory first.
        exchanges: 1.0,
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
    if let Some(input) = finish.bias {
        params.push(param("const O* bias", Arg::Operand(input as u8)));
        params.push(u64_param("bias_step", spec.inputs[input].strides[0]));
    }
    let Division { across, rows, blocks, .. } = Division::of(spec);
    let pack = [EACH, 2, 1].into_iter().find(|&pack| in_packs(c, pack)).unwrap_or(1);
    let turned = ["transpose_a", "transpose_b"].map(|name| u32::from(spec.attrs.bool(name)));
    let before = format!(
        "typedef {} T;\ntypedef {} O;\ntypedef f32 C;\n{}#undef BOUNDS\n#define BOUNDS __launch_bounds__({THREADS})\n\
         #define THREADS {THREADS}\n#define DEPTH {k}\n#define ROWS {rows}\n#define ACROSS {across}\n#define PACK {pack}\n#define EACH {}\n\
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
    Launch::Kernel(kernel("gemm_short", &before, &params, TEXT, blocks, THREADS as u32))
}

/// Kernel text: a block computes `ROWS` rows, of which `ACROSS` threads share each. A thread keeps its columns of `b` in registers, and reads
/// the rows of `a` from shared memory.
const TEXT: &str = r#"  __shared__ Pack<C, 4> left[ROWS][(DEPTH + 3) / 4];
  const u32 WIDTH = ACROSS * EACH * PACK, lane = threadIdx.x % ACROSS;
  u32 across = (columns + WIDTH - 1) / WIDTH, down = (rows + ROWS - 1) / ROWS;
  u64 tile = blockIdx.x;
  u32 first_column = (u32)(tile % across) * WIDTH + lane * PACK;
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
      u64 column = first_column + e * ACROSS * PACK + i;
      bool exists = column < columns;
#pragma unroll
      for (u32 term = 0; term < DEPTH; term++) right[e][i][term] = exists ? load<C>(b[TURNED_B ? column * row_b + term : term * row_b + column]) : C(0);
#if BIAS
      added[e][i] = exists ? load<C>(bias[column * bias_step]) : C(0);
#endif
    }
  __syncthreads();
  for (u32 row = threadIdx.x / ACROSS; row < count; row += THREADS / ACROSS) {
    C terms[DEPTH];
#pragma unroll
    for (u32 term = 0; term < DEPTH; term++) terms[term] = left[row][term / 4].at[term % 4];
    O* own = c + (first_row + row) * row_c;
#pragma unroll
    for (u32 e = 0; e < EACH; e++) {
      u32 column = first_column + e * ACROSS * PACK;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::DType;
    use crate::ops::Tensor;

    fn product(dtype: DType, [m, k, n]: [u64; 3]) -> Spec {
        let of = |dims: &[u64]| Tensor::packed(dtype, dims);
        Spec::of_use("gemm", &[], vec![of(&[m, k]), of(&[k, n])], &[None]).expect("a product")
    }

    /// Libraries write whole packs of a short product at the speed of the memory, but not single elements.
    #[test]
    fn one_kernel_writes_rows_that_are_not_whole_packs() {
        for (sizes, by_kernel) in
            [([6196, 5, 8369], true), ([6196, 8, 8368], false), ([6196, 9, 8369], false), ([6196, 5, 63], false)]
        {
            assert_eq!(applies(&product(DType::BF16, sizes)), by_kernel, "{sizes:?}");
        }
    }

    /// Few results are divided among many blocks, and a thread computes many rows of others.
    #[test]
    fn few_results_are_divided_among_many_blocks() {
        let of = |sizes: [u64; 3]| Division::of(&product(DType::F32, sizes));
        let few = of([20, 11, 25201]);
        assert_eq!((few.rows_each, few.blocks), (4, 5 * 50));
        let many = of([21144, 6, 1694]);
        assert_eq!((many.across, many.rows, many.blocks), (128, 32, 661 * 4));
        let narrow = of([17431, 2, 96]);
        assert_eq!((narrow.across, narrow.rows, narrow.blocks), (32, 32, 545));
    }
}
