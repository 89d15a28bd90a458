//! Gradients of row losses.

use super::*;

/// `cross_entropy`: for each counted row, the probabilities of the classes minus the one-hot target.
pub fn cross_entropy(rule: &mut Backward) -> Result<(), NoRule> {
    let Some(gradient) = rule.gradient() else { return Ok(()) };
    let (logits, attrs) = (rule.spec.inputs[0], &rule.spec.attrs);
    let (ignored, smoothing) = (attrs.int("ignore_index") as f64, attrs.number("label_smoothing"));
    let classes = logits.dims[logits.dims.len() - 1];
    let (input, targets) = (rule.input(0), rule.input(1));
    let compute = logits.dtype.compute();
    // The difference between a probability and its target can be small. A logarithm of the sum would round by a share of the
    // largest logit, so the largest one and the sum stay apart.
    let last = [logits.dims.len() - 1];
    let top = rule.reduce("max", ([input], &last), compute, |[x]| x);
    let total = rule.reduce("sum", ([input, top], &last), compute, |[x, top]| (x - top).apply(Unary::Exp));
    let [targets, gradient] = [targets, gradient].map(|value| rule.column(value));
    let [targets, numbers] = rule.comparable(targets, classes, Dims::from([classes]));
    let all = [input, top, total, targets, numbers, gradient];
    let found = rule.map(all, logits.dtype, |[x, top, total, target, class, gradient]| {
        let probability = (x - top).apply(Unary::Exp) / total;
        let constants = [0.0, ignored, classes as f64, smoothing / classes as f64, 1.0 - smoothing];
        let [zero, ignored, count, alike, certain] = constants.map(|value| target.constant(value));
        let own = target.equals(class).select(certain, zero);
        let share = if smoothing > 0.0 { own + alike } else { own };
        let product = gradient * (probability - share);
        // Rows whose target is ignored or is not a class have no loss.
        let is_class = target.less(count);
        let (below, skipped) = (target.less(zero), target.equals(ignored));
        skipped.select(zero, below.select(zero, is_class.select(product, zero)))
    });
    rule.set(0, found);
    Ok(())
}
