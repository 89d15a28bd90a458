//! Reductions: `sum`, `mean`, `prod`, `max`, `min`, `argmax`, `argmin` and `logsumexp` of an elementwise expression over any
//! dimensions, in one pass, and `grad_norm` of several tensors. The shapes of results follow PyTorch.

mod accumulator;
mod accuracy;
mod extent;
mod grad_norm;
mod kernel;
mod several;
mod split;
mod staged;
mod sums;

use super::kernels::kernel::compute_type;
use super::sorting::top_k::ahead;
use super::*;

pub(super) use accuracy::{Group, Terms};
pub(super) use extent::Extent;
pub use grad_norm::GradNorm;
pub(super) use kernel::{Finish, launches};
pub use several::SEVERAL_SUMS;
pub(super) use split::{Split, parts};
pub(super) use sums::Sums;

/// Function that reduces the terms of a result to one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    Sum,
    Mean,
    Prod,
    Max,
    Min,
    ArgMax,
    ArgMin,
    LogSumExp,
    /// Log-sum-exp of the terms, and their sum. No operation of the language has this function.
    LogSumExpAndSum,
    /// Sums of this many expressions, at least two. No operation of the language has this function.
    Sums(u8),
}

impl Function {
    /// Returns the size in bytes of an accumulator, the state of a thread for one result.
    fn accumulator_size(self, compute: DType) -> u64 {
        let fields = match self {
            Function::ArgMax | Function::ArgMin | Function::LogSumExp => 2,
            Function::LogSumExpAndSum => 3,
            Function::Sums(count) => u64::from(count),
            Function::Sum | Function::Mean | Function::Prod | Function::Max | Function::Min => 1,
        };
        fields * compute.size()
    }

    /// Reduces the terms of one result, at least one, in `f64`.
    pub fn of(self, terms: &[f64]) -> f64 {
        let best = |is_before: fn(f64, f64) -> bool| {
            let places = 1..terms.len();
            places.fold(0, |best, place| if is_before(terms[place], terms[best]) { place } else { best })
        };
        match self {
            Function::Sum | Function::Sums(_) => terms.iter().sum(),
            Function::Mean => terms.iter().sum::<f64>() / terms.len() as f64,
            Function::Prod => terms.iter().product(),
            Function::Max => terms[best(is_larger)],
            Function::Min => terms[best(is_smaller)],
            Function::ArgMax => best(is_larger) as f64,
            Function::ArgMin => best(is_smaller) as f64,
            Function::LogSumExp | Function::LogSumExpAndSum => {
                let most = terms.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                // The difference of two equal infinities would be NaN.
                let shift = |term: &f64| if *term == most { 1.0 } else { (term - most).exp() };
                most + terms.iter().map(shift).sum::<f64>().ln()
            }
        }
    }
}

/// The operation that reduces an expression by this function, such as `sum(expression)`.
pub struct Reduce(pub Function);

/// Options of all reductions.
const OPTIONS: &[OptionSpec] = &[
    OptionSpec::absent(
        "dims",
        OptionType::Axes,
        "the dimensions to reduce, all by default; negative ones count from the end",
    ),
    OptionSpec::bool("keepdim", false, "keep the reduced dimensions with size 1"),
];

impl Operation for Reduce {
    fn signature(&self) -> &'static Signature {
        const fn of(name: &'static str, summary: &'static str) -> Signature {
            Signature {
                name,
                summary,
                category: Category::RowWise,
                inputs: &[Input::Expression],
                outputs: &["y"],
                options: OPTIONS,
            }
        }
        static SUM: Signature = of("sum", "sum of an expression over dimensions");
        static MEAN: Signature = of("mean", "mean of an expression over dimensions");
        static PROD: Signature = of("prod", "product of an expression over dimensions");
        static MAX: Signature = of("max", "maximum of an expression over dimensions; propagates NaN");
        static MIN: Signature = of("min", "minimum of an expression over dimensions; propagates NaN");
        static ARG_MAX: Signature =
            of("argmax", "index of the maximum of an expression; of the first one if several are equal");
        static ARG_MIN: Signature =
            of("argmin", "index of the minimum of an expression; of the first one if several are equal");
        static LOG_SUM_EXP: Signature =
            of("logsumexp", "log of the sum of exponentials of an expression over dimensions, without overflow");
        match self.0 {
            Function::Sum | Function::Sums(_) => &SUM,
            Function::Mean => &MEAN,
            Function::Prod => &PROD,
            Function::Max => &MAX,
            Function::Min => &MIN,
            Function::ArgMax => &ARG_MAX,
            Function::ArgMin => &ARG_MIN,
            Function::LogSumExp | Function::LogSumExpAndSum => &LOG_SUM_EXP,
        }
    }

    fn properties(&self) -> &'static [Property] {
        &[Property::TakesExpression]
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        if call.inputs.is_empty() {
            return Err(OpError::NoTensor { op: call.operation.name(), at: call.span.into() });
        }
        let (dtype, dims) = call.broadcast()?;
        let reduced = call.reduced_dims(dims)?;
        let default = match self.0 {
            Function::ArgMax | Function::ArgMin => DType::I32,
            Function::Sum | Function::Prod if !dtype.is_float() => DType::I32,
            Function::Mean | Function::LogSumExp if !dtype.is_float() => DType::F32,
            _ => dtype,
        };
        let extent = Extent { dims, reduced };
        if self.finds_place() {
            call.needs_places(extent.terms())?;
        }
        let dtype = match call.given_dtype(0) {
            Some(DType::I64) if self.finds_place() => DType::I64,
            Some(given) if !self.finds_place() => given,
            _ => default,
        };
        Ok(vec![call.output(0, dtype, extent.result(call.attrs.bool("keepdim")))?])
    }

    fn launch_costs(&self, spec: &Spec) -> Vec<Cost> {
        let Some(expression) = &spec.expression else { return Vec::new() };
        if let Some(spec) = self.as_map(spec) {
            return vec![elementwise::cost(expression, &spec)];
        }
        let split = Split::of(spec, &Extent::of(spec), self.compute_type(spec), self.0);
        split.launch_costs(spec, expression, self.0)
    }

    fn reference(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        let Some(expression) = &spec.expression else { return };
        let extent = Extent::of(spec);
        let values = extent.values(expression, spec, inputs);
        let mut terms = Vec::new();
        for (out, places) in outputs[0].iter_mut().zip(extent.groups()) {
            terms.clear();
            terms.extend(places.map(|place| values[place as usize]));
            *out = self.0.of(&terms);
        }
    }

    fn enclose(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) -> Vec<Tolerance> {
        let Some(expression) = &spec.expression else { return Vec::new() };
        let extent = Extent::of(spec);
        let terms = Terms::of(expression, spec, &extent, inputs, self.compute_type(spec));
        vec![terms.enclose(self.0, &extent, &mut outputs[0])]
    }

    /// The type of indices has no effect, since they are not computed with.
    fn compute_type(&self, spec: &Spec) -> DType {
        match self.finds_place() {
            true => spec.inputs.iter().map(|input| input.dtype.compute()).fold(DType::F32, DType::promote),
            false => compute_type(spec),
        }
    }

    fn pieces(&self, spec: &Spec) -> Option<Pieces> {
        Extent::of(spec).pieces(spec)
    }

    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        let expression = spec.expression.as_ref().expect("the model lowers the expression of a reduction");
        if let Some(spec) = self.as_map(spec) {
            return vec![elementwise::launch(&format!("reduce_{}", self.name()), expression, &spec)];
        }
        let finish = Finish::plain(self.0, Extent::of(spec).terms());
        // CUDA and HIP define functions named `max` and `min`.
        let name = format!("reduce_{}", self.name());
        launches(&name, self.0, expression, spec, &Extent::of(spec), self.compute_type(spec), finish)
    }

    fn backward(&self, rule: &mut Backward) -> Result<(), NoRule> {
        backward::reduction(rule, self.0)
    }
}

impl Reduce {
    /// True if the result is the index of a term.
    fn finds_place(&self) -> bool {
        matches!(self.0, Function::ArgMax | Function::ArgMin)
    }

    /// Returns the spec of a `map` of the expression that computes the same values: every function but those that find a place returns its
    /// only term. `None` if a result has several terms.
    fn as_map(&self, spec: &Spec) -> Option<Spec> {
        let extent = Extent::of(spec);
        (extent.terms() == 1 && !self.finds_place()).then(|| {
            let mut spec = spec.clone();
            spec.outputs[0] = extent.kept_output(&spec.outputs[0]);
            spec
        })
    }
}

/// True if `a` replaces the earlier term `b` as the maximum. NaN is larger than all numbers.
fn is_larger(a: f64, b: f64) -> bool {
    ahead(a, 1, b, 0)
}

/// True if `a` replaces the earlier term `b` as the minimum. NaN is smaller than all numbers.
fn is_smaller(a: f64, b: f64) -> bool {
    ahead(-a, 1, -b, 0)
}

impl Call<'_> {
    /// Returns for each dimension whether it is reduced: the dimensions that the option `dims` lists, or all without
    /// it.
    pub(super) fn reduced_dims(&self, dims: Dims) -> Result<[bool; Dims::MAX], OpError> {
        let rank = dims.len() as i64;
        let mut reduced = [false; Dims::MAX];
        let Some(axes) = self.attrs.axes("dims") else {
            reduced[..dims.len()].fill(true);
            return Ok(reduced);
        };
        let bad = |why: String| {
            let help = match rank {
                0 => "remove `dims`: a single value has no dimensions".to_owned(),
                1 => "write `dims: [0]`, or remove `dims`".to_owned(),
                _ => {
                    format!("write each dimension once, 0 to {0} or -{rank} to -1: `dims: [{0}]` is the last", rank - 1)
                }
            };
            self.bad_option("dims", why, help)
        };
        if axes.is_empty() {
            return Err(bad("the list is empty".to_owned()));
        }
        for &axis in axes {
            if !(-rank..rank).contains(&axis) {
                let what = if rank == 0 { "a single value".to_owned() } else { dims.to_string() };
                return Err(bad(format!("{what} has no dimension {axis}")));
            }
            let place = axis.rem_euclid(rank) as usize;
            if std::mem::replace(&mut reduced[place], true) {
                return Err(bad(format!("dimension {place} is there twice")));
            }
        }
        Ok(reduced)
    }

    /// Returns an error unless the indices of this many terms fit 32 bits.
    fn needs_places(&self, terms: u64) -> Result<(), OpError> {
        if terms <= u64::from(u32::MAX >> 1) {
            return Ok(());
        }
        let input = &self.inputs[0];
        Err(self.too_large(input, "at most 2^31 elements for each result, since kernels count places in 32 bits"))
    }
}
