//! Gradients by one operation that reads each row once, and the gradients of that operation.

use std::ops::Range;
use std::sync::Arc;

use super::super::Operation;
use super::super::reductions::SEVERAL_SUMS;
use super::super::row_chain::sums::RowSums;
use super::*;

/// Adds the operation that computes an expression of sums along rows, with outputs of these types and shapes. Returns its outputs; `None`
/// if separate reductions divide the rows better.
pub fn sums(
    operation: &'static RowSums,
    rule: &mut Backward,
    expression: Expression,
    inputs: &[TensorId],
    outputs: &[(DType, Dims)],
) -> Option<Vec<TensorId>> {
    let tensors = inputs.iter().map(|&input| Tensor::packed(rule.tape.dtype(input), &rule.tape.dims(input))).collect();
    let results = outputs.iter().map(|(dtype, dims)| Tensor::packed(*dtype, dims)).collect();
    let plain = Spec::new(operation, Attrs::default(), tensors, results);
    let spec = Spec { expression: Some(Arc::new(expression)), ..plain };
    if !operation.suits(&spec) {
        return None;
    }
    let results: Vec<TensorId> = outputs.iter().map(|&(dtype, dims)| rule.tape.scratch(dtype, dims)).collect();
    rule.tape.step(spec.operation, spec.attrs.clone(), spec.expression.as_deref().cloned(), inputs, &results);
    Some(results)
}

/// Adds the operation that sums each output of an expression along dimensions, which keep size 1. Returns a result for each of these types,
/// of the sums in turn.
pub fn several(
    rule: &mut Backward,
    expression: Expression,
    inputs: &[TensorId],
    (mut dims, axes): (Dims, &[usize]),
    dtypes: &[DType],
) -> Vec<TensorId> {
    axes.iter().for_each(|&axis| dims.set(axis, 1));
    let results: Vec<TensorId> = dtypes.iter().map(|&dtype| rule.tape.scratch(dtype, dims)).collect();
    let list = axes.iter().map(|&axis| axis as i64).collect();
    let attrs = SEVERAL_SUMS.signature().attrs(&[("dims", Attr::Axes(list)), ("keepdim", Attr::Bool(true))]);
    rule.tape.step(&SEVERAL_SUMS, attrs, Some(expression), inputs, &results);
    results
}

/// `count` sums along these dimensions, and outputs that are sums over the last one: computes the sums again, and passes the gradients of the results to the sums and those of the sums
/// to their terms.
pub fn row_sums(rule: &mut Backward, count: usize, axes: &[usize], of_channels: Range<usize>) -> Result<(), NoRule> {
    let Some(expression) = rule.spec.expression.clone() else { return Ok(()) };
    let (dims, compute) = (rule.spec.outputs[0].dims, rule.compute());
    let nodes = expression.outputs();
    let channels = [("dims", Attr::Axes(vec![dims.len() as i64 - 1])), ("keepdim", Attr::Bool(true))];
    // The sums, then the inputs.
    let mut values: Vec<TensorId> = Vec::new();
    let mut terms = Vec::new();
    for sum in 0..count {
        let (term, used) = expression.part(&nodes[sum..=sum]);
        let operands: Vec<TensorId> = used.iter().map(|&input| operand(rule, &values, count, input)).collect();
        values.push(rule.reduced("sum", term.clone(), &operands, (dims, axes), compute));
        terms.push((term, used));
    }
    values.extend((0..rule.spec.inputs.len()).map(|input| rule.stored(input)));
    let mut slopes: Vec<Vec<TensorId>> = vec![Vec::new(); values.len()];
    for output in 0..rule.spec.outputs.len() {
        let Some(gradient) = rule.given(output) else { continue };
        let (result, used) = expression.part(&nodes[count + output..=count + output]);
        let of = (rule.spec.outputs[output].dtype, rule.spec.outputs[output].dims);
        let (name, options): (&str, &[_]) =
            if of_channels.contains(&output) { ("sum", &channels) } else { ("map", &[]) };
        through(rule, (name, options), (result, &used), &values, (gradient, of), &mut slopes)?;
    }
    let options = [("dims", Attr::Axes(axes.iter().map(|&axis| axis as i64).collect())), ("keepdim", Attr::Bool(true))];
    for (sum, (term, used)) in terms.into_iter().enumerate().rev() {
        let of = (compute, rule.tape.dims(values[sum]));
        if let Some(gradient) = total(rule, &slopes[sum], values[sum]) {
            through(rule, ("sum", &options), (term, &used), &values, (gradient, of), &mut slopes)?;
        }
    }
    set_totals(rule, &values[count..], &slopes[count..]);
    Ok(())
}

/// Several sums of the same elements: passes the gradient of each result to the terms of its sum.
pub fn several_sums(rule: &mut Backward, sums: usize) -> Result<(), NoRule> {
    let Some(expression) = rule.spec.expression.clone() else { return Ok(()) };
    let values: Vec<TensorId> = (0..rule.spec.inputs.len()).map(|input| rule.stored(input)).collect();
    let mut slopes: Vec<Vec<TensorId>> = vec![Vec::new(); values.len()];
    let axes = rule.spec.attrs.axes("dims").unwrap_or_default().to_vec();
    let options = [("dims", Attr::Axes(axes)), ("keepdim", Attr::Bool(rule.spec.attrs.bool("keepdim")))];
    for output in 0..rule.spec.outputs.len() {
        let Some(gradient) = rule.given(output) else { continue };
        let (term, used) = expression.part(&[expression.outputs()[output % sums]]);
        let of = (rule.spec.outputs[output].dtype, rule.spec.outputs[output].dims);
        through(rule, ("sum", &options), (term, &used), &values, (gradient, of), &mut slopes)?;
    }
    set_totals(rule, &values, &slopes);
    Ok(())
}

/// Sets the gradient of each input, whose value is one of `values`, to the sum of its `slopes`.
fn set_totals(rule: &mut Backward, values: &[TensorId], slopes: &[Vec<TensorId>]) {
    for (input, (&value, slopes)) in values.iter().zip(slopes).enumerate() {
        if let Some(gradient) = total(rule, slopes, value) {
            rule.set(input, gradient);
        }
    }
}

/// An input of the expression of sums, of which those so far are known.
fn operand(rule: &Backward, sums: &[TensorId], count: usize, input: usize) -> TensorId {
    match input.checked_sub(count) {
        None => sums[input],
        Some(input) => rule.stored(input),
    }
}

/// The sum of the gradients of a value; `None` if there are none.
fn total(rule: &mut Backward, slopes: &[TensorId], value: TensorId) -> Option<TensorId> {
    let of = (rule.tape.dtype(value), rule.tape.dims(value));
    (!slopes.is_empty()).then(|| rule.tape.sum_of(slopes, of))
}

/// Adds the gradients of an operation's inputs, which are `used` of all values, to those of the values.
fn through(
    rule: &mut Backward,
    (name, options): (&str, &[(&'static str, Attr)]),
    (expression, used): (Expression, &[usize]),
    values: &[TensorId],
    (gradient, (dtype, dims)): (TensorId, (DType, Dims)),
    slopes: &mut [Vec<TensorId>],
) -> Result<(), NoRule> {
    let operation = find(name).expect("the catalogue has maps and sums");
    let inputs: Vec<TensorId> = used.iter().map(|&value| values[value]).collect();
    let tensors = inputs.iter().map(|&input| Tensor::packed(rule.tape.dtype(input), &rule.tape.dims(input))).collect();
    let plain = Spec::new(operation, operation.signature().attrs(options), tensors, vec![Tensor::packed(dtype, &dims)]);
    let spec = Spec { expression: Some(Arc::new(expression)), ..plain };
    let wanted = vec![true; inputs.len()];
    let (result, given) = ([rule.tape.scratch(dtype, dims)], [Some(gradient)]);
    let own = Backward::new(&spec, rule.tape, (&inputs, &result), &given, &wanted, None);
    for (&value, gradient) in used.iter().zip(own.run()?) {
        slopes[value].extend(gradient);
    }
    Ok(())
}
