//! Gradients of convolutions, which are convolutions of the other two forms, and of pools.

use super::super::conv::Shape;
use super::*;
use crate::ops::call::windows::shape;

/// The options that all forms of a convolution have in common.
fn options(rule: &Backward, of: &Shape) -> Vec<(&'static str, Attr)> {
    vec![
        ("stride", sizes(of.stride)),
        ("padding", sizes(of.padding)),
        ("dilation", sizes(of.dilation)),
        ("groups", Attr::Int(of.groups as i64)),
        ("compute", Attr::Word(rule.spec.attrs.word("compute"))),
        ("deterministic", Attr::Bool(rule.spec.attrs.bool("deterministic"))),
    ]
}

fn sizes(dims: Dims) -> Attr {
    Attr::Axes(dims.iter().map(|&size| size as i64).collect())
}

/// Adds a convolution to the tape. The result has the type of its operands.
fn convolved(
    rule: &mut Backward,
    of: &Shape,
    (name, more): (&str, &[(&'static str, Attr)]),
    inputs: [TensorId; 2],
    dims: Dims,
) -> TensorId {
    let all: Vec<_> = options(rule, of).into_iter().chain(more.iter().cloned()).collect();
    rule.tape.operation(name, &all, &inputs, (rule.spec.inputs[0].dtype, dims))
}

/// Computes `y` of a convolution from `x` and `w`.
fn forward(rule: &mut Backward, of: &Shape, [x, w]: [TensorId; 2]) -> TensorId {
    convolved(rule, of, ("conv", &[]), [x, w], shape(of.samples, of.groups * of.outputs, of.y))
}

/// Computes `x` of a convolution from `y` and `w`. Elements after the last window are the output padding.
fn transposed(rule: &mut Backward, of: &Shape, [y, w]: [TensorId; 2]) -> TensorId {
    let added = (0..of.x.len()).map(|axis| {
        let spanned = (of.y[axis] - 1) * of.stride[axis] + of.dilation[axis] * (of.kernel[axis] - 1) + 1;
        (of.x[axis] + 2 * of.padding[axis] - spanned) as i64
    });
    let more = [("transposed", Attr::Bool(true)), ("output_padding", Attr::Axes(added.collect()))];
    convolved(rule, of, ("conv", &more), [y, w], shape(of.samples, of.groups * of.inputs, of.x))
}

/// Computes `w` of a convolution from `x` and `y`.
fn weights(rule: &mut Backward, of: &Shape, [x, y]: [TensorId; 2]) -> TensorId {
    let more = [("size", sizes(of.kernel))];
    convolved(rule, of, ("conv_weights", &more), [x, y], shape(of.groups * of.outputs, of.inputs, of.kernel))
}

/// `conv`, transposed or not: convolutions of the other two forms, and the sum of the gradients for the bias.
pub fn conv(rule: &mut Backward) -> Result<(), NoRule> {
    let Some(gradient) = rule.gradient() else { return Ok(()) };
    let of = Shape::of(rule.spec);
    if rule.wants(2) {
        let rank = rule.spec.outputs[0].dims.len();
        let axes: Vec<usize> = (0..rank).filter(|&axis| axis != 1).collect();
        let dtype = rule.spec.inputs[2].dtype;
        let sum = rule.reduce("sum", ([gradient], &axes), dtype, |[x]| x);
        rule.set(2, sum);
    }
    let gradient = rule.convert(gradient, rule.spec.inputs[0].dtype);
    let is_transposed = rule.spec.attrs.bool("transposed");
    if rule.wants(0) {
        let w = rule.input(1);
        let found =
            if is_transposed { forward(rule, &of, [gradient, w]) } else { transposed(rule, &of, [gradient, w]) };
        rule.set(0, found);
    }
    if rule.wants(1) {
        let x = rule.input(0);
        let found = weights(rule, &of, if is_transposed { [gradient, x] } else { [x, gradient] });
        rule.set(1, found);
    }
    Ok(())
}

/// `conv_weights`: convolutions of the gradient with the operands.
pub fn conv_weights(rule: &mut Backward) -> Result<(), NoRule> {
    let Some(gradient) = rule.gradient() else { return Ok(()) };
    let of = Shape::of(rule.spec);
    let gradient = rule.convert(gradient, rule.spec.inputs[0].dtype);
    let [x, y] = [0, 1].map(|input| rule.input(input));
    if rule.wants(0) {
        let found = transposed(rule, &of, [y, gradient]);
        rule.set(0, found);
    }
    if rule.wants(1) {
        let found = forward(rule, &of, [x, gradient]);
        rule.set(1, found);
    }
    Ok(())
}

/// `pool`: the operation `pool_backward`.
pub fn pool(rule: &mut Backward) -> Result<(), NoRule> {
    let Some(gradient) = rule.gradient() else { return Ok(()) };
    let x = rule.spec.inputs[0];
    let gradient = rule.convert(gradient, x.dtype);
    let attrs = &rule.spec.attrs;
    let mut options = vec![
        ("mode", Attr::Word(attrs.word("mode"))),
        ("adaptive", Attr::Bool(attrs.bool("adaptive"))),
        ("count_padding", Attr::Bool(attrs.bool("count_padding"))),
    ];
    for name in ["size", "stride", "padding", "dilation"] {
        options.extend(attrs.spatial(name, x.dims.len() - 2).map(|of_each| (name, sizes(of_each))));
    }
    let mut inputs = vec![rule.input(0), gradient];
    inputs.extend((rule.spec.outputs.len() > 1).then(|| rule.output(1)));
    let found = rule.tape.operation("pool_backward", &options, &inputs, (x.dtype, x.dims));
    rule.set(0, found);
    Ok(())
}
