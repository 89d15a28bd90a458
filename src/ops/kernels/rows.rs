//! Rows of tensors, for operations along the last dimension, and kernels whose threads hold a row in registers.

use std::borrow::Cow;

use super::kernel::{
    self, EXP_BELOW, Parameter, c_type, geometry_param, i64_param, index_type, param, u32_param, u64_param,
};
use super::occupancy::{BUSY_BLOCKS, CACHE, LARGEST_BLOCK, ROWS_BLOCK, SECTOR, UNIT_THREADS, UNITS, WARP, share_with};
use super::row_stage::{STAGE, STAGED_ROWS, UNSTAGE};
use crate::base::{DType, Dims};
use crate::ops::layout::{collapse, halves};
use crate::ops::{Arg, Cost, Geometry, Launch, Spec, Tensor, Traffic};

/// Number of bytes per thread below which a thread gets several rows, if [`BUSY_BLOCKS`] remain: fewer bytes mean too few loads in flight.
const THREAD_BYTES: u64 = 16;

/// Maximum number of loads of a thread whose row has fewer threads than a warp: an SM looks up a cache line of each row and load in a cycle,
/// and the memory delivers a line to each of [`UNITS`] SMs in about seven cycles.
const PART_LOADS: u64 = 7;
/// Maximum number of bytes that a thread loads whose row has fewer threads than a warp.
const PART_BYTES: u64 = SECTOR;

/// Number of elements per thread above which a row with fewer threads than a warp gets more of them, if the device has room.
const FEW: u64 = 4;
/// Maximum number of threads of a row for which threads are added only because the device has room for them.
const MAX_ADDED: u64 = 256;

/// Threads of a block that processes a chunk of a row.
const CHUNK_THREADS: u64 = 256;
/// Minimum number of elements per thread in a chunk.
const MIN_OF_CHUNK: u64 = 8;

/// Threads per row if registers cannot hold the row, which is then read in pieces.
const PIECE_THREADS: u64 = 512;

/// Minimum length in elements of rows that are read in shifted packs, which may begin before a row and end after it, if
/// no pack divides the rows. Partial packs at both ends of a row take many instructions.
const MIN_SHIFTED: u64 = 512;
/// Size in bytes of shifted packs: of rows that are read once, and of rows that are read in pieces. Partial packs of 16
/// bytes take twice the instructions of 8; in pieces, most packs are whole.
const SHIFTED_BYTES: [u64; 2] = [8, 16];

/// Size of a row in bytes below which rows are staged in shared memory if no packs of 16 bytes divide them. Otherwise, each store of a warp
/// would write parts of many sectors.
const STAGED_BYTES: u64 = 64;
/// Size in bytes of an output up to which SMs merge stores to parts of sectors, so that rows are not staged: 17 KiB for each SM are fast on
/// an H200, and 20 KiB take three times as long (docs/measurements/2026-11-29-narrow-rows.md).
const MERGED_BYTES: u64 = UNITS * (18 << 10);

/// Maximum length of a row in elements for which a position plus a pack fits a signed 32-bit number.
const MAX_SHIFTED: u64 = 1 << 30;
/// Minimum length of a row, in packs, for which rows without alignment are read in aligned packs.
const WORTH_A_SHIFT: u64 = 8;

/// Rows of tensors whose shapes agree in all dimensions but the last.
#[derive(Clone)]
pub struct Rows {
    /// Shape of all dimensions but the last, with the strides of each tensor.
    pub geometry: Geometry,
    /// Number of rows.
    pub count: u64,
    /// Number of elements of a row of the first tensor.
    pub length: u64,
    /// Stride of each tensor along a row, in elements.
    pub steps: Vec<u64>,
}

impl Rows {
    /// Returns the rows of tensors, which must have at least one dimension.
    pub fn of(tensors: &[&Tensor]) -> Rows {
        let lead = tensors[0].dims.len() - 1;
        let dims = tensors[0].dims.part(..lead);
        let strides: Vec<Dims> = tensors.iter().map(|tensor| tensor.strides.part(..lead)).collect();
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

/// Minimum number of packs per thread if further threads are added to a row: with fewer packs, exchanging values costs
/// more than the threads save.
pub const MIN_PACKS: u64 = 4;

/// Maximum number of threads of a row that use only half of their registers for elements.
const MAX_HALF_FILLED: u64 = 512;

/// Number of registers for loaded elements up to which a thread issues all of its loads before it computes.
pub const HELD: u64 = 48;

/// Size of a register in bytes.
const REGISTER: u64 = 4;

/// Registers of a thread besides those for the elements that it holds: a softmax of 22 elements has 42 in code for sm_90a by NVRTC 13.0.
pub const OTHER_REGISTERS: u64 = 20;

/// Division among threads of rows that they hold in registers, by packs of contiguous elements.
pub struct Sharing {
    /// Elements per pack, which a thread loads by one instruction.
    pub pack: u64,
    /// Packs per thread, in registers.
    pub packs: u64,
    /// Threads per row: a power of two, or several whole warps.
    pub threads: u64,
    /// True if the registers of the threads hold the whole row, so that it is read once.
    pub whole: bool,
}

impl Sharing {
    /// Returns the division of rows into packs of `pack` elements, for threads whose registers hold at most `most`
    /// elements.
    pub fn of(rows: &Rows, pack: u64, most: u64) -> Sharing {
        let length = rows.length;
        let mut threads = match length <= WARP * most {
            true => length.div_ceil(pack).next_power_of_two().min(WARP),
            // Whole warps, whose threads use about half of their registers.
            false => {
                let threads = length.div_ceil(most / 2).next_multiple_of(WARP);
                // Two large blocks would fill an SM, and would wait at the same time.
                match threads <= MAX_HALF_FILLED {
                    true => threads,
                    false => length.div_ceil(most).next_multiple_of(WARP).min(LARGEST_BLOCK),
                }
            }
        };
        // If there are few rows, each gets more threads, as long as every thread keeps some packs.
        let has_room = |threads: u64| 2 * threads <= LARGEST_BLOCK && 2 * threads * rows.count <= UNITS * UNIT_THREADS;
        while threads >= WARP && length > threads * pack * MIN_PACKS && has_room(threads) {
            threads *= 2;
        }
        let whole = length <= threads * most;
        let packs = if whole { length.div_ceil(threads * pack) } else { most / 2 / pack };
        Sharing { pack, packs, threads, whole }
    }

    /// Number of registers for a pack whose elements are loaded `width` at a time.
    pub fn registers(&self, width: u64, dtype: DType) -> u64 {
        self.pack / width * (width * dtype.size()).div_ceil(REGISTER)
    }

    /// Threads per block: those of one row, or of as many rows as fit [`ROWS_BLOCK`].
    pub fn block(&self) -> u64 {
        self.threads * self.block_rows()
    }

    /// Rows per block.
    pub fn block_rows(&self) -> u64 {
        (ROWS_BLOCK / self.threads).max(1)
    }
}

/// Division of rows among threads, for an operation that maps each row of its input to a row of its output.
pub struct RowSplit {
    /// The rows of the output, then of the input.
    rows: Rows,
    /// Elements per pack, which a thread loads by one instruction.
    pack: u64,
    /// True if rows may begin inside a pack, so that the first and the last pack of a row may be partial.
    shifted: bool,
    /// Packs per thread, in registers.
    packs: u64,
    /// Threads per row, or per chunk of a row; a power of two.
    threads: u64,
    /// Rows per thread, for short rows.
    several: u64,
    /// Chunks per row, each processed by a block, for few and long rows; otherwise 1.
    chunks: u64,
    /// True if the registers of the threads hold the whole row, so that it is read once.
    pub whole: bool,
    /// True if the rows of a block are staged in shared memory, by packs that may hold elements of several rows.
    pub staged: bool,
}

/// Bodies of the kernels for rows, which use [`HELPERS`].
pub struct RowBodies {
    /// Body for rows that registers hold.
    pub once: &'static str,
    /// Body for longer rows, which are read in pieces twice: first for the values of the whole row, then for the
    /// result.
    pub twice: &'static str,
    /// Bodies for rows that several blocks share. The first one writes the values of a chunk to `parts`, the second one
    /// the result.
    pub chunks: [&'static str; 2],
}

/// The result of an element as a function of the value that a kernel of rows computes for it.
pub struct RowResult {
    /// Parameters of the function.
    pub params: Vec<Parameter>,
    /// Kernel text that declares values of each of the `R` rows.
    pub declared: Cow<'static, str>,
    /// Kernel text that sets the values of row `r`. `g.offset(at, 2)` is the offset of its element in the first of the tensors with an
    /// element for each row.
    pub of_row: Cow<'static, str>,
    /// Kernel text of the result of value `p` of element `e` of row `r`.
    pub text: Cow<'static, str>,
}

impl RowResult {
    /// The value itself.
    pub const VALUE: RowResult = RowResult {
        params: Vec::new(),
        declared: Cow::Borrowed(""),
        of_row: Cow::Borrowed(""),
        text: Cow::Borrowed("(p)"),
    };
}

impl RowSplit {
    /// Returns the division for the first input and the first output.
    pub fn of(spec: &Spec) -> RowSplit {
        RowSplit::beside(spec, &[])
    }

    /// Returns the division for the first input and the first output of rows that kernels read elements of other tensors for.
    /// `of_rows` have the shape of the rows, and one element for each.
    pub fn beside(spec: &Spec, of_rows: &[Tensor]) -> RowSplit {
        let tensors = [&spec.outputs[0], &spec.inputs[0]];
        let all: Vec<&Tensor> = tensors.into_iter().chain(of_rows).collect();
        let (rows, size) = (Rows::of(&all), tensors[0].dtype.size());
        let Rows { count, length, .. } = rows;
        // Elements per thread in registers: 32 floats, or half as many doubles.
        let most = if tensors[0].dtype == DType::F64 { 16 } else { 32 };
        let room = UNITS * UNIT_THREADS;
        let is_long = length > LARGEST_BLOCK * most;
        // A block has a chunk of a row if blocks with a row each would leave SMs idle, or if the cache cannot hold the rows of resident
        // blocks until they are read again.
        let resident = count.min(BUSY_BLOCKS) * length * size;
        let has_chunks = is_long && (2 * count < UNITS || resident > CACHE);
        let shift = SHIFTED_BYTES[usize::from(is_long && !has_chunks)] / size;
        let shifted = length >= MIN_SHIFTED && common_pack(&tensors) == 1 && is_shifted(&tensors, shift);
        let pack = if shifted { shift } else { common_pack(&tensors) };
        // Number of packs with elements of a row, which may begin inside a pack.
        let all = (if shifted { length + pack - 1 } else { length }).div_ceil(pack);
        let (threads, packs) = match is_long {
            false => {
                let threads = threads_of(all, [pack, size, most], room / count.max(1));
                (threads, all.div_ceil(threads))
            }
            // A chunk for each of as many blocks as are resident at once.
            true if has_chunks => {
                (CHUNK_THREADS, (count * length / (room * pack)).clamp(MIN_OF_CHUNK.div_ceil(pack), most / pack))
            }
            true => (PIECE_THREADS, most / pack),
        };
        let several = (THREAD_BYTES / (packs * pack * size)).min(count * threads / (BUSY_BLOCKS * ROWS_BLOCK)).max(1);
        let is_short = pack * size < 16 && (pack + 1..STAGED_BYTES / size).contains(&length);
        let mut split = RowSplit {
            pack,
            shifted,
            packs,
            threads,
            several: if is_long { 1 } else { several },
            chunks: 1,
            whole: !is_long,
            staged: is_short
                && count * length * size > MERGED_BYTES
                && tensors.iter().all(|tensor| is_stageable(tensor)),
            rows,
        };
        if has_chunks {
            split.chunks = length.div_ceil(split.chunk());
        }
        split
    }

    /// Rows per block.
    fn block_rows(&self) -> u64 {
        self.several * self.block() / self.threads
    }

    /// Elements per chunk. Each chunk begins at a pack of the row.
    fn chunk(&self) -> u64 {
        (self.threads * self.packs - u64::from(self.shifted)) * self.pack
    }

    /// Number of threads over all rows, each of which processes a part of a row or several rows.
    pub fn all_threads(&self) -> u64 {
        self.rows.count * self.threads * self.chunks / self.several
    }

    /// True if the threads of a row belong to several warps.
    pub fn several_warps(&self) -> bool {
        self.threads > 32
    }

    /// Number of packs of each thread that certainly begin inside the row, chunk or piece, so that they need no bounds
    /// check.
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

    /// Number of kernels, which is 2 if several blocks share a row.
    pub fn launches(&self) -> u64 {
        if self.chunks > 1 { 2 } else { 1 }
    }

    /// Number of pieces of a row or chunk, for each of which a thread waits.
    fn pieces(&self) -> u64 {
        self.rows.length.div_ceil(self.chunks * self.threads * self.packs * self.pack).max(1)
    }

    /// Number of registers of a thread, of 32 bits.
    fn registers(&self, spec: &Spec) -> u64 {
        OTHER_REGISTERS + self.several * self.packs * self.pack * spec.inputs[0].dtype.compute().size() / REGISTER
    }

    /// Cost of kernels that read each row once if registers hold it, and twice otherwise.
    pub fn cost(&self, spec: &Spec, flops: f64) -> Cost {
        Cost {
            reread: if self.whole { Traffic::NONE } else { Spec::bytes_of(&spec.inputs) },
            waits: if self.whole { 0.0 } else { 2.0 * (self.pieces() - 1) as f64 },
            blocks: self.blocks() * self.launches(),
            share: share_with(self.block(), self.registers(spec)),
            ..spec.streaming_cost(flops, 1)
        }
    }

    /// Returns the kernels with this name, which multiply elements by `scale` as they read them. If several blocks
    /// share a row, the workspace has `part` values of the compute type for each chunk.
    pub fn launch(
        &self,
        (name, result): (&str, RowResult),
        spec: &Spec,
        scale: f64,
        part: u64,
        bodies: &RowBodies,
    ) -> Vec<Launch> {
        let RowSplit { rows, .. } = self;
        let RowResult { declared, of_row, .. } = result;
        let (dtype, compute) = (c_type(spec.inputs[0].dtype), spec.inputs[0].dtype.compute());
        let mut params = vec![
            param(format!("{dtype}* y"), Arg::Operand(spec.inputs.len() as u8)),
            param(format!("const {dtype}* x"), Arg::Operand(0)),
            param("C scale", Arg::real(compute, scale)),
            i64_param("sy", rows.steps[0]),
            i64_param("sx", rows.steps[1]),
            geometry_param("g", &rows.geometry),
            u64_param("rows", rows.count),
            u32_param("n", rows.length),
        ];
        params.extend(result.params);
        if self.chunks > 1 {
            params.push(param("C* parts", Arg::Workspace(rows.count * self.chunks * part * compute.size())));
        }
        let before = format!(
            "typedef {} C;\n#define T {}\n#define V {}\n#define K {}\n#define R {}\n#define BLOCK {}\n#define CHUNKS {}\n\
             #define SHIFTED {}\n#define FULL {}\n#define CONTIGUOUS {}\n#define SCALED(x) {}\n\
             #define FIRST {}\n#define RESULT(p, r, e) {}\n{EXP_BELOW}{HELPERS}",
            c_type(compute),
            self.threads,
            self.pack,
            self.packs,
            self.several,
            self.block(),
            self.chunks,
            u32::from(self.shifted),
            self.full(),
            rows.steps[..2].iter().all(|step| *step == 1),
            if scale == 1.0 { "(x)" } else { "((x) * scale)" },
            // First element of the block's part of the row.
            if self.chunks > 1 { "begin" } else { "0" },
            result.text,
        );
        let index = index_type(rows.count);
        // The second kernel of chunks takes the chunks in reverse order, since a cache may hold those that were read
        // last.
        let place = |block: &str| {
            format!(
                "  const u32 block = {block};\n  u64 row = (u64)block / CHUNKS * (R * (BLOCK / T)) + threadIdx.x / T;\n  \
             const {dtype}* from[R];\n  {dtype}* to[R];\n  bool live[R];\n  Place shift[R];\n{declared}  EACH_ROW {{\n    \
             live[r] = row + r * (BLOCK / T) < rows;\n    {index} at = ({index})(live[r] ? row + r * (BLOCK / T) : 0);\n    \
             from[r] = x + g.offset(at, 1);\n    to[r] = y + g.offset(at, 0);\n    \
             shift[r] = SHIFTED ? (Place)((u64)from[r] / sizeof({dtype}) % V) : 0;\n{of_row}  }}\n"
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
                vec![launch(name, format!("{forward}{list}{STAGE}{STAGED_ROWS}{}{UNSTAGE}", bodies.once))]
            }
            1 => vec![launch(name, format!("{forward}{}", if self.whole { bodies.once } else { bodies.twice }))],
            _ => vec![
                launch(&format!("{name}_parts"), format!("{forward}{of_chunk}{}", bodies.chunks[0])),
                launch(name, format!("{}{of_chunk}{}", place("gridDim.x - 1 - blockIdx.x"), bodies.chunks[1])),
            ],
        }
    }
}

/// True if a block can copy rows of a tensor to shared memory in packs: it has no gaps and begins at a multiple of 16 bytes.
pub fn is_stageable(tensor: &Tensor) -> bool {
    tensor.contiguous() && tensor.align >= 16
}

/// Number of elements of the largest pack that divides the rows of all these tensors and is aligned in them.
pub fn common_pack(tensors: &[&Tensor]) -> u64 {
    tensors.iter().map(|tensor| pack(tensor)).min().unwrap_or(1)
}

/// Number of elements of the largest pack of at most 16 bytes that divides the rows of a tensor and is aligned in them.
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
    halves(widest).find(|&pack| whole(pack)).unwrap_or(1)
}

/// Returns the number of threads per row of this many packs, a power of two. A pack has `pack` elements of `size` bytes, and the
/// registers of a thread hold `most` elements. The device has space for `room` threads per row.
///
/// The time of short rows is that of instructions, most of which a warp executes once for all its rows. So a row has the fewest
/// threads that hold it, as long as a warp accesses each sector once or twice. A row of several warps exchanges values through
/// shared memory, which is only worth it for many elements.
pub fn threads_of(packs: u64, [pack, size, most]: [u64; 3], room: u64) -> u64 {
    let each = |threads: u64| packs.div_ceil(threads);
    let fits = |threads: u64| match threads < WARP {
        true => each(threads) <= PART_LOADS && each(threads) * pack * size <= PART_BYTES,
        false => each(threads) * pack <= most,
    };
    let has_many =
        |threads: u64| each(threads) > 1 && each(threads) * pack > if threads < WARP { FEW } else { most / 2 };
    // Two threads share a sector, so that stores of packs of 16 bytes write whole sectors.
    let mut threads = if pack * size == 16 && packs > 1 { 2 } else { 1 };
    while threads < LARGEST_BLOCK && !fits(threads) {
        threads *= 2;
    }
    while threads < MAX_ADDED && 2 * threads <= room && has_many(threads) {
        threads *= 2;
    }
    threads
}

/// True if long rows are read in aligned packs of `pack` elements, of which the first and the last of a row may be
/// partial: if only smaller packs divide the rows, and all tensors have the same misalignment.
pub fn is_shifted(tensors: &[&Tensor], pack: u64) -> bool {
    let length = tensors[0].dims.last().copied().unwrap_or(1);
    let is_long = (WORTH_A_SHIFT * pack..MAX_SHIFTED).contains(&length);
    common_pack(tensors) < pack && is_long && shift_alike(tensors, pack)
}

/// True if the rows of all tensors begin at the same element of a pack of `pack` elements.
fn shift_alike(tensors: &[&Tensor], pack: u64) -> bool {
    let lead = tensors[0].dims.len() - 1;
    tensors.iter().all(|tensor| {
        let shifts = tensor.strides[..lead].iter().zip(tensors[0].strides.iter());
        tensor.strides[lead] == 1
            && u64::from(tensor.align).is_multiple_of(pack * tensor.dtype.size())
            && shifts.into_iter().all(|(own, other)| own % pack == other % pack)
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
// begin inside every row; contiguous (`CONTIGUOUS`) elements need no stride.
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
    else packs[k].at[0] = from[CONTIGUOUS ? j : j * step];
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
    E* first = to + (CONTIGUOUS ? j : j * step);
    EACH if (!SHIFTED || (i >= low && i < high)) store<C>(first[CONTIGUOUS ? i : i * step], v[i]);
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
    // Each instance of the function has its own array.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::{Attrs, find};
    use proptest::prelude::*;

    proptest! {
        /// The threads of a row hold all its elements in their registers, and packs without a bounds check are inside of every row.
        #[test]
        fn threads_hold_their_rows(
            (count, length) in prop_oneof![(1..2_000_000u64, 1..600u64), (1..3000u64, 1..60_000u64), (1..70u64, 1..400_000u64)],
            dtype in prop::sample::select(vec![DType::F64, DType::F32, DType::BF16]),
        ) {
            let x = Tensor::packed(dtype, &[count, length]);
            let split = RowSplit::of(&Spec::new(find("softmax").unwrap(), Attrs::default(), vec![x], vec![x]));
            let RowSplit { pack, packs, threads, chunks, .. } = split;
            let chunk = if chunks > 1 { split.chunk() } else { length };
            let last = length - (chunks - 1) * chunk;
            prop_assert!(threads.is_power_of_two() && threads <= LARGEST_BLOCK);
            let (most, reach) = if split.shifted { (144, chunk + pack - 1) } else { (128, chunk) };
            prop_assert!(packs * pack * dtype.compute().size() <= most);
            prop_assert!(0 < last && last <= chunk);
            prop_assert!(!(split.whole || chunks > 1) || reach <= threads * packs * pack);
            let piece = threads * packs * pack;
            let inside = if split.whole || chunks > 1 { last } else { (length - 1) % piece + 1 };
            prop_assert!(split.full() <= packs && split.full() * threads * pack <= inside);
        }
    }
}
