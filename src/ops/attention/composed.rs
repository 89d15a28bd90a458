//! Attention as matrix products of the vendor's library, with the scores of some heads in the workspace.
//!
//! `attention` and its gradients use these products for `f32`, `f64` and heads of more than 256 elements, for which the
//! library has no fused attention. In 16-bit types, they compete with the kernel for heads of up to 1024 elements.

mod copies;
mod costs;
mod parts;
mod products;

use super::super::launch::{Gemm, Matrix};
use super::super::matrix;
use super::composed_text as text;
use super::kernel::{size_params, steps};
use super::shape::{Axes, bias};
use super::*;
use crate::ops::kernels::kernel::{Parameter, bounds, c_type, geometry_param, kernel, param, u64_param};
use parts::{PARTS, padded};

/// Maximum bytes of the workspace, as for a call of the library's attention. More matrices of scores are computed in several chunks. A chunk
/// has as many as possible: products of few heads have too few tiles for all SMs.
const LARGEST: u64 = 2 << 30;

/// Maximum number of chunks, each of which takes several launches.
const MAX_CHUNKS: u64 = 64;

/// Minimum number of rows that share keys. With fewer, products read the keys hardly less often than the kernel without
/// tiles does.
const MIN_ROWS: u64 = 16;

/// Number of elements to a multiple of which the rows of scores are padded: 16 bytes of a 16-bit type, which the
/// library's fast kernels load at once.
const PACK: u64 = 8;

/// Alignment of the regions of the workspace in bytes.
const ALIGN: u64 = 256;

/// Assumed number of rows, and of columns, of the tiles into which libraries divide small products.
const TILE: u64 = 64;

/// Maximum number of products into which the product of a causal mask is divided.
const MAX_DIVISIONS: u64 = 16;

/// An operand of the products or of the kernels between them.
#[derive(Clone, Copy)]
struct Operand {
    index: usize,
    name: &'static str,
    /// True if several heads of queries can share the operand: for keys, values and their gradients.
    shared: bool,
}

/// A factor or the result of a matrix product: a tensor of the operation, or a matrix in the workspace.
#[derive(Clone, Copy)]
enum Factor {
    /// Index of an operand in [`Composed::matrices`].
    Operand(usize),
    /// Products of queries and keys, in the type of sums.
    Scores,
    /// Gradients of the weights, in the type of sums.
    WeightGradients,
    /// Weights, in the type of the factors: a matrix for each of their parts.
    Weights,
    /// Gradients of the scores, in the type of the factors: a matrix for each of their parts.
    ScoreGradients,
}

impl Factor {
    /// True if the factor is the operand with this index.
    fn is_operand(self, place: usize) -> bool {
        matches!(self, Factor::Operand(own) if own == place)
    }
}

/// Operands that kernels copy to matrices without gaps in the workspace before the products read them, or from there behind products that
/// write them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gathered {
    /// No operands. Without a common matrix, each of the heads that share keys has products of its own.
    Nothing,
    /// Queries, and other operands with as many rows: the rows of the heads that share keys become one matrix.
    Rows,
    /// Every operand: a kernel copies the matrices of all heads and batches next to each other, so that one product computes them.
    All,
    /// As [`Gathered::All`], with each `f32` number of the copies divided into [`PARTS`] numbers of `bf16`, which matrix units multiply.
    Parts,
}

/// Attention as matrix products of the library, with kernels between them.
#[derive(Clone)]
pub struct Composed<'a> {
    spec: &'a Spec,
    shape: Shape,
    matrices: Vec<Operand>,
    /// Number of heads whose queries are the rows of one matrix of scores: all that share keys, or one.
    together: u64,
    /// True if the rows of such a matrix have the heads of a query next to each other; otherwise, the queries of a
    /// head.
    by_query: bool,
    /// Geometry over the heads of keys, with the strides of `matrices`.
    units: Geometry,
    /// True if the products read keys and values from copies in the workspace that are padded with keys of zeros. The
    /// library's fast kernels for 16-bit types require a multiple of [`PACK`] keys.
    pads: bool,
    /// True if the gradients of keys and values are summed in the workspace: because their type would round them after
    /// each head, or because they have the padded number of keys.
    adds_up: bool,
    /// Operands that have copies in the workspace.
    gathered: Gathered,
    /// Number of products into which each product with a causal mask is divided: by rows, or by keys if its rows are keys.
    divisions: u64,
    /// Number of matrices of scores that the workspace holds together.
    at_once: u64,
}

/// Byte offsets of the regions of the workspace after the scores, which are at offset 0.
struct Regions {
    /// Gradients of the weights.
    weight_gradients: u64,
    /// Weights. They replace scores of the same type.
    weights: u64,
    /// Gradients of the scores. They replace gradients of the weights of the same type.
    score_gradients: u64,
    /// Sums of the gradients of keys; empty unless [`Composed::adds_up`].
    key_sums: u64,
    /// Sums of the gradients of values; empty unless [`Composed::adds_up`].
    value_sums: u64,
    /// Padded copy of the keys; empty unless [`Composed::pads`].
    keys: u64,
    /// Padded copy of the values; empty unless [`Composed::pads`].
    values: u64,
    /// Copies of operands, by the number of the operand in [`Composed::matrices`]; empty unless [`Composed::is_gathered`].
    gathered: Vec<u64>,
    /// Size of the workspace.
    end: u64,
}

const fn operand(index: usize, name: &'static str, shared: bool) -> Operand {
    Operand { index, name, shared }
}

/// Index of each operand in [`Composed::matrices`]. `o` belongs to the forward form, and those after it to the
/// gradients.
const Q: Factor = Factor::Operand(0);
const K: Factor = Factor::Operand(1);
const V: Factor = Factor::Operand(2);
const O: Factor = Factor::Operand(3);
const DY: Factor = Factor::Operand(3);
const DQ: Factor = Factor::Operand(4);
const DK: Factor = Factor::Operand(5);
const DV: Factor = Factor::Operand(6);

impl<'a> Composed<'a> {
    /// Returns the products that take the least time: with or without copies of operands, divided or not; `None` if kernels or the
    /// library's attention compute this call faster, or if operands do not have the layout of matrices.
    pub fn of(spec: &'a Spec) -> Option<Composed<'a>> {
        let forms = [Gathered::Nothing, Gathered::Rows, Gathered::All, Gathered::Parts];
        let whole = forms.into_iter().filter_map(|gathered| Composed::with(spec, gathered));
        fastest(whole.flat_map(Composed::with_divisions).collect())
    }

    /// Returns the products undivided and with each number of divisions of the causal mask.
    fn with_divisions(self) -> Vec<Composed<'a>> {
        let follows = self.together == 1 || self.by_query;
        let most = if self.shape.causal && follows { MAX_DIVISIONS.min(MAX_CHUNKS / self.chunks()) } else { 1 };
        let numbers = std::iter::successors(Some(1), |number| Some(2 * number));
        let is_whole = |number: u64| number == 1 || self.shape.queries.min(self.shape.keys) >= number * TILE;
        let numbers: Vec<u64> = numbers.take_while(|&number| number <= most.max(1) && is_whole(number)).collect();
        numbers.into_iter().map(|divisions| Composed { divisions, ..self.clone() }).collect()
    }

    /// Returns the products with these copies; `None` without such products, or if they need no copies.
    fn with(spec: &'a Spec, gathered: Gathered) -> Option<Composed<'a>> {
        let shape = Shape::of(spec);
        let has_form = shape.page.is_none() && shape.sequences.is_none() && shape.pairs() > 0.0;
        if !has_form || shape.size.min(shape.value_size) == 0 || spec.attrs.word("algorithm") != AUTO {
            return None;
        }
        let backward = input(spec, "dy").is_some();
        let inputs = spec.inputs.len();
        let mut matrices = vec![operand(0, "q", false), operand(1, "k", true), operand(2, "v", true)];
        match backward {
            false => matrices.push(operand(inputs, "o", false)),
            true => matrices.extend([
                operand(5, "dy", false),
                operand(inputs, "dq", false),
                operand(inputs + 1, "key_gradients", true),
                operand(inputs + 2, "value_gradients", true),
            ]),
        }
        let rank = spec.inputs[0].dims.len();
        let tensors = || matrices.iter().map(|one| (one, spec.operand(one.index)));
        let is_matrix = |tensor: &Tensor| {
            tensor.strides[rank - 1] == 1
                && (tensor.dims[shape.axes.positions] == 1
                    || tensor.strides[shape.axes.positions] >= tensor.dims[rank - 1])
        };
        let follow = |tensor: &Tensor| {
            let head = shape.axes.heads.map_or(0, |axis| tensor.strides[axis]);
            head == shape.queries * tensor.strides[shape.axes.positions]
        };
        let dtype = spec.inputs[0].dtype;
        if gathered == Gathered::Parts && dtype != DType::F32 {
            return None;
        }
        let multiplies = |index: usize, tensor: &Tensor| {
            tensor.dtype == dtype || (index >= inputs && tensor.dtype == dtype.compute())
        };
        if !tensors().all(|(one, tensor)| is_matrix(tensor) && multiplies(one.index, tensor)) {
            return None;
        }
        // The heads that share keys are next to each other at each position, and positions follow without gaps.
        let alternate = |tensor: &Tensor| {
            let head = shape.axes.heads.map_or(0, |axis| tensor.strides[axis]);
            head >= tensor.dims[rank - 1] && tensor.strides[shape.axes.positions] == head * shape.group
        };
        let joined = tensors().all(|(one, tensor)| one.shared || follow(tensor));
        let alternates = !joined && shape.group > 1 && tensors().all(|(one, tensor)| one.shared || alternate(tensor));
        if gathered == Gathered::Rows && (joined || alternates || shape.group == 1) {
            return None;
        }
        let by_query = alternates || (shape.group > 1 && gathered != Gathered::Nothing);
        let together = if joined || by_query { shape.group } else { 1 };
        if shape.queries * together < MIN_ROWS {
            return None;
        }
        let pads = dtype.size() == 2 && !shape.keys.is_multiple_of(PACK);
        let rounds = || together < shape.group && spec.outputs[1..3].iter().any(|one| one.dtype.size() < 4);
        let adds_up = backward && (pads || rounds());
        let mut all = Composed {
            spec,
            shape,
            matrices,
            together,
            by_query,
            units: Geometry { dims: Dims::new(), strides: Vec::new() },
            pads,
            adds_up,
            gathered,
            divisions: 1,
            at_once: 1,
        };
        all.units = all.geometry(&all.matrices, |_| Some(all.shape.axes));
        if gathered == Gathered::All && all.units.dims.len() <= 1 {
            return None;
        }
        let of_a_unit = all.bytes_of(1);
        if of_a_unit > LARGEST {
            return None;
        }
        let batch = all.batch();
        all.at_once = batch.div_ceil(batch.div_ceil((LARGEST / of_a_unit).max(1)));
        (all.chunks() <= MAX_CHUNKS).then_some(all)
    }

    /// Number of chunks in which the matrices of scores are computed one after the other.
    fn chunks(&self) -> u64 {
        let batch = self.batch();
        self.members() * self.units.dims.iter().product::<u64>() / batch * batch.div_ceil(self.at_once)
    }

    /// Number of dimensions of `units` along which matrices have no common stride, so that each index has products of its own.
    fn separate(&self) -> usize {
        match self.gathered {
            Gathered::All | Gathered::Parts => 0,
            Gathered::Nothing | Gathered::Rows => self.units.dims.len().saturating_sub(1),
        }
    }

    /// Maximum number of matrices of scores that one product computes.
    fn batch(&self) -> u64 {
        self.units.dims[self.separate()..].iter().product()
    }

    /// True if the operand with this index in [`Composed::matrices`] has a copy by the kernels that gather.
    fn is_gathered(&self, place: usize) -> bool {
        let one = &self.matrices[place];
        // Other kernels copy these operands.
        let has_copy = one.shared && if self.is_result(one) { self.adds_up } else { self.pads };
        match self.gathered {
            Gathered::Nothing => false,
            Gathered::Rows => !one.shared,
            Gathered::All => !has_copy,
            Gathered::Parts => true,
        }
    }

    /// True if the operation writes an operand.
    fn is_result(&self, one: &Operand) -> bool {
        one.index >= self.spec.inputs.len()
    }

    /// Number of rows of an operand's matrix.
    fn rows_of(&self, one: &Operand) -> u64 {
        if one.shared { self.shape.keys } else { self.rows() }
    }

    /// Returns the type of an operand's copy, the length of its rows in elements, and their number.
    fn copy_of(&self, one: &Operand) -> (DType, u64, u64) {
        let tensor = self.tensor(one);
        let width = tensor.dims[tensor.dims.len() - 1];
        if self.gathered != Gathered::Parts {
            return (tensor.dtype, width, self.rows_of(one));
        }
        let rows = if one.shared { self.keys() } else { self.rows() };
        let (dtype, numbers) = if self.is_result(one) { (self.sums(), PARTS) } else { (DType::BF16, parts::OF_A_ROW) };
        (dtype, numbers * padded(width), rows)
    }

    /// Type of the factors of the products.
    fn factors(&self) -> DType {
        if self.gathered == Gathered::Parts { DType::BF16 } else { self.spec.inputs[0].dtype }
    }

    /// Arithmetic of the products.
    fn arithmetic(&self) -> Arithmetic {
        if self.gathered == Gathered::Parts { Arithmetic::BF16 } else { matrix::arithmetic(self.spec) }
    }

    /// Number of parts of a weight, and of the gradient of a score.
    fn parts_of_a_weight(&self) -> u64 {
        if self.gathered == Gathered::Parts { PARTS } else { 1 }
    }

    /// Number of matrices of scores for each head of keys.
    fn members(&self) -> u64 {
        self.shape.group / self.together
    }

    /// True if these are the products of the gradients.
    fn is_backward(&self) -> bool {
        self.matrices.len() > 4
    }

    /// Number of rows of a matrix of scores.
    fn rows(&self) -> u64 {
        self.shape.queries * self.together
    }

    /// Stride between rows of scores, in elements.
    fn columns(&self) -> u64 {
        self.shape.keys.next_multiple_of(PACK)
    }

    /// Number of keys in the products, with those of the padding.
    fn keys(&self) -> u64 {
        if self.pads || self.gathered == Gathered::Parts { self.columns() } else { self.shape.keys }
    }

    /// Type of sums and scores.
    fn sums(&self) -> DType {
        self.spec.inputs[0].dtype.compute()
    }

    /// Returns the regions of the workspace for this many matrices of scores.
    fn regions(&self, units: u64) -> Regions {
        let Shape { size, value_size, .. } = self.shape;
        let (keys, dtype) = (self.keys(), self.spec.inputs[0].dtype);
        let elements = units * self.rows() * self.columns();
        let bytes = |elements: u64, dtype: DType| (elements * dtype.size()).next_multiple_of(ALIGN);
        // A thread reads an element before it writes the same element.
        let replaces = self.factors() == self.sums();
        let of_backward = u64::from(self.is_backward());
        let weight_gradients = bytes(elements, self.sums());
        let weights = weight_gradients + of_backward * weight_gradients;
        let own = if replaces { 0 } else { bytes(elements * self.parts_of_a_weight(), self.factors()) };
        let score_gradients = weights + own;
        let key_sums = score_gradients + of_backward * own;
        let [weights, score_gradients] = if replaces { [0, weight_gradients] } else { [weights, score_gradients] };
        let sums = |width: u64| if self.adds_up { bytes(units * keys * width, self.sums()) } else { 0 };
        let copy = |width: u64| if self.pads { bytes(units * keys * width, dtype) } else { 0 };
        let value_sums = key_sums + sums(size);
        let copies = value_sums + sums(value_size);
        let values = copies + copy(size);
        let mut end = values + copy(value_size);
        let mut gathered = Vec::new();
        for one in &self.matrices {
            gathered.push(end);
            if self.is_gathered(gathered.len() - 1) {
                let (dtype, width, rows) = self.copy_of(one);
                end += bytes(units * rows * width, dtype);
            }
        }
        Regions {
            weight_gradients,
            weights,
            score_gradients,
            key_sums,
            value_sums,
            keys: copies,
            values,
            gathered,
            end,
        }
    }

    /// Bytes of the workspace for this many matrices of scores.
    fn bytes_of(&self, units: u64) -> u64 {
        self.regions(units).end
    }

    /// Returns the geometry over the heads of keys, with the strides of operands. `axes` returns the axes of an
    /// operand's heads and positions, or `None` for an operand with one number per query.
    fn geometry(&self, operands: &[Operand], axes: impl Fn(&Operand) -> Option<Axes>) -> Geometry {
        let q = &self.spec.inputs[0].dims;
        let lead = q.len().saturating_sub(3);
        let mut dims = Dims::from_slice(&q[..lead]).unwrap_or_default();
        dims.push(self.shape.heads / self.shape.group);
        let strides: Vec<Dims> = operands
            .iter()
            .map(|one| {
                let strides = self.tensor(one).strides;
                let head = axes(one).unwrap_or(Axes::of_rows(q.len())).heads.map_or(0, |axis| strides[axis]);
                let mut own = Dims::from_slice(&strides[..lead]).unwrap_or_default();
                own.push(if one.shared { head } else { head * self.shape.group });
                own
            })
            .collect();
        layout::collapse(dims, &strides)
    }

    /// Returns the tensor of an operand; for the bias, a tensor that is broadcast to the scores.
    fn tensor(&self, one: &Operand) -> Tensor {
        match (one.name, bias(self.spec)) {
            (BIAS, Some(bias)) => bias,
            _ => *self.spec.operand(one.index),
        }
    }

    /// Returns the launches of all chunks in order.
    pub fn launches(&self) -> Vec<Launch> {
        let (batch, inner) = (self.batch(), self.separate());
        let outer = Dims::from_slice(&self.units.dims[..inner]).unwrap_or_default();
        let offsets = |strides: &Dims| {
            let strides = Dims::from_slice(&strides[..inner]).unwrap_or_default();
            layout::offsets(outer, strides).collect::<Vec<u64>>()
        };
        let offsets: Vec<Vec<u64>> = self.units.strides.iter().map(offsets).collect();
        let mut all = Vec::new();
        let indices = outer.iter().product::<u64>();
        let step = self.at_once as usize;
        for (index, first) in (0..indices).flat_map(|index| (0..batch).step_by(step).map(move |first| (index, first))) {
            let (number, units) = (index * batch + first, self.at_once.min(batch - first));
            let gather = |is_result: bool| Launch::Kernel(self.gathering_kernel(number, units, is_result));
            all.extend(self.pads.then(|| Launch::Kernel(self.padding_kernel(number, units))));
            all.extend(self.gathers().then(|| gather(false)));
            for member in 0..self.members() {
                let start = |(place, one): (usize, &Operand)| {
                    let head = self.shape.axes.heads.map_or(0, |axis| self.spec.operand(one.index).strides[axis]);
                    let step = self.units.strides[place].last().copied().unwrap_or(0);
                    offsets[place][index as usize] + first * step + if one.shared { 0 } else { member * head }
                };
                let starts = self.matrices.iter().enumerate().map(start).collect();
                all.extend(self.chunk(&Chunk { first: number, units, member, starts }));
            }
            all.extend(self.gathers().then(|| gather(true)));
            all.extend(self.adds_up.then(|| Launch::Kernel(self.rounding_kernel(number, units))));
        }
        all
    }

    /// True if kernels copy operands to and from the workspace.
    fn gathers(&self) -> bool {
        self.gathered != Gathered::Nothing
    }

    /// Returns a kernel with a block for each row of scores.
    fn kernel(&self, chunk: &Chunk, name: &str, body: &str) -> Kernel {
        let (spec, rank) = (self.spec, self.spec.inputs[0].dims.len());
        let lse = if self.is_backward() { 4 } else { spec.inputs.len() + 1 };
        let mut operands = vec![operand(lse, "lse", false)];
        operands.extend(input(spec, BIAS).map(|place| operand(place, BIAS, false)));
        if name == "attention_slopes" {
            operands.extend([operand(3, "o", false), operand(5, "dy", false)]);
            operands.extend(input(spec, DLSE).map(|place| operand(place, DLSE, false)));
            operands.extend((spec.outputs.len() > 3).then(|| operand(spec.inputs.len() + 3, "slopes", false)));
        }
        let axes = |one: &Operand| match one.name {
            "lse" | DLSE => None,
            "o" | "dy" => Some(self.shape.axes),
            _ => Some(Axes::of_rows(rank)),
        };
        let mut params = self.operand_params(&operands, axes);
        let regions = self.regions(self.at_once);
        params.extend(size_params(&self.shape, &[("rows", self.rows())]));
        params.extend([
            param("C scale", Arg::real(self.sums(), self.shape.scale)),
            param("u8* workspace", Arg::Workspace(regions.end)),
            u64_param("slopes_at", regions.weight_gradients),
            u64_param("weights_at", regions.weights),
            u64_param("gradients_at", regions.score_gradients),
            u64_param("columns", self.columns()),
            u64_param("first", chunk.first),
            u64_param("member", chunk.member),
        ]);
        let (before, threads) = self.definitions(&operands, self.shape.keys);
        let held = self.columns().div_ceil(u64::from(threads));
        let before = format!("{before}#define HELD {}\n", if held <= text::MAX_HELD { held } else { 0 });
        let body = format!("{}{body}", text::ROW);
        kernel(name, &before, &params, &body, chunk.units * self.rows(), threads)
    }

    /// Returns the parameters of operands: their geometry over the heads of keys, and the address and strides of each.
    fn operand_params(&self, operands: &[Operand], axes: impl Fn(&Operand) -> Option<Axes>) -> Vec<Parameter> {
        let rank = self.spec.inputs[0].dims.len();
        let mut params = vec![geometry_param("g", &self.geometry(operands, &axes))];
        for one in operands {
            let tensor = self.tensor(one);
            let qualifier = if one.index >= self.spec.inputs.len() { "" } else { "const " };
            let pointer = format!("{qualifier}{}* {}", c_type(tensor.dtype), one.name);
            params.push(param(pointer, Arg::Operand(one.index as u8)));
            params.push(param(format!("const Steps s_{}", one.name), steps(&tensor, axes(one), rank)));
        }
        params
    }

    /// Returns the definitions before the body of a kernel whose blocks process rows of this many elements, and the
    /// number of threads of a block.
    fn definitions(&self, operands: &[Operand], elements: u64) -> (String, u32) {
        let places: String =
            operands.iter().enumerate().map(|(place, one)| format!("#define at_{} {place}\n", one.name)).collect();
        let has = |name: &str| u32::from(operands.iter().any(|one| one.name == name));
        let threads = elements.div_ceil(4).next_power_of_two().clamp(WARP, 8 * WARP);
        let before = format!(
            "{}#define PAGED 0\n#define RAGGED 0\ntypedef {} T;\ntypedef {} C;\n#define THREADS {threads}\n#define OPERANDS {}\n\
             #define GROUP {}\n#define BY_QUERY {}\n#define CAUSAL {}\n#define BIAS {}\n#define DLSE {}\n#define SLOPES {}\n\
             #define PARTS {}\n{places}{}{}{}",
            bounds(threads as u32),
            c_type(self.factors()),
            c_type(self.sums()),
            operands.len(),
            self.together,
            u32::from(self.by_query),
            self.shape.causal,
            has(BIAS),
            has(DLSE),
            has("slopes"),
            self.parts_of_a_weight(),
            softcap_text::definitions(self.spec),
            super::text::PLACES,
            text::FUNCTIONS,
        );
        (before, threads as u32)
    }
}

/// Matrices of scores that are computed at once.
struct Chunk {
    /// Number of the first head of keys.
    first: u64,
    /// Number of heads of keys.
    units: u64,
    /// Number of the head of queries among those that share a head of keys; 0 if they are one matrix.
    member: u64,
    /// Offset of the first element of each operand in [`Composed::matrices`], in elements.
    starts: Vec<u64>,
}

/// Returns the products whose launches take the least time by the model; `None` without forms.
fn fastest(mut forms: Vec<Composed>) -> Option<Composed> {
    if forms.len() <= 1 {
        return forms.pop();
    }
    let timed = forms.into_iter().map(|one| (cost::total_time(&one.launch_costs()), one));
    timed.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, one)| one)
}
