//! The kernel of a batch norm whose channels fit into registers: the threads of a channel read it once, exchange sums, and
//! normalize it.

use super::super::kernel::{bounds, c_type, index_type, launch, param, u32_param, u64_param};
use super::super::occupancy::{SECTOR, UNIT_THREADS, UNITS, share};
use super::super::rows::{Rows, Sharing};
use super::*;

/// Instructions per element and per thread, as in the kernel of a row norm, and per pack for its address.
const EACH: f64 = 11.0;
const PER_PACK: f64 = 12.0;
const PER_THREAD: f64 = 170.0;

/// Number of bytes of channels for each SM up to which its blocks take less time than two passes over memory.
const HELD_BYTES: u64 = 64 << 10;

/// Number of bytes of a block's channels up to which few blocks take less time than a second kernel.
const SMALL_BLOCK_BYTES: u64 = 16 << 10;

/// Minimum size in bytes of the packs of channels whose elements in one sample do not fill a sector of memory. Blocks of neighbouring
/// channels read the same sectors then.
const SMALLEST_PACK: u64 = 8;

/// Division of channels among threads.
pub struct HeldChannels {
    /// Number of elements of a channel in one sample. They are contiguous.
    segment: u64,
    /// Strides of `y` and `x` from sample to sample and from channel to channel, in elements.
    strides: [[u64; 2]; 2],
    channels: u64,
    /// Number of elements of a channel.
    length: u64,
    sharing: Sharing,
}

impl HeldChannels {
    /// Returns the division; `None` if a channel does not fit into the registers of a block, if not all channels fit into those of the
    /// device or few blocks read large ones, or if its elements in one sample are not contiguous or neither fill a sector of memory nor half a pack.
    pub fn of(spec: &Spec) -> Option<HeldChannels> {
        let tensors = [&spec.outputs[0], &spec.inputs[0]];
        let dims = tensors[0].dims;
        let segment: u64 = dims[2..].iter().product();
        let is_contiguous = |tensor: &&Tensor| {
            let own = Dims::from_slice(&dims[2..]).expect("no more than there are");
            let axes = own.contiguous_strides();
            (2..dims.len()).all(|axis| dims[axis] == 1 || tensor.strides[axis] == axes[axis - 2])
        };
        if !tensors.iter().all(is_contiguous) {
            return None;
        }
        let fits = |pack: &u64| {
            segment.is_multiple_of(*pack)
                && tensors.iter().all(|tensor| {
                    let bytes = pack * tensor.dtype.size();
                    let is_aligned = u64::from(tensor.align).is_multiple_of(bytes);
                    bytes <= 16 && is_aligned && tensor.strides[..2].iter().all(|stride| stride.is_multiple_of(*pack))
                })
        };
        let widest = 16 / tensors[1].dtype.size();
        let pack = std::iter::successors(Some(widest), |pack| (*pack > 1).then_some(pack / 2)).find(fits)?;
        let size = tensors[1].dtype.size();
        if segment * size < SECTOR && pack * size < SMALLEST_PACK {
            return None;
        }
        let (channels, length) = (dims[1], dims[0] * segment);
        let most = if compute_type(spec) == DType::F64 { 16 } else { 32 };
        let rows = Rows { length, count: channels, ..Rows::of(&tensors) };
        let sharing = Sharing::of(&rows, pack, most);
        let strides = tensors.map(|tensor| [tensor.strides[0], tensor.strides[1]]);
        let held = HeldChannels { segment, strides, channels, length, sharing };
        // A block takes several microseconds, so that all of them have to run at the same time, and on a fair part of the SMs.
        let resident = UNITS * (UNIT_THREADS / held.sharing.block());
        let is_one_wave = channels * length * size <= UNITS * HELD_BYTES && held.blocks() <= resident;
        let is_small = held.sharing.block_rows() * length * size <= SMALL_BLOCK_BYTES;
        (held.sharing.whole && is_one_wave && (is_small || held.blocks() > UNITS / 8)).then_some(held)
    }

    fn blocks(&self) -> u64 {
        self.channels.div_ceil(self.sharing.block_rows()).max(1)
    }

    pub fn cost(&self, spec: &Spec) -> Cost {
        let elements = spec.inputs[0].elements() as f64;
        let threads = (self.channels * self.sharing.threads) as f64;
        Cost {
            instructions: EACH * elements + PER_PACK * elements / self.sharing.pack as f64 + PER_THREAD * threads,
            special: threads,
            blocks: self.blocks(),
            share: share(self.sharing.block()),
            ..spec.streaming_cost(4.0 * elements, 1)
        }
    }

    pub fn launch(&self, spec: &Spec) -> Launch {
        let Sharing { pack, packs, threads, .. } = self.sharing;
        let compute = compute_type(spec);
        let inputs = spec.inputs.len();
        let [x, y] = [&spec.inputs[0], &spec.outputs[0]].map(|tensor| c_type(tensor.dtype));
        let statistics = c_type(spec.outputs[1].dtype);
        let mut params = vec![
            param(format!("{y}* y"), Arg::Operand(inputs as u8)),
            param(format!("const {x}* x"), Arg::Operand(0)),
            param(format!("{statistics}* means"), Arg::Operand(inputs as u8 + 1)),
            param(format!("{statistics}* variances"), Arg::Operand(inputs as u8 + 2)),
            param("C eps", Arg::real(compute, spec.attrs.number("eps"))),
            u64_param("channels", self.channels),
            u32_param("n", self.length),
        ];
        let mut steps = Vec::new();
        for (name, [sample, channel]) in ["y", "x"].into_iter().zip(self.strides) {
            steps.extend([(format!("{name}_sample"), sample), (format!("{name}_channel"), channel)]);
        }
        steps.push(("mean_step".to_owned(), spec.outputs[1].strides[0]));
        steps.push(("variance_step".to_owned(), spec.outputs[2].strides[0]));
        let mut factors = String::new();
        for (input, name) in (1..inputs).zip(["weight", "bias"]) {
            params
                .push(param(format!("const {}* {name}", c_type(spec.inputs[input].dtype)), Arg::Operand(input as u8)));
            steps.push((format!("{name}_step"), spec.inputs[input].strides[0]));
            factors += &format!("  const C {name}s = load<C>({name}[at * {name}_step]);\n");
        }
        params.extend(steps.iter().map(|(name, step)| u64_param(name, *step)));
        let before = format!(
            "{}typedef {} C;\n#define T {threads}\n#define V {pack}\n#define K {packs}\n#define BLOCK {}\n#define EVEN {}\n\
             #define SHIFTED 0\n#define CENTRED true\n#define SEGMENT {}u\n{HELPERS}",
            bounds(self.sharing.block() as u32),
            c_type(compute),
            self.sharing.block(),
            self.length.is_multiple_of(threads * pack * packs),
            self.segment,
        );
        let weight = if inputs > 1 { " * weights" } else { "" };
        let bias = if inputs > 2 { " + biass" } else { "" };
        let index = index_type(self.channels);
        let body = format!(
            r#"  const u32 lane = threadIdx.x % T;
  const u64 channel = (u64)blockIdx.x * (BLOCK / T) + threadIdx.x / T;
  const bool live = channel < channels;
  const {index} at = ({index})(live ? channel : 0);
  const {x}* from = x + at * x_channel;
  {y}* to = y + at * y_channel;
{factors}  const C first = load<C>(*from);
  C v[K][V];
  EACH_PACK(0) {{ read(from + (u32)j / SEGMENT * x_sample, 1, (u32)j % SEGMENT, v[k]); }}
  // Differences to the first element keep the precision of a variance that is small relative to the mean.
  EACH_PACK(0) {{ EACH v[k][i] -= first; }}
  const Part all = of_row(v, n, lane);
  const C variance = all.squares / C(n), scale = f_rsqrt(variance + eps){weight};
  if (!live) return;
  if (lane == 0) {{
    store<C>(means[at * mean_step], first + all.mean);
    store<C>(variances[at * variance_step], variance);
  }}
  EACH_PACK(0) {{
    EACH v[k][i] = (v[k][i] - all.mean) * scale{bias};
    write(to + (u32)j / SEGMENT * y_sample, 1, (u32)j % SEGMENT, v[k]);
  }}
"#
        );
        launch("batch_norm", &before, &params, &body, self.blocks(), self.sharing.block() as u32)
    }
}
