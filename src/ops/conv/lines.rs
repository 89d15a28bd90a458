//! Gradients of weights of few gathered channels: blocks copy runs of positions to shared memory, and each thread sums up the
//! weights of some rows and of one line of kernel elements in registers.
//!
//! Neighbouring kernel elements multiply a row of the result's gradient with the same elements of `x`, shifted. A thread reads
//! these once for four positions and all elements of a line.

use super::*;
use crate::ops::kernels::kernel::{Parameter, u32_param};
use crate::ops::kernels::occupancy::{DEFAULT_SHARED, UNITS, resident_blocks};

/// Maximum number of lines of kernel elements in all gathered channels.
const MAX_LINES: u64 = 64;

/// Maximum number of rows of a thread.
const MAX_ROWS: u64 = 16;
/// Maximum number of registers of the sums and operands of a thread: with those that it needs besides, an SM runs two blocks.
const MAX_HELD: u64 = 128 - OTHER_REGISTERS;
/// Maximum size in bytes of the gathered elements that a thread holds.
const MAX_REACH: u64 = 128;

/// Neighbouring positions that a thread multiplies at once.
const PACK: u64 = 4;

/// Maximum size in bytes of a block's copies.
const MEMORY: u64 = 40 << 10;
/// Maximum size in bytes of the offsets of their lines.
const TABLES: u64 = DEFAULT_SHARED - MEMORY;
/// Bytes of the offsets of a line of copies.
const TABLE_ENTRY: u64 = 16;

/// Multiplications that an SM executes in the time of a load from shared memory.
const PER_LOAD: f64 = 4.0;
/// Multiplications that a thread executes in the time in which it copies an element.
const PER_COPY: f64 = 32.0;
/// Number of elements of a copy that a thread loads at once.
const AT_ONCE: u64 = 8;
/// Registers of a thread besides its sums and operands.
const OTHER_REGISTERS: u64 = 50;

/// Division of the work among threads.
pub struct Lines {
    /// Number of rows of a thread.
    own: u64,
    /// Number of threads that divide the rows of a block.
    row_groups: u64,
    /// Number of blocks that divide the rows.
    row_parts: u64,
    /// Number of lines of kernel elements: one for each thread of a group of rows.
    taps: u64,
    /// Number of threads that share the positions of the same weights.
    slices: u64,
    /// Number of neighbouring positions of a copied line, a multiple of [`PACK`].
    run: u64,
    /// Number of lines of positions that a block copies at once.
    lines: u64,
    /// Number of runs of a line of positions.
    runs: u64,
    /// Number of lines of positions in all samples.
    outers: u64,
    /// Elements from one line of copies to the next: of the gradient of the result, and of gathered elements.
    widths: [u64; 2],
    /// Number of blocks that share the positions.
    pub splits: u64,
    /// Number of copies of each of these blocks.
    share: u64,
}

/// Returns the size as an odd number of packs, so that neighbouring lines begin in different banks of shared memory.
fn odd(size: u64) -> u64 {
    (size.div_ceil(PACK) | 1) * PACK
}

impl Lines {
    /// Returns the division; `None` for other forms, narrow elements, many channels, kernels without neighbours, and no positions.
    pub fn of(spec: &Spec, shape: &Shape) -> Option<Lines> {
        let (rows, _, depth) = shape.product();
        let dtype = spec.inputs[0].dtype;
        let size = dtype.compute().size();
        let last = shape.kernel.len() - 1;
        let (along, stride) = (shape.kernel[last], shape.stride[last]);
        let taps = shape.taps() / along;
        let reach = (PACK - 1) * stride + (along - 1) * shape.dilation[last] + 1;
        let fits = along > 1 && taps <= MAX_LINES && reach * size <= MAX_REACH;
        if shape.form != Form::Weights || dtype.size() < 4 || !fits || depth == 0 {
            return None;
        }
        let division = |own: u64| {
            let groups = rows.div_ceil(own);
            let row_parts = groups.div_ceil(THREADS / taps);
            let row_groups = groups.div_ceil(row_parts);
            let slices = THREADS / (row_groups * taps);
            let loads = own + reach.div_ceil(PACK);
            let products = (PACK * own * along) as f64 + PER_LOAD * loads as f64;
            let copied = PACK * (row_groups * own + taps * stride);
            let time = row_parts as f64 * (products / slices as f64 + PER_COPY * copied as f64 / THREADS as f64);
            (time, own, row_groups, row_parts, slices)
        };
        let (_, own, row_groups, row_parts, slices) = (1..=MAX_ROWS.min(rows))
            .filter(|own| (own * along + reach + PACK) * size / 4 <= MAX_HELD)
            .map(division)
            .min_by(|left, right| left.0.total_cmp(&right.0))?;
        let positions = shape.y[last];
        let outers = depth / positions;
        let mut lines = Lines {
            own,
            row_groups,
            row_parts,
            taps,
            slices,
            run: PACK,
            lines: 1,
            runs: 1,
            outers,
            widths: [0; 2],
            splits: 1,
            share: 1,
        };
        // As many positions as memory holds, but few enough for all blocks that run at the same time.
        let bytes = (row_groups * own + taps * stride) * size;
        let resident = lines.resident(shape, size);
        let blocks = (UNITS * resident / (row_parts * shape.groups)).max(1);
        let each = depth.div_ceil(blocks).max(PACK * slices);
        let copies = each.div_ceil((MEMORY / bytes).max(PACK));
        let mut wanted = each.div_ceil(copies);
        loop {
            // Runs of whole packs can be fewer than wanted, since none may begin behind the end of a line.
            lines.run = positions.div_ceil(positions.div_ceil(wanted)).next_multiple_of(PACK);
            lines.runs = positions.div_ceil(lines.run);
            lines.lines = if lines.runs == 1 { (wanted / lines.run).clamp(1, outers) } else { 1 };
            lines.widths = [odd(lines.run), odd((lines.run - PACK) * stride + reach.next_multiple_of(PACK))];
            let copied = lines.copied() * size <= MEMORY && lines.lines * taps * TABLE_ENTRY <= TABLES / 2;
            if copied {
                break;
            }
            if wanted <= PACK {
                return None;
            }
            wanted = (wanted * 7 / 8).max(PACK);
        }
        let chunks = lines.chunks();
        lines.share = chunks.div_ceil(blocks);
        lines.splits = chunks.div_ceil(lines.share);
        Some(lines)
    }

    /// Number of blocks that an SM runs at the same time.
    fn resident(&self, shape: &Shape, size: u64) -> u64 {
        resident_blocks(THREADS, OTHER_REGISTERS + self.held(shape) * size / 4).clamp(1, 4)
    }

    /// Number of elements of a block's copies.
    fn copied(&self) -> u64 {
        self.lines * (self.own * self.row_groups * self.widths[0] + self.taps * self.widths[1])
    }

    /// Number of copies of all blocks.
    fn chunks(&self) -> u64 {
        self.outers.div_ceil(self.lines) * self.runs
    }

    /// Number of sums and operands that a thread holds.
    pub fn held(&self, shape: &Shape) -> u64 {
        let last = shape.kernel.len() - 1;
        let (along, stride) = (shape.kernel[last], shape.stride[last]);
        self.own * along + (PACK - 1) * stride + (along - 1) * shape.dilation[last] + 1 + PACK
    }

    /// Number of blocks of a group of channels.
    pub fn blocks(&self) -> u64 {
        self.row_parts * self.splits
    }

    /// Number of copies of a block, which it makes one after the other.
    pub fn steps(&self) -> u64 {
        self.share
    }

    /// Number of accesses for which a thread waits, one after the other, while it copies the elements of both operands in each step.
    pub fn waits(&self) -> u64 {
        let [factors, windows] = [self.own * self.row_groups * self.widths[0], self.taps * self.widths[1]];
        self.share * [factors, windows].map(|each| (self.lines * each).div_ceil(AT_ONCE * THREADS)).iter().sum::<u64>()
    }

    /// Number of loads from shared memory of all threads.
    pub fn loads(&self, shape: &Shape) -> f64 {
        let last = shape.kernel.len() - 1;
        let reach = self.held(shape) - self.own * shape.kernel[last] - PACK;
        let packs = (self.chunks() * self.lines * self.run / PACK) as f64;
        let threads = (shape.groups * self.row_parts * self.row_groups * self.taps) as f64;
        packs * threads * (self.own + reach.div_ceil(PACK)) as f64
    }

    /// Returns the number of instructions of all threads.
    pub fn instructions(&self, shape: &Shape) -> f64 {
        let blocks = (shape.groups * self.row_parts * self.chunks()) as f64;
        self.products(shape) + blocks * PER_COPY * self.copied() as f64
    }

    /// Number of multiplications of all threads.
    pub fn products(&self, shape: &Shape) -> f64 {
        let last = shape.kernel.len() - 1;
        let blocks = (shape.groups * self.row_parts * self.chunks()) as f64;
        let products = self.row_groups * self.taps * self.own * shape.kernel[last] * self.lines * self.run;
        blocks * products as f64
    }

    /// Returns the parameters that only this kernel has.
    pub fn parameters(&self) -> [Parameter; 4] {
        [
            u32_param("outers", self.outers),
            u32_param("chunks", self.chunks()),
            u32_param("splits", self.splits),
            u32_param("share", self.share),
        ]
    }

    /// Returns the macro definitions that only this kernel uses. `offset` is the type of offsets in operands. The flags tell whether
    /// neighbours in the last dimension of the gathered tensor and of the factor have no gaps.
    pub fn definitions(&self, shape: &Shape, offset: &str, [gathered, factor]: [bool; 2]) -> String {
        let sums = self.own * shape.kernel[shape.kernel.len() - 1];
        let batch = (self.copied() / THREADS).clamp(1, sums);
        let Lines { own, row_groups, taps, slices, run, lines, runs, widths, .. } = self;
        format!(
            "typedef {offset} Offset;\n#define OWN {own}\n#define ROW_GROUPS {row_groups}\n#define TAP_LINES {taps}\n#define SLICES {slices}\n\
             #define RUN {run}\n#define RUNS {runs}\n#define LINES {lines}\n#define ROW_WIDTH {}\n#define WIDTH {}\n\
             #define BATCH {batch}\n#define MEMORY {}\n#define UNIT_GATHERED {}\n#define UNIT_FACTOR {}\n",
            widths[0],
            widths[1],
            self.copied().max(batch * THREADS),
            u32::from(gathered),
            u32::from(factor),
        )
    }
}

/// Kernel text before the body: macros, launch bounds, and the function that copies elements to shared memory.
pub const TEXT: &str = r#"
#define LAST (DIMS - 1)
#define ALONG KERNEL(LAST)
#define REACH (3 * STRIDE(LAST) + (ALONG - 1) * DILATION(LAST) + 1)
#define BLOCK_ROWS (OWN * ROW_GROUPS)
#define GROUP (ROW_GROUPS * TAP_LINES)
#define SUMS (OWN * ALONG)
#define AT_ONCE 8
// Two blocks for each SM.
#undef BOUNDS
#define BOUNDS __launch_bounds__(THREADS, 2)
// Copies elements to shared memory, and zero for those that do not exist: `locate` tells whether that of a number does, and where.
template <typename F> __device__ inline void copy(C* to, u32 count, const T* from, F locate) {
#pragma unroll 1
  for (u32 start = threadIdx.x; start < count; start += AT_ONCE * THREADS) {
    C found[AT_ONCE];
    EACH(i, AT_ONCE) {
      const u32 number = start + i * THREADS;
      Offset at;
      const bool exists = locate(number < count ? number : count - 1, at);
      found[i] = 0;
      if (exists) found[i] = load<C>(from[at]);
    }
    EACH(i, AT_ONCE) if (start + i * THREADS < count) to[start + i * THREADS] = found[i];
  }
}
"#;

/// Kernel text: a group of `ROW_GROUPS` × `TAP_LINES` threads sums up all weights of a block, and `SLICES` groups share the positions.
pub const BODY: &str = r#"  __shared__ Pack<C, 4> memory[MEMORY / 4];
  __shared__ Offset from[LINES * TAP_LINES], of_factor[LINES];
  __shared__ i32 starts[LINES * TAP_LINES];
  __shared__ u32 counts[LINES];
  u32 rest = blockIdx.x;
  const u32 row_parts = (rows + BLOCK_ROWS - 1) / BLOCK_ROWS, first_row = rest % row_parts * BLOCK_ROWS;
  rest /= row_parts;
  const u32 group = rest % groups, split = rest / groups, begin = split * share;
  const u32 end = chunks - begin < share ? chunks : begin + share, positions = (u32)sizes.positions[LAST];
  gathered += group * sg.group;
  factor += group * sf.group + first_row * sf.channel;
  C* factors = memory->at;
  C* windows = factors + LINES * BLOCK_ROWS * ROW_WIDTH;
  const u32 slice = threadIdx.x / GROUP, own = threadIdx.x % GROUP, own_line = own % TAP_LINES, own_row = own / TAP_LINES;
  const Offset row_step = (Offset)sf.channel, factor_step = UNIT_FACTOR ? 1 : (Offset)sf.at[LAST], step = UNIT_GATHERED ? 1 : (Offset)sg.at[LAST];
  C sums[OWN][ALONG];
  EACH(r, OWN) EACH(k, ALONG) sums[r][k] = 0;
#pragma unroll 1
  for (u32 chunk = begin; chunk < end; chunk++) {
    const u32 first = chunk % RUNS * RUN, outer = chunk / RUNS * LINES;
    __syncthreads();
    for (u32 i = threadIdx.x; i < LINES * TAP_LINES; i += THREADS) {
      const u32 line = i / TAP_LINES, tap_line = i % TAP_LINES;
      const bool exists = outer + line < outers;
      const Position position = position_of((exists ? outer + line : 0) * positions + first, sizes);
      const Place place = place_of(position, exists, sg, sizes);
      const Tap tap = tap_of(tap_line / (ELEMENTS / ALONG), tap_line % (ELEMENTS / ALONG) * ALONG, true, sg);
      bool inside = exists;
      EACH(j, LAST) inside = inside && (u32)(place.start[j] + tap.shift[j]) < (u32)sizes.sources[j];
      from[i] = (Offset)(place.at + tap.at);
      starts[i] = inside ? place.start[LAST] : OUTSIDE;
      if (tap_line == 0) {
        of_factor[line] = (Offset)offset_of(position, sf);
        counts[line] = !exists ? 0 : positions - first < RUN ? positions - first : RUN;
      }
    }
    __syncthreads();
    copy(factors, LINES * BLOCK_ROWS * ROW_WIDTH, factor, [&](u32 i, Offset& at) {
      const u32 all = i / ROW_WIDTH, place = i % ROW_WIDTH, line = all / BLOCK_ROWS, row = all % BLOCK_ROWS;
      at = of_factor[line] + row * row_step + place * factor_step;
      return place < counts[line] && first_row + row < rows;
    });
    copy(windows, LINES * TAP_LINES * WIDTH, gathered, [&](u32 i, Offset& at) {
      const u32 line = i / WIDTH, place = i % WIDTH;
      at = from[line] + place * step;
      return (u32)(starts[line] + (i32)place) < (u32)sizes.sources[LAST];
    });
    __syncthreads();
    if (slice >= SLICES) continue;
#pragma unroll 1
    for (u32 pack = slice; pack < LINES * (RUN / 4); pack += SLICES) {
      const u32 line = pack / (RUN / 4), place = pack % (RUN / 4) * 4, count = counts[line];
      if (place >= count) continue;
      C values[(REACH + 3) / 4 * 4];
      const Pack<C, 4>* packs = (const Pack<C, 4>*)(windows + (line * TAP_LINES + own_line) * WIDTH + place * STRIDE(LAST));
      EACH(i, (REACH + 3) / 4) {
        const Pack<C, 4> found = packs[i];
        EACH(v, 4) values[4 * i + v] = found.at[v];
      }
      const C* row = factors + (line * BLOCK_ROWS + own_row) * ROW_WIDTH + place;
      const int between = ROW_GROUPS * ROW_WIDTH;
      if (place + 4 <= count) {
        EACH(r, OWN) {
          const Pack<C, 4> each = *(const Pack<C, 4>*)(row + r * between);
          EACH(i, 4) EACH(k, ALONG) sums[r][k] += each.at[i] * values[i * STRIDE(LAST) + k * DILATION(LAST)];
        }
      } else {
        EACH(i, 3) if (place + i < count) {
          EACH(r, OWN) EACH(k, ALONG) sums[r][k] += row[r * between + i] * values[i * STRIDE(LAST) + k * DILATION(LAST)];
        }
      }
    }
  }
  auto put = [&](u32 own, u32 index, C sum) {
    const u32 row = first_row + own / TAP_LINES + index / ALONG * ROW_GROUPS, column = own % TAP_LINES * ALONG + index % ALONG;
    if (row >= rows) return;
    if (splits > 1) parts[(((u64)split * groups + group) * rows + row) * columns + column] = sum;
    else store<C>(out[group * so.group + COLUMN(column) + row * ROW_STEP], sum);
  };
#if SLICES == 1
  if (slice < SLICES) EACH(r, OWN) EACH(k, ALONG) put(own, r * ALONG + k, sums[r][k]);
#else
#pragma unroll
  for (int first = 0; first < SUMS; first += BATCH) {
    __syncthreads();
    EACH(i, BATCH) if (first + i < SUMS) memory->at[i * THREADS + threadIdx.x] = sums[(first + i) / ALONG][(first + i) % ALONG];
    __syncthreads();
    for (u32 i = threadIdx.x; i < BATCH * GROUP && first + i / GROUP < SUMS; i += THREADS) {
      const C* each = memory->at + i / GROUP * THREADS + i % GROUP;
      C sum = each[0];
#pragma unroll 4
      for (u32 other = 1; other < SLICES; other++) sum += each[other * GROUP];
      put(i % GROUP, first + i / GROUP, sum);
    }
  }
#endif
"#;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::random::hash;

    /// Each position belongs to one run, and each line of positions to one copy.
    #[test]
    fn runs_divide_the_positions() {
        let (mut divided, mut several) = (0, 0);
        for seed in 0..4000 {
            let draw = |count: u64, limit: u64| hash(seed, count) % limit;
            let pick = |count: u64, all: &[u64]| all[draw(count, all.len() as u64) as usize];
            let spatial = 1 + draw(0, 2);
            let (kernel, stride, x) = (1 + draw(1, 16), 1 + draw(2, 3), 7 + draw(3, 300));
            let Some(y) = windows_of(x, kernel, [stride, 0, 1]) else { continue };
            let (samples, inputs, outputs) = (1 + draw(4, 32), 1 + draw(5, 4), pick(6, &[5, 19, 32, 64, 130]));
            let dtype = [DType::F32, DType::F64][draw(7, 2) as usize];
            let of = |channels: u64, size: u64| {
                Tensor::packed(dtype, &[&[samples, channels], &[size, size][..spatial as usize]].concat())
            };
            let options = [("size", kernel), ("stride", stride)].map(|(name, size)| (name, Attr::Int(size as i64)));
            let factors = vec![of(inputs, x), of(outputs, y)];
            let spec = Spec::of_use("conv_weights", &options, factors, &[None]).expect("gradients of weights");
            let shape = Shape::of(&spec);
            let Some(lines) = Lines::of(&spec, &shape) else { continue };
            let begin_of_last = (lines.runs - 1) * lines.run;
            assert!(begin_of_last < y && y <= lines.runs * lines.run, "{y} positions, {} runs: {shape:?}", lines.runs);
            let outers = shape.samples * if spatial == 2 { y } else { 1 };
            assert_eq!(lines.outers, outers, "{shape:?}");
            let copies = lines.splits * lines.share;
            assert!((lines.splits - 1) * lines.share < lines.chunks() && lines.chunks() <= copies, "{shape:?}");
            divided += 1;
            several += u64::from(lines.runs > 1);
        }
        assert!(divided > 500 && several > 100, "{divided} of the drawn shapes, {several} with several runs");
    }
}
