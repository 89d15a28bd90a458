//! `concat`: concatenates tensors along a dimension.

use super::kernel::{BLOCK, bounds, c_type, launch, param, u64_param};
use super::occupancy::BUSY_BLOCKS;
use super::walk::{Operand, Task};
use super::*;

/// `concat(x, … -> y)`, as `torch.cat`.
pub struct Concat;

/// Dimension of the concatenation.
fn along(spec: &Spec) -> usize {
    axis::of(&spec.attrs, spec.outputs[0].dims.len())
}

impl Operation for Concat {
    fn signature(&self) -> &'static Signature {
        const {
            &Signature {
                name: "concat",
                summary: "concatenates tensors along a dimension",
                category: Category::Movement,
                inputs: &[Input::Tensors("x")],
                outputs: &["y"],
                options: &[axis::option(0, "the dimension to concatenate along; -1 is the last")],
            }
        }
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        call.needs_device()?;
        call.needs_rank(0, 1, "to put others behind it")?;
        let first = &call.inputs[0].tensor;
        let rank = first.dims.len();
        let axis = call.axis(first.dims)?;
        let mut dims = first.dims;
        for (index, input) in call.inputs.iter().enumerate().skip(1) {
            let other = &input.tensor;
            let same = other.dtype == first.dtype
                && other.dims.len() == rank
                && (0..rank).all(|each| each == axis || other.dims[each] == first.dims[each]);
            if !same {
                return Err(call.differs(
                    0,
                    format!("this is {first}"),
                    index,
                    format!("this is {other}"),
                    &format!(
                        "tensors that are joined along dimension {axis} have one type, and equal sizes in all other dimensions"
                    ),
                ));
            }
            dims.set(axis, dims[axis].saturating_add(other.dims[axis]));
        }
        Ok(vec![call.output(0, first.dtype, dims)?])
    }

    fn cost(&self, spec: &Spec) -> Cost {
        if let Some(tiles) = Tiles::of(spec) {
            let elements = spec.outputs[0].elements();
            let instructions = PER_ELEMENT * elements as f64;
            return Cost { instructions, ..spec.streaming_cost(0.0, tiles.rows * tiles.row) };
        }
        let sectors = walk::sectors(&tasks(spec, &Expression::identity()));
        Cost { sectors, ..spec.streaming_cost(0.0, u64::from(BLOCK) * 4) }
    }

    fn reference(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        let axis = along(spec);
        let length = |tensor: &Tensor| tensor.dims[axis..].iter().product::<u64>() as usize;
        let row = length(&spec.outputs[0]);
        let mut from = 0;
        for (tensor, input) in spec.inputs.iter().zip(inputs) {
            let own = length(tensor);
            for (to, part) in outputs[0].chunks_mut(row).zip(input.chunks(own)) {
                to[from..from + own].copy_from_slice(part);
            }
            from += own;
        }
    }

    fn pieces(&self, spec: &Spec) -> Option<Pieces> {
        (along(spec) > 0).then(|| Pieces::Rows(vec![true; spec.inputs.len()]))
    }

    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        if let Some(tiles) = Tiles::of(spec) {
            return vec![tiles.launch(spec)];
        }
        walk::launches("concat", &tasks(spec, &Expression::identity()), DType::F32)
    }

    fn backward(&self, rule: &mut Backward) -> Result<(), NoRule> {
        backward::concat(rule, along(rule.spec))
    }
}

/// The copies of the inputs to their places in the output.
fn tasks<'a>(spec: &Spec, identity: &'a Expression) -> Vec<Task<'a>> {
    let (axis, whole) = (along(spec), &spec.outputs[0]);
    let mut from = 0;
    spec.inputs
        .iter()
        .enumerate()
        .map(|(place, x)| {
            let y = Operand::of(spec.inputs.len(), whole, whole.strides).cut(axis, from, x.dims[axis]);
            from += x.dims[axis];
            let inputs = vec![Operand::of(place, x, x.strides)];
            Task { expression: identity, dims: x.dims, outputs: vec![y], inputs }
        })
        .collect()
}

/// Maximum size in bytes of a tile in shared memory.
const TILE: u64 = 16 << 10;

/// Granularity of a tile in rows. 16 rows of any input are a whole number of 16-byte packs.
const ROWS: u64 = 16;

/// Maximum number of inputs of the kernel, which compares each pack's number with the first pack of every input.
const MAX_INPUTS: usize = 32;

/// Instructions per element: a step to the next column, and an access of shared memory, which counts as four.
const PER_ELEMENT: f64 = 8.0;

/// Division of rows into tiles that a block joins in shared memory, because an input's part of a row is not a whole number of
/// packs.
struct Tiles {
    /// Number of rows of all tensors, and of a tile.
    all: u64,
    rows: u64,
    /// Number of elements of an output row.
    row: u64,
}

impl Tiles {
    /// Returns the division into tiles. `None` if every input's part of a row is a whole number of packs, if rows are few or long,
    /// if there are more than [`MAX_INPUTS`] inputs, or if a tensor is not contiguous, aligned device memory.
    fn of(spec: &Spec) -> Option<Tiles> {
        let (axis, y) = (along(spec), &spec.outputs[0]);
        let size = y.dtype.size();
        let length = |tensor: &Tensor| tensor.dims[axis..].iter().product::<u64>();
        let all: u64 = y.dims[..axis].iter().product();
        let row = length(y);
        let is_flat = |tensor: &Tensor| tensor.contiguous() && tensor.align >= 16 && tensor.space == Space::Device;
        let is_whole = |tensor: &Tensor| (length(tensor) * size).is_multiple_of(16);
        if all < ROWS
            || row == 0
            || row * size * ROWS > TILE
            || spec.inputs.len() > MAX_INPUTS
            || spec.inputs.iter().all(is_whole)
            || !spec.inputs.iter().chain(&spec.outputs).all(is_flat)
        {
            return None;
        }
        let fitting = TILE / (row * size) / ROWS;
        let spread = all.div_ceil(BUSY_BLOCKS * ROWS);
        Some(Tiles { all, rows: ROWS * fitting.min(spread).max(1), row })
    }

    /// Returns the kernel: a block reads its rows of each input in packs, and writes them joined.
    fn launch(&self, spec: &Spec) -> Launch {
        let Tiles { all, rows, row } = *self;
        let y = &spec.outputs[0];
        let (element, pack) = (c_type(y.dtype), 16 / y.dtype.size());
        let mut params = vec![
            param(format!("{element}* __restrict__ y"), Arg::Operand(spec.inputs.len() as u8)),
            u64_param("all", all),
        ];
        // Packs of a tile are numbered through all inputs, so that there is one loop instead of one for each.
        let (mut choices, mut from, mut packs) = (String::new(), 0, 0);
        for (number, x) in spec.inputs.iter().enumerate() {
            let own = x.elements() / all;
            params.push(param(format!("const {element}* __restrict__ x{number}"), Arg::Operand(number as u8)));
            choices +=
                &format!("    if (p >= {packs}) {{ x = x{number}; own = {own}; from = {from}; before = {packs}; }}\n");
            from += own;
            packs += rows * own / pack;
        }
        let before = format!("{}typedef {element} E;\ntypedef Pack<E, {pack}> Packed;\n", bounds(BLOCK));
        let body = format!(
            r#"  __shared__ Packed packs[{shared}];
  E* tile = packs[0].at;
  const u64 first = (u64)blockIdx.x * {rows};
  const u32 live = (u32)(all - first < {rows} ? all - first : {rows});
  for (u32 p = threadIdx.x; p < {packs}; p += {BLOCK}) {{
    const E* x = x0;
    u32 own = 0, from = 0, before = 0;
{choices}    const u32 elements = live * own;
    u32 i = (p - before) * {pack}, row = i / own, column = i - row * own;
    if (i >= elements) continue;
    x += first * own + i;
    Packed held;
    if (i + {pack} <= elements) {{
      held = *(const Packed*)x;
    }} else {{
#pragma unroll
      for (u32 v = 0; v < {pack}; v++) if (i + v < elements) held.at[v] = x[v];
    }}
    u32 to = row * {row} + from + column;
#pragma unroll
    for (u32 v = 0; v < {pack}; v++) {{
      if (i + v < elements) tile[to] = held.at[v];
      to++;
      if (++column == own) {{
        column = 0;
        to += {row} - own;
      }}
    }}
  }}
  __syncthreads();
  E* y0 = y + first * {row};
  const u32 elements = live * {row};
  for (u32 i = threadIdx.x; i * {pack} < elements; i += {BLOCK}) {{
    if ((i + 1) * {pack} <= elements) {{
      ((Packed*)y0)[i] = packs[i];
    }} else {{
      for (u32 v = i * {pack}; v < elements; v++) y0[v] = tile[v];
    }}
  }}
"#,
            shared = (rows * row).div_ceil(pack),
        );
        launch("concat_tiled", &before, &params, &body, all.div_ceil(rows), BLOCK)
    }
}
