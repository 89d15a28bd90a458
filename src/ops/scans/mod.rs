//! Scans: `cumsum` and `cumprod`, the sum or product of all elements up to each one along a dimension.

mod columns;
mod kernel;
mod look_back;
mod short;
mod tiles;

use super::expression::ball::Precision;
use super::kernels::kernel::compute_type;
use super::*;
use crate::ops::call::axis;

use columns::Columns;
use kernel::Split;
use short::ShortLines;
use tiles::Tiles;

/// `cumsum(x, dim: n)` and `cumprod(x, dim: n)`.
pub struct Scan {
    /// True if elements are multiplied instead of added.
    pub multiplies: bool,
}

const OPTIONS: &[OptionSpec] = &[
    axis::option(-1, "dimension to accumulate along; negative ones count from the end"),
    OptionSpec::bool("reverse", false, "accumulate from the last element to the first"),
];

impl Operation for Scan {
    fn signature(&self) -> &'static Signature {
        const fn of(name: &'static str, summary: &'static str) -> Signature {
            Signature {
                name,
                summary,
                category: Category::RowWise,
                inputs: &[Input::Tensor("x")],
                outputs: &["y"],
                options: OPTIONS,
            }
        }
        static SUM: Signature = of("cumsum", "cumulative sum along a dimension");
        static PRODUCT: Signature = of("cumprod", "cumulative product along a dimension");
        if self.multiplies { &PRODUCT } else { &SUM }
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        call.needs_rank(0, 1, "along one of which it goes")?;
        let x = &call.inputs[0].tensor;
        call.axis(x.dims)?;
        let default = if x.dtype.is_float() { x.dtype } else { DType::I32 };
        Ok(vec![call.output(0, call.given_dtype(0).unwrap_or(default), x.dims)?])
    }

    /// The sum of all counts is the last end of the groups that `cumsum` makes of them.
    fn live_rows(&self, spec: &Spec, facts: &[Option<RowFact>]) -> LiveOperation {
        match facts[0] {
            Some(RowFact::Counts(counts)) if !self.multiplies => {
                LiveOperation { works_on: None, outputs: vec![Some(RowFact::Ends(counts))] }
            }
            _ => LiveOperation::of_rows(spec, facts, 1),
        }
    }

    fn launch_costs(&self, spec: &Spec) -> Vec<Cost> {
        if copies(spec) {
            return vec![elementwise::cost(&Expression::identity(), spec)];
        }
        if let Some(tiles) = Tiles::of(spec) {
            return tiles.launch_costs(spec);
        }
        if let Some(lines) = ShortLines::of(spec) {
            return vec![lines.cost(spec)];
        }
        match Columns::of(spec) {
            Some(columns) => columns.launch_costs(spec),
            None => vec![Split::of(spec).cost(spec)],
        }
    }

    fn reference(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        let y = &mut outputs[0];
        y.copy_from_slice(inputs[0]);
        for line in lines(spec) {
            line.windows(2).for_each(|pair| y[pair[1]] = self.join(y[pair[0]], y[pair[1]]));
        }
    }

    fn enclose(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) -> Vec<Tolerance> {
        self.reference(spec, inputs, outputs);
        let compute = compute_type(spec);
        let precision = Precision::of(compute);
        let mut radii = vec![0.0; outputs[0].len()];
        for line in lines(spec) {
            let mut off = RunningError::default();
            for place in line {
                let (x, y) = (inputs[0][place], outputs[0][place]);
                radii[place] = if self.multiplies { off.product(precision, x, y) } else { off.sum(compute, x, y) };
            }
        }
        vec![Tolerance::Within(radii)]
    }

    fn pieces(&self, spec: &Spec) -> Option<Pieces> {
        check::same_rows(spec).filter(|_| axis(spec) > 0)
    }

    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        if copies(spec) {
            return vec![elementwise::launch(self.name(), &Expression::identity(), spec)];
        }
        if let Some(tiles) = Tiles::of(spec) {
            return tiles.launches(self, spec);
        }
        if let Some(lines) = ShortLines::of(spec) {
            return vec![lines.launch(self, spec)];
        }
        match Columns::of(spec) {
            Some(columns) => columns.launches(self, spec),
            None => vec![Split::of(spec).launch(self, spec)],
        }
    }

    fn backward(&self, rule: &mut Backward) -> Result<(), NoRule> {
        let line = (axis(rule.spec), reverse(rule.spec));
        if self.multiplies { backward::cumprod(rule, line) } else { backward::cumsum(rule, line) }
    }
}

impl Scan {
    fn join(&self, a: f64, b: f64) -> f64 {
        if self.multiplies { a * b } else { a + b }
    }
}

/// Returns the dimension of the scan.
fn axis(spec: &Spec) -> usize {
    axis::of(&spec.attrs, spec.inputs[0].dims.len())
}

/// True if each line has a single element, so that the scan only converts it.
fn copies(spec: &Spec) -> bool {
    spec.inputs[0].dims[axis(spec)] == 1
}

/// True if the scan begins with the last element.
fn reverse(spec: &Spec) -> bool {
    spec.attrs.bool("reverse")
}

/// Returns the indices of the elements of each line, in the order of the scan.
fn lines(spec: &Spec) -> impl Iterator<Item = Vec<usize>> {
    let (dims, axis, is_reverse) = (spec.inputs[0].dims, axis(spec), reverse(spec));
    let inner = dims[axis + 1..].iter().product::<u64>() as usize;
    let length = dims[axis] as usize;
    let outer = dims[..axis].iter().product::<u64>() as usize;
    (0..outer * inner).map(move |line| {
        let first = line / inner * length * inner + line % inner;
        let mut line: Vec<usize> = (first..first + (length - 1) * inner + 1).step_by(inner).collect();
        if is_reverse {
            line.reverse();
        }
        line
    })
}

/// Running error bound of the results of a line on a device.
#[derive(Default)]
struct RunningError {
    /// Number of elements so far.
    count: f64,
    /// Sum of absolute values in `f64`.
    size: f64,
    /// Sum of absolute values, rounded to the device's type after each addition.
    plain: f64,
    /// Largest difference of these two sums so far.
    most: f64,
    /// Binary logarithm of the largest product of a subset of the elements.
    above: f64,
    /// Binary logarithm of the smallest such product.
    below: f64,
}

impl RunningError {
    /// Returns the assumed number of roundings of a result: about the square root of the number of elements.
    fn steps(&self) -> f64 {
        (4.0 * self.count.sqrt() + 8.0).min(self.count)
    }

    /// Adds element `x` to the sum, which becomes `y`, and returns the error bound of `y`. See `check::sum_error`.
    fn sum(&mut self, compute: DType, x: f64, y: f64) -> f64 {
        let precision = Precision::of(compute);
        self.count += 1.0;
        if !x.is_finite() || !y.is_finite() {
            return if precision.holds(2.0 * self.size) { 0.0 } else { f64::INFINITY };
        }
        self.size += x.abs();
        self.plain = compute.round(self.plain + compute.round(x.abs()));
        self.most = self.most.max((self.plain - self.size).abs());
        match precision.holds(2.0 * self.size) {
            true => 2.0 * self.most + self.steps() * precision.unit() * self.size,
            false => f64::INFINITY,
        }
    }

    /// Multiplies the product by element `x`, which makes it `y`, and returns the error bound of `y`.
    fn product(&mut self, precision: Precision, x: f64, y: f64) -> f64 {
        self.count += 1.0;
        if x != 0.0 && !x.is_nan() {
            self.above += x.abs().log2().max(0.0);
            self.below += x.abs().log2().min(0.0);
        }
        // In another order of multiplication, a partial product may overflow or underflow.
        let fits = precision.holds(2.0 * self.above.exp2()) && self.below > precision.smallest().log2() + 1.0;
        match fits {
            true if y.is_finite() => y.abs() * (2.0 * self.steps() * precision.unit()).exp_m1(),
            true => 0.0,
            false => f64::INFINITY,
        }
    }
}
