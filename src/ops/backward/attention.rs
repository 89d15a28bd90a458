//! Gradients of attention, by one operation that recomputes the softmax weights.

use super::super::attention::scores;
use super::expressions::over_repeats;
use super::*;

/// Position of the bias among the inputs of `attention`.
const BIAS: usize = 3;

/// `attention`, with or without a bias, and `ragged_attention`.
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
    let (is_ragged, is_biased) = (rule.spec.inputs.len() == 5, rule.spec.inputs.len() == 4);
    let mut outputs: Vec<TensorId> = (0..3)
        .map(|input| {
            let tensor = rule.spec.inputs[input];
            rule.tape.scratch(tensor.dtype, tensor.dims)
        })
        .collect();
    // Gradients of all scores, which are reduced to the shape of the bias.
    let scores = (is_biased && rule.wants(BIAS)).then(|| {
        let dims = scores(rule.spec);
        (rule.tape.scratch(compute, dims), dims)
    });
    outputs.extend(scores.map(|(slopes, _)| slopes));
    let attrs = &rule.spec.attrs;
    let options = [
        ("causal", Attr::Bool(attrs.bool("causal"))),
        ("window", Attr::Int(attrs.int("window"))),
        ("layout", Attr::Word(attrs.word("layout"))),
        ("algorithm", Attr::Word(attrs.word("algorithm"))),
        ("deterministic", Attr::Bool(attrs.bool("deterministic"))),
        ("scale", Attr::number(attrs.number("scale"))),
        ("softcap", Attr::number(attrs.number("softcap"))),
    ];
    let name = match (is_ragged, is_biased) {
        (true, _) => "ragged_attention_backward",
        (_, true) => "biased_attention_backward",
        _ => "attention_backward",
    };
    rule.tape.write(name, &options, &inputs, &outputs);
    (0..3).for_each(|input| rule.set(input, outputs[input]));
    if let Some((slopes, dims)) = scores {
        let sum = over_repeats(rule, BIAS, (formula(|[slope]| [slope]), &[slopes]), dims)?;
        rule.set(BIAS, sum);
    }
    Ok(())
}
