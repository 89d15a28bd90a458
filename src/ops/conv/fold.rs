//! Transposed convolutions from many channels to few: a matrix product of the windows, which a second kernel folds (`col2im`).
//!
//! The product of a window and the weights of a kernel element is a term of one result. The first kernel sums up these terms over the
//! channels, so that it reads each window once, and the second one adds the terms of all kernel elements.

use super::few::Few;
use super::*;
use crate::ops::kernels::kernel::{Parameter, u32_param, u64_param};
use crate::ops::kernels::occupancy::{BANDWIDTH, BUSY_BLOCKS};

/// Neighbouring windows of a thread.
const PACK: u64 = 4;

/// Maximum number of windows of a block: each thread copies elements of one of them.
const MAX_WINDOWS: u64 = THREADS;

/// Maximum number of terms of a window for which a thread holds the sums of one part of them.
const MAX_TERMS: u64 = 512;

/// Maximum size in bytes of the sums of a thread.
const MAX_SUMS: u64 = 256;
/// Maximum size in bytes of a block's copies.
const MEMORY: u64 = 40 << 10;

/// Maximum number of threads that share the channels of the same terms.
const MAX_SLICES: u64 = 8;
/// Maximum number of groups of threads that divide the terms.
const MAX_GROUPS: u64 = 8;

/// Maximum size in bytes of all terms.
const MAX_PARTS: u64 = 256 << 20;

/// Multiplications that an SM executes in the time of a load from shared memory, and that a thread does while it copies an element, or
/// begins and ends.
const PER_LOAD: u64 = 4;
const PER_COPY: u64 = 10;
const PER_THREAD: u64 = 500;

/// Instructions of a thread that copies a weight, whose place follows from divisions for each dimension; and elements of each copy that a
/// thread loads at once.
const PER_WEIGHT: u64 = 60;
const AT_ONCE: u64 = 8;

/// Multiplications of 32 bits, or loads in their place, per ns of an H100.
const PRODUCTS: f64 = 18e3;
/// Bytes of terms per ns of an H100.
const TERMS_BANDWIDTH: f64 = 1800.0;
/// Results per ns of an H100 to which terms are added.
const RESULTS: f64 = 80.0;
/// Time in ns of both launches.
const LAUNCHES: f64 = 4000.0;

/// Loads of threads per ns of the kernel for few rows.
const FEW_LOADS: f64 = 2000.0;
/// Time in ns of the launch of that kernel.
const FEW_LAUNCH: f64 = 2000.0;

/// Division of the work among threads.
pub struct Fold {
    /// Number of terms of a window: one for each row and kernel element.
    terms: u64,
    /// Number of windows of all samples.
    count: u64,
    /// Number of windows of a sample.
    windows: u64,
    /// Number of gathered channels per group.
    channels: u64,
    /// Number of terms of a thread.
    own: u64,
    /// Number of threads that divide the terms of a block.
    term_groups: u64,
    /// Number of blocks that divide all terms.
    term_parts: u64,
    /// Number of threads that share the channels of the same terms.
    slices: u64,
    /// Number of packs of windows of a block.
    packs: u64,
    /// Number of channels that a block copies at once.
    chunk: u64,
}

impl Fold {
    /// Returns the division; `None` if these kernels do not apply, or if the kernel for few rows is faster.
    pub fn of(spec: &Spec, shape: &Shape, few: &Few) -> Option<Fold> {
        let (rows, ..) = shape.product();
        let size = spec.inputs[0].dtype.compute().size();
        let terms = rows * shape.elements();
        let windows: u64 = shape.y.iter().product();
        let (count, channels) = (shape.samples * windows, shape.gathered());
        let bytes = shape.groups * terms * count.next_multiple_of(PACK) * size;
        if shape.form != Form::Transposed || terms > MAX_TERMS || bytes > MAX_PARTS {
            return None;
        }
        let (mut best, mut best_time) = (None, u64::MAX);
        for own in (PACK..=MAX_SUMS / size / PACK).step_by(PACK as usize) {
            let groups = terms.div_ceil(own);
            for (term_groups, slices) in
                (1..=MAX_GROUPS.min(groups)).flat_map(|groups| [1, 2, 4, 8].map(|slices| (groups, slices)))
            {
                let packs = (THREADS / (term_groups * slices)).min(count.div_ceil(PACK)).min(MAX_WINDOWS / PACK);
                if packs == 0 || slices > MAX_SLICES.min(channels) {
                    continue;
                }
                let term_parts = groups.div_ceil(term_groups);
                let width = term_groups * own + PACK * packs;
                let copies = channels.div_ceil((MEMORY / size / width / slices * slices).max(slices));
                let chunk = channels.div_ceil(copies).next_multiple_of(slices);
                let fold = Fold { terms, count, windows, channels, own, term_groups, term_parts, slices, packs, chunk };
                let products = fold.products_of_channel();
                let joined = if slices > 1 { 2 * PER_LOAD * own } else { 0 };
                let block =
                    chunk * copies / slices * products + channels * width * PER_COPY / THREADS + joined + PER_THREAD;
                let time = (shape.groups * fold.group_blocks()).div_ceil(BUSY_BLOCKS) * block;
                if time <= best_time && fold.memory() * size <= MEMORY {
                    (best, best_time) = (Some(fold), time);
                }
            }
        }
        let fold = best?;
        let each = (fold.products_of_channel() * terms.div_ceil(fold.own) * count.div_ceil(PACK)) as f64;
        let products = each * (channels * shape.groups * size) as f64 / 4.0 / PRODUCTS;
        let of_terms = 2.0 * bytes as f64 / TERMS_BANDWIDTH;
        let of_results = spec.outputs[0].elements() as f64 / RESULTS;
        let moved = (Spec::bytes_of(&spec.inputs).total() + Spec::bytes_of(&spec.outputs).total()) as f64 / BANDWIDTH;
        let time = products.max(moved) + of_terms + of_results + LAUNCHES;
        (time < (few.loads(shape) / FEW_LOADS).max(moved) + FEW_LAUNCH).then_some(fold)
    }

    /// Multiplications of a thread for a channel, and those that an SM could execute while the thread loads its operands. Threads of a
    /// warp load the same weights, but windows of their own.
    fn products_of_channel(&self) -> u64 {
        PACK * self.own + PER_LOAD * (PACK + self.own / PACK)
    }

    /// Number of windows with those that complete the last pack.
    fn stride(&self) -> u64 {
        self.count.next_multiple_of(PACK)
    }

    /// Number of sums of terms of a group of channels.
    pub fn parts(&self) -> u64 {
        self.terms * self.stride()
    }

    /// Number of blocks of a group of channels that sum up terms.
    pub fn group_blocks(&self) -> u64 {
        self.term_parts * self.count.div_ceil(PACK * self.packs)
    }

    /// Number of elements in the shared memory of a block.
    fn memory(&self) -> u64 {
        let copied = self.chunk * (self.term_groups * self.own + PACK * self.packs);
        if self.slices > 1 { copied.max(PACK * THREADS) } else { copied }
    }

    /// Number of copies of a block, which it makes one after the other.
    pub fn steps(&self) -> u64 {
        self.channels.div_ceil(self.chunk)
    }

    /// Number of accesses for which a thread waits, one after the other: while it copies weights and gathered elements in each step; and for
    /// each line of kernel elements of a result, which a branch leads to.
    pub fn waits(&self, shape: &Shape) -> u64 {
        let of_weights = (self.chunk * self.term_groups * self.own).div_ceil(AT_ONCE * THREADS);
        let of_values = self.chunk.div_ceil(AT_ONCE * (THREADS / (PACK * self.packs)));
        let lines = shape.elements() / shape.kernel.last().copied().unwrap_or(1);
        self.steps() * (of_weights + of_values) + lines
    }

    /// Number of sums and operands that a thread holds.
    pub fn held(&self) -> u64 {
        PACK * (self.own + 2)
    }

    /// Number of loads from shared memory of all threads.
    pub fn loads(&self, shape: &Shape) -> f64 {
        let threads = shape.groups * self.group_blocks() * self.term_groups * self.packs;
        (threads * self.channels * (1 + self.own / PACK)) as f64
    }

    /// Returns the number of instructions of all threads of both kernels.
    pub fn instructions(&self, shape: &Shape) -> f64 {
        let blocks = shape.groups * self.group_blocks();
        let copies = self.term_groups * self.own * PER_WEIGHT + PACK * self.packs * PER_COPY;
        let added = shape.groups * shape.product().0 * shape.positions() * (shape.elements() + 1);
        self.products(shape) + (blocks * self.channels * copies) as f64 + 8.0 * added as f64
    }

    /// Number of multiplications of all threads.
    pub fn products(&self, shape: &Shape) -> f64 {
        let blocks = shape.groups * self.group_blocks();
        (blocks * self.channels * self.packs * PACK * self.term_groups * self.own) as f64
    }

    /// Returns the parameters that only these kernels have.
    pub fn parameters(&self) -> [Parameter; 3] {
        [u32_param("count", self.count), u32_param("windows", self.windows), u64_param("stride", self.stride())]
    }

    /// Returns the macro definitions that only these kernels use.
    pub fn definitions(&self, shape: &Shape) -> String {
        let Fold { terms, channels, own, term_groups, term_parts, slices, packs, chunk, .. } = self;
        let memory = self.memory();
        let batch = (memory / (PACK * THREADS)).clamp(1, *own);
        format!(
            "#define ROWS {}\n#define TERMS {terms}\n#define CHANNELS {channels}\n#define OWN {own}\n#define TERM_GROUPS {term_groups}\n\
             #define TERM_PARTS {term_parts}\n#define SLICES {slices}\n#define PACKS {packs}\n#define CHUNK {chunk}\n\
             #define MEMORY {memory}\n#define BATCH {batch}\n",
            shape.product().0
        )
    }
}

/// Kernel text: sums up the terms of the windows over the channels.
pub const TERMS: &str = r#"  const int WINDOWS = 4 * PACKS, WIDTH = TERM_GROUPS * OWN, GROUP = PACKS * TERM_GROUPS, COPY_ROWS = THREADS / WINDOWS, AT_ONCE = 8;
  __shared__ Pack<C, 4> memory[MEMORY / 4];
  u32 rest = blockIdx.x;
  const u32 first_term = rest % TERM_PARTS * WIDTH;
  rest /= TERM_PARTS;
  const u32 blocks = (count + WINDOWS - 1) / WINDOWS, first = rest % blocks * WINDOWS, group = rest / blocks;
  gathered += group * sg.group;
  factor += group * sf.group;
  C* weights = memory->at;
  C* values = weights + CHUNK * WIDTH;
  // The window whose elements the thread copies.
  const u32 copied = threadIdx.x % WINDOWS, copy_row = threadIdx.x / WINDOWS;
  const bool exists = first + copied < count;
  i64 at = 0;
  {
    u32 left = exists ? first + copied : 0;
#pragma unroll
    for (int j = DIMS - 1; j >= 0; j--) {
      const u32 size = (u32)sizes.sources[j];
      at += left % size * sg.at[j];
      left /= size;
    }
    at += left * sg.outer;
  }
  const u32 own = threadIdx.x % GROUP, slice = threadIdx.x / GROUP, pack = own % PACKS, part = own / PACKS;
  const i64 row_step = COPY_ROWS * sg.channel;
  C sums[OWN][4];
  EACH(m, OWN) EACH(i, 4) sums[m][i] = 0;
#pragma unroll 1
  for (u32 start = 0; start < CHANNELS; start += CHUNK) {
    __syncthreads();
#pragma unroll 1
    for (u32 begin = threadIdx.x; begin < CHUNK * WIDTH; begin += AT_ONCE * THREADS) {
      C found[AT_ONCE];
      EACH(i, AT_ONCE) {
        const u32 number = begin + i * THREADS, channel = start + number / WIDTH, term = first_term + number % WIDTH;
        const i64 of_weight = weight_of(channel * ELEMENTS + term % ELEMENTS, sf) + term / ELEMENTS * sf.outer;
        found[i] = 0;
        if (channel < CHANNELS && term < TERMS && number < CHUNK * WIDTH) found[i] = load<C>(factor[of_weight]);
      }
      EACH(i, AT_ONCE) if (begin + i * THREADS < CHUNK * WIDTH) weights[begin + i * THREADS] = found[i];
    }
    const T* from = gathered + at + (start + copy_row) * sg.channel;
#pragma unroll 1
    for (u32 begin = copy_row; begin < CHUNK && copy_row < COPY_ROWS; begin += AT_ONCE * COPY_ROWS) {
      C found[AT_ONCE];
      EACH(i, AT_ONCE) {
        found[i] = 0;
        if (exists && start + begin + i * COPY_ROWS < CHANNELS && begin + i * COPY_ROWS < CHUNK) found[i] = load<C>(from[i * row_step]);
      }
      EACH(i, AT_ONCE) if (begin + i * COPY_ROWS < CHUNK) values[(begin + i * COPY_ROWS) * WINDOWS + copied] = found[i];
      from += AT_ONCE * row_step;
    }
    __syncthreads();
    if (slice >= SLICES) continue;
#pragma unroll 2
    for (u32 channel = slice; channel < CHUNK; channel += SLICES) {
      const Pack<C, 4> value = ((const Pack<C, 4>*)values)[channel * PACKS + pack];
      const Pack<C, 4>* of_terms = (const Pack<C, 4>*)weights + channel * (WIDTH / 4) + part * (OWN / 4);
      EACH(m, OWN / 4) {
        const Pack<C, 4> weight = of_terms[m];
        EACH(i, 4) EACH(v, 4) sums[4 * m + i][v] += weight.at[i] * value.at[v];
      }
    }
  }
  auto put = [&](u32 own, u32 index, const Pack<C, 4>& sum) {
    const u32 term = first_term + own / PACKS * OWN + index, window = first + own % PACKS * 4;
    if (term < TERMS && window < stride) *(Pack<C, 4>*)(parts + ((u64)group * TERMS + term) * stride + window) = sum;
  };
  auto sum_of = [&](int m) {
    Pack<C, 4> sum;
    EACH(v, 4) sum.at[v] = sums[m][v];
    return sum;
  };
#if SLICES == 1
  if (slice < SLICES) EACH(m, OWN) put(own, m, sum_of(m));
#else
#pragma unroll
  for (int begin = 0; begin < OWN; begin += BATCH) {
    __syncthreads();
    EACH(i, BATCH) if (begin + i < OWN) memory[i * THREADS + threadIdx.x] = sum_of(begin + i);
    __syncthreads();
    for (u32 i = threadIdx.x; i < BATCH * GROUP && begin + i / GROUP < OWN; i += THREADS) {
      const Pack<C, 4>* each = memory + i / GROUP * THREADS + i % GROUP;
      Pack<C, 4> sum = each[0];
      EACH(s, SLICES - 1) EACH(v, 4) sum.at[v] += each[(s + 1) * GROUP].at[v];
      put(i % GROUP, begin + i / GROUP, sum);
    }
  }
#endif
"#;

/// Kernel text: a thread adds the terms of one result. Dimensions are counted as three, of which the first ones have a single
/// kernel element if there are fewer.
pub const FOLD: &str = r#"#define SKIP (3 - DIMS)
#define K(j) KERNEL(j - SKIP)
  const u32 blocks = (columns + THREADS - 1) / THREADS, column = blockIdx.x % blocks * THREADS + threadIdx.x;
  const u32 row = blockIdx.x / blocks % ROWS, group = blockIdx.x / blocks / ROWS;
  if (column >= columns) return;
  const Position position = position_of(column, sizes);
  const C* from = parts + (u64)(group * ROWS + row) * ELEMENTS * stride + position.sample * windows;
  // Whether a kernel element meets a window along a dimension; also moves an offset by that window.
  auto meets = [&](int j, int k, u32& at) {
    const i32 start = (i32)position.at[j] + (i32)sizes.padding[j] - k * DILATION(j), window = start / STRIDE(j);
    at = at * (u32)sizes.sources[j] + window;
    return start >= 0 && start % STRIDE(j) == 0 && window < (i32)sizes.sources[j];
  };
  C sum = 0;
  EACH(k0, K(0)) {
    u32 first = 0;
#if DIMS > 2
    if (!meets(0, k0, first)) continue;
#endif
    EACH(k1, K(1)) {
      u32 second = first;
#if DIMS > 1
      if (!meets(1 - SKIP, k1, second)) continue;
#endif
      EACH(k2, K(2)) {
        u32 at = second;
        const bool exists = meets(DIMS - 1, k2, at);
        const C value = from[exists ? ((k0 * K(1) + k1) * K(2) + k2) * stride + at : 0];
        sum += exists ? value : C(0);
      }
    }
  }
  store<C>(out[group * so.group + row * so.channel + offset_of(position, so)], finished(sum, bias, group * ROWS + row));
"#;

#[cfg(test)]
mod tests {
    use super::*;

    /// The transposed convolutions of the test `transposed_convolutions_of_many_channels`, which compares the kernels with the CPU.
    #[test]
    fn convolutions_of_many_channels_fold() {
        let cases = [
            (DType::F32, &[80, 80][..], [3, 2, 1, 1], [1, 1, 260]),
            (DType::BF16, &[40, 39], [5, 1, 2, 1], [1, 2, 260]),
            (DType::F64, &[40, 39], [3, 1, 2, 2], [2, 1, 260]),
            (DType::F32, &[13, 14, 12], [3, 1, 1, 1], [1, 1, 300]),
        ];
        for (dtype, windows, [kernel, stride, padding, dilation], [samples, inputs, outputs]) in cases {
            let of = |channels: [u64; 2], sizes: &[u64]| Tensor::packed(dtype, &[&channels, sizes].concat());
            let factors = vec![of([samples, outputs], windows), of([outputs, inputs], &vec![kernel; windows.len()])];
            let steps = [("stride", stride), ("padding", padding), ("dilation", dilation)];
            let steps = steps.map(|(name, size)| (name, Attr::Int(size as i64)));
            let options = [&[("transposed", Attr::Bool(true))], &steps[..]].concat();
            let spec = Spec::of_use("conv", &options, factors, &[None]).expect("a convolution");
            let shape = Shape::of(&spec);
            let few = Few::of(&spec, &shape).expect("few rows");
            assert!(Fold::of(&spec, &shape, &few).is_some(), "{shape:?}");
        }
    }
}
