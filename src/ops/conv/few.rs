//! Convolutions and transposed convolutions with few rows: a thread computes all rows of several positions in registers.
//!
//! In a transposed convolution with a stride, a group of neighbouring positions uses the same windows. A thread
//! computes such a group, so that it loads each window once for all of its positions.

use super::*;
use crate::ops::kernels::kernel::{Parameter, param, u32_param};
use crate::ops::kernels::occupancy::{UNITS, WARP};

/// Maximum number of rows. With more, tiles use the registers better.
const MAX_ROWS: u64 = 4;

/// Maximum number of elements of a kernel. The products are unrolled.
const MAX_ELEMENTS: u64 = 128;

/// Maximum size in bytes of the sums of a thread.
const MAX_SUMS: u64 = 256;
/// Maximum size in bytes of the gathered elements of a thread for a channel.
const MAX_VALUES: u64 = 384;

/// Maximum number of positions of a thread along a dimension: of a tensor with one spatial dimension, and with more.
const MAX_OWN: [u64; 2] = [8, 4];

/// Maximum number of threads that share the channels of a position.
const MAX_SLICES: u64 = 8;
/// Minimum number of channels of each such thread.
const MIN_CHANNELS: u64 = 4;

/// Maximum number of weights in shared memory.
const MAX_MEMORY: u64 = 6144;

/// Minimum number of blocks for which a thread computes several positions.
const MIN_BLOCKS: u64 = UNITS;
/// Number of blocks below which threads share the channels of a position.
const ENOUGH_BLOCKS: u64 = UNITS + UNITS / 2;

/// Instructions of a thread for its indices. The numbers of instructions are counts in code for sm_90a by NVRTC 13.0.
const PER_THREAD: f64 = 170.0;
/// Instructions of a thread for each channel.
const PER_CHANNEL: f64 = 20.0;
/// Instructions for the address of a row of gathered elements; to load an element, with and without checks, and to convert one of 16 bits.
const PER_ROW: f64 = 3.0;
const PER_VALUE: f64 = 1.0;
const PER_CHECKED: f64 = 7.0;
const PER_CONVERSION: f64 = 1.0;
/// Instructions to copy a weight to shared memory.
const PER_WEIGHT: f64 = 42.0;
/// Number of weights that a thread loads at once.
const WEIGHTS_AT_ONCE: u64 = 2;
/// Instructions per result; and per thread and exchange of sums, also for each thread that shares the channels.
const PER_RESULT: f64 = 12.0;
const PER_EXCHANGE: f64 = 35.0;
const PER_SHARED_SUM: f64 = 3.5;

/// Division of the work among threads.
pub struct Few {
    /// Number of rows of the product.
    rows: u64,
    /// Number of gathered channels per group.
    channels: u64,
    /// Number of groups of channels.
    groups: u64,
    /// First group of positions in three dimensions; 0 unless the convolution is transposed.
    first: [u64; 3],
    /// Number of threads along three dimensions. For a tensor with one dimension, the last number is the distance of
    /// the positions of a thread, and the second one the number of such ranges.
    count: [u64; 3],
    /// Number of samples.
    samples: u64,
    /// Number of positions of a thread; of groups of positions for a transposed convolution.
    own: u64,
    /// Number of threads that share the channels of a position.
    slices: u64,
    /// Number of channels whose weights shared memory holds at once.
    chunk: u64,
}

impl Few {
    /// Returns the division; `None` for the gradient of weights, and if a thread cannot hold the sums of all rows in
    /// registers.
    pub fn of(spec: &Spec, shape: &Shape) -> Option<Few> {
        let (rows, ..) = shape.product();
        let each = spec.inputs[0].dtype.compute().size();
        let dims = shape.kernel.len();
        let padded = (rows * shape.elements()).next_multiple_of(4);
        if shape.form == Form::Weights || rows > MAX_ROWS || shape.elements() > MAX_ELEMENTS {
            return None;
        }
        let transposed = shape.form == Form::Transposed;
        let phases: u64 = if transposed { shape.stride.iter().product() } else { 1 };
        let (mut first, mut extent) = ([0; 3], [1; 3]);
        for axis in 0..dims {
            let (stride, padding) = (shape.stride[axis], shape.padding[axis]);
            let place = 3 - dims + axis;
            if transposed {
                first[place] = padding / stride;
                extent[place] = (shape.x[axis] - 1 + padding) / stride - first[place] + 1;
            } else {
                extent[place] = shape.y[axis];
            }
        }
        let channels = shape.gathered();
        let mut few = Few {
            rows,
            channels,
            groups: shape.groups,
            first,
            count: extent,
            samples: shape.samples,
            own: 2 * MAX_OWN[usize::from(dims > 1)],
            slices: 1,
            chunk: 1,
        };
        // As many positions as possible, but enough blocks for all SMs.
        while few.own > 1 {
            few.own /= 2;
            few.count = extent;
            if dims == 1 {
                few.count[2] = extent[2].min(WARP);
                few.count[1] = extent[2].div_ceil(few.count[2] * few.own);
            } else {
                few.count[1] = extent[1].div_ceil(few.own);
            }
            few.slices = 1;
            let most = MAX_SLICES.min(channels / MIN_CHANNELS).min(MAX_MEMORY / padded);
            while few.blocks() < ENOUGH_BLOCKS && 2 * few.slices <= most {
                few.slices *= 2;
            }
            let fits = few.own * phases * rows * each <= MAX_SUMS && few.values(shape) * each <= MAX_VALUES;
            if fits && (few.blocks() >= MIN_BLOCKS || few.own == 1) {
                let most = MAX_MEMORY / padded / few.slices * few.slices;
                few.chunk = channels.next_multiple_of(few.slices).min(most);
                return Some(few);
            }
        }
        None
    }

    /// Number of gathered elements of a thread for each channel.
    fn values(&self, shape: &Shape) -> u64 {
        let dims = shape.kernel.len();
        let along = |axis: usize| {
            let own = if dims > 1 && axis + 2 == dims { self.own } else { 1 };
            let (stride, last) = (shape.stride[axis], (shape.kernel[axis] - 1) * shape.dilation[axis]);
            match shape.form {
                Form::Transposed => own + last / stride,
                _ => (own - 1) * stride + last + 1,
            }
        };
        let apart = if dims == 1 { self.own } else { 1 };
        apart * (0..dims).map(along).product::<u64>()
    }

    /// Number of sums and of gathered elements that a thread holds.
    pub fn held(&self, shape: &Shape) -> u64 {
        // Positions that meet no element of the kernel have no sum.
        let phases =
            shape.stride.iter().zip(shape.kernel.iter()).map(|(&stride, &size)| stride.min(size)).product::<u64>();
        let phases = if shape.form == Form::Transposed { phases } else { 1 };
        self.own * phases * self.rows + self.values(shape)
    }

    /// Threads of a group that have other positions.
    fn threads(&self) -> u64 {
        self.samples * self.count.iter().product::<u64>()
    }

    /// Number of blocks of a group of channels.
    fn group_blocks(&self) -> u64 {
        self.threads().div_ceil(THREADS / self.slices)
    }

    /// Number of blocks of the kernel.
    pub fn blocks(&self) -> u64 {
        self.groups * self.group_blocks()
    }

    /// Share of the warps with threads whose window lies partly outside of the tensor: those at both ends of a row of positions. Their other
    /// threads load without checks, so that the warp executes both loads.
    fn checking(&self, shape: &Shape) -> f64 {
        let reaches = |axis: usize| match shape.form {
            Form::Transposed => (shape.kernel[axis] - 1) * shape.dilation[axis] / shape.stride[axis] > 0,
            _ => shape.padding[axis] > 0,
        };
        let dims = shape.kernel.len();
        if !(0..dims).any(reaches) {
            return 0.0;
        }
        // The end of a row is a neighbour of the beginning of the next, unless rows have whole warps.
        let [ranges, length] = [self.count[1], self.count[2]];
        let row = if dims == 1 { ranges * length } else { length };
        let warps = if length.is_multiple_of(WARP) { 2 * WARP } else { WARP + 1 };
        (warps as f64 / row as f64).min(1.0)
    }

    /// Number of channels of a thread, which it processes one after the other.
    pub fn steps(&self) -> u64 {
        self.channels.div_ceil(self.slices)
    }

    /// Number of accesses for which a thread waits, one after the other: the loads of each channel, with and without checks, and those of
    /// the weights that it copies.
    pub fn waits(&self, shape: &Shape) -> f64 {
        let copied = (self.weights(shape) as f64 / (THREADS * WEIGHTS_AT_ONCE) as f64).ceil();
        self.steps() as f64 * (1.0 + self.checking(shape)) + copied
    }

    /// Number of weights that a block copies to shared memory.
    fn weights(&self, shape: &Shape) -> u64 {
        self.channels * self.rows * shape.elements()
    }

    /// Number of sums of a thread.
    fn sums(&self, shape: &Shape) -> u64 {
        let phases: u64 = if shape.form == Form::Transposed { shape.stride.iter().product() } else { 1 };
        self.own * phases * self.rows
    }

    /// Number of exchanges of sums, one after the other, among the threads that share channels.
    pub fn exchanges(&self, shape: &Shape) -> u64 {
        if self.slices > 1 { self.sums(shape).div_ceil(self.slices) } else { 0 }
    }

    /// Number of loads of all threads: of gathered elements, and of packs of four weights in shared memory.
    pub fn loads(&self, shape: &Shape) -> f64 {
        let weights = (self.rows * shape.elements()).div_ceil(4);
        (self.groups * self.threads() * self.channels) as f64 * (self.values(shape) + weights) as f64
    }

    /// Number of cache lines from which all threads load: of gathered elements, and of packs of four weights in shared memory, which are
    /// the same for a warp.
    pub fn loaded_lines(&self, shape: &Shape, size: u64) -> f64 {
        let weights = (self.rows * shape.elements()).div_ceil(4) as f64;
        let channels = (self.groups * self.threads() * self.channels) as f64;
        let values = self.values(shape) as f64 * (1.0 + self.checking(shape));
        channels * (values * self.lines(shape, size) + weights)
    }

    /// Average number of cache lines from which a warp loads one element for each thread. Neighbouring threads load elements of one row.
    fn lines(&self, shape: &Shape, size: u64) -> f64 {
        shape.lines_of_warp(self.count[2], if shape.kernel.len() > 1 { self.own } else { 1 }, size)
    }

    /// Returns the number of instructions of all threads.
    pub fn instructions(&self, shape: &Shape, size: u64) -> f64 {
        let (_, columns, _) = shape.product();
        let threads = (self.groups * self.threads()) as f64;
        let results = (self.groups * self.rows * columns) as f64;
        let values = self.values(shape) as f64;
        let last = shape.kernel.len() - 1;
        let innermost = ((shape.kernel[last] - 1) * shape.dilation[last] + 1) as f64;
        // The places of elements of one dimension are constants.
        let rows = if last > 0 { values / innermost } else { 0.0 };
        let conversion = if size < 4 { PER_CONVERSION } else { 0.0 };
        let weights = (self.rows * shape.elements()).div_ceil(4) as f64;
        let of_a_channel = PER_CHANNEL
            + PER_ROW * rows
            + (PER_VALUE + conversion) * values
            + self.checking(shape) * (PER_CHECKED + conversion) * values
            + weights;
        let exchanged = self.exchanges(shape) as f64 * (PER_EXCHANGE + PER_SHARED_SUM * self.slices as f64);
        threads * self.channels as f64 * of_a_channel
            + threads * self.slices as f64 * (PER_THREAD + exchanged)
            + self.blocks() as f64 * self.weights(shape) as f64 * PER_WEIGHT
            + PER_RESULT * results
            + shape.flops() / 2.0
    }

    /// Returns the parameters that only this kernel has.
    pub fn parameters(&self) -> [Parameter; 3] {
        let extents = self.first.iter().chain(&self.count).copied().collect();
        [
            param("const Extents extents", Arg::Words(extents)),
            u32_param("count", self.threads()),
            u32_param("group_blocks", self.group_blocks()),
        ]
    }

    /// Returns the macro definitions that only this kernel uses.
    pub fn definitions(&self, shape: &Shape) -> String {
        let padded = (self.rows * shape.elements()).next_multiple_of(4);
        let sums = if self.slices > 1 { self.slices * THREADS } else { 0 };
        let memory = (self.chunk * padded).max(sums);
        let spacing = self.count[2];
        format!(
            "#define ROWS {}\n#define CHANNELS {}\n#define OWN {}\n#define SLICES {}\n#define CHUNK {}\n#define MEMORY {memory}\n\
             #define SPACING {spacing}\n",
            self.rows, self.channels, self.own, self.slices, self.chunk
        )
    }
}
