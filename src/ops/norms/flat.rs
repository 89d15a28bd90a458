//! Second kernel of a batch norm in which packs do not divide the elements of a channel in a sample: threads process
//! aligned packs, which hold elements of one or two channels.

use super::channel::ChannelOperands;
use super::*;
use crate::ops::kernels::kernel::{BLOCK, bounds, index_type, launch, u64_param};
use crate::ops::kernels::walk;

/// Instructions per pack for its indices, for the factors of two channels, for loading and for storing; an estimate.
const PER_PACK: f64 = 60.0;

/// Division of contiguous tensors into packs that may hold elements of two channels.
pub struct FlatChannels {
    /// Number of elements of a tensor.
    total: u64,
    /// Number of elements of a channel in a sample.
    segment: u64,
    /// Number of channels.
    channels: u64,
    /// Number of elements of a pack.
    pack: u64,
}

impl FlatChannels {
    /// Returns the division; `None` if tensors have gaps or are not aligned, if a pack could hold elements of three
    /// channels, or if every pack holds elements of one.
    pub fn of(spec: &Spec) -> Option<FlatChannels> {
        let (x, y) = (&spec.inputs[0], &spec.outputs[0]);
        let segment: u64 = x.dims[2..].iter().product();
        let pack = 16 / x.dtype.size().max(y.dtype.size());
        let is_flat = [x, y].iter().all(|tensor| tensor.contiguous() && tensor.align >= 16);
        let is_odd = segment >= pack && !segment.is_multiple_of(pack);
        (is_flat && is_odd).then(|| FlatChannels { total: x.elements(), segment, channels: x.dims[1], pack })
    }

    /// Number of packs of a tensor.
    fn packs(&self) -> u64 {
        self.total.div_ceil(self.pack)
    }

    /// Number of blocks of the kernel.
    fn blocks(&self) -> u64 {
        self.packs().div_ceil(u64::from(BLOCK)).max(1)
    }

    /// Returns the work apart from evaluating the expression for each element.
    pub fn work(&self) -> walk::Work {
        walk::Work { sectors: 0.0, instructions: PER_PACK * self.packs() as f64, blocks: self.blocks() }
    }

    pub fn launch(&self, spec: &Spec) -> Launch {
        let operands = ChannelOperands::of(spec, "const");
        let mut params = operands.params;
        params.push(u64_param("total", self.total));
        let before = format!(
            "{}{}typedef {} Index;\n#define V {}\n#define SEGMENT {}u\n#define CHANNELS {}u\n\
             struct Factors {{ C mean, scale, shift; }};\n",
            bounds(BLOCK),
            operands.types,
            index_type(self.total + self.pack * u64::from(BLOCK)),
            self.pack,
            self.segment,
            self.channels,
        );
        let (weight, bias) = (operands.weight, operands.bias);
        let body = format!(
            "  auto factors_of = [&](u32 at) -> Factors {{\n    const C scale = f_rsqrt(load<C>(variances[at * variances_step]) + eps) * {weight};\n    \
             return {{load<C>(means[at * means_step]), scale, {bias}}};\n  }};\n{BODY}"
        );
        launch("batch_norm", &before, &params, &body, self.blocks(), BLOCK)
    }
}

/// Kernel text: a thread normalizes a pack.
const BODY: &str = r#"  const Index first = (Index)GLOBAL_INDEX * V;
  if (first >= (Index)total) return;
  const bool is_whole = first + V <= (Index)total;
  Pack<X, V> from = {};
  if (is_whole) from = *(const Pack<X, V>*)(x + first);
  else for (u32 i = 0; i < V; i++) if (first + i < (Index)total) from.at[i] = x[first + i];
  const Index own = first / SEGMENT;
  const u32 channel = (u32)(own % CHANNELS), left = SEGMENT - (u32)(first - own * SEGMENT);
  const Factors here = factors_of(channel);
  Factors next = here;
  // The pack ends in the next channel.
  if (left < V) next = factors_of(channel + 1 < CHANNELS ? channel + 1 : 0);
  Pack<Y, V> to;
#pragma unroll
  for (u32 i = 0; i < V; i++) {
    const Factors& of = i < left ? here : next;
    store<C>(to.at[i], (load<C>(from.at[i]) - of.mean) * of.scale + of.shift);
  }
  if (is_whole) *(Pack<Y, V>*)(y + first) = to;
  else for (u32 i = 0; i < V; i++) if (first + i < (Index)total) y[first + i] = to.at[i];
"#;
