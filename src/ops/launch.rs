//! The launches of a backend, as plain data.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use crate::base::{DType, Dims, GroupId, Nanos};

use super::Tensor;
pub use super::fused_attention::{AttentionForm, FusedAttention};

/// One thing to launch on a stream. Operands are named by their place: inputs first, then outputs.
#[derive(Clone, Debug, PartialEq)]
pub enum Launch {
    Kernel(Kernel),
    /// A product, and the kernel that computes its epilogue if the library cannot.
    Gemm(Gemm, Option<Kernel>),
    /// A convolution by the vendor's library, and the kernels that compute it where the library does not, or is slower.
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
    /// One, or several that are issued together: none waits for another.
    Collective(Arc<[Collective]>),
    /// A rank's share in a copy between ranks.
    Peer(Peer),
    /// The operation as a whole, by this many threads of the CPU.
    Host {
        threads: NonZeroU32,
    },
}

impl Launch {
    /// The generated kernels that it runs, or that it runs if a library cannot compute all of it.
    pub fn kernels(&self) -> &[Kernel] {
        match self {
            Launch::Kernel(kernel) | Launch::Gemm(_, Some(kernel)) => std::slice::from_ref(kernel),
            Launch::Conv(_, kernels) | Launch::Attention(_, kernels) => kernels,
            _ => &[],
        }
    }

    /// Bytes of the workspace that it needs.
    pub fn workspace(&self) -> u64 {
        let bytes = |arg: &Arg| if let Arg::Workspace(bytes) = arg { *bytes } else { 0 };
        self.kernels().iter().flat_map(|kernel| &kernel.args).map(bytes).max().unwrap_or(0)
    }
}

impl Launch {
    /// A kernel whose operand `n` is the operation's `operands[n]`; any other launch as it is.
    pub(super) fn with_operands(mut self, operands: &[u8]) -> Launch {
        if let Launch::Kernel(kernel) = &mut self {
            for arg in &mut kernel.args {
                if let Arg::Operand(operand) = arg {
                    *operand = operands[usize::from(*operand)];
                }
            }
        }
        self
    }
}

/// A generated kernel. Its source is the same for CUDA and HIP.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernel {
    pub source: Arc<Source>,
    /// Blocks of the grid, in x, y and z.
    pub grid: [u64; 3],
    /// Threads of a block, in x, y and z.
    pub block: [u32; 3],
    pub shared: Shared,
    pub args: Vec<Arg>,
}

/// The text of a kernel, complete; equal texts are compiled once.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Source {
    /// The entry's name.
    pub name: String,
    /// The text; empty for compiled code.
    pub text: String,
    /// Compiled code of a file, which a NUL ends; `None` for a text.
    pub code: Option<Arc<[u8]>>,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Dynamic shared memory of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shared {
    Bytes(u32),
    /// So many bytes, or all that a block may have where that is less: the kernel's text takes no more than there is.
    AtMost(u32),
    /// As much as a block may have: no other block that needs any fits beside it.
    All,
}

/// One argument of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub enum Arg {
    /// The address at which an operand begins.
    Operand(u8),
    U32(u32),
    U64(u64),
    F32(f32),
    F64(f64),
    /// A span of time, in the ticks of the device's constant-rate clock (64 bits).
    Ticks(Nanos),
    /// A structure of 64-bit integers, passed by value.
    Words(Vec<u64>),
    /// The address of device memory of at least that many bytes, which the launches of an operation share. It holds
    /// nothing of use before the first of them.
    Workspace(u64),
}

impl Kernel {
    /// Sizes of a grid or a block along x alone.
    pub fn along_x<T: From<u8>>(count: T) -> [T; 3] {
        [count, T::from(1), T::from(1)]
    }
}

impl Arg {
    /// A number for a parameter of the type that a kernel computes in: `f64`, or else `f32`.
    pub fn real(compute: DType, value: f64) -> Arg {
        match compute {
            DType::F64 => Arg::F64(value),
            _ => Arg::F32(value as f32),
        }
    }
}

/// `c = a * b` in row-major order: for each of `batch` matrices, `m` × `k` times `k` × `n`. With `accumulate`,
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
    /// Adds to what `c` holds.
    pub accumulate: bool,
    /// The epilogue that the library computes with the product; `None` if there is none.
    pub epilogue: Option<Epilogue>,
    /// Factors of the matrices; `None` without.
    pub scales: Option<Scales>,
}

/// Factors in `f32` that elements of 8 bits are multiplied by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scales {
    /// The operands with those of `a` and of `b`.
    pub operands: [u8; 2],
    /// Whether each row of `a` and each column of `b` has a factor. One factor serves all of a matrix otherwise.
    pub each: bool,
}

/// The last steps of a product: `c = function(c + bias)`, for each element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Epilogue {
    /// The operand with a row of `n` elements of `c`'s type, which begins at a multiple of 16 bytes; `None` without a bias.
    pub bias: Option<u8>,
    pub function: Activation,
}

/// Functions that the vendors' libraries apply to the elements of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activation {
    Identity,
    Relu,
    /// The approximation of GELU by `tanh`.
    GeluTanh,
}

/// One operand of a GEMM.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Matrix {
    pub operand: u8,
    /// Offset of this matrix from the beginning of the operand, in elements.
    pub offset: u64,
    pub dtype: DType,
    /// Distance between rows as they lie in memory, in elements.
    pub row: u64,
    /// Memory holds the transpose of the matrix that is multiplied.
    pub transposed: bool,
    /// Distance between the matrices of a batch; 0 when all use the same one.
    pub batch: u64,
    /// The matrix begins at a multiple of this many bytes.
    pub align: u8,
}

/// A convolution, which relates `x` of [samples, channels, spatial…], `w` of [channels of `y`, channels of `x` in a group,
/// kernel…] and `y` of [samples, channels, windows…]. None of them has gaps.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Conv {
    pub form: ConvForm,
    /// The operands `x`, `w` and `y`, and their tensors.
    pub operands: [u8; 3],
    pub tensors: [Tensor; 3],
    /// The operand with a number for each channel of the result; `None` without a bias.
    pub bias: Option<u8>,
    pub stride: Dims,
    pub padding: Dims,
    pub dilation: Dims,
    pub groups: u64,
    pub arithmetic: Arithmetic,
}

/// The tensor of a convolution that is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConvForm {
    /// `y` from `x` and `w`.
    Forward,
    /// `x` from `y` and `w`: a transposed convolution.
    Transposed,
    /// `w` from `x` and `y`.
    Weights,
}

/// The type in which products are formed and added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Arithmetic {
    F64,
    F32,
    /// Inputs in `f32`, rounded to 10 bits of fraction by the matrix unit, added up in `f32`.
    Tf32,
    /// 16-bit inputs, added up in `f32`.
    F16,
    BF16,
    /// Inputs of 8 bits in `e4m3` or `e5m2`, added up in `f32`. NVIDIA's Hopper keeps fewer digits of partial sums.
    F8,
    /// Inputs in `i8`, added up in `i32`.
    I8,
}

impl Arithmetic {
    pub fn name(self) -> &'static str {
        match self {
            Arithmetic::F64 => "f64",
            Arithmetic::F32 => "f32",
            Arithmetic::Tf32 => "tf32",
            Arithmetic::F16 => "f16",
            Arithmetic::BF16 => "bf16",
            Arithmetic::F8 => "f8",
            Arithmetic::I8 => "i8",
        }
    }
}

/// A copy by the runtime: `rows` stretches of `row_bytes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copy {
    pub source: u8,
    pub target: u8,
    /// Distances from the begin of each operand to the first row, in bytes.
    pub source_offset: u64,
    pub target_offset: u64,
    pub direction: Direction,
    /// Whether the host side is ordinary memory, which the runtime stages.
    pub pageable: bool,
    /// Whether an engine is asked for, where the runtime by itself may take a kernel.
    pub engine: bool,
    pub row_bytes: u64,
    pub rows: u64,
    /// Distances between rows, in bytes.
    pub source_pitch: u64,
    pub target_pitch: u64,
}

impl Copy {
    pub fn bytes(&self) -> u64 {
        self.row_bytes * self.rows
    }

    /// Whether rows begin at multiples of 16 bytes from the first one, on both sides.
    pub fn is_aligned(&self) -> bool {
        self.source_pitch.is_multiple_of(16) && self.target_pitch.is_multiple_of(16)
    }
}

/// One rank's share in a copy between ranks. It announces that its outputs may be written, sends once the receiver has
/// announced the same, and continues once everything has arrived.
#[derive(Clone, Debug, PartialEq)]
pub struct Peer {
    /// The number of this rank in the world.
    pub rank: u32,
    pub sends: Option<Sent>,
    /// For each output, the rank that writes it.
    pub from: Arc<[u32]>,
}

/// The data that a rank sends to another.
#[derive(Clone, Debug, PartialEq)]
pub struct Sent {
    /// The rank that gets it.
    pub to: u32,
    /// A copy or a kernel, whose second operand lies on the other rank.
    pub launch: Box<Launch>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    HostToDevice,
    DeviceToHost,
    DeviceToDevice,
}

impl Direction {
    pub fn name(self) -> &'static str {
        match self {
            Direction::HostToDevice => "host to device",
            Direction::DeviceToHost => "device to host",
            Direction::DeviceToDevice => "device to device",
        }
    }

    pub fn short(self) -> &'static str {
        match self {
            Direction::HostToDevice => "h2d",
            Direction::DeviceToHost => "d2h",
            Direction::DeviceToDevice => "d2d",
        }
    }
}

/// One rank's share in a collective, or in one half of a transfer between two ranks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Collective {
    pub kind: CollectiveKind,
    pub group: GroupId,
    /// Ranks of the group, and the number of this one in it.
    pub ranks: u32,
    pub rank: u32,
    /// The operand that is sent, and the one that is received into.
    pub source: Option<u8>,
    pub target: Option<u8>,
    pub dtype: DType,
    /// Elements: for `all_gather` what each rank gives, for `reduce_scatter` what each gets, for `all_to_all` what goes
    /// from one to one other; else all of the operand.
    pub count: u64,
    /// How values of several ranks become one.
    pub reduction: Reduction,
    /// The root, or the other side of a transfer, in the group's numbers.
    pub peer: u32,
    /// For an `all_to_all` of uneven parts.
    pub parts: Option<Arc<Parts>>,
}

impl Collective {
    /// Whether this is one rank's share in the same call as another's: what differs never completes, or fails.
    pub fn meets(&self, other: &Collective) -> bool {
        let key = |one: &Collective| (one.kind, one.ranks, one.dtype, one.count, one.reduction, one.peer);
        key(self) == key(other)
    }
}

/// The elements that an uneven `all_to_all` sends to and receives from each rank, in the order of the ranks. Parts lie
/// one behind the other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Parts {
    pub sent: Vec<u64>,
    pub received: Vec<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CollectiveKind {
    AllReduce,
    AllGather,
    ReduceScatter,
    AllToAll,
    Broadcast,
    Reduce,
    Send,
    Recv,
    Barrier,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reduction {
    Sum,
    Mean,
    Min,
    Max,
    Product,
}

/// Elements by dimension and by operand, for kernels that walk a tensor with gaps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    pub dims: Dims,
    /// For each operand the distance between neighbours, in elements.
    pub strides: Vec<Dims>,
}

impl Geometry {
    /// As the kernels' `Geometry<rank, operands>`: the sizes, then each operand's strides.
    pub fn words(&self) -> Vec<u64> {
        self.dims.iter().copied().chain(self.strides.iter().flat_map(|strides| strides.iter().copied())).collect()
    }
}
