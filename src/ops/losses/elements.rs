//! Losses that are an expression of each element and its target: `mse`, `l1`, `huber`, `kl_div`, `hinge`.

use crate::base::{DType, Dims};

use super::super::elementwise;
use super::super::expression::Unary;
use super::super::reductions::{Extent, Finish, Function, Split, Terms, launches};
use super::super::*;
use crate::ops::expression::formula::formula;
use crate::ops::kernels::kernel::compute_type;

/// The loss of an element `x` with target `t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// (x - t)²
    Mse,
    /// |x - t|
    L1,
    /// (x - t)² / 2 up to `delta`, and `delta` · (|x - t| - delta / 2) beyond
    Huber,
    /// t · (log t - x), 0 where t is 0
    KlDiv,
    /// max(0, margin - t · x)
    Hinge,
}

/// The operation of an elementwise loss, such as `mse(x, target)`.
pub struct ElementLoss(pub Loss);

const INPUTS: &[Input] = &[Input::Tensor("x"), Input::Tensor("target")];

const REDUCTION: OptionSpec =
    OptionSpec::word("reduction", &["mean", "sum", "none"], "reduction of the elementwise losses");

const DELTA: OptionSpec =
    OptionSpec::number("delta", 1.0, "the difference at which the loss changes from quadratic to linear");

const MARGIN: OptionSpec = OptionSpec::number("margin", 1.0, "margin: a product of at least this value has no loss");

impl Operation for ElementLoss {
    fn signature(&self) -> &'static Signature {
        const fn of(name: &'static str, summary: &'static str, options: &'static [OptionSpec]) -> Signature {
            Signature { name, summary, category: Category::RowWise, inputs: INPUTS, outputs: &["loss"], options }
        }
        static MSE: Signature = of("mse", "mean squared error: the mean of (x - target)²", &[REDUCTION]);
        static L1: Signature = of("l1", "mean absolute error: the mean of |x - target|", &[REDUCTION]);
        static HUBER: Signature = of(
            "huber",
            "Huber loss: half the squared error up to a difference of `delta`, linear beyond; the mean of all elements",
            &[REDUCTION, DELTA],
        );
        static KL_DIV: Signature = of(
            "kl_div",
            "Kullback-Leibler divergence: the mean of `target * (log(target) - x)`; `x` holds log-probabilities",
            &[REDUCTION],
        );
        static HINGE: Signature =
            of("hinge", "hinge loss: the mean of `max(0, margin - target * x)`", &[REDUCTION, MARGIN]);
        match self.0 {
            Loss::Mse => &MSE,
            Loss::L1 => &L1,
            Loss::Huber => &HUBER,
            Loss::KlDiv => &KL_DIV,
            Loss::Hinge => &HINGE,
        }
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        let [x, target] = call.inputs else { unreachable!("the signature has two inputs") };
        call.needs_floats()?;
        if x.tensor.dims != target.tensor.dims {
            let (has, found) = (format!("this is {}", x.tensor.dims), format!("this is {}", target.tensor.dims));
            return Err(call.differs(0, has, 1, found, "there is a target for each element"));
        }
        if self.0 == Loss::Huber && call.attrs.number("delta") <= 0.0 {
            let why = format!("{} is not positive", call.attrs.number("delta"));
            return Err(call.bad_option("delta", why, "write a number above 0: `delta: 1`"));
        }
        let dims = if call.attrs.word("reduction") == "none" { x.tensor.dims } else { Dims::new() };
        let dtype = call.given_dtype(0).unwrap_or(x.tensor.dtype.promote(target.tensor.dtype));
        Ok(vec![call.output(0, dtype, dims)?])
    }

    fn launch_costs(&self, spec: &Spec) -> Vec<Cost> {
        let expression = self.expression(spec);
        match function(spec) {
            Some(function) => {
                let split = Split::of(spec, &Extent::all(spec), compute_type(spec), function);
                split.launch_costs(spec, &expression, function)
            }
            None => vec![elementwise::cost(&expression, spec)],
        }
    }

    fn reference(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        let values = Extent::all(spec).values(&self.expression(spec), spec, inputs);
        match function(spec) {
            Some(function) => outputs[0][0] = function.of(&values),
            None => outputs[0] = values,
        }
    }

    fn check(&self, spec: &Spec, inputs: &[&[f64]], before: PriorOutputs, actual: &[Vec<f64>]) -> Vec<Check> {
        let expression = self.expression(spec);
        let Some(function) = function(spec) else {
            return elementwise::compare(&expression, spec, inputs, actual);
        };
        let extent = Extent::all(spec);
        let terms = Terms::of(&expression, spec, &extent, inputs, compute_type(spec));
        let mut expected = before();
        let tolerance = terms.enclose(function, &extent, &mut expected[0]);
        vec![compare(spec.outputs[0].dtype, &actual[0], &expected[0], &tolerance)]
    }

    fn pieces(&self, spec: &Spec) -> Option<Pieces> {
        if function(spec).is_some() { None } else { check::same_elements(spec) }
    }

    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        let expression = self.expression(spec);
        let Some(function) = function(spec) else {
            return vec![elementwise::launch(self.name(), &expression, spec)];
        };
        let extent = Extent::all(spec);
        let finish = Finish::plain(function, extent.terms());
        launches(self.name(), function, &expression, spec, &extent, compute_type(spec), finish)
    }

    fn backward(&self, rule: &mut Backward) -> Result<(), NoRule> {
        let Some(gradient) = rule.gradient() else { return Ok(()) };
        let dims = rule.spec.inputs[0].dims;
        let terms = dims.iter().product::<u64>() as f64;
        let factor = if function(rule.spec) == Some(Function::Mean) { 1.0 / terms } else { 1.0 };
        backward::elements(rule, &self.expression(rule.spec), (dims, &[Some(gradient)]), factor)
    }
}

/// Returns the reduction of the losses; `None` if the output holds the loss of each element.
fn function(spec: &Spec) -> Option<Function> {
    match spec.attrs.word("reduction") {
        "mean" => Some(Function::Mean),
        "sum" => Some(Function::Sum),
        _ => None,
    }
}

impl ElementLoss {
    /// The loss of an element, of inputs `x` and `target`.
    fn expression(&self, spec: &Spec) -> Expression {
        formula(|[x, t]| {
            [match self.0 {
                Loss::Mse => (x - t).square(),
                Loss::L1 => (x - t).abs(),
                Loss::Huber => {
                    let size = (x - t).abs();
                    let delta = spec.attrs.number("delta");
                    let [half, delta, taken] = [0.5, delta, delta / 2.0].map(|value| x.constant(value));
                    let (square, linear) = (half * size * size, delta * (size - taken));
                    size.less_equal(delta).select(square, linear)
                }
                // 0 times the logarithm of 0 would be NaN.
                Loss::KlDiv => t.select(t * (t.apply(Unary::Log) - x), 0.0),
                Loss::Hinge => (spec.attrs.number("margin") - t * x).relu(),
            }]
        })
    }
}
