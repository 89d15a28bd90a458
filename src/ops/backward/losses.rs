//! Gradients of row losses.

use super::super::losses::CROSS_ENTROPY_GRADIENT;
use super::*;

/// `cross_entropy`: for each counted row, the probabilities of the classes minus those of the target, which `label_smoothing` spreads over
/// all classes.
pub fn cross_entropy(rule: &mut Backward) -> Result<(), NoRule> {
    let Some(gradient) = rule.gradient() else { return Ok(()) };
    let logits = rule.spec.inputs[0];
    let found = rule.tape.scratch(logits.dtype, logits.dims);
    let inputs = [rule.input(0), rule.input(1), gradient];
    rule.tape.step(&CROSS_ENTROPY_GRADIENT, rule.spec.attrs.clone(), None, &inputs, &[found]);
    rule.set(0, found);
    Ok(())
}

/// The gradient of `cross_entropy`: that of a softmax times the slope of each row, and the sum over a row for its slope.
pub fn cross_entropy_gradient(rule: &mut Backward) -> Result<(), NoRule> {
    let Some(gradient) = rule.gradient() else { return Ok(()) };
    let (logits, attrs) = (rule.spec.inputs[0], &rule.spec.attrs);
    let (ignored, smoothing) = (attrs.int("ignore_index") as f64, attrs.number("label_smoothing"));
    let (classes, last) = (logits.dims[logits.dims.len() - 1], [logits.dims.len() - 1]);
    let compute = logits.dtype.compute();
    // The difference between a probability and its target can be small, so probabilities are not rounded to the type of the logits.
    let input = rule.input(0);
    let wide = rule.map([input], compute, |[x]| x);
    let chances = rule.tape.operation("softmax", &[], &[wide], (compute, logits.dims));
    let [targets, slopes] = [1, 2].map(|input| rule.column(rule.input(input)));
    let [targets, numbers] = rule.comparable(targets, classes, Dims::from([classes]));
    // 1 in rows with a loss, 0 in others.
    let counted = rule.map([targets], compute, |[target]| {
        let [zero, ignored, count] = [0.0, ignored, classes as f64].map(|value| target.constant(value));
        let [one, none] = [1.0, 0.0].map(|value| target.constant(value));
        let is_class = target.less(count).select(one, none);
        target.equals(ignored).select(none, target.less(zero).select(none, is_class))
    });
    let mean = rule.reduce("sum", ([gradient, chances], &last), compute, |[g, p]| g * p);
    let all = [gradient, chances, mean, slopes, counted];
    let found = rule.map(all, logits.dtype, |[g, p, mean, slope, counted]| {
        let zero = g.constant(0.0);
        zero.less(counted).select(slope * p * (g - mean), zero)
    });
    rule.set(0, found);
    let all = ([gradient, chances, targets, numbers, counted], &last[..]);
    let of_slopes = rule.reduce("sum", all, rule.spec.inputs[2].dtype, |[g, p, target, class, counted]| {
        let [alike, certain, zero] = [smoothing / classes as f64, 1.0 - smoothing, 0.0].map(|value| g.constant(value));
        let product = g * (p - (alike + target.equals(class).select(certain, zero)));
        zero.less(counted).select(product, zero)
    });
    rule.set(2, of_slopes);
    Ok(())
}
