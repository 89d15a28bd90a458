//! Convolutions along one dimension without a stride whose groups have one gathered channel: a thread computes neighbouring results,
//! which it writes together, from a window of neighbouring elements.

use super::*;
use crate::ops::kernels::kernel::{Parameter, index_type, param, u32_param, u64_param};
use crate::ops::kernels::occupancy::{UNIT_THREADS, UNITS, WARP};

/// Maximum number of gathered elements of a thread.
const MAX_WINDOW: u64 = 48;

/// Size in bytes of the results of a thread.
const PACK_BYTES: u64 = 16;

/// Instructions of a thread apart from those for gathered elements and products.
const PER_THREAD: f64 = 100.0;
/// Instructions per gathered element.
const PER_VALUE: f64 = 3.0;
/// Instructions per gathered element that may lie outside of the tensor.
const PER_CHECKED: f64 = 5.0;
/// Instructions per result of a thread whose results belong to two rows, for the row and the channel of the result.
const PER_PLACE: f64 = 60.0;
/// Instructions of such a thread per product.
const PER_PRODUCT: f64 = 7.0;

/// Sizes of a convolution that this kernel computes.
pub struct Depthwise {
    /// Number of kernel elements.
    taps: u64,
    /// Distance of neighbouring kernel elements.
    dilation: u64,
    /// Position of a result minus that of its first gathered element; negative if the padding of a transposed
    /// convolution exceeds the extent of the kernel.
    padding: i64,
    /// True if the kernel elements are in reverse order: in a transposed convolution.
    reversed: bool,
    /// Number of computed channels per group.
    rows: u64,
    /// Number of computed channels of all groups.
    channels: u64,
    /// Number of results in a row: one channel of a sample.
    results: u64,
    /// Number of gathered elements in a row.
    sources: u64,
    /// Number of results of all rows.
    count: u64,
    /// Number of neighbouring results of a thread.
    pack: u64,
}

impl Depthwise {
    /// Returns the sizes; `None` for other convolutions, and for operands with gaps or without alignment to 16 bytes.
    pub fn of(spec: &Spec, shape: &Shape) -> Option<Depthwise> {
        let operands = shape.form.operands(spec).map(|operand| spec.operand(operand));
        let dtype = spec.inputs[0].dtype;
        let is_row = shape.kernel.len() == 1 && shape.form != Form::Weights && shape.stride[0] == 1;
        let fits = operands.iter().all(|tensor| tensor.contiguous() && u64::from(tensor.align) >= PACK_BYTES);
        if !is_row || !fits || shape.gathered() != 1 || dtype.size() == 8 {
            return None;
        }
        let (rows, places, _) = shape.product();
        let (taps, dilation) = (shape.kernel[0], shape.dilation[0]);
        let reversed = shape.form == Form::Transposed;
        let padding = shape.padding[0] as i64;
        let extent = ((taps - 1) * dilation) as i64;
        let pack = PACK_BYTES / dtype.size();
        let depthwise = Depthwise {
            taps,
            dilation,
            padding: if reversed { extent - padding } else { padding },
            reversed,
            rows,
            channels: rows * shape.groups,
            results: shape.position_dims()[0],
            sources: shape.sources()[0],
            count: rows * shape.groups * places,
            pack,
        };
        (depthwise.window() <= MAX_WINDOW).then_some(depthwise)
    }

    /// Number of gathered elements of a thread.
    fn window(&self) -> u64 {
        (self.taps - 1) * self.dilation + self.pack
    }

    /// Number of blocks of the kernel.
    pub fn blocks(&self) -> u64 {
        self.count.div_ceil(self.pack * THREADS)
    }

    /// Share of the warps with threads that come this many times in a row of results.
    fn share_of_warps(&self, of_a_row: f64) -> f64 {
        (of_a_row * (WARP * self.pack) as f64 / self.results as f64).min(1.0)
    }

    /// Share of the warps with a thread whose results belong to two rows.
    fn crossing(&self) -> f64 {
        // Rows begin at multiples of a part of a pack, which is a power of two.
        let part = 1u32 << self.results.trailing_zeros().min(self.pack.trailing_zeros());
        self.share_of_warps(1.0 - f64::from(part) / self.pack as f64)
    }

    /// Share of the warps with a thread whose window lies partly outside of its row: the last one of a row, and the first one of the next.
    fn checking(&self) -> f64 {
        if self.padding > 0 { self.share_of_warps(1.0) } else { 0.0 }
    }

    /// Returns the number of instructions of all threads. A warp executes each way that one of its threads takes.
    pub fn instructions(&self) -> f64 {
        let threads = self.count.div_ceil(self.pack) as f64;
        let checked = self.checking() * PER_CHECKED * self.window() as f64;
        let crossing = self.crossing() * self.pack as f64 * (PER_PLACE + PER_PRODUCT * self.taps as f64);
        threads * (PER_THREAD + PER_VALUE * self.window() as f64 + (self.pack * self.taps) as f64 + checked + crossing)
    }

    /// Number of accesses for which the threads of a block wait, one after the other: those of each way of their warps. A thread whose results
    /// belong to two rows stores each of them before it loads the elements of the next.
    ///
    /// Blocks that all run at once take as long as the slowest of them, and many more take as long as their average.
    pub fn waits(&self) -> f64 {
        let of_a_block = |share: f64| match self.blocks() <= UNITS * UNIT_THREADS / THREADS {
            true => f64::from(u8::from(share > 0.0)),
            false => (share * (THREADS / WARP) as f64).min(1.0),
        };
        1.0 + of_a_block(self.checking()) + of_a_block(self.crossing()) * self.pack as f64
    }

    /// Returns the parameters that only this kernel has.
    pub fn parameters(&self) -> [Parameter; 5] {
        [
            u64_param("count", self.count),
            u32_param("results", self.results),
            u32_param("sources", self.sources),
            u32_param("channels", self.channels),
            param("i32 padding", Arg::U32(self.padding as i32 as u32)),
        ]
    }

    /// Returns the macro definitions that only this kernel uses.
    pub fn definitions(&self, narrow: bool) -> String {
        format!(
            "typedef {} Index;\n#define TAPS {}\n#define APART {}\n#define OUTPUTS {}\n#define REVERSED {}\n#define V {}\n#define WINDOW {}\n\
             #define NARROW {}\n",
            index_type(self.count),
            self.taps,
            self.dilation,
            self.rows,
            u32::from(self.reversed),
            self.pack,
            self.window(),
            u32::from(narrow),
        )
    }
}

/// Kernel text: `V` results of a thread are neighbours in memory, and mostly in one row.
pub const TEXT: &str = r#"  const u64 first = GLOBAL_INDEX * V;
  if (first >= count) return;
  u32 row = (u32)((Index)first / results), place = (u32)((Index)first - (Index)row * results);
  auto source_row = [&](u32 row) { return gathered + (u64)(row / channels * groups + row % channels / OUTPUTS) * sources; };
  auto weight = [&](u32 channel, int tap) { return load<C>(factor[(u64)channel * TAPS + (REVERSED ? TAPS - 1 - tap : tap)]); };
  if (place + V > results) {
    // The results belong to more than one row, or are the last ones.
#pragma unroll 1
    for (int v = 0; v < V && first + v < count; v++) {
      const u32 channel = row % channels;
      const T* from = source_row(row);
      C sum = 0;
#pragma unroll
      for (int tap = 0; tap < TAPS; tap++) {
        const i32 source = (i32)place - padding + tap * APART;
        if ((u32)source < sources) sum += load<C>(from[source]) * weight(channel, tap);
      }
      store<C>(out[first + v], finished(sum, bias, channel));
      place++;
      if (place == results) {
        place = 0;
        row++;
      }
    }
    return;
  }
  const u32 channel = row % channels;
  const T* from = source_row(row);
  const i32 begin = (i32)place - padding;
  C values[WINDOW];
#if NARROW
  if (begin > 0 && begin + WINDOW + 3 <= (i32)sources) {
    // Loads words of two elements, and shifts them if the first element is the second one of a word.
    const u32 odd = (u32)((u64)(from + begin) / 2 % 2), shift = odd * 16;
    const u32* words = (const u32*)(from + begin - odd);
    u32 pairs[(WINDOW + 1) / 2 + 1];
#pragma unroll
    for (int i = 0; i < (WINDOW + 1) / 2 + 1; i++) pairs[i] = words[i];
#pragma unroll
    for (int i = 0; i < WINDOW; i++) {
      const u32 pair = (u32)(((u64)pairs[i / 2 + 1] << 32 | pairs[i / 2]) >> shift);
      T element;
      element.bits = (unsigned short)(i % 2 ? pair >> 16 : pair);
      values[i] = load<C>(element);
    }
  } else
#else
  if (begin >= 0 && begin + WINDOW <= (i32)sources) {
#pragma unroll
    for (int i = 0; i < WINDOW; i++) values[i] = load<C>(from[begin + i]);
  } else
#endif
  {
#pragma unroll
    for (int i = 0; i < WINDOW; i++) values[i] = (u32)(begin + i) < sources ? load<C>(from[begin + i]) : C(0);
  }
  C weights[TAPS];
#pragma unroll
  for (int tap = 0; tap < TAPS; tap++) weights[tap] = weight(channel, tap);
  Pack<T, V> pack;
#pragma unroll
  for (int v = 0; v < V; v++) {
    C sum = 0;
#pragma unroll
    for (int tap = 0; tap < TAPS; tap++) sum += values[v + tap * APART] * weights[tap];
    store<C>(pack.at[v], finished(sum, bias, channel));
  }
  *(Pack<T, V>*)(out + first) = pack;
"#;
