//! Gradients of `cumsum` and `cumprod`: scans in the opposite direction.

use super::*;

/// Dimension of a scan, and whether it starts at the last element.
type Line = (usize, bool);

/// The gradient of `cumsum`: the scan of the gradients in the opposite direction.
pub fn cumsum(rule: &mut Backward, line: Line) -> Result<(), NoRule> {
    let Some(gradient) = rule.gradient() else { return Ok(()) };
    let of = (rule.spec.inputs[0].dtype, rule.tape.dims(gradient));
    let found = scan(rule, "cumsum", gradient, back(line), of);
    rule.set(0, found);
    Ok(())
}

/// The scan in the opposite direction.
fn back((axis, is_reverse): Line) -> Line {
    (axis, !is_reverse)
}

fn scan(rule: &mut Backward, name: &str, x: TensorId, (axis, is_reverse): Line, of: (DType, Dims)) -> TensorId {
    let options = [("dim", Attr::Int(axis as i64)), ("reverse", Attr::Bool(is_reverse))];
    rule.tape.operation(name, &options, &[x], of)
}

/// The gradient of `cumprod`. Let `y` be the products with the first zero of a line replaced by 1. The gradient of an
/// element before that zero is the sum of gradients times `y` up to the zero, divided by the element. The gradient of
/// the zero is the sum from its own position on. Later elements have none.
pub fn cumprod(rule: &mut Backward, line: Line) -> Result<(), NoRule> {
    let Some(gradient) = rule.gradient() else { return Ok(()) };
    let (x, compute, whole) = (rule.input(0), rule.compute(), rule.spec.inputs[0].dims);
    let of = (compute, whole);
    let is_zero = rule.map([x], compute, |[x]| x.equals(0.0));
    let zeros = scan(rule, "cumsum", is_zero, line, of);
    let filled = rule.map([x, zeros], compute, |[x, zeros]| {
        let one = x.constant(1.0);
        x.select(x, zeros.equals(one).select(one, x))
    });
    let products = scan(rule, "cumprod", filled, line, of);
    let terms = rule.map([gradient, products], compute, |[g, y]| g * y);
    let before_zero = rule.map([terms, zeros], compute, |[term, zeros]| zeros.select(0.0, term));
    let [all, before_zero] = [terms, before_zero].map(|value| scan(rule, "cumsum", value, back(line), of));
    let dtype = rule.spec.inputs[0].dtype;
    let found = rule.map([x, zeros, all, before_zero], dtype, |[x, zeros, all, before]| {
        let [one, none] = [1.0, 0.0].map(|value| x.constant(value));
        let (quotient, first) = (before / x, zeros.equals(one));
        let (of_zero, of_other) = (first.select(all, none), zeros.select(none, quotient));
        x.select(of_other, of_zero)
    });
    rule.set(0, found);
    Ok(())
}
