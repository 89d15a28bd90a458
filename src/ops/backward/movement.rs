//! Gradients of data movement: the inverse movement.

use crate::base::Dims;
use crate::ops::backward::column_scatter::COLUMN_SCATTER;
use crate::ops::routing::SelectionRules;

use super::*;

/// `cast` and `copy`: the same elements.
pub fn same_elements(rule: &mut Backward) -> Result<(), NoRule> {
    if let Some(gradient) = rule.gradient() {
        rule.set(0, gradient);
    }
    Ok(())
}

/// `transpose`: the inverse permutation. `order` has the input dimension of each output dimension.
pub fn transpose(rule: &mut Backward, order: &[usize]) -> Result<(), NoRule> {
    let Some(gradient) = rule.gradient() else { return Ok(()) };
    let mut back = vec![0; order.len()];
    order.iter().enumerate().for_each(|(place, &axis)| back[axis] = place as i64);
    let tensor = rule.spec.inputs[0];
    let found =
        rule.tape.operation("transpose", &[("dims", Attr::Axes(back))], &[gradient], (tensor.dtype, tensor.dims));
    rule.set(0, found);
    Ok(())
}

/// `gather` and `embedding`: the sum of all gradients with the same index.
pub fn gather(rule: &mut Backward) -> Result<(), NoRule> {
    let Some(gradient) = rule.gradient() else { return Ok(()) };
    let (tensor, index) = (rule.spec.inputs[0], rule.input(1));
    let gradient = rule.convert(gradient, tensor.dtype);
    let found = scattered(rule, "add", gradient, index, (tensor.dtype, tensor.dims));
    rule.set(0, found);
    Ok(())
}

fn scattered(rule: &mut Backward, combine: &'static str, x: TensorId, index: TensorId, of: (DType, Dims)) -> TensorId {
    rule.tape.operation("scatter", &[("combine", Attr::Word(combine))], &[x, index], of)
}

/// `scatter`: the gradients of the rows at the indices; zero for rows that were overwritten.
pub fn scatter(rule: &mut Backward) -> Result<(), NoRule> {
    let Some(gradient) = rule.gradient() else { return Ok(()) };
    let (x, index) = (rule.spec.inputs[0], rule.spec.inputs[1]);
    let index_value = rule.input(1);
    let lead = index.dims.len();
    let mut picked = rule.tape.operation("gather", &[], &[gradient, index_value], (x.dtype, x.dims));
    let ones = |count: usize| std::iter::repeat_n(1, count);
    let beside: Dims = index.dims.iter().copied().chain(ones(x.dims.len() - lead)).collect();
    if rule.spec.attrs.word("combine") == "set" {
        // For each row, the position of the index that wrote it.
        let places = rule.tape.iota(index.dims);
        let rows = rule.spec.outputs[0].dims.part(..1);
        let last = scattered(rule, "set", places, index_value, (DType::I32, rows));
        let last = rule.tape.operation("gather", &[], &[last, index_value], (DType::I32, index.dims));
        let [last, places] = [last, places].map(|value| rule.tape.reshape(value, beside));
        let all = [picked, last, places];
        picked = rule.map(all, x.dtype, |[picked, last, place]| last.equals(place).select(picked, 0.0));
    }
    let Some(&weight) = rule.spec.inputs.get(2) else {
        rule.set(0, picked);
        return Ok(());
    };
    let weight_value = rule.input(2);
    let weight_value = rule.tape.reshape(weight_value, beside);
    let found = rule.map([picked, weight_value], x.dtype, |[g, w]| g * w);
    rule.set(0, found);
    let (row, source) = ((lead..x.dims.len()).collect::<Vec<_>>(), rule.input(0));
    let of_weight = match row.is_empty() {
        true => rule.map([picked, source], weight.dtype, |[g, x]| g * x),
        false => rule.reduce("sum", ([picked, source], &row), weight.dtype, |[g, x]| g * x),
    };
    rule.set(2, of_weight);
    Ok(())
}

/// `concat` along a dimension: the part of each input.
pub fn concat(rule: &mut Backward, axis: usize) -> Result<(), NoRule> {
    let Some(gradient) = rule.gradient() else { return Ok(()) };
    let mut start: Dims = rule.spec.outputs[0].dims.iter().map(|_| 0).collect();
    for (input, tensor) in rule.spec.inputs.iter().enumerate() {
        let part = rule.tape.slice(gradient, start, tensor.dims);
        rule.set(input, part);
        start.set(axis, start[axis] + tensor.dims[axis]);
    }
    Ok(())
}

/// `pad`, with this many elements before the first of each dimension: the part inside the border.
pub fn pad(rule: &mut Backward, before: &[u64]) -> Result<(), NoRule> {
    let Some(gradient) = rule.gradient() else { return Ok(()) };
    let inside = rule.tape.slice(gradient, before.iter().copied().collect(), rule.spec.inputs[0].dims);
    rule.set(0, inside);
    Ok(())
}

/// `dropout`: drops the same elements.
pub fn dropout(rule: &mut Backward) -> Result<(), NoRule> {
    let Some(gradient) = rule.gradient() else { return Ok(()) };
    let (tensor, attrs) = (rule.spec.inputs[0], &rule.spec.attrs);
    let options = [("p", Attr::number(attrs.number("p"))), ("seed", Attr::Int(attrs.int("seed")))];
    let found = rule.tape.operation("dropout", &options, &[gradient], (tensor.dtype, tensor.dims));
    rule.set(0, found);
    Ok(())
}

/// `top_k` and `sort`: each value returns to its position in the row.
pub fn top_k(rule: &mut Backward) -> Result<(), NoRule> {
    let Some(gradient) = rule.given(0) else { return Ok(()) };
    let (x, indices) = (rule.spec.inputs[0], rule.output(1));
    let gradient = rule.convert(gradient, x.dtype);
    let found = to_columns(rule, gradient, indices, (x.dtype, x.dims));
    rule.set(0, found);
    Ok(())
}

/// Returns zeros with these elements at the column indices of their rows. Indices are unique within a row.
fn to_columns(rule: &mut Backward, x: TensorId, columns: TensorId, (dtype, whole): (DType, Dims)) -> TensorId {
    let found = rule.tape.scratch(dtype, whole);
    rule.tape.step(&COLUMN_SCATTER, Attrs::default(), None, &[x, columns], &[found]);
    found
}

/// `column_scatter`: the elements at the columns.
pub fn column_scatter(rule: &mut Backward) -> Result<(), NoRule> {
    let Some(gradient) = rule.gradient() else { return Ok(()) };
    let (x, whole, columns) = (rule.spec.inputs[0], rule.spec.outputs[0].dims, rule.input(1));
    let (length, last) = (whole[whole.len() - 1], whole.len() - 1);
    let mut leading = whole;
    leading.set(last, 1);
    let rows = rule.tape.iota(leading);
    let places = rule.map([rows, columns], DType::I64, |[row, column]| length as f64 * row + column);
    let (all, count) = (whole.iter().product(), x.elements());
    let gradient = rule.tape.reshape(gradient, Dims::from([all]));
    let places = rule.tape.reshape(places, Dims::from([count]));
    let picked = rule.tape.operation("gather", &[], &[gradient, places], (x.dtype, Dims::from([count])));
    rule.set(0, picked);
    Ok(())
}

/// Returns zeros with these elements at row-major indices.
fn flat(rule: &mut Backward, x: TensorId, places: TensorId, (dtype, whole): (DType, Dims)) -> TensorId {
    let elements = |dims: Dims| Dims::from([dims.iter().product()]);
    let (count, all) = (elements(rule.tape.dims(x)), elements(whole));
    let [x, places] = [x, places].map(|value| rule.tape.reshape(value, count));
    let found = scattered(rule, "set", x, places, (dtype, all));
    rule.tape.reshape(found, whole)
}

/// `route`: the gradient of a weight belongs to the probability of its row and expert. Normalized weights depend on
/// all probabilities that the row selected. A bias affects only the selection and has no gradient.
pub fn route(rule: &mut Backward) -> Result<(), NoRule> {
    let Some(gradient) = rule.given(1) else { return Ok(()) };
    let (probs, slots, compute) = (rule.spec.inputs[0], rule.output(0), rule.compute());
    let (normalize, scores) = (rule.spec.attrs.bool("normalize"), rule.spec.attrs.word("scores"));
    let choice = SelectionRules::of(rule.spec);
    if normalize && (choice.by_score || choice.groups > 1) {
        return Err(
            "of normalized weights with groups or a bias it is not known which experts a row chose, since full \
                    experts drop rows; leave out `normalize`, and divide the weights by a `map`",
        );
    }
    let experts = probs.dims[1];
    let expert = rule.tape.iota(Dims::from([experts, 1]));
    let places = rule.map([slots, expert], DType::I64, |[slot, expert]| {
        let place = experts as f64 * slot + expert;
        let [zero, none] = [0.0, -1.0].map(|value| slot.constant(value));
        slot.less(zero).select(none, place)
    });
    let gradient = rule.convert(gradient, probs.dtype);
    let input = rule.input(0);
    let score = match scores {
        "softmax" => rule.tape.operation("softmax", &[], &[input], (probs.dtype, probs.dims)),
        "sigmoid" => rule.map([input], probs.dtype, |[x]| x.apply(Unary::Sigmoid)),
        _ => input,
    };
    let mut found = flat(rule, gradient, places, (probs.dtype, probs.dims));
    if normalize {
        let k = rule.spec.attrs.int("k");
        let chosen = Dims::from([probs.dims[0], k as u64]);
        let [values, indices] = [probs.dtype, DType::I32].map(|dtype| rule.tape.scratch(dtype, chosen));
        rule.tape.write("top_k", &[("k", Attr::Int(k))], &[input], &[values, indices]);
        let ones = rule.tape.operation("fill", &[("value", Attr::number(1.0))], &[], (probs.dtype, chosen));
        let is_chosen = to_columns(rule, ones, indices, (probs.dtype, probs.dims));
        let chosen_scores = ([score, is_chosen], &[1][..]);
        let total = rule.reduce("sum", chosen_scores, compute, |[p, is_chosen]| is_chosen.select(p, 0.0));
        let mean = rule.reduce("sum", ([found, score, total], &[1]), compute, |[g, p, total]| g * (p / total));
        found = rule.map([found, mean, total, is_chosen], probs.dtype, |[g, mean, total, is_chosen]| {
            let (less, zero) = (g - mean, g.constant(0.0));
            is_chosen.select(less / total, zero)
        });
    }
    let found = match scores {
        "softmax" => {
            let mean = rule.reduce("sum", ([found, score], &[1]), compute, |[g, p]| g * p);
            rule.map([found, mean, score], probs.dtype, |[g, mean, p]| (g - mean) * p)
        }
        "sigmoid" => rule.map([found, score], probs.dtype, |[g, p]| {
            let rest = 1.0 - p;
            g * p * rest
        }),
        _ => found,
    };
    rule.set(0, found);
    Ok(())
}

/// `permute`: each row receives the gradients of all positions to which it was copied.
pub fn permute(rule: &mut Backward) -> Result<(), NoRule> {
    let Some(gradient) = rule.given(0) else { return Ok(()) };
    let (x, places) = (rule.spec.inputs[0], rule.output(1));
    let gradient = rule.convert(gradient, x.dtype);
    let found = rule.tape.operation("unpermute", &[], &[gradient, places], (x.dtype, x.dims));
    rule.set(0, found);
    Ok(())
}

/// `unpermute`: the gradient of a row is copied to all positions that contributed to it, times their weights. The
/// gradient of a weight is the product of its row with the gradient.
pub fn unpermute(rule: &mut Backward) -> Result<(), NoRule> {
    let Some(gradient) = rule.gradient() else { return Ok(()) };
    let (y, places) = (rule.spec.inputs[0], rule.input(1));
    let choices = rule.tape.dims(places);
    let of_choices = with_tail(choices, y.dims);
    let ones = |count: usize| std::iter::repeat_n(1, count);
    let tail = y.dims.len() - 1;
    // Adds a dimension for the choices of a row, along which the gradient is broadcast.
    let beside: Dims =
        choices.iter().take(1).copied().chain(ones(choices.len() - 1)).chain(y.dims[1..].iter().copied()).collect();
    let gradient = rule.tape.reshape(gradient, beside);
    let weights = rule.spec.inputs.get(2).map(|weights| weights.dtype);
    let weighted = match weights {
        Some(_) => {
            let sizes = choices.iter().copied().chain(ones(tail)).collect();
            let weights = rule.input(2);
            let weights = rule.tape.reshape(weights, sizes);
            rule.map([gradient, weights], y.dtype, |[g, w]| g * w)
        }
        None => {
            let gradient = rule.convert(gradient, y.dtype);
            repeated(rule, gradient, of_choices)
        }
    };
    let found = scattered(rule, "add", weighted, places, (y.dtype, y.dims));
    rule.set(0, found);
    if let Some(dtype) = weights.filter(|_| rule.wants(2)) {
        let rows = rule.input(0);
        let rows = rule.tape.operation("gather", &[], &[rows, places], (y.dtype, of_choices));
        let axes: Vec<usize> = (choices.len()..choices.len() + tail).collect();
        let found = match axes.is_empty() {
            true => rule.map([gradient, rows], dtype, |[g, y]| g * y),
            false => rule.reduce("sum", ([gradient, rows], &axes), dtype, |[g, y]| g * y),
        };
        rule.set(2, found);
    }
    Ok(())
}

/// Concatenates the dimensions of the indices and those of a tensor after its first.
fn with_tail(indices: Dims, tensor: Dims) -> Dims {
    indices.iter().chain(&tensor[1..]).copied().collect()
}
