//! Gradients of elementwise expressions and of reductions of them.

use crate::base::Dims;

use super::super::reductions::{Extent, Function, Sums};
use super::*;
use crate::ops::expression::derivative::Derivatives;

/// Maximum number of outputs of a `map`.
const OUTPUTS: usize = 8;

/// `map`: the gradient of each output has the broadcast shape of all inputs.
pub fn map(rule: &mut Backward) -> Result<(), NoRule> {
    let Some(expression) = rule.spec.expression.clone() else { return Ok(()) };
    let dims = rule.spec.outputs[0].dims;
    let gradients: Vec<Option<TensorId>> = (0..rule.spec.outputs.len()).map(|output| rule.given(output)).collect();
    elements(rule, &expression, (dims, &gradients), 1.0)
}

/// Reason for an expression that is too large to differentiate.
const TOO_LARGE: NoRule = "the derivative of its expression has more than 65536 parts: make several operations of it";

/// Sets the gradients of an expression's inputs. `dims` is the broadcast shape of the inputs, to which gradients are
/// broadcast; each gradient is multiplied by `factor`.
pub fn elements(
    rule: &mut Backward,
    expression: &Expression,
    (dims, gradients): (Dims, &[Option<TensorId>]),
    factor: f64,
) -> Result<(), NoRule> {
    let count = rule.spec.inputs.len();
    let given: Vec<bool> = gradients.iter().map(Option::is_some).collect();
    let made = Derivatives::of(expression, count, &given, factor).ok_or(TOO_LARGE)?;
    let wanted =
        |input: &usize| rule.wants(*input) && rule.spec.inputs[*input].dtype.is_float() && made.depends_on(*input);
    let wanted: Vec<usize> = (0..count).filter(wanted).collect();
    let (whole, repeated): (Vec<usize>, Vec<usize>) =
        wanted.into_iter().partition(|&input| rule.spec.inputs[input].dims == dims);
    let operands = |rule: &Backward, inputs: &[usize]| -> Vec<TensorId> {
        let at = |&input: &usize| match input.checked_sub(count) {
            None => rule.stored(input),
            Some(output) => gradients[output].expect("only gradients that are given have nodes"),
        };
        inputs.iter().map(at).collect()
    };
    let (same, whole): (Vec<usize>, Vec<usize>) = whole.into_iter().partition(|&input| {
        let (expression, used) = made.select(&[input]);
        let is_gradient = expression.is_identity() && used[0] >= count;
        is_gradient && rule.tape.dims(operands(rule, &used)[0]) == dims
    });
    for input in same {
        let (_, used) = made.select(&[input]);
        let gradient = operands(rule, &used)[0];
        rule.set(input, gradient);
    }
    for inputs in whole.chunks(OUTPUTS) {
        let (expression, used) = made.select(inputs);
        let outputs: Vec<TensorId> =
            inputs.iter().map(|&input| rule.tape.scratch(rule.spec.inputs[input].dtype, dims)).collect();
        rule.tape.map(expression, &operands(rule, &used), &outputs);
        inputs.iter().zip(outputs).for_each(|(&input, output)| rule.set(input, output));
    }
    for input in repeated {
        let (expression, used) = made.select(&[input]);
        let used = operands(rule, &used);
        let gradient = over_repeats(rule, input, (expression, &used), dims)?;
        rule.set(input, gradient);
    }
    Ok(())
}

/// Sums an expression over the dimensions along which an input was broadcast to a shape.
pub(super) fn over_repeats(
    rule: &mut Backward,
    input: usize,
    (expression, used): (Expression, &[TensorId]),
    dims: Dims,
) -> Result<TensorId, NoRule> {
    let tensor = rule.spec.inputs[input];
    let rank = dims.len();
    // Adds leading dimensions of size 1 to the input and the operands, so that all have the same rank.
    let own = aligned(tensor.dims, rank);
    let used: Vec<TensorId> = used.iter().map(|&value| aligned_value(rule, value, rank)).collect();
    let present = rule.tape.together(&used);
    let axes: Vec<usize> = (0..rank).filter(|&axis| own[axis] != dims[axis] && present[axis] == dims[axis]).collect();
    // Along dimensions where every operand has size 1, all terms are equal.
    let alike = (0..rank).filter(|&axis| own[axis] != dims[axis] && present[axis] != dims[axis]);
    let terms: u64 = alike.map(|axis| dims[axis]).product();
    let mut sum = match axes.is_empty() {
        true => {
            let output = rule.tape.scratch(tensor.dtype, present);
            rule.tape.map(expression, &used, &[output]);
            output
        }
        false => rule.reduced("sum", expression, &used, (present, &axes), tensor.dtype),
    };
    sum = rule.scaled(terms as f64, sum);
    Ok(repeated(rule, sum, own))
}

/// Broadcasts a tensor along dimensions where it has size 1 and the shape does not.
pub(super) fn repeated(rule: &mut Backward, value: TensorId, dims: Dims) -> TensorId {
    if rule.tape.dims(value) == dims {
        return value;
    }
    let output = rule.tape.scratch(rule.tape.dtype(value), dims);
    rule.tape.move_to(value, output);
    output
}

/// Adds leading dimensions of size 1 to a shape, so that it has `rank` dimensions.
pub fn aligned(dims: Dims, rank: usize) -> Dims {
    let missing = std::iter::repeat_n(1, rank - dims.len());
    missing.chain(dims.iter().copied()).collect()
}

fn aligned_value(rule: &mut Backward, value: TensorId, rank: usize) -> TensorId {
    let dims = aligned(rule.tape.dims(value), rank);
    rule.tape.reshape(value, dims)
}

/// `sum`, `mean` and other reductions: the gradient of the reduced expression, in its broadcast shape.
pub fn reduction(rule: &mut Backward, function: Function) -> Result<(), NoRule> {
    let (Some(gradient), Some(expression)) = (rule.gradient(), rule.spec.expression.clone()) else { return Ok(()) };
    let extent = Extent::of(rule.spec);
    let kept = extent.result(true);
    let gradient = rule.tape.reshape(gradient, kept);
    let axes: Vec<usize> = (0..extent.dims.len()).filter(|&axis| extent.reduced[axis]).collect();
    let operands: Vec<TensorId> = (0..rule.spec.inputs.len()).map(|input| rule.stored(input)).collect();
    let compute = rule.compute();
    // The slope of a plain tensor is its gradient, whose type needs no conversion.
    let slope = if expression.is_identity() { rule.spec.inputs[0].dtype } else { compute };
    let terms = extent.terms() as f64;
    let factor = match function {
        Function::Sum => return elements(rule, &expression, (extent.dims, &[Some(gradient)]), 1.0),
        Function::Mean => return elements(rule, &expression, (extent.dims, &[Some(gradient)]), 1.0 / terms),
        Function::Max | Function::Min => {
            // The first of equal values, as in `argmax`.
            let find = if function == Function::Max { "argmax" } else { "argmin" };
            let place = rule.reduced(find, (*expression).clone(), &operands, (extent.dims, &axes), DType::I32);
            let mut sizes = extent.dims;
            (0..sizes.len()).filter(|axis| !axes.contains(axis)).for_each(|axis| sizes.set(axis, 1));
            let iota = rule.tape.iota(sizes);
            let all = [place, iota, gradient];
            rule.map(all, slope, |[place, iota, gradient]| place.equals(iota).select(gradient, 0.0))
        }
        Function::LogSumExp | Function::LogSumExpAndSum => {
            let value = values(rule, &expression, &operands, extent.dims);
            let total = match rule.spec.outputs[0].dtype == compute {
                true => {
                    let output = rule.output(0);
                    rule.tape.reshape(output, kept)
                }
                // A rounded logarithm would scale all probabilities.
                false => rule.reduced("logsumexp", (*expression).clone(), &operands, (extent.dims, &axes), compute),
            };
            let all = [value, total, gradient];
            rule.map(all, slope, |[value, total, gradient]| gradient * (value - total).apply(Unary::Exp))
        }
        Function::Prod => {
            let value = values(rule, &expression, &operands, extent.dims);
            // If exactly one factor is zero, only this factor has a gradient: the product of the others.
            let zeros = rule.reduce("sum", ([value], &axes), compute, |[x]| x.equals(0.0));
            let others = rule.reduce("prod", ([value], &axes), compute, |[x]| x.select(x, 1.0));
            let all = [value, zeros, others, gradient];
            rule.map(all, slope, |[value, zeros, others, gradient]| {
                let [zero, one] = [0.0, 1.0].map(|number| value.constant(number));
                let (quotient, alone) = (others / value, zeros.equals(one));
                let (of_zero, of_other) = (alone.select(others, zero), zeros.select(zero, quotient));
                gradient * value.select(of_other, of_zero)
            })
        }
        Function::ArgMax | Function::ArgMin => {
            return Err("its result is a place, which does not change by small steps");
        }
        Function::Sums(_) => return Err("it is a part of other operations"),
    };
    elements(rule, &expression, (extent.dims, &[Some(factor)]), 1.0)
}

/// Evaluates an expression in its compute type.
fn values(rule: &mut Backward, expression: &Expression, operands: &[TensorId], dims: Dims) -> TensorId {
    if expression.is_identity() {
        return operands[0];
    }
    let value = rule.tape.scratch(rule.compute(), dims);
    rule.tape.map(expression.clone(), operands, &[value]);
    value
}

/// An expression of several sums: the gradient of each sum, then the gradients of its terms.
pub fn of_sums(rule: &mut Backward, sums: &Sums, extent: &Extent) -> Result<(), NoRule> {
    let Some(gradient) = rule.gradient() else { return Ok(()) };
    let kept = extent.result(true);
    let gradient = rule.tape.reshape(gradient, kept);
    let axes: Vec<usize> = (0..extent.dims.len()).filter(|&axis| extent.reduced[axis]).collect();
    let compute = rule.compute();
    let mut totals = Vec::new();
    for &node in sums.terms.outputs() {
        let (term, used) = sums.terms.part(&[node]);
        let used: Vec<TensorId> = used.into_iter().map(|input| rule.stored(input)).collect();
        let used: Vec<TensorId> = used.into_iter().map(|value| repeated(rule, value, extent.dims)).collect();
        totals.push(rule.reduced("sum", term, &used, (extent.dims, &axes), compute));
    }
    let made = Derivatives::of(&sums.result, totals.len(), &[true], 1.0).ok_or(TOO_LARGE)?;
    let mut slopes = Vec::new();
    for sum in 0..totals.len() {
        slopes.push(made.depends_on(sum).then(|| {
            let (expression, used) = made.select(&[sum]);
            let used: Vec<TensorId> =
                used.into_iter().map(|input| totals.get(input).copied().unwrap_or(gradient)).collect();
            let slope = rule.tape.scratch(compute, kept);
            rule.tape.map(expression, &used, &[slope]);
            slope
        }));
    }
    elements(rule, &sums.terms, (extent.dims, &slopes), 1.0)
}

/// `grad_norm`: each tensor divided by the norm. If the norm is zero, the gradient is zero.
pub fn grad_norm(rule: &mut Backward) -> Result<(), NoRule> {
    let Some(gradient) = rule.gradient() else { return Ok(()) };
    let (compute, count) = (rule.compute(), rule.spec.inputs.len());
    let norm = match rule.spec.outputs[0].dtype == compute {
        true => rule.output(0),
        // Rounding the norm would scale all gradients by its error.
        false => {
            let inputs: Vec<TensorId> = (0..count).map(|input| rule.input(input)).collect();
            rule.tape.operation("grad_norm", &[], &inputs, (compute, Dims::new()))
        }
    };
    for input in 0..count {
        let (x, dtype) = (rule.input(input), rule.spec.inputs[input].dtype);
        let all = [x, norm, gradient];
        let found = rule.map(all, dtype, |[x, norm, gradient]| norm.select(gradient * (x / norm), 0.0));
        rule.set(input, found);
    }
    Ok(())
}

/// `rope`: the inverse rotation, and the gradients of the angles' cosines and sines.
pub fn rope(rule: &mut Backward) -> Result<(), NoRule> {
    let Some(gradient) = rule.gradient() else { return Ok(()) };
    let (x, cos, sin) = (rule.input(0), rule.input(1), rule.input(2));
    if rule.wants(0) {
        let dtype = rule.tape.dtype(sin);
        let back = rule.map([sin], dtype, |[sin]| -sin);
        let tensor = rule.spec.inputs[0];
        let turned = rule.tape.operation("rope", &[], &[gradient, cos, back], (tensor.dtype, tensor.dims));
        rule.set(0, turned);
    }
    let [a, b] = halves(rule, x);
    let [of_a, of_b] = halves(rule, gradient);
    let whole = rule.tape.dims(a);
    // The halves of y are a * cos - b * sin and b * cos + a * sin.
    for (angle, (first, second), minus) in [(1, (a, b), false), (2, (b, a), true)] {
        if !rule.wants(angle) {
            continue;
        }
        let expression = formula(|[first, second, of_a, of_b]| {
            let (left, right) = (first * of_a, second * of_b);
            [if minus { right - left } else { left + right }]
        });
        let used = [first, second, of_a, of_b];
        let gradient = over_repeats(rule, angle, (expression, &used), whole)?;
        rule.set(angle, gradient);
    }
    Ok(())
}

/// The first and the second half of the last dimension.
fn halves(rule: &mut Backward, value: TensorId) -> [TensorId; 2] {
    let whole = rule.tape.dims(value);
    let last = whole.len() - 1;
    let mut half = whole;
    half.set(last, whole[last] / 2);
    let mut start: Dims = whole.iter().map(|_| 0).collect();
    let first = rule.tape.slice(value, start, half);
    start.set(last, whole[last] / 2);
    [first, rule.tape.slice(value, start, half)]
}
