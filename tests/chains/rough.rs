//! A device that rounds as GPUs may: the CPU with references that compute in `f32`, sum in another order, fuse
//! multiplications with additions, and have library functions with errors of a few units in the last place.

use std::sync::{Arc, Mutex, PoisonError};

use aorta::backend::host::Host;
use aorta::base::random::hash;
use aorta::base::{DType, Dims};
use aorta::exec::{Backend, DeviceInfo, Driver, ExecError, Image};
use aorta::ops::expression::{Binary, ExprNode, Expression, Unary};
use aorta::ops::{Attrs, Call, Cost, Launch, OpError, Operation, RankMember, Signature, Spec};
use aorta::schedule::Topology;

/// Rounding style of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Style {
    /// Order of sums: 0 from the first, 1 from the last, 2 in blocks, 3 interleaved.
    pub order: u8,
    /// True if multiplications are fused with additions.
    pub fused: bool,
    /// Maximum error of functions, in units in the last place.
    pub sloppy: u8,
    /// True if sums of 16-bit products are truncated, as matrix units do.
    pub cut: bool,
    /// Number of fraction bits that arithmetic keeps, if fewer than the type has: a mistake. `None` for the type's own.
    pub bits: Option<u32>,
}

/// The CPU, rounding in a style.
pub struct Rough(pub Style);

impl Backend for Rough {
    fn name(&self) -> &'static str {
        "rough"
    }

    fn device(&self) -> DeviceInfo {
        Host.device()
    }

    fn topology(&self) -> Topology {
        Host.topology()
    }

    fn open(&self, mut images: Vec<Image>) -> Result<Vec<Box<dyn Driver>>, ExecError> {
        for work in images.iter_mut().flat_map(|image| &mut image.works) {
            // An operation already replaced is a planted mistake and is kept.
            if !work.spec.operation.signature().summary.is_empty() {
                work.spec = Arc::new(roughened(&work.spec, self.0));
            }
        }
        Host.open(images)
    }
}

/// The same operation, computed in a style.
pub fn roughened(spec: &Spec, style: Style) -> Spec {
    static KNOWN: Mutex<Vec<&'static RoughOperation>> = Mutex::new(Vec::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let found = known.iter().find(|one| one.inner == spec.operation && one.style == style);
    let operation = found.copied().unwrap_or_else(|| {
        let inner = spec.operation;
        let signature = Box::leak(Box::new(Signature { summary: "", ..*inner.signature() }));
        let one: &'static RoughOperation = Box::leak(Box::new(RoughOperation { inner, signature, style }));
        known.push(one);
        one
    });
    Spec { operation, ..spec.clone() }
}

/// An operation with another reference. Its empty summary identifies it.
#[derive(Debug)]
struct RoughOperation {
    inner: &'static dyn Operation,
    signature: &'static Signature,
    style: Style,
}

impl Operation for RoughOperation {
    fn signature(&self) -> &'static Signature {
        self.signature
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        self.inner.infer(call)
    }

    fn outputs(&self, attrs: &Attrs, inputs: usize, given: usize) -> usize {
        self.inner.outputs(attrs, inputs, given)
    }

    fn cost(&self, spec: &Spec) -> Cost {
        self.inner.cost(spec)
    }

    fn reference(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        let arithmetic = Arithmetic::of(self.style, spec);
        match self.inner.name() {
            "map" => arithmetic.map(spec, inputs, outputs),
            "softmax" => arithmetic.softmax(spec, inputs, &mut outputs[0]),
            "gemm" => arithmetic.gemm(spec, inputs, &mut outputs[0]),
            "scatter" => arithmetic.scatter(spec, inputs, &mut outputs[0]),
            "route" => {
                self.inner.reference(spec, inputs, outputs);
                arithmetic.weights(spec, inputs, outputs);
            }
            _ => self.inner.reference(spec, inputs, outputs),
        }
    }

    fn exchange(&self, members: &mut [RankMember]) {
        self.inner.exchange(members);
        let reduces = ["all_reduce", "reduce_scatter", "reduce"].contains(&self.inner.name());
        let Some(first) = members.first().filter(|_| reduces) else { return };
        let (dtype, count) = (first.spec.inputs[0].dtype, members.len());
        let op = first.spec.attrs.word("op");
        if !dtype.is_float() || !["sum", "mean", "product"].contains(&op) {
            return;
        }
        // Each partial result is rounded, and the order begins with another rank.
        let begin = usize::from(self.style.order) % count;
        let all: Vec<f64> = (0..first.inputs[0].len())
            .map(|index| {
                let value = |rank: usize| members[(begin + rank) % count].inputs[0][index];
                let join = |sum: f64, value: f64| dtype.round(if op == "product" { sum * value } else { sum + value });
                let sum = (1..count).map(value).fold(value(0), join);
                if op == "mean" { dtype.round(sum * (1.0 / count as f64)) } else { sum }
            })
            .collect();
        let part = all.len() / count;
        for (rank, member) in members.iter_mut().enumerate() {
            let own = match self.inner.name() {
                "reduce_scatter" => &all[rank * part..][..part],
                "reduce" if member.spec.attrs.int("root") as usize != rank => continue,
                _ => &all[..],
            };
            member.outputs[0][..own.len()].copy_from_slice(own);
        }
    }

    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        self.inner.launch(spec)
    }

    fn own_inputs(&self, attrs: &aorta::ops::Attrs) -> Vec<(DType, Dims)> {
        self.inner.own_inputs(attrs)
    }
}

/// Arithmetic in `f32` or `f64`, in a style.
#[derive(Clone, Copy)]
struct Arithmetic {
    style: Style,
    double: bool,
}

/// A value, and the product that it was rounded from if that can be fused.
#[derive(Clone, Copy)]
struct Value {
    rounded: f64,
    product: Option<(f64, f64)>,
}

impl Arithmetic {
    fn of(style: Style, spec: &Spec) -> Arithmetic {
        let wide = |tensor: &aorta::ops::Tensor| tensor.dtype.compute() == DType::F64;
        let double = match spec.operation.name() {
            "map" => spec.inputs.iter().chain(&spec.outputs).any(wide),
            // The second inputs are indices.
            "scatter" => spec.inputs.iter().step_by(2).any(wide),
            _ => spec.inputs.iter().any(wide),
        };
        Arithmetic { style, double }
    }

    /// Rounds to the type, or to fewer bits.
    fn round(self, value: f64) -> f64 {
        let value = if self.double { value } else { f64::from(value as f32) };
        match self.style.bits {
            Some(bits) if value.is_finite() => {
                let half = 1u64 << (51 - bits);
                f64::from_bits((value.to_bits() + half) & !((half << 1) - 1))
            }
            _ => value,
        }
    }

    /// The result of a library function, with an error of some units in the last place.
    fn off(self, value: f64) -> f64 {
        let rounded = self.round(value);
        let ordinary = (1e-37..1e38).contains(&rounded.abs());
        // Whole numbers are exact: 1 as the exponential of 0, and the like.
        if self.style.sloppy == 0 || !ordinary || rounded == value && value.fract() == 0.0 {
            return rounded;
        }
        let range = 2 * i64::from(self.style.sloppy) + 1;
        let steps = (hash(3, rounded.to_bits()) % range as u64) as i64 - i64::from(self.style.sloppy);
        match self.double {
            true => f64::from_bits(rounded.to_bits().wrapping_add_signed(steps)),
            false => f64::from(f32::from_bits((rounded as f32).to_bits().wrapping_add_signed(steps as i32))),
        }
    }

    fn sum(self, terms: &[f64]) -> f64 {
        let add = |sum: f64, term: &f64| self.round(sum + term);
        match self.style.order {
            0 => terms.iter().fold(0.0, add),
            1 => terms.iter().rev().fold(0.0, add),
            2 => terms.chunks(32).map(|block| block.iter().fold(0.0, add)).fold(0.0, |sum, part| add(sum, &part)),
            _ => {
                let part = |lane: usize| terms.iter().skip(lane).step_by(16).fold(0.0, add);
                (0..16).map(part).fold(0.0, |sum, part| add(sum, &part))
            }
        }
    }

    // --- Expressions ------------------------------------------------------------------------------------------

    fn plain(self, value: f64) -> Value {
        Value { rounded: self.round(value), product: None }
    }

    fn unary(self, function: Unary, x: Value) -> Value {
        let x = x.rounded;
        let composed = |value: Value| Value { rounded: value.rounded, product: None };
        match function {
            Unary::Abs
            | Unary::Ceil
            | Unary::Floor
            | Unary::Negate
            | Unary::Not
            | Unary::Relu
            | Unary::Round
            | Unary::Sqrt => self.plain(function.apply(x)),
            Unary::Gelu => {
                let scaled = self.binary(Binary::Multiply, self.plain(x), self.plain(std::f64::consts::FRAC_1_SQRT_2));
                let sum = self.binary(Binary::Add, self.plain(1.0), self.unary(Unary::Erf, composed(scaled)));
                let half = self.binary(Binary::Multiply, self.plain(0.5), self.plain(x));
                composed(self.binary(Binary::Multiply, half, sum))
            }
            Unary::Sigmoid | Unary::Silu => {
                let over = if function == Unary::Silu { x } else { 1.0 };
                let under = self.round(1.0 + self.off((-x).exp()));
                Value { rounded: self.off(over / under), product: None }
            }
            _ => Value { rounded: self.off(function.apply(x)), product: None },
        }
    }

    fn binary(self, function: Binary, x: Value, y: Value) -> Value {
        let (a, b) = (x.rounded, y.rounded);
        let fused = |product: Option<(f64, f64)>, sign: f64, term: f64| {
            product.filter(|_| self.style.fused).map(|(x, y)| match self.double {
                true => (sign * x).mul_add(y, term),
                false => sign * x * y + term,
            })
        };
        let value = match function {
            Binary::Add => fused(x.product, 1.0, b).or(fused(y.product, 1.0, a)).unwrap_or(a + b),
            Binary::Subtract => fused(x.product, 1.0, -b).or(fused(y.product, -1.0, a)).unwrap_or(a - b),
            Binary::Multiply => return Value { rounded: self.round(a * b), product: Some((a, b)) },
            Binary::Remainder => {
                let quotient = self.plain(self.round(a / b).floor());
                let whole = self.binary(Binary::Multiply, y, quotient);
                return self.binary(Binary::Subtract, x, whole);
            }
            Binary::Pow => return Value { rounded: self.off(a.powf(b)), product: None },
            _ => function.apply(a, b),
        };
        self.plain(value)
    }

    /// Values of all nodes for one element.
    fn values(self, expression: &Expression, elements: &[f64], values: &mut Vec<Value>) {
        values.clear();
        for node in expression.nodes() {
            let at = |index: u16| values[usize::from(index)];
            let value = match *node {
                ExprNode::Input(index) => self.plain(elements[usize::from(index)]),
                ExprNode::Constant(index) => self.plain(expression.constants()[usize::from(index)]),
                ExprNode::Unary(function, x) => self.unary(function, at(x)),
                ExprNode::Binary(function, x, y) => self.binary(function, at(x), at(y)),
                ExprNode::Select(condition, yes, no) => {
                    if at(condition).rounded != 0.0 {
                        at(yes)
                    } else {
                        at(no)
                    }
                }
            };
            values.push(value);
        }
    }

    fn map(self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        let Some(expression) = &spec.expression else { return };
        let dims = spec.outputs[0].dims;
        let mut values = Vec::new();
        let mut elements = vec![0.0; inputs.len()];
        for index in 0..outputs[0].len() {
            for ((element, tensor), input) in elements.iter_mut().zip(&spec.inputs).zip(inputs) {
                *element = input[repeated(index, &dims, &tensor.dims)];
            }
            self.values(expression, &elements, &mut values);
            for (output, &node) in outputs.iter_mut().zip(expression.outputs()) {
                output[index] = values[usize::from(node)].rounded;
            }
        }
    }

    // --- Sums -------------------------------------------------------------------------------------------------

    fn softmax(self, spec: &Spec, inputs: &[&[f64]], output: &mut [f64]) {
        let length = spec.inputs[0].dims.last().copied().unwrap_or(1) as usize;
        let scale = self.round(spec.attrs.number("scale"));
        for (row, out) in inputs[0].chunks(length).zip(output.chunks_mut(length)) {
            let scaled: Vec<f64> = row.iter().map(|x| self.round(x * scale)).collect();
            let max = scaled.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let terms: Vec<f64> = scaled.iter().map(|x| self.off(self.round(x - max).exp())).collect();
            let share = self.round(1.0 / self.sum(&terms));
            out.iter_mut().zip(&terms).for_each(|(out, term)| *out = self.round(term * share));
        }
    }

    fn gemm(self, spec: &Spec, inputs: &[&[f64]], output: &mut [f64]) {
        let rank = |tensor: usize| spec.inputs[tensor].dims.len();
        let size = |tensor: usize, from_last: usize| spec.inputs[tensor].dims[rank(tensor) - from_last] as usize;
        let (transpose_a, transpose_b) = (spec.attrs.bool("transpose_a"), spec.attrs.bool("transpose_b"));
        let (m, k) = if transpose_a { (size(0, 1), size(0, 2)) } else { (size(0, 2), size(0, 1)) };
        let n = if transpose_b { size(1, 2) } else { size(1, 1) };
        let tf32 = spec.attrs.word("compute") == "tf32";
        let narrow = tf32 || matches!(spec.inputs[0].dtype, DType::F16 | DType::BF16);
        // Rounds to nearest with ten bits.
        let factor = |x: f64| match tf32 && x.is_finite() {
            true => f64::from_bits((x.to_bits() + (1 << 41)) & !((1 << 42) - 1)),
            false => x,
        };
        let accumulates = spec.attrs.bool("accumulate");
        let factors = spec.inputs.len() - usize::from(accumulates);
        let mut terms = vec![0.0; k];
        for (index, c) in output.chunks_mut(m * n).enumerate() {
            let a = &inputs[0][if rank(0) > 2 { index * m * k } else { 0 }..];
            let b = &inputs[1][if rank(1) > 2 { index * k * n } else { 0 }..];
            for (place, out) in c.iter_mut().enumerate() {
                let (i, j) = (place / n, place % n);
                for (l, term) in terms.iter_mut().enumerate() {
                    let x = if transpose_a { a[l * m + i] } else { a[i * k + l] };
                    let y = if transpose_b { b[j * k + l] } else { b[l * n + j] };
                    *term = factor(x) * factor(y);
                }
                let sum = match narrow && self.style.cut && self.style.bits.is_none() {
                    true => terms.chunks(8).fold(0.0, |sum, part| cut_off(sum + part.iter().sum::<f64>())),
                    false => self.products(&terms),
                };
                let before = accumulates.then(|| inputs[spec.inputs.len() - 1][index * m * n + place]);
                let bias = (factors > 2).then(|| inputs[2][j]);
                let sum = before.into_iter().chain(bias).fold(sum, |sum, term| self.round(sum + term));
                *out = self.finished(spec.attrs.word("epilogue"), sum);
            }
        }
    }

    /// The function of a product's epilogue.
    fn finished(self, epilogue: &str, sum: f64) -> f64 {
        let value = self.plain(sum);
        match epilogue {
            "relu" => self.unary(Unary::Relu, value).rounded,
            "gelu" => self.unary(Unary::Gelu, value).rounded,
            "silu" => self.unary(Unary::Silu, value).rounded,
            "gelu_tanh" => {
                let cubic = self.round(0.044_715 * self.round(sum * self.round(sum * sum)));
                let inner = self.round(std::f64::consts::FRAC_2_PI.sqrt() * self.round(sum + cubic));
                self.round(0.5 * sum * self.round(1.0 + self.off(inner.tanh())))
            }
            _ => sum,
        }
    }

    /// A sum of products, which are rounded first unless they are fused.
    fn products(self, terms: &[f64]) -> f64 {
        match self.style.fused {
            true => self.sum(terms),
            false => self.sum(&terms.iter().map(|term| self.round(*term)).collect::<Vec<_>>()),
        }
    }

    fn scatter(self, spec: &Spec, inputs: &[&[f64]], output: &mut [f64]) {
        let rows = spec.outputs[0].dims[0] as usize;
        let inner = output.len() / rows;
        let add = spec.attrs.word("combine") == "add";
        output.fill(0.0);
        for (place, &index) in inputs[1].iter().enumerate().filter(|(_, index)| (0.0..rows as f64).contains(*index)) {
            let weight = inputs.get(2).map_or(1.0, |weights| weights[place]);
            let to = &mut output[index as usize * inner..][..inner];
            for (to, x) in to.iter_mut().zip(&inputs[0][place * inner..]) {
                let sum = if add { *to } else { 0.0 };
                let term = if self.style.fused { weight * x } else { self.round(weight * x) };
                *to = self.round(sum + term);
            }
        }
    }

    fn weights(self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        // The weights are those of the probabilities themselves, and nothing else decides on a row's experts.
        let plain = spec.attrs.word("scores") == "given" && spec.attrs.int("groups") == 1 && spec.inputs.len() == 1;
        if !spec.attrs.bool("normalize") || !plain {
            return;
        }
        let (experts, k) = (spec.inputs[0].dims[1] as usize, spec.attrs.int("k") as usize);
        let capacity = spec.attrs.int("capacity") as usize;
        let [slots, weights, _] = outputs else { unreachable!("a route has three outputs") };
        for (place, (slot, weight)) in slots.iter().zip(weights).enumerate().filter(|(_, (slot, _))| **slot >= 0.0) {
            let row = &inputs[0][*slot as usize * experts..][..experts];
            let mut order: Vec<usize> = (0..experts).collect();
            let key = |e: &usize| (!row[*e].is_nan(), -row[*e]);
            order.sort_by(|a, b| key(a).partial_cmp(&key(b)).unwrap_or(std::cmp::Ordering::Equal));
            let terms: Vec<f64> = order[..k].iter().map(|e| row[*e]).collect();
            *weight = self.round(row[place / capacity] / self.sum(&terms));
        }
    }
}

/// Truncates a sum as a matrix unit does.
fn cut_off(sum: f64) -> f64 {
    if sum.is_finite() { f64::from_bits(sum.to_bits() & !((1 << 29) - 1)) } else { sum }
}

/// Offset of the element of a walk over `dims` in a tensor that is broadcast along some of them.
fn repeated(mut index: usize, dims: &Dims, own: &Dims) -> usize {
    let (mut offset, mut stride) = (0, 1);
    for (axis, &size) in dims.iter().enumerate().rev() {
        let at = index % size as usize;
        index /= size as usize;
        if let Some(axis) = (axis + own.len()).checked_sub(dims.len()) {
            if own[axis] == size {
                offset += at * stride;
            }
            stride *= own[axis] as usize;
        }
    }
    offset
}
