//! `rope`: rotary position embedding.

use super::{compare, cost_with, evaluate};
use crate::ops::expression::formula::formula;
use crate::ops::kernels::kernel::{
    BLOCK, bounds, c_type, compute_type, geometry_param, index_type, launch, param, u64_param,
};
use crate::ops::kernels::occupancy::SECTOR;
use crate::ops::kernels::walk::{self, Operand, Task};
use crate::ops::layout::{broadcast, broadcast_strides, collapse};
use crate::ops::*;

/// `rope(x, cos, sin -> y)`: pairs of elements from both halves of a row are rotated by an angle (Su et al., "RoFormer",
/// 2021; the halves as in GPT-NeoX and Llama: `x * cos + rotate_half(x) * sin`).
pub struct Rope;

/// The rotated pair, as an expression of both halves of a row and the cosine and sine of the angle.
fn expression() -> Expression {
    formula(|[first, second, cos, sin]| {
        let (a, b) = (first * cos, second * sin);
        let (c, d) = (second * cos, first * sin);
        [a - b, c + d]
    })
}

/// Dimensions of half a tensor's rows.
fn half(dims: Dims) -> Dims {
    let (mut half, last) = (dims, dims.len() - 1);
    half.set(last, dims[last] / 2);
    half
}

/// Returns the spec with each half of the rows as an operand.
fn in_halves(spec: &Spec) -> Spec {
    let of = |tensor: &Tensor| Tensor { dims: half(tensor.dims), ..*tensor };
    let [x, cos, sin] = [0, 1, 2].map(|input| spec.inputs[input]);
    Spec { inputs: vec![of(&x), of(&x), cos, sin], outputs: vec![of(&spec.outputs[0]); 2], ..spec.clone() }
}

/// The kernel's task: both halves of each row are operands, in the input and in the output.
fn task<'a>(expression: &'a Expression, spec: &Spec) -> Task<'a> {
    let (x, y) = (&spec.inputs[0], &spec.outputs[0]);
    let (last, dims) = (x.dims.len() - 1, half(x.dims));
    let both = |operand: Operand| [0, dims[last]].map(|from| operand.cut(last, from, dims[last]));
    let angles = |input: usize| Operand::of(input, &spec.inputs[input], broadcast_strides(&spec.inputs[input], dims));
    Task {
        expression,
        dims,
        outputs: both(Operand::of(3, y, y.strides)).to_vec(),
        inputs: [both(Operand::of(0, x, x.strides)), [angles(1), angles(2)]].concat(),
    }
}

/// The first and the second half of each row.
fn halves(values: &[f64], row: usize) -> [Vec<f64>; 2] {
    let rows = || values.chunks(row);
    [
        rows().flat_map(|row| &row[..row.len() / 2]).copied().collect(),
        rows().flat_map(|row| &row[row.len() / 2..]).copied().collect(),
    ]
}

fn row(spec: &Spec) -> usize {
    spec.outputs[0].dims.last().copied().unwrap_or(1) as usize
}

impl Operation for Rope {
    signature! {
        name: "rope",
        summary: "rotary position embedding in the rotate-half form of GPT-NeoX and Llama",
        category: Category::Elementwise,
        inputs: &[Input::Tensor("x"), Input::Tensor("cos"), Input::Tensor("sin")],
        outputs: &["y"],
        options: &[],
    }

    fn properties(&self) -> &'static [Property] {
        &[Property::InPlace]
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        call.needs_rank(0, 1, "whose last is rotated")?;
        for input in call.inputs {
            call.needs_float(input, "floating-point types")?;
        }
        let x = &call.inputs[0];
        let (dims, last) = (x.tensor.dims, x.tensor.dims.len() - 1);
        if dims[last] % 2 != 0 {
            return Err(call.bad_shape(x, "an even last dimension, whose halves are rotated with each other"));
        }
        for (index, angles) in call.inputs.iter().enumerate().skip(1) {
            if broadcast(half(dims), angles.tensor.dims) != Some(half(dims)) {
                return Err(call.differs(
                    0,
                    format!("this is {}", x.tensor),
                    index,
                    format!("this is {}", angles.tensor),
                    &format!(
                        "`cos` and `sin` hold an angle for each pair of elements: their shapes have to broadcast to {}",
                        half(dims)
                    ),
                ));
            }
        }
        let dtype = call.given_dtype(0).unwrap_or(x.tensor.dtype);
        Ok(vec![call.output(0, dtype, dims)?])
    }

    fn cost(&self, spec: &Spec) -> Cost {
        match Staged::of(spec) {
            Some(staged) => staged.cost(spec),
            None => {
                let expression = expression();
                cost_with(&expression, &in_halves(spec), walk::work(&[task(&expression, spec)]))
            }
        }
    }

    fn reference(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        let [first, second] = halves(inputs[0], row(spec));
        let mut results = vec![vec![0.0; first.len()]; 2];
        evaluate(&expression(), &in_halves(spec), &[&first, &second, inputs[1], inputs[2]], &mut results);
        let half = row(spec) / 2;
        for (index, row) in outputs[0].chunks_mut(2 * half).enumerate() {
            row[..half].copy_from_slice(&results[0][index * half..][..half]);
            row[half..].copy_from_slice(&results[1][index * half..][..half]);
        }
    }

    fn check(&self, spec: &Spec, inputs: &[&[f64]], _: PriorOutputs, actual: &[Vec<f64>]) -> Vec<Check> {
        let [first, second] = halves(inputs[0], row(spec));
        let inputs = [&first, &second, inputs[1], inputs[2]];
        let found = compare(&expression(), &in_halves(spec), &inputs, &halves(&actual[0], row(spec)));
        let (mut all, half) = (Check::none(), row(spec) as u64 / 2);
        for (number, part) in (0..).zip(&found) {
            all.add(part, |index| index / half * 2 * half + number * half + index % half);
        }
        vec![all]
    }

    fn pieces(&self, spec: &Spec) -> Option<Pieces> {
        check::broadcast_rows(spec).filter(|_| spec.outputs[0].dims.len() > 1)
    }

    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        if let Some(staged) = Staged::of(spec) {
            return vec![staged.launch(spec)];
        }
        let expression = expression();
        vec![walk::launch_all("rope", &[task(&expression, spec)], compute_type(spec))]
    }

    fn backward(&self, rule: &mut Backward) -> Result<(), NoRule> {
        backward::rope(rule)
    }
}

/// Minimum size in bytes of a tensor whose rows are staged. The cache serves accesses to parts of sectors of smaller ones.
const STAGED: u64 = 8 << 20;

/// Maximum size in bytes of the rows of a block: two packs for each thread, so that the blocks of an SM have enough bytes in flight while others
/// rotate their pairs.
const TILE: u64 = 8 << 10;

/// Maximum number of rows of a block: shared memory also holds the places of their angles.
const MAX_ROWS: u64 = 1024;

/// Instructions per pair of elements, from machine code for sm_90 by NVRTC 13.0.
const PER_PAIR: f64 = 35.0;
/// Instructions per 16 bytes moved.
const PER_PACK: f64 = 16.0;

/// Returns the number of neighbouring pairs that a thread rotates at once: two of elements of up to 2 bytes. A row has an
/// even number of elements, so that the rows of a block hold whole words.
fn near(y: &Tensor) -> u64 {
    if y.dtype.size() <= 2 { 2 } else { 1 }
}

/// Rows whose halves no packs of 16 bytes divide, or whose halves have a sector each. A block loads several rows to shared memory in whole
/// packs, rotates their pairs there, and stores them in whole packs. Otherwise each access of a warp to halves of a sector would take one of the
/// two sectors that memory moves at once.
struct Staged {
    /// Number of all rows.
    rows: u64,
    /// Number of rows of a block.
    of_block: u64,
    /// Shape of the rows, with the strides of the cosines and the sines.
    angles: Geometry,
    /// Strides of both along a row.
    steps: [u64; 2],
}

impl Staged {
    /// Returns the rows of a rotation; `None` if packs divide their halves, which are longer than a sector, for small
    /// tensors, or if a tensor has gaps.
    fn of(spec: &Spec) -> Option<Staged> {
        let (x, y) = (&spec.inputs[0], &spec.outputs[0]);
        let (last, size) = (y.dims.len() - 1, y.dtype.size());
        let bytes = y.dims[last] * size;
        let is_whole = [x, y].iter().all(|tensor| tensor.contiguous() && tensor.align >= 16 && tensor.dtype == y.dtype);
        let is_packed = bytes.is_multiple_of(32) && bytes > 2 * SECTOR;
        if !is_whole || is_packed || y.bytes() < STAGED {
            return None;
        }
        // Number of rows that end at a multiple of 16 bytes.
        let least = 16 >> bytes.trailing_zeros().min(4);
        let of_block = ((TILE / bytes).min(MAX_ROWS) / least * least).max(least);
        if of_block * bytes > TILE {
            return None;
        }
        let strides = [1, 2].map(|input| broadcast_strides(&spec.inputs[input], half(y.dims)));
        Some(Staged {
            rows: y.elements() / y.dims[last],
            of_block,
            angles: collapse(y.dims.part(..last), &strides.map(|strides| strides.part(..last))),
            steps: strides.map(|strides| strides[last]),
        })
    }

    fn cost(&self, spec: &Spec) -> Cost {
        let y = &spec.outputs[0];
        let (pairs, packs) = (y.elements() as f64 / 2.0, y.bytes() as f64 / 16.0);
        let flops = f64::from(expression().flops()) * pairs;
        let of_block = self.of_block * row(spec) as u64;
        Cost { instructions: PER_PAIR * pairs + PER_PACK * packs, ..spec.streaming_cost(flops, of_block) }
    }

    fn launch(&self, spec: &Spec) -> Launch {
        let (y, half) = (&spec.outputs[0], row(spec) as u64 / 2);
        let (element, of_angles) = (c_type(y.dtype), [1, 2].map(|input| c_type(spec.inputs[input].dtype)));
        let params = [
            param(format!("{element}* y"), Arg::Operand(3)),
            param(format!("const {element}* x"), Arg::Operand(0)),
            param(format!("const {}* cosines", of_angles[0]), Arg::Operand(1)),
            param(format!("const {}* sines", of_angles[1]), Arg::Operand(2)),
            geometry_param("angles", &self.angles),
            u64_param("rows", self.rows),
        ];
        let of_block = self.of_block * 2 * half;
        let pack = 16 / y.dtype.size();
        let before = format!(
            "{}typedef {} C;\ntypedef {element} E;\ntypedef {} Index;\n#define V {pack}\n#define ROWS {}\n#define HALF {half}\n#define PACKS {}\n#define NEAR {}\n#define STEP_COSINES {}\n#define STEP_SINES {}\n#define ALIKE {}\n\
             {}",
            bounds(BLOCK),
            c_type(compute_type(spec)),
            index_type(self.rows + self.of_block),
            self.of_block,
            (of_block / pack).div_ceil(u64::from(BLOCK)),
            near(y),
            self.steps[0],
            self.steps[1],
            self.angles.strides[0] == self.angles.strides[1],
            expression().c_function("__device__ static inline", "compute", 4),
        );
        launch("rope_staged", &before, &params, BODY, self.rows.div_ceil(self.of_block), BLOCK)
    }
}

/// Kernel text: a thread loads packs of a block's rows, rotates pairs in shared memory, and stores packs. The caches serve most angles, which
/// several rows share; angles that are loaded with the packs would take the registers of further blocks.
const BODY: &str = r#"  typedef Pack<u32, 4> Words;
  __shared__ Words staged[ROWS * HALF * 2 / V];
  // Cosines and sines have the same offsets in general.
  __shared__ i64 cosines_at[ROWS], other_at[ALIKE ? 1 : ROWS];
  const i64* sines_at = ALIKE ? cosines_at : other_at;
  const Index first = (Index)blockIdx.x * ROWS;
  const u32 live = (Index)rows - first < ROWS ? (u32)((Index)rows - first) : ROWS, count = live * HALF * 2;
  const Words* from = (const Words*)(x + (u64)first * (HALF * 2));
  Words held[PACKS];
#pragma unroll
  for (u32 k = 0; k < PACKS; k++) {
    const u32 i = k * 256 + threadIdx.x;
    // A pack never crosses the end of allocated memory.
    if (i * V < count) held[k] = from[i];
  }
  for (u32 r = threadIdx.x; r < live; r += 256) {
    i64 at[2];
    angles.offsets(first + r, at);
    cosines_at[r] = at[0];
    if (!ALIKE) other_at[r] = at[1];
  }
#pragma unroll
  for (u32 k = 0; k < PACKS; k++) {
    const u32 i = k * 256 + threadIdx.x;
    if (i * V < count) staged[i] = held[k];
  }
  __syncthreads();
  E* tile = (E*)staged;
  // A thread rotates `NEAR` neighbouring pairs. Those elements of a second half may not be aligned to a word.
  typedef Pack<E, NEAR> Word;
  const u32 WORDS = (HALF + NEAR - 1) / NEAR;
  const bool is_whole = HALF % NEAR == 0;
#pragma unroll
  for (u32 k = 0; k < (ROWS * WORDS + 255) / 256; k++) {
    const u32 i = k * 256 + threadIdx.x, r = i / WORDS, c = (i - r * WORDS) * NEAR, at = r * (2 * HALF) + c;
    if (i >= live * WORDS) continue;
    const auto* cosine = cosines + cosines_at[r] + (u64)c * STEP_COSINES;
    const auto* sine = sines + sines_at[r] + (u64)c * STEP_SINES;
    Word one = *(const Word*)(tile + at), other = {};
    if (is_whole) other = *(const Word*)(tile + at + HALF);
#pragma unroll
    for (u32 e = 0; e < NEAR; e++) {
      // The last pair of a row may be alone.
      const u32 own = is_whole || c + e < HALF ? e : 0;
      if (!is_whole) other.at[e] = tile[at + HALF + own];
      C first_half, second_half;
      compute(load<C>(one.at[e]), load<C>(other.at[e]), load<C>(cosine[own * STEP_COSINES]), load<C>(sine[own * STEP_SINES]), first_half, second_half);
      store<C>(one.at[e], first_half);
      store<C>(other.at[e], second_half);
    }
    if (c + NEAR <= HALF) *(Word*)(tile + at) = one;
    else tile[at] = one.at[0];
    if (is_whole) *(Word*)(tile + at + HALF) = other;
#pragma unroll
    for (u32 e = 0; e < NEAR; e++) if (!is_whole && c + e < HALF) tile[at + HALF + e] = other.at[e];
  }
  __syncthreads();
  E* to = y + (u64)first * (HALF * 2);
#pragma unroll
  for (u32 k = 0; k < PACKS; k++) {
    const u32 i = k * 256 + threadIdx.x;
    if ((i + 1) * V <= count) ((Words*)to)[i] = staged[i];
    else for (u32 e = i * V; e < count; e++) to[e] = tile[e];
  }
"#;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::kernels::occupancy::DEFAULT_SHARED;

    #[test]
    fn rows_with_halves_of_a_sector_are_staged() {
        let is_staged = |width: u64| {
            let x = Tensor::packed(DType::F16, &[300, 2000, width]);
            let angles = Tensor::packed(DType::F16, &[2000, width / 2]);
            Staged::of(&Spec::new(&Rope, Attrs::default(), vec![x, angles, angles], vec![x])).is_some()
        };
        assert_eq!([24, 32, 48, 64, 96].map(is_staged), [true, true, false, false, false]);
    }

    /// Two places of angles take 16 bytes of shared memory per row.
    #[test]
    fn rows_and_places_of_angles_fit_shared_memory() {
        for (dtype, width) in [DType::E4M3, DType::F16, DType::F32, DType::F64]
            .into_iter()
            .flat_map(|dtype| (1..40).map(move |half| (dtype, 2 * half)))
        {
            let x = Tensor::packed(dtype, &[STAGED, width]);
            let angles = [Tensor::packed(DType::F32, &[STAGED, width / 2]), Tensor::packed(DType::F32, &[1])];
            let spec = Spec::new(&Rope, Attrs::default(), vec![x, angles[0], angles[1]], vec![x]);
            let Some(staged) = Staged::of(&spec) else { continue };
            assert!(staged.of_block * (width * dtype.size() + 16) <= DEFAULT_SHARED, "{dtype} {width}");
        }
    }

    /// `x * cos + rotate_half(x) * sin`, with the angles of a pair given for both of its elements.
    #[test]
    fn rows_are_rotated_as_in_llama() {
        let tensor = |sizes: &[u64]| Tensor::packed(DType::F64, sizes);
        let inputs = vec![tensor(&[2, 3, 4]), tensor(&[3, 2]), tensor(&[3, 1])];
        let spec = Spec::new(&Rope, Attrs::default(), inputs, vec![tensor(&[2, 3, 4])]);
        let value = |index: usize| (index as f64 * 0.37).sin();
        let x: Vec<f64> = (0..24).map(value).collect();
        let (cos, sin): (Vec<f64>, Vec<f64>) = ((30..36).map(value).collect(), (40..43).map(value).collect());
        let mut y = vec![vec![0.0; 24]];
        Rope.reference(&spec, &[&x, &cos, &sin], &mut y);
        for (index, found) in y[0].iter().enumerate() {
            let (row, position, column) = (index / 4, index / 4 % 3, index % 4);
            let turned = if column < 2 { -x[row * 4 + column + 2] } else { x[row * 4 + column - 2] };
            let expected = x[index] * cos[position * 2 + column % 2] + turned * sin[position];
            assert!((found - expected).abs() < 1e-15, "element {index}: {found}, not {expected}");
        }
        assert!(Rope.check(&spec, &[&x, &cos, &sin], &Vec::new, &y)[0].held());
        y[0][23] += 1e-9;
        let check = &Rope.check(&spec, &[&x, &cos, &sin], &Vec::new, &y)[0];
        assert_eq!((check.held(), check.worst.index, check.elements), (false, 23, 24));
    }
}
