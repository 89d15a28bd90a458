//! `grouped_gemm`: products of groups of rows, or of parts of the depth. The sizes of the groups are known only at run
//! time.

mod bulk;
mod join;
mod kernel;
mod lengths;
mod shares;
mod shifted;
mod single;
mod stores;
mod text;
mod thin;
mod tiles;
mod times;
mod ways;

use std::ops::Range;

use ndarray::{Axis, Slice};

use crate::base::{DType, Dims};

use super::super::live_rows::{held, holding};
use super::super::*;
use super::check::Rounding;
use super::epilogue::{Finish, Function};
use super::gated::{self, Gate};
use super::product::Factors;
use super::{arithmetic, rows_columns};
use kernel::Tiling;

/// `grouped_gemm(a, b, ends -> c)`, as `torch._grouped_mm`.
pub struct GroupedGemm;

/// Number of inputs without the bias: both factors and the ends of the groups.
const FACTORS: usize = 3;

/// Index of the input with the end of each group.
const ENDS: usize = 2;

/// Maximum number of groups: each block keeps the ends of all in shared memory.
const MAX_GROUPS: u64 = 1024;

/// Maximum number of rows, of columns, and of terms of a sum: kernels index them with 32 bits.
const MAX_ROWS: u64 = 1 << 31;

const OPTIONS: [OptionSpec; 3] = [
    OptionSpec::bool("transpose_a", false, "multiply by the transpose of `a`"),
    OptionSpec::bool("transpose_b", false, "multiply by the transpose of each matrix of `b`"),
    OptionSpec::word("epilogue", &gated::NAMES, "activation of the result, as in `gemm`"),
];

impl Operation for GroupedGemm {
    signature! {
        name: "grouped_gemm",
        summary: "grouped matrix multiplication: groups of rows, each with its own matrix, or groups along the inner dimension",
        category: Category::Matrix,
        inputs: &[Input::Tensor("a"), Input::Tensor("b"), Input::Tensor("ends")],
        outputs: &["c", "sums"],
        options: &OPTIONS,
    }

    fn outputs(&self, attrs: &Attrs, _: usize, _: usize) -> usize {
        1 + usize::from(gated::function(attrs).is_some())
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        let [a, b, ends] = [0, 1, 2].map(|input| &call.inputs[input]);
        for input in [a, b] {
            let fits = input.tensor.dtype.is_float() && !input.tensor.dtype.is_float8();
            call.needs_dtype(input, fits, "floating-point matrices of 16 bits or more")?;
        }
        call.needs_indices(ends)?;
        let needs = |operand: &Operand, fits: bool, needs: &str| match fits {
            true => Ok(()),
            false => Err(call.bad_shape(operand, needs)),
        };
        needs(a, a.tensor.dims.len() == 2, "two dimensions, the rows of all groups and their columns")?;
        let in_rows = b.tensor.dims.len() == 3;
        let matrices = "three dimensions, a matrix for each group, or two, whose groups are parts of the depth";
        needs(b, in_rows || b.tensor.dims.len() == 2, matrices)?;
        needs(ends, ends.tensor.dims.len() == 1, "one dimension, the end of each group")?;
        if a.tensor.dtype != b.tensor.dtype {
            let (left, right) = (format!("this is {}", a.tensor.dtype), format!("this is {}", b.tensor.dtype));
            let cast = call.cast_to(a.tensor.dtype.promote(b.tensor.dtype));
            return Err(call.differs(0, left, 1, right, &format!("both factors need the same element type: {cast}")));
        }
        let groups = ends.tensor.dims[0];
        needs(ends, groups <= MAX_GROUPS, &format!("at most {MAX_GROUPS} groups"))?;
        if in_rows && b.tensor.dims[0] != groups {
            let (left, right) =
                (format!("this has {} matrices", b.tensor.dims[0]), format!("this ends {groups} groups"));
            return Err(call.differs(1, left, 2, right, "each group has its matrix and its end"));
        }
        let (m, k) = rows_columns(&a.tensor, call.attrs.bool("transpose_a"));
        let (k2, n) = rows_columns(&b.tensor, call.attrs.bool("transpose_b"));
        if k != k2 {
            let transposed = |t: bool| if t { " when transposed" } else { "" };
            let [of_a, of_b] = ["transpose_a", "transpose_b"].map(|name| transposed(call.attrs.bool(name)));
            return Err(call.differs(
                0,
                format!("{} has {k} columns{of_a}", a.tensor),
                1,
                format!("{} has {k2} rows{of_b}", b.tensor),
                "the columns of the first have to be as many as the rows of the second; \
                 `transpose_a: true` and `transpose_b: true` transpose one",
            ));
        }
        for (factor, sizes) in [(a, [m, k]), (b, [k, n])] {
            needs(factor, sizes.iter().all(|&size| size < MAX_ROWS), "fewer than 2^31 rows and columns")?;
        }
        let sizes: &[u64] = if in_rows { &[m, n] } else { &[groups, m, n] };
        let dtype = match call.given_dtype(0) {
            Some(DType::F32) if a.tensor.dtype.size() == 2 => DType::F32,
            _ => a.tensor.dtype,
        };
        let dims = Dims::from_slice(sizes).expect("at most three dimensions");
        match gated::function(call.attrs) {
            Some(_) => Gate::outputs(call, (dtype, dims)),
            None => Ok(vec![call.output(0, dtype, dims)?]),
        }
    }

    fn cost(&self, spec: &Spec) -> Cost {
        match Gate::of(spec, FACTORS) {
            Some(gate) => gate.cost(spec, self.cost(&gate.sums(spec))),
            None if let Some(product) = single::product(spec) => product.cost(),
            None if let Some(costs) = thin::costs(spec) => costs.into_iter().sum(),
            None => Tiling::of(spec).of_live(spec).launch_costs(spec).into_iter().sum(),
        }
    }

    fn launch_costs(&self, spec: &Spec) -> Vec<Cost> {
        match single::product(spec) {
            _ if Gate::of(spec, FACTORS).is_some() => Vec::new(),
            Some(product) => product.operation.launch_costs(&product),
            None if let Some(costs) = thin::costs(spec) => costs,
            None => Tiling::of(spec).of_live(spec).launch_costs(spec),
        }
    }

    fn sizing(&self, _: &Spec) -> Vec<usize> {
        vec![ENDS]
    }

    fn live_rows(&self, spec: &Spec, facts: &[Option<RowFact>]) -> LiveOperation {
        let of_rows = spec.inputs[1].dims.len() == 3;
        // The groups divide the rows of `a`, or its depth; both may be its first dimension in memory.
        let axis = usize::from(of_rows == spec.attrs.bool("transpose_a"));
        let all = LiveRows { rows: spec.inputs[0].dims[axis], exact: true };
        let live = match (facts[2], held(facts, 0).filter(|_| axis == 0)) {
            (Some(RowFact::Ends(ends)), _) => LiveRows { rows: ends.rows.min(all.rows), ..ends },
            (_, Some(held)) => LiveRows { exact: false, ..held },
            (_, None) => LiveRows { exact: false, ..all },
        };
        let output = |tensor: &Tensor| if of_rows { holding(tensor, live) } else { None };
        LiveOperation {
            works_on: Some(live).filter(|live| *live != all),
            outputs: spec.outputs.iter().map(output).collect(),
        }
    }

    fn reference(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        if let Some(gate) = Gate::of(spec, FACTORS) {
            self.reference(&gate.sums(spec), inputs, &mut outputs[1..]);
            return gate.apply(spec, inputs, outputs);
        }
        let finish = finish(spec);
        outputs[0].fill(0.0);
        for (range, factors) in parts(spec, inputs) {
            let c = &mut outputs[0][range];
            factors.multiply(c);
            c.iter_mut().for_each(|sum| *sum = finish.apply(*sum));
        }
    }

    fn enclose(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) -> Vec<Tolerance> {
        if let Some(gate) = Gate::of(spec, FACTORS) {
            let of_sums = self.enclose(&gate.sums(spec), inputs, &mut outputs[1..]);
            return gate.enclosed(spec, inputs, outputs, of_sums);
        }
        let (finish, rounding) = (finish(spec), rounding(spec));
        let mut radii = vec![0.0; outputs[0].len()];
        outputs[0].fill(0.0);
        for (range, factors) in parts(spec, inputs) {
            let mut sums = vec![0.0; range.len()];
            factors.multiply(&mut sums);
            radii[range.clone()].copy_from_slice(&rounding.radii(factors, None, &sums));
            outputs[0][range].iter_mut().zip(&sums).for_each(|(c, &sum)| *c = finish.apply(sum));
        }
        vec![Tolerance::Within(radii)]
    }

    fn check(&self, spec: &Spec, inputs: &[&[f64]], _: PriorOutputs, actual: &[Vec<f64>]) -> Vec<Check> {
        match Gate::of(spec, FACTORS) {
            Some(gate) => {
                vec![gate.check(spec, inputs, actual), check_product(&gate.sums(spec), inputs, &actual[1])]
            }
            None => vec![check_product(spec, inputs, &actual[0])],
        }
    }

    /// Returns the launches of the copies of factors, if any, of the product, and of the kernel that adds parts of
    /// shared tiles, if blocks may share tiles; of a single group that is known ahead, those of `gemm`.
    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        match Gate::of(spec, FACTORS) {
            Some(gate) => gate.launch(spec, self.launch(&gate.sums(spec))),
            None if let Some(product) = single::product(spec) => single::launches(product.launch()),
            None if let Some(launches) = thin::launches(spec) => launches,
            None => Tiling::of(spec).launches(spec),
        }
    }

    /// Returns the launches of `gemm` that need less workspace, for a single group that is known ahead.
    fn sparing_launch(&self, spec: &Spec) -> Option<Vec<Launch>> {
        match Gate::of(spec, FACTORS) {
            Some(gate) => Some(gate.launch(spec, self.sparing_launch(&gate.sums(spec))?)),
            None => Some(single::launches(single::product(spec)?.sparing_launch()?)),
        }
    }

    fn launch_in_ways(&self, spec: &Spec, most: usize) -> Option<Vec<Launch>> {
        match Gate::of(spec, FACTORS) {
            Some(gate) => Some(gate.launch(spec, self.launch_in_ways(&gate.sums(spec), most)?)),
            None if single::product(spec).is_some() || thin::applies(spec) => None,
            None => Some(vec![ways::launch(spec, most)?]),
        }
    }

    fn outputs_with_gradients(&self, _: &Spec) -> usize {
        1
    }

    fn implementation(&self, spec: &Spec) -> Option<&'static str> {
        match Gate::of(spec, FACTORS) {
            Some(_) => Some(gated::IMPLEMENTATION),
            None if single::product(spec).is_some() => Some(single::IMPLEMENTATION),
            None if thin::applies(spec) => Some(thin::IMPLEMENTATION),
            None => Tiling::of(spec).implementation(),
        }
    }

    fn backward(&self, rule: &mut Backward) -> Result<(), NoRule> {
        backward::grouped_gemm(rule)
    }
}

/// Compares the device's product `c`, without its gate, with the reference.
fn check_product(spec: &Spec, inputs: &[&[f64]], c: &[f64]) -> Check {
    let (rounding, flops) = (rounding(spec), spec.cost().flops);
    let (mut all, mut end) = (Check::none(), 0);
    for (range, factors) in parts(spec, inputs) {
        let found = rounding.check(factors, None, &c[range.clone()], flops);
        all.add(&found, |index| range.start as u64 + index);
        end = range.end;
    }
    // Rows after the last group must be zero.
    let found = compare(spec.outputs[0].dtype, &c[end..], &vec![0.0; c.len() - end], &Tolerance::Exact);
    all.add(&found, |index| end as u64 + index);
    all
}

/// Sizes of a grouped product.
#[derive(Clone, Copy, Debug)]
struct Shape {
    /// True if groups are ranges of the depth, each with its own matrix of the result. Otherwise, they are ranges of
    /// rows.
    in_depth: bool,
    /// Number of groups.
    groups: u64,
    /// Number of rows of the result: of all groups together, or of each group if groups are ranges of the depth.
    rows: u64,
    /// Number of columns of the result.
    columns: u64,
    /// Number of terms of each sum; over all groups if these are ranges of the depth.
    depth: u64,
}

impl Shape {
    /// Returns the sizes of a call.
    fn of(spec: &Spec) -> Shape {
        let (rows, depth) = rows_columns(&spec.inputs[0], spec.attrs.bool("transpose_a"));
        let (_, columns) = rows_columns(&spec.inputs[1], spec.attrs.bool("transpose_b"));
        let in_depth = spec.inputs[1].dims.len() == 2;
        Shape { in_depth, groups: spec.inputs[2].dims[0], rows, columns, depth }
    }

    /// Length of the dimension that is divided into groups.
    fn length(&self) -> u64 {
        if self.in_depth { self.depth } else { self.rows }
    }
}

/// Returns a product in `bf16` of factors with these shapes. In depth, the first factor is transposed.
#[cfg(test)]
fn product_of(in_depth: bool, [a, b]: [&[u64]; 2], groups: u64) -> Spec {
    let [a, b] = [a, b].map(|dims| Tensor::packed(DType::BF16, dims));
    let inputs = vec![a, b, Tensor::packed(DType::I32, &[groups])];
    Spec::of_use("grouped_gemm", &[("transpose_a", Attr::Bool(in_depth))], inputs, &[None]).expect("a product")
}

/// Returns the steps after the sums. Each epilogue function maps zero to zero, so that rows outside of groups stay
/// zero.
fn finish(spec: &Spec) -> Finish {
    Finish::of_sums(Function::of_word(spec))
}

fn rounding(spec: &Spec) -> Rounding {
    Rounding::once(spec, finish(spec), arithmetic(spec))
}

/// Returns the range of each group in a dimension of this length. A group is empty if its end is below the previous
/// one; ends beyond the length are clamped to it.
fn groups(ends: &[f64], length: u64) -> impl Iterator<Item = Range<usize>> {
    let mut begin = 0;
    ends.iter().map(move |&end| {
        let end = (end.clamp(0.0, length as f64) as usize).max(begin);
        let group = begin..end;
        begin = end;
        group
    })
}

/// Returns each nonempty group's range of elements in the result and its factors. Inputs have no gaps.
fn parts<'a>(spec: &Spec, inputs: &[&'a [f64]]) -> impl Iterator<Item = (Range<usize>, Factors<'a>)> {
    let shape = Shape::of(spec);
    let [turned_a, turned_b] = ["transpose_a", "transpose_b"].map(|name| spec.attrs.bool(name));
    let [rows, columns, depth] = [shape.rows, shape.columns, shape.depth].map(|size| size as usize);
    let (a, all_b) = (Factors::matrix(inputs[0], (rows, depth), turned_a), inputs[1]);
    groups(inputs[2], shape.length()).enumerate().filter_map(move |(number, group)| {
        let part = Slice::from(group.clone());
        let (range, factors) = match shape.in_depth {
            true => {
                let mut b = Factors::matrix(all_b, (depth, columns), turned_b);
                let mut a = a;
                a.slice_axis_inplace(Axis(1), part);
                b.slice_axis_inplace(Axis(0), part);
                (number * rows * columns..(number + 1) * rows * columns, Factors { a, b })
            }
            false => {
                let b = Factors::matrix(&all_b[number * depth * columns..], (depth, columns), turned_b);
                let mut a = a;
                a.slice_axis_inplace(Axis(0), part);
                (group.start * columns..group.end * columns, Factors { a, b })
            }
        };
        (!range.is_empty()).then_some((range, factors))
    })
}
