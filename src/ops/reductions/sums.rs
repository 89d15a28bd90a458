//! Results that are an expression of several sums over the same elements. One pass reads the terms of all sums; the
//! thread that has the sums of a result evaluates the expression.

use super::*;
use crate::ops::expression::ball::{Ball, Precision};

/// Several sums over some dimensions, and an expression of them. The inputs of the operation are those of the terms;
/// its first output holds the results.
pub struct Sums {
    /// Terms of the sums: an expression with one output per sum, at least two.
    pub terms: Expression,
    /// Result: an expression with one input per sum and one output.
    pub result: Expression,
}

impl Sums {
    /// Returns the function that reduces the terms.
    fn function(&self) -> Function {
        Function::Sums(self.terms.outputs().len() as u8)
    }

    /// Returns the cost of each launch.
    pub fn launch_costs(&self, spec: &Spec, extent: &Extent) -> Vec<Cost> {
        let function = self.function();
        Split::of(spec, extent, compute_type(spec), function).launch_costs(spec, &self.terms, function)
    }

    /// Returns the results in `f64`.
    pub fn reference(&self, spec: &Spec, extent: &Extent, inputs: &[&[f64]], results: &mut [f64]) {
        let terms = extent.values_of_each(&self.terms, spec, inputs);
        let mut room = Vec::new();
        for (result, places) in results.iter_mut().zip(extent.groups()) {
            let places: Vec<usize> = places.map(|place| place as usize).collect();
            let sums: Vec<f64> = terms.iter().map(|terms| places.iter().map(|&place| terms[place]).sum()).collect();
            let sums: Vec<&[f64]> = sums.iter().map(std::slice::from_ref).collect();
            *result = self.result.evaluate(1, &sums, &mut room)[0];
        }
    }

    /// Computes the results and returns their tolerance.
    pub fn enclose(&self, spec: &Spec, extent: &Extent, inputs: &[&[f64]], results: &mut [f64]) -> Tolerance {
        let compute = compute_type(spec);
        let terms = Terms::of_each(&self.terms, spec, extent, inputs, compute);
        let mut values = Vec::new();
        let mut allowed = Vec::with_capacity(results.len());
        for (result, places) in results.iter_mut().zip(extent.groups()) {
            let places: Vec<u64> = places.collect();
            let sums: Vec<Ball> = terms.iter().map(|terms| terms.sum(places.iter().copied())).collect();
            let ball = self.result.propagate(Precision::of(compute), |sum| sums[sum], &mut values);
            *result = ball.value;
            allowed.push(ball.radius);
        }
        Tolerance::Within(allowed)
    }

    /// Returns the launches of kernels with this name.
    pub fn launches(&self, name: &str, spec: &Spec, extent: &Extent) -> Vec<Launch> {
        let compute = compute_type(spec);
        let sums: Vec<String> = (0..self.terms.outputs().len()).map(|sum| format!("total.v[{sum}]")).collect();
        let finish = Finish::expression(&self.result, &sums, &["TO"], compute);
        launches(name, self.function(), &self.terms, spec, extent, compute, finish)
    }
}
