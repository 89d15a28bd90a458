//! `grad_norm`: the Euclidean norm of several tensors together, used to clip gradients.

use super::super::check::sum_error;
use super::super::expression::Unary;
use super::*;
use crate::ops::expression::ball::{Ball, Precision};
use crate::ops::kernels::kernel::{BLOCK, bounds, c_type, launch, param, u32_param, u64_param};
use crate::ops::kernels::occupancy::{LARGEST_BLOCK, RESIDENT_BLOCKS, share};

/// `grad_norm(x, …)`, as `torch.nn.utils.get_total_norm`: one pass over any number of tensors.
pub struct GradNorm;

/// Minimum number of bytes of a tensor per block.
const MIN_CHUNK: u64 = 1 << 15;

/// Instructions per element.
const PER_ELEMENT: f64 = 3.0;
/// Instructions per thread.
const PER_THREAD: f64 = 90.0;

/// Division of the tensors among blocks. Each block has a chunk of one tensor.
struct Chunks {
    /// Number of bytes per chunk.
    bytes: u64,
    /// For each tensor, the number of chunks of this tensor and of all earlier ones.
    ends: Vec<u64>,
}

impl Chunks {
    fn of(spec: &Spec) -> Chunks {
        let total: u64 = spec.inputs.iter().map(Tensor::bytes).sum();
        let bytes = total.div_ceil(2 * RESIDENT_BLOCKS).max(MIN_CHUNK).next_multiple_of(MIN_CHUNK);
        let mut end = 0;
        let ends = spec.inputs.iter().map(|tensor| {
            end += tensor.bytes().div_ceil(bytes);
            end
        });
        Chunks { bytes, ends: ends.collect() }
    }

    /// Number of chunks, and of blocks of the first kernel.
    fn count(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }
}

/// Returns the number of elements of a tensor that one instruction loads.
fn pack(tensor: &Tensor) -> u64 {
    (u64::from(tensor.align) / tensor.dtype.size()).clamp(1, 16 / tensor.dtype.size())
}

impl Operation for GradNorm {
    signature! {
        name: "grad_norm",
        summary: "the 2-norm of all elements of several tensors together",
        category: Category::RowWise,
        inputs: &[Input::Tensors("x")],
        outputs: &["norm"],
        options: &[],
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        for input in call.inputs {
            call.needs_float(input, "floating-point values")?;
            if !input.tensor.contiguous() {
                return Err(call.gaps(input, "a gradient has to be contiguous: `copy` the slice first"));
            }
        }
        let compute = call.inputs.iter().map(|input| input.tensor.dtype.compute()).fold(DType::F32, DType::promote);
        Ok(vec![call.float_output(0, compute, Dims::new())?])
    }

    fn launch_costs(&self, spec: &Spec) -> Vec<Cost> {
        let elements: u64 = spec.inputs.iter().map(Tensor::elements).sum();
        let chunks = Chunks::of(spec).count();
        let sums = Traffic::of(Space::Device, chunks * compute_type(spec).size());
        let squares = Cost {
            instructions: PER_ELEMENT * elements as f64 + PER_THREAD * (chunks * u64::from(BLOCK)) as f64,
            written: sums,
            exchanges: 1.0,
            blocks: chunks,
            share: share(u64::from(BLOCK)),
            ..spec.streaming_cost(2.0 * elements as f64, 1)
        };
        let joins = Cost {
            instructions: PER_ELEMENT * chunks as f64,
            read: sums,
            written: Spec::bytes_of(&spec.outputs),
            exchanges: 1.0,
            blocks: 1,
            ..Cost::default()
        };
        vec![squares, joins]
    }

    fn reference(&self, _: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        outputs[0][0] = inputs.iter().flat_map(|values| values.iter()).map(|x| x * x).sum::<f64>().sqrt();
    }

    fn enclose(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) -> Vec<Tolerance> {
        self.reference(spec, inputs, outputs);
        let compute = compute_type(spec);
        let precision = Precision::of(compute);
        let squares: Vec<f64> = inputs.iter().flat_map(|values| values.iter()).map(|x| x * x).collect();
        let sum: f64 = squares.iter().sum();
        let radius = match sum.is_finite() && precision.holds(2.0 * sum) {
            true => sum_error(compute, &squares) + precision.unit() * sum,
            // An infinite element or NaN determines the norm. Large elements may overflow on a device only.
            false if inputs.iter().flat_map(|values| values.iter()).any(|x| !x.is_finite()) => 0.0,
            false => f64::INFINITY,
        };
        let norm = precision.unary(Unary::Sqrt, Ball { value: sum, radius });
        vec![Tolerance::Within(vec![norm.radius])]
    }

    /// The first kernel sums the squares of each chunk, the second the sums of all chunks, in a fixed order.
    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        let (compute, chunks) = (compute_type(spec), Chunks::of(spec));
        let workspace = Arg::Workspace(chunks.count() * compute.size());
        let before = |threads: u64| {
            format!("{}typedef {} C;\n#define THREADS {threads}\n", bounds(threads as u32), c_type(compute)) + ACROSS
        };
        let mut params = vec![param("C* sums", workspace.clone()), u64_param("chunk", chunks.bytes)];
        let mut body = "  C sum = 0;\n".to_owned();
        for (place, (tensor, end)) in spec.inputs.iter().zip(&chunks.ends).enumerate() {
            let dtype = c_type(tensor.dtype);
            params.extend([
                param(format!("const {dtype}* x{place}"), Arg::Operand(place as u8)),
                u64_param(&format!("n{place}"), tensor.elements()),
                u32_param(&format!("e{place}"), *end),
            ]);
            let (otherwise, first) =
                if place == 0 { ("", "0".to_owned()) } else { ("else ", format!("e{}", place - 1)) };
            body += &format!(
                "  {otherwise}if (blockIdx.x < e{place}) sum = squares<{dtype}, {}>(x{place}, n{place}, chunk / sizeof({dtype}), \
                 blockIdx.x - {first});\n",
                pack(tensor)
            );
        }
        body += "  sum = across(sum);\n  if (threadIdx.x == 0) sums[blockIdx.x] = sum;\n";
        let before_squares = before(u64::from(BLOCK)) + SQUARES;
        let squares = launch("grad_norm_squares", &before_squares, &params, &body, chunks.count(), BLOCK);
        let params = [
            param(format!("{}* norm", c_type(spec.outputs[0].dtype)), Arg::Operand(spec.inputs.len() as u8)),
            param("const C* sums", workspace),
            u32_param("count", chunks.count()),
        ];
        vec![squares, launch("grad_norm", &before(LARGEST_BLOCK), &params, NORM, 1, LARGEST_BLOCK as u32)]
    }

    fn backward(&self, rule: &mut Backward) -> Result<(), NoRule> {
        backward::grad_norm(rule)
    }
}

/// Sum over the threads of a block; the first thread receives it.
const ACROSS: &str = r#"
__device__ inline C across(C v) {
  __shared__ C part[32];
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) v += SHUFFLE_XOR(v, mask);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
  __syncthreads();
  v = threadIdx.x % 32 < THREADS / 32 ? part[threadIdx.x % 32] : C(0);
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) v += SHUFFLE_XOR(v, mask);
  return v;
}
"#;

/// Sum of squares of a thread's part of a chunk. The packs of a thread are one block's packs apart, so that
/// neighbouring threads read neighbouring packs.
const SQUARES: &str = r#"
// Number of packs that a thread loads before it uses them.
#define UNDER_WAY 4
template <typename E, int V> __device__ inline C squares(const E* x, u64 n, u64 chunk, u64 block) {
  u64 begin = chunk * block, end = n - begin < chunk ? n : begin + chunk;
  C sums[V];
#pragma unroll
  for (int v = 0; v < V; v++) sums[v] = 0;
  for (u64 base = begin + threadIdx.x * V; base < end; base += THREADS * V * UNDER_WAY) {
    Pack<E, V> packs[UNDER_WAY];
#pragma unroll
    for (int u = 0; u < UNDER_WAY; u++) {
      u64 j = base + u * THREADS * V;
      if (j + V <= end) packs[u] = *(const Pack<E, V>*)(x + j);
    }
#pragma unroll
    for (int u = 0; u < UNDER_WAY; u++) {
      u64 j = base + u * THREADS * V;
      if (j + V <= end) {
#pragma unroll
        for (int v = 0; v < V; v++) { C e = load<C>(packs[u].at[v]); sums[v] += e * e; }
      } else {
        for (; j < end; j++) { C e = load<C>(x[j]); sums[0] += e * e; }
      }
    }
  }
  C sum = 0;
#pragma unroll
  for (int v = 0; v < V; v++) sum += sums[v];
  return sum;
}
"#;

/// Sums the chunks.
const NORM: &str = r#"  C sum = 0;
#pragma unroll 4
  for (u32 i = threadIdx.x; i < count; i += THREADS) sum += sums[i];
  sum = across(sum);
  if (threadIdx.x == 0) store<C>(*norm, f_sqrt(sum));
"#;
