//! Norms of few long rows, each of which several blocks share.
//!
//! Blocks compute the mean of their chunk and its sum of squared differences, which are then combined (Chan, Golub, LeVeque, "Updating formulae
//! and a pairwise algorithm for computing sample variances", 1979).

use super::*;
use crate::ops::kernels::kernel::{c_type, param};
use crate::ops::kernels::occupancy::UNITS;
use crate::ops::kernels::rows::{RowBodies, RowResult, RowSplit};

/// Estimated instructions per element of both kernels, without weights and biases.
const EACH: f64 = 16.0;
/// Estimated instructions per element for a weight, and for a bias.
const PER_WEIGHT: f64 = 6.0;
/// Estimated instructions per thread, for addresses and for exchanging values.
const PER_THREAD: f64 = 300.0;

/// Number of values of a chunk: its mean, its sum of squared differences to the mean, and its number of elements.
const PART: u64 = 3;

/// Returns the division of rows among blocks; `None` if one block for each row leaves less than half of the SMs idle.
pub fn split(spec: &Spec, norm: &Norm) -> Option<RowSplit> {
    let (x, y) = (&spec.inputs[0], &spec.outputs[0]);
    let is_plain = !norm.adds && x.dtype == y.dtype && norm.compute(spec) == x.dtype.compute();
    let partition = NormPartition::of(spec, norm);
    if !is_plain || partition.is_whole() || 2 * partition.blocks() >= UNITS {
        return None;
    }
    Some(RowSplit::of(spec)).filter(|split| split.launches() > 1)
}

/// Returns the cost of both kernels.
pub fn cost(spec: &Spec, split: &RowSplit, norm: &Norm) -> Cost {
    let (elements, threads) = (spec.inputs[0].elements() as f64, split.all_threads() as f64);
    let each = EACH + PER_WEIGHT * (spec.inputs.len() - 1) as f64;
    Cost {
        instructions: each * elements + PER_THREAD * threads,
        special: threads,
        exchanges: if norm.centred { 4.0 } else { 2.0 },
        ..split.cost(spec, 4.0 * elements)
    }
}

/// Returns the kernels.
pub fn launches(name: &str, spec: &Spec, split: &RowSplit, norm: &Norm, channels: &Channels) -> Vec<Launch> {
    let compute = norm.compute(spec);
    let mut params = vec![param("C eps", Arg::real(compute, spec.attrs.number("eps")))];
    let mut declared = format!(
        "  const bool centred = {};\n  const u64 groups = {}, each = {};\n  const u32 alike = {}, whole = {};\n  \
         // Elements outside of the row have any weight.\n  \
         auto place = [&](i64 first, u32 e) {{ return first + (e < whole ? e : 0) / alike; }};\n  i64 first_weight[R];\n",
        norm.centred,
        channels.groups,
        channels.each,
        channels.alike,
        row_length(spec),
    );
    let mut text = "(p)".to_owned();
    for ((tensor, operand), (name, sign)) in spec.inputs[1..].iter().zip(1..).zip([("weight", "*"), ("bias", "+")]) {
        params.push(param(format!("const {}* {name}", c_type(tensor.dtype)), Arg::Operand(operand)));
        declared += &format!("  const i64 {name}_step = {};\n", tensor.strides[0]);
        text = format!("({text} {sign} load<C>({name}[place(first_weight[r], e) * {name}_step]))");
    }
    let of_row = "    first_weight[r] = (i64)(at % groups * each);\n".into();
    let result = RowResult { params, declared: declared.into(), of_row, text: text.into() };
    split.launch((name, result), spec, 1.0, PART, &BODIES)
}

const BODIES: RowBodies = RowBodies { once: "", twice: "", chunks: [STATISTICS, NORMALIZE] };

const STATISTICS: &str = r#"  const u32 r = 0;
  C v[K][V], sum = 0, squares = 0;
  read(from[r], sx, 0, shift[r], n, scale, v);
  EACH_PACK(0) EACH if (!SHIFTED || (j + i >= 0 && j + i < (Place)n)) sum += v[k][i];
  const C mean = centred ? across(sum, 0, [](C a, C b) { return a + b; }) / n : C(0);
  EACH_PACK(0) EACH if (!SHIFTED || (j + i >= 0 && j + i < (Place)n)) squares += (v[k][i] - mean) * (v[k][i] - mean);
  squares = across(squares, 0, [](C a, C b) { return a + b; });
  if (threadIdx.x == 0) { C* own = parts + 3 * (u64)block; own[0] = mean; own[1] = squares; own[2] = n; }
"#;

const NORMALIZE: &str = r#"  const u32 r = 0;
  C v[K][V], sum = 0, squares = 0;
  const C* of_row = parts + row * CHUNKS * 3;
  read(from[r], sx, 0, shift[r], n, scale, v);
  C mean = 0;
  if (centred) {
    for (u32 c = threadIdx.x; c < CHUNKS; c += BLOCK) sum += of_row[3 * c] * of_row[3 * c + 2];
    mean = across(sum, 0, [](C a, C b) { return a + b; }) / whole;
  }
  for (u32 c = threadIdx.x; c < CHUNKS; c += BLOCK) {
    C off = of_row[3 * c] - mean;
    squares += of_row[3 * c + 1] + of_row[3 * c + 2] * off * off;
  }
  const C rate = f_rsqrt(across(squares, 0, [](C a, C b) { return a + b; }) / whole + eps);
  EACH_PACK(0) { EACH v[k][i] = RESULT((v[k][i] - mean) * rate, r, FIRST + j + i); write(to[r], sy, j, n, v[k]); }
"#;
