//! Kernels of a batch norm of many samples, which are contiguous: threads own columns of packs, each of which keeps its
//! channels from sample to sample.
//!
//! The first kernel adds up columns and then the columns of a channel, the second one combines the sums of all blocks, and
//! the third one normalizes. A tensor that the last-level cache cannot hold is read twice, so the third kernel begins where the
//! first one ended: with the elements that the cache still holds.

use super::channel::{ChannelOperands, PUT};
use super::*;
use crate::ops::kernels::kernel::{c_type, launch, param, u64_param};
use crate::ops::kernels::occupancy::{CACHE, UNITS, WARP, resident_blocks, share_with};

/// Threads of a block that owns a part of the columns.
const THREADS: u64 = 256;

/// Number of registers of a thread, to which the compiler is limited.
const REGISTERS: u64 = 64;

/// Maximum number of elements of a pack: a thread holds two sums of each of them, or three factors.
const MAX_PACK: u64 = 8;

/// Number of packs that a thread loads before it uses them.
const UNDER_WAY: u64 = 4;

/// Minimum number of packs of a thread: a block adds up its columns in less time than it takes to read so many.
const MIN_STEPS: u64 = 2 * UNDER_WAY;

/// Maximum number of waves of blocks if the rows are divided.
const MAX_WAVES: u64 = 4;

/// Threads of a block that combines the sums of a channel.
const COMBINING: u64 = 128;

/// Packs between neighbouring blocks are a multiple of this number, so that no two blocks share a cache line of 128 bytes.
const LINE: u64 = 8;

/// Instructions per element of the first and of the third kernel; estimates.
const EACH: f64 = 5.0;
/// Instructions per pack of the first and of the third kernel; estimates.
const PER_PACK: f64 = 10.0;
/// Instructions per element of a thread's packs before and after its loop: the index of its channel, and sums in shared memory.
const PER_COLUMN: f64 = 60.0;

/// Division of a batch norm among threads. A row consists of the fewest samples that begin at a multiple of a pack.
pub struct Columns {
    /// Number of elements of a tensor.
    total: u64,
    /// Number of elements of a channel in a sample.
    segment: u64,
    channels: u64,
    /// Number of elements of a pack.
    pack: u64,
    /// Number of packs of a row.
    packs: u64,
    /// Number of whole rows. Fewer samples than a row has may follow.
    rows: u64,
    /// Number of packs of a row that a block owns.
    beside: u64,
    /// Number of rows that a block reads at the same time.
    lanes: u64,
    /// Number of parts into which the rows are divided among blocks.
    parts: u64,
}

impl Columns {
    /// Returns the division; `None` if tensors have gaps or are not aligned, if threads would have fewer than [`MIN_STEPS`]
    /// packs, or if the cache holds a tensor whose channels consist of packs.
    pub fn of(spec: &Spec) -> Option<Columns> {
        let (x, y) = (&spec.inputs[0], &spec.outputs[0]);
        let pack = (16 / x.dtype.size().max(y.dtype.size())).min(MAX_PACK);
        if ![x, y].iter().all(|tensor| tensor.contiguous() && tensor.align >= 16) {
            return None;
        }
        if x.elements() < UNITS * THREADS * MIN_STEPS * pack {
            return None;
        }
        let (samples, channels, segment) = (x.dims[0], x.dims[1], x.dims[2..].iter().product::<u64>());
        // If the cache holds the tensor and its channels consist of packs, a third kernel costs more than this division saves.
        let own = if segment == 1 { channels } else { segment };
        if own.is_multiple_of(pack) && x.bytes() <= CACHE / 2 {
            return None;
        }
        let sample = channels * segment;
        let joined = pack >> sample.trailing_zeros().min(pack.ilog2());
        let (packs, rows) = (joined * sample / pack, samples / joined);
        if packs == 0 || joined * sample > i32::MAX as u64 {
            return None;
        }
        let beside = match packs.div_ceil(THREADS) {
            1 => packs,
            blocks => packs.div_ceil(blocks).next_multiple_of(LINE),
        };
        let lanes = (THREADS / beside).min(rows / MIN_STEPS);
        if lanes == 0 {
            return None;
        }
        let mut columns =
            Columns { total: x.elements(), segment, channels, pack, packs, rows, beside, lanes, parts: 1 };
        // Blocks of whole waves leave no SM idle at the end.
        let (wave, most) = (UNITS * columns.resident(), rows / (lanes * MIN_STEPS));
        let idle = |parts: &u64| {
            let blocks = parts * columns.across();
            1000 * blocks.next_multiple_of(wave) / blocks
        };
        columns.parts = (1..=most.min(MAX_WAVES * wave / columns.across()).max(1)).min_by_key(idle)?;
        Some(columns)
    }

    /// Number of blocks that share a row.
    fn across(&self) -> u64 {
        self.packs.div_ceil(self.beside)
    }

    /// Number of threads of a block.
    fn threads(&self) -> u64 {
        (self.beside * self.lanes).next_multiple_of(WARP)
    }

    /// Number of blocks of the first and of the third kernel.
    fn blocks(&self) -> u64 {
        self.across() * self.parts
    }

    /// Number of blocks that an SM can run at the same time.
    fn resident(&self) -> u64 {
        resident_blocks(self.threads(), REGISTERS)
    }

    /// Number of rows of a part.
    fn span(&self) -> u64 {
        self.rows.div_ceil(self.parts * self.lanes) * self.lanes
    }

    /// Number of samples of a row.
    fn joined(&self) -> u64 {
        self.packs * self.pack / (self.channels * self.segment)
    }

    /// Number of sums of a part: one for each channel of a row's samples in each block, some of which are unused.
    fn sums(&self) -> u64 {
        self.joined() * self.channels + self.across()
    }

    /// Size of the sums of all parts in bytes.
    fn workspace(&self, spec: &Spec) -> u64 {
        2 * compute_type(spec).size() * self.sums() * self.parts
    }

    /// The costs of the three launches without arithmetic operations, which do not depend on the kernels.
    pub fn launch_costs(&self, spec: &Spec) -> [Cost; 3] {
        let (x, elements) = (&spec.inputs[0], self.total as f64);
        let columns = (self.blocks() * self.threads() * self.pack) as f64;
        let reads = Traffic::of(x.space, x.bytes());
        let sums = Traffic::of(Space::Device, self.workspace(spec));
        let pass = Cost {
            instructions: (EACH + PER_PACK / self.pack as f64) * elements + PER_COLUMN * columns,
            blocks: self.blocks(),
            share: share_with(self.threads(), REGISTERS),
            ..Cost::default()
        };
        let adds = Cost { read: reads, written: sums, ..pass };
        let combines = Cost {
            read: sums,
            written: Spec::bytes_of(&spec.outputs[1..]),
            blocks: self.channels,
            share: share_with(COMBINING, REGISTERS / 2),
            ..Cost::default()
        };
        let normalizes = Cost {
            special: columns,
            read: Spec::bytes_of(&spec.inputs[1..]),
            written: Spec::bytes_of(&spec.outputs[..1]),
            ..cost_of_rereading(x, pass)
        };
        [adds, combines, normalizes]
    }

    pub fn launches(&self, spec: &Spec) -> Vec<Launch> {
        let channel = |access: &str| ChannelOperands::of(spec, access);
        let sums = param("Sums* __restrict__ sums", Arg::Workspace(self.workspace(spec)));
        let bounds = |threads: u64, blocks: u64| {
            format!("#undef BOUNDS\n#define BOUNDS __launch_bounds__({threads}, {blocks})\n")
        };
        let shape = format!(
            "#define V {}\n#define SEGMENT {}u\n#define CHANNELS {}u\n#define PACKS {}u\n#define B {}u\n#define ACROSS {}u\n\
             #define PARTS {}u\nstruct Sums {{ C sum, squares; }};\n{ORIGIN}",
            self.pack,
            self.segment,
            self.channels,
            self.packs,
            self.beside,
            self.across(),
            self.parts,
        );
        let columns = format!(
            "#define R {}\n#define THREADS {}u\n#define U {UNDER_WAY}\n#define LANES {}u\n#define EACH _Pragma(\"unroll\") for (u32 i = 0; i < V; i++)\n",
            self.lanes,
            self.threads(),
            self.segment.next_power_of_two().min(WARP),
        );
        let types = &channel("").types;
        let rows = [u64_param("total", self.total), u64_param("rows", self.rows), u64_param("span", self.span())];
        let x = param(format!("const {}* x", c_type(spec.inputs[0].dtype)), Arg::Operand(0));
        let before = [&bounds(self.threads(), self.resident()), types, &shape, &columns].map(String::as_str).concat();
        let mut params = vec![x, sums.clone()];
        params.extend(rows.clone());
        let body = [PLACE, ADD].concat();
        let adds = launch("batch_norm_sums", &before, &params, &body, self.blocks(), self.threads() as u32);

        let operands = channel("");
        let mut params = operands.params;
        params.extend([sums, u64_param("n", self.total / self.channels)]);
        let before = format!(
            "{}{types}{shape}#define JOINED {}u\n#define T {COMBINING}u\n",
            bounds(COMBINING, 1),
            self.joined(),
        );
        let combines = launch("batch_norm_statistics", &before, &params, COMBINE, self.channels, COMBINING as u32);

        let operands = channel("const");
        let mut params = operands.params;
        params.extend(rows);
        let (weight, bias) = (operands.weight, operands.bias);
        let factors = format!(
            "  auto factors_of = [&](u32 at, C& mean, C& scale, C& shift) {{\n    mean = load<C>(means[at * means_step]);\n    \
             scale = f_rsqrt(load<C>(variances[at * variances_step]) + eps) * {weight};\n    shift = {bias};\n  }};\n"
        );
        // The cache may discard results before the elements that are yet to be read.
        let stored = format!("#define CACHED \".cs\"\n{PUT}");
        let before = [&bounds(self.threads(), self.resident()), types, &shape, &columns, &stored]
            .map(|text| -> &str { text })
            .concat();
        let place = PLACE.replace("blockIdx.x", "(gridDim.x - 1 - blockIdx.x)");
        let body = [&place, &factors, NORMALIZE].map(|text| -> &str { text }).concat();
        let normalizes = launch("batch_norm", &before, &params, &body, self.blocks(), self.threads() as u32);
        vec![adds, combines, normalizes]
    }
}

/// Returns the cost of a launch that reads a tensor after an earlier launch, from memory if the cache is too small for it.
pub fn cost_of_rereading(x: &Tensor, cost: Cost) -> Cost {
    match x.space.in_host() || x.bytes() <= CACHE {
        true => Cost { reread: Traffic::of(x.space, x.bytes()), ..cost },
        false => Cost { moved: x.bytes(), ..cost },
    }
}

/// Kernel text: the columns of a thread and the rows of its block. Thread `side`, `lane` owns pack `own` of each row.
const PLACE: &str = r#"  const u32 block = blockIdx.x, column = block % ACROSS, part = block / ACROSS;
  const u32 side = threadIdx.x % B, lane = threadIdx.x / B, own = column * B + side;
  const bool live = lane < R && own < PACKS;
  const u64 begin = part * span + lane, end = begin - lane + span < rows ? begin - lane + span : rows;
  // The first element of the pack behind the last whole row, which one thread of each column reads.
  const u64 behind = (rows * PACKS + own) * V;
  const bool has_more = part == PARTS - 1 && lane == 0 && behind < total;
  auto channel_of = [&](u32 i) { return (own * V + i) / SEGMENT % CHANNELS; };
"#;

/// Kernel text: the element of a channel to which differences are summed, so that a variance that is small relative to the mean keeps its
/// precision. The median of three elements is no outlier unless two of them are.
const ORIGIN: &str = r#"__device__ inline C origin_of(const X* x, u32 channel, u64 samples) {
  const u64 sample = (u64)CHANNELS * SEGMENT;
  const X* from = x + (u64)channel * SEGMENT;
  const C a = load<C>(from[0]), b = load<C>(from[samples / 2 * sample]), c = load<C>(from[(samples - 1) * sample]);
  const C low = a < b ? a : b, high = a < b ? b : a;
  return c < low ? low : c < high ? c : high;
}
"#;

/// Kernel text that adds up the elements of each column, and then the columns of a channel.
const ADD: &str = r#"  __shared__ C held[2][R][B * V];
  C origin[V], sum[V], squares[V];
  EACH {
    origin[i] = live ? origin_of(x, channel_of(i), total / (CHANNELS * SEGMENT)) : C(0);
    sum[i] = squares[i] = 0;
  }
  auto take = [&](const Pack<X, V>& pack, u32 i) {
    const C difference = load<C>(pack.at[i]) - origin[i];
    sum[i] += difference;
    squares[i] += difference * difference;
  };
  const Pack<X, V>* from = (const Pack<X, V>*)x + own;
  if (live) {
    for (u64 row = begin; row < end; row += U * R) {
      Pack<X, V> packs[U];
#pragma unroll
      for (u32 u = 0; u < U; u++) if (row + u * R < end) packs[u] = from[(row + u * R) * PACKS];
#pragma unroll
      for (u32 u = 0; u < U; u++) if (row + u * R < end) EACH take(packs[u], i);
    }
    if (has_more) {
      // A pack never crosses the end of allocated memory.
      const Pack<X, V> pack = from[rows * PACKS];
      EACH if (behind + i < total) take(pack, i);
    }
  }
  if (lane < R) {
    EACH {
      held[0][lane][side * V + i] = sum[i];
      held[1][lane][side * V + i] = squares[i];
    }
  }
  __syncthreads();
  for (u32 e = threadIdx.x; R > 1 && e < B * V; e += THREADS) {
    C a = held[0][0][e], b = held[1][0][e];
    for (u32 r = 1; r < R; r++) {
      a += held[0][r][e];
      b += held[1][r][e];
    }
    held[0][0][e] = a;
    held[1][0][e] = b;
  }
  __syncthreads();
  // Groups of threads add up the columns of a channel.
  const u32 from_column = column * (B * V), to_column = from_column + B * V < PACKS * V ? from_column + B * V : PACKS * V;
  const u32 first_channel = from_column / SEGMENT, count = (to_column - 1) / SEGMENT - first_channel + 1;
  for (u32 base = 0; base < count; base += THREADS / LANES) {
    const u32 own_channel = base + threadIdx.x / LANES, at = first_channel + own_channel;
    C a = 0, b = 0;
    if (own_channel < count) {
      const u32 low = at * SEGMENT > from_column ? at * SEGMENT - from_column : 0;
      const u32 high = ((at + 1) * SEGMENT < to_column ? (at + 1) * SEGMENT : to_column) - from_column;
      for (u32 e = low + threadIdx.x % LANES; e < high; e += LANES) {
        a += held[0][0][e];
        b += held[1][0][e];
      }
    }
#pragma unroll
    for (u32 mask = LANES / 2; mask > 0; mask /= 2) {
      a += SHUFFLE_XOR(a, mask);
      b += SHUFFLE_XOR(b, mask);
    }
    if (own_channel < count && threadIdx.x % LANES == 0) {
      Sums both = {a, b};
      sums[(u64)(at + column) * PARTS + part] = both;
    }
  }
"#;

/// Kernel text that combines the sums of a channel. The sums of a sample of a row are those of one or several neighbouring
/// blocks.
const COMBINE: &str = r#"  const u32 at = blockIdx.x;
  C sum = 0, squares = 0;
#pragma unroll
  for (u32 sample = 0; sample < JOINED; sample++) {
    const u32 own = sample * CHANNELS + at, low = own * SEGMENT / (B * V), high = (own * SEGMENT + SEGMENT - 1) / (B * V);
    const u64 behind = (u64)(own + high + 1) * PARTS;
    for (u64 e = (u64)(own + low) * PARTS + threadIdx.x; e < behind; e += T) {
      sum += sums[e].sum;
      squares += sums[e].squares;
    }
  }
#pragma unroll
  for (u32 mask = 16; mask > 0; mask /= 2) {
    sum += SHUFFLE_XOR(sum, mask);
    squares += SHUFFLE_XOR(squares, mask);
  }
  __shared__ Sums held[T / 32];
  if (threadIdx.x % 32 == 0) {
    Sums both = {sum, squares};
    held[threadIdx.x / 32] = both;
  }
  __syncthreads();
  if (threadIdx.x > 0) return;
  for (u32 warp = 1; warp < T / 32; warp++) {
    sum += held[warp].sum;
    squares += held[warp].squares;
  }
  const C shift = sum / C(n), variance = squares / C(n) - shift * shift;
  store<C>(means[at * means_step], origin_of(x, at, n / SEGMENT) + shift);
  store<C>(variances[at * variances_step], variance > C(0) || variance != variance ? variance : C(0));
"#;

/// Kernel text that normalizes each column, from its last row to its first.
const NORMALIZE: &str = r#"  if (!live) return;
  C mean[V], scale[V], shift[V];
  EACH factors_of(channel_of(i), mean[i], scale[i], shift[i]);
  const Pack<X, V>* from = (const Pack<X, V>*)x + own;
  Pack<Y, V>* to = (Pack<Y, V>*)y + own;
  auto normalized = [&](const Pack<X, V>& of) {
    Pack<Y, V> pack;
    EACH store<C>(pack.at[i], (load<C>(of.at[i]) - mean[i]) * scale[i] + shift[i]);
    return pack;
  };
  if (has_more) {
    const Pack<Y, V> pack = normalized(from[rows * PACKS]);
    if (behind + V <= total) put(to + rows * PACKS, pack);
    else EACH if (behind + i < total) y[behind + i] = pack.at[i];
  }
  if (begin >= end) return;
  const u64 count = (end - begin + R - 1) / R;
  for (i64 last = (i64)count - 1; last >= 0; last -= U) {
    Pack<X, V> packs[U];
#pragma unroll
    for (i32 u = 0; u < U; u++) if (last >= u) packs[u] = from[(begin + (u64)(last - u) * R) * PACKS];
#pragma unroll
    for (i32 u = 0; u < U; u++) if (last >= u) put(to + (begin + (u64)(last - u) * R) * PACKS, normalized(packs[u]));
  }
"#;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The blocks of a large tensor cover its rows and packs; each of their threads has several packs.
        #[test]
        fn blocks_cover_all_packs(
            (channels, segment) in prop_oneof![(1..2048u64, 1..30u64), (1..40u64, 1..13_000u64)],
            most in 1_000_000..40_000_000u64,
            dtype in prop::sample::select(vec![DType::F64, DType::F32, DType::BF16]),
        ) {
            let samples = (most / (channels * segment)).max(1);
            let (x, each) = (Tensor::packed(dtype, &[samples, channels, segment]), Tensor::packed(DType::F32, &[channels]));
            let attrs = Attrs::of([("eps", Attr::number(1e-5))]);
            let spec = Spec::new(&BatchNorm, attrs, vec![x, each, each], vec![x, each, each]);
            let Some(columns) = Columns::of(&spec) else { return Ok(()) };
            let (joined, packs) = (columns.joined(), columns.packs);
            prop_assert_eq!(packs * columns.pack, joined * channels * segment);
            prop_assert!(columns.rows * joined <= samples && samples < (columns.rows + 1) * joined);
            prop_assert!(columns.across() * columns.beside >= packs && (columns.across() - 1) * columns.beside < packs);
            prop_assert!(columns.beside * columns.lanes <= THREADS);
            prop_assert!(columns.rows >= columns.parts * columns.lanes * MIN_STEPS);
            prop_assert!(columns.span() * columns.parts >= columns.rows);
        }
    }

    #[test]
    fn small_tensors_have_fewer_kernels() {
        let x = Tensor::packed(DType::BF16, &[132, 32, 3, 3]);
        let each = Tensor::packed(DType::F32, &[32]);
        let attrs = Attrs::of([("eps", Attr::number(1e-5))]);
        let spec = Spec::new(&BatchNorm, attrs, vec![x, each, each], vec![x, each, each]);
        assert!(Columns::of(&spec).is_none());
    }
}
