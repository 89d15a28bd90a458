//! Gradients of `softmax` and of norms.

use crate::base::Dims;

use super::super::row_chain::sums::RowSums;
use super::*;

/// Minimum number of elements with the same weight whose sums take at most half of the memory traffic of the passes over all elements that they
/// save: two sums of 4 bytes, written once and read twice, instead of three reads of at least 2 bytes. The sums take a further launch.
const MIN_ALIKE: u64 = 8;

/// The gradient of `softmax`: each element's gradient minus the probability-weighted mean of its row's gradients, times
/// the element's probability.
pub fn softmax(rule: &mut Backward) -> Result<(), NoRule> {
    let Some(gradient) = rule.gradient() else { return Ok(()) };
    let (y, compute) = (rule.output(0), rule.compute());
    let (dtype, scale) = (rule.spec.inputs[0].dtype, rule.spec.attrs.number("scale"));
    let (dims, last) = (rule.spec.inputs[0].dims, rule.spec.inputs[0].dims.len() - 1);
    let in_one_pass = formula(|[mean, g, y]| {
        let slope = (g - mean) * y;
        [g * y, if scale == 1.0 { slope } else { scale * slope }]
    });
    if let Some(found) = rows::sums(&RowSums::Rows, rule, in_one_pass, &[gradient, y], &[(dtype, dims)]) {
        rule.set(0, found[0]);
        return Ok(());
    }
    let mean = rule.reduce("sum", ([gradient, y], &[last]), compute, |[g, y]| g * y);
    let found = rule.map([gradient, mean, y], dtype, |[g, mean, y]| {
        let slope = (g - mean) * y;
        if scale == 1.0 { slope } else { scale * slope }
    });
    rule.set(0, found);
    Ok(())
}

/// The dimensions of a tensor that a norm normalizes together.
pub struct NormParts {
    /// Shape of the input as a view in which the normalized elements are whole dimensions.
    pub dims: Dims,
    /// The normalized dimensions of `dims`.
    pub axes: Vec<usize>,
    /// The shape in which weights and biases are broadcast to `dims`.
    pub weight: Dims,
    /// True if the mean is subtracted first, as in `layer_norm`.
    pub centred: bool,
    /// True if the norm is applied to the sum of the first two inputs. The second output is that sum.
    pub adds: bool,
}

/// The tensors in the expressions of a norm's gradients.
struct Operands {
    x: TensorId,
    variance: TensorId,
    gradient: TensorId,
    mean: Option<TensorId>,
    weight: Option<TensorId>,
}

/// Terms of an expression of the operands.
struct Terms<'f> {
    /// The normalized tensor.
    z: Term<'f>,
    /// Factor of the difference to the mean, 1 / standard deviation.
    scale: Term<'f>,
    gradient: Term<'f>,
    weight: Option<Term<'f>>,
    /// Gradient of the normalized tensor.
    weighted: Term<'f>,
}

/// The norm's values at which its gradient is taken: the mean and the variance of the normalized elements.
struct Statistics {
    mean: Option<TensorId>,
    variance: TensorId,
}

impl Operands {
    fn values(&self) -> Vec<TensorId> {
        [self.x, self.variance, self.gradient].into_iter().chain(self.mean).chain(self.weight).collect()
    }

    fn terms<'f>(&self, formula: &'f Formula, eps: f64) -> Terms<'f> {
        let [x, variance, gradient] = formula.inputs();
        let less = if self.mean.is_some() { x - formula.input(3) } else { x };
        let scale = (variance + eps).rsqrt();
        let weight = self.weight.map(|_| formula.input(3 + u8::from(self.mean.is_some())));
        let weighted = weight.map_or(gradient, |weight| gradient * weight);
        Terms { z: less * scale, scale, gradient, weight, weighted }
    }

    /// Returns the expression that `of` writes with the operands and `more` further inputs, and the inputs that it reads.
    fn written<const N: usize>(
        &self,
        eps: f64,
        more: &[TensorId],
        of: impl for<'f> FnOnce(Terms<'f>, &[Term<'f>]) -> [Term<'f>; N],
    ) -> (Expression, Vec<TensorId>) {
        let formula = Formula::default();
        let terms = self.terms(&formula, eps);
        let values = self.values();
        let inputs: Vec<Term> =
            (values.len()..values.len() + more.len()).map(|input| formula.input(input as u8)).collect();
        let expression = formula.with_outputs(of(terms, &inputs));
        let (expression, used) = expression.part(expression.outputs());
        let all = [&values[..], more].concat();
        (expression, used.into_iter().map(|input| all[input]).collect())
    }
}

/// Norms. With the normalized tensor `z` and its gradient `h`, the gradient of the input is scale * (h - mean(h) - z *
/// mean(h * z)), without `mean(h)` if no mean is subtracted.
pub fn norm(rule: &mut Backward, parts: &NormParts) -> Result<(), NoRule> {
    norm_with(rule, parts, None)
}

/// The gradients of a norm whose statistics may be known.
fn norm_with(rule: &mut Backward, parts: &NormParts, known: Option<Statistics>) -> Result<(), NoRule> {
    let (NormParts { dims, weight, centred, adds, .. }, axes) = (parts, &*parts.axes);
    let first = 1 + usize::from(*adds);
    let through = if *adds { rule.given(1) } else { None };
    let (compute, dtype, eps) = (rule.compute(), rule.spec.inputs[0].dtype, rule.spec.attrs.number("eps"));
    let Some(gradient) = rule.given(0) else {
        // Only the second output, the sum, is used.
        through.into_iter().for_each(|total| (0..2).for_each(|input| rule.set(input, total)));
        return Ok(());
    };
    let x = if *adds { rule.output(1) } else { rule.input(0) };
    let [gradient, x] = [gradient, x].map(|value| rule.tape.reshape(value, *dims));
    let through = through.map(|value| rule.tape.reshape(value, *dims));
    let has = |input: usize| rule.spec.inputs.len() > input;
    let scale = has(first).then(|| rule.input(first)).map(|value| rule.tape.reshape(value, *weight));
    let wants_input = (0..first).any(|input| rule.wants(input));
    let others: Vec<usize> = (0..dims.len()).filter(|&axis| aligned(*weight, dims.len())[axis] != dims[axis]).collect();
    let in_rows = [RowSums::Groups, RowSums::Rows].iter().filter(|_| wants_input && known.is_none());
    let in_rows = in_rows
        .into_iter()
        .find_map(|operation| norm_in_rows(operation, rule, parts, ([x, gradient], scale, through), &others, eps));
    let is_known = known.is_some();
    let (is_done, statistics) = match (in_rows, known) {
        (Some(SetInRows::All), _) => return Ok(()),
        (Some(SetInRows::Input(statistics)), _) => (true, statistics),
        (None, Some(known)) => (false, known),
        (None, None) => (false, statistics(rule, x, (axes, *centred))),
    };
    let operands = Operands { x, variance: statistics.variance, gradient, mean: statistics.mean, weight: scale };
    let sum = |rule: &mut Backward, (expression, values): (Expression, Vec<TensorId>), axes: &[usize], dtype| {
        summed(rule, expression, &values, (*dims, axes), dtype)
    };
    if is_known && wants_input && norm_of_channels(rule, parts, &operands, eps) {
        return Ok(());
    }
    let by_z = operands.written(eps, &[], |terms, _| [terms.gradient * terms.z]);
    let alone = (Expression::identity(), vec![gradient]);
    if !is_done && *centred && wants_input && norm_by_sums(rule, parts, (&operands, through), &others, eps) {
        return Ok(());
    }
    if wants_input && !is_done {
        let mean = |rule: &mut Backward, (expression, values): (Expression, Vec<TensorId>)| {
            rule.reduced("mean", expression, &values, (*dims, axes), compute)
        };
        let slope = mean(rule, operands.written(eps, &[], |terms, _| [terms.weighted * terms.z]));
        let level = centred.then(|| mean(rule, operands.written(eps, &[], |terms, _| [terms.weighted])));
        let more: Vec<TensorId> = [slope].into_iter().chain(level).chain(through).collect();
        let (expression, values) = operands.written(eps, &more, |terms, more| {
            let less = terms.weighted - terms.z * more[0];
            let found = terms.scale * if *centred { less - more[1] } else { less };
            [if through.is_some() { found + more[1 + usize::from(*centred)] } else { found }]
        });
        let output = rule.tape.scratch(dtype, *dims);
        rule.tape.map(expression, &values, &[output]);
        (0..first).for_each(|input| rule.set(input, output));
    }
    if rule.wants(first) && rule.wants(first + 1) {
        let dtypes = [first, first + 1].map(|input| rule.spec.inputs[input].dtype);
        let found = both_sums(rule, &operands, eps, (*dims, &others), &dtypes);
        [first, first + 1].into_iter().zip(found).for_each(|(input, sum)| rule.set(input, sum));
        return Ok(());
    }
    if rule.wants(first) {
        let found = sum(rule, by_z, &others, rule.spec.inputs[first].dtype);
        rule.set(first, found);
    }
    if rule.wants(first + 1) {
        let found = sum(rule, alone, &others, rule.spec.inputs[first + 1].dtype);
        rule.set(first + 1, found);
    }
    Ok(())
}

/// Computes the statistics of a norm along these dimensions.
fn statistics(rule: &mut Backward, x: TensorId, (axes, is_centred): (&[usize], bool)) -> Statistics {
    let compute = rule.compute();
    let mean = is_centred.then(|| rule.reduce("mean", ([x], axes), compute, |[x]| x));
    let variance = match mean {
        Some(mean) => rule.reduce("mean", ([x, mean], axes), compute, |[x, mean]| (x - mean).square()),
        None => rule.reduce("mean", ([x], axes), compute, |[x]| x.square()),
    };
    Statistics { mean, variance }
}

/// The gradients that an operation on the rows of a norm has set.
enum SetInRows {
    /// The gradients of the input and of the parameters.
    All,
    /// The gradient of the input alone. The gradients of the parameters need the norm's statistics.
    Input(Statistics),
}

/// Sets the gradient of the input of a norm along the last dimensions by one operation that reads each row once. Sets those of the
/// parameters too, from sums over rows or channels, if all elements of these have the same weight. `None` if the operation divides the rows
/// worse than others, or for other dimensions.
fn norm_in_rows(
    operation: &'static RowSums,
    rule: &mut Backward,
    parts: &NormParts,
    ([x, gradient], weight, through): ([TensorId; 2], Option<TensorId>, Option<TensorId>),
    others: &[usize],
    eps: f64,
) -> Option<SetInRows> {
    let NormParts { dims, axes, weight: of_weight, centred, adds } = parts;
    let lead = dims.len() - axes.len();
    if !axes.iter().copied().eq(lead..dims.len()) {
        return None;
    }
    let (length, own): (u64, Dims) = (dims[lead..].iter().product(), aligned(*of_weight, dims.len()));
    let is_alike = weight.is_some() && own[lead..].iter().all(|&size| size == 1);
    let by_channels = *operation == RowSums::Groups;
    if by_channels
        && (is_alike || weight.is_none() || dims.len() != 4 || lead != 2 || own[3] != 1 || dims[3] < MIN_ALIKE)
    {
        return None;
    }
    let in_row = |dims: Dims, length: u64| dims[..lead].iter().copied().chain([length]).collect::<Dims>();
    let kept: Dims = (0..dims.len()).map(|axis| if axis < lead { dims[axis] } else { 1 }).collect();
    let (row, each) = match by_channels {
        true => (*dims, Dims::from([dims[0], dims[1], dims[2], 1])),
        false => (in_row(*dims, length), in_row(*dims, 1)),
    };
    let count = length as f64;
    let formula = Formula::default();
    let sums = if *centred { 4 } else { 2 };
    let mut inputs = vec![x, gradient];
    inputs.extend(weight);
    inputs.extend(through);
    let term = |place: usize| formula.input((sums + place) as u8);
    let sum = |place: usize| formula.input(place as u8);
    let share = 1.0 / count;
    let (x_term, g) = (term(0), term(1));
    let weighted = |term| if weight.is_some() { term * formula.input(sums as u8 + 2) } else { term };
    let h = if is_alike { g } else { weighted(g) };
    let mean = centred.then(|| share * sum(0));
    let less = mean.map_or(x_term, |mean| x_term - mean);
    let variance = share * sum(usize::from(*centred));
    let scale = (variance + eps).rsqrt();
    let z = less * scale;
    let of_products = sum(1 + usize::from(*centred));
    let found = h - z * (share * of_products);
    let found = scale * if *centred { found - share * sum(3) } else { found };
    let found = if is_alike { weighted(found) } else { found };
    let found = if through.is_some() { found + term(inputs.len() - 1) } else { found };
    let terms = mean.map(|_| x_term).into_iter().chain([less.square(), h * z]).chain(mean.map(|_| h));
    let results = match (by_channels, is_alike) {
        (true, _) => std::iter::once(g * z).chain(mean.map(|_| g)),
        (_, true) => std::iter::once(of_products).chain(mean.map(|_| sum(3))),
        _ => std::iter::once(variance).chain(mean),
    };
    let expression = formula.with_outputs(terms.chain([found]).chain(results).collect::<Vec<Term>>());
    // The operation divides rows of one dimension.
    let mut rows: Vec<TensorId> = Vec::with_capacity(inputs.len());
    for (place, &input) in inputs.iter().enumerate() {
        rows.push(match weight {
            Some(weight) if place == 2 && by_channels => rule.tape.reshape(weight, own),
            Some(weight) if place == 2 => weight_of_rows(rule, weight, (*of_weight, *dims), lead),
            _ => rule.tape.reshape(input, row),
        });
    }
    let (dtype, compute) = (rule.spec.inputs[0].dtype, rule.compute());
    let first = 1 + usize::from(*adds);
    let outer: Vec<usize> = others.iter().copied().filter(|&axis| axis < lead).collect();
    let of_parameters = rule.spec.inputs[first..].iter().map(|tensor| tensor.dtype);
    let has_sums = is_alike || by_channels;
    let of_rows: Vec<DType> = match has_sums && outer.is_empty() {
        true => of_parameters.chain([compute; 2]).take(1 + usize::from(*centred)).collect(),
        false => vec![compute; 1 + usize::from(*centred)],
    };
    let all = [(dtype, row)].into_iter().chain(of_rows.into_iter().map(|dtype| (dtype, each)));
    let found = rows::sums(operation, rule, expression, &rows, &all.collect::<Vec<_>>())?;
    let kept = if by_channels { each } else { kept };
    let of_rows: Vec<TensorId> = found[1..].iter().map(|&value| rule.tape.reshape(value, kept)).collect();
    (0..first).for_each(|input| rule.set(input, found[0]));
    if !has_sums {
        return Some(SetInRows::Input(Statistics { variance: of_rows[0], mean: of_rows.get(1).copied() }));
    }
    if rule.wants(first) || rule.wants(first + 1) {
        set_parameters(rule, first, &of_rows, &outer);
    }
    Some(SetInRows::All)
}

/// Sets the gradients of the weight and the bias of a norm, which are inputs `first` and the next one: the sums of these tensors along
/// dimensions `outer`.
fn set_parameters(rule: &mut Backward, first: usize, sums: &[TensorId], outer: &[usize]) {
    let dtypes: Vec<DType> = rule.spec.inputs[first..].iter().map(|tensor| tensor.dtype).collect();
    let sums = &sums[..dtypes.len()];
    let dims = rule.tape.dims(sums[0]);
    let found = match (outer, sums) {
        ([], _) => sums.to_vec(),
        (_, [_]) => vec![rule.reduced("sum", formula(|[sum]| [sum]), sums, (dims, outer), dtypes[0])],
        _ => rows::several(rule, formula(|[one, other]| [one, other]), sums, (dims, outer), &dtypes),
    };
    (first..).zip(found).for_each(|(input, sum)| rule.set(input, sum));
}

/// Sets the gradients of a norm that subtracts the mean, by sums over those normalized elements that have the same weight: the gradients of
/// the parameters are sums of these over other dimensions, and the gradient of the input depends on their weighted sums. False without a
/// weight, or if too few elements have the same.
fn norm_by_sums(
    rule: &mut Backward,
    parts: &NormParts,
    (operands, through): (&Operands, Option<TensorId>),
    others: &[usize],
    eps: f64,
) -> bool {
    let NormParts { dims, axes, adds, .. } = parts;
    let Some(weight) = operands.weight else { return false };
    let (compute, first) = (rule.compute(), 1 + usize::from(*adds));
    let (alike, apart): (Vec<usize>, Vec<usize>) =
        axes.iter().copied().filter(|&axis| dims[axis] > 1).partition(|axis| others.contains(axis));
    let outer: Vec<usize> = others.iter().copied().filter(|axis| !axes.contains(axis)).collect();
    let is_final = apart.is_empty() && outer.is_empty();
    if !is_final && alike.iter().map(|&axis| dims[axis]).product::<u64>() < MIN_ALIKE {
        return false;
    }
    let parameters = rule.spec.inputs[first..].iter().map(|tensor| tensor.dtype);
    let more = parameters.clone().filter(|_| is_final && parameters.clone().any(|dtype| dtype != compute));
    let dtypes: Vec<DType> = [compute; 2].into_iter().chain(more).collect();
    let sums = both_sums(rule, operands, eps, (*dims, &alike), &dtypes);
    let mut of_norm = sums[..2].to_vec();
    if !apart.is_empty() {
        let weighted = formula(|[products, gradients, weight]| [products * weight, gradients * weight]);
        let of_sums = rule.tape.dims(sums[0]);
        of_norm = rows::several(rule, weighted, &[sums[0], sums[1], weight], (of_sums, &apart), &[compute; 2]);
    }
    let share = 1.0 / axes.iter().map(|&axis| dims[axis]).product::<u64>() as f64;
    of_norm.extend(through);
    let (expression, values) = operands.written(eps, &of_norm, |terms, more| {
        let [slope, mean] = [more[0], more[1]].map(|sum| share * sum);
        let found = match terms.weight.filter(|_| apart.is_empty()) {
            Some(weight) => terms.scale * ((terms.gradient - mean - terms.z * slope) * weight),
            None => terms.scale * (terms.weighted - mean - terms.z * slope),
        };
        [more.get(2).map_or(found, |&through| found + through)]
    });
    let output = rule.tape.scratch(rule.spec.inputs[0].dtype, *dims);
    rule.tape.map(expression, &values, &[output]);
    (0..first).for_each(|input| rule.set(input, output));
    set_parameters(rule, first, if dtypes.len() > 2 { &sums[2..] } else { &sums }, &outer);
    true
}

/// Returns the sums of gradient * z and of the gradient along these dimensions, in turn, in each of these types.
fn both_sums(
    rule: &mut Backward,
    operands: &Operands,
    eps: f64,
    (dims, axes): (Dims, &[usize]),
    dtypes: &[DType],
) -> Vec<TensorId> {
    let (expression, values) = operands.written(eps, &[], |terms, _| [terms.gradient * terms.z, terms.gradient]);
    if axes.iter().map(|&axis| dims[axis]).product::<u64>() > 1 {
        return rows::several(rule, expression, &values, (dims, axes), dtypes);
    }
    let each = |place: usize| {
        let (term, used) = expression.part(&[expression.outputs()[place % 2]]);
        let values: Vec<TensorId> = used.into_iter().map(|input| values[input]).collect();
        summed(rule, term, &values, (dims, axes), dtypes[place])
    };
    (0..dtypes.len()).map(each).collect()
}

/// Sets the gradients of a norm of channels, whose statistics are known, by one operation. False for other dimensions, or if a block for
/// each channel would not keep the device busy.
fn norm_of_channels(rule: &mut Backward, parts: &NormParts, operands: &Operands, eps: f64) -> bool {
    let (dims, each) = (parts.dims, parts.weight);
    let Some(mean) = operands.mean.filter(|_| parts.axes == [0, 2] && dims.len() == 3 && !parts.adds) else {
        return false;
    };
    // The sums of gradient * z and of the gradient come before the operands.
    let formula = Formula::default();
    let [slope, level, x, variance, gradient, of_mean] = formula.inputs();
    let share = 1.0 / (dims[0] * dims[2]) as f64;
    let scale = (variance + eps).rsqrt();
    let z = (x - of_mean) * scale;
    let less = scale * (gradient - share * level - z * (share * slope));
    let found = operands.weight.map_or(less, |_| less * formula.input(6));
    let parameters = rule.spec.inputs.len() - 1;
    let results = [slope, level].into_iter().take(parameters);
    let expression = formula.with_outputs([gradient * z, gradient, found].into_iter().chain(results));
    let inputs: Vec<TensorId> =
        [operands.x, operands.variance, operands.gradient, mean].into_iter().chain(operands.weight).collect();
    let shapes = std::iter::once(dims).chain(std::iter::repeat_n(each, parameters));
    let outputs: Vec<(DType, Dims)> =
        rule.spec.inputs.iter().zip(shapes).map(|(tensor, dims)| (tensor.dtype, dims)).collect();
    let Some(found) = rows::sums(&RowSums::Channels, rule, expression, &inputs, &outputs) else { return false };
    found.into_iter().enumerate().for_each(|(input, gradient)| rule.set(input, gradient));
    true
}

/// Returns a weight with an element for each element of a row: one that is the same for several elements is repeated.
fn weight_of_rows(rule: &mut Backward, weight: TensorId, (own, dims): (Dims, Dims), lead: usize) -> TensorId {
    let own = aligned(own, dims.len());
    let is_alike = own[lead..].iter().all(|&size| size == 1);
    let whole: Dims =
        (0..dims.len()).map(|axis| if axis < lead || is_alike { own[axis] } else { dims[axis] }).collect();
    let weight = rule.tape.reshape(weight, own);
    let weight = repeated(rule, weight, whole);
    let length = whole[lead..].iter().product();
    rule.tape.reshape(weight, whole[..lead].iter().copied().chain([length]).collect())
}

/// `batch_norm`: the gradients of the normalized tensor, and of the means and variances, which are outputs too.
pub fn batch_norm(rule: &mut Backward) -> Result<(), NoRule> {
    let x = rule.spec.inputs[0];
    let (channels, alike) = (x.dims[1], x.dims[2..].iter().product());
    let (whole, each) = (Dims::from([x.dims[0], channels, alike]), Dims::from([1, channels, 1]));
    let [mean, variance] = [1, 2].map(|output| {
        let value = rule.output(output);
        rule.tape.reshape(value, each)
    });
    let parts = NormParts { dims: whole, axes: vec![0, 2], weight: each, centred: true, adds: false };
    norm_with(rule, &parts, Some(Statistics { mean: Some(mean), variance }))?;
    let count = (x.dims[0] * alike) as f64;
    let mut parts: Vec<TensorId> = rule.gradients[0].into_iter().collect();
    if let Some(mean) = rule.given(1) {
        let mean = rule.tape.reshape(mean, each);
        let found = rule.scaled(1.0 / count, mean);
        parts.push(repeated(rule, found, whole));
    }
    if let Some(variance) = rule.given(2) {
        let (input, mean) = (rule.input(0), rule.output(1));
        let input = rule.tape.reshape(input, whole);
        let [mean, variance] = [mean, variance].map(|value| rule.tape.reshape(value, each));
        let compute = rule.compute();
        let all = [input, mean, variance];
        parts.push(rule.map(all, compute, |[x, mean, variance]| 2.0 / count * ((x - mean) * variance)));
    }
    if parts.len() > 1 {
        let parts: Vec<TensorId> = parts
            .into_iter()
            .map(|part| {
                let part = rule.tape.reshape(part, whole);
                rule.convert(part, x.dtype)
            })
            .collect();
        let total = rule.tape.sum_of(&parts, (x.dtype, whole));
        rule.set(0, total);
    } else if let [part] = parts[..] {
        rule.set(0, part);
    }
    Ok(())
}

/// Sums an expression over these dimensions.
fn summed(
    rule: &mut Backward,
    expression: Expression,
    values: &[TensorId],
    (dims, axes): (Dims, &[usize]),
    dtype: DType,
) -> TensorId {
    if axes.is_empty() {
        let output = rule.tape.scratch(dtype, dims);
        rule.tape.map(expression, values, &[output]);
        return output;
    }
    rule.reduced("sum", expression, values, (dims, axes), dtype)
}
