//! The rows of tensors, for operations along the last dimension, and kernels that keep a row in registers.

use crate::base::{DType, Dims};

use super::kernel::{c_type, geometry_param, geometry_words, index_type, source};
use super::layout::collapse;
use super::*;

/// Threads of a block at most, which share one row.
const MOST_THREADS: u64 = 1024;

/// Threads of a block that has several rows.
const SEVERAL_ROWS: u64 = 128;

/// Threads that a compute unit has room for, NVIDIA's and AMD's.
const UNIT_THREADS: u64 = 2048;

/// The rows of tensors whose dimensions differ in the last at most.
pub struct Rows {
    /// The walk over all dimensions but the last.
    pub geometry: Geometry,
    /// Number of rows.
    pub count: u64,
    /// Elements of a row of the first tensor.
    pub length: u64,
    /// For each tensor, the distance between neighbours in a row, in elements.
    pub steps: Vec<u64>,
}

impl Rows {
    /// The rows of tensors of one dimension at least.
    pub fn of(tensors: &[&Tensor]) -> Rows {
        let lead = tensors[0].dims.len() - 1;
        let all_but_last = |sizes: &Dims| Dims::from_slice(&sizes[..lead]).unwrap_or_default();
        let dims = all_but_last(&tensors[0].dims);
        let strides: Vec<Dims> = tensors.iter().map(|tensor| all_but_last(&tensor.strides)).collect();
        Rows {
            geometry: collapse(dims, &strides),
            count: dims.iter().product(),
            length: tensors[0].dims[lead],
            steps: tensors.iter().map(|tensor| tensor.strides[lead]).collect(),
        }
    }
}

/// Elements of a row of the first input.
pub fn row_length(spec: &Spec) -> usize {
    *spec.inputs[0].dims.last().expect("`needs_rows` has checked that there is a dimension") as usize
}

impl Call<'_> {
    /// Fails unless a kernel reaches every operand, and the first input has rows that 32 bits can count.
    pub(super) fn needs_rows(&self) -> Result<(), OpError> {
        self.needs_device()?;
        self.needs_rank(0, 1, "along the last of which it works")?;
        let input = &self.inputs[0];
        match input.tensor.dims.last() {
            Some(&length) if length > u64::from(u32::MAX >> 1) => Err(OpError::Rank {
                op: self.operation.name(),
                needs: "rows of at most 2^31 elements".to_owned(),
                found: input.tensor.to_string(),
                at: input.span.into(),
            }),
            _ => Ok(()),
        }
    }
}

/// How the threads of a kernel share rows, for an operation that makes a row of its output from a row of its input.
pub struct RowSplit {
    /// The rows of the output, then of the input.
    rows: Rows,
    /// Elements that a thread reads as one.
    pack: u64,
    /// Packs that a thread has in registers.
    packs: u64,
    /// Threads that share a row; a power of two.
    threads: u64,
    /// The registers of a row's threads hold all of it, so that it is read once.
    pub whole: bool,
}

impl RowSplit {
    /// The split for the first output and the first input.
    pub fn of(spec: &Spec) -> RowSplit {
        let tensors = [&spec.outputs[0], &spec.inputs[0]];
        let rows = Rows::of(&tensors);
        let length = rows.length;
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
        RowSplit { rows, pack, packs, threads, whole }
    }

    /// Number of threads that have a part of a row, over all rows.
    pub fn all_threads(&self) -> u64 {
        self.rows.count * self.threads
    }

    /// Whether the threads of a row are those of several warps.
    pub fn several_warps(&self) -> bool {
        self.threads > 32
    }

    fn block(&self) -> u64 {
        self.threads.max(SEVERAL_ROWS)
    }

    fn blocks(&self) -> u64 {
        self.rows.count.div_ceil(self.block() / self.threads).max(1)
    }

    /// The cost of a kernel that reads a row once where registers hold it, and else twice.
    pub fn cost(&self, spec: &Spec, flops: f64) -> Cost {
        Cost {
            reread: if self.whole { Traffic::NONE } else { Spec::bytes_of(&spec.inputs) },
            blocks: self.blocks(),
            share: (self.block() * u64::from(Cost::WHOLE_UNIT) / UNIT_THREADS) as u32,
            ..spec.streaming_cost(flops, 1)
        }
    }

    /// The kernel of that name with a scalar parameter. `once` is its body where registers hold a row, `twice` where they
    /// do not; both use the helpers of [`HELPERS`], and return before they write where `live` is false.
    pub fn launch(&self, name: &str, spec: &Spec, scalar: (&str, f64), once: &str, twice: &str) -> Launch {
        let RowSplit { rows, .. } = self;
        let (dtype, compute) = (c_type(spec.inputs[0].dtype), spec.inputs[0].dtype.compute());
        let params = [
            format!("{dtype}* y"),
            format!("const {dtype}* x"),
            format!("C {}", scalar.0),
            "i64 sy".into(),
            "i64 sx".into(),
            geometry_param(&rows.geometry),
            "u64 rows".into(),
            "u32 n".into(),
        ];
        let scalar = match compute {
            DType::F64 => Arg::F64(scalar.1),
            _ => Arg::F32(scalar.1 as f32),
        };
        let args = vec![
            Arg::Operand(1),
            Arg::Operand(0),
            scalar,
            Arg::U64(rows.steps[0]),
            Arg::U64(rows.steps[1]),
            Arg::Words(geometry_words(&rows.geometry)),
            Arg::U64(rows.count),
            Arg::U32(rows.length as u32),
        ];
        let before = format!(
            "typedef {} C;\n#define T {}\n#define V {}\n#define K {}\n#define BLOCK {}\n#define EVEN {}\n{HELPERS}",
            c_type(compute),
            self.threads,
            self.pack,
            self.packs,
            self.block(),
            rows.length.is_multiple_of(self.threads * self.pack * self.packs),
        );
        let index = index_type(rows.count);
        let body = format!(
            "  u32 lane = threadIdx.x % T;\n  u64 row = (u64)blockIdx.x * (BLOCK / T) + threadIdx.x / T;\n  \
             bool live = row < rows;\n  {index} at = ({index})(live ? row : 0);\n  \
             const {dtype}* from = x + g.offset(at, 1);\n  {dtype}* to = y + g.offset(at, 0);\n{}",
            if self.whole { once } else { twice }
        );
        Launch::Kernel(Kernel {
            source: source(name, &before, &params, &body),
            grid: self.blocks(),
            block: self.block() as u32,
            shared: Shared::Bytes(0),
            args,
        })
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

/// Functions on a piece of a row, and across the threads of a row. `T` threads share a row, and each has `K` packs
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

// Reads a pack, and multiplies it by a factor.
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
