//! Gradients of attention, by one operation that recomputes the softmax weights.

use super::*;

/// `attention`, and `ragged_attention`, which has two inputs more.
pub fn attention(rule: &mut Backward) -> Result<(), NoRule> {
    let (dy, of_lse) = (rule.given(0), rule.given(1));
    if dy.is_none() && of_lse.is_none() {
        return Ok(());
    }
    let (q, compute) = (rule.spec.inputs[0], rule.spec.inputs[0].dtype.compute());
    let o = rule.spec.outputs[0].dims;
    let dy = match dy {
        Some(dy) => rule.convert(dy, q.dtype),
        None => rule.zeros(q.dtype, o),
    };
    let mut inputs = [0, 1, 2].map(|input| rule.input(input)).to_vec();
    inputs.extend([rule.convert(rule.output(0), q.dtype), rule.output(1), dy]);
    inputs.extend((3..rule.spec.inputs.len()).map(|input| rule.input(input)));
    inputs.extend(of_lse.map(|of_lse| rule.convert(of_lse, compute)));
    let outputs = [0, 1, 2].map(|input| {
        let tensor = rule.spec.inputs[input];
        rule.tape.scratch(tensor.dtype, tensor.dims)
    });
    let attrs = &rule.spec.attrs;
    let options = [
        ("causal", Attr::Bool(attrs.bool("causal"))),
        ("window", Attr::Int(attrs.int("window"))),
        ("layout", Attr::Word(attrs.word("layout"))),
        ("algorithm", Attr::Word(attrs.word("algorithm"))),
        ("scale", Attr::Number(attrs.number("scale"))),
    ];
    let name = if rule.spec.inputs.len() > 3 { "ragged_attention_backward" } else { "attention_backward" };
    rule.tape.write(name, &options, &inputs, &outputs);
    (0..3).for_each(|input| rule.set(input, outputs[input]));
    Ok(())
}
