//! Gradients of attention, by one operation that recomputes the softmax weights.

use crate::ops::attention::POSITIONS_FIRST;

use super::*;

/// `attention`.
pub fn attention(rule: &mut Backward) -> Result<(), NoRule> {
    let (dy, of_lse) = (rule.given(0), rule.given(1));
    if dy.is_none() && of_lse.is_none() {
        return Ok(());
    }
    let (q, compute) = (rule.spec.inputs[0], rule.spec.inputs[0].dtype.compute());
    let (o, rows) = (rule.spec.outputs[0].dims, rule.spec.outputs[1].dims);
    let dy = match dy {
        Some(dy) => rule.convert(dy, q.dtype),
        None => rule.zeros(q.dtype, o),
    };
    let output = rule.output(0);
    let sums = rule.reduce("sum", ([dy, output], &[o.len() - 1]), compute, |formula, [dy, o]| formula.multiply(dy, o));
    let sums = by_heads(rule, sums, rows);
    let delta = match of_lse {
        Some(of_lse) => rule.map([sums, of_lse], compute, |formula, [sum, less]| formula.subtract(sum, less)),
        None => sums,
    };
    let inputs = [rule.input(0), rule.input(1), rule.input(2), rule.output(1), dy, delta];
    let outputs = [0, 1, 2].map(|input| {
        let tensor = rule.spec.inputs[input];
        rule.tape.scratch(tensor.dtype, tensor.dims)
    });
    let attrs = &rule.spec.attrs;
    let options = [
        ("causal", Attr::Bool(attrs.bool("causal"))),
        ("window", Attr::Int(attrs.int("window"))),
        ("layout", Attr::Word(attrs.word("layout"))),
        ("scale", Attr::Number(attrs.number("scale"))),
    ];
    rule.tape.write("attention_backward", &options, &inputs, &outputs);
    (0..3).for_each(|input| rule.set(input, outputs[input]));
    Ok(())
}

/// Reorders the sums, one per row of `o` in the order of `rows`, by heads and then by positions.
fn by_heads(rule: &mut Backward, sums: Value, rows: Dims) -> Value {
    if rows.len() < 2 || rule.spec.attrs.word("layout") != POSITIONS_FIRST {
        return rule.tape.reshape(sums, rows);
    }
    let (heads, positions) = (rows.len() - 2, rows.len() - 1);
    let mut by_position = rows;
    by_position.set(heads, rows[positions]);
    by_position.set(positions, rows[heads]);
    let sums = rule.tape.reshape(sums, by_position);
    let mut order: Vec<i64> = (0..rows.len() as i64).collect();
    order.swap(heads, positions);
    let dtype = rule.tape.dtype(sums);
    rule.tape.operation("transpose", &[("dims", Attr::Axes(order))], &[sums], (dtype, rows))
}
