//! `pad`: a tensor with a border.

use crate::base::{DType, Dims};

use super::elementwise::compute_type;
use super::kernel::{BLOCK, bounds, c_type, index_type, source};
use super::occupancy::SECTOR;
use super::walk::{Operand, Task};
use super::*;

/// `pad(x -> y)`, as `torch.nn.functional.pad` with a constant.
pub struct Pad;

/// Bytes of a row of the output from which on each of its parts is written by itself: ends of shorter parts would share too
/// many sectors of memory with others.
const LONG_ROW: u64 = 32 * SECTOR;

/// Elements that are added along each dimension: before, and after.
fn borders(attrs: &Attrs, rank: usize) -> [Vec<u64>; 2] {
    ["before", "after"].map(|name| match attrs.axes(name) {
        Some(sizes) => sizes.iter().map(|&size| size as u64).collect(),
        None => vec![0; rank],
    })
}

impl Operation for Pad {
    fn name(&self) -> &'static str {
        "pad"
    }

    fn summary(&self) -> &'static str {
        "a tensor with a border of one value"
    }

    fn category(&self) -> Category {
        Category::Movement
    }

    fn signature(&self) -> &'static Signature {
        const {
            &Signature {
                inputs: &[Input::Tensor("x")],
                outputs: &["y"],
                options: &[
                    OptionSpec {
                        name: "before",
                        kind: OptionType::Sizes,
                        default: Preset::Absent,
                        doc: "elements to add before the first one of each dimension; none where it is absent",
                    },
                    OptionSpec {
                        name: "after",
                        kind: OptionType::Sizes,
                        default: Preset::Absent,
                        doc: "elements to add behind the last one of each dimension; none where it is absent",
                    },
                    OptionSpec::number("value", 0.0, "what the border holds"),
                ],
            }
        }
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        call.needs_device()?;
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
                return Err(call.bad_option(name, "each number has to lie between 0 and 2^40".to_owned(), help));
            }
        }
        let [before, after] = borders(call.attrs, rank);
        let sizes: Vec<u64> = (0..rank).map(|axis| x.dims[axis] + before[axis] + after[axis]).collect();
        let dims = Dims::from_slice(&sizes).expect("as many as the input has");
        Ok(vec![call.output(0, x.dtype, dims)?])
    }

    fn cost(&self, spec: &Spec) -> Cost {
        spec.streaming_cost(0.0, u64::from(BLOCK) * 4)
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

    /// One kernel copies the input and fills slabs around it. The slabs of a dimension have the input's place in the
    /// dimensions before it, and all of those behind it. Short rows are written one behind the other.
    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        let (x, whole) = (&spec.inputs[0], &spec.outputs[0]);
        let row = whole.dims.last().map_or(0, |length| length * whole.dtype.size());
        if (1..LONG_ROW).contains(&row) && whole.contiguous() && whole.align >= 16 {
            return vec![in_packs(spec)];
        }
        let rank = x.dims.len();
        let [before, after] = borders(&spec.attrs, rank);
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

/// The kernel for an output without gaps: each thread writes a pack of 16 bytes, whose elements may be those of several rows.
fn in_packs(spec: &Spec) -> Launch {
    let (x, y) = (&spec.inputs[0], &spec.outputs[0]);
    let rank = x.dims.len();
    let (total, pack) = (y.elements(), 16 / y.dtype.size());
    let [before, _] = borders(&spec.attrs, rank);
    let compute = compute_type(spec);
    let params = [
        format!("{}* __restrict__ y", c_type(y.dtype)),
        format!("const {}* __restrict__ x", c_type(x.dtype)),
        "const Border border".to_owned(),
        "u64 total".to_owned(),
        format!("{} value", c_type(compute)),
    ];
    let text = format!(
        "{}typedef {} E;\ntypedef {} C;\ntypedef {} Place;\n#define V {pack}\n#define RANK {rank}\n{BORDER}",
        bounds(BLOCK),
        c_type(y.dtype),
        c_type(compute),
        index_type(total + pack * u64::from(BLOCK)),
    );
    let border = [&*y.dims, &before, &*x.dims, &*x.strides].concat();
    Launch::Kernel(Kernel {
        source: source("pad", &text, &params, IN_PACKS),
        grid: Kernel::along_x(total.div_ceil(pack * u64::from(BLOCK)).max(1)),
        block: Kernel::along_x(BLOCK),
        shared: Shared::Bytes(0),
        args: vec![
            Arg::Operand(1),
            Arg::Operand(0),
            Arg::Words(border),
            Arg::U64(total),
            Arg::real(compute, spec.attrs.number("value")),
        ],
    })
}

/// The sizes of the output, the place of the input in it, and the input's sizes and strides.
const BORDER: &str = "struct Border { u64 dims[RANK], before[RANK], sizes[RANK]; i64 strides[RANK]; };\n";

const IN_PACKS: &str = r#"  const int LAST = RANK - 1;
  Place first = (Place)GLOBAL_INDEX * V, rest = first, at[RANK];
  if (first >= (Place)total) return;
#pragma unroll
  for (int axis = LAST; axis > 0; axis--) {
    Place next = rest / (Place)border.dims[axis];
    at[axis] = rest - next * (Place)border.dims[axis];
    rest = next;
  }
  at[0] = rest;
  // Whether the row has elements of the input, and where they begin. Behind the last row there is none.
  bool inside;
  const E* from;
  auto enter = [&]() {
    inside = true;
    from = x;
#pragma unroll
    for (int axis = 0; axis < LAST; axis++) {
      Place own = at[axis] - (Place)border.before[axis];
      inside = inside && own < (Place)border.sizes[axis];
      from += (i64)own * border.strides[axis];
    }
  };
  enter();
  E edge;
  store<C>(edge, value);
  Pack<E, V> v;
  // A pack of one row that has none of its input.
  Place end = at[LAST] + V, behind = (Place)(border.before[LAST] + border.sizes[LAST]);
  bool outside = !inside || end <= (Place)border.before[LAST] || at[LAST] >= behind;
  if (outside && end <= (Place)border.dims[LAST]) {
#pragma unroll
    for (int c = 0; c < V; c++) v.at[c] = edge;
  } else {
#pragma unroll
    for (int c = 0; c < V; c++) {
      Place own = at[LAST] - (Place)border.before[LAST];
      v.at[c] = edge;
      if (inside && own < (Place)border.sizes[LAST]) v.at[c] = from[(i64)own * border.strides[LAST]];
      at[LAST]++;
      if (LAST > 0 && at[LAST] == (Place)border.dims[LAST]) {
#pragma unroll
        for (int axis = LAST; axis > 0; axis--) {
          bool ends = at[axis] == (Place)border.dims[axis];
          if (ends) at[axis] = 0;
          at[axis - 1] += ends;
        }
        enter();
      }
    }
  }
  if (first + V <= (Place)total) {
    *(Pack<E, V>*)(y + first) = v;
    return;
  }
#pragma unroll
  for (int c = 0; c < V; c++) if (first + c < (Place)total) y[first + c] = v.at[c];
"#;
