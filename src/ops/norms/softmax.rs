//! `softmax` along the last dimension.

use crate::ops::expression::ball::{FUNCTION, Precision};
use crate::ops::kernels::rows::{RowBodies, RowResult, RowSplit, row_length};
use crate::ops::*;

/// Instructions per element of a row that is read once, counted as for [`Expression`]: a power of two takes one.
const PER_ELEMENT_ONCE: f64 = 7.5;
/// Instructions per element of a row that is read twice.
const PER_ELEMENT_TWICE: f64 = 15.0;
/// Instructions per element that is staged in shared memory.
const PER_ELEMENT_STAGED: f64 = 4.0;
/// Instructions of a thread of a row that one warp processes, for addresses and for exchanging values.
const PER_THREAD_OF_A_WARP: f64 = 110.0;
/// Instructions of a thread of a row that several warps process, for addresses and for exchanging values.
const PER_THREAD_OF_SEVERAL_WARPS: f64 = 180.0;

/// Returns the instructions for this many elements, and how many of them use special-function units: one or two
/// exponentials per element, and a reciprocal per thread.
fn work(split: &RowSplit, elements: f64) -> (f64, f64) {
    let threads = split.all_threads() as f64;
    let own = if split.several_warps() { PER_THREAD_OF_SEVERAL_WARPS } else { PER_THREAD_OF_A_WARP };
    let (each, exponentials) = if split.whole { (PER_ELEMENT_ONCE, 1.0) } else { (PER_ELEMENT_TWICE, 2.0) };
    let each = if split.staged { each + PER_ELEMENT_STAGED } else { each };
    (each * elements + own * threads, exponentials * elements + threads)
}

/// `softmax(x)`.
pub struct Softmax;

impl Operation for Softmax {
    signature! {
        name: "softmax",
        summary: "softmax along the last dimension, computed in f32",
        category: Category::RowWise,
        inputs: &[Input::Tensor("x")],
        outputs: &["y"],
        options: &[OptionSpec::number("scale", 1.0, "factor of `x` before the softmax")],
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        call.needs_rows()?;
        let input = &call.inputs[0];
        call.needs_float(input, "floating-point values")?;
        Ok(vec![call.output(0, input.tensor.dtype, input.tensor.dims)?])
    }

    fn cost(&self, spec: &Spec) -> Cost {
        cost(spec, &RowSplit::of(spec), 0.0)
    }

    fn reference(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        let scale = spec.attrs.number("scale");
        let length = row_length(spec);
        for (row, out) in inputs[0].chunks(length).zip(outputs[0].chunks_mut(length)) {
            let max = row.iter().map(|x| x * scale).fold(f64::NEG_INFINITY, f64::max);
            let mut sum = 0.0;
            for (out, x) in out.iter_mut().zip(row) {
                *out = (x * scale - max).exp();
                sum += *out;
            }
            out.iter_mut().for_each(|out| *out /= sum);
        }
    }

    fn enclose(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) -> Vec<Tolerance> {
        self.reference(spec, inputs, outputs);
        let scale = spec.attrs.number("scale");
        let compute = spec.inputs[0].dtype.compute();
        let precision = Precision::of(compute);
        let unit = precision.unit();
        // Rounding errors of the scale and of each product with it.
        let scaling = if scale == 1.0 { 0.0 } else { 2.0 * unit };
        let length = row_length(spec);
        let mut radii = Vec::with_capacity(outputs[0].len());
        let mut terms = Vec::with_capacity(length);
        for (row, out) in inputs[0].chunks(length).zip(outputs[0].chunks(length)) {
            let scaled = || row.iter().map(|x| x * scale);
            // If scaling overflows on a device only, the row can have any values.
            if scaled().zip(row).any(|(scaled, x)| x.is_finite() && !precision.holds(scaled)) {
                radii.extend(row.iter().map(|_| f64::INFINITY));
                continue;
            }
            let max = scaled().fold(f64::NEG_INFINITY, f64::max);
            // Relative error of an exponential: of the function and of its argument.
            let exponential = |x: &f64| {
                let argument = x * scale;
                FUNCTION * unit + scaling * (argument.abs() + max.abs()) + unit * (argument - max).abs()
            };
            let weighted = row.iter().zip(out).map(|(x, y)| if *y > 0.0 { exponential(x) * y } else { 0.0 });
            // The sign of rounding errors depends on the values of the terms, not only on their ratios.
            terms.clear();
            terms.extend(scaled().map(|x| (x - max).exp()).filter(|term| *term > 0.0));
            let sum = weighted.sum::<f64>() + check::sum_error(compute, &terms) / terms.iter().sum::<f64>().max(1.0);
            radii.extend(row.iter().zip(out).map(|(x, y)| match *y > 0.0 {
                // The last two errors are of the sum's reciprocal and of the product with it.
                true => y * (exponential(x) + sum + 4.0 * unit) + precision.smallest(),
                false => precision.smallest(),
            }));
        }
        vec![Tolerance::Within(radii)]
    }

    fn pieces(&self, spec: &Spec) -> Option<Pieces> {
        check::same_rows(spec).filter(|_| spec.outputs[0].dims.len() > 1)
    }

    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        let scale = spec.attrs.number("scale");
        launches(("softmax", RowResult::VALUE), spec, &RowSplit::of(spec), scale)
    }

    fn backward(&self, rule: &mut Backward) -> Result<(), NoRule> {
        backward::softmax(rule)
    }
}

/// Returns the cost of kernels that compute the probabilities of the first input, and `more` instructions for each element.
pub fn cost(spec: &Spec, split: &RowSplit, more: f64) -> Cost {
    // Maximum, subtraction, scaling, exponential and division per element.
    let elements = spec.inputs[0].elements() as f64;
    let (instructions, special) = work(split, elements);
    // Several warps of a row exchange its maximum and its sum, in each kernel.
    let exchanges = if split.several_warps() { 2.0 * split.launches() as f64 } else { 0.0 };
    let instructions = instructions + more * elements;
    Cost { instructions, special, exchanges, ..split.cost(spec, (5.0 + more) * elements) }
}

/// Returns the kernels with this name that write a result of each probability of the first input.
pub fn launches(kernel: (&str, RowResult), spec: &Spec, split: &RowSplit, scale: f64) -> Vec<Launch> {
    split.launch(kernel, spec, scale, 2, &BODIES)
}

const BODIES: RowBodies = RowBodies { once: ONCE, twice: TWICE, chunks: [PARTS, SCALE] };

/// Kernel text: registers hold the row.
const ONCE: &str = r#"  C v[R][K][V], m[R], s[R];
  EACH_ROW read(from[r], sx, 0, shift[r], n, scale, v[r]);
  EACH_ROW {
    m[r] = LOWEST;
    EACH_HELD m[r] = larger(v[r][k][i], m[r]);
    m[r] = across(m[r], LOWEST, Larger());
  }
  EACH_ROW {
    s[r] = 0;
    EACH_HELD { v[r][k][i] = exp_below(v[r][k][i] - m[r]); s[r] += v[r][k][i]; }
    s[r] = C(1) / across(s[r], 0, Sum());
  }
  EACH_ROW {
    if (!live[r]) continue;
    EACH_PACK(0) { EACH v[r][k][i] = RESULT(v[r][k][i] * s[r], r, FIRST + j + i); write(to[r], sy, j, n, v[r][k]); }
  }
"#;

/// Kernel text: reads the row twice in pieces, for the sum and for the result. The second time, the pieces are in reverse order, because
/// registers hold the last one and caches those before it.
const TWICE: &str = r#"  const u32 r = 0, pieces = (n + (SHIFTED ? V - 1 : 0) + T * V * K - 1) / (T * V * K);
  C v[K][V], m = LOWEST, s = 0;
  for (u32 piece = 0; piece < pieces; piece++) {
    C top = m;
    read(from[r], sx, piece * (T * V * K), shift[r], n, scale, v);
    EACH_HELD top = larger(v[k][i], top);
    if (top > m) { s *= exp_below(m - top); m = top; }
    if (m > LOWEST) { EACH_HELD s += exp_below(v[k][i] - m); }
    else { EACH_HELD s += v[k][i] == LOWEST ? C(0) : v[k][i]; }
  }
  C top = across(m, LOWEST, Larger());
  C share = C(1) / across(m > LOWEST ? s * exp_below(m - top) : s, 0, Sum());
  if (!live[r]) return;
  for (u32 piece = pieces; piece-- > 0;) {
    if (piece + 1 < pieces) read(from[r], sx, piece * (T * V * K), shift[r], n, scale, v);
    EACH_PACK(piece * (T * V * K)) { EACH v[k][i] = RESULT(exp_below(v[k][i] - top) * share, r, FIRST + j + i); write(to[r], sy, j, n, v[k]); }
  }
"#;

/// Computes the maximum of a chunk and the sum of exponentials relative to it.
const PARTS: &str = r#"  const u32 r = 0;
  C v[K][V], m = LOWEST, s = 0;
  read(from[r], sx, 0, shift[r], n, scale, v);
  EACH_HELD m = larger(v[k][i], m);
  m = across(m, LOWEST, Larger());
  if (m > LOWEST) { EACH_HELD s += exp_below(v[k][i] - m); }
  else { EACH_HELD s += v[k][i] == LOWEST ? C(0) : v[k][i]; }
  s = across(s, 0, Sum());
  if (threadIdx.x == 0) { parts[2 * (u64)block] = m; parts[2 * (u64)block + 1] = s; }
"#;

/// Rescales the chunk by the maximum and the sum of the whole row.
const SCALE: &str = r#"  const u32 r = 0;
  C v[K][V], m = LOWEST, s = 0;
  const C* of_row = parts + row * CHUNKS * 2;
  read(from[r], sx, 0, shift[r], n, scale, v);
  for (u32 c = threadIdx.x; c < CHUNKS; c += BLOCK) m = larger(of_row[2 * c], m);
  m = across(m, LOWEST, Larger());
  for (u32 c = threadIdx.x; c < CHUNKS; c += BLOCK) {
    C top = of_row[2 * c], sum = of_row[2 * c + 1];
    s += top > LOWEST ? sum * exp_below(top - m) : sum;
  }
  s = C(1) / across(s, 0, Sum());
  EACH_PACK(0) { EACH v[k][i] = RESULT(exp_below(v[k][i] - m) * s, r, FIRST + j + i); write(to[r], sy, j, n, v[k]); }
"#;
