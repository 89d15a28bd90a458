//! `pad` of small elements: a block builds a contiguous part of the output in shared memory, and then writes it at full width.

use crate::ops::kernels::kernel::{BLOCK, bounds, c_type, compute_type, index_type, launch, param, u64_param};
use crate::ops::kernels::occupancy::BUSY_BLOCKS;
use crate::ops::*;

/// Maximum size in bytes of a part of the output. A smaller part gives more blocks.
const LARGEST: u64 = 16 << 10;
/// Minimum size in bytes of a part of the output: a thread writes at least a pack of it.
const SMALLEST: u64 = 16 * BLOCK as u64;

/// Size in bytes of the words in which threads read the input. Each takes one access, and a store for each of its elements.
const WORD: u64 = 4;

/// Number of words that a thread reads at once.
const AHEAD: u64 = 4;

/// Instructions per word of the input.
const PER_WORD: f64 = 14.0;
/// Instructions per element of a word.
const PER_ELEMENT: f64 = 3.0;
/// Instructions per pack of the output.
const PER_PACK: f64 = 14.0;

/// A pad of contiguous tensors whose elements are smaller than words.
pub struct Chunks {
    x: Tensor,
    y: Tensor,
    before: Vec<u64>,
    /// Number of elements of a part of the output.
    chunk: u64,
}

impl Chunks {
    /// Returns the division of the output into parts; `None` if a tensor has gaps or is not aligned, if elements are large, or if there
    /// are fewer parts than most SMs need.
    pub fn of(x: &Tensor, y: &Tensor, before: &[u64]) -> Option<Chunks> {
        let size = y.dtype.size();
        let is_flat = x.contiguous() && y.contiguous() && u64::from(x.align) >= WORD && y.align >= 16;
        if !is_flat || size >= WORD || x.elements() == 0 {
            return None;
        }
        let is_enough = |bytes: &u64| y.elements() * size >= bytes * BUSY_BLOCKS;
        let bytes = layout::halves(LARGEST).take_while(|bytes| *bytes >= SMALLEST).find(is_enough)?;
        Some(Chunks { x: *x, y: *y, before: before.to_vec(), chunk: bytes / size })
    }

    pub fn cost(&self, spec: &Spec) -> Cost {
        let size = self.y.dtype.size();
        let of_a_word = PER_WORD + PER_ELEMENT * (WORD / size) as f64;
        let words = (self.x.elements() * size) as f64 / WORD as f64;
        let instructions = words * of_a_word + (self.y.elements() * size) as f64 / 16.0 * PER_PACK;
        Cost { instructions, ..spec.streaming_cost(0.0, self.chunk) }
    }

    pub fn launch(&self, spec: &Spec) -> Launch {
        let Chunks { x, y, before, chunk } = self;
        let (rank, size, compute) = (x.dims.len(), y.dtype.size(), compute_type(spec));
        let list = |sizes: &[u64]| sizes.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
        let arrays = [
            ("DIMS", &*y.dims),
            ("BEFORE", before.as_slice()),
            ("SIZES", &*x.dims),
            ("STEPS", &*x.strides),
            ("PITCHES", &*y.strides),
        ];
        let arrays: String = arrays
            .iter()
            .map(|(name, sizes)| format!("  constexpr Place {name}[RANK] = {{{}}};\n", list(sizes)))
            .collect();
        let params = [
            param(format!("{}* __restrict__ y", c_type(y.dtype)), Arg::Operand(1)),
            param(format!("const {}* __restrict__ x", c_type(x.dtype)), Arg::Operand(0)),
            u64_param("total", y.elements()),
            u64_param("read", x.elements()),
            param(format!("{} value", c_type(compute)), Arg::real(compute, spec.attrs.number("value"))),
        ];
        let before_text = format!(
            "{}typedef {} E;\ntypedef {} C;\ntypedef {} Place;\n#define V {}\n#define WORD {}\n#define AHEAD {AHEAD}\n#define CHUNK {chunk}\n#define RANK {rank}\n",
            bounds(BLOCK),
            c_type(y.dtype),
            c_type(compute),
            index_type(y.elements() + 2 * chunk),
            16 / size,
            WORD / size,
        );
        launch("pad", &before_text, &params, &(arrays + TEXT), y.elements().div_ceil(*chunk).max(1), BLOCK)
    }
}

/// Kernel text: a block fills a part of the output with the value of the border, and writes the elements of the input over it. Places are
/// numbers of elements of the output from the part's first one on; those before it wrap around to large numbers.
const TEXT: &str = r#"  __shared__ Pack<u32, 4> packs[CHUNK / V];
  const int LAST = RANK - 1;
  const Place begin = (Place)blockIdx.x * CHUNK, left = (Place)total - begin, live = left < CHUNK ? left : CHUNK;
  union Words { Pack<u32, 4> pack; E at[V]; __device__ Words() {} } border;
#pragma unroll
  for (u32 v = 0; v < V; v++) store<C>(border.at[v], value);
#pragma unroll
  for (u32 i = threadIdx.x; i < CHUNK / V; i += 256) packs[i] = border.pack;
  // Number of elements of the input that come before a place of the output.
  auto read_before = [&](Place place) {
    Place at[RANK], rest = place, count = 0;
    bool inside = true;
#pragma unroll
    for (int axis = LAST; axis > 0; axis--) {
      const Place next = rest / DIMS[axis];
      at[axis] = rest - next * DIMS[axis];
      rest = next;
    }
    at[0] = rest;
#pragma unroll
    for (int axis = 0; axis < RANK; axis++) {
      const Place own = at[axis] < BEFORE[axis] ? 0 : at[axis] - BEFORE[axis];
      if (inside) count += (own < SIZES[axis] ? own : SIZES[axis]) * STEPS[axis];
      inside = inside && at[axis] >= BEFORE[axis] && own < SIZES[axis];
    }
    return count;
  };
  // Place of the first element of a row of the input.
  auto place_of = [&](Place row) {
    Place place = BEFORE[LAST] - begin, rest = row;
#pragma unroll
    for (int axis = LAST - 1; axis >= 0; axis--) {
      const Place next = axis > 0 ? rest / SIZES[axis] : 0;
      place += (rest - next * SIZES[axis] + BEFORE[axis]) * PITCHES[axis];
      rest = next;
    }
    return place;
  };
  const Place first = read_before(begin) / WORD * WORD, last = read_before(begin + live);
  E* own = (E*)packs;
  __syncthreads();
  for (Place base = first + threadIdx.x * WORD; base < last; base += AHEAD * 256 * WORD) {
    Pack<E, WORD> words[AHEAD];
#pragma unroll
    for (u32 u = 0; u < AHEAD; u++) {
      const Place e = base + u * 256 * WORD;
      if (e < last) words[u] = *(const Pack<E, WORD>*)(x + e);
    }
#pragma unroll
    for (u32 u = 0; u < AHEAD; u++) {
      const Place e = base + u * 256 * WORD;
      if (e >= last) continue;
      const Place row = e / SIZES[LAST], column = e - row * SIZES[LAST], in_row = SIZES[LAST] - column, place = place_of(row) + column;
      // The row after this one follows at a constant distance, unless there are more dimensions.
      Place next = place + DIMS[LAST];
      if (RANK > 2 && in_row < WORD) next = place_of(row + 1) + column;
#pragma unroll
      for (u32 k = 0; k < WORD; k++) {
        Place to = k < in_row ? place + k : next + k - SIZES[LAST];
        if (SIZES[LAST] < WORD) {
          const Place own_row = (e + k) / SIZES[LAST];
          to = place_of(own_row) + (e + k - own_row * SIZES[LAST]);
        }
        if (e + k < (Place)read && to < live) own[to] = words[u].at[k];
      }
    }
  }
  __syncthreads();
#pragma unroll
  for (u32 i = threadIdx.x; i < CHUNK / V; i += 256) {
    if ((i + 1) * V <= live) {
      *(Pack<u32, 4>*)(y + begin + i * V) = packs[i];
      continue;
    }
    for (u32 v = 0; v < V && i * V + v < live; v++) y[begin + i * V + v] = own[i * V + v];
  }
"#;
