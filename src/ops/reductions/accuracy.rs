//! Bounds on rounding errors of reductions. The error of a result combines the errors of its terms with those of
//! reducing them in any order.

use super::super::check::sum_error;
use super::super::elementwise::visit_groups;
use super::*;
use crate::ops::expression::ball::{Ball, FUNCTION, Precision};

/// Terms of a reduction, in row-major order of the expression's shape.
pub struct Terms {
    values: Vec<f64>,
    /// Upper bound on the absolute error of each term; empty if all terms are exact.
    radii: Vec<f64>,
    /// Type in which the device computes.
    compute: DType,
}

impl Terms {
    /// Evaluates the terms of an expression, with error bounds for a device that computes in `compute`.
    pub fn of(expression: &Expression, spec: &Spec, extent: &Extent, inputs: &[&[f64]], compute: DType) -> Terms {
        if expression.is_identity() {
            return Terms { values: inputs[0].to_vec(), radii: Vec::new(), compute };
        }
        Self::of_each(expression, spec, extent, inputs, compute).swap_remove(0)
    }

    /// Evaluates the terms of each output of an expression.
    pub fn of_each(
        expression: &Expression,
        spec: &Spec,
        extent: &Extent,
        inputs: &[&[f64]],
        compute: DType,
    ) -> Vec<Terms> {
        let precision = Precision::of(compute);
        let count = extent.dims.iter().product::<u64>() as usize;
        let empty = || Terms { values: Vec::with_capacity(count), radii: Vec::with_capacity(count), compute };
        let mut all: Vec<Terms> = expression.outputs().iter().map(|_| empty()).collect();
        let (mut balls, mut elements) = (Vec::new(), Vec::new());
        visit_groups(extent.dims, &spec.inputs, inputs, count, |places, inputs| {
            for place in 0..places.len() {
                elements.clear();
                elements.extend(inputs.iter().map(|input| input[place]));
                expression.enclose(precision, &elements, &mut balls);
                for (terms, &node) in all.iter_mut().zip(expression.outputs()) {
                    terms.values.push(balls[usize::from(node)].value);
                    terms.radii.push(balls[usize::from(node)].radius);
                }
            }
        });
        all
    }

    /// Computes the results and returns their tolerance.
    pub fn enclose(&self, function: Function, extent: &Extent, outputs: &mut [f64]) -> Tolerance {
        let mut group = Group { terms: Vec::new(), radii: Vec::new(), compute: self.compute };
        let mut allowed = Vec::with_capacity(outputs.len());
        for (out, places) in outputs.iter_mut().zip(extent.groups()) {
            self.pick(places, &mut group);
            *out = function.of(&group.terms);
            allowed.push(group.radius(function, *out));
        }
        Tolerance::Within(allowed)
    }

    /// Returns the sum of the terms with these indices, with an error bound.
    pub fn sum(&self, places: impl Iterator<Item = u64>) -> Ball {
        let mut group = Group { terms: Vec::new(), radii: Vec::new(), compute: self.compute };
        self.pick(places, &mut group);
        let value = Function::Sum.of(&group.terms);
        Ball { value, radius: group.radius(Function::Sum, value) }
    }

    /// Writes the terms with these indices to `group`.
    fn pick(&self, places: impl Iterator<Item = u64>, group: &mut Group) {
        group.terms.clear();
        group.radii.clear();
        for place in places {
            group.terms.push(self.values[place as usize]);
            group.radii.push(self.radii.get(place as usize).copied().unwrap_or(0.0));
        }
    }
}

/// Terms of one result.
pub struct Group {
    /// Values of the terms.
    pub terms: Vec<f64>,
    /// Upper bound on the absolute error of each term; empty if all terms are exact.
    pub radii: Vec<f64>,
    /// Type in which the device computes.
    pub compute: DType,
}

impl Group {
    /// Adds a term with its error bound.
    pub fn push(&mut self, term: Ball) {
        self.terms.push(term.value);
        self.radii.push(term.radius);
    }

    /// Returns the error bound of the result `value`; infinite if rounding alone can determine the result.
    pub fn radius(&self, function: Function, value: f64) -> f64 {
        let precision = Precision::of(self.compute);
        match function {
            Function::Sum | Function::Sums(_) => self.sum(precision),
            Function::Mean => {
                let count = self.terms.len() as f64;
                let off = self.sum(precision) / count;
                match value.is_finite() {
                    true => off + 2.0 * precision.unit() * (value.abs() + off + 2.0 * precision.smallest()),
                    false => off,
                }
            }
            Function::Prod => self.product(precision, value),
            Function::Max | Function::ArgMax => self.best(function == Function::ArgMax, value, |x| x),
            Function::Min | Function::ArgMin => self.best(function == Function::ArgMin, value, |x| -x),
            Function::LogSumExp | Function::LogSumExpAndSum => self.log_sum_exp(precision, value),
        }
    }

    /// Returns the mean of the absolute values of the terms.
    pub fn size(&self) -> f64 {
        self.terms.iter().map(|term| term.abs()).sum::<f64>() / self.terms.len() as f64
    }

    /// Returns the error bound of the sum of the terms.
    fn sum(&self, precision: Precision) -> f64 {
        let moved: f64 = self.radii.iter().sum();
        let sizes: Vec<f64> = self.terms.iter().filter(|term| term.is_finite()).map(|term| term.abs()).collect();
        // Partial sums of large terms may overflow.
        if !moved.is_finite() || !precision.holds(2.0 * (sizes.iter().sum::<f64>() + moved)) {
            return f64::INFINITY;
        }
        match sizes.len() == self.terms.len() {
            true => sum_error(self.compute, &sizes) + moved,
            // A sum with an infinite term or NaN stays infinite or NaN.
            false => 0.0,
        }
    }

    fn product(&self, precision: Precision, value: f64) -> f64 {
        if self.radii.iter().any(|radius| radius.is_infinite()) {
            return f64::INFINITY;
        }
        if self.terms.iter().zip(&self.radii).any(|(term, radius)| term.is_nan() && *radius == 0.0) {
            return 0.0;
        }
        // Logarithms of the largest and smallest product of a subset of the terms.
        let logarithms = || self.terms.iter().filter(|term| **term != 0.0).map(|term| term.abs().log2());
        let above: f64 = logarithms().map(|bits| bits.max(0.0)).sum();
        let below: f64 = logarithms().map(|bits| bits.min(0.0)).sum();
        let largest = if self.compute == DType::F64 { f64::MAX } else { f64::from(f32::MAX) }.log2();
        if above >= largest - 1.0 || below <= precision.smallest().log2() + 1.0 {
            return f64::INFINITY;
        }
        if value == 0.0 {
            let moved = self.terms.iter().zip(&self.radii).any(|(term, radius)| *term == 0.0 && *radius > 0.0);
            let sure = self.terms.iter().zip(&self.radii).any(|(term, radius)| *term == 0.0 && *radius == 0.0);
            return if moved && !sure { f64::INFINITY } else { 0.0 };
        }
        let count = self.terms.len() as f64;
        let steps = (4.0 * count.sqrt() + 8.0).min(count);
        let share = |(term, radius): (&f64, &f64)| if *radius == 0.0 { 0.0 } else { radius / term.abs() };
        let moved = self.terms.iter().zip(&self.radii).map(share).sum::<f64>() + 2.0 * steps * precision.unit();
        if moved > 0.5 { f64::INFINITY } else { value.abs() * moved.exp_m1() }
    }

    /// Error bound of the maximum by `order`, or of its index. Terms that are equal within their errors may be
    /// selected instead.
    fn best(&self, place: bool, value: f64, order: impl Fn(f64) -> f64) -> f64 {
        let terms = || self.terms.iter().map(|term| order(*term)).zip(self.radii.iter().copied());
        if terms().any(|(term, radius)| radius.is_infinite() || (term.is_nan() && radius > 0.0)) {
            return f64::INFINITY;
        }
        if self.radii.iter().all(|radius| *radius == 0.0) || terms().any(|(term, _)| term.is_nan()) {
            return 0.0;
        }
        let least = terms().map(|(term, radius)| term - radius).fold(f64::NEG_INFINITY, f64::max);
        let candidates = || terms().filter(|(term, radius)| term + radius >= least);
        match place {
            true if candidates().count() > 1 => f64::INFINITY,
            true => 0.0,
            false if value.is_finite() => candidates().map(|(_, radius)| radius).fold(0.0, f64::max),
            false => 0.0,
        }
    }

    fn log_sum_exp(&self, precision: Precision, value: f64) -> f64 {
        if self.radii.iter().any(|radius| radius.is_infinite()) {
            return f64::INFINITY;
        }
        if !value.is_finite() {
            return 0.0;
        }
        let unit = precision.unit();
        let most = self.terms.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let (mut exponentials, mut moved) = (Vec::with_capacity(self.terms.len()), 0.0);
        for (term, radius) in self.terms.iter().zip(&self.radii).filter(|(term, _)| term.is_finite()) {
            let exponential = (term - most).exp();
            moved += exponential * (radius + unit * (most - term));
            exponentials.push(exponential);
        }
        let sum: f64 = exponentials.iter().sum();
        // The sum is rescaled whenever a larger term is found.
        let count = self.terms.len() as f64;
        let scaled = FUNCTION * unit * (4.0 * count.sqrt() + 8.0).min(count);
        let share = (moved + sum_error(self.compute, &exponentials)) / sum + scaled;
        if share > 0.5 {
            return f64::INFINITY;
        }
        share / (1.0 - share) + FUNCTION * unit * sum.ln().abs() + 2.0 * unit * (most.abs() + value.abs())
    }
}
