//! Transposition through boxes in shared memory.
//!
//! A box has the elements of a range of every dimension. A block reads it in ranges that are contiguous in the input, and writes it in
//! ranges that are contiguous in the output; both cover several dimensions if the first ones are short. A thread reads and writes packs
//! of 16 bytes. It gathers the elements of a pack that it writes from shared memory.

use super::few_rows::WALKED;
use crate::ops::kernels::kernel::{BLOCK, bounds, c_type, geometry_param, index_type, launch, param};
use crate::ops::kernels::occupancy::{BUSY_BLOCKS, MOVED_AT_ONCE, SECTOR, WARP};
use crate::ops::kernels::ragged::RAGGED;
use crate::ops::layout::halves;
use crate::ops::*;

/// Maximum size of a box in bytes. Larger boxes have longer ranges.
const MAX_BYTES: u64 = 16 << 10;
/// Size in bytes down to which boxes are halved, for more blocks.
const MIN_BYTES: u64 = 4 << 10;
/// Size in bytes of a contiguous range beyond which longer ones gain little.
const LONG: u64 = 256;
/// Size in bytes of a pack.
const PACK: u64 = 16;
/// Size in bytes of a word of shared memory.
const WORD: u64 = 4;

/// Instructions per element that is gathered, from machine code for sm_90 by NVRTC 13.0 of u8 [10081, 5, 25, 11] by [3, 1, 0, 2],
/// whose threads take 183 instructions for a pack of 16 elements.
const PER_ELEMENT: f64 = 11.5;
/// Instructions per pack that is loaded, for its address and for shifting it; from the same code, whose threads take 620
/// instructions for five packs.
const PER_PACK: f64 = 124.0;
/// Instructions that an SM could issue per gathered element beyond those of the gather: neighbouring threads access every fourth bank, so that
/// an access of a warp takes four cycles, and the instructions for it take 2.9.
const CONFLICTS: f64 = 4.5;
/// Instructions of a thread for an element at an end of a range, or for finding that it has none: an estimate.
const PER_END: f64 = 60.0;

/// Boxes of a transposition.
#[derive(Debug)]
pub struct BoxTiles {
    /// The dimensions, with the strides of the output and of the input.
    all: Geometry,
    /// Number of elements of a box along each dimension.
    extent: Vec<u64>,
    /// Ranges of a box that are contiguous in the output, and in the input.
    ranges: [Ranges; 2],
    /// Size of an element in bytes.
    size: u64,
    /// True if all ranges of the output begin at packs.
    is_aligned: bool,
}

/// Ranges of a box that are contiguous in a tensor.
#[derive(Debug)]
struct Ranges {
    /// Dimensions of a range, from the innermost one on. Only the last one can have a part of its elements.
    axes: Vec<usize>,
    /// The other dimensions, which enumerate the ranges, from the innermost one on.
    others: Vec<usize>,
    /// Number of elements of a range.
    length: u64,
    /// Number of ranges.
    count: u64,
}

impl Ranges {
    /// Returns the ranges of boxes with the sizes `extent`, in the tensor with the index `which`.
    fn of(all: &Geometry, extent: &[u64], which: usize) -> Ranges {
        let order = order(all, which);
        let (mut length, mut taken) = (1, 0);
        for &axis in &order {
            if all.strides[which][axis] != length {
                break;
            }
            length *= extent[axis];
            taken += 1;
            if extent[axis] < all.dims[axis] {
                break;
            }
        }
        let (axes, others) = (order[..taken].to_vec(), order[taken..].to_vec());
        let count = others.iter().map(|&axis| extent[axis]).product();
        Ranges { axes, others, length, count }
    }
}

/// Returns the dimensions from the innermost one on, as they lie in the tensor with the index `which`.
fn order(all: &Geometry, which: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..all.dims.len()).collect();
    order.sort_by_key(|&axis| all.strides[which][axis]);
    order
}

/// True if contiguous elements of both tensors are shorter than a pack, and a warp that writes packs in their order reads less than a sector of
/// neighbouring runs.
fn has_scattered_runs(all: &Geometry, size: u64) -> bool {
    let last = all.dims.len() - 1;
    let Some(near) = (0..last).min_by_key(|&axis| all.strides[1][axis]) else { return false };
    let between: u64 = all.dims[near + 1..last].iter().product();
    all.dims[last] * size < PACK && between * SECTOR > WARP * PACK
}

/// Returns the sizes of a box of at most `room` elements. The shorter one of its contiguous ranges takes the next dimension in turn.
fn extents(all: &Geometry, room: u64, size: u64) -> Vec<u64> {
    let mut extent = vec![1; all.dims.len()];
    let left = |extent: &[u64]| room / extent.iter().product::<u64>();
    let orders = [0, 1].map(|which| order(all, which));
    let mut is_closed = [false; 2];
    loop {
        let ranges = [0, 1].map(|which| Ranges::of(all, &extent, which).length);
        // The dimension that continues a range.
        let next = |which: usize| {
            let place = orders[which].iter().position(|&axis| extent[axis] < all.dims[axis])?;
            let (axis, inner) = (orders[which][place], &orders[which][..place]);
            let length: u64 = inner.iter().map(|&axis| all.dims[axis]).product();
            (extent[axis] == 1 && all.strides[which][axis] == length && !is_closed[which]).then_some(axis)
        };
        let open = [0, 1].map(next);
        let Some(which) = (0..2).filter(|&which| open[which].is_some()).min_by_key(|&which| ranges[which]) else {
            break;
        };
        let (axis, other) = (open[which].expect("filtered"), 1 - which);
        // Number of elements of the dimensions that continue the range of the other tensor before this one does.
        let (mut length, mut behind) = (1, 1);
        for &inner in orders[other].iter().take_while(|&&inner| inner != axis) {
            if all.strides[other][inner] != length {
                break;
            }
            length *= all.dims[inner];
            behind *= if extent[inner] == 1 { all.dims[inner] } else { 1 };
        }
        // Number of elements that make that range long.
        let missing = if open[other].is_some() { (LONG / size).div_ceil(ranges[other]).min(behind) } else { 1 };
        let left = left(&extent);
        let limit = (left / missing).max(left.isqrt());
        // Boxes of about the same size, whose ranges are whole sectors if they are long.
        let whole = SECTOR / size;
        let even = all.dims[axis].div_ceil(all.dims[axis].div_ceil(limit.max(1)));
        extent[axis] = match limit >= 2 * whole && even < all.dims[axis] {
            true => even.next_multiple_of(whole).min(limit / whole * whole),
            false => even,
        };
        is_closed[which] = extent[axis] == 1;
    }
    // A box whose ranges cannot be longer has more of them.
    for axis in (0..extent.len()).rev() {
        if extent[axis] == 1 {
            extent[axis] = all.dims[axis].min(left(&extent)).max(1);
        }
    }
    extent
}

impl BoxTiles {
    /// Returns the boxes; `all` has the sizes, and the strides of output and input. `None` for small tensors, if contiguous elements stay
    /// contiguous and kernels that write rows read them well, and if the ranges of a box are short in either tensor.
    pub fn of(spec: &Spec, all: &Geometry) -> Option<BoxTiles> {
        let (y, size) = (&spec.outputs[0], spec.outputs[0].dtype.size());
        let inner = |which: usize| all.strides[which].iter().position(|&stride| stride == 1);
        let inners = [inner(0)?, inner(1)?];
        if y.elements() <= WALKED || inners[0] == inners[1] && !has_scattered_runs(all, size) {
            return None;
        }
        let divided = |bytes: u64| {
            let extent = extents(all, bytes / size, size);
            let blocks: u64 = all.dims.iter().zip(&extent).map(|(dim, extent)| dim.div_ceil(*extent)).product();
            (blocks >= BUSY_BLOCKS || bytes <= MIN_BYTES).then_some(extent)
        };
        let extent = halves(MAX_BYTES).find_map(divided)?;
        let ranges = [0, 1].map(|which| Ranges::of(all, &extent, which));
        // A thread gathers each element of a pack, which pays for elements of less than a word only if ranges are long.
        let least = if size < WORD { MOVED_AT_ONCE / size } else { 2 };
        if ranges.iter().any(|ranges| ranges.length < least) {
            return None;
        }
        let pack = PACK / size;
        let step = |axis: usize| all.strides[0][axis] * extent[axis];
        let is_whole = |&axis: &usize| extent[axis] == all.dims[axis] || step(axis).is_multiple_of(pack);
        let is_packed = |&axis: &usize| all.strides[0][axis].is_multiple_of(pack);
        let is_aligned =
            u64::from(y.align) >= PACK && ranges[0].axes.iter().all(is_whole) && ranges[0].others.iter().all(is_packed);
        Some(BoxTiles { all: all.clone(), extent, ranges, size, is_aligned })
    }

    /// Number of boxes along each dimension.
    fn boxes(&self) -> Vec<u64> {
        self.all.dims.iter().zip(&self.extent).map(|(dim, extent)| dim.div_ceil(*extent)).collect()
    }

    /// Number of elements of shared memory between two ranges of the input.
    fn pitch(&self) -> u64 {
        self.ranges[1].length.next_multiple_of(PACK / self.size)
    }

    /// Distance of neighbours along a dimension in shared memory, where the ranges of the input follow each other.
    fn distance(&self, axis: usize) -> u64 {
        let read = &self.ranges[1];
        match read.others.iter().position(|&other| other == axis) {
            Some(at) => read.others[..at].iter().map(|&axis| self.extent[axis]).product::<u64>() * self.pitch(),
            None => self.all.strides[1][axis],
        }
    }

    /// Dimensions of a range of the output of which a box has several elements, from the innermost one on.
    fn gathered(&self) -> Vec<usize> {
        self.ranges[0].axes.iter().copied().filter(|&axis| self.extent[axis] > 1).collect()
    }

    /// Number of elements of shared memory from one gap to the next, and of a gap. Neighbouring threads gather elements that are as many
    /// packs apart as neighbours of the output; a gap of a pack after each makes an even distance odd, so that they access all banks.
    fn gaps(&self) -> [u64; 2] {
        let (pack, distance) = (PACK / self.size, self.distance(self.gathered()[0]));
        [pack * distance, if distance.is_multiple_of(2) { pack } else { 0 }]
    }

    /// Number of bytes of shared memory of a block.
    fn shared(&self) -> u64 {
        let (elements, [period, gap]) = (self.ranges[1].count * self.pitch(), self.gaps());
        (elements + elements / period * gap) * self.size + PACK
    }

    pub fn cost(&self, spec: &Spec) -> Cost {
        let y = &spec.outputs[0];
        let blocks: u64 = self.boxes().iter().product();
        let elements = y.elements() as f64;
        let ends = if self.is_aligned { 0 } else { blocks * self.ranges[0].count * 2 * (PACK / self.size) };
        let instructions = PER_ELEMENT * elements + PER_PACK * (y.bytes() / PACK) as f64 + PER_END * ends as f64;
        let conflicts = CONFLICTS * elements;
        Cost {
            instructions,
            conflicts,
            exchanges: 1.0,
            blocks,
            ..spec.streaming_cost(0.0, self.extent.iter().product())
        }
    }

    pub fn launch(&self, spec: &Spec) -> Launch {
        let BoxTiles { all, extent, ranges: [written, read], size, .. } = self;
        let (pack, boxes) = (PACK / size, self.boxes());
        let several: Vec<usize> = (0..boxes.len()).filter(|&axis| boxes[axis] > 1).collect();
        // Dimensions of which the last box has fewer elements.
        let partial: Vec<usize> =
            several.iter().copied().filter(|&axis| !all.dims[axis].is_multiple_of(extent[axis])).collect();
        let chosen = |of: &dyn Fn(usize) -> u64| several.iter().map(|&axis| of(axis)).collect::<Dims>();
        let mut steps = vec![
            chosen(&|axis| all.strides[0][axis] * extent[axis]),
            chosen(&|axis| all.strides[1][axis] * extent[axis]),
        ];
        steps.extend(partial.iter().map(|&own| chosen(&|axis| if axis == own { extent[axis] } else { 0 })));
        let sets = steps.len();
        let boxes = Geometry { dims: chosen(&|axis| boxes[axis]), strides: steps };
        let blocks: u64 = boxes.dims.iter().product();
        let mut live: String = partial.iter().enumerate().map(|(place, &axis)| {
            let (dim, extent) = (all.dims[axis], extent[axis]);
            format!("  const u64 left{axis} = {dim}ull - (u64)at[{}];\n  const u32 live{axis} = left{axis} < {extent} ? (u32)left{axis} : {extent};\n", place + 2)
        }).collect();
        for (name, ranges) in [("live_written", written), ("live_read", read)] {
            let last = *ranges.axes.last().expect("a range has a dimension");
            live += &match partial.contains(&last) {
                true => format!("  const u32 {name} = live{last} * {};\n", ranges.length / extent[last]),
                false => format!("  const u32 {name} = {};\n", ranges.length),
            };
        }
        // The sum of the coordinates of element `index` of these dimensions, times a stride of each.
        let sum = |index: &str, axes: &[usize], kind: &str, stride: &dyn Fn(usize) -> u64| {
            let mut after = 1;
            let mut terms = Vec::new();
            for &axis in axes.iter().filter(|&&axis| extent[axis] > 1) {
                terms.push(format!("({kind})(({index}) / {after}u % {}u) * {}", extent[axis], stride(axis)));
                after *= extent[axis];
            }
            if terms.is_empty() { "0".to_owned() } else { terms.join(" + ") }
        };
        let is_live = |index: &str, axes: &[usize]| {
            let mut after = 1;
            let mut terms = vec!["true".to_owned()];
            for &axis in axes {
                if partial.contains(&axis) {
                    terms.push(format!("({index}) / {after}u % {}u < live{axis}", extent[axis]));
                }
                after *= extent[axis];
            }
            terms.join(" && ")
        };
        let place = |axis: usize| self.distance(axis);
        let read_packs = read.length.div_ceil(pack);
        // Coordinates of an element of a range of the output, and the step to the next element.
        let axes = self.gathered();
        let (mut after, mut coordinates, mut next) = (1, String::new(), String::new());
        for (&axis, &outer) in axes.iter().zip(&axes[1..]) {
            let jump = place(outer) as i64 - (extent[axis] * place(axis)) as i64;
            coordinates += &format!("u32 c{axis} = (w) / {after}u % {}u; ", extent[axis]);
            next += &format!("if (++c{axis} == {}) {{ c{axis} = 0; e += (u32)({jump}); ", extent[axis]);
            after *= extent[axis];
        }
        let next = format!("e += {}; {next}{}", place(axes[0]), "}".repeat(axes.len() - 1));
        let [period, gap] = self.gaps();
        let before = format!(
            "{}typedef {} E;\ntypedef {} Index;\n#define V {pack}\n#define LENGTH {}u\n#define READS {}u\n#define READ_PACKS {read_packs}u\n#define WRITES {}u\n\
             #define WRITE_PACKS {}u\n#define PITCH {}u\n#define UNITS {}\n#define SHARED {}\n#define AT(e) ((e) + (e) / {}u * {}u)\n#define FROM(k) ({})\n#define TO(k) ({})\n\
             #define READ_LIVE(k) ({})\n#define WRITE_LIVE(k) ({})\n#define ROW(k) ({})\n#define ELEMENT(w) ({})\n#define ALIGNED {}\n#define COORDINATES(w) {coordinates}\n#define NEXT {next}\n{RAGGED}",
            bounds(BLOCK),
            c_type(spec.outputs[0].dtype),
            index_type(blocks),
            written.length,
            read.count,
            written.count,
            (written.length / pack).max(1),
            self.pitch(),
            (read.count * read_packs).div_ceil(u64::from(BLOCK)),
            self.shared() / PACK,
            period,
            gap,
            sum("k", &read.others, "i64", &|axis| all.strides[1][axis]),
            sum("k", &written.others, "i64", &|axis| all.strides[0][axis]),
            is_live("k", &read.others),
            is_live("k", &written.others),
            sum("k", &written.others, "u32", &place),
            sum("w", &written.axes, "u32", &place),
            u32::from(self.is_aligned),
        );
        let params = [
            param("E* __restrict__ y", Arg::Operand(1)),
            param("const E* __restrict__ x", Arg::Operand(0)),
            geometry_param("boxes", &boxes),
        ];
        let body = format!("  i64 at[{sets}];\n  boxes.offsets((Index)blockIdx.x, at);\n{live}{BODY}");
        launch("transpose_boxes", &before, &params, &body, blocks, BLOCK)
    }
}

/// Kernel text: a block reads a box into shared memory, and writes it.
const BODY: &str = r#"  __shared__ Pack<E, V> packs[SHARED];
  const E* const from = x + at[1];
  Held<E> held[UNITS];
#pragma unroll
  for (u32 u = 0; u < UNITS; u++) {
    const u32 i = threadIdx.x + u * 256, k = i / READ_PACKS, j = (i - k * READ_PACKS) * V;
    held[u] = Held<E>();
    if (k < READS && READ_LIVE(k)) held[u] = read_row(from + FROM(k), (int)j, (int)live_read);
  }
#pragma unroll
  for (u32 u = 0; u < UNITS; u++) {
    const u32 i = threadIdx.x + u * 256, k = i / READ_PACKS, j = (i - k * READ_PACKS) * V;
    if (k < READS) packs[AT(k * PITCH + j) / V] = held[u].elements();
  }
  __syncthreads();
  const E* const staged = (const E*)packs;
  E* const to = y + at[0];
  // Whole packs of ranges, then the elements at their ends.
  for (u32 i = threadIdx.x; i < WRITES * WRITE_PACKS; i += 256) {
    const u32 k = i / WRITE_PACKS;
    E* const row = to + TO(k);
    const u32 first = (i - k * WRITE_PACKS) * V + (ALIGNED ? 0 : (V - lead_of(row)) % V);
    if (!WRITE_LIVE(k) || first + V > live_written) continue;
    u32 e = ROW(k) + ELEMENT(first);
    COORDINATES(first)
    union Words { Pack<E, V> elements; u32 w[4]; __device__ Words() {} } all;
#pragma unroll
    for (int c = 0; c < V; c++) {
      all.elements.at[c] = staged[AT(e)];
      NEXT
    }
    store_words(row + first, all.w);
  }
  if (ALIGNED && LENGTH % V == 0 && live_written == LENGTH) return;
  for (u32 i = threadIdx.x; i < WRITES * 2 * V; i += 256) {
    const u32 k = i / (2 * V);
    E* const row = to + TO(k);
    const u32 lead = ALIGNED ? 0 : (V - lead_of(row)) % V, ahead = lead < live_written ? lead : live_written;
    const bool is_behind = i % (2 * V) >= V;
    const u32 w = i % V + (is_behind ? ahead + (live_written - ahead) / V * V : 0);
    if (WRITE_LIVE(k) && w < (is_behind ? live_written : ahead)) row[w] = staged[AT(ROW(k) + ELEMENT(w))];
  }
"#;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::kernels::occupancy::DEFAULT_SHARED;
    use crate::ops::movement::transpose::word_tiles::tests::rotations;
    use proptest::prelude::*;

    proptest! {
        /// Ranges have all elements of a box, begin at its first element, and fit shared memory.
        #[test]
        fn ranges_have_all_elements((spec, all) in rotations(&[DType::U8, DType::BF16, DType::F32, DType::F64])) {
            let Some(tiles) = BoxTiles::of(&spec, &all) else { return Ok(()) };
            let elements: u64 = tiles.extent.iter().product();
            prop_assert!(elements * tiles.size <= MAX_BYTES && tiles.shared() <= DEFAULT_SHARED);
            for (which, ranges) in tiles.ranges.iter().enumerate() {
                prop_assert_eq!(ranges.length * ranges.count, elements);
                let last = |axis: &usize| (tiles.extent[*axis] - 1) * all.strides[which][*axis];
                prop_assert_eq!(ranges.axes.iter().map(last).sum::<u64>() + 1, ranges.length);
            }
        }
    }
}
