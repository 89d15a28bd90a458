//! Gradients of `cumsum` and `cumprod`: sums from each element to the last.

use super::*;

/// `cumsum` along a dimension.
pub fn cumsum(rule: &mut Backward, axis: usize) -> Result<(), NoRule> {
    let Some(gradient) = rule.gradient() else { return Ok(()) };
    let found = from_here(rule, gradient, axis);
    rule.set(0, found);
    Ok(())
}

/// For each element the sum of all from it on along a dimension: the sum of all, less those before it.
fn from_here(rule: &mut Backward, x: Value, axis: usize) -> Value {
    let (compute, whole) = (rule.compute(), rule.tape.dims(x));
    let total = rule.reduce("sum", ([x], &[axis]), compute, |_, [x]| x);
    let before = scan(rule, "cumsum", x, axis, (compute, whole));
    rule.map([total, before, x], compute, |formula, [total, before, x]| {
        let behind = formula.subtract(total, before);
        formula.add(behind, x)
    })
}

fn scan(rule: &mut Backward, name: &str, x: Value, axis: usize, of: (DType, Dims)) -> Value {
    rule.tape.operation(name, &[("dim", Attr::Int(axis as i64))], &[x], of)
}

/// `cumprod` along a dimension. With `y` as the products where the first zero of a line counts as 1, an element before that
/// zero has the sum of its gradients times `y` up to the zero, divided by itself; the zero has the sum from itself on; those
/// behind it have none.
pub fn cumprod(rule: &mut Backward, axis: usize) -> Result<(), NoRule> {
    let Some(gradient) = rule.gradient() else { return Ok(()) };
    let (x, compute, whole) = (rule.input(0), rule.compute(), rule.spec.inputs[0].dims);
    let of = (compute, whole);
    let is_zero = rule.map([x], compute, |formula, [x]| {
        let zero = formula.constant(0.0);
        formula.equal(x, zero)
    });
    let zeros = scan(rule, "cumsum", is_zero, axis, of);
    let filled = rule.map([x, zeros], compute, |formula, [x, zeros]| {
        let one = formula.constant(1.0);
        let first = formula.equal(zeros, one);
        let other = formula.select(first, one, x);
        formula.select(x, x, other)
    });
    let products = scan(rule, "cumprod", filled, axis, of);
    let terms = rule.map([gradient, products], compute, |formula, [g, y]| formula.multiply(g, y));
    let before_zero = rule.map([terms, zeros], compute, |formula, [term, zeros]| {
        let none = formula.constant(0.0);
        formula.select(zeros, none, term)
    });
    let [all, before_zero] = [terms, before_zero].map(|value| from_here(rule, value, axis));
    let dtype = rule.spec.inputs[0].dtype;
    let found = rule.map([x, zeros, all, before_zero], dtype, |formula, [x, zeros, all, before]| {
        let (one, none) = (formula.constant(1.0), formula.constant(0.0));
        let quotient = formula.divide(before, x);
        let first = formula.equal(zeros, one);
        let (of_zero, of_other) = (formula.select(first, all, none), formula.select(zeros, none, quotient));
        formula.select(x, of_other, of_zero)
    });
    rule.set(0, found);
    Ok(())
}
