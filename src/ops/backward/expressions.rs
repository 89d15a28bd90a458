//! Gradients of expressions for each element, and of reductions of them.

use crate::base::Dims;

use super::super::derivative::Derivatives;
use super::super::reductions::{Extent, Function, Sums};
use super::*;

/// Outputs of one `map`.
const OUTPUTS: usize = 8;

/// `map`: each output's gradient has the shape of all inputs together.
pub fn map(rule: &mut Backward) -> Result<(), NoRule> {
    let Some(expression) = rule.spec.expression.clone() else { return Ok(()) };
    let dims = rule.spec.outputs[0].dims;
    let gradients: Vec<Option<Value>> = (0..rule.spec.outputs.len()).map(|output| rule.given(output)).collect();
    elements(rule, &expression, (dims, &gradients), 1.0)
}

/// Why an expression has no gradients.
const TOO_LARGE: NoRule = "the derivative of its expression has more than 65536 parts: make several operations of it";

/// The gradients of an expression's inputs. `dims` is the shape of the inputs together, along which the gradients repeat;
/// each of them is multiplied by `factor`.
pub fn elements(
    rule: &mut Backward,
    expression: &Expression,
    (dims, gradients): (Dims, &[Option<Value>]),
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
    let operands = |rule: &Backward, inputs: &[usize]| -> Vec<Value> {
        let at = |&input: &usize| match input.checked_sub(count) {
            None => rule.input(input),
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
        let outputs: Vec<Value> =
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

/// The sum of an expression over the dimensions along which an input repeats in a shape.
fn over_repeats(
    rule: &mut Backward,
    input: usize,
    (expression, used): (Expression, &[Value]),
    dims: Dims,
) -> Result<Value, NoRule> {
    let tensor = rule.spec.inputs[input];
    let rank = dims.len();
    // The input with as many dimensions as the shape, and the operands with as many.
    let own = aligned(tensor.dims, rank);
    let used: Vec<Value> = used.iter().map(|&value| aligned_value(rule, value, rank)).collect();
    let present = rule.tape.together(&used);
    let axes: Vec<usize> = (0..rank).filter(|&axis| own[axis] != dims[axis] && present[axis] == dims[axis]).collect();
    // Dimensions that no operand has are sums of equal terms.
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

/// A tensor repeated along the dimensions in which it has size 1 and the shape has not.
pub(super) fn repeated(rule: &mut Backward, value: Value, dims: Dims) -> Value {
    if rule.tape.dims(value) == dims {
        return value;
    }
    let output = rule.tape.scratch(rule.tape.dtype(value), dims);
    rule.tape.move_to(value, output);
    output
}

/// A shape with leading dimensions of size 1, so that it has `rank` dimensions.
pub fn aligned(dims: Dims, rank: usize) -> Dims {
    let missing = std::iter::repeat_n(1, rank - dims.len());
    let sizes: Vec<u64> = missing.chain(dims.iter().copied()).collect();
    super::dims(&sizes)
}

fn aligned_value(rule: &mut Backward, value: Value, rank: usize) -> Value {
    let dims = aligned(rule.tape.dims(value), rank);
    rule.tape.reshape(value, dims)
}

/// `sum` and its like: gradients of the expression, for each element of its shape.
pub fn reduction(rule: &mut Backward, function: Function) -> Result<(), NoRule> {
    let (Some(gradient), Some(expression)) = (rule.gradient(), rule.spec.expression.clone()) else { return Ok(()) };
    let extent = Extent::of(rule.spec);
    let kept = extent.result(true);
    let gradient = rule.tape.reshape(gradient, kept);
    let axes: Vec<usize> = (0..extent.dims.len()).filter(|&axis| extent.reduced[axis]).collect();
    let operands: Vec<Value> = (0..rule.spec.inputs.len()).map(|input| rule.input(input)).collect();
    let compute = rule.compute();
    let terms = extent.terms() as f64;
    let factor = match function {
        Function::Sum => return elements(rule, &expression, (extent.dims, &[Some(gradient)]), 1.0),
        Function::Mean => return elements(rule, &expression, (extent.dims, &[Some(gradient)]), 1.0 / terms),
        Function::Max | Function::Min => {
            // The first of equals, as in `argmax`.
            let find = if function == Function::Max { "argmax" } else { "argmin" };
            let place = rule.reduced(find, (*expression).clone(), &operands, (extent.dims, &axes), DType::I32);
            let mut sizes = extent.dims;
            (0..sizes.len()).filter(|axis| !axes.contains(axis)).for_each(|axis| sizes.set(axis, 1));
            let iota = rule.tape.iota(sizes);
            rule.map([place, iota, gradient], compute, |formula, [place, iota, gradient]| {
                let (found, zero) = (formula.equal(place, iota), formula.constant(0.0));
                formula.select(found, gradient, zero)
            })
        }
        Function::LogSumExp | Function::LogSumExpAndSum => {
            let value = values(rule, &expression, &operands, extent.dims);
            let total = match rule.spec.outputs[0].dtype == compute {
                true => {
                    let output = rule.output(0);
                    rule.tape.reshape(output, kept)
                }
                // A rounded logarithm would make all probabilities too large or too small.
                false => rule.reduced("logsumexp", (*expression).clone(), &operands, (extent.dims, &axes), compute),
            };
            rule.map([value, total, gradient], compute, |formula, [value, total, gradient]| {
                let logarithm = formula.subtract(value, total);
                let probability = formula.apply(Unary::Exp, logarithm);
                formula.multiply(gradient, probability)
            })
        }
        Function::Prod => {
            let value = values(rule, &expression, &operands, extent.dims);
            // Among factors with one zero, that one alone has a gradient: the product of the others.
            let zeros = rule.reduce("sum", ([value], &axes), compute, |formula, [x]| {
                let zero = formula.constant(0.0);
                formula.equal(x, zero)
            });
            let others = rule.reduce("prod", ([value], &axes), compute, |formula, [x]| {
                let one = formula.constant(1.0);
                formula.select(x, x, one)
            });
            let all = [value, zeros, others, gradient];
            rule.map(all, compute, |formula, [value, zeros, others, gradient]| {
                let (zero, one) = (formula.constant(0.0), formula.constant(1.0));
                let quotient = formula.divide(others, value);
                let alone = formula.equal(zeros, one);
                let (of_zero, of_other) = (formula.select(alone, others, zero), formula.select(zeros, zero, quotient));
                let slope = formula.select(value, of_other, of_zero);
                formula.multiply(gradient, slope)
            })
        }
        Function::ArgMax | Function::ArgMin => {
            return Err("its result is a place, which does not change by small steps");
        }
        Function::Sums(_) => return Err("it is a part of other operations"),
    };
    elements(rule, &expression, (extent.dims, &[Some(factor)]), 1.0)
}

/// The values of an expression, in the type that it is computed in.
fn values(rule: &mut Backward, expression: &Expression, operands: &[Value], dims: Dims) -> Value {
    if expression.is_identity() {
        return operands[0];
    }
    let value = rule.tape.scratch(rule.compute(), dims);
    rule.tape.map(expression.clone(), operands, &[value]);
    value
}

/// An expression of several sums: the gradient of each sum, then those of the terms that it adds up.
pub fn of_sums(rule: &mut Backward, sums: &Sums, extent: &Extent) -> Result<(), NoRule> {
    let Some(gradient) = rule.gradient() else { return Ok(()) };
    let kept = extent.result(true);
    let gradient = rule.tape.reshape(gradient, kept);
    let axes: Vec<usize> = (0..extent.dims.len()).filter(|&axis| extent.reduced[axis]).collect();
    let compute = rule.compute();
    let mut totals = Vec::new();
    for &node in sums.terms.outputs() {
        let (term, used) = sums.terms.part(&[node]);
        let used: Vec<Value> = used.into_iter().map(|input| rule.input(input)).collect();
        let used: Vec<Value> = used.into_iter().map(|value| repeated(rule, value, extent.dims)).collect();
        totals.push(rule.reduced("sum", term, &used, (extent.dims, &axes), compute));
    }
    let made = Derivatives::of(&sums.result, totals.len(), &[true], 1.0).ok_or(TOO_LARGE)?;
    let mut slopes = Vec::new();
    for sum in 0..totals.len() {
        slopes.push(made.depends_on(sum).then(|| {
            let (expression, used) = made.select(&[sum]);
            let used: Vec<Value> =
                used.into_iter().map(|input| totals.get(input).copied().unwrap_or(gradient)).collect();
            let slope = rule.tape.scratch(compute, kept);
            rule.tape.map(expression, &used, &[slope]);
            slope
        }));
    }
    elements(rule, &sums.terms, (extent.dims, &slopes), 1.0)
}

/// `grad_norm`: each tensor divided by the norm. That of zeros has the gradient 0.
pub fn grad_norm(rule: &mut Backward) -> Result<(), NoRule> {
    let Some(gradient) = rule.gradient() else { return Ok(()) };
    let (compute, count) = (rule.compute(), rule.spec.inputs.len());
    let norm = match rule.spec.outputs[0].dtype == compute {
        true => rule.output(0),
        // A rounded norm would scale all gradients by its error.
        false => {
            let inputs: Vec<Value> = (0..count).map(|input| rule.input(input)).collect();
            rule.tape.operation("grad_norm", &[], &inputs, (compute, Dims::new()))
        }
    };
    for input in 0..count {
        let (x, dtype) = (rule.input(input), rule.spec.inputs[input].dtype);
        let found = rule.map([x, norm, gradient], dtype, |formula, [x, norm, gradient]| {
            let direction = formula.divide(x, norm);
            let (slope, zero) = (formula.multiply(gradient, direction), formula.constant(0.0));
            formula.select(norm, slope, zero)
        });
        rule.set(input, found);
    }
    Ok(())
}

/// `rope`: the rotation back, and the sums of what each angle turns.
pub fn rope(rule: &mut Backward) -> Result<(), NoRule> {
    let Some(gradient) = rule.gradient() else { return Ok(()) };
    let (x, cos, sin) = (rule.input(0), rule.input(1), rule.input(2));
    if rule.wants(0) {
        let dtype = rule.tape.dtype(sin);
        let back = rule.map([sin], dtype, |formula, [sin]| formula.negate(sin));
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
        let mut formula = Formula::default();
        let [first_node, second_node, of_a_node, of_b_node] = [0, 1, 2, 3].map(|input| formula.input(input));
        let left = formula.multiply(first_node, of_a_node);
        let right = formula.multiply(second_node, of_b_node);
        let sum = if minus { formula.subtract(right, left) } else { formula.add(left, right) };
        let expression = formula.with_outputs([sum]);
        let used = [first, second, of_a, of_b];
        let gradient = over_repeats(rule, angle, (expression, &used), whole)?;
        rule.set(angle, gradient);
    }
    Ok(())
}

/// The first and the second half of the last dimension.
fn halves(rule: &mut Backward, value: Value) -> [Value; 2] {
    let whole = rule.tape.dims(value);
    let last = whole.len() - 1;
    let mut half = whole;
    half.set(last, whole[last] / 2);
    let mut start = super::dims(&vec![0; whole.len()]);
    let first = rule.tape.slice(value, start, half);
    start.set(last, whole[last] / 2);
    [first, rule.tape.slice(value, start, half)]
}
