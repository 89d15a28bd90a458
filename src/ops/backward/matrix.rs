//! Gradients of matrix products: products with transposed factors.

use super::super::matrix::{Finish, Function, Gate, factors};
use super::float8::{NarrowFactors, ScaledFactor};
use super::*;
use crate::ops::expression::derivative::Derivatives;

/// `gemm` and `scaled_gemm`: products of the gradient with the transposed factors, after the rule of the epilogue.
pub fn gemm(rule: &mut Backward) -> Result<(), NoRule> {
    let Some(gradient) = rule.gradient() else { return Ok(()) };
    let finish = Finish::of(rule.spec);
    let [turned_a, turned_b] = ["transpose_a", "transpose_b"].map(|name| rule.spec.attrs.bool(name));
    let compute = Attr::Word(rule.spec.attrs.word("compute"));
    let options =
        [("transpose_a", Attr::Bool(turned_a)), ("transpose_b", Attr::Bool(turned_b)), ("compute", compute.clone())];
    let gradient = match Gate::of(rule.spec, factors(rule.spec)) {
        Some(gate) => gate.backward(rule, gradient)?,
        None => of_sums(rule, finish, gradient, &options)?,
    };
    if let Some(before) = finish.before
        && rule.wants(before)
    {
        rule.set(before, gradient);
    }
    if let Some(bias) = finish.bias
        && rule.wants(bias)
    {
        let rows = rule.tape.dims(gradient).len() - 1;
        let axes: Vec<usize> = (0..rows).collect();
        let dtype = rule.spec.inputs[bias].dtype;
        let sum = rule.reduce("sum", ([gradient], &axes), dtype, |[x]| x);
        rule.set(bias, sum);
    }
    let [a, b] = [0, 1].map(|input| rule.spec.inputs[input]);
    let narrow = match rule.tape.dtype(rule.stored(0)).is_float8() {
        true => Some(NarrowFactors::of(rule, gradient, [turned_a, turned_b])?),
        false => None,
    };
    // The factors of a product must have the same type.
    let (gradient, scale) = match &narrow {
        Some(narrow) => narrow.gradient,
        None => (rule.convert(gradient, a.dtype), None),
    };
    let factor = |rule: &mut Backward, input: usize| match &narrow {
        Some(narrow) => narrow.factor(rule, input),
        None => (rule.input(input), None),
    };
    let set = |rule: &mut Backward, input: usize, found: TensorId| match &narrow {
        Some(narrow) => narrow.set(rule, input, found),
        None => rule.set(input, found),
    };
    let wants = |rule: &Backward, input: usize| match &narrow {
        Some(narrow) => narrow.wants(rule, input),
        None => rule.wants(input),
    };
    let lead = |tensor: &super::super::Tensor| tensor.dims.len() - 2;
    let (lead_a, lead_b) = (lead(&a), lead(&b));
    let product = |rule: &mut Backward, factors: [ScaledFactor; 2], turned: [bool; 2], size: Dims| {
        let options = [
            ("transpose_a", Attr::Bool(turned[0])),
            ("transpose_b", Attr::Bool(turned[1])),
            ("compute", compute.clone()),
        ];
        let scales = factors.iter().filter_map(|(_, scale)| *scale);
        let inputs: Vec<TensorId> = factors.iter().map(|(value, _)| *value).chain(scales).collect();
        let name = if inputs.len() > 2 { "scaled_gemm" } else { "gemm" };
        rule.tape.operation(name, &options, &inputs, (a.dtype, size))
    };
    // A matrix that is broadcast over a batch receives the sum of the gradients.
    let of_each = |own: Dims, all: usize| {
        let output = rule.spec.outputs[0].dims;
        let matrix = &own[own.len() - 2..];
        output[..all].iter().chain(matrix).copied().collect()
    };
    let most = lead_a.max(lead_b);
    let (each_a, each_b) = (of_each(a.dims, most), of_each(b.dims, most));
    if wants(rule, 0) {
        let (other, gradient) = (factor(rule, 1), (gradient, scale));
        let found = match turned_a {
            false => product(rule, [gradient, other], [false, !turned_b], each_a),
            true => product(rule, [other, gradient], [turned_b, true], each_a),
        };
        let found = over_batch(rule, found, most - lead_a);
        set(rule, 0, found);
    }
    if wants(rule, 1) {
        let (other, scale_of_other) = factor(rule, 0);
        let joins = lead_b < most && !turned_a;
        // The batch is merged into the rows of one matrix, so that the product sums the gradients.
        let [other, gradient] = [other, gradient].map(|value| if joins { joined(rule, value) } else { value });
        let (other, gradient) = ((other, scale_of_other), (gradient, scale));
        let size = if joins { b.dims } else { each_b };
        let found = match turned_b {
            false => product(rule, [other, gradient], [!turned_a, false], size),
            true => product(rule, [gradient, other], [true, turned_a], size),
        };
        let found = if joins { found } else { over_batch(rule, found, most - lead_b) };
        set(rule, 1, found);
    }
    Ok(())
}

/// `grouped_gemm`, with groups of rows or groups along k.
pub fn grouped_gemm(rule: &mut Backward) -> Result<(), NoRule> {
    let Some(gradient) = rule.gradient() else { return Ok(()) };
    let dtype = rule.spec.inputs[0].dtype;
    let [turned_a, turned_b] = ["transpose_a", "transpose_b"].map(|name| rule.spec.attrs.bool(name));
    let options = [("transpose_a", Attr::Bool(turned_a)), ("transpose_b", Attr::Bool(turned_b))];
    let gradient = match Gate::of(rule.spec, 3) {
        Some(gate) => gate.backward(rule, gradient)?,
        None => of_sums(rule, Finish::of_sums(Function::of_word(rule.spec)), gradient, &options)?,
    };
    let gradient = rule.convert(gradient, dtype);
    let [a, b, ends] = [0, 1, 2].map(|input| rule.input(input));
    let product = |rule: &mut Backward, factors: [TensorId; 2], turned: [bool; 2], size: &[u64]| {
        let options = [("transpose_a", Attr::Bool(turned[0])), ("transpose_b", Attr::Bool(turned[1]))];
        rule.tape.operation(
            "grouped_gemm",
            &options,
            &[factors[0], factors[1], ends],
            (dtype, size.iter().copied().collect()),
        )
    };
    // A gradient with groups of rows. If the groups of the factor are columns, the result is transposed.
    let rows = |rule: &mut Backward, input: usize, factors: [TensorId; 2], turned: [bool; 2], in_rows: bool| {
        let own = rule.spec.inputs[input].dims;
        if in_rows {
            return product(rule, factors, turned, &own);
        }
        let found = product(rule, factors, turned, &[own[1], own[0]]);
        rule.tape.operation("transpose", &[], &[found], (dtype, own))
    };
    let in_depth = rule.spec.inputs[1].dims.len() == 2;
    if rule.wants(0) {
        let found = match in_depth {
            // Each term of the sum has a row of `b` and a column of `a`.
            true => rows(rule, 0, [b, gradient], [turned_b, true], turned_a),
            false => rows(rule, 0, [gradient, b], [false, !turned_b], !turned_a),
        };
        rule.set(0, found);
    }
    if rule.wants(1) {
        let size = rule.spec.inputs[1].dims;
        let found = match (in_depth, turned_b) {
            (true, _) => rows(rule, 1, [a, gradient], [!turned_a, false], !turned_b),
            (false, false) => product(rule, [a, gradient], [!turned_a, false], &size),
            (false, true) => product(rule, [gradient, a], [true, turned_a], &size),
        };
        rule.set(1, found);
    }
    Ok(())
}

/// Gradient of the product before the activation of the epilogue. `options` are those of the product without its
/// epilogue.
fn of_sums(
    rule: &mut Backward,
    finish: Finish,
    gradient: TensorId,
    options: &[(&'static str, Attr)],
) -> Result<TensorId, NoRule> {
    let dtype = rule.tape.dtype(gradient);
    match finish.function {
        Function::Identity => Ok(gradient),
        // The product is positive exactly where the result is.
        Function::Relu => {
            let result = rule.output(0);
            Ok(rule.map([gradient, result], dtype, |[gradient, result]| gradient * result.constant(0.0).less(result)))
        }
        _ if finish.before.is_some() => Err(
            "the sums that its function is applied to are gone: `relu` has gradients with `accumulate: true`, or write `map` behind it",
        ),
        function => {
            // Recomputes the product.
            let inputs: Vec<TensorId> = (0..rule.spec.inputs.len()).map(|input| rule.stored(input)).collect();
            let (name, size) = (rule.spec.operation.name(), rule.spec.outputs[0].dims);
            let sums = rule.tape.operation(name, options, &inputs, (dtype, size));
            let expression = formula(|[x]| [function.of(x)]);
            let slope = Derivatives::of(&expression, 1, &[true], 1.0).ok_or("its epilogue has no derivative")?;
            let (expression, used) = slope.select(&[0]);
            let operands: Vec<TensorId> = used.iter().map(|&place| if place == 0 { sums } else { gradient }).collect();
            let output = rule.tape.scratch(dtype, size);
            rule.tape.map(expression, &operands, &[output]);
            Ok(output)
        }
    }
}

/// Sums matrices over their first `lead` dimensions.
fn over_batch(rule: &mut Backward, value: TensorId, lead: usize) -> TensorId {
    if lead == 0 {
        return value;
    }
    let axes: Vec<usize> = (0..lead).collect();
    let dtype = rule.tape.dtype(value);
    rule.reduce("sum", ([value], &axes), dtype, |[x]| x)
}

/// Merges a batch of matrices into one matrix, row after row.
fn joined(rule: &mut Backward, value: TensorId) -> TensorId {
    let sizes = rule.tape.dims(value);
    let last = sizes.len() - 1;
    rule.tape.reshape(value, Dims::from([sizes[..last].iter().product(), sizes[last]]))
}
