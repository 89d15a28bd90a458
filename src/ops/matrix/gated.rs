//! Gated epilogues: a function of the first half of a product's columns times the second half, as in SwiGLU (Shazeer, "GLU variants
//! improve Transformer", 2020).
//!
//! The vendors' libraries do not support them. The product writes its sums to a second output, and one generated kernel
//! reads both halves of the sums. The gradients use the sums too.

use super::super::elementwise;
use super::super::expression::Expression;
use super::super::*;
use super::epilogue::Function;
use crate::base::{DType, Dims};
use crate::ops::expression::formula::Formula;
use crate::ops::kernels::kernel::compute_type;
use crate::ops::kernels::walk::{self, Operand as Walked, Task};

/// Values of the option `epilogue` with a gate.
const GATED: [(&str, Function); 4] = [
    ("swiglu", Function::Silu),
    ("geglu", Function::Gelu),
    ("geglu_tanh", Function::GeluTanh),
    ("reglu", Function::Relu),
];

/// Values of the option `epilogue`, including those of [`super::epilogue::NAMES`].
pub const NAMES: [&str; 9] =
    ["none", "relu", "gelu", "gelu_tanh", "silu", GATED[0].0, GATED[1].0, GATED[2].0, GATED[3].0];

/// Description of the implementation, for tables.
pub const IMPLEMENTATION: &str = "the product writes its sums, and a generated kernel behind it computes the gate";

/// The gated epilogue of a product.
#[derive(Clone, Copy, Debug)]
pub struct Gate {
    function: Function,
    /// Input number of the bias, a row that is added to the sums; `None` without a bias.
    bias: Option<usize>,
    /// Number of inputs of the product itself.
    factors: usize,
}

/// Returns the function of the gate that the options name; `None` without a gate.
pub fn function(attrs: &Attrs) -> Option<Function> {
    // The outputs of an invalid call are counted too; some of its options may be missing.
    let word = attrs.find_word("epilogue")?;
    GATED.iter().find(|(name, _)| *name == word).map(|(_, function)| *function)
}

impl Gate {
    /// Returns the gate of a product that has `factors` inputs before the bias; `None` without a gate.
    pub fn of(spec: &Spec, factors: usize) -> Option<Gate> {
        let function = function(&spec.attrs)?;
        Some(Gate { function, bias: (spec.inputs.len() > factors).then_some(factors), factors })
    }

    /// Returns the types and shapes of both outputs, given those of the sums.
    pub fn outputs(call: &Call, (dtype, dims): (DType, Dims)) -> Result<Vec<(DType, Dims)>, OpError> {
        let last = dims.len() - 1;
        if dims[last] % 2 != 0 {
            let why = format!("the product has {} columns, an odd number, and a gate needs two halves", dims[last]);
            let help = "`b` has the columns of the gate, and behind them as many that are gated".to_owned();
            return Err(call.bad_option("epilogue", why, help));
        }
        let mut half = dims;
        half.set(last, dims[last] / 2);
        Ok(vec![call.output(0, dtype, half)?, call.output(1, dtype, dims)?])
    }

    /// Returns the spec of the product without its epilogue. Its output is the second output, the sums.
    pub fn sums(&self, spec: &Spec) -> Spec {
        let attrs = spec.attrs.with("epilogue", Attr::Word("none"));
        let inputs = spec.inputs[..self.factors].to_vec();
        Spec { attrs, inputs, outputs: vec![spec.outputs[1]], ..spec.clone() }
    }

    /// Returns the result as an expression of an element of each half of the sums and, with a bias, of each half of the
    /// bias.
    fn expression(&self) -> Expression {
        let formula = Formula::default();
        let [mut gate, mut up] = formula.inputs();
        if self.bias.is_some() {
            let [of_gate, of_up] = [2, 3].map(|input| formula.input(input));
            (gate, up) = (gate + of_gate, up + of_up);
        }
        formula.with_outputs([self.function.of(gate) * up])
    }

    /// Returns the epilogue as an elementwise operation on inputs without gaps.
    fn elements(&self, spec: &Spec) -> Spec {
        let output = &spec.outputs[0];
        let tensor = |dtype: DType, dims: Dims| Tensor { dtype, dims, strides: dims.contiguous_strides(), ..*output };
        let row = output.dims.part(output.dims.len() - 1..);
        let mut inputs = vec![tensor(spec.outputs[1].dtype, output.dims); 2];
        inputs.extend(self.bias.iter().flat_map(|&bias| [tensor(spec.inputs[bias].dtype, row); 2]));
        Spec { inputs, outputs: vec![tensor(output.dtype, output.dims)], ..spec.clone() }
    }

    /// Returns the first and second half of each row of the sums and, with a bias, of the bias.
    fn values(&self, spec: &Spec, inputs: &[&[f64]], sums: &[f64]) -> Vec<Vec<f64>> {
        let columns = spec.outputs[1].dims.last().copied().unwrap_or(1) as usize;
        let half = |values: &[f64], part: usize| -> Vec<f64> {
            values.chunks(columns).flat_map(|row| row[part * columns / 2..][..columns / 2].to_vec()).collect()
        };
        let mut all: Vec<Vec<f64>> = [0, 1].map(|part| half(sums, part)).into();
        all.extend(self.bias.iter().flat_map(|&bias| [0, 1].map(|part| half(inputs[bias], part))));
        all
    }

    /// Returns the cost of the product with the arithmetic and traffic of the epilogue's kernel.
    pub fn cost(&self, spec: &Spec, product: Cost) -> Cost {
        let own = elementwise::cost(&self.expression(), &self.elements(spec));
        Cost {
            flops: product.flops + own.flops,
            written: product.written + own.written,
            reread: product.reread + own.read,
            ..product
        }
    }

    /// Computes the first output from the sums, after rounding these to the type of the second output.
    pub fn apply(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        let [result, sums] = outputs else { return };
        sums.iter_mut().for_each(|sum| *sum = spec.outputs[1].dtype.round(*sum));
        self.apply_exactly(spec, inputs, result, sums);
    }

    fn apply_exactly(&self, spec: &Spec, inputs: &[&[f64]], result: &mut Vec<f64>, sums: &[f64]) {
        let values = self.values(spec, inputs, sums);
        let values: Vec<&[f64]> = values.iter().map(Vec::as_slice).collect();
        elementwise::evaluate(&self.expression(), &self.elements(spec), &values, std::slice::from_mut(result));
    }

    /// Returns the error bounds of the first output if the sums differ from `sums` by at most `radii`.
    fn enclose(&self, spec: &Spec, inputs: &[&[f64]], (sums, radii): (&[f64], &[f64])) -> Vec<f64> {
        let all = self.values(spec, inputs, sums);
        let off = self.values(spec, &[], radii);
        let (compute, output) = (compute_type(spec), spec.outputs[0].dtype);
        let finish = super::Finish::of_sums(self.function);
        let columns = spec.outputs[0].dims.last().copied().unwrap_or(1) as usize;
        let bias = |half: usize, place: usize| self.bias.map_or(0.0, |_| all[2 + half][place % columns]);
        let one = |place: usize| {
            let (gate, up) = (all[0][place] + bias(0, place), all[1][place] + bias(1, place));
            let rounded = compute.epsilon() * (gate.abs() + up.abs());
            let (of_gate, of_up) = (off[0][place] + rounded, off[1][place] + rounded);
            let open = finish.radius((compute, output), gate, of_gate);
            let value = finish.apply(gate);
            open * (up.abs() + of_up) + (value.abs() + open) * of_up + 4.0 * compute.epsilon() * (value * up).abs()
        };
        (0..all[0].len()).map(one).collect()
    }

    /// Returns the tolerances of both outputs; `of_sums` returns those of the sums.
    pub fn enclosed(
        &self,
        spec: &Spec,
        inputs: &[&[f64]],
        outputs: &mut [Vec<f64>],
        of_sums: Vec<Tolerance>,
    ) -> Vec<Tolerance> {
        if let [result, sums] = outputs {
            // `of_sums` includes the rounding of the sums.
            self.apply_exactly(spec, inputs, result, sums);
        }
        let exact = vec![0.0; outputs[1].len()];
        let radii = match of_sums.first() {
            Some(Tolerance::Within(radii)) => radii,
            _ => &exact,
        };
        let own = self.enclose(spec, inputs, (&outputs[1], radii));
        [Tolerance::Within(own)].into_iter().chain(of_sums).collect()
    }

    /// Compares the first output with the epilogue of the sums that the device wrote.
    pub fn check(&self, spec: &Spec, inputs: &[&[f64]], actual: &[Vec<f64>]) -> Check {
        let values = self.values(spec, inputs, &actual[1]);
        let values: Vec<&[f64]> = values.iter().map(Vec::as_slice).collect();
        elementwise::compare(&self.expression(), &self.elements(spec), &values, &actual[..1]).swap_remove(0)
    }

    /// Returns the launches of the product, which writes its sums to the second output, followed by the epilogue's
    /// kernel.
    pub fn launch(&self, spec: &Spec, product: Vec<Launch>) -> Vec<Launch> {
        let inputs = spec.inputs.len();
        // In the spec of the product alone, the output follows its own inputs directly.
        let number = |operand: u8| if usize::from(operand) == self.factors { inputs as u8 + 1 } else { operand };
        let numbers: Vec<u8> = (0..=self.factors as u8).map(number).collect();
        let to_sums = |launch: Launch| launch.with_operands(&numbers);
        let (output, sums, expression) = (&spec.outputs[0], &spec.outputs[1], self.expression());
        let (last, half) = (output.dims.len() - 1, output.dims[output.dims.len() - 1]);
        let both = |operand: Walked, axis: usize| [0, half].map(|from| operand.cut(axis, from, half));
        let mut operands = both(Walked::of(inputs + 1, sums, sums.strides), last).to_vec();
        if let Some(bias) = self.bias {
            let tensor = &spec.inputs[bias];
            // Uses the strides of a row with half as many columns.
            let mut row = *tensor;
            row.dims.set(0, half);
            operands.extend(both(Walked::of(bias, tensor, broadcast_strides(&row, output.dims)), 0));
        }
        let task = Task {
            expression: &expression,
            dims: output.dims,
            outputs: vec![Walked::of(inputs, output, output.strides)],
            inputs: operands,
        };
        let kernel = walk::launch_all("gated_epilogue", &[task], compute_type(spec));
        product.into_iter().map(to_sums).chain([kernel]).collect()
    }

    /// Returns the gradient of both halves of the sums from that of the result.
    pub fn backward(&self, rule: &mut Backward, gradient: backward::TensorId) -> Result<backward::TensorId, NoRule> {
        if rule.given(1).is_some() {
            return Err("the sums of a gated product have no gradient of their own: write the product and `map`");
        }
        let sums = rule.output(1);
        let (dims, dtype) = (rule.tape.dims(sums), rule.tape.dtype(sums));
        let last = dims.len() - 1;
        let (mut half, mut start) = (dims, dims);
        half.set(last, dims[last] / 2);
        (0..dims.len()).for_each(|axis| start.set(axis, 0));
        let mut behind = start;
        behind.set(last, dims[last] / 2);
        let mut operands: Vec<backward::TensorId> =
            [start, behind].map(|start| rule.tape.slice(sums, start, half)).into();
        if let Some(bias) = self.bias {
            let row = Dims::from([dims[last] / 2]);
            let bias = rule.input(bias);
            for from in [0, dims[last] / 2] {
                let start = Dims::from([from]);
                operands.push(rule.tape.slice(bias, start, row));
            }
        }
        operands.push(gradient);
        let expression = self.expression();
        let slopes = crate::ops::expression::derivative::Derivatives::of(&expression, operands.len() - 1, &[true], 1.0)
            .ok_or("its epilogue has no derivative")?;
        let (expression, used) = slopes.select(&[0, 1]);
        let operands: Vec<backward::TensorId> = used.iter().map(|&place| operands[place]).collect();
        let found = rule.tape.scratch(dtype, dims);
        let outputs = [start, behind].map(|start| rule.tape.slice(found, start, half));
        rule.tape.map(expression, &operands, &outputs);
        Ok(found)
    }
}
