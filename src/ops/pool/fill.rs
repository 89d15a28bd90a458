//! Gradients of maxima whose indices are given: a block writes zeros to neighbouring elements, and then the gradients of those that are
//! maxima.

use super::kernel::{Kernels, PACK};
use super::*;
use crate::ops::kernels::kernel::{BLOCK, param, u32_param};
use crate::ops::kernels::occupancy::RESIDENT_BLOCKS;

/// Maximum number of packs of zeros that a thread writes. More blocks would check the same windows more often.
const MAX_PACKS: u64 = 4;

/// The division of gradients among blocks: some whole planes, or a part of a slice. Slices are equal parts of a plane that follow one
/// another, a whole plane if possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fill {
    /// Number of planes of a block, if it has whole ones.
    planes: u64,
    /// Number of elements of a slice.
    slice: u64,
    /// Number of parts of a slice.
    parts: u64,
    /// Number of elements of a part.
    length: u64,
}

impl Kernels {
    /// The division of the gradients of few maxima.
    pub(super) fn fill(&self) -> Fill {
        let (elements, planes) = (self.grid.elements(), self.shape.planes);
        let pack = PACK / self.spec.inputs[0].dtype.size();
        let step = u64::from(BLOCK) * pack;
        let packs = (elements * planes / step / RESIDENT_BLOCKS).clamp(1, MAX_PACKS);
        let most = step * packs;
        if elements <= most {
            return Fill { planes: (most / elements).min(planes), slice: elements, parts: 1, length: elements };
        }
        // Elements with the same index along the first dimension. A block with some of two such indices would check the windows of both.
        let [first, ..] = self.grid.x;
        let own = elements / first;
        let (slice, length) = match most / own {
            0 => (own, own.div_ceil(own.div_ceil(most)).next_multiple_of(pack)),
            several => (elements, several * own),
        };
        Fill { planes: 1, slice, parts: slice.div_ceil(length), length }
    }
}

impl Fill {
    /// Number of blocks of the planes of a block.
    fn parts_of_a_plane(&self, kernels: &Kernels) -> u64 {
        kernels.grid.elements() / self.slice * self.parts
    }

    /// Number of blocks.
    pub fn blocks(&self, kernels: &Kernels) -> u64 {
        kernels.shape.planes.div_ceil(self.planes) * self.parts_of_a_plane(kernels)
    }

    pub fn launch(&self, kernels: &Kernels) -> Launch {
        let params = [
            u32_param("planes", kernels.shape.planes),
            param("const Steps sy", kernels.steps(1)),
            param("const Steps so", kernels.steps(2)),
            param("const T* y", Arg::Operand(1)),
            param("T* dx", Arg::Operand(2)),
            kernels.indices_param(),
        ];
        let numbers = [
            ("OWN_PLANES", self.planes),
            ("PLANE_PARTS", self.parts_of_a_plane(kernels)),
            ("SLICE", self.slice),
            ("SLICE_PARTS", self.parts),
            ("LENGTH", self.length),
            ("FLAT", u64::from(kernels.spec.outputs[0].contiguous())),
            ("WHOLE_PACK", PACK / kernels.spec.inputs[0].dtype.size()),
        ];
        let numbers: String = numbers.iter().map(|(name, value)| format!("#define {name} {value}u\n")).collect();
        let before = format!("{}{numbers}", kernels.definitions(Task::Fill));
        let body = [FILL, text::ADD_ALIKE, text::STORE_SUM, "  }\n"].concat();
        crate::ops::kernels::kernel::launch("pool_backward", &before, &params, &body, self.blocks(kernels), BLOCK)
    }
}

/// Kernel text: a block writes zeros to its elements, and adds up the gradients of those with the index of a window.
const FILL: &str = r#"  const u32 ELEMENTS = X(0) * X(1) * X(2), WINDOWS_OF_PLANE = Y(0) * Y(1) * Y(2), t = threadIdx.x;
  const u32 first_plane = blockIdx.x / PLANE_PARTS * OWN_PLANES, first_window = 0;
  const u32 live = planes - first_plane < OWN_PLANES ? planes - first_plane : OWN_PLANES;
  // Elements of the block in each of its planes.
  const u32 part = blockIdx.x % PLANE_PARTS, own_slice = part / SLICE_PARTS * SLICE, offset = part % SLICE_PARTS * LENGTH;
  const u32 begin = own_slice + offset, end = own_slice + (SLICE - offset < LENGTH ? SLICE : offset + LENGTH);
  // Windows that can contain some of these elements.
  u32 least[3] = {0, 0, 0}, counts[3] = {Y(0), Y(1), Y(2)};
  if (PLANE_PARTS > 1) {
    u32 low[3], high[3];
    split(begin, X(1), X(2), low);
    split(end - 1, X(1), X(2), high);
    const Range lowest = windows_of(low), highest = windows_of(high);
    bool is_alike = true;
    EACH_DIM(j) {
      if (is_alike) least[j] = lowest.from[j], counts[j] = highest.to[j] > least[j] ? highest.to[j] - least[j] : 0;
      is_alike = is_alike && low[j] == high[j];
    }
  }
  const u32 candidates = counts[0] * counts[1] * counts[2];
  auto window_of = [&](u32 item, u32 (&at)[3]) {
    split(OWN_PLANES == 1 ? item : item % candidates, counts[1], counts[2], at);
    EACH_DIM(j) at[j] += least[j];
  };
  auto plane_of = [&](u32 item) { return first_plane + (OWN_PLANES == 1 ? 0 : item / candidates); };
  auto place_of = [&](u32 item, const u32 (&at)[3]) {
    return places[(u64)plane_of(item) * WINDOWS_OF_PLANE + (at[0] * Y(1) + at[1]) * Y(2) + at[2]];
  };
  // The first index is read while zeros are written.
  u32 window[3] = {0, 0, 0}, place = NOWHERE;
  if (t < live * candidates) {
    window_of(t, window);
    place = place_of(t, window);
  }
  const i32 length = (i32)((live - 1) * ELEMENTS + end - begin);
  if (FLAT) {
    T* to = dx + (u64)first_plane * ELEMENTS + begin;
    const i32 lead = (i32)((u64)to / sizeof(T) % WHOLE_PACK);
#pragma unroll 4
    for (i32 i = (i32)(t * WHOLE_PACK) - lead; i < length; i += BLOCK * WHOLE_PACK) {
      const Pack<T, WHOLE_PACK> zeros = {};
      if (i >= 0 && i + (i32)WHOLE_PACK <= length) {
        *(Pack<T, WHOLE_PACK>*)(to + i) = zeros;
        continue;
      }
      for (i32 v = 0; v < (i32)WHOLE_PACK; v++) if (i + v >= 0 && i + v < length) to[i + v] = zeros.at[v];
    }
  } else {
    for (u32 i = t; i < (u32)length; i += BLOCK) {
      u32 at[3];
      split((begin + i) % ELEMENTS, X(1), X(2), at);
      store<C>(dx[plane_at(first_plane + (begin + i) / ELEMENTS, so) + OFFSET(SD, at)], C(0));
    }
  }
  __syncthreads();
  for (u32 item = t; item < live * candidates; item += BLOCK) {
    if (item > t) {
      window_of(item, window);
      place = place_of(item, window);
    }
    if (place < begin || place >= end) continue;
    const u32 plane = plane_of(item);
    u32 own[3];
    split(place, X(1), X(2), own);
    const Place* own_places = places + (u64)plane * WINDOWS_OF_PLANE;
    const T* gradients = y + plane_at(plane, sy);
    auto gradient_of = [&](const u32 (&at)[3], u32) { return load<C>(gradients[OFFSET(SY, at)]); };
"#;

#[cfg(test)]
mod tests {
    use super::*;

    /// The blocks of planes of any size cover each element once: whole planes, or equal slices in parts, none of them empty. No block is
    /// longer than its threads can write in four steps.
    #[test]
    fn blocks_cover_each_element_once() {
        for (planes, sizes) in [
            (1, vec![1]),
            (7, vec![64]),
            (4096, vec![3, 3]),
            (54, vec![16, 16, 8]),
            (132, vec![4099]),
            (1, vec![2588, 2184]),
            (256, vec![322, 296]),
            (3, vec![171, 128, 100]),
            (10, vec![56, 101, 61]),
            (1, vec![3, 5_000_011]),
        ] {
            for dtype in [DType::BF16, DType::F32, DType::F64] {
                let tensor = |sizes: &[u64]| Tensor::packed(dtype, &[&[1, planes], sizes].concat());
                let (x, y) = (tensor(&sizes), tensor(&vec![1; sizes.len()]));
                let indices = Tensor { dtype: DType::I32, ..y };
                let attrs = PoolBackward.signature().attrs(&[("adaptive", Attr::Bool(true))]);
                let kernels = Kernels::of(&Spec::new(&PoolBackward, attrs, vec![x, y, indices], vec![x]));
                let (fill, elements) = (kernels.fill(), kernels.grid.elements());
                let Fill { planes: own, slice, parts, length } = fill;
                assert!(own == 1 || (slice, parts) == (elements, 1), "{fill:?}");
                assert!(elements.is_multiple_of(slice) && (parts - 1) * length < slice && slice <= parts * length);
                assert!(own * length * dtype.size() <= u64::from(BLOCK) * PACK * MAX_PACKS, "{fill:?}");
                assert_eq!(fill.blocks(&kernels), planes.div_ceil(own) * (elements / slice) * parts);
            }
        }
    }
}
