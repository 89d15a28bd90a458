//! Combines a matrix product and a sum of its result with another tensor into a product that accumulates.

use crate::base::DType;
use crate::ops::backward::{Tape, TapeOperation, TensorId, TensorOrigin};
use crate::ops::{Attr, Tensor, reshaped};

/// Replaces each sum of a tensor and a product whose result nothing else reads by a product that accumulates into the
/// tensor. The original products stay on the tape, but are no longer used. `goal` returns the tensor of the program in which a
/// gradient ends; `None` for any other.
pub(super) fn join_products(tape: &mut Tape, goal: impl Fn(TensorId) -> Option<Tensor>) {
    for place in 0..tape.steps.len() {
        if let Some(joined) = joined(tape, place, &goal) {
            tape.steps[place] = joined;
        }
    }
}

/// Returns the product that replaces the sum at this index and the product before it; `None` if there is none.
fn joined(tape: &mut Tape, place: usize, goal: impl Fn(TensorId) -> Option<Tensor>) -> Option<TapeOperation> {
    let (to, from) = tape.steps[place].addition()?;
    // The sum of a part of a buffer sees the product in the dimensions of the buffer.
    let from = tape.whole(from)?;
    let to = tape.reshape(to, tape.dims(from));
    let is_scratch = matches!(tape.get(from).source, TensorOrigin::Scratch);
    let touches = |values: &[TensorId]| values.iter().any(|value| tape.root(*value) == from);
    let mut writers = tape.steps.iter().enumerate().filter(|(_, step)| touches(&step.outputs));
    let (made, product) = writers.next().filter(|_| is_scratch)?;
    let reads = tape.steps.iter().filter(|step| touches(&step.inputs)).count();
    let is_plain = product.operation.name() == "gemm" && product.inputs.len() == 2 && product.outputs == [from];
    if writers.next().is_some() || reads != 1 || made >= place || !is_plain || !has_rows(&tensor(tape, to, &goal)?) {
        return None;
    }
    let (factor, sum) = (tape.dtype(product.inputs[0]), tape.dtype(to));
    let fits = factor == sum || sum == DType::F32 && factor.size() == 2;
    // The factors must hold the same values at the later position.
    let factors: Vec<TensorId> = product.inputs.iter().map(|input| tape.root(*input)).collect();
    let mut between = tape.steps[made + 1..place].iter().flat_map(|step| &step.outputs);
    let overwritten = between.any(|output| factors.contains(&tape.root(*output)));
    if !fits || overwritten {
        return None;
    }
    let mut options: Vec<(&'static str, Attr)> = vec![("accumulate", Attr::Bool(true))];
    options.extend(["transpose_a", "transpose_b"].map(|name| (name, Attr::Bool(product.attrs.bool(name)))));
    options.push(("compute", Attr::Word(product.attrs.word("compute"))));
    let attrs = product.operation.signature().attrs(&options);
    let inputs = [&product.inputs[..], &[to]].concat();
    Some(TapeOperation { attrs, inputs, outputs: vec![to], ..product.clone() })
}

/// True if the elements of a tensor's rows are contiguous, as libraries require.
fn has_rows(tensor: &Tensor) -> bool {
    tensor.strides.last() == Some(&1) || tensor.dims.last() == Some(&1)
}

/// A goal, a slice of one or a view of one, as the operations see it; `None` for any other tensor.
fn tensor(tape: &Tape, value: TensorId, goal: &impl Fn(TensorId) -> Option<Tensor>) -> Option<Tensor> {
    let dims = tape.dims(value);
    match tape.get(value).source {
        TensorOrigin::Slice(of, _) => Some(Tensor { dims, ..tensor(tape, of, goal)? }),
        TensorOrigin::Reshaped(of) => {
            let of = tensor(tape, of, goal)?;
            Some(Tensor { dims, strides: reshaped(&of, dims).ok()?, ..of })
        }
        _ => goal(value),
    }
}
