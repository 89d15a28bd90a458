//! The kernel of a batch norm whose channels fit into registers: the threads of a channel read it once, exchange sums, and
//! normalize it.

use super::super::layout::{halves, packs_of_rows};
use super::*;
use crate::ops::kernels::kernel::{HELD_PACK, Parameter, c_type, index_type, launch, param, u32_param, u64_param};
use crate::ops::kernels::occupancy::{
    LARGEST_BLOCK, LINE, PER_LINE, SECTOR, UNIT_THREADS, UNITS, WARP, lines_of, resident_blocks, share_with,
};
use crate::ops::kernels::rows::{Rows, Sharing};

/// Instructions per element: a count in code for sm_90a by NVRTC 13.0, as are the following numbers.
const EACH: f64 = 6.0;
/// Instructions per pack.
const PER_PACK: f64 = 43.0;
/// Instructions per thread.
const PER_THREAD: f64 = 200.0;

/// Instructions per element if packs may contain elements of other channels.
const EACH_LEADING: f64 = 17.0;
/// Instructions per pack if packs may contain elements of other channels.
const PER_LEADING_PACK: f64 = 9.0;
/// Additional instructions per element of packs that are written element by element. The elements of a warp that one instruction
/// writes are 16 bytes apart, in 16 sectors, of which an SM writes 4 per cycle while it could issue 4 instructions.
const EACH_ALONE: f64 = 6.0 + 16.0;

/// Number of registers of a thread, apart from those for the elements that it holds.
const REGISTERS: u64 = 32;

/// Bytes of all channels per SM up to which blocks that do not all run at the same time take less time than two passes
/// over memory.
const HELD_BYTES: u64 = 64 << 10;

/// Bytes of a block's channels up to which few blocks take less time than a second kernel.
const SMALL_BLOCK_BYTES: u64 = 16 << 10;

/// Minimum size in bytes of packs, if the elements of a channel in a sample do not fill a sector of memory. Blocks of
/// neighbouring channels then read the same sectors.
const SMALLEST_PACK: u64 = 8;

/// Division of channels among threads.
pub struct HeldChannels {
    /// Number of elements of a channel in a sample, which are contiguous.
    segment: u64,
    /// True if the elements of a channel in a sample may begin inside a pack. Then the first and the last pack may be
    /// partial.
    leads: bool,
    /// Number of samples.
    samples: u64,
    /// For `y` and for `x`, the stride from sample to sample and the stride from channel to channel, in elements.
    strides: [[u64; 2]; 2],
    /// Number of channels.
    channels: u64,
    sharing: Sharing,
}

impl HeldChannels {
    /// Returns the division. `None` if a channel does not fit into the registers of a block, or if channels are large
    /// and blocks would be few or would not all run at the same time. Also `None` if the elements of a channel in a
    /// sample have gaps, or are too few for whole sectors and for packs of [`SMALLEST_PACK`] bytes.
    pub fn of(spec: &Spec) -> Option<HeldChannels> {
        let tensors = [&spec.outputs[0], &spec.inputs[0]];
        let dims = tensors[0].dims;
        let segment: u64 = dims[2..].iter().product();
        let is_contiguous = |tensor: &&Tensor| {
            let axes = dims.part(2..).contiguous_strides();
            (2..dims.len()).all(|axis| dims[axis] == 1 || tensor.strides[axis] == axes[axis - 2])
        };
        if !tensors.iter().all(is_contiguous) {
            return None;
        }
        let strides = tensors.map(|tensor| [tensor.strides[0], tensor.strides[1]]);
        let size = tensors[1].dtype.size();
        let packs = || halves(16 / size);
        let is_aligned = |pack: &u64| {
            tensors.iter().all(|tensor| {
                let bytes = pack * tensor.dtype.size();
                bytes <= 16 && u64::from(tensor.align).is_multiple_of(bytes)
            })
        };
        let divides =
            |pack: &u64| strides.as_flattened().iter().chain([&segment]).all(|size| size.is_multiple_of(*pack));
        let is_alike = |pack: &u64| (0..2).all(|axis| strides[0][axis] % pack == strides[1][axis] % pack);
        let whole = packs().find(|pack| is_aligned(pack) && divides(pack))?;
        let wide = packs().find(|pack| is_aligned(pack) && is_alike(pack)).unwrap_or(whole);
        if segment * size < SECTOR && whole * size < SMALLEST_PACK {
            return None;
        }
        let leads = instructions(segment, wide, true) < instructions(segment, whole, false);
        let pack = if leads { wide } else { whole };
        let most = if compute_type(spec) == DType::F64 { 16 } else { 32 };
        let (channels, samples) = (dims[1], dims[0]);
        let length = samples * packs_of_rows(segment, pack, leads) * pack;
        // The fewest threads that hold a channel leave room for more blocks.
        let threads = length.div_ceil(most).next_multiple_of(WARP);
        let few = Sharing { pack, packs: length.div_ceil(threads * pack), threads, whole: threads <= LARGEST_BLOCK };
        let usual = Sharing::of(&Rows { length, count: channels, ..Rows::of(&tensors) }, pack, most);
        let [usual, few] =
            [usual, few].map(|sharing| HeldChannels { segment, leads, samples, strides, channels, sharing });
        // A block takes several microseconds, so that all of them have to run at the same time, and on a fair part of the SMs.
        let runs_at_once = |held: &HeldChannels| held.blocks() <= UNITS * held.resident(spec);
        let is_short = usual.blocks() <= UNITS * (UNIT_THREADS / usual.sharing.block())
            && channels * usual.length() * size <= UNITS * HELD_BYTES;
        let held = match [runs_at_once(&usual), runs_at_once(&few)] {
            [false, true] => few,
            [false, false] if !is_short => return None,
            _ => usual,
        };
        let is_small = held.sharing.block_rows() * held.length() * size <= SMALL_BLOCK_BYTES;
        (held.sharing.whole && (is_small || held.blocks() > UNITS / 8)).then_some(held)
    }

    /// Number of elements of a channel.
    fn length(&self) -> u64 {
        self.samples * self.segment
    }

    /// Number of blocks of the kernel.
    fn blocks(&self) -> u64 {
        self.channels.div_ceil(self.sharing.block_rows()).max(1)
    }

    /// Number of registers of a thread, of 32 bits.
    fn registers(&self, spec: &Spec) -> u64 {
        REGISTERS + self.sharing.pack * self.sharing.packs * compute_type(spec).size() / 4
    }

    /// Number of blocks that an SM can run at the same time.
    fn resident(&self, spec: &Spec) -> u64 {
        resident_blocks(self.sharing.block(), self.registers(spec))
    }

    /// The cost without arithmetic operations, which do not depend on the kernel.
    pub fn cost(&self, spec: &Spec) -> Cost {
        let threads = (self.channels * self.sharing.threads) as f64;
        let of_a_segment = instructions(self.segment, self.sharing.pack, self.leads);
        Cost {
            instructions: of_a_segment * (self.samples * self.channels) as f64 + PER_THREAD * threads,
            conflicts: self.lines(spec) * PER_LINE,
            // Several warps exchange their sums, and then their squares.
            exchanges: if self.sharing.threads > WARP { 2.0 } else { 0.0 },
            special: threads,
            blocks: self.blocks(),
            share: share_with(self.sharing.block(), self.registers(spec)),
            ..spec.streaming_cost(0.0, 1)
        }
    }

    /// Number of cache lines that warps access, beyond those of contiguous elements: the segments of a channel lie apart.
    fn lines(&self, spec: &Spec) -> f64 {
        let of_tensor = |tensor: &Tensor| {
            let size = tensor.dtype.size();
            lines_of((self.segment - 1) * size) - (self.segment * size) as f64 / LINE as f64
        };
        let segments = if self.samples > 1 { self.samples * self.channels } else { 0 };
        segments as f64 * (of_tensor(&spec.inputs[0]) + of_tensor(&spec.outputs[0]))
    }

    pub fn launch(&self, spec: &Spec) -> Launch {
        let Sharing { pack, packs, threads, .. } = self.sharing;
        let operands = ChannelOperands::of(spec, "");
        let mut params = operands.params;
        params.extend([
            u64_param("channels", self.channels),
            u32_param("samples", self.samples),
            u32_param("n", self.length()),
        ]);
        let [[y_sample, y_channel], [x_sample, x_channel]] = self.strides;
        params.extend([u64_param("y_channel", y_channel), u64_param("x_channel", x_channel)]);
        // Offsets in a channel, which both tensors have in common if their samples are at the same distance.
        let is_narrow = y_sample.max(x_sample) * self.samples <= i32::MAX as u64;
        let mut samples = vec![("x_sample", x_sample)];
        samples.extend((y_sample != x_sample).then_some(("y_sample", y_sample)));
        let step = |(name, step): &(&str, u64)| if is_narrow { u32_param(name, *step) } else { u64_param(name, *step) };
        params.extend(samples.iter().map(step));
        let of_a_segment = packs_of_rows(self.segment, pack, self.leads);
        let before = format!(
            "#undef BOUNDS\n#define BOUNDS __launch_bounds__({}, {})\n{}#define T {threads}\n#define V {pack}\n#define K {packs}\n#define BLOCK {}\n#define EVEN {}\n#define SHIFTED 0\n\
             #define CENTRED true\n#define SEGMENT {}\n#define SEGMENT_PACKS {of_a_segment}u\n#define LEADS {}\n#define Y_SAMPLE {}\n\
             typedef {} Offset;\n{HELD_PACK}{HELPERS}{PUT}",
            self.sharing.block(),
            // With so many resident blocks, all of them run at the same time.
            self.blocks().div_ceil(UNITS).clamp(1, self.resident(spec).max(1)),
            operands.types,
            self.sharing.block(),
            self.samples * of_a_segment == threads * packs,
            self.segment,
            u32::from(self.leads),
            if y_sample == x_sample { "x_sample" } else { "y_sample" },
            if is_narrow { "i32" } else { "i64" },
        );
        let index = index_type(self.channels);
        let (weight, bias) = (operands.weight, operands.bias);
        let place = format!(
            "  const {index} at = ({index})(live ? channel : 0);\n  const C weight_of = {weight}, bias_of = {bias};\n"
        );
        let body = [PLACE, &place, BODY].concat();
        launch("batch_norm", &before, &params, &body, self.blocks(), self.sharing.block() as u32)
    }
}

/// Number of instructions for the elements of a channel in a sample.
fn instructions(segment: u64, pack: u64, leads: bool) -> f64 {
    let packs = packs_of_rows(segment, pack, leads) as f64;
    if !leads {
        return packs * (PER_PACK + EACH * pack as f64);
    }
    // A warp waits while its thread with the first or the last pack writes that pack.
    let alone = (2.0 * WARP as f64 / packs).min(1.0);
    packs * (PER_LEADING_PACK + (EACH_LEADING + alone * EACH_ALONE) * pack as f64)
}

/// Parameters and text for the operands of a batch norm, in kernels that process channels.
pub struct ChannelOperands {
    /// Parameters `y`, `x`, `eps`, `means` and `variances`, and `weight` and `bias` if the operation has them; with the
    /// stride of each tensor that has one element per channel.
    pub params: Vec<Parameter>,
    /// Kernel text that defines the types `X` and `Y` of elements, and `C`, that of the arithmetic.
    pub types: String,
    /// Kernel text of the weight of channel `at`; 1 if the operation has no weight.
    pub weight: String,
    /// Kernel text of the bias of channel `at`; 0 if the operation has no bias.
    pub bias: String,
}

impl ChannelOperands {
    /// Returns parameters and text. `access` qualifies the means and variances: empty, or `const` in a kernel that
    /// reads them.
    pub fn of(spec: &Spec, access: &str) -> ChannelOperands {
        let (compute, inputs) = (compute_type(spec), spec.inputs.len());
        let mut params = vec![
            param("Y* y", Arg::Operand(inputs as u8)),
            param("const X* x", Arg::Operand(0)),
            param("C eps", Arg::real(compute, spec.attrs.number("eps"))),
        ];
        let mut of_channel = |name: &str, operand: usize, access: &str| {
            let tensor = spec.operand(operand);
            params.push(param(
                format!("{access} {}* __restrict__ {name}", c_type(tensor.dtype)),
                Arg::Operand(operand as u8),
            ));
            params.push(u64_param(&format!("{name}_step"), tensor.strides[0]));
            format!("load<C>({name}[at * {name}_step])")
        };
        of_channel("means", inputs + 1, access);
        of_channel("variances", inputs + 2, access);
        let mut factor = |name: &str, input: usize, absent: &str| {
            if input < inputs { of_channel(name, input, "const") } else { absent.to_owned() }
        };
        let (weight, bias) = (factor("weight", 1, "C(1)"), factor("bias", 2, "C(0)"));
        let types = [("X", spec.inputs[0].dtype), ("Y", spec.outputs[0].dtype), ("C", compute)];
        let types = types.iter().map(|(name, dtype)| format!("typedef {} {name};\n", c_type(*dtype))).collect();
        ChannelOperands { params, types, weight, bias }
    }
}

/// Kernel text that defines `put`, which stores a pack by one instruction. The compiler would join an assignment with the stores of
/// single elements in another branch, and store each element of all packs. The macro `CACHED` is the cache operator, a string.
pub const PUT: &str = r#"
#ifndef CACHED
#define CACHED ""
#endif
template <typename P> __device__ inline void put(P* to, const P& pack) {
#if defined(__CUDA_ARCH__)
  union Words { P pack; u32 w[4]; __device__ Words() {} } all;
  all.pack = pack;
  if (sizeof(P) == 16) {
    asm volatile("st.global" CACHED ".v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(all.w[0]), "r"(all.w[1]), "r"(all.w[2]), "r"(all.w[3]) : "memory");
    return;
  }
  if (sizeof(P) == 8) {
    asm volatile("st.global" CACHED ".v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(all.w[0]), "r"(all.w[1]) : "memory");
    return;
  }
#endif
  *to = pack;
}
"#;

/// Kernel text: the channel of a thread.
const PLACE: &str = r#"  const u32 lane = threadIdx.x % T;
  const u64 channel = (u64)blockIdx.x * (BLOCK / T) + threadIdx.x / T;
  const bool live = channel < channels;
"#;

/// Kernel text: the threads of a channel read and normalize it. Packs are numbered through all samples; only the last pack of a thread can
/// be missing.
const BODY: &str = r#"  const X* from = x + at * x_channel;
  Y* to = y + at * y_channel;
  const C first = load<C>(*from);
#define EACH_OWN EACH_HELD if (const u32 own = lane + k * T, sample = own / SEGMENT_PACKS; EXISTS)
#define EXISTS (EVEN || k + 1 < K || own < samples * SEGMENT_PACKS)
  // Bit `k * V + i` is set if element `i` of pack `k` belongs to the channel.
  u32 members = 0;
  const u32 ALL = (1u << V) - 1;
#define IS_MEMBER (LEADS ? (members >> (k * V + i) & 1) != 0 : EXISTS)
  // Index in the segment of a pack's first element, which can be negative.
  const u32 lead = (u32)((u64)from / sizeof(X));
  auto begin_of = [&](u32 own, u32 sample) {
    return (i32)(own % SEGMENT_PACKS * V) - (LEADS ? (i32)((lead + sample * (u32)x_sample) % V) : 0);
  };
  Pack<X, V> packs[K];
  C v[K][V], sum = 0, squares = 0;
  EACH_OWN {
    const i32 begin = begin_of(own, sample);
    if (LEADS && begin >= SEGMENT) continue;
    packs[k] = *(const Pack<X, V>*)(from + (Offset)(sample * x_sample + begin));
    const i32 before = begin < 0 ? -begin : 0, behind = begin + V > SEGMENT ? begin + V - SEGMENT : 0;
    if (LEADS) members |= (ALL >> behind & ALL << before) << (k * V);
  }
  // Differences to the first element keep the precision of a variance that is small relative to the mean.
  EACH_HELD EACH {
    const u32 own = lane + k * T;
    v[k][i] = IS_MEMBER ? load<C>(packs[k].at[i]) - first : C(0);
    sum += v[k][i];
  }
  const C mean = across(sum, Sum()) / C(n);
  EACH_HELD EACH {
    const u32 own = lane + k * T;
    const C difference = IS_MEMBER ? v[k][i] - mean : C(0);
    squares += difference * difference;
  }
  const C variance = across(squares, Sum()) / C(n), scale = f_rsqrt(variance + eps) * weight_of;
  if (!live) return;
  if (lane == 0) {
    store<C>(means[at * means_step], first + mean);
    store<C>(variances[at * variances_step], variance);
  }
  EACH_OWN {
    const i32 begin = begin_of(own, sample);
    Y* row = to + (Offset)(sample * Y_SAMPLE + begin);
    Pack<Y, V> pack;
    EACH store<C>(pack.at[i], (v[k][i] - mean) * scale + bias_of);
    if (!LEADS || (begin >= 0 && begin + V <= SEGMENT)) {
      put((Pack<Y, V>*)row, pack);
    } else {
      EACH if (IS_MEMBER) row[i] = pack.at[i];
    }
  }
"#;

#[cfg(test)]
mod tests {
    use super::*;

    fn held(dtype: DType, dims: &[u64]) -> Option<HeldChannels> {
        let (x, each) = (Tensor::packed(dtype, dims), Tensor::packed(DType::F32, &dims[1..2]));
        let attrs = Attrs::of([("eps", Attr::number(1e-5))]);
        HeldChannels::of(&Spec::new(&BatchNorm, attrs, vec![x, each, each], vec![x, each, each]))
    }

    #[test]
    fn odd_planes_are_read_in_wide_packs() {
        for (dims, pack, leads) in [([7, 512, 25, 25], 4, true), ([8, 64, 14, 14], 4, false), ([4, 64, 3, 6], 2, false)]
        {
            let held = held(DType::F32, &dims).expect("the channels fit registers");
            assert_eq!((held.sharing.pack, held.leads), (pack, leads), "{dims:?}");
        }
    }

    /// Each thread holds up to 32 elements, as many as `members` has bits, and all packs have a thread.
    #[test]
    fn threads_hold_all_packs() {
        for dtype in [DType::F32, DType::BF16, DType::F64] {
            for side in 1..=29 {
                for samples in [1, 3, 32, 285] {
                    let Some(held) = held(dtype, &[samples, 512, side, side]) else { continue };
                    let Sharing { pack, packs, threads, .. } = held.sharing;
                    assert!(pack * packs <= 32, "{side}");
                    let all = samples * packs_of_rows(side * side, pack, held.leads);
                    assert!(threads * packs >= all && threads * (packs - 1) < all, "{dtype:?} {samples} {side}");
                }
            }
        }
    }

    #[test]
    fn channels_that_do_not_fit_at_once_are_read_twice() {
        assert!(held(DType::F32, &[285, 512, 5, 5]).is_some());
        assert!(held(DType::F32, &[35, 512, 29, 29]).is_none());
    }
}
