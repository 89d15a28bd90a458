//! `pad`: adds a border of one value to a tensor.

use super::padded_chunks::Chunks;
use crate::ops::kernels::kernel::{BLOCK, bounds, c_type, compute_type, index_type, launch, param, u64_param};
use crate::ops::kernels::occupancy::{SECTOR, WARP};
use crate::ops::kernels::ragged::RAGGED;
use crate::ops::kernels::walk::{self, Operand, Task};
use crate::ops::*;

/// `pad(x -> y)`, as `torch.nn.functional.pad` with a constant.
pub struct Pad;

/// Instructions of a thread per pack: for elements of less than four bytes, and for larger ones.
const PER_PACK: [f64; 2] = [180.0, 100.0];

/// Instructions of a thread per pack if each pack belongs to the input or to the border as a whole, and per pack of the border.
const PER_WHOLE_PACK: f64 = 45.0;
/// Instructions of a thread per pack of an output with short rows.
const PER_SHORT_PACK: f64 = 60.0;
/// Instructions of a thread per element of a pack of an output with short rows.
const PER_ELEMENT: f64 = 14.0;

/// Minimum length in bytes of an input row whose interior and border are written by separate parts of a kernel, if packs of the input stay
/// packs in the output. The ends of shorter parts would share too many sectors.
const LONG_ROW: u64 = 32 * SECTOR;
/// Minimum size in bytes of an element that counts as large.
const LARGE: u64 = 4;

/// Minimum number of elements of an output with rows shorter than a pack that is written in packs. In smaller outputs,
/// threads for single elements finish earlier.
const MANY: u64 = 1 << 18;

/// Number of elements added before and after the input along each dimension.
fn borders(attrs: &Attrs, rank: usize) -> [Vec<u64>; 2] {
    ["before", "after"].map(|name| match attrs.axes(name) {
        Some(sizes) => sizes.iter().map(|&size| size as u64).collect(),
        None => vec![0; rank],
    })
}

impl Operation for Pad {
    signature! {
        name: "pad",
        summary: "pads a tensor with a constant value",
        category: Category::Movement,
        inputs: &[Input::Tensor("x")],
        outputs: &["y"],
        options: &[
            OptionSpec::absent(
                "before",
                OptionType::Sizes,
                "padding before the first element of each dimension; none by default",
            ),
            OptionSpec::absent(
                "after",
                OptionType::Sizes,
                "padding after the last element of each dimension; none by default",
            ),
            OptionSpec::number("value", 0.0, "the padding value"),
        ],
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        let x = &call.inputs[0].tensor;
        let rank = x.dims.len();
        for name in ["before", "after"] {
            let Some(sizes) = call.attrs.axes(name) else { continue };
            let help = format!("write a list such as `{:?}`: the size of the border in each dimension", vec![1; rank]);
            if sizes.len() != rank {
                let why = format!("its length is {}, and the input, {x}, has {rank} dimensions", sizes.len());
                return Err(call.bad_option(name, why, help));
            }
            if sizes.iter().any(|size| !(0..1 << 40).contains(size)) {
                return Err(call.bad_option(name, "each number has to be between 0 and 2^40".to_owned(), help));
            }
        }
        let [before, after] = borders(call.attrs, rank);
        let dims: Dims = (0..rank).map(|axis| x.dims[axis] + before[axis] + after[axis]).collect();
        Ok(vec![call.output(0, x.dtype, dims)?])
    }

    fn cost(&self, spec: &Spec) -> Cost {
        let merged = Merged::of(spec);
        if !merged.is_in_packs() {
            return spec.streaming_cost(0.0, u64::from(BLOCK) * 4);
        }
        if let Some(chunks) = merged.chunks() {
            return chunks.cost(spec);
        }
        let packs = Spec::bytes_of(&spec.outputs).total().div_ceil(16);
        let per_pack = match merged.has_short_rows() {
            true => PER_SHORT_PACK + PER_ELEMENT * merged.pack() as f64,
            false if merged.has_whole_packs() => PER_WHOLE_PACK,
            false => PER_PACK[usize::from(spec.outputs[0].dtype.size() >= LARGE)],
        };
        // Packs with elements of the input: an input row has parts of two packs at its ends.
        let rows = merged.x.elements() / merged.x.dims.last().copied().unwrap_or(1).max(1);
        let read = (merged.x.elements() / merged.pack() + rows).min(packs);
        let instructions = per_pack * read as f64 + PER_WHOLE_PACK.min(per_pack) * (packs - read) as f64;
        Cost { instructions, ..spec.streaming_cost(0.0, merged.pack() * u64::from(BLOCK)) }
    }

    fn reference(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        let (x, y) = (spec.inputs[0].dims, spec.outputs[0].dims);
        let [before, _] = borders(&spec.attrs, x.len());
        let strides = y.contiguous_strides();
        let start: u64 = before.iter().zip(strides.iter()).map(|(before, stride)| before * stride).sum();
        outputs[0].fill(spec.attrs.number("value"));
        for (value, offset) in inputs[0].iter().zip(layout::offsets(x, strides)) {
            outputs[0][(start + offset) as usize] = *value;
        }
    }

    fn pieces(&self, spec: &Spec) -> Option<Pieces> {
        let [before, after] = borders(&spec.attrs, spec.inputs[0].dims.len());
        let rows_stay = before.first() == Some(&0) && after.first() == Some(&0);
        rows_stay.then(|| Pieces::Rows(vec![true]))
    }

    /// Returns kernels that write a contiguous output from one end to the other in packs; or kernels that copy the
    /// input and fill slabs around it. The slabs of a dimension cover the range of the input along earlier dimensions,
    /// and the whole output along later ones.
    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        let merged = Merged::of(spec);
        if merged.is_in_packs() {
            return vec![merged.chunks().map_or_else(|| merged.in_packs(spec), |chunks| chunks.launch(spec))];
        }
        let Merged { x, y: whole, before, after } = &merged;
        let rank = x.dims.len();
        let (identity, value) = (Expression::identity(), Expression::constant(spec.attrs.number("value")));
        let inside = |operand: Operand, axes: usize| {
            (0..axes).fold(operand, |operand, axis| operand.cut(axis, before[axis], x.dims[axis]))
        };
        let y = Operand::of(1, whole, whole.strides);
        let inner = Task {
            expression: &identity,
            dims: x.dims,
            outputs: vec![inside(y, rank)],
            inputs: vec![Operand::of(0, x, x.strides)],
        };
        let slabs = (0..rank).flat_map(|axis| {
            let behind = before[axis] + x.dims[axis];
            [(0, before[axis]), (behind, after[axis])].map(|(from, length)| (axis, from, length))
        });
        let slabs = slabs.filter(|(.., length)| *length > 0).map(|(axis, from, length)| {
            let slab = inside(y, axis).cut(axis, from, length);
            Task { expression: &value, dims: slab.tensor.dims, outputs: vec![slab], inputs: Vec::new() }
        });
        let tasks: Vec<Task> = std::iter::once(inner).chain(slabs).collect();
        walk::launches("pad", &tasks, compute_type(spec))
    }

    fn backward(&self, rule: &mut Backward) -> Result<(), NoRule> {
        let [before, _] = borders(&rule.spec.attrs, rule.spec.inputs[0].dims.len());
        backward::pad(rule, &before)
    }
}

/// Returns a tensor without a dimension.
fn without(tensor: &Tensor, axis: usize) -> Tensor {
    let all_but = |sizes: &Dims| sizes[..axis].iter().chain(&sizes[axis + 1..]).copied().collect();
    Tensor { dims: all_but(&tensor.dims), strides: all_but(&tensor.strides), ..*tensor }
}

/// A pad without the dimensions that have no border and are contiguous to the dimension before them, so that rows are
/// as long as possible.
struct Merged {
    x: Tensor,
    y: Tensor,
    before: Vec<u64>,
    after: Vec<u64>,
}

impl Merged {
    fn of(spec: &Spec) -> Merged {
        let (mut x, mut y) = (spec.inputs[0], spec.outputs[0]);
        let [mut before, mut after] = borders(&spec.attrs, x.dims.len());
        let continues =
            |tensor: &Tensor, axis: usize| tensor.strides[axis - 1] == tensor.dims[axis] * tensor.strides[axis];
        for axis in (1..x.dims.len()).rev() {
            if before[axis] > 0 || after[axis] > 0 || !continues(&x, axis) || !continues(&y, axis) {
                continue;
            }
            let size = x.dims[axis];
            for tensor in [&mut x, &mut y] {
                let (stride, length) = (tensor.strides[axis], tensor.dims[axis - 1] * size);
                tensor.strides.set(axis - 1, stride);
                tensor.dims.set(axis - 1, length);
                *tensor = without(tensor, axis);
            }
            for sizes in [&mut before, &mut after] {
                sizes[axis - 1] *= size;
                sizes.remove(axis);
            }
        }
        // A first dimension with a single element divides nothing.
        while y.dims.len() > 1 && y.dims[0] == 1 {
            (x, y) = (without(&x, 0), without(&y, 0));
            (before, after) = (before.split_off(1), after.split_off(1));
        }
        Merged { x, y, before, after }
    }

    /// Number of elements in 16 bytes, which a thread writes at once.
    fn pack(&self) -> u64 {
        16 / self.y.dtype.size()
    }

    /// True if the kernel writes the output from one end to the other in packs of 16 bytes.
    fn is_in_packs(&self) -> bool {
        let Merged { x, y, .. } = self;
        if !y.contiguous() || y.align < 16 || y.elements() == 0 || x.strides.last() != Some(&1) {
            return false;
        }
        if self.has_short_rows() {
            return y.elements() >= MANY;
        }
        let last = y.dims.len() - 1;
        x.dims[last] * x.dtype.size() < LONG_ROW || !self.is_alike()
    }

    /// True if each pack of the input is a pack of the output.
    fn is_alike(&self) -> bool {
        let Merged { x, y, before, .. } = self;
        let (last, pack) = (y.dims.len() - 1, self.pack());
        let begins = |strides: &Dims| strides[..last].iter().all(|stride| stride.is_multiple_of(pack));
        x.align >= 16 && begins(&x.strides) && begins(&y.strides) && before[last].is_multiple_of(pack)
    }

    /// True if each pack of the output belongs to the input or to the border as a whole.
    fn has_whole_packs(&self) -> bool {
        let is_whole = |tensor: &Tensor| tensor.dims.last().is_some_and(|length| length.is_multiple_of(self.pack()));
        self.is_alike() && is_whole(&self.x) && is_whole(&self.y)
    }

    /// The parts of the output that blocks build in shared memory, if most warps of packs would have a pack with parts of two rows: if rows
    /// are not whole packs, and shorter than a warp's. With rows shorter than a pack, only packs of single bytes are bound by instructions.
    fn chunks(&self) -> Option<Chunks> {
        let row = self.y.dims.last().map_or(0, |length| length * self.y.dtype.size());
        let is_compute_bound = !self.has_short_rows() || self.y.dtype.size() == 1;
        let has_parts = is_compute_bound && row < WARP * 16 && !row.is_multiple_of(16);
        has_parts.then(|| Chunks::of(&self.x, &self.y, &self.before)).flatten()
    }

    /// True if a row of the output is shorter than a pack. A pack then contains parts of several rows, each of which
    /// takes as long as several single elements.
    fn has_short_rows(&self) -> bool {
        self.y.dims.last().is_some_and(|&length| length < self.pack())
    }

    /// Returns the kernel for a contiguous output: each thread writes a pack of 16 bytes, which may contain parts of
    /// several rows.
    fn in_packs(&self, spec: &Spec) -> Launch {
        let Merged { x, y, before, .. } = self;
        let rank = x.dims.len();
        let (total, pack) = (y.elements(), self.pack());
        let compute = compute_type(spec);
        // Divisions by constants take a fraction of the instructions of divisions by arguments.
        let list = |sizes: &[u64]| sizes.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
        let border = format!(
            "  constexpr Border border = {{{{{}}}, {{{}}}, {{{}}}, {{{}}}}};\n",
            list(&y.dims),
            list(before),
            list(&x.dims),
            list(&x.strides)
        );
        let params = [
            param(format!("{}* __restrict__ y", c_type(y.dtype)), Arg::Operand(1)),
            param(format!("const {}* __restrict__ x", c_type(x.dtype)), Arg::Operand(0)),
            u64_param("total", total),
            param(format!("{} value", c_type(compute)), Arg::real(compute, spec.attrs.number("value"))),
        ];
        let text = format!(
            "{}typedef {} E;\ntypedef {} C;\ntypedef {} Place;\ntypedef {} Signed;\n#define V {pack}\n#define RANK {rank}\n{RAGGED}{BORDER}",
            bounds(BLOCK),
            c_type(y.dtype),
            c_type(compute),
            index_type(total + pack * u64::from(BLOCK)),
            if total < 1 << 31 { "i32" } else { "i64" },
        );
        let blocks = total.div_ceil(pack * u64::from(BLOCK)).max(1);
        let combined = match self.has_short_rows() {
            true => SHORT_ROWS,
            false if self.has_whole_packs() => WHOLE_PACKS,
            false => LONG_ROWS,
        };
        launch("pad", &text, &params, &[&border, POSITION, combined].concat(), blocks, BLOCK)
    }
}

/// Kernel text: the sizes of the output, the position of the input in it, and the input's sizes and strides.
const BORDER: &str = "struct Border { u64 dims[RANK], before[RANK], sizes[RANK]; i64 strides[RANK]; };\n";

/// Kernel text: the position of a thread's pack in the output, filled with the value of the border.
const POSITION: &str = r#"  const int LAST = RANK - 1;
  Place first = (Place)GLOBAL_INDEX * V, rest = first, at[RANK];
  if (first >= (Place)total) return;
#pragma unroll
  for (int axis = LAST; axis > 0; axis--) {
    Place next = rest / (Place)border.dims[axis];
    at[axis] = rest - next * (Place)border.dims[axis];
    rest = next;
  }
  at[0] = rest;
  union Words { u32 w[4]; Pack<E, V> elements; __device__ Words() {} } all;
#pragma unroll
  for (int c = 0; c < V; c++) store<C>(all.elements.at[c], value);
"#;

/// Kernel text: reads the pack of the input, unless the pack belongs to the border.
const WHOLE_PACKS: &str = r#"  bool inside = true;
  const E* from = x;
#pragma unroll
  for (int axis = 0; axis < RANK; axis++) {
    // Positions before the input wrap around to large numbers.
    const Place place = at[axis] - (Place)border.before[axis];
    inside = inside && place < (Place)border.sizes[axis];
    from += (i64)place * border.strides[axis];
  }
  if (inside) all.elements = *(const Pack<E, V>*)from;
  store_words(y + first, all.w);
"#;

/// Kernel text: for each row with elements in a pack, reads the aligned packs that contain these elements, shifts them,
/// and combines them with the border by byte masks.
const LONG_ROWS: &str = r#"  const Signed size = (Signed)border.sizes[LAST], length = (Signed)border.dims[LAST];
  // Index in the pack of the row's first element; negative if the row begins before the pack. No row follows the last one.
  Signed begin = -(Signed)at[LAST];
  bool more = true;
  // Range of the row's input elements that the pack holds: `low` to `high`, exclusive.
  struct Part { Held<E> held; int low, high; };
  auto read = [&](Part& part) {
    part.low = part.high = 0;
    if (!more) return;
    bool inside = true;
    const E* from = x;
#pragma unroll
    for (int axis = 0; axis < LAST; axis++) {
      Place place = at[axis] - (Place)border.before[axis];
      inside = inside && place < (Place)border.sizes[axis];
      from += (i64)place * border.strides[axis];
    }
    // Index of the input element that belongs to the pack's first element; it can lie before the row.
    const Signed place = -begin - (Signed)border.before[LAST];
    if (inside && place > -V && place < size) {
      part.low = place < 0 ? (int)-place : 0;
      part.high = size - place < V ? (int)(size - place) : V;
      part.held.shift = (u32)((u64)(from + place) % 16);
      const Pack<u32, 4>* packs = (const Pack<u32, 4>*)((const u8*)(from + place) - part.held.shift);
      const int ahead = (int)part.held.shift;
      if (ahead + part.low * (int)sizeof(E) < 16) part.held.packs[0] = packs[0];
      if (ahead + part.high * (int)sizeof(E) > 16) part.held.packs[1] = packs[1];
    }
    begin += length;
    more = LAST > 0 && begin < V;
    if (!more) return;
    at[LAST] = 0;
    bool ends = true;
#pragma unroll
    for (int axis = LAST - 1; axis >= 0; axis--) {
      at[axis] += ends;
      ends = at[axis] == (Place)border.dims[axis];
      if (ends) at[axis] = 0;
    }
    more = !ends;
  };
  auto join = [&](const Part& part) {
    if (part.low >= part.high) return;
    Words own;
    own.elements = part.held.elements();
#pragma unroll
    for (int w = 0; w < 4; w++) {
      const int left = part.low * (int)sizeof(E) - 4 * w, right = part.high * (int)sizeof(E) - 4 * w;
      const u32 behind = left <= 0 ? ~0u : left >= 4 ? 0 : ~0u << left * 8;
      const u32 before = right >= 4 ? ~0u : right <= 0 ? 0 : ~(~0u << right * 8);
      const u32 mask = behind & before;
      all.w[w] = (all.w[w] & ~mask) | (own.w[w] & mask);
    }
  };
  // Packs of small elements more often hold several rows, so two rows are read at a time.
  const int PARTS = sizeof(E) < 4 ? 2 : 1;
  do {
    Part parts[PARTS];
#pragma unroll
    for (int p = 0; p < PARTS; p++) read(parts[p]);
#pragma unroll
    for (int p = 0; p < PARTS; p++) join(parts[p]);
  } while (more);
  put_row(y, (i64)first, (i64)total, all.elements);
"#;

/// Kernel text: reads the elements of a pack one by one.
const SHORT_ROWS: &str = r#"  const Place size = (Place)border.sizes[LAST], length = (Place)border.dims[LAST], before = (Place)border.before[LAST];
  // The input's row, and whether the output's row has one.
  const E* from;
  bool inside;
  auto find_row = [&]() {
    from = x, inside = true;
#pragma unroll
    for (int axis = 0; axis < LAST; axis++) {
      // Positions before the input wrap around to large numbers.
      const Place place = at[axis] - (Place)border.before[axis];
      inside = inside && place < (Place)border.sizes[axis];
      from += (i64)place * border.strides[axis];
    }
  };
  find_row();
  Place column = at[LAST];
#pragma unroll
  for (int c = 0; c < V; c++, column++) {
    if (LAST > 0 && column == length) {
      column = 0;
      bool ends = true;
#pragma unroll
      for (int axis = LAST - 1; axis >= 0; axis--) {
        at[axis] += ends;
        ends = ends && axis > 0 && at[axis] == (Place)border.dims[axis];
        if (ends) at[axis] = 0;
      }
      find_row();
    }
    if (inside && column - before < size) all.elements.at[c] = from[column - before];
  }
  put_row(y, (i64)first, (i64)total, all.elements);
"#;
