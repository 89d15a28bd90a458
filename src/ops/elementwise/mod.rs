//! Elementwise operations, with one generated kernel each.

pub(super) mod dropout;
pub(super) mod optimizers;
pub(super) mod rope;
pub(super) mod short_rows;
pub(super) mod triad;

use crate::ops::kernels::walk;
use std::ops::Range;

use crate::base::units::Dimension;

use super::expression::ball::Precision;
use super::kernels::kernel::{BLOCK, compute_type};
use super::kernels::occupancy::gap_bytes;
use super::kernels::walk::{Operand, Task};
use super::layout::{broadcast, broadcast_strides};
use super::*;
use short_rows::ShortRows;

/// `map(expression, …)`.
pub struct Map;

/// Names of the outputs of expressions: one for each.
pub(super) const OUTPUTS: [&str; 8] = ["y", "y2", "y3", "y4", "y5", "y6", "y7", "y8"];

impl Operation for Map {
    fn elements(&self, spec: &Spec) -> Option<Expression> {
        spec.expression.as_deref().cloned()
    }

    signature! {
        name: "map",
        summary: "evaluates one or more elementwise expressions in one fused kernel, with broadcasting",
        category: Category::Elementwise,
        inputs: &[Input::Expressions],
        outputs: &OUTPUTS,
        options: &[],
    }

    fn properties(&self) -> &'static [Property] {
        &[Property::InPlace, Property::OnHost]
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        let outputs = 0..call.outputs.len();
        if call.inputs.is_empty() {
            // Without a tensor in the expressions, the outputs determine the shape.
            let Some(first) = call.outputs[0] else { return Err(nothing_named(call)) };
            let fill = |output: usize| match call.given_dtype(output) {
                Some(dtype) => call.output(output, dtype, first.tensor.dims),
                None => Err(nothing_named(call)),
            };
            return outputs.map(fill).collect();
        }
        let (_, inputs) = call.broadcast()?;
        // The result is repeated along the dimensions of a larger output.
        let given = call.outputs[0].map(|output| output.tensor.dims);
        let dims = given.filter(|&given| broadcast(inputs, given) == Some(given)).unwrap_or(inputs);
        let own = |output: usize| match call.expression.map_or(Vec::new(), |expression| expression.inputs_of(output)) {
            none if none.is_empty() => (0..call.inputs.len()).collect(),
            own => own,
        };
        let promoted = |output: usize| {
            let dtypes = own(output).into_iter().map(|input| call.inputs[input].tensor.dtype);
            dtypes.reduce(DType::promote).expect("an input is named")
        };
        let one = |output: usize| {
            let dtype = call.given_dtype(output).unwrap_or_else(|| promoted(output));
            call.output(output, dtype, dims)
        };
        outputs.map(one).collect()
    }

    fn outputs(&self, _: &Attrs, inputs: usize, _: usize) -> usize {
        inputs.clamp(1, OUTPUTS.len())
    }

    fn pieces(&self, spec: &Spec) -> Option<Pieces> {
        check::same_elements(spec).or_else(|| check::broadcast_rows(spec))
    }

    fn backward(&self, rule: &mut Backward) -> Result<(), NoRule> {
        backward::map(rule)
    }
}

/// `cast(x -> y)`.
pub struct Cast;

impl Operation for Cast {
    fn elements(&self, _: &Spec) -> Option<Expression> {
        Some(Expression::identity())
    }

    signature! {
        name: "cast",
        summary: "converts to another element type: floats round to nearest even, integers truncate and saturate",
        category: Category::Elementwise,
        inputs: &[Input::Tensor("x")],
        outputs: &["y"],
        options: &[OptionSpec::absent("to", OptionType::DType, "the element type, where no output is given")],
    }

    fn properties(&self) -> &'static [Property] {
        &[Property::OnHost]
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        let Some(dtype) = call.attrs.dtype("to").or(call.given_dtype(0)) else {
            return Err(call.no_output("write `cast(x -> y)`, or `cast(x, to: f16)` for scratch memory"));
        };
        Ok(vec![call.output(0, dtype, call.inputs[0].tensor.dims)?])
    }

    fn backward(&self, rule: &mut Backward) -> Result<(), NoRule> {
        backward::same_elements(rule)
    }
}

/// `fill(value -> x)`.
pub struct Fill;

impl Operation for Fill {
    fn elements(&self, spec: &Spec) -> Option<Expression> {
        Some(Expression::constant(spec.attrs.number("value")))
    }

    signature! {
        name: "fill",
        summary: "sets every element to one value",
        category: Category::Elementwise,
        inputs: &[Input::Scalar(OptionSpec::required("value", OptionType::Number(Dimension::NONE), "the value"))],
        outputs: &["x"],
        options: &[],
    }

    fn properties(&self) -> &'static [Property] {
        &[Property::OnHost]
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        match call.outputs[0] {
            Some(output) => Ok(vec![(output.tensor.dtype, output.tensor.dims)]),
            None => Err(call.no_output("write `fill(0 -> x)`")),
        }
    }

    fn backward(&self, _: &mut Backward) -> Result<(), NoRule> {
        Ok(())
    }
}

/// Instructions per element of whole numbers that a kernel reads: extraction and conversion; and that it writes: three comparisons with
/// their selections, conversion, and insertion.
const PER_WHOLE_READ: u32 = 2;
const PER_WHOLE_WRITTEN: u32 = 9;

/// Returns the cost of evaluating an expression for each element of the outputs.
pub(super) fn cost(expression: &Expression, spec: &Spec) -> Cost {
    let tasks = [task(expression, spec)];
    let work = ShortRows::of(&tasks[0]).map_or_else(|| walk::work(&tasks), |rows| rows.work());
    cost_with(expression, spec, work)
}

/// Returns the cost of evaluating an expression for each element of the outputs by kernels with this work.
pub(super) fn cost_with(expression: &Expression, spec: &Spec, work: walk::Work) -> Cost {
    let each = |count: u32| f64::from(count) * spec.outputs[0].elements() as f64;
    let whole = |tensors: &[Tensor]| tensors.iter().filter(|tensor| !tensor.dtype.is_float()).count() as u32;
    // A constant is converted once.
    let written = if spec.inputs.is_empty() { 0 } else { whole(&spec.outputs) };
    let read = whole(&spec.inputs);
    Cost {
        instructions: each(expression.instructions() + PER_WHOLE_READ * read + PER_WHOLE_WRITTEN * written)
            + work.instructions,
        // Special-function units convert numbers.
        special: each(expression.special() + read + written),
        sectors: work.sectors,
        moved: spec.inputs.iter().map(|input| gap_bytes(input, false)).sum::<u64>()
            + spec.outputs.iter().map(|output| gap_bytes(output, true)).sum::<u64>(),
        ..spec.streaming_cost(each(expression.flops()), u64::from(BLOCK) * 4)
    }
}

/// Elements evaluated at a time on the CPU.
const EVALUATED_AT_ONCE: usize = 256;

/// Visits the elements of a shape in groups. `work` receives their indices and, for each input, their values; `inputs`
/// holds the values of the tensors.
pub(super) fn visit_groups(
    dims: Dims,
    tensors: &[Tensor],
    inputs: &[&[f64]],
    count: usize,
    mut work: impl FnMut(Range<usize>, &[&[f64]]),
) {
    let walk = |input: &Tensor| {
        // The reference's inputs are contiguous.
        let packed = Tensor { strides: input.dims.contiguous_strides(), ..*input };
        (input.dims != dims).then(|| layout::offsets(dims, broadcast_strides(&packed, dims)))
    };
    let mut walks: Vec<_> = tensors.iter().map(walk).collect();
    let mut repeated = vec![[0.0; EVALUATED_AT_ONCE]; inputs.len()];
    for start in (0..count).step_by(EVALUATED_AT_ONCE) {
        let places = start..count.min(start + EVALUATED_AT_ONCE);
        for ((walk, repeated), input) in walks.iter_mut().zip(&mut repeated).zip(inputs) {
            let walk = walk.iter_mut().flatten();
            repeated[..places.len()]
                .iter_mut()
                .zip(walk)
                .for_each(|(element, offset)| *element = input[offset as usize]);
        }
        let elements = walks.iter().zip(&repeated).zip(inputs).map(|((walk, repeated), input)| match walk {
            Some(_) => &repeated[..places.len()],
            None => &input[places.clone()],
        });
        let elements: Vec<&[f64]> = elements.collect();
        work(places, &elements);
    }
}

/// Evaluates an expression for each element of the spec's outputs.
pub(super) fn evaluate(expression: &Expression, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
    evaluate_in(spec.outputs[0].dims, expression, spec, inputs, outputs);
}

/// Evaluates an expression for each element of a shape to which the spec's inputs are broadcast. `outputs` has space for the values.
pub(super) fn evaluate_in(
    dims: Dims,
    expression: &Expression,
    spec: &Spec,
    inputs: &[&[f64]],
    outputs: &mut [Vec<f64>],
) {
    let mut room = Vec::new();
    visit_groups(dims, &spec.inputs, inputs, outputs[0].len(), |places, inputs| {
        expression.evaluate(places.len(), inputs, &mut room);
        for (output, values) in outputs.iter_mut().enumerate() {
            values[places.clone()].copy_from_slice(expression.values(output, places.len(), &room));
        }
    });
}

/// Compares a device's results with the expression. Error bounds are computed only for elements that differ.
pub(super) fn compare(expression: &Expression, spec: &Spec, inputs: &[&[f64]], actual: &[Vec<f64>]) -> Vec<Check> {
    let precision = Precision::of(compute_type(spec));
    let none = |actual: &Vec<f64>| Check { elements: actual.len() as u64, ..Check::none() };
    let mut checks: Vec<Check> = actual.iter().map(none).collect();
    let (mut room, mut balls) = (Vec::new(), Vec::new());
    visit_groups(spec.outputs[0].dims, &spec.inputs, inputs, actual[0].len(), |places, inputs| {
        expression.evaluate(places.len(), inputs, &mut room);
        for (output, check) in checks.iter_mut().enumerate() {
            let expected = expression.values(output, places.len(), &room);
            for (place, (index, &expected)) in places.clone().zip(expected).enumerate() {
                check.compare(spec.outputs[output].dtype, index as u64, actual[output][index], expected, || {
                    let elements: Vec<f64> = inputs.iter().map(|input| input[place]).collect();
                    expression.enclose(precision, &elements, &mut balls);
                    balls[usize::from(expression.outputs()[output])].radius
                });
            }
        }
    });
    checks
}

/// Returns for each element of each output whether every device computes exactly the value of the expression.
pub(super) fn certain(expression: &Expression, spec: &Spec, inputs: &[&[f64]]) -> Vec<Vec<bool>> {
    let precision = Precision::of(compute_type(spec));
    let mut certain: Vec<Vec<bool>> =
        spec.outputs.iter().map(|output| vec![false; output.elements() as usize]).collect();
    let mut balls = Vec::new();
    visit_groups(spec.outputs[0].dims, &spec.inputs, inputs, certain[0].len(), |places, inputs| {
        for (place, index) in places.enumerate() {
            let elements: Vec<f64> = inputs.iter().map(|input| input[place]).collect();
            expression.enclose(precision, &elements, &mut balls);
            for (own, output) in certain.iter_mut().zip(expression.outputs()) {
                own[index] = balls[usize::from(*output)].radius == 0.0;
            }
        }
    });
    certain
}

/// Returns the kernel that evaluates `expression` for each element of the outputs, which all have the same shape.
pub fn launch(name: &str, expression: &Expression, spec: &Spec) -> Launch {
    let tasks = [task(expression, spec)];
    ShortRows::of(&tasks[0])
        .map_or_else(|| walk::launch_all(name, &tasks, compute_type(spec)), |rows| rows.launch(name, spec))
}

/// Returns the elementwise task of evaluating `expression` for the outputs of the spec.
pub(super) fn task<'a>(expression: &'a Expression, spec: &Spec) -> Task<'a> {
    let (dims, count) = (spec.outputs[0].dims, spec.inputs.len());
    let input = |(place, input): (usize, &Tensor)| Operand::of(place, input, broadcast_strides(input, dims));
    let output = |(place, output): (usize, &Tensor)| Operand::of(count + place, output, output.strides);
    Task {
        expression,
        dims,
        outputs: spec.outputs.iter().enumerate().map(output).collect(),
        inputs: spec.inputs.iter().enumerate().map(input).collect(),
    }
}

fn nothing_named(call: &Call) -> OpError {
    call.no_output("the expression names no tensor, so its shape is unknown: write the output, `-> y`")
}

impl Call<'_> {
    /// Returns the broadcast type and shape of an expression over the inputs. There must be at least one input.
    pub(super) fn broadcast(&self) -> Result<(DType, Dims), OpError> {
        let first = &self.inputs[0].tensor;
        let (mut dtype, mut dims) = (first.dtype, first.dims);
        for (index, input) in self.inputs.iter().enumerate().skip(1) {
            dims = broadcast(dims, input.tensor.dims).ok_or_else(|| {
                self.differs(
                    0,
                    format!("this is {dims}"),
                    index,
                    format!("this is {}", input.tensor.dims),
                    "sizes are compared from the last dimension on: they have to be equal, or one of them 1",
                )
            })?;
            dtype = dtype.promote(input.tensor.dtype);
        }
        Ok((dtype, dims))
    }
}
