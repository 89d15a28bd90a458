//! `top_k`: the largest elements along the last dimension.

use crate::base::{DType, Dims};

use super::kernel::{BLOCK, c_type, geometry_param, geometry_words, index_type, source};
use super::rows::{Rows, row_length};
use super::*;

/// Threads that share a row of that many elements; a power of two.
fn threads(length: u64) -> u32 {
    (length.div_ceil(4).min(u64::from(BLOCK)) as u32).next_power_of_two()
}

fn blocks(rows: &Rows) -> u64 {
    rows.count.div_ceil(u64::from(BLOCK / threads(rows.length))).max(1)
}

/// `top_k(x, k: n)`.
pub struct TopK;

/// Whether element `a` at place `i` comes before `b` at `j`: the larger, NaN above all, the earlier of equals.
/// The kernels' `ahead` says the same.
pub fn ahead(a: f64, i: usize, b: f64, j: usize) -> bool {
    let above = |a: f64, b: f64| a > b || (a.is_nan() && !b.is_nan());
    above(a, b) || (!above(b, a) && i < j)
}

/// The kernels' text of [`ahead`].
pub const AHEAD: &str = "__device__ inline bool above(C a, C b) { return a > b || (!(a == a) && b == b); }\n\
    __device__ inline bool ahead(C a, u32 i, C b, u32 j) { return above(a, b) || (!above(b, a) && i < j); }\n";

impl Operation for TopK {
    fn name(&self) -> &'static str {
        "top_k"
    }

    fn summary(&self) -> &'static str {
        "the largest values of each row, falling, and their places; of equals the earlier"
    }

    fn category(&self) -> Category {
        Category::RowWise
    }

    fn signature(&self) -> &'static Signature {
        &Signature {
            inputs: &[Input::Tensor("x")],
            outputs: &["values", "indices"],
            options: &[OptionSpec {
                name: "k",
                kind: OptionType::Int(1, 1024),
                default: Preset::Required,
                doc: "how many of each row",
            }],
        }
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        call.needs_rows()?;
        let tensor = &call.inputs[0].tensor;
        let k = call.attrs.int("k") as u64;
        let last = tensor.dims.len() - 1;
        if k > tensor.dims[last] {
            let length = tensor.dims[last];
            let why = format!("it asks for {k} of the {length} elements of a row");
            return Err(call.bad_option("k", why, format!("write 1 to {length}")));
        }
        let mut dims = tensor.dims;
        dims.set(last, k);
        Ok(vec![call.output(0, tensor.dtype, dims)?, call.output(1, DType::I32, dims)?])
    }

    fn cost(&self, spec: &Spec) -> Cost {
        let flops = spec.inputs[0].elements() as f64 * spec.attrs.int("k") as f64;
        Cost { blocks: blocks(&Rows::of(&[&spec.inputs[0]])), ..spec.streaming_cost(flops, 1) }
    }

    fn reference(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        let length = row_length(spec);
        let k = spec.attrs.int("k") as usize;
        let [values, indices] = outputs else { unreachable!("the signature has two outputs") };
        for (row, (values, indices)) in inputs[0].chunks(length).zip(values.chunks_mut(k).zip(indices.chunks_mut(k))) {
            let mut order: Vec<usize> = (0..length).collect();
            order.sort_by(|&i, &j| ahead(row[j], j, row[i], i).cmp(&ahead(row[i], i, row[j], j)));
            for (place, &index) in order.iter().take(k).enumerate() {
                values[place] = row[index];
                indices[place] = index as f64;
            }
        }
    }

    fn pieces(&self, spec: &Spec) -> Option<Pieces> {
        (spec.inputs[0].dims.len() > 1).then(|| Pieces::Rows(vec![true]))
    }

    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        let (x, values, indices) = (&spec.inputs[0], &spec.outputs[0], &spec.outputs[1]);
        let rows = Rows::of(&[x, values, indices]);
        let dtype = c_type(x.dtype);
        let mut params: Vec<String> =
            vec![format!("{dtype}* values"), "i32* indices".into(), format!("const {dtype}* x"), "u32 k".into()];
        params.extend(["i64 sx".into(), "i64 sv".into(), "i64 si".into()]);
        params.extend([geometry_param(&rows.geometry), "u64 rows".into(), "u32 n".into(), "u32 threads".into()]);
        let mut args = vec![Arg::Operand(1), Arg::Operand(2), Arg::Operand(0), Arg::U32(spec.attrs.int("k") as u32)];
        args.extend(rows.steps.iter().map(|&step| Arg::U64(step)));
        args.extend([
            Arg::Words(geometry_words(&rows.geometry)),
            Arg::U64(rows.count),
            Arg::U32(rows.length as u32),
            Arg::U32(threads(rows.length)),
        ]);
        let before = format!("typedef {} C;\n{AHEAD}", c_type(x.dtype.compute()));
        let index = index_type(rows.count);
        // In each of k rounds the row's threads find the first element that comes behind the last one found. Threads past
        // the last row stay for the barriers, with `at` clamped and `live` false.
        let body = format!(
            r#"  __shared__ C best_value[{BLOCK}];
  __shared__ u32 best_place[{BLOCK}];
  u32 lane = threadIdx.x & (threads - 1);
  u64 row = (u64)blockIdx.x * (blockDim.x / threads) + threadIdx.x / threads;
  bool live = row < rows;
  {index} at = ({index})(live ? row : 0);
  const {dtype}* from = x + g.offset(at, 0);
  C last = 0;
  u32 last_place = 0;
  for (u32 round = 0; round < k; round++) {{
    C found = 0;
    u32 place = n;
    for (u32 j = lane; j < n; j += threads) {{
      C v = load<C>(from[j * sx]);
      bool open = round == 0 || ahead(last, last_place, v, j);
      if (open && (place == n || ahead(v, j, found, place))) {{ found = v; place = j; }}
    }}
    best_value[threadIdx.x] = found;
    best_place[threadIdx.x] = place;
    for (u32 half = threads / 2; half > 0; half /= 2) {{
      __syncthreads();
      if (lane < half) {{
        C v = best_value[threadIdx.x + half];
        u32 j = best_place[threadIdx.x + half];
        if (j != n && (place == n || ahead(v, j, found, place))) {{ found = v; place = j; }}
        best_value[threadIdx.x] = found;
        best_place[threadIdx.x] = place;
      }}
    }}
    __syncthreads();
    last = best_value[threadIdx.x - lane];
    last_place = best_place[threadIdx.x - lane];
    if (live && lane == 0) {{
      store<C>(values[g.offset(at, 1) + round * sv], last);
      indices[g.offset(at, 2) + round * si] = (i32)last_place;
    }}
    __syncthreads();
  }}
"#
        );
        vec![Launch::Kernel(Kernel {
            source: source("top_k", &before, &params, &body),
            grid: blocks(&rows),
            block: BLOCK,
            shared: Shared::Bytes(0),
            args,
        })]
    }
}
