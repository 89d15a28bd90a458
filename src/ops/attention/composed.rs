//! Attention as matrix products of the vendor's library, with the scores of some heads in the workspace.
//!
//! `attention` and its gradients use these products for `f32`, `f64` and heads of more than 256 elements, for which the
//! library has no fused attention. In 16-bit types, they compete with the kernel for heads of up to 1024 elements.

mod gathering;

use super::super::cost::{Tiling, Traffic};
use super::super::kernel::{Parameter, bounds, c_type, geometry_param, kernel, param, u64_param};
use super::super::launch::{Gemm, Matrix};
use super::super::layout::in_packs;
use super::super::matrix::arithmetic;
use super::composed_text as text;
use super::cost::PER_BIAS;
use super::kernel::{size_params, steps};
use super::shape::{Axes, bias};
use super::*;

/// Bytes of the workspace above which the matrices of scores are computed in several parts.
const LARGE: u64 = 256 << 20;

/// Maximum bytes of the workspace for one matrix of scores.
const LARGEST_HEAD: u64 = 2 << 30;

/// Maximum number of parts, each of which takes several launches.
const MAX_PARTS: u64 = 64;

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

/// Instructions per score: scale, maximum, two exponentials, sum, rounding, loads and stores.
const PER_SCORE: f64 = 30.0;

/// An operand of the products or of the kernels between them.
#[derive(Clone, Copy)]
struct Operand {
    index: usize,
    name: &'static str,
    /// Whether heads of queries can share it: true for keys, values and their gradients.
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
    Slopes,
    /// Weights or, in the products of `dq` and `dk`, gradients of the scores; in the type of the operands.
    Weights,
}

impl Factor {
    /// Whether the factor is the operand with this index.
    fn is_operand(self, place: usize) -> bool {
        matches!(self, Factor::Operand(own) if own == place)
    }
}

/// Attention as matrix products of the library, with kernels between them.
pub struct Composed<'a> {
    spec: &'a Spec,
    shape: Shape,
    matrices: Vec<Operand>,
    /// Number of heads whose queries are the rows of one matrix of scores: all that share keys, or one.
    together: u64,
    /// Whether the rows of such a matrix have the heads of a query next to each other; otherwise, the queries of a
    /// head.
    by_query: bool,
    /// Geometry over the heads of keys, with the strides of `matrices`.
    units: Geometry,
    /// Whether the products read keys and values from copies in the workspace that are padded with keys of zeros. The
    /// library's fast kernels for 16-bit types require a multiple of [`PACK`] keys.
    pads: bool,
    /// Whether the gradients of keys and values are summed in the workspace: because their type would round them after
    /// each head, or because they have the padded number of keys.
    adds_up: bool,
    /// Whether the rows of queries, and of results, of the heads that share keys are gathered in the workspace to one matrix. Otherwise,
    /// each head has products of its own if `together` is less than their number.
    gathers: bool,
    /// Number of matrices of scores that the workspace holds together.
    at_once: u64,
}

/// Byte offsets of the regions of the workspace after the scores, which are at offset 0.
struct Regions {
    /// Gradients of the weights.
    slopes: u64,
    /// Weights, or gradients of the scores.
    weights: u64,
    /// Sums of the gradients of keys; empty unless [`Composed::adds_up`].
    key_sums: u64,
    /// Sums of the gradients of values; empty unless [`Composed::adds_up`].
    value_sums: u64,
    /// Padded copy of the keys; empty unless [`Composed::pads`].
    keys: u64,
    /// Padded copy of the values; empty unless [`Composed::pads`].
    values: u64,
    /// Matrices of gathered rows, by the number of the operand in [`Composed::matrices`]; empty unless [`Composed::gathers`].
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
    /// Returns the products, with gathered rows if these take less time; `None` if kernels or the library's attention compute this
    /// call faster, or if operands do not have the layout of matrices.
    pub fn of(spec: &'a Spec) -> Option<Composed<'a>> {
        let time = |one: &Composed| cost::total_time(&cost::of_products(spec, &one.shape, &one.launches()));
        match [false, true].map(|gathers| Composed::with(spec, gathers)) {
            [Some(apart), Some(gathered)] => Some(if time(&gathered) < time(&apart) { gathered } else { apart }),
            [apart, gathered] => apart.or(gathered),
        }
    }

    /// Returns the products with gathered rows, or without; `None` without such products, or if no rows need to be gathered.
    fn with(spec: &'a Spec, gathers: bool) -> Option<Composed<'a>> {
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
        let by_query = !joined && shape.group > 1 && tensors().all(|(one, tensor)| one.shared || alternate(tensor));
        if gathers && (joined || by_query || shape.group == 1) {
            return None;
        }
        let together = if joined || by_query || gathers { shape.group } else { 1 };
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
            gathers,
            at_once: 1,
        };
        all.units = all.geometry(&all.matrices, |_| Some(all.shape.axes));
        let of_a_unit = all.bytes_of(1);
        if of_a_unit > LARGEST_HEAD {
            return None;
        }
        let batch = all.batch();
        all.at_once = batch.div_ceil(batch.div_ceil((LARGE / of_a_unit).max(1)));
        let outer = all.members() * all.units.dims.iter().product::<u64>() / batch;
        (outer * batch.div_ceil(all.at_once) <= MAX_PARTS).then_some(all)
    }

    /// Maximum number of matrices of scores that one product computes: the last dimension of `units`.
    fn batch(&self) -> u64 {
        self.units.dims.last().copied().unwrap_or(1)
    }

    /// Number of matrices of scores for each head of keys.
    fn members(&self) -> u64 {
        self.shape.group / self.together
    }

    /// Whether these are the products of the gradients.
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
        if self.pads { self.columns() } else { self.shape.keys }
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
        let slopes = bytes(elements, self.sums());
        let weights = if self.is_backward() { 2 * slopes } else { slopes };
        let key_sums = weights + bytes(elements, dtype);
        let sums = |width: u64| if self.adds_up { bytes(units * keys * width, self.sums()) } else { 0 };
        let copy = |width: u64| if self.pads { bytes(units * keys * width, dtype) } else { 0 };
        let value_sums = key_sums + sums(size);
        let copies = value_sums + sums(value_size);
        let values = copies + copy(size);
        let mut end = values + copy(value_size);
        let mut gathered = Vec::new();
        for one in &self.matrices {
            gathered.push(end);
            if self.gathers && !one.shared {
                let tensor = self.tensor(one);
                end += bytes(units * self.rows() * tensor.dims[tensor.dims.len() - 1], tensor.dtype);
            }
        }
        Regions { slopes, weights, key_sums, value_sums, keys: copies, values, gathered, end }
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

    /// Returns the launches of all parts in order.
    pub fn launches(&self) -> Vec<Launch> {
        let (batch, inner) = (self.batch(), self.units.dims.len().saturating_sub(1));
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
            all.extend(self.gathers.then(|| gather(false)));
            for member in 0..self.members() {
                let start = |(place, one): (usize, &Operand)| {
                    let head = self.shape.axes.heads.map_or(0, |axis| self.spec.operand(one.index).strides[axis]);
                    let step = self.units.strides[place].last().copied().unwrap_or(0);
                    offsets[place][index as usize] + first * step + if one.shared { 0 } else { member * head }
                };
                let starts = self.matrices.iter().enumerate().map(start).collect();
                all.extend(self.part(&Part { first: number, units, member, starts }));
            }
            all.extend(self.gathers.then(|| gather(true)));
            all.extend(self.adds_up.then(|| Launch::Kernel(self.rounding_kernel(number, units))));
        }
        all
    }

    /// Returns the products of a part and the kernels between them.
    fn part(&self, part: &Part) -> Vec<Launch> {
        let Shape { size, value_size, .. } = self.shape;
        let (rows, keys) = (self.rows(), self.keys());
        let multiply = |sizes, a, b, c| Launch::Gemm(self.product(part, sizes, [a, b], c), None);
        let kernel = |name, body| Launch::Kernel(self.kernel(part, name, body));
        let scores = multiply((rows, keys, size), (Q, false), (K, true), Factor::Scores);
        match self.is_backward() {
            false => vec![
                scores,
                kernel("attention_weights", text::WEIGHTS),
                multiply((rows, value_size, keys), (Factor::Weights, false), (V, false), O),
            ],
            true => vec![
                scores,
                kernel("attention_weights_again", text::WEIGHTS_AGAIN),
                multiply((keys, value_size, rows), (Factor::Weights, true), (DY, false), DV),
                multiply((rows, keys, value_size), (DY, false), (V, true), Factor::Slopes),
                kernel("attention_slopes", text::SLOPES),
                multiply((rows, size, keys), (Factor::Weights, false), (K, false), DQ),
                multiply((keys, size, rows), (Factor::Weights, true), (Q, false), DK),
            ],
        }
    }

    /// Returns the product of `a` and `b`. The `bool` of a factor says whether memory holds its transpose.
    fn product(&self, part: &Part, (m, n, k): (u64, u64, u64), [a, b]: [(Factor, bool); 2], c: Factor) -> Gemm {
        Gemm {
            m,
            n,
            k,
            batch: part.units,
            a: self.matrix(part, a),
            b: self.matrix(part, b),
            c: self.matrix(part, (c, false)),
            arithmetic: arithmetic(self.spec),
            accumulate: part.member > 0 && matches!(c, Factor::Operand(place) if self.matrices[place].shared),
            epilogue: None,
            scales: None,
        }
    }

    /// Returns a factor or a result as a matrix in an operand or in the workspace.
    fn matrix(&self, part: &Part, (factor, transposed): (Factor, bool)) -> Matrix {
        let regions = self.regions(self.at_once);
        let in_workspace = |dtype: DType, region: u64, row: u64, rows: u64| Matrix {
            operand: Matrix::WORKSPACE,
            offset: region / dtype.size(),
            dtype,
            row,
            transposed,
            batch: rows * row,
            align: 16,
        };
        let (dtype, region) = match factor {
            Factor::Operand(place) if self.adds_up && [DK, DV].iter().any(|one| one.is_operand(place)) => {
                let Shape { size, value_size, .. } = self.shape;
                let is_key = DK.is_operand(place);
                let (region, width) = if is_key { (regions.key_sums, size) } else { (regions.value_sums, value_size) };
                return in_workspace(self.sums(), region, width, self.keys());
            }
            Factor::Operand(place) if self.pads && [K, V].iter().any(|one| one.is_operand(place)) => {
                let tensor = self.spec.operand(self.matrices[place].index);
                let region = if K.is_operand(place) { regions.keys } else { regions.values };
                return in_workspace(tensor.dtype, region, tensor.dims[tensor.dims.len() - 1], self.keys());
            }
            Factor::Operand(place) if self.gathers && !self.matrices[place].shared => {
                let tensor = self.spec.operand(self.matrices[place].index);
                let width = tensor.dims[tensor.dims.len() - 1];
                return in_workspace(tensor.dtype, regions.gathered[place], width, self.rows());
            }
            Factor::Operand(place) => {
                let tensor = self.spec.operand(self.matrices[place].index);
                let offset = part.starts[place];
                let aligned = (offset * tensor.dtype.size()).is_multiple_of(16);
                let width = tensor.dims[tensor.dims.len() - 1];
                let rows = if self.matrices[place].shared { self.shape.keys } else { self.rows() };
                let is_alternating = self.by_query && !self.matrices[place].shared;
                let step =
                    if is_alternating { self.shape.axes.heads } else { None }.unwrap_or(self.shape.axes.positions);
                return Matrix {
                    operand: self.matrices[place].index as u8,
                    offset,
                    dtype: tensor.dtype,
                    // A single row can have any stride; libraries require at least its length.
                    row: if rows == 1 { width } else { tensor.strides[step] },
                    transposed,
                    batch: self.units.strides[place].last().copied().unwrap_or(0),
                    align: if aligned { tensor.align } else { tensor.dtype.size() as u8 },
                };
            }
            Factor::Scores => (self.sums(), 0),
            Factor::Slopes => (self.sums(), regions.slopes),
            Factor::Weights => (self.spec.inputs[0].dtype, regions.weights),
        };
        in_workspace(dtype, region, self.columns(), self.rows())
    }

    /// Returns a kernel with a block for each row of scores.
    fn kernel(&self, part: &Part, name: &str, body: &str) -> Kernel {
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
            u64_param("slopes_at", regions.slopes),
            u64_param("weights_at", regions.weights),
            u64_param("columns", self.columns()),
            u64_param("first", part.first),
            u64_param("member", part.member),
        ]);
        let (before, threads) = self.definitions(&operands, self.shape.keys);
        let held = self.columns().div_ceil(u64::from(threads));
        let before = format!("{before}#define HELD {}\n", if held <= text::MAX_HELD { held } else { 0 });
        let body = format!("{}{body}", text::ROW);
        kernel(name, &before, &params, &body, part.units * self.rows(), threads)
    }

    /// Returns the kernel that copies the keys and values of `units` heads, from number `first` on, and adds keys of
    /// zeros. Each block copies one key.
    fn padding_kernel(&self, first: u64, units: u64) -> Kernel {
        let Shape { size, value_size, .. } = self.shape;
        let operands = [operand(1, "k", true), operand(2, "v", true)];
        let moves = |one: &Operand| in_packs(&self.tensor(one), PACK);
        let pack = if operands.iter().all(moves) { PACK } else { 1 };
        let mut params = self.operand_params(&operands, |_| Some(self.shape.axes));
        let regions = self.regions(self.at_once);
        params.extend(size_params(&self.shape, &[]));
        params.extend([
            param("u8* workspace", Arg::Workspace(regions.end)),
            u64_param("keys_at", regions.keys),
            u64_param("values_at", regions.values),
            u64_param("columns", self.columns()),
            u64_param("first", first),
        ]);
        let (before, threads) = self.definitions(&operands, 4 * size.max(value_size) / pack);
        let before = format!("{before}#define PACK {pack}\n");
        kernel("attention_padding", &before, &params, text::PADDING, units * self.columns(), threads)
    }

    /// Returns the kernel that rounds the sums of the gradients of keys and values of `units` heads, from number
    /// `first` on. Each block rounds those of one key.
    fn rounding_kernel(&self, first: u64, units: u64) -> Kernel {
        let operands: Vec<Operand> =
            self.matrices.iter().copied().filter(|one| one.shared && one.index >= self.spec.inputs.len()).collect();
        let mut params = self.operand_params(&operands, |_| Some(self.shape.axes));
        let regions = self.regions(self.at_once);
        params.extend(size_params(&self.shape, &[]));
        params.extend([
            param("u8* workspace", Arg::Workspace(regions.end)),
            u64_param("key_sums_at", regions.key_sums),
            u64_param("value_sums_at", regions.value_sums),
            u64_param("key_rows", self.keys()),
            u64_param("first", first),
        ]);
        let (before, threads) = self.definitions(&operands, self.shape.size.max(self.shape.value_size));
        kernel("attention_rounding", &before, &params, text::ROUNDING, units * self.shape.keys, threads)
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
        let spec = self.spec;
        let places: String =
            operands.iter().enumerate().map(|(place, one)| format!("#define at_{} {place}\n", one.name)).collect();
        let has = |name: &str| u32::from(operands.iter().any(|one| one.name == name));
        let threads = elements.div_ceil(4).next_power_of_two().clamp(WARP, 8 * WARP);
        let before = format!(
            "{}#define PAGED 0\n#define RAGGED 0\ntypedef {} T;\ntypedef {} C;\n#define THREADS {threads}\n#define OPERANDS {}\n\
             #define GROUP {}\n#define BY_QUERY {}\n#define CAUSAL {}\n#define BIAS {}\n#define DLSE {}\n#define SLOPES {}\n\
             {places}{}{}",
            bounds(threads as u32),
            c_type(spec.inputs[0].dtype),
            c_type(self.sums()),
            operands.len(),
            self.together,
            u32::from(self.by_query),
            self.shape.causal,
            has(BIAS),
            has(DLSE),
            has("slopes"),
            super::text::PLACES,
            text::FUNCTIONS,
        );
        (before, threads as u32)
    }

    /// Returns the cost of all products and kernels together.
    pub fn cost(&self) -> Cost {
        let (spec, shape) = (self.spec, &self.shape);
        let scores = (shape.batch * shape.heads * shape.queries * shape.keys) as f64;
        let (products, passes) = if self.is_backward() { (5.0, 3) } else { (2.0, 1) };
        let sizes = (shape.size + shape.value_size) as f64 / 2.0;
        let of_a_bias = if input(spec, BIAS).is_some() { PER_BIAS } else { 0.0 };
        let units = self.members() * self.units.dims.iter().product::<u64>();
        let flops = |scores: f64| 2.0 * products * scores * sizes;
        Cost {
            flops: flops(shape.pairs()),
            instructions: passes as f64 * (PER_SCORE + of_a_bias) * scores,
            special: passes as f64 * scores,
            read: Spec::bytes_of(&spec.inputs),
            written: Spec::bytes_of(&spec.outputs),
            scratch: Traffic::of(Space::Device, 2 * passes * self.bytes_of(1) * units),
            blocks: (units * self.rows().div_ceil(TILE) * shape.keys.max(shape.value_size).div_ceil(TILE)).max(1),
            share: Cost::WHOLE_UNIT,
            matrix: Some(arithmetic(spec)),
            // The products include the scores of masked keys.
            tiling: Tiling { flops: flops(scores), ..Tiling::default() },
            ..Cost::default()
        }
    }
}

/// A part of the matrices of scores, which is computed at once.
struct Part {
    /// Number of the first head of keys.
    first: u64,
    /// Number of heads of keys.
    units: u64,
    /// Number of the head of queries among those that share a head of keys; 0 if they are one matrix.
    member: u64,
    /// Offset of the first element of each operand in [`Composed::matrices`], in elements.
    starts: Vec<u64>,
}
