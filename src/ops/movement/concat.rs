//! `concat`: concatenates tensors along a dimension.

use crate::ops::call::axis;
use crate::ops::kernels::kernel::{BLOCK, Parameter, bounds, c_type, index_type, launch, param, u64_param};
use crate::ops::kernels::occupancy::{BUSY_BLOCKS, UNITS};
use crate::ops::kernels::ragged::RAGGED;
use crate::ops::kernels::row_groups::RowGroups;
use crate::ops::kernels::walk::{self, Operand, Task};
use crate::ops::*;

/// `concat(x, … -> y)`, as `torch.cat`.
pub struct Concat;

/// Index of the dimension along which tensors are concatenated.
fn along(spec: &Spec) -> usize {
    axis::of(&spec.attrs, spec.outputs[0].dims.len())
}

impl Operation for Concat {
    signature! {
        name: "concat",
        summary: "concatenates tensors along a dimension",
        category: Category::Movement,
        inputs: &[Input::Tensors("x")],
        outputs: &["y"],
        options: &[axis::option(0, "the dimension to concatenate along; -1 is the last")],
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
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
        let spec = &widened(spec);
        if let Some(tiles) = Tiles::of(spec) {
            let elements = spec.outputs[0].elements();
            let instructions = PER_ELEMENT * elements as f64;
            return Cost { instructions, ..spec.streaming_cost(0.0, tiles.rows * tiles.row) };
        }
        if let Some(groups) = row_groups(spec) {
            let blocks = groups.iter().map(RowGroups::threads).sum::<u64>().div_ceil(u64::from(BLOCK)).max(1);
            let instructions = groups.iter().map(RowGroups::instructions).sum();
            return Cost { instructions, blocks, ..spec.streaming_cost(0.0, 1) };
        }
        if is_in_packs(spec) {
            let packs = spec.outputs[0].bytes().div_ceil(16);
            let instructions = (PER_PACK + PER_INPUT * spec.inputs.len() as f64) * packs as f64;
            return Cost { instructions, ..spec.streaming_cost(0.0, pack(spec) * pack_threads(packs)) };
        }
        let walk::Work { sectors, instructions, .. } = walk::work(&tasks(spec, &Expression::identity()));
        Cost { sectors, instructions, ..spec.streaming_cost(0.0, u64::from(BLOCK) * 4) }
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
        let spec = &widened(spec);
        if let Some(tiles) = Tiles::of(spec) {
            return vec![tiles.launch(spec)];
        }
        if let Some(groups) = row_groups(spec) {
            return vec![in_rows(spec, &groups)];
        }
        if is_in_packs(spec) {
            return vec![in_packs(spec)];
        }
        walk::launches("concat", &tasks(spec, &Expression::identity()), DType::F32)
    }

    fn backward(&self, rule: &mut Backward) -> Result<(), NoRule> {
        backward::concat(rule, along(rule.spec))
    }
}

/// Returns the elementwise copies of the inputs to their parts of the output.
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

/// Number of rows that all tensors have, and number of elements of an output row. An output row consists of one row of
/// each input.
fn rows(spec: &Spec) -> (u64, u64) {
    let (axis, y) = (along(spec), &spec.outputs[0]);
    (y.dims[..axis].iter().product(), y.dims[axis..].iter().product())
}

/// True if all tensors are contiguous, aligned device memory, and there are not more than [`MAX_INPUTS`] inputs.
fn is_flat(spec: &Spec) -> bool {
    let is_flat = |tensor: &Tensor| tensor.contiguous() && tensor.align >= 16 && tensor.space == Space::Device;
    spec.inputs.len() <= MAX_INPUTS && spec.inputs.iter().chain(&spec.outputs).all(is_flat)
}

/// True if rows of each input are a whole number of pieces of this many bytes.
fn is_whole(spec: &Spec, bytes: u64) -> bool {
    let (all, _) = rows(spec);
    spec.inputs.iter().all(|x| (x.bytes() / all.max(1)).is_multiple_of(bytes))
}

/// Returns the operation with the largest elements that divide the rows of all inputs, if all tensors are flat. Larger elements take fewer
/// instructions.
fn widened(spec: &Spec) -> Spec {
    let (axis, (all, _)) = (along(spec), rows(spec));
    let mut wide = spec.clone();
    let bytes_of_row = |tensor: &Tensor| tensor.bytes() / all.max(1);
    let is_wider = |dtype: &DType| is_flat(spec) && dtype.size() > spec.outputs[0].dtype.size();
    let Some(dtype) = layout::moved_type(spec.inputs.iter().map(bytes_of_row)).filter(is_wider) else { return wide };
    for tensor in wide.inputs.iter_mut().chain(&mut wide.outputs) {
        let row = bytes_of_row(tensor) / dtype.size();
        tensor.dims.set(axis, row);
        (axis + 1..tensor.dims.len()).for_each(|inner| tensor.dims.set(inner, 1));
        *tensor = Tensor { dtype, strides: tensor.dims.contiguous_strides(), ..*tensor };
    }
    wide
}

/// Number of elements in 16 bytes, which a thread writes at once.
fn pack(spec: &Spec) -> u64 {
    16 / spec.outputs[0].dtype.size()
}

/// Number of threads of a block that writes packs. It is smaller if there are few packs, so that they use all SMs.
fn pack_threads(packs: u64) -> u64 {
    packs.div_ceil(UNITS).next_power_of_two().clamp(64, u64::from(BLOCK))
}

/// Instructions per pack that a thread writes.
const PER_PACK: f64 = 90.0;
/// Instructions per pack and input for finding the input.
const PER_INPUT: f64 = 4.0;

/// Minimum number of packs of an output that is written in packs. A thread for a single element takes fewer
/// instructions, which determine the time of a small output.
const MIN_PACKS: u64 = 4096;

/// True if threads write packs of 16 bytes of the output, with elements of any inputs, because elementwise copies of
/// each input would write smaller packs: rows are not whole packs, or all inputs are small.
fn is_in_packs(spec: &Spec) -> bool {
    let (_, row) = rows(spec);
    let is_small = |x: &Tensor| x.elements() < walk::ENOUGH_BLOCKS * u64::from(BLOCK) * pack(spec);
    spec.outputs[0].elements() >= MIN_PACKS * pack(spec)
        && row >= pack(spec)
        && is_flat(spec)
        && (!is_whole(spec, 16) || spec.inputs.iter().all(is_small))
}

/// Returns the division of each input's rows among groups of threads, if all rows are long enough for groups. The groups of all inputs have
/// equal numbers of threads, and of packs of each.
fn row_groups(spec: &Spec) -> Option<Vec<RowGroups>> {
    let (all, _) = rows(spec);
    if !is_in_packs(spec) || is_whole(spec, 16) {
        return None;
    }
    let lengths = || spec.inputs.iter().map(|x| x.elements() / all.max(1));
    let longest = RowGroups::of(all * spec.inputs.len() as u64, lengths().max()?, pack(spec))?;
    lengths().map(|length| longest.with(all, length)).collect()
}

/// Returns the kernel in which groups of threads copy rows of the inputs.
fn in_rows(spec: &Spec, groups: &[RowGroups]) -> Launch {
    let (_, row) = rows(spec);
    let y = &spec.outputs[0];
    let mut params: Vec<Parameter> = vec![param("E* __restrict__ y", Arg::Operand(spec.inputs.len() as u8))];
    // The first group of an input, and the first element of its rows in a row of the output.
    let (mut choices, mut begin, mut from) = (String::new(), 0, 0);
    for (number, own) in groups.iter().enumerate() {
        params.push(param(format!("const E* __restrict__ x{number}"), Arg::Operand(number as u8)));
        let (end, length) = (begin + own.groups(), own.length());
        choices += &format!(
            "  {} (group < {end}) {{\n    const Place row = (group - {begin}) / {chunks};\n    chunk = (u32)(group - {begin} - row * {chunks});\n    \
             to += (u64)row * {row}ull + {from}ull;\n    from = x{number} + (u64)row * {length}ull;\n    n = {length}u;\n  }}\n",
            if number > 0 { "else if" } else { "if" },
            chunks = own.chunks(),
        );
        (begin, from) = (end, from + length);
    }
    let threads = groups.iter().map(RowGroups::threads).sum::<u64>();
    let before = format!("typedef {} E;\n{}", c_type(y.dtype), groups[0].text(threads));
    let body = format!(
        "  const Place group = (Place)(GLOBAL_INDEX / LANES);\n  E* to = y;\n  const E* from = x0;\n  u32 n = 0, chunk = 0;\n{choices}  else return;\n  \
         copy_row(to, from, true, n, chunk, threadIdx.x % LANES);\n"
    );
    launch("concat_rows", &before, &params, &body, threads.div_ceil(u64::from(BLOCK)).max(1), BLOCK)
}

/// Returns the kernel whose threads write packs. A thread loads the aligned packs of an input that contain its
/// elements, and continues with the next input or the next row until its pack is full.
fn in_packs(spec: &Spec) -> Launch {
    let (all, row) = rows(spec);
    let y = &spec.outputs[0];
    let total = y.elements();
    let packs = total.div_ceil(pack(spec));
    let threads = pack_threads(packs);
    let mut params: Vec<Parameter> =
        vec![param("E* __restrict__ y", Arg::Operand(spec.inputs.len() as u8)), u64_param("total", total)];
    let (mut choices, mut from) = (String::new(), 0);
    for (number, x) in spec.inputs.iter().enumerate() {
        let own = x.elements() / all;
        params.push(param(format!("const E* __restrict__ x{number}"), Arg::Operand(number as u8)));
        choices += &format!(
            "    if (column >= (Place){from}ull) {{ x = x{number}; own = (Place){own}ull; from = (Place){from}ull; }}\n"
        );
        from += own;
    }
    let before = format!(
        "{}typedef {} E;\ntypedef {} Place;\n#define V {}\n#define WHOLE {}\n{RAGGED}",
        bounds(threads as u32),
        c_type(y.dtype),
        index_type(total + pack(spec) * threads),
        pack(spec),
        u32::from(is_whole(spec, 16)),
    );
    let body = format!(
        r#"  const Place first = (Place)GLOBAL_INDEX * V;
  if (first >= (Place)total) return;
  const Place length = (Place){row}ull;
  Place row = first / length, column = first - row * length;
  Pack<E, V> all = {{}};
  for (int done = 0; done < V && first + done < (Place)total;) {{
    const E* x = x0;
    Place own = 0, from = 0;
{choices}    if (WHOLE) {{
      all = *(const Pack<E, V>*)(x + (u64)row * own + (column - from));
      break;
    }}
    const Pack<E, V> part = fetch_row(x + (u64)row * own, (i64)(column - from) - done, (i64)own);
#pragma unroll
    for (int c = 0; c < V; c++) if (c >= done) all.at[c] = part.at[c];
    const Place left = from + own - column;
    if (left >= V) break;
    done += (int)left;
    column += left;
    if (column == length) {{
      column = 0;
      row++;
    }}
  }}
  put_row(y, (i64)first, (i64)total, all);
"#
    );
    launch("concat_packs", &before, &params, &body, packs.div_ceil(threads), threads as u32)
}

/// Maximum size of a tile in shared memory, in bytes.
const TILE: u64 = 16 << 10;

/// Granularity of a tile in rows: 16 rows of any input are a whole number of packs of 16 bytes.
const ROWS: u64 = 16;

/// Maximum number of inputs of the kernels that compare each position with the start of every input.
const MAX_INPUTS: usize = 32;

/// Instructions per element: finding the next column, and an access to shared memory, which counts as four.
const PER_ELEMENT: f64 = 8.0;

/// Division of rows into tiles, in which a block joins the rows of all inputs in shared memory. For inputs whose rows
/// are no whole number of packs.
struct Tiles {
    /// Number of rows, which all tensors have.
    all: u64,
    /// Number of rows of a tile.
    rows: u64,
    /// Number of elements of an output row.
    row: u64,
}

impl Tiles {
    /// Returns the division. `None` if rows are long; if they are too few for a tile on each SM, unless packs would be written otherwise and a
    /// thread has at most one of a tile; if rows of each input are whole packs; or if the tensors are not flat.
    fn of(spec: &Spec) -> Option<Tiles> {
        let (all, row) = rows(spec);
        let size = spec.outputs[0].dtype.size();
        if row == 0 || row * size * ROWS > TILE || !is_flat(spec) || is_whole(spec, 16) {
            return None;
        }
        // A thread that writes packs loads the parts of short rows one after the other, but those of a tile at once.
        let is_loaded_at_once = row * size * ROWS <= 16 * u64::from(BLOCK);
        if all.div_ceil(ROWS) < UNITS && !(is_loaded_at_once && is_in_packs(spec)) {
            return None;
        }
        let fitting = TILE / (row * size) / ROWS;
        let spread = all.div_ceil(BUSY_BLOCKS * ROWS);
        Some(Tiles { all, rows: ROWS * fitting.min(spread).max(1), row })
    }

    /// Returns the kernel: a block loads its rows of each input in packs, and stores them joined.
    fn launch(&self, spec: &Spec) -> Launch {
        let Tiles { all, rows, row } = *self;
        let y = &spec.outputs[0];
        let (element, size, pack) = (c_type(y.dtype), y.dtype.size(), 16 / y.dtype.size());
        // Rows of whole packs would all begin in a few banks of shared memory.
        let word = size.max(4);
        let pitch = if (row * size).is_multiple_of(16) { row + word / size } else { row };
        let stored = match pitch > row {
            true => format!(
                "    const u32 r = i / {};\n    const Word* from = (const Word*)(tile + r * {pitch} + (i * {pack} - r * {row}));\n    \
                 union {{ Word words[{}]; Packed pack; }} all;\n#pragma unroll\n    for (u32 k = 0; k < {}; k++) all.words[k] = from[k];\n    \
                 ((Packed*)y0)[i] = all.pack;\n",
                row / pack,
                16 / word,
                16 / word
            ),
            false => "    ((Packed*)y0)[i] = packs[i];\n".to_owned(),
        };
        let mut params = vec![
            param(format!("{element}* __restrict__ y"), Arg::Operand(spec.inputs.len() as u8)),
            u64_param("all", all),
        ];
        // Packs of a tile are numbered over all inputs, so that one loop loads them.
        let (mut choices, mut from, mut packs) = (String::new(), 0, 0);
        for (number, x) in spec.inputs.iter().enumerate() {
            let own = x.elements() / all;
            params.push(param(format!("const {element}* __restrict__ x{number}"), Arg::Operand(number as u8)));
            choices +=
                &format!("    if (p >= {packs}) {{ x = x{number}; own = {own}; from = {from}; before = {packs}; }}\n");
            from += own;
            packs += rows * own / pack;
        }
        let word = if word > 4 { "u64" } else { "u32" };
        let before =
            format!("{}typedef {element} E;\ntypedef {word} Word;\ntypedef Pack<E, {pack}> Packed;\n", bounds(BLOCK));
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
    u32 to = row * {pitch} + from + column;
#pragma unroll
    for (u32 v = 0; v < {pack}; v++) {{
      if (i + v < elements) tile[to] = held.at[v];
      to++;
      if (++column == own) {{
        column = 0;
        to += {pitch} - own;
      }}
    }}
  }}
  __syncthreads();
  E* y0 = y + first * {row};
  const u32 elements = live * {row};
  for (u32 i = threadIdx.x; i * {pack} < elements; i += {BLOCK}) {{
    if ((i + 1) * {pack} <= elements) {{
{stored}    }} else {{
      for (u32 v = i * {pack}; v < elements; v++) y0[v] = tile[v];
    }}
  }}
"#,
            shared = (rows * pitch).div_ceil(pack),
        );
        launch("concat_tiled", &before, &params, &body, all.div_ceil(rows), BLOCK)
    }
}
