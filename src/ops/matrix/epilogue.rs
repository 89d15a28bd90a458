//! Epilogue of a product: the terms added to its sums, and the function applied to the result.

use super::super::expression::{Expression, Unary};
use super::super::layout::broadcast_strides;
use super::super::{Activation, Epilogue, Kernel, Launch, Spec};
use super::factors;
use crate::base::{DType, Dims, random};
use crate::ops::expression::ball::{FUNCTION, Precision};
use crate::ops::expression::formula::{Formula, Term};
use crate::ops::kernels::walk::{self, Operand, Task};

/// Values of the option `epilogue`, in the order of [`Function`].
pub const NAMES: [&str; 5] = ["none", "relu", "gelu", "gelu_tanh", "silu"];

/// Function that an epilogue applies to a sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    Identity,
    Relu,
    /// The exact GELU, by the error function, as in expressions.
    Gelu,
    /// `0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³)))` (Hendrycks and Gimpel, "Gaussian error linear units", 2016).
    GeluTanh,
    Silu,
}

/// The computation after the sums of a `gemm`: `c = function(sum + c + bias)`.
#[derive(Clone, Copy, Debug)]
pub struct Finish {
    /// Index of the input with the bias, a row that is added to each row of the result; `None` without a bias.
    pub bias: Option<usize>,
    /// Index of the input with the previous contents of the output, which are added; `None` unless the product
    /// accumulates.
    pub before: Option<usize>,
    pub function: Function,
}

/// Sum of the terms that an epilogue adds to each element of a product.
#[derive(Clone, Debug)]
pub struct Added {
    pub sums: Vec<f64>,
    /// Sum of the absolute values of these terms, for each element.
    pub sizes: Vec<f64>,
}

/// Upper bound on the slope of every epilogue function: that of GELU reaches 1.129 at √2, that of SiLU 1.0998 at
/// 2.3994.
const SLOPE: f64 = 1.13;

/// Relative error of the `tanh` of NVIDIA's special-function unit (PTX ISA, `tanh.approx.f32`: 2⁻¹¹). Products with
/// 16-bit results may use it.
const TANH: f64 = 1.0 / 2048.0;

impl Finish {
    /// Returns the steps after the sums of a call.
    pub fn of(spec: &Spec) -> Finish {
        let accumulates = spec.attrs.bool("accumulate");
        let inputs = spec.inputs.len();
        let factors = factors(spec);
        Finish {
            bias: (inputs - usize::from(accumulates) > factors).then_some(factors),
            before: accumulates.then(|| inputs - 1),
            function: Function::of_word(spec),
        }
    }

    /// Returns steps that apply a function to the sums without adding terms.
    pub fn of_sums(function: Function) -> Finish {
        Finish { bias: None, before: None, function }
    }

    /// True if a bias or a function follows the sums. If a separate kernel computes it, the sums are rounded to the
    /// type of `c` first.
    pub fn has_epilogue(&self) -> bool {
        self.bias.is_some() || self.function != Function::Identity
    }

    /// Returns the terms that are added to product `index` of a batch, which has `size` elements in rows of `columns`;
    /// `None` if there are no terms.
    pub fn added(&self, inputs: &[&[f64]], (index, size, columns): (usize, usize, usize)) -> Option<Added> {
        let before = self.before.map(|input| &inputs[input][index * size..][..size]);
        let bias = self.bias.map(|input| inputs[input]);
        if before.is_none() && bias.is_none() {
            return None;
        }
        let terms = |place: usize| {
            let before = before.map_or(0.0, |before| before[place]);
            let bias = bias.map_or(0.0, |bias| bias[place % columns]);
            [before, bias]
        };
        let sums = (0..size).map(|place| terms(place).iter().sum()).collect();
        let sizes = (0..size).map(|place| terms(place).iter().map(|term| term.abs()).sum()).collect();
        Some(Added { sums, sizes })
    }

    /// Returns the function of a sum.
    pub fn apply(&self, sum: f64) -> f64 {
        match self.function {
            Function::Identity => sum,
            Function::Relu => Unary::Relu.apply(sum),
            Function::Gelu => Unary::Gelu.apply(sum),
            Function::GeluTanh => {
                let inner = SCALE * (sum + CUBIC * sum * sum * sum);
                0.5 * sum * (1.0 + inner.tanh())
            }
            Function::Silu => Unary::Silu.apply(sum),
        }
    }

    /// Returns an upper bound on the error of a result of type `output` if its sum differs from `sum` by at most
    /// `radius`. The function is computed in the type `compute`.
    pub fn radius(&self, (compute, output): (DType, DType), sum: f64, radius: f64) -> f64 {
        let precision = Precision::of(compute);
        let rounded = 2.0 * FUNCTION * precision.unit() * sum.abs() + precision.smallest();
        match self.function {
            Function::Identity | Function::Relu => radius,
            Function::GeluTanh if output.size() == 2 => SLOPE * radius + rounded + TANH * 0.5 * sum.abs(),
            _ => SLOPE * radius + rounded,
        }
    }

    /// Returns the epilogue as an expression of an element of `c` and, with a bias, of an element of the bias.
    pub fn expression(&self) -> Expression {
        let terms = 1 + u8::from(self.bias.is_some());
        self.expression_of(terms)
    }

    /// Returns the function of the sum of this many inputs as an expression.
    fn expression_of(&self, terms: u8) -> Expression {
        let formula = Formula::default();
        let sum = (1..terms).fold(formula.input(0), |sum, term| sum + formula.input(term));
        formula.with_outputs([self.function.of(sum)])
    }

    /// Returns kernel text that defines the function `finished`: the epilogue of a sum `x0` and, with a bias, of its
    /// element `x1`, in the type `C`.
    pub fn function_text(&self) -> String {
        let expression = self.expression();
        let constants = expression.constants().iter().enumerate();
        let constants: String =
            constants.map(|(index, value)| format!("  const C c{index} = C({value:e});\n")).collect();
        let bias = if self.bias.is_some() { ", C x1" } else { "" };
        format!("__device__ inline C finished(C x0{bias}) {{\n{constants}{}}}\n", expression.c_text())
    }

    /// Returns the epilogue if the vendors' libraries can compute it with the product; `None` if they cannot, or
    /// without an epilogue. The library may still have no algorithm for the product.
    pub fn in_library(&self, spec: &Spec) -> Option<Epilogue> {
        let output = spec.outputs[0].dtype;
        let function = match self.function {
            Function::Identity => Activation::Identity,
            Function::Relu => Activation::Relu,
            Function::GeluTanh if output.size() == 2 => Activation::GeluTanh,
            _ => return None,
        };
        // cuBLASLt does not add an `f32` bias to products of 8-bit floats.
        let wide = spec.inputs[0].dtype.size() == 1 && output == DType::F32;
        let fits = |input: usize| {
            let bias = &spec.inputs[input];
            bias.contiguous() && bias.align >= 16 && !wide
        };
        let possible = self.has_epilogue() && output != DType::F64 && self.bias.is_none_or(fits);
        possible.then(|| Epilogue { bias: self.bias.map(|input| input as u8), function })
    }

    /// Returns the kernel that applies the epilogue to the sums in the output; `None` without an epilogue.
    pub fn kernel(&self, spec: &Spec) -> Option<Kernel> {
        let output = &spec.outputs[0];
        let sums = Operand::of(spec.inputs.len(), output, output.strides);
        if self.has_epilogue() { self.kernel_of(spec, sums, None) } else { None }
    }

    /// Returns the kernel that adds the previous contents of the output and the bias to sums in the workspace, applies the function,
    /// and writes the output.
    pub fn kernel_of_workspace(&self, spec: &Spec, sums: Operand) -> Option<Kernel> {
        self.kernel_of(spec, sums, self.before)
    }

    /// Returns the work of the kernel of [`Finish::kernel_of_workspace`].
    pub fn work_of_workspace(&self, spec: &Spec, sums: Operand) -> walk::Work {
        let inputs: Vec<Operand> = std::iter::once(sums).chain(self.added_operands(spec, self.before)).collect();
        let expression = self.expression_of(inputs.len() as u8);
        walk::work(&[Self::task(spec, &expression, inputs)])
    }

    /// Returns the kernel of [`Finish::kernel_of_workspace`] for sums of several parts of the depth. The kernel also
    /// adds the parts, and multiplies the totals by the scaling factors of rows and columns.
    pub fn kernel_of_parts(&self, spec: &Spec, parts: Vec<Operand>) -> Option<Kernel> {
        let output = &spec.outputs[0];
        let count = parts.len() as u8;
        let [rows, columns] = [2, 3].map(|input| &spec.inputs[input]);
        let of_rows = Dims::from([rows.strides[0], 0]);
        let scales = [Operand::of(2, rows, of_rows), Operand::of(3, columns, broadcast_strides(columns, output.dims))];
        let added: Vec<Operand> = self.added_operands(spec, self.before).collect();
        let formula = Formula::default();
        let sum = (1..count).fold(formula.input(0), |sum, part| sum + formula.input(part));
        let scaled = sum * formula.input(count) * formula.input(count + 1);
        let terms = (0..added.len() as u8).fold(scaled, |sum, term| sum + formula.input(count + 2 + term));
        let expression = formula.with_outputs([self.function.of(terms)]);
        Self::walk(spec, &expression, parts.into_iter().chain(scales).chain(added).collect())
    }

    /// Returns the tensors that are added to the sums: the previous contents of the output, and the bias.
    fn added_operands(&self, spec: &Spec, before: Option<usize>) -> impl Iterator<Item = Operand> {
        [before, self.bias].into_iter().flatten().map(|input| {
            let tensor = &spec.inputs[input];
            Operand::of(input, tensor, broadcast_strides(tensor, spec.outputs[0].dims))
        })
    }

    fn kernel_of(&self, spec: &Spec, sums: Operand, before: Option<usize>) -> Option<Kernel> {
        let inputs: Vec<Operand> = std::iter::once(sums).chain(self.added_operands(spec, before)).collect();
        Self::walk(spec, &self.expression_of(inputs.len() as u8), inputs)
    }

    /// Returns the kernel that writes an expression of these inputs to the output.
    fn walk(spec: &Spec, expression: &Expression, inputs: Vec<Operand>) -> Option<Kernel> {
        let compute = spec.outputs[0].dtype.compute();
        match walk::launch_all("gemm_epilogue", &[Self::task(spec, expression, inputs)], compute) {
            Launch::Kernel(kernel) => Some(kernel),
            _ => None,
        }
    }

    /// Returns the task that writes an expression of these inputs to the output.
    fn task<'a>(spec: &Spec, expression: &'a Expression, inputs: Vec<Operand>) -> Task<'a> {
        let output = &spec.outputs[0];
        let outputs = vec![Operand::of(spec.inputs.len(), output, output.strides)];
        Task { expression, dims: output.dims, outputs, inputs }
    }
}

/// Number of points at which functions are compared.
const POINTS: u64 = 96;
/// Maximum difference of equal functions: a few roundings of `f32`.
const ALIKE: f64 = 1e-7;

/// Returns the name of the epilogue that equals this expression of the sum of its inputs; `None` if there is none. The
/// expression can be written in any form, because values are compared.
pub fn epilogue_of(expression: &Expression, inputs: usize) -> Option<&'static str> {
    let functions = [Function::Identity, Function::Relu, Function::Gelu, Function::GeluTanh, Function::Silu];
    let mut possible: Vec<_> = NAMES.into_iter().zip(functions.map(Finish::of_sums)).collect();
    let mut room = Vec::new();
    for point in 0..POINTS {
        let draw = |input: usize| 3.0 * f64::from(random::bell(point, input as u64));
        let terms: Vec<f64> = (0..inputs).map(draw).collect();
        let slices: Vec<&[f64]> = terms.chunks(1).collect();
        let (value, sum) = (expression.evaluate(1, &slices, &mut room)[0], terms.iter().sum::<f64>());
        possible.retain(|(_, finish)| (finish.apply(sum) - value).abs() <= ALIKE * sum.abs().max(1.0));
    }
    possible.first().map(|(name, _)| *name)
}

/// √(2/π), a factor of the approximation of GELU.
const SCALE: f64 = 0.797_884_560_802_865_4;
/// Factor of the cube in the approximation of GELU.
const CUBIC: f64 = 0.044_715;

impl Function {
    /// Returns the function that the option `epilogue` names.
    pub fn of_word(spec: &Spec) -> Function {
        match spec.attrs.word("epilogue") {
            "relu" => Function::Relu,
            "gelu" => Function::Gelu,
            "gelu_tanh" => Function::GeluTanh,
            "silu" => Function::Silu,
            _ => Function::Identity,
        }
    }

    /// Returns the function of a term.
    pub fn of(self, x: Term<'_>) -> Term<'_> {
        match self {
            Function::Identity => x,
            Function::Relu => x.relu(),
            Function::Gelu => x.apply(Unary::Gelu),
            Function::GeluTanh => {
                let (cubic, one) = (CUBIC * x.square(), x.constant(1.0));
                let stretch = one + cubic;
                let (scaled, half) = (SCALE * x, 0.5 * x);
                half * (one + (scaled * stretch).apply(Unary::Tanh))
            }
            Function::Silu => x.apply(Unary::Silu),
        }
    }
}
