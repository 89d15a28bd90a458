//! Gradients of `softmax` and of norms.

use crate::base::Dims;

use super::*;

/// The gradient of `softmax`: each element's gradient minus the probability-weighted mean of its row's gradients, times
/// the element's probability.
pub fn softmax(rule: &mut Backward) -> Result<(), NoRule> {
    let Some(gradient) = rule.gradient() else { return Ok(()) };
    let (y, compute) = (rule.output(0), rule.compute());
    let (dtype, scale) = (rule.spec.inputs[0].dtype, rule.spec.attrs.number("scale"));
    let last = rule.spec.inputs[0].dims.len() - 1;
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
    /// Whether the mean is subtracted first, as in `layer_norm`.
    pub centred: bool,
    /// Whether the norm is applied to the sum of the first two inputs. The second output is that sum.
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
    /// Gradient of the normalized tensor.
    weighted: Term<'f>,
}

impl Operands {
    fn values(&self) -> Vec<TensorId> {
        [self.x, self.variance, self.gradient].into_iter().chain(self.mean).chain(self.weight).collect()
    }

    fn terms<'f>(&self, formula: &'f Formula, eps: f64) -> Terms<'f> {
        let [x, variance, gradient] = formula.inputs();
        let less = if self.mean.is_some() { x - formula.input(3) } else { x };
        let scale = (variance + eps).rsqrt();
        let weighted = match self.weight {
            Some(_) => gradient * formula.input(3 + u8::from(self.mean.is_some())),
            None => gradient,
        };
        Terms { z: less * scale, scale, gradient, weighted }
    }

    /// Returns the expression that `of` writes with the operands and `more` further inputs.
    fn written(
        &self,
        eps: f64,
        more: usize,
        of: impl for<'f> FnOnce(Terms<'f>, &[Term<'f>]) -> Term<'f>,
    ) -> Expression {
        let formula = Formula::default();
        let terms = self.terms(&formula, eps);
        let count = self.values().len();
        let more: Vec<Term> = (count..count + more).map(|input| formula.input(input as u8)).collect();
        formula.with_outputs([of(terms, &more)])
    }
}

/// Norms. With the normalized tensor `z` and its gradient `h`, the gradient of the input is scale * (h - mean(h) - z *
/// mean(h * z)), without `mean(h)` if no mean is subtracted.
pub fn norm(rule: &mut Backward, parts: &NormParts) -> Result<(), NoRule> {
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
    let mean = centred.then(|| rule.reduce("mean", ([x], axes), compute, |[x]| x));
    let variance = match mean {
        Some(mean) => rule.reduce("mean", ([x, mean], axes), compute, |[x, mean]| (x - mean).square()),
        None => rule.reduce("mean", ([x], axes), compute, |[x]| x.square()),
    };
    let has = |input: usize| rule.spec.inputs.len() > input;
    let scale = has(first).then(|| rule.input(first)).map(|value| rule.tape.reshape(value, *weight));
    let operands = Operands { x, variance, gradient, mean, weight: scale };
    let values = operands.values();
    if (0..first).any(|input| rule.wants(input)) {
        let by_z = operands.written(eps, 0, |terms, _| terms.weighted * terms.z);
        let by_z = rule.reduced("mean", by_z, &values, (*dims, axes), compute);
        let alone = centred.then(|| {
            let weighted = operands.written(eps, 0, |terms, _| terms.weighted);
            rule.reduced("mean", weighted, &values, (*dims, axes), compute)
        });
        let more: Vec<TensorId> = [by_z].into_iter().chain(alone).chain(through).collect();
        let found = operands.written(eps, more.len(), |terms, more| {
            let less = terms.weighted - terms.z * more[0];
            let found = terms.scale * if *centred { less - more[1] } else { less };
            if through.is_some() { found + more[1 + usize::from(*centred)] } else { found }
        });
        let used: Vec<TensorId> = values.iter().copied().chain(more).collect();
        let output = rule.tape.scratch(dtype, *dims);
        rule.tape.map(found, &used, &[output]);
        (0..first).for_each(|input| rule.set(input, output));
    }
    let others: Vec<usize> = (0..dims.len()).filter(|&axis| aligned(*weight, dims.len())[axis] != dims[axis]).collect();
    if rule.wants(first) {
        let by_weight = operands.written(eps, 0, |terms, _| terms.gradient * terms.z);
        let found = summed(rule, by_weight, &values, (*dims, &others), first);
        rule.set(first, found);
    }
    if rule.wants(first + 1) {
        let found = summed(rule, Expression::identity(), &[gradient], (*dims, &others), first + 1);
        rule.set(first + 1, found);
    }
    Ok(())
}

/// `batch_norm`: the gradients of the normalized tensor, and of the means and variances, which are outputs too.
pub fn batch_norm(rule: &mut Backward) -> Result<(), NoRule> {
    let x = rule.spec.inputs[0];
    let (channels, alike) = (x.dims[1], x.dims[2..].iter().product());
    let (whole, each) = (Dims::from([x.dims[0], channels, alike]), Dims::from([1, channels, 1]));
    norm(rule, &NormParts { dims: whole, axes: vec![0, 2], weight: each, centred: true, adds: false })?;
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

/// Sums an expression over these dimensions, in the type of an input.
fn summed(
    rule: &mut Backward,
    expression: Expression,
    values: &[TensorId],
    (dims, axes): (Dims, &[usize]),
    input: usize,
) -> TensorId {
    let dtype = rule.spec.inputs[input].dtype;
    if axes.is_empty() {
        let output = rule.tape.scratch(dtype, dims);
        rule.tape.map(expression, values, &[output]);
        return output;
    }
    rule.reduced("sum", expression, values, (dims, axes), dtype)
}
