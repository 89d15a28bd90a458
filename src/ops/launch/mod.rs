//! Launches: what a backend issues for an operation, as plain data.

mod collective;
mod fused_attention;
mod kernel_ways;

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use crate::base::named::named;
use crate::base::{DType, Dims, Nanos};

use super::Tensor;
pub use collective::{Collective, CollectiveKind, PartSizes, Peer, Reduction, RowCounts, Sent};
pub use fused_attention::{AttentionCalls, AttentionForm, FusedAttention, QuerySums};
pub use kernel_ways::{KernelWay, KernelWays};

/// A command that a backend issues to a stream. A number identifies an operand: inputs are counted first, then outputs.
#[derive(Clone, Debug, PartialEq)]
pub enum Launch {
    Kernel(Kernel),
    /// A matrix product by the vendor's library, and the kernel that computes its epilogue if the library cannot;
    /// `None` if no kernel is needed for that.
    Gemm(Gemm, Option<Kernel>),
    /// A convolution by the vendor's library; the kernels and, for some convolutions, the matrix products that compute it if the library
    /// cannot or is slower.
    Conv(Arc<Conv>, Vec<Kernel>, Option<Box<ConvProducts>>),
    /// Attention by the vendor's library, and the kernels that compute it where the library does not, or is slower.
    Attention(Arc<FusedAttention>, Vec<Kernel>),
    /// Several ways to compute an operation, of which a backend keeps the fastest, and the kernels of one way after the other.
    Ways(Arc<KernelWays>, Vec<Kernel>),
    Copy(CopyLaunch),
    /// Sets `bytes` bytes of the operand to `value`.
    Memset {
        operand: u8,
        value: u8,
        bytes: u64,
    },
    /// A collective, or several that are issued as a group, in which none waits for another.
    Collective(Arc<[Collective]>),
    /// The sends and receives of this rank in a copy between ranks.
    Peer(Peer),
    /// A whole operation on a host stream.
    Host {
        /// Number of CPU threads that share the operation.
        threads: NonZeroU32,
    },
}

impl Launch {
    /// Generated kernels of this launch, including those that run only if a library cannot do the work.
    pub fn kernels(&self) -> &[Kernel] {
        match self {
            Launch::Kernel(kernel) | Launch::Gemm(_, Some(kernel)) => std::slice::from_ref(kernel),
            Launch::Conv(_, kernels, _) | Launch::Attention(_, kernels) | Launch::Ways(_, kernels) => kernels,
            _ => &[],
        }
    }

    /// True if this launch runs kernels that can fill the compute units. Copies, fills and collectives leave most of them free.
    pub fn occupies_units(&self) -> bool {
        !self.kernels().is_empty() || matches!(self, Launch::Gemm(..) | Launch::Conv(..) | Launch::Attention(..))
    }

    /// The collectives of this launch; empty for any other launch.
    pub fn collectives(&self) -> &[Collective] {
        match self {
            Launch::Collective(collectives) => collectives,
            _ => &[],
        }
    }

    /// Generated kernels of this launch, to be changed: those that [`Launch::kernels`] returns.
    pub fn kernels_mut(&mut self) -> &mut [Kernel] {
        match self {
            Launch::Kernel(kernel) | Launch::Gemm(_, Some(kernel)) => std::slice::from_mut(kernel),
            Launch::Conv(_, kernels, _) | Launch::Attention(_, kernels) | Launch::Ways(_, kernels) => kernels,
            _ => &mut [],
        }
    }

    /// Bytes of workspace that the kernels of this launch need. A library's own workspace is not included.
    pub fn workspace(&self) -> u64 {
        let bytes = |arg: &Arg| match arg {
            Arg::Workspace(bytes) | Arg::WorkspaceAt { bytes, .. } => *bytes,
            _ => 0,
        };
        self.kernels().iter().flat_map(|kernel| &kernel.args).map(bytes).max().unwrap_or(0)
    }
}

/// Returns the bytes of workspace that the launches of an operation share. A library's own workspace is not included.
pub fn workspace(launches: &[Launch]) -> u64 {
    launches.iter().map(Launch::workspace).max().unwrap_or(0)
}

impl Launch {
    /// Replaces operand `n` of kernels and of a plain product by `operands[n]`.
    pub(super) fn with_operands(mut self, operands: &[u8]) -> Launch {
        let replace = |operand: &mut u8| *operand = operands[usize::from(*operand)];
        if let Launch::Gemm(gemm, _) = &mut self {
            let matrices = [&mut gemm.a, &mut gemm.b, &mut gemm.c].map(|matrix| &mut matrix.operand);
            matrices.into_iter().filter(|operand| **operand != Matrix::WORKSPACE).for_each(replace);
            gemm.epilogue.iter_mut().flat_map(|epilogue| &mut epilogue.bias).for_each(replace);
        }
        if let Launch::Ways(ways, _) = &mut self {
            replace(&mut Arc::make_mut(ways).contents.0);
        }
        for arg in self.kernels_mut().iter_mut().flat_map(|kernel| &mut kernel.args) {
            match arg {
                Arg::Operand(operand) => replace(operand),
                Arg::TensorMap(map) => {
                    if let MapBase::Operand(operand) = &mut map.base {
                        replace(operand);
                    }
                }
                _ => {}
            }
        }
        self
    }
}

/// A generated kernel and its launch configuration. The source is the same for CUDA and HIP.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernel {
    pub source: Arc<KernelSource>,
    /// Size of the grid in blocks: x, y, z.
    pub grid: [u64; 3],
    /// Size of a block in threads: x, y, z.
    pub block: [u32; 3],
    pub shared: Shared,
    pub args: Vec<Arg>,
    /// True if the kernel must not be launched on a device whose blocks form clusters, since the clusters of an earlier
    /// kernel have done its work there.
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

/// Amount of dynamic shared memory of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shared {
    /// The given number of bytes.
    Bytes(u32),
    /// The given number of bytes, or the device's limit for a block if that is less. The kernel's text adapts to it.
    AtMost(u32),
    /// The device's limit for a block, so that no other block that uses shared memory is resident on the same SM
    /// (compute unit).
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
    /// Address of the workspace, which has at least this many bytes of device memory. The launches of an operation
    /// share it. Its contents are undefined before the first launch.
    Workspace(u64),
    /// Address at an offset in the workspace, which has at least `bytes` bytes.
    WorkspaceAt {
        /// Offset in bytes.
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
    /// Number of elements along each dimension, the innermost first. Elements are contiguous along the innermost
    /// dimension.
    pub dims: [u64; 3],
    /// Strides of the two outer dimensions in bytes: multiples of 16.
    pub strides: [u64; 2],
    /// Number of elements of a box along the two inner dimensions. A box has one element along the outermost dimension.
    pub extent: [u32; 2],
}

/// Location of the tensor of a tensor map in memory. The tensor is aligned to 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapBase {
    /// The operand with this number.
    Operand(u8),
    /// The given offset in bytes in the workspace.
    Workspace(u64),
}

impl Kernel {
    /// Size of a grid or block with one dimension.
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
    /// True if the product is added to the contents of `c`.
    pub accumulate: bool,
    /// The epilogue that the library computes with the product; `None` if there is none.
    pub epilogue: Option<Epilogue>,
    /// Scaling factors of 8-bit matrices; `None` if the product is not scaled.
    pub scales: Option<Scales>,
}

/// Scaling factors in `f32` by which 8-bit elements are multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scales {
    /// Operands that hold the factors of `a` and of `b`, or [`Matrix::WORKSPACE`].
    pub operands: [u8; 2],
    /// Offsets in bytes of the factors in their operands or in the workspace.
    pub offsets: [u64; 2],
    pub form: ScaleForm,
}

/// The elements of a matrix that share one scaling factor.
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

/// Activation functions that the vendors' libraries can apply as the last step of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activation {
    /// No function: the epilogue only adds the bias.
    Identity,
    Relu,
    /// The approximation of GELU by `tanh`.
    GeluTanh,
}

/// An operand of a matrix product.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Matrix {
    /// Number of the operand, or [`Matrix::WORKSPACE`].
    pub operand: u8,
    /// Offset of the first matrix from the start of the operand, in elements.
    pub offset: u64,
    pub dtype: DType,
    /// Stride between rows in memory, in elements (the leading dimension).
    pub row: u64,
    /// True if memory holds the matrix in transposed form: `row` is then the stride between the matrix's columns.
    pub transposed: bool,
    /// Stride between the matrices of a batch, in elements; 0 if all share one matrix.
    pub batch: u64,
    /// Alignment of the matrix in bytes.
    pub align: u8,
}

impl Matrix {
    /// Value of [`Matrix::operand`] for a matrix in the workspace of the operation's kernels instead of in an operand.
    pub const WORKSPACE: u8 = u8::MAX;
}

impl Gemm {
    /// True if any of the matrices is in the workspace.
    pub fn uses_workspace(&self) -> bool {
        [&self.a, &self.b, &self.c].iter().any(|matrix| matrix.operand == Matrix::WORKSPACE)
            || self.scales.is_some_and(|scales| scales.operands.contains(&Matrix::WORKSPACE))
    }
}

/// A convolution of contiguous tensors: `x` is [samples, channels, spatial…], `w` is [channels of `y`, channels of `x` per
/// group, kernel…], `y` is [samples, channels, windows…].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Conv {
    pub form: ConvForm,
    /// Numbers of the operands `x`, `w` and `y`.
    pub operands: [u8; 3],
    /// Types, shapes and strides of `x`, `w` and `y`.
    pub tensors: [Tensor; 3],
    /// Operand that holds the bias, one element per channel of the result; `None` without a bias.
    pub bias: Option<u8>,
    /// Stride of the windows along each spatial dimension; `padding` and `dilation` are also by spatial dimension.
    pub stride: Dims,
    pub padding: Dims,
    pub dilation: Dims,
    pub groups: u64,
    pub arithmetic: Arithmetic,
    /// True if the sums have the same bits in each run: no sum may depend on an arbitrary order of additions.
    pub deterministic: bool,
}

/// Matrix products by the vendor's library that compute a convolution.
#[derive(Clone, Debug, PartialEq)]
pub struct ConvProducts {
    pub gemms: Vec<Gemm>,
    /// Index among the launch's kernels of the first that belongs to the products. The kernels before it compute the convolution
    /// without products.
    pub first_kernel: usize,
    /// Number of kernels, from `first_kernel` on, that run before the products. The remaining ones run after them.
    pub kernels_before: usize,
}

/// Maximum bytes of `x` and `y` together in one call of a library, unless a single sample has more. The fastest
/// algorithms copy both tensors into the workspace in another order of dimensions, and no library supports more than
/// 2^31 elements.
const PIECE: u64 = 1 << 30;

impl Conv {
    /// Divides a convolution by samples into calls of a library. Returns the convolution of one call, and the number of
    /// each call's first sample. All calls have the same size, so that one algorithm serves all; if the samples cannot
    /// be divided evenly, the last two calls compute some samples twice. To compute fewer samples twice, up to twice
    /// the necessary number of calls is made. The gradient of weights is a single call, since it sums over all samples.
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
            // Each call's samples begin at a multiple of the size of one sample in bytes.
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
    /// The arithmetic of a matrix product: the types of its factors and of its accumulator.
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

/// A copy by the runtime: `rows` rows of `row_bytes` contiguous bytes each. Source and target are operand numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyLaunch {
    pub source: u8,
    pub target: u8,
    /// Offset in bytes of the first row in the source operand.
    pub source_offset: u64,
    /// Offset in bytes of the first row in the target operand.
    pub target_offset: u64,
    pub direction: Direction,
    /// True if the host side is pageable memory, which the runtime stages through pinned memory.
    pub pageable: bool,
    /// True if a copy engine is requested (`via: dma`), where the runtime may otherwise use a kernel.
    pub engine: bool,
    pub row_bytes: u64,
    pub rows: u64,
    /// Bytes from the start of a row to that of the next one, in the source and in the target.
    pub source_pitch: u64,
    pub target_pitch: u64,
}

impl CopyLaunch {
    /// Number of bytes that are copied.
    pub fn bytes(&self) -> u64 {
        self.row_bytes * self.rows
    }
}

named! {
    /// Direction of a copy between host memory and device memory.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Direction {
        HostToDevice = "h2d",
        DeviceToHost = "d2h",
        DeviceToDevice = "d2d",
    }
}

/// Shape over whose indices a kernel iterates, and the strides of its operands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    pub dims: Dims,
    /// For each operand, its stride along each dimension of the shape, in elements.
    pub strides: Vec<Dims>,
}

impl Geometry {
    /// Returns the geometry of some of the dimensions, in this order.
    pub fn part(&self, axes: &[usize]) -> Geometry {
        let of = |dims: &Dims| axes.iter().map(|&axis| dims[axis]).collect();
        Geometry { dims: of(&self.dims), strides: self.strides.iter().map(of).collect() }
    }

    /// Returns the contents of the kernels' structure `Geometry<rank, operands>`: the shape, then the strides of each
    /// operand.
    pub fn words(&self) -> Vec<u64> {
        self.dims.iter().copied().chain(self.strides.iter().flat_map(|strides| strides.iter().copied())).collect()
    }
}
