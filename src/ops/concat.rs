//! `concat`: concatenates tensors along a dimension.

use crate::base::{DType, Dims};

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
            let instructions = OF_AN_ELEMENT * elements as f64;
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

/// Number of rows of which a tile has a multiple, so that its part of each input is whole packs.
const ROWS: u64 = 16;

/// Maximum number of inputs of a kernel that has a loop for each.
const MOST_INPUTS: usize = 32;

/// Instructions per element: half of a division by a constant, and an access of shared memory, which counts as four.
const OF_AN_ELEMENT: f64 = 8.0;

/// Rows that are joined in shared memory, because parts of rows are no whole packs.
struct Tiles {
    /// Number of rows of all tensors, and of a tile.
    all: u64,
    rows: u64,
    /// Number of elements of an output row.
    row: u64,
}

impl Tiles {
    /// Returns the tiles; `None` if parts of rows are whole packs, or rows are long or not contiguous.
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
            || spec.inputs.len() > MOST_INPUTS
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
        let mut reads = String::new();
        let mut from = 0;
        for (number, x) in spec.inputs.iter().enumerate() {
            let own = x.elements() / all;
            params.push(param(format!("const {element}* __restrict__ x{number}"), Arg::Operand(number as u8)));
            reads += &format!("  take<{own}, {from}>(tile, x{number} + first * {own}, live);\n");
            from += own;
        }
        let before = format!(
            r#"{bounds}typedef {element} E;
typedef Pack<E, {pack}> Packed;
// Reads `rows` rows of `OWN` elements, and puts them behind the first `FROM` elements of the rows of the tile.
template <u32 OWN, u32 FROM> __device__ inline void take(E* tile, const E* x, u32 rows) {{
  const u32 all = rows * OWN;
#pragma unroll 4
  for (u32 i = threadIdx.x * {pack}; i < all; i += {BLOCK} * {pack}) {{
    Packed p;
    if (i + {pack} <= all) {{
      p = *(const Packed*)(x + i);
    }} else {{
      for (u32 v = 0; v < {pack} && i + v < all; v++) p.at[v] = x[i + v];
    }}
    u32 row = i / OWN, column = i - row * OWN;
#pragma unroll
    for (u32 v = 0; v < {pack}; v++) {{
      if (i + v < all) tile[row * {row} + FROM + column] = p.at[v];
      if (++column == OWN) {{ column = 0; row++; }}
    }}
  }}
}}
"#,
            bounds = bounds(BLOCK),
        );
        let body = format!(
            r#"  __shared__ Packed packs[{shared}];
  E* tile = packs[0].at;
  const u64 first = (u64)blockIdx.x * {rows};
  const u32 live = (u32)(all - first < {rows} ? all - first : {rows});
{reads}  __syncthreads();
  E* to = y + first * {row};
  const u32 elements = live * {row};
  for (u32 i = threadIdx.x; i * {pack} < elements; i += {BLOCK}) {{
    if ((i + 1) * {pack} <= elements) {{
      ((Packed*)to)[i] = packs[i];
    }} else {{
      for (u32 v = i * {pack}; v < elements; v++) to[v] = tile[v];
    }}
  }}
"#,
            shared = (rows * row).div_ceil(pack),
        );
        launch("concat_tiled", &before, &params, &body, all.div_ceil(rows), BLOCK)
    }
}
