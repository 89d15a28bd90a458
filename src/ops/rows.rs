//! Rows of tensors, for operations along the last dimension, and kernels that keep a row in registers.

use super::kernel::{EXP_BELOW, c_type, geometry_param, i64_param, index_type, param, u32_param, u64_param};
use super::layout::collapse;
use super::occupancy::{LARGEST_BLOCK, ROWS_BLOCK, SECTOR, UNIT_THREADS, UNITS, WARP, share};
use super::*;

/// Minimum number of bytes per thread, as long as enough threads remain: with less, too few loads are in flight.
const THREAD_BYTES: u64 = 16;

/// Minimum number of bytes and of elements, and maximum number of elements, of a row that a thread holds if there are enough threads.
const MIN_HELD_BYTES: u64 = 32;
const MIN_HELD: u64 = 8;
const MAX_HELD: u64 = 16;

/// Threads of a block that processes a chunk of a row, and minimum number of elements of a chunk.
const CHUNK_THREADS: u64 = 256;
const MIN_CHUNK: u64 = 2048;

/// Maximum length of a row for which a position, plus a pack, fits a signed 32-bit number.
const MAX_SHIFTED: u64 = 1 << 30;

/// Minimum length of a row, in packs, from which unaligned rows are read in aligned packs.
const WORTH_A_SHIFT: u64 = 8;

/// Rows of tensors that differ in the last dimension at most.
#[derive(Clone)]
pub struct Rows {
    /// Shape and strides of all dimensions but the last.
    pub geometry: Geometry,
    /// Number of rows.
    pub count: u64,
    /// Elements of a row of the first tensor.
    pub length: u64,
    /// Stride of each tensor along a row, in elements.
    pub steps: Vec<u64>,
}

impl Rows {
    /// Returns the rows of tensors with at least one dimension.
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

/// Length of a row of the first input, in elements.
pub fn row_length(spec: &Spec) -> usize {
    *spec.inputs[0].dims.last().expect("`needs_rows` has checked that there is a dimension") as usize
}

impl Call<'_> {
    /// Returns an error unless kernels can access every operand and row lengths of the first input fit 32 bits.
    pub(super) fn needs_rows(&self) -> Result<(), OpError> {
        self.needs_device()?;
        self.needs_rank(0, 1, "along the last of which it works")?;
        self.needs_row_length(*self.inputs[0].tensor.dims.last().expect("it has a dimension"))
    }

    /// Returns an error unless this row length of the first input fits 32 bits.
    pub(super) fn needs_row_length(&self, length: u64) -> Result<(), OpError> {
        if length <= i32::MAX as u64 {
            return Ok(());
        }
        let input = &self.inputs[0];
        Err(self.bad_shape(input, format!("rows of fewer than 2^31 elements, and not {length}")))
    }
}

/// Minimum number of packs per thread: with fewer, exchanging values costs more than it saves.
const MIN_PACKS: u64 = 4;

/// Registers of loaded elements per thread up to which a thread issues all of its loads before it computes.
pub const HELD: u64 = 48;

/// Size of a register in bytes.
const REGISTER: u64 = 4;

/// How threads divide rows that they hold in registers, in packs of contiguous elements.
pub struct Sharing {
    /// Elements per pack, which a thread loads at once.
    pub pack: u64,
    /// Packs per thread, in registers.
    pub packs: u64,
    /// Threads per row: a power of two, or several whole warps.
    pub threads: u64,
    /// Whether registers hold the whole row, so that it is read once.
    pub whole: bool,
}

impl Sharing {
    /// Returns the division of rows, for threads whose registers hold at most `most` elements.
    pub fn of(rows: &Rows, pack: u64, most: u64) -> Sharing {
        let length = rows.length;
        let mut threads = match length <= WARP * most {
            true => length.div_ceil(pack).next_power_of_two().min(WARP),
            // Whole warps, whose threads use about half of their registers.
            false => length.div_ceil(most / 2).next_multiple_of(WARP).min(LARGEST_BLOCK),
        };
        // Few rows have more threads each, as long as every thread keeps some packs.
        let has_room = |threads: u64| 2 * threads <= LARGEST_BLOCK && 2 * threads * rows.count <= UNITS * UNIT_THREADS;
        while threads >= WARP && length > threads * pack * MIN_PACKS && has_room(threads) {
            threads *= 2;
        }
        let whole = length <= threads * most;
        let packs = if whole { length.div_ceil(threads * pack) } else { most / 2 / pack };
        Sharing { pack, packs, threads, whole }
    }

    /// Number of registers that a pack takes as it is loaded, `width` elements at a time.
    pub fn registers(&self, width: u64, dtype: DType) -> u64 {
        self.pack / width * (width * dtype.size()).div_ceil(REGISTER)
    }

    /// Threads per block: those of one row, or of as many rows as fit [`ROWS_BLOCK`].
    pub fn block(&self) -> u64 {
        self.threads * self.block_rows()
    }

    pub fn block_rows(&self) -> u64 {
        (ROWS_BLOCK / self.threads).max(1)
    }
}

/// How threads divide rows, for an operation that maps each row of its input to a row of its output.
pub struct RowSplit {
    /// The rows of the output, then of the input.
    rows: Rows,
    /// Elements per pack, which a thread loads at once.
    pack: u64,
    /// Whether rows may start between two packs. Then the first and the last pack of a row are partial.
    shifted: bool,
    /// Packs per thread, in registers.
    packs: u64,
    /// Threads per row, or per chunk of a row; a power of two.
    threads: u64,
    /// Rows per thread, for short rows.
    several: u64,
    /// Chunks per row, each processed by a block, for few and long rows; otherwise 1.
    chunks: u64,
    /// Whether registers hold the whole row, so that it is read once.
    pub whole: bool,
    /// Whether the rows of a block are contiguous and staged in shared memory, by packs that may span rows.
    pub staged: bool,
}

/// Kernel bodies for rows, which use [`HELPERS`].
pub struct RowBodies {
    /// Body for rows that registers hold.
    pub once: &'static str,
    /// Body for longer rows, which are read twice in pieces: for their sums and for the result.
    pub twice: &'static str,
    /// Bodies for rows that several blocks share: the first writes the values of a chunk to `parts`, the second the
    /// result.
    pub chunks: [&'static str; 2],
}

impl RowSplit {
    /// Returns the division for the first output and the first input.
    pub fn of(spec: &Spec) -> RowSplit {
        let tensors = [&spec.outputs[0], &spec.inputs[0]];
        let (rows, size) = (Rows::of(&tensors), tensors[0].dtype.size());
        let length = rows.length;
        let aligned = common_pack(&tensors);
        let widest = 16 / size;
        let shifted = is_shifted(&tensors);
        let pack = if shifted { widest } else { aligned };
        // Number of elements from the pack in which a row starts to the one in which it ends.
        let reach = if shifted { length + pack - 1 } else { length };
        // Elements per thread in registers: 32 floats, or half as many doubles.
        let most = if tensors[0].dtype == DType::F64 { 16 } else { 32 };
        let held = most / pack;
        let whole = reach <= LARGEST_BLOCK * held * pack;
        // A block per chunk that fits the registers of some warps, so that an SM holds several blocks; more chunks if
        // needed to use all SMs.
        let chunks = match whole || rows.count >= UNITS {
            true => 1,
            false => {
                let wanted = UNITS.div_ceil(rows.count).min(length / MIN_CHUNK);
                let chunks = length.div_ceil(CHUNK_THREADS * held * pack - pack).max(wanted);
                // No chunk is empty.
                length.div_ceil(length.div_ceil(chunks).next_multiple_of(pack))
            }
        };
        let (threads, packs) = match whole {
            _ if chunks > 1 => {
                let packs = length.div_ceil(chunks).div_ceil(pack) + u64::from(shifted);
                // A block processes one chunk.
                registers([packs, pack, size], held, ROWS_BLOCK, UNITS * UNIT_THREADS / (rows.count * chunks))
            }
            true => {
                let packs = reach.div_ceil(pack);
                // Neighbouring threads read the same memory sector, unless each thread has a row of its own.
                let least = if length * size <= THREAD_BYTES { 1 } else { SECTOR / (pack * size) };
                let least = least.clamp(1, packs.next_power_of_two());
                registers([packs, pack, size], held, least, UNITS * UNIT_THREADS / rows.count)
            }
            false => (LARGEST_BLOCK, held / 2),
        };
        let spare = rows.count * threads / (UNITS * UNIT_THREADS);
        let wanted = THREAD_BYTES.div_ceil(packs * pack * size);
        let several = if whole { wanted.min(spare).max(1) } else { 1 };
        let mut split = RowSplit { rows, pack, shifted, packs, threads, several, chunks, whole, staged: false };
        if whole && aligned == 1 && widest > 1 && tensors.iter().all(|tensor| side_by_side(tensor)) {
            split.stage(widest, most);
        }
        split
    }

    /// Stages rows in shared memory if the rows of each block start at a pack.
    fn stage(&mut self, widest: u64, most: u64) {
        let (threads, each) =
            registers([self.rows.length, 1, 16 / widest], most, 1, UNITS * UNIT_THREADS / self.rows.count.max(1));
        let spare = self.rows.count * threads / (UNITS * UNIT_THREADS);
        let several = (THREAD_BYTES / (each * 16 / widest)).min(spare).max(1);
        let mut staged = RowSplit {
            pack: 1,
            shifted: false,
            packs: each,
            threads,
            several,
            staged: true,
            rows: self.rows.clone(),
            ..*self
        };
        // Few rows are spread over more threads, so that there is a block for each SM.
        while staged.blocks() < UNITS && 2 * staged.threads <= (ROWS_BLOCK / widest).min(WARP) {
            staged.threads *= 2;
            staged.packs = staged.rows.length.div_ceil(staged.threads);
        }
        if threads <= WARP && staged.block_rows().is_multiple_of(widest) {
            *self = staged;
        }
    }

    /// Rows per block.
    fn block_rows(&self) -> u64 {
        self.several * self.block() / self.threads
    }

    /// Elements per chunk. Each chunk starts at a pack.
    fn chunk(&self) -> u64 {
        self.rows.length.div_ceil(self.chunks).next_multiple_of(self.pack)
    }

    /// Number of threads that process part of a row, over all rows.
    pub fn all_threads(&self) -> u64 {
        self.rows.count * self.threads * self.chunks / self.several
    }

    /// Whether the threads of a row belong to several warps.
    pub fn several_warps(&self) -> bool {
        self.threads > 32
    }

    /// Number of packs of every thread that begin inside the row, chunk or piece for certain.
    fn full(&self) -> u64 {
        let piece = self.threads * self.pack;
        match self.whole || self.chunks > 1 {
            true => (self.rows.length - (self.chunks - 1) * self.chunk()) / piece,
            false if self.rows.length.is_multiple_of(piece * self.packs) => self.packs,
            false => 0,
        }
    }

    fn block(&self) -> u64 {
        self.threads.max(ROWS_BLOCK)
    }

    fn blocks(&self) -> u64 {
        self.rows.count.div_ceil(self.block_rows()).max(1) * self.chunks
    }

    /// The cost of a kernel that reads each row once if registers hold it, otherwise twice.
    pub fn cost(&self, spec: &Spec, flops: f64) -> Cost {
        Cost {
            reread: if self.whole { Traffic::NONE } else { Spec::bytes_of(&spec.inputs) },
            blocks: self.blocks() * if self.chunks > 1 { 2 } else { 1 },
            share: share(self.block()),
            ..spec.streaming_cost(flops, 1)
        }
    }

    /// Returns the kernels with this name, which multiply elements by `scale` as they read them. The workspace has `part` values of the compute type
    /// per chunk.
    pub fn launch(&self, name: &str, spec: &Spec, scale: f64, part: u64, bodies: &RowBodies) -> Vec<Launch> {
        let RowSplit { rows, .. } = self;
        let (dtype, compute) = (c_type(spec.inputs[0].dtype), spec.inputs[0].dtype.compute());
        let mut params = vec![
            param(format!("{dtype}* y"), Arg::Operand(1)),
            param(format!("const {dtype}* x"), Arg::Operand(0)),
            param("C scale", Arg::real(compute, scale)),
            i64_param("sy", rows.steps[0]),
            i64_param("sx", rows.steps[1]),
            geometry_param("g", &rows.geometry),
            u64_param("rows", rows.count),
            u32_param("n", rows.length),
        ];
        if self.chunks > 1 {
            params.push(param("C* parts", Arg::Workspace(rows.count * self.chunks * part * compute.size())));
        }
        let before = format!(
            "typedef {} C;\n#define T {}\n#define V {}\n#define K {}\n#define R {}\n#define BLOCK {}\n#define CHUNKS {}\n\
             #define SHIFTED {}\n#define FULL {}\n#define BESIDE {}\n#define SCALED(x) {}\n{EXP_BELOW}{HELPERS}",
            c_type(compute),
            self.threads,
            self.pack,
            self.packs,
            self.several,
            self.block(),
            self.chunks,
            u32::from(self.shifted),
            self.full(),
            rows.steps.iter().all(|step| *step == 1),
            if scale == 1.0 { "(x)" } else { "((x) * scale)" },
        );
        let index = index_type(rows.count);
        // The second kernel of chunks starts with those that the first one has read last, which a cache may hold.
        let place = |block: &str| {
            format!(
                "  const u32 block = {block};\n  u64 row = (u64)block / CHUNKS * (R * (BLOCK / T)) + threadIdx.x / T;\n  \
             const {dtype}* from[R];\n  {dtype}* to[R];\n  bool live[R];\n  Place shift[R];\n  EACH_ROW {{\n    \
             live[r] = row + r * (BLOCK / T) < rows;\n    {index} at = ({index})(live[r] ? row + r * (BLOCK / T) : 0);\n    \
             from[r] = x + g.offset(at, 1);\n    to[r] = y + g.offset(at, 0);\n    \
             shift[r] = SHIFTED ? (Place)((u64)from[r] / sizeof({dtype}) % V) : 0;\n  }}\n"
            )
        };
        let forward = place("blockIdx.x");
        let chunk = self.chunk();
        let of_chunk = format!(
            "  u32 chunk = block % CHUNKS, begin = chunk * {chunk}u;\n  from[0] += (i64)begin * sx;\n  \
             to[0] += (i64)begin * sy;\n  n = begin < n ? n - begin < {chunk}u ? n - begin : {chunk}u : 0;\n"
        );
        let launch = |name: &str, body: String| {
            kernel::launch(name, &before, &params, &body, self.blocks(), self.block() as u32)
        };
        match self.chunks {
            1 if self.staged => {
                let list = format!("  const u32 ROWS = {}, LENGTH = {};\n", self.block_rows(), rows.length);
                vec![launch(name, format!("{forward}{list}{STAGE}{}{UNSTAGE}", bodies.once))]
            }
            1 => vec![launch(name, format!("{forward}{}", if self.whole { bodies.once } else { bodies.twice }))],
            _ => vec![
                launch(&format!("{name}_parts"), format!("{forward}{of_chunk}{}", bodies.chunks[0])),
                launch(name, format!("{}{of_chunk}{}", place("gridDim.x - 1 - blockIdx.x"), bodies.chunks[1])),
            ],
        }
    }
}

/// Whether a tensor is contiguous and aligned to 16 bytes.
fn side_by_side(tensor: &Tensor) -> bool {
    tensor.contiguous() && tensor.align >= 16
}

/// Loads a block's rows to shared memory, where the body reads and overwrites them.
const STAGE: &str = r#"  typedef Pack<u32, 4> Packed;
  __shared__ Packed staged[(ROWS * LENGTH * sizeof(*x) + 15) / 16];
  const u64 begin = (u64)block * ROWS * LENGTH, behind = rows * LENGTH;
  const u32 count = behind - begin < ROWS * LENGTH ? (u32)(behind - begin) : ROWS * LENGTH, each = 16 / sizeof(*x);
  // A pack never crosses the end of allocated memory.
  for (u32 i = threadIdx.x; i * each < count; i += BLOCK) staged[i] = ((const Packed*)(x + begin))[i];
  __syncthreads();
  EACH_ROW {
    auto* own = (decltype(y))staged + (threadIdx.x / T + r * (BLOCK / T)) * LENGTH;
    from[r] = own;
    to[r] = own;
  }
"#;

/// Stores the rows from shared memory.
const UNSTAGE: &str = r#"  __syncthreads();
  for (u32 i = threadIdx.x; i * each < count; i += BLOCK) {
    if ((i + 1) * each <= count) ((Packed*)(y + begin))[i] = staged[i];
    else for (u32 e = i * each; e < count; e++) y[begin + e] = ((decltype(y))staged)[e];
  }
"#;

/// Largest pack that is aligned in the rows of all these tensors, in elements.
pub fn common_pack(tensors: &[&Tensor]) -> u64 {
    tensors.iter().map(|tensor| pack(tensor)).min().unwrap_or(1)
}

/// Largest pack of at most 16 bytes, in elements, that is aligned everywhere in the rows of a tensor and divides them.
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

/// Returns the number of threads per row, a power of two of at least `least`, and of packs per thread, `most` at most,
/// whose registers hold `packs` packs. If the device has space for a thread per pack, it uses that many; a single warp
/// may have two packs per thread, which is faster than an exchange with another warp. Otherwise it prefers, among
/// divisions with little waste, about as many elements per thread as fill the device, from [`MIN_HELD`] to [`MAX_HELD`]. A pack has `pack` elements of `size` bytes.
fn registers([packs, pack, size]: [u64; 3], most: u64, least: u64, room: u64) -> (u64, u64) {
    let splits = (least.ilog2()..=LARGEST_BLOCK.ilog2()).map(|bits| (1u64 << bits, packs.div_ceil(1 << bits)));
    let splits: Vec<(u64, u64)> = splits.filter(|(_, each)| *each <= most).collect();
    let wanted = (packs * pack / room.max(1)).clamp((MIN_HELD_BYTES / size).clamp(MIN_HELD, MAX_HELD), MAX_HELD);
    let fewest = splits.iter().map(|(threads, each)| threads * each).min().unwrap_or(1);
    let cost = |(threads, each): &(u64, u64)| match packs.next_power_of_two() <= room {
        true => (if *threads == WARP { each.div_ceil(2) } else { *each }, *threads),
        false if threads * each * 4 <= fewest * 5 => (0, (each * pack).abs_diff(wanted)),
        false => (threads * each, (each * pack).abs_diff(wanted)),
    };
    splits.iter().min_by_key(|split| cost(split)).copied().unwrap_or((LARGEST_BLOCK, most))
}

/// Whether long rows are read in aligned packs of 16 bytes, of which the first and the last of a row can be partial, because no
/// pack divides the rows.
pub fn is_shifted(tensors: &[&Tensor]) -> bool {
    let widest = 16 / tensors[0].dtype.size();
    let length = tensors[0].dims.last().copied().unwrap_or(1);
    let is_long = (WORTH_A_SHIFT * widest..MAX_SHIFTED).contains(&length);
    common_pack(tensors) == 1 && widest > 1 && is_long && shift_alike(tensors, widest)
}

/// Whether rows of all tensors have the same misalignment relative to `widest` elements.
fn shift_alike(tensors: &[&Tensor], widest: u64) -> bool {
    let lead = tensors[0].dims.len() - 1;
    tensors.iter().all(|tensor| {
        let shifts = tensor.strides[..lead].iter().zip(tensors[0].strides.iter());
        tensor.strides[lead] == 1
            && u64::from(tensor.align) == widest * tensor.dtype.size()
            && shifts.into_iter().all(|(own, other)| own % widest == other % widest)
    })
}

/// Functions on a piece of a row, and across the threads of a row. `T` threads share a row. Each holds `K` packs of
/// `V` elements of each of `R` rows. Row `r` is read at `from[r]` and written at `to[r]` if `live[r]`. With `CHUNKS`,
/// `n` is the length of the block's chunk.
const HELPERS: &str = r#"
#undef BOUNDS
#define BOUNDS __launch_bounds__(BLOCK)
#define LOWEST (-C(INFINITE))
#define EACH_ROW _Pragma("unroll") for (u32 r = 0; r < R; r++)
// The packs of a thread are `T` packs apart, so that neighbouring threads access neighbouring packs. The first `FULL` packs
// begin inside every row; contiguous (`BESIDE`) elements need no stride.
#if SHIFTED
typedef i32 Place;
#else
typedef u32 Place;
#endif
#define PLACE(start, shift) ((Place)((start) + (k * T + threadIdx.x % T) * V) - (shift))
#define EACH_PACK_OF(start, shift) \
  _Pragma("unroll") for (u32 k = 0; k < K; k++) \
    if (const Place j = PLACE(start, shift); k < FULL || j < (Place)n)
#define EACH_PACK(start) EACH_PACK_OF(start, shift[r])
#define EACH _Pragma("unroll") for (int i = 0; i < V; i++)
#define EACH_HELD _Pragma("unroll") for (u32 k = 0; k < K; k++) EACH

// Whether a pack is entirely inside the row. The first and last pack of a shifted row may not be.
__device__ inline bool inside(Place j, u32 n) { return j >= 0 && j + (SHIFTED ? V : 1) <= (Place)n; }

// Loads the packs of a thread from element `start` of a row on, all before the first is used, and multiplies them by a
// factor. Elements outside of the row become the lowest value. A pack may start before its row or end after it, which is
// safe because a pack never crosses the end of allocated memory.
template <typename E> __device__ inline void read(const E* from, i64 step, u32 start, Place shift, u32 n, C scale, C (*v)[V]) {
  Pack<E, V> packs[K] = {};
  EACH_PACK_OF(start, shift) {
    if (V > 1) packs[k] = *(const Pack<E, V>*)(from + j);
    else packs[k].at[0] = from[BESIDE ? j : j * step];
  }
#pragma unroll
  for (u32 k = 0; k < K; k++) {
    const Place j = PLACE(start, shift);
    if ((k < FULL && !(SHIFTED && k == 0)) || inside(j, n)) {
      EACH v[k][i] = SCALED(load<C>(packs[k].at[i]));
    } else {
      const i32 low = -(i32)j, high = (i32)(n - j);
      EACH v[k][i] = !SHIFTED || i < low || i >= high ? LOWEST : SCALED(load<C>(packs[k].at[i]));
    }
  }
}

template <typename E> __device__ inline void write(E* to, i64 step, Place j, u32 n, const C* v) {
  if (V > 1 && (!SHIFTED || inside(j, n))) {
    Pack<E, V> pack;
    EACH store<C>(pack.at[i], v[i]);
    *(Pack<E, V>*)(to + j) = pack;
  } else {
    const i32 low = -(i32)j, high = (i32)(n - j);
    E* first = to + (BESIDE ? j : j * step);
    EACH if (!SHIFTED || (i >= low && i < high)) store<C>(first[BESIDE ? i : i * step], v[i]);
  }
}

// The larger value. If the first one is no number, it is the second one.
__device__ inline f32 larger(f32 a, f32 b) { return fmaxf(a, b); }
__device__ inline f64 larger(f64 a, f64 b) { return a > b ? a : b; }
struct Larger { __device__ C operator()(C a, C b) const { return larger(a, b); } };
struct Sum { __device__ C operator()(C a, C b) const { return a + b; } };

// Combines the values of all threads of a row; each thread receives the result.
template <typename F> __device__ inline C across(C v, C none, F join) {
#pragma unroll
  for (int mask = (T < 32 ? T : 32) / 2; mask > 0; mask /= 2) v = join(v, SHUFFLE_XOR(v, mask));
  if (T > 32) {
    // Each function has an own array.
    __shared__ C part[BLOCK / 32];
    u32 warp = threadIdx.x / 32, first = warp - warp % (T > 32 ? T / 32 : 1);
    if (R > 1) __syncthreads();
    if (threadIdx.x % 32 == 0) part[warp] = v;
    __syncthreads();
    v = threadIdx.x % 32 < T / 32 ? part[first + threadIdx.x % 32] : none;
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) v = join(v, SHUFFLE_XOR(v, mask));
  }
  return v;
}
"#;
