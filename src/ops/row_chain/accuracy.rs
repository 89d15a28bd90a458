//! Rounding error bounds of a chain. Errors of the expression before the core are amplified by the core, and both
//! errors pass through the expression after it.

use super::*;
use crate::ops::expression::ball::{Ball, Precision};

/// Margin for products of two errors, which the bounds below omit.
const SECOND_ORDER: f64 = 1.0 + 1e-3;

/// Writes the results of a chain, and returns their tolerances.
pub fn enclose(chain: &RowChain, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) -> Vec<Tolerance> {
    let Some(expression) = spec.expression.as_deref() else { return Vec::new() };
    let dims = spec.outputs[0].dims;
    let (precision, count) = (Precision::of(compute_type(spec)), outputs[0].len());
    let tensors = chain.tensors(spec);
    let (mut balls, mut before) = (Vec::new(), vec![Ball::exact(0.0); count]);
    // The core's operand does not depend on the core's result.
    let mut result = vec![0.0; count];
    each_element(dims, &tensors, (&result, inputs), count, |index, elements| {
        expression.enclose(precision, elements, &mut balls);
        before[index] = balls[usize::from(expression.outputs()[0])];
    });
    let length = dims.last().map_or(1, |&length| length as usize);
    let mut radii = Vec::with_capacity(count);
    match (chain.plain(spec), chain.0.reduction()) {
        (Some(plain), _) => {
            let values: Vec<f64> = before.iter().map(|ball| ball.value).collect();
            let mut own = vec![vec![0.0; count]];
            let tolerance = plain.operation.enclose(&plain, &[&values], &mut own).swap_remove(0);
            result.copy_from_slice(&own[0]);
            for (row, result) in before.chunks(length).zip(result.chunks(length)) {
                chain.moved(&plain, row, result, &mut radii);
            }
            if let Tolerance::Within(rounding) = tolerance {
                radii.iter_mut().zip(rounding).for_each(|(radius, own)| *radius = (*radius + own) * SECOND_ORDER);
            }
        }
        (None, Some(function)) => {
            let mut group = Group { terms: Vec::new(), radii: Vec::new(), compute: compute_type(spec) };
            for (row, result) in before.chunks(length).zip(result.chunks_mut(length)) {
                group.terms.clear();
                group.radii.clear();
                group.terms.extend(row.iter().map(|ball| ball.value));
                group.radii.extend(row.iter().map(|ball| ball.radius));
                let value = function.of(&group.terms);
                let radius = group.radius(function, value);
                result.fill(value);
                radii.extend(row.iter().map(|_| radius));
            }
        }
        (None, None) => unreachable!("a core is an operation of the catalogue or a reduction"),
    }
    let mut allowed = vec![vec![0.0; count]; outputs.len()];
    each_element(dims, &tensors, (&result, inputs), count, |index, elements| {
        let input = |input: usize| match input {
            0 => Ball { value: elements[0], radius: radii[index] },
            _ => Ball::exact(elements[input]),
        };
        expression.propagate(precision, input, &mut balls);
        for (output, &node) in expression.outputs()[1..].iter().enumerate() {
            let ball = balls[usize::from(node)];
            (outputs[output][index], allowed[output][index]) = (ball.value, ball.radius);
        }
    });
    allowed.into_iter().map(Tolerance::Within).collect()
}

/// Calls `work` with the index of each element of the result and the corresponding elements of all tensors.
fn each_element(
    dims: Dims,
    tensors: &[Tensor],
    (result, inputs): (&[f64], &[&[f64]]),
    count: usize,
    mut work: impl FnMut(usize, &[f64]),
) {
    let all: Vec<&[f64]> = std::iter::once(result).chain(inputs.iter().copied()).collect();
    let mut elements = Vec::with_capacity(all.len());
    visit_groups(dims, tensors, &all, count, |places, inputs| {
        for (place, index) in places.enumerate() {
            elements.clear();
            elements.extend(inputs.iter().map(|input| input[place]));
            work(index, &elements);
        }
    });
}

impl RowChain {
    /// Adds to `radii`, for each element of a row, the change of the core's result when its operands vary within their
    /// balls.
    fn moved(&self, plain: &Spec, row: &[Ball], result: &[f64], radii: &mut Vec<f64>) {
        if row.iter().all(|ball| ball.radius == 0.0) {
            radii.extend(row.iter().map(|_| 0.0));
            return;
        }
        let most = row.iter().map(|ball| ball.radius).fold(0.0, f64::max);
        if !most.is_finite() {
            radii.extend(row.iter().map(|_| f64::INFINITY));
            return;
        }
        if self.0 == Core::Softmax {
            // Each exponential grows by its own radius, and the sum of the others shrinks by the largest.
            let scale = plain.attrs.number("scale").abs();
            let grown = |(ball, y): (&Ball, &f64)| y.abs() * (scale * (ball.radius + most)).exp_m1();
            radii.extend(row.iter().zip(result).map(grown));
            return;
        }
        let count = row.len() as f64;
        let mean_of = |value: &dyn Fn(&Ball) -> f64| row.iter().map(value).sum::<f64>() / count;
        let centred = self.0 == Core::LayerNorm;
        let (mean, off) = match centred {
            true => (mean_of(&|ball| ball.value), mean_of(&|ball| ball.radius)),
            false => (0.0, 0.0),
        };
        let eps = plain.attrs.number("eps");
        let variance = mean_of(&|ball| (ball.value - mean).powi(2));
        let moved = mean_of(&|ball| (2.0 * (ball.value - mean).abs() + ball.radius + off) * (ball.radius + off));
        let share = moved / (variance + eps);
        let scale = 1.0 / (variance + eps).sqrt();
        radii.extend(row.iter().map(|ball| match share < 0.5 {
            true => scale * ((ball.radius + off) * (1.0 + share) + (ball.value - mean).abs() * share),
            false => f64::INFINITY,
        }));
    }
}
