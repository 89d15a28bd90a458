//! `softmax`: exponentials along the last dimension, divided by their sum.

use crate::base::units::Dimension;
use crate::base::{DType, Dims};

use super::ball::{FUNCTION, Precision};
use super::kernel::{c_type, geometry_param, geometry_words, index_type, source};
use super::layout::collapse;
use super::rowwise::row_too_long;
use super::*;

/// Threads of a block at most, which share one row.
const MOST_THREADS: u64 = 1024;

/// Threads of a block that has several rows.
const SEVERAL_ROWS: u64 = 128;

/// Instructions for each element, and for each thread whose row is that of one warp, or of several. Counted as those of
/// [`Expression`] are: an exponential is eight of them, and a thread's own are for addresses and for what it tells others.
const EACH_ONCE: f64 = 14.0;
const EACH_TWICE: f64 = 24.0;
const OF_A_WARP: f64 = 90.0;
const OF_SEVERAL: f64 = 180.0;

/// Threads that a compute unit has room for, NVIDIA's and AMD's.
const UNIT_THREADS: u64 = 2048;

/// How rows are divided among threads.
struct Split {
    geometry: Geometry,
    rows: u64,
    length: u64,
    /// The distance between neighbours in a row, of the output and of the input.
    steps: [u64; 2],
    /// Elements that a thread reads as one.
    pack: u64,
    /// Packs that a thread has in registers.
    packs: u64,
    /// Threads that share a row; a power of two.
    threads: u64,
    /// The registers of a row's threads hold all of it: it is read once.
    whole: bool,
}

impl Split {
    fn of(spec: &Spec) -> Split {
        let tensors = [&spec.outputs[0], &spec.inputs[0]];
        let lead = tensors[0].dims.len() - 1;
        let dims = Dims::from_slice(&tensors[0].dims[..lead]).unwrap_or_default();
        let strides = tensors.map(|tensor| Dims::from_slice(&tensor.strides[..lead]).unwrap_or_default());
        let length = tensors[0].dims[lead];
        let pack = tensors.iter().map(|tensor| pack(tensor)).min().unwrap_or(1);
        // What fits into registers: 32 floats of a thread, or half as many doubles.
        let most = if tensors[0].dtype == DType::F64 { 16 } else { 32 };
        // A row of one warp needs no barrier. A longer one has more threads, with less of it each, so that many loads are
        // under way.
        let threads = match length <= 32 * most {
            true => length.div_ceil(pack).next_power_of_two().min(32),
            false => length.div_ceil(most / 2).next_power_of_two().min(MOST_THREADS),
        };
        let whole = length <= threads * most;
        let packs = if whole { length.div_ceil(threads * pack) } else { most / 2 / pack };
        Split {
            geometry: collapse(dims, &strides),
            rows: dims.iter().product(),
            length,
            steps: tensors.map(|tensor| tensor.strides[lead]),
            pack,
            packs,
            threads,
            whole,
        }
    }

    fn block(&self) -> u64 {
        self.threads.max(SEVERAL_ROWS)
    }

    fn blocks(&self) -> u64 {
        self.rows.div_ceil(self.block() / self.threads).max(1)
    }

    /// Instructions for that many elements, and those of them that are special: an exponential for each element, or two,
    /// and a reciprocal for each thread.
    fn work(&self, elements: f64) -> (f64, f64) {
        let threads = (self.rows * self.threads) as f64;
        let own = if self.threads > 32 { OF_SEVERAL } else { OF_A_WARP };
        let (each, exponentials) = if self.whole { (EACH_ONCE, 1.0) } else { (EACH_TWICE, 2.0) };
        (each * elements + own * threads, exponentials * elements + threads)
    }
}

/// Elements of rows that can be read as one: they have to be neighbours, and to begin where such a piece may.
fn pack(tensor: &Tensor) -> u64 {
    let (last, lead) = (tensor.dims.len() - 1, &tensor.strides[..tensor.dims.len() - 1]);
    let whole = |pack: u64| {
        let bytes = pack * tensor.dtype.size();
        tensor.strides[last] == 1
            && u64::from(tensor.align).is_multiple_of(bytes)
            && tensor.dims[last].is_multiple_of(pack)
            && lead.iter().all(|stride| stride.is_multiple_of(pack))
    };
    let widest = 16 / tensor.dtype.size();
    std::iter::successors(Some(widest), |pack| (*pack > 1).then_some(pack / 2)).find(|&pack| whole(pack)).unwrap_or(1)
}

/// `softmax(x)`.
pub struct Softmax;

impl Operation for Softmax {
    fn name(&self) -> &'static str {
        "softmax"
    }

    fn summary(&self) -> &'static str {
        "exponentials along the last dimension, divided by their sum; computed in f32"
    }

    fn category(&self) -> Category {
        Category::RowWise
    }

    fn signature(&self) -> &'static Signature {
        &Signature {
            inputs: &[Input::Tensor("x")],
            outputs: &["y"],
            options: &[OptionSpec {
                name: "scale",
                kind: OptionType::Number(Dimension::NONE),
                default: Preset::Number(1.0),
                doc: "a factor before the exponential",
            }],
        }
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        call.needs_device()?;
        call.needs_rank(0, 1, "along the last of which it works")?;
        row_too_long(call)?;
        let input = &call.inputs[0];
        call.needs_dtype(input, input.tensor.dtype.is_float(), "floating-point values")?;
        Ok(vec![call.output(0, input.tensor.dtype, input.tensor.dims)?])
    }

    fn cost(&self, spec: &Spec) -> Cost {
        // A maximum, a subtraction, a scaling, an exponential and a division for each element.
        let elements = spec.inputs[0].elements() as f64;
        let split = Split::of(spec);
        let (instructions, special) = split.work(elements);
        Cost {
            instructions,
            special,
            reread: if split.whole { Traffic::NONE } else { Spec::bytes_of(&spec.inputs) },
            blocks: split.blocks(),
            share: (split.block() * u64::from(Cost::WHOLE_UNIT) / UNIT_THREADS) as u32,
            ..spec.streaming_cost(5.0 * elements, 1)
        }
    }

    fn reference(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        let scale = spec.attrs.number("scale");
        let length = *spec.inputs[0].dims.last().expect("rank is checked") as usize;
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
        // What the scale is rounded by, and each product with it.
        let scaling = if scale == 1.0 { 0.0 } else { 2.0 * unit };
        let length = *spec.inputs[0].dims.last().expect("rank is checked") as usize;
        let mut radii = Vec::with_capacity(outputs[0].len());
        let mut terms = Vec::with_capacity(length);
        for (row, out) in inputs[0].chunks(length).zip(outputs[0].chunks(length)) {
            let scaled = || row.iter().map(|x| x * scale);
            // What the scale makes infinite on a device alone decides about the whole row.
            if scaled().zip(row).any(|(scaled, x)| x.is_finite() && !precision.holds(scaled)) {
                radii.extend(row.iter().map(|_| f64::INFINITY));
                continue;
            }
            let max = scaled().fold(f64::NEG_INFINITY, f64::max);
            // How far the exponential of one element may be off, relative: by its function, and by its argument.
            let exponential = |x: &f64| {
                let argument = x * scale;
                FUNCTION * unit + scaling * (argument.abs() + max.abs()) + unit * (argument - max).abs()
            };
            let weighted = row.iter().zip(out).map(|(x, y)| if *y > 0.0 { exponential(x) * y } else { 0.0 });
            // Which way roundings go depends on the terms themselves, not only on how large they are beside each other.
            terms.clear();
            terms.extend(scaled().map(|x| (x - max).exp()).filter(|term| *term > 0.0));
            let sum = weighted.sum::<f64>() + check::sum_error(compute, &terms) / terms.iter().sum::<f64>().max(1.0);
            radii.extend(row.iter().zip(out).map(|(x, y)| match *y > 0.0 {
                // The last two are the sum's reciprocal, and the product with it.
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
        let split = Split::of(spec);
        let dtype = c_type(spec.inputs[0].dtype);
        let compute = spec.inputs[0].dtype.compute();
        let mut params = vec![format!("{dtype}* y"), format!("const {dtype}* x"), "C scale".into()];
        params.extend(["i64 sy".into(), "i64 sx".into()]);
        params.extend([geometry_param(&split.geometry), "u64 rows".into(), "u32 n".into()]);
        let mut args = vec![Arg::Operand(1), Arg::Operand(0)];
        args.push(match compute {
            DType::F64 => Arg::F64(spec.attrs.number("scale")),
            _ => Arg::F32(spec.attrs.number("scale") as f32),
        });
        args.extend(split.steps.map(Arg::U64));
        args.push(Arg::Words(geometry_words(&split.geometry)));
        args.extend([Arg::U64(split.rows), Arg::U32(split.length as u32)]);
        let before = format!(
            "typedef {} C;\n#define T {}\n#define V {}\n#define K {}\n#define BLOCK {}\n#define EVEN {}\n{HELPERS}",
            c_type(compute),
            split.threads,
            split.pack,
            split.packs,
            split.block(),
            split.length.is_multiple_of(split.threads * split.pack * split.packs),
        );
        let index = index_type(split.rows);
        let body = format!(
            "  u32 lane = threadIdx.x % T;\n  u64 row = (u64)blockIdx.x * (BLOCK / T) + threadIdx.x / T;\n  \
             bool live = row < rows;\n  {index} at = ({index})(live ? row : 0);\n  \
             const {dtype}* from = x + g.offset(at, 1);\n  {dtype}* to = y + g.offset(at, 0);\n{}",
            if split.whole { ONCE } else { TWICE }
        );
        vec![Launch::Kernel(Kernel {
            source: source("softmax", &before, &params, &body),
            grid: split.blocks(),
            block: split.block() as u32,
            shared: Shared::Bytes(0),
            args,
        })]
    }
}

/// What is done with a piece of a row, and across the threads of a row. `T` threads share a row, and each has `K` packs
/// of `V` elements of a piece.
const HELPERS: &str = r#"
#undef BOUNDS
#define BOUNDS __launch_bounds__(BLOCK)
#define LOWEST (-C(1) / C(0))
// Packs of a thread lie `T` packs apart, so that neighbours read neighbours. `EVEN` pieces need no look at the end.
#define EACH_PACK(start) \
  _Pragma("unroll") for (u32 k = 0; k < K; k++) \
    if (u32 j = (start) + (k * T + lane) * V; EVEN || j < n)
#define EACH _Pragma("unroll") for (int i = 0; i < V; i++)

template <typename E> __device__ inline void read(const E* from, i64 step, u32 j, C scale, C* v) {
  if (V > 1) {
    Pack<E, V> pack = *(const Pack<E, V>*)(from + j);
    EACH v[i] = load<C>(pack.at[i]) * scale;
  } else {
    v[0] = load<C>(from[j * step]) * scale;
  }
}

template <typename E> __device__ inline void write(E* to, i64 step, u32 j, const C* v) {
  if (V > 1) {
    Pack<E, V> pack;
    EACH store<C>(pack.at[i], v[i]);
    *(Pack<E, V>*)(to + j) = pack;
  } else {
    store<C>(to[j * step], v[0]);
  }
}

struct Larger { __device__ C operator()(C a, C b) const { return a > b ? a : b; } };
struct Sum { __device__ C operator()(C a, C b) const { return a + b; } };

// The same value in all threads of a row.
template <typename F> __device__ inline C across(C v, C none, F join) {
#pragma unroll
  for (int mask = (T < 32 ? T : 32) / 2; mask > 0; mask /= 2) v = join(v, SHUFFLE_XOR(v, mask));
  if (T > 32) {
    __shared__ C part[BLOCK / 32];
    u32 warp = threadIdx.x / 32, first = warp - warp % (T > 32 ? T / 32 : 1);
    __syncthreads();
    if (threadIdx.x % 32 == 0) part[warp] = v;
    __syncthreads();
    v = threadIdx.x % 32 < T / 32 ? part[first + threadIdx.x % 32] : none;
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) v = join(v, SHUFFLE_XOR(v, mask));
  }
  return v;
}
"#;

/// The row is in registers.
const ONCE: &str = r#"  C v[K][V], m = LOWEST, s = 0;
  EACH_PACK(0) { read(from, sx, j, scale, v[k]); }
  EACH_PACK(0) { EACH if (v[k][i] > m) m = v[k][i]; }
  m = across(m, LOWEST, Larger());
  EACH_PACK(0) { EACH { v[k][i] = f_exp(v[k][i] - m); s += v[k][i]; } }
  C share = C(1) / across(s, 0, Sum());
  if (!live) return;
  EACH_PACK(0) { EACH v[k][i] *= share; write(to, sy, j, v[k]); }
"#;

/// The row is read piece by piece, once for the sum and once for the result.
const TWICE: &str = r#"  C v[K][V], m = LOWEST, s = 0;
  for (u32 start = 0; start < n; start += T * V * K) {
    C top = m;
    EACH_PACK(start) { read(from, sx, j, scale, v[k]); }
    EACH_PACK(start) { EACH if (v[k][i] > top) top = v[k][i]; }
    if (top > m) { s *= f_exp(m - top); m = top; }
    if (m > LOWEST) { EACH_PACK(start) { EACH s += f_exp(v[k][i] - m); } }
    else { EACH_PACK(start) { EACH s += v[k][i] == LOWEST ? C(0) : v[k][i]; } }
  }
  C top = across(m, LOWEST, Larger());
  C share = C(1) / across(m > LOWEST ? s * f_exp(m - top) : s, 0, Sum());
  if (!live) return;
  for (u32 start = 0; start < n; start += T * V * K) {
    EACH_PACK(start) { read(from, sx, j, scale, v[k]); }
    EACH_PACK(start) { EACH v[k][i] = f_exp(v[k][i] - top) * share; write(to, sy, j, v[k]); }
  }
"#;
