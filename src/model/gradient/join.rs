//! Lets products add to gradients themselves, where a product is followed by a sum of it with what a tensor holds.

use crate::base::DType;
use crate::ops::Attr;
use crate::ops::backward::{Source, Step, Tape, Value};

/// Replaces each sum of a product that nothing else reads, and of a tensor, by a product that adds to the tensor. The
/// products themselves stay on the tape, and nothing needs them. `has_rows` says whether the elements of a tensor's rows lie
/// side by side, as libraries want them.
pub(super) fn join_products(tape: &mut Tape, has_rows: impl Fn(Value) -> bool) {
    for place in 0..tape.steps.len() {
        if let Some(joined) = joined(tape, place, &has_rows) {
            tape.steps[place] = joined;
        }
    }
}

/// The product that does what the sum at this place and the product before it do; `None` if there is none.
fn joined(tape: &Tape, place: usize, has_rows: impl Fn(Value) -> bool) -> Option<Step> {
    let (to, from) = tape.steps[place].addition()?;
    let is_scratch = matches!(tape.get(from).source, Source::Scratch);
    let touches = |values: &[Value]| values.iter().any(|value| tape.root(*value) == from);
    let mut writers = tape.steps.iter().enumerate().filter(|(_, step)| touches(&step.outputs));
    let (made, product) = writers.next().filter(|_| is_scratch)?;
    let reads = tape.steps.iter().filter(|step| touches(&step.inputs)).count();
    let is_plain = product.operation.name() == "gemm" && product.inputs.len() == 2 && product.outputs == [from];
    if writers.next().is_some() || reads != 1 || made >= place || !is_plain || !has_rows(to) {
        return None;
    }
    let (factor, sum) = (tape.dtype(product.inputs[0]), tape.dtype(to));
    let fits = factor == sum || sum == DType::F32 && factor.size() == 2;
    // The factors have to hold the same values at the later place.
    let factors: Vec<Value> = product.inputs.iter().map(|input| tape.root(*input)).collect();
    let mut between = tape.steps[made + 1..place].iter().flat_map(|step| &step.outputs);
    let overwritten = between.any(|output| factors.contains(&tape.root(*output)));
    if !fits || overwritten || tape.dims(from) != tape.dims(to) {
        return None;
    }
    let mut options: Vec<(&'static str, Attr)> = vec![("accumulate", Attr::Bool(true))];
    options.extend(["transpose_a", "transpose_b"].map(|name| (name, Attr::Bool(product.attrs.bool(name)))));
    options.push(("compute", Attr::Word(product.attrs.word("compute"))));
    let attrs = product.operation.signature().attrs(&options);
    let inputs = [&product.inputs[..], &[to]].concat();
    Some(Step { attrs, inputs, outputs: vec![to], ..product.clone() })
}
