//! Launches: what a backend issues for an operation, as plain data.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use crate::base::named::named;
use crate::base::{DType, Dims, GroupId, Nanos};

use super::Tensor;
pub use super::fused_attention::{AttentionForm, FusedAttention};

/// A command issued to a stream. Operands are identified by index: inputs first, then outputs.
#[derive(Clone, Debug, PartialEq)]
pub enum Launch {
    Kernel(Kernel),
    /// A matrix product by the vendor's library, and the kernel that computes its epilogue if the library cannot.
    Gemm(Gemm, Option<Kernel>),
    /// A convolution by the vendor's library, and the kernels to use instead if the library cannot compute it or is slower.
    Conv(Arc<Conv>, Vec<Kernel>),
    /// Attention by the vendor's library, and the kernels that compute it where the library does not, or is slower.
    Attention(Arc<FusedAttention>, Vec<Kernel>),
    Copy(Copy),
    /// Sets `bytes` bytes of the operand to `value`.
    Memset {
        operand: u8,
        value: u8,
        bytes: u64,
    },
    /// A collective, or several that are issued as a group, in which none waits for another.
    Collective(Arc<[Collective]>),
    /// This rank's part of a copy between ranks.
    Peer(Peer),
    /// The whole operation on a host stream, by this many threads of the CPU.
    Host {
        threads: NonZeroU32,
    },
}

impl Launch {
    /// Generated kernels of this launch, including those that run only if a library cannot do the work.
    pub fn kernels(&self) -> &[Kernel] {
        match self {
            Launch::Kernel(kernel) | Launch::Gemm(_, Some(kernel)) => std::slice::from_ref(kernel),
            Launch::Conv(_, kernels) | Launch::Attention(_, kernels) => kernels,
            _ => &[],
        }
    }

    /// The collectives of this launch; empty for any other launch.
    pub fn collectives(&self) -> &[Collective] {
        match self {
            Launch::Collective(collectives) => collectives,
            _ => &[],
        }
    }

    /// The kernels of [`Launch::kernels`], to change them.
    pub fn kernels_mut(&mut self) -> &mut [Kernel] {
        match self {
            Launch::Kernel(kernel) | Launch::Gemm(_, Some(kernel)) => std::slice::from_mut(kernel),
            Launch::Conv(_, kernels) | Launch::Attention(_, kernels) => kernels,
            _ => &mut [],
        }
    }

    /// Bytes of workspace that the launch needs.
    pub fn workspace(&self) -> u64 {
        let bytes = |arg: &Arg| match arg {
            Arg::Workspace(bytes) | Arg::WorkspaceAt { bytes, .. } => *bytes,
            _ => 0,
        };
        self.kernels().iter().flat_map(|kernel| &kernel.args).map(bytes).max().unwrap_or(0)
    }
}

impl Launch {
    /// Replaces operand `n` of a kernel by `operands[n]`; returns any other launch unchanged.
    pub(super) fn with_operands(mut self, operands: &[u8]) -> Launch {
        if let Launch::Kernel(kernel) = &mut self {
            for arg in &mut kernel.args {
                match arg {
                    Arg::Operand(operand) => *operand = operands[usize::from(*operand)],
                    Arg::TensorMap(map) => {
                        if let MapBase::Operand(operand) = &mut map.base {
                            *operand = operands[usize::from(*operand)];
                        }
                    }
                    _ => {}
                }
            }
        }
        self
    }
}

/// A generated kernel. Its source is the same for CUDA and HIP.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernel {
    pub source: Arc<KernelSource>,
    /// Size of the grid in blocks: x, y, z.
    pub grid: [u64; 3],
    /// Size of a block in threads: x, y, z.
    pub block: [u32; 3],
    pub shared: Shared,
    pub args: Vec<Arg>,
    /// True if the kernel has nothing to do on a device with clusters of blocks, so that it is not launched there.
    pub without_clusters: bool,
}

/// The complete source text of a kernel. Equal texts are compiled once.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct KernelSource {
    /// Name of the entry function.
    pub name: String,
    /// Source text; empty for compiled code.
    pub text: String,
    /// Compiled code from a file, terminated by a NUL byte; `None` for source text.
    pub code: Option<Arc<[u8]>>,
}

impl fmt::Debug for KernelSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Dynamic shared memory of a block, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shared {
    Bytes(u32),
    /// A number of bytes, or the device's limit for a block if that is less. The kernel adapts to the smaller size.
    AtMost(u32),
    /// The device's limit for a block, so that no other block that uses shared memory is resident on the same SM.
    All,
}

/// An argument of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub enum Arg {
    /// Address of an operand.
    Operand(u8),
    U32(u32),
    U64(u64),
    F32(f32),
    F64(f64),
    /// A duration, converted to ticks of the device's constant-rate clock (64 bits).
    Ticks(Nanos),
    /// A structure of 64-bit integers, passed by value.
    Words(Vec<u64>),
    /// Address of a workspace of at least this many bytes in device memory, shared by the launches of an operation. Its
    /// contents are undefined before the first launch.
    Workspace(u64),
    /// Address at this offset in bytes in a workspace of at least `bytes` bytes.
    WorkspaceAt {
        offset: u64,
        bytes: u64,
    },
    /// The encoded form of a tensor map, 128 bytes that are passed by value; zeros if the device cannot copy by one.
    TensorMap(Box<TensorMap>),
}

/// A tensor of 16-bit elements, as described to the unit that copies boxes of it to shared memory: CUDA's
/// `CUtensorMap`, with the 128-byte swizzle. Elements outside of the tensor are copied as zeros.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorMap {
    pub base: MapBase,
    /// Sizes, the innermost dimension first. Its elements are contiguous.
    pub dims: [u64; 3],
    /// Strides of the two outer dimensions in bytes: multiples of 16.
    pub strides: [u64; 2],
    /// Elements of a box in the two inner dimensions; the outermost has one.
    pub extent: [u32; 2],
}

/// Place of a tensor in memory, aligned to 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapBase {
    Operand(u8),
    /// Offset in bytes in the workspace.
    Workspace(u64),
}

impl Kernel {
    /// A one-dimensional grid or block of this size.
    pub fn along_x<T: From<u8>>(count: T) -> [T; 3] {
        [count, T::from(1), T::from(1)]
    }
}

impl Arg {
    /// A floating-point argument of the kernel's compute type: `f64` if that is the type, otherwise `f32`.
    pub fn real(compute: DType, value: f64) -> Arg {
        match compute {
            DType::F64 => Arg::F64(value),
            _ => Arg::F32(value as f32),
        }
    }
}

/// A batched matrix product in row-major order, `c = a * b` of sizes `m` × `k` and `k` × `n`; with `accumulate`,
/// `c += a * b`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Gemm {
    pub m: u64,
    pub n: u64,
    pub k: u64,
    pub batch: u64,
    pub a: Matrix,
    pub b: Matrix,
    pub c: Matrix,
    pub arithmetic: Arithmetic,
    /// Whether the product is added to the contents of `c`.
    pub accumulate: bool,
    /// The epilogue that the library computes with the product; `None` if there is none.
    pub epilogue: Option<Epilogue>,
    /// Scaling factors of 8-bit matrices; `None` without.
    pub scales: Option<Scales>,
}

/// Scaling factors in `f32` by which 8-bit elements are multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scales {
    /// Operands that hold the factors of `a` and of `b`.
    pub operands: [u8; 2],
    pub form: ScaleForm,
}

/// The elements of a matrix that share a scaling factor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScaleForm {
    /// The whole matrix.
    Tensor,
    /// A row of `a` and a column of `b`.
    RowsAndColumns,
    /// 1 × 128 elements of `a` and 128 × 128 elements of `b`, along the k dimension and the columns of `b`. Factors of `a`
    /// are stored by blocks of k, then by row; factors of `b` are contiguous along k.
    Blocks,
}

/// The epilogue of a product: `c = function(c + bias)`, elementwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Epilogue {
    /// Operand that holds the bias: `n` elements of `c`'s type, aligned to 16 bytes; `None` without a bias.
    pub bias: Option<u8>,
    pub function: Activation,
}

/// Activation functions that the vendors' libraries can apply in the epilogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activation {
    Identity,
    Relu,
    /// The approximation of GELU by `tanh`.
    GeluTanh,
}

/// An operand of a matrix product.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Matrix {
    /// Index of the operand, or [`Matrix::WORKSPACE`].
    pub operand: u8,
    /// Offset of the first matrix from the start of the operand, in elements.
    pub offset: u64,
    pub dtype: DType,
    /// Stride between rows in memory, in elements (the leading dimension).
    pub row: u64,
    /// Whether memory holds the transpose of the matrix.
    pub transposed: bool,
    /// Stride between the matrices of a batch, in elements; 0 if all share one matrix.
    pub batch: u64,
    /// Alignment of the matrix in bytes.
    pub align: u8,
}

impl Matrix {
    /// The operand of a matrix in the workspace that the operation's kernels use.
    pub const WORKSPACE: u8 = u8::MAX;
}

impl Gemm {
    /// Whether any of the matrices is in the workspace.
    pub fn uses_workspace(&self) -> bool {
        [&self.a, &self.b, &self.c].iter().any(|matrix| matrix.operand == Matrix::WORKSPACE)
    }
}

/// A convolution of contiguous tensors: `x` is [samples, channels, spatial…], `w` is [channels of `y`, channels of `x` per
/// group, kernel…], `y` is [samples, channels, windows…].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Conv {
    pub form: ConvForm,
    /// The operands `x`, `w` and `y`, and their tensors.
    pub operands: [u8; 3],
    pub tensors: [Tensor; 3],
    /// Operand that holds the bias, one element per channel of the result; `None` without a bias.
    pub bias: Option<u8>,
    pub stride: Dims,
    pub padding: Dims,
    pub dilation: Dims,
    pub groups: u64,
    pub arithmetic: Arithmetic,
    /// Whether each run adds the products in the same order.
    pub deterministic: bool,
}

/// Bytes of `x` and `y` in one call of a library, unless one sample has more. The fastest algorithms copy both tensors into
/// the workspace in another order of dimensions, and no library counts more than 2^31 elements.
const PIECE: u64 = 1 << 30;

impl Conv {
    /// Divides a convolution into calls of a library: the convolution of one call, and the first sample of each. All calls
    /// have the same size, so that one algorithm serves all; if the samples cannot be divided evenly, the last two calls
    /// compute some samples twice. Up to twice as many calls as necessary are made if fewer samples are computed twice then.
    /// The gradient of weights is one call, since it sums over all samples.
    pub fn pieces(&self) -> (Conv, Vec<u64>) {
        let [x, _, y] = &self.tensors;
        let samples = x.dims[0];
        let most = (PIECE / ((x.bytes() + y.bytes()) / samples).max(1)).max(1);
        if self.form == ConvForm::Weights || samples <= most {
            return (self.clone(), vec![0]);
        }
        let needed = samples.div_ceil(most);
        let computed = |calls: &u64| calls * samples.div_ceil(*calls);
        let calls = (needed..=2 * needed).min_by_key(computed).unwrap_or(needed);
        let size = samples.div_ceil(calls);
        let mut piece = self.clone();
        for place in [0, 2] {
            let tensor = &mut piece.tensors[place];
            // Each piece begins at a multiple of a sample's bytes.
            let of_sample = 1 << (tensor.bytes() / samples).trailing_zeros().min(4);
            tensor.align = tensor.align.min(of_sample);
            tensor.dims.set(0, size);
        }
        (piece, (0..calls).map(|call| (call * size).min(samples - size)).collect())
    }
}

/// The tensor that a convolution computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConvForm {
    /// `y` from `x` and `w`.
    Forward,
    /// `x` from `y` and `w`: a transposed convolution.
    Transposed,
    /// `w` from `x` and `y`.
    Weights,
}

named! {
    /// The arithmetic of a matrix product: types of its inputs and of its accumulator.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Arithmetic {
        F64 = "f64",
        F32 = "f32",
        /// Inputs in `f32`, rounded to 10 bits of fraction by the matrix unit, accumulated in `f32`.
        Tf32 = "tf32",
        /// 16-bit inputs, accumulated in `f32`.
        F16 = "f16",
        BF16 = "bf16",
        /// Inputs in `e4m3` or `e5m2`, accumulated in `f32`. NVIDIA's Hopper accumulates with fewer bits.
        F8 = "f8",
        /// Inputs in `i8`, accumulated in `i32`.
        I8 = "i8",
    }
}

/// A copy by the runtime: `rows` rows of `row_bytes` contiguous bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copy {
    pub source: u8,
    pub target: u8,
    /// Offsets of the first row from the start of the operands, in bytes.
    pub source_offset: u64,
    pub target_offset: u64,
    pub direction: Direction,
    /// Whether the host side is pageable memory, which the runtime stages through pinned memory.
    pub pageable: bool,
    /// Whether a copy engine is requested (`via: dma`), where the runtime may otherwise use a kernel.
    pub engine: bool,
    pub row_bytes: u64,
    pub rows: u64,
    /// Strides between rows, in bytes.
    pub source_pitch: u64,
    pub target_pitch: u64,
}

impl Copy {
    pub fn bytes(&self) -> u64 {
        self.row_bytes * self.rows
    }

    /// Whether the strides of both sides are multiples of 16 bytes.
    pub fn is_aligned(&self) -> bool {
        self.source_pitch.is_multiple_of(16) && self.target_pitch.is_multiple_of(16)
    }
}

/// A rank's part of a copy between ranks. The rank announces that its outputs may be written, sends once the receiver
/// has announced the same, and continues once all incoming data has arrived.
#[derive(Clone, Debug, PartialEq)]
pub struct Peer {
    /// This rank's number in the world.
    pub rank: u32,
    pub sends: Option<Sent>,
    /// Rank that writes each output.
    pub from: Arc<[u32]>,
}

/// The data that a rank sends to another.
#[derive(Clone, Debug, PartialEq)]
pub struct Sent {
    /// Rank that receives the data.
    pub to: u32,
    /// A copy or a kernel whose last operand is in the receiver's memory.
    pub launch: Box<Launch>,
    /// The sent rows if a tensor counts them, which is the rank's second operand; otherwise `None`.
    pub counted: Option<RowCounts>,
}

impl Sent {
    /// Operands of the rank itself.
    pub fn inputs(&self) -> usize {
        1 + usize::from(self.counted.is_some())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    HostToDevice,
    DeviceToHost,
    DeviceToDevice,
}

impl Direction {
    pub fn short(self) -> &'static str {
        match self {
            Direction::HostToDevice => "h2d",
            Direction::DeviceToHost => "d2h",
            Direction::DeviceToDevice => "d2d",
        }
    }
}

/// A rank's part of a collective, or one side of a transfer between two ranks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Collective {
    pub kind: CollectiveKind,
    pub group: GroupId,
    /// Number of ranks in the group, and this rank's number in it.
    pub ranks: u32,
    pub rank: u32,
    /// Operand that is sent, and operand that receives; `None` where a rank does not send or receive.
    pub source: Option<u8>,
    pub target: Option<u8>,
    pub dtype: DType,
    /// Number of elements: that each rank contributes for `all_gather`; that each rank receives for `reduce_scatter`;
    /// that each rank sends to each other rank for `all_to_all`; of the whole operand otherwise.
    pub count: u64,
    /// Function that combines the values of the ranks.
    pub reduction: Reduction,
    /// Root of the collective, or other side of a transfer, as a number in the group.
    pub peer: u32,
    /// Sizes of the parts of an uneven `all_to_all`; `None` if all parts are equal.
    pub parts: Option<Arc<PartSizes>>,
    /// The rows of an `all_to_all` that a tensor counts; `None` if the sizes are known before the run.
    pub counted: Option<RowCounts>,
}

/// Rows that go from each rank to each other rank, counted by an integer matrix that all ranks have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RowCounts {
    /// The operand with the counts.
    pub operand: u8,
    pub dtype: DType,
    pub ranks: u32,
    /// Number of counts of each rank, which are divided equally among the receivers.
    pub parts: u64,
    /// Whether the rows return to their senders, as the option `back` requests.
    pub back: bool,
    /// Elements of a row.
    pub row: u64,
    /// Rows of the source tensor and of the target tensor.
    pub source: u64,
    pub target: u64,
}

impl Collective {
    /// Whether this is a send or a receive.
    pub fn is_transfer(&self) -> bool {
        matches!(self.kind, CollectiveKind::Send | CollectiveKind::Recv)
    }

    /// Whether both are parts of the same collective call. Parts that do not match hang or fail.
    pub fn meets(&self, other: &Collective) -> bool {
        let key = |one: &Collective| (one.kind, one.ranks, one.dtype, one.count, one.reduction, one.peer, one.counted);
        key(self) == key(other)
    }
}

/// Numbers of elements that an uneven `all_to_all` sends to and receives from each rank, in rank order. The parts are
/// contiguous in memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PartSizes {
    pub sent: Vec<u64>,
    pub received: Vec<u64>,
}

named! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum CollectiveKind {
        AllReduce = "all_reduce",
        AllGather = "all_gather",
        ReduceScatter = "reduce_scatter",
        AllToAll = "all_to_all",
        Broadcast = "broadcast",
        Reduce = "reduce",
        Send = "send",
        Recv = "recv",
        Barrier = "barrier",
    }
}

named! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Reduction {
        Sum = "sum",
        Mean = "mean",
        Min = "min",
        Max = "max",
        Product = "product",
    }
}

/// Shape and strides that a kernel iterates over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    pub dims: Dims,
    /// Strides of each operand, in elements.
    pub strides: Vec<Dims>,
}

impl Geometry {
    /// The words of the kernels' `Geometry<rank, operands>`: the shape, then the strides of each operand.
    pub fn words(&self) -> Vec<u64> {
        self.dims.iter().copied().chain(self.strides.iter().flat_map(|strides| strides.iter().copied())).collect()
    }
}
