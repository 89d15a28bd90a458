//! Losses that are an expression of each element and its target: `mse`, `l1`, `huber`, `kl_div`, `hinge`.

use crate::base::units::Dimension;
use crate::base::{DType, Dims};

use super::super::elementwise::{self, compute_type};
use super::super::expression::{Binary, Node, Unary};
use super::super::reductions::{Extent, Finish, Function, Split, Terms, launches};
use super::super::*;

/// What a loss is for each element `x` and its target `t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Formula {
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

/// `mse(x, target)` and its like.
pub struct ElementLoss(pub Formula);

const INPUTS: &[Input] = &[Input::Tensor("x"), Input::Tensor("target")];

const REDUCTION: OptionSpec = OptionSpec {
    name: "reduction",
    kind: OptionType::Word(&["mean", "sum", "none"]),
    default: Preset::Word("mean"),
    doc: "what becomes of the losses of all elements",
};

const DELTA: OptionSpec = OptionSpec {
    name: "delta",
    kind: OptionType::Number(Dimension::NONE),
    default: Preset::Number(1.0),
    doc: "the difference from which on the loss grows linearly",
};

const MARGIN: OptionSpec = OptionSpec {
    name: "margin",
    kind: OptionType::Number(Dimension::NONE),
    default: Preset::Number(1.0),
    doc: "the product from which on there is no loss",
};

impl Operation for ElementLoss {
    fn name(&self) -> &'static str {
        match self.0 {
            Formula::Mse => "mse",
            Formula::L1 => "l1",
            Formula::Huber => "huber",
            Formula::KlDiv => "kl_div",
            Formula::Hinge => "hinge",
        }
    }

    fn summary(&self) -> &'static str {
        match self.0 {
            Formula::Mse => "the mean of the squares of the differences to a target",
            Formula::L1 => "the mean of the differences to a target, without their signs",
            Formula::Huber => "the mean of half the squares of the differences to a target, linear from `delta` on",
            Formula::KlDiv => "the mean of `target * (log(target) - x)`: `x` holds logarithms of probabilities",
            Formula::Hinge => "the mean of `max(0, margin - target * x)`",
        }
    }

    fn category(&self) -> Category {
        Category::RowWise
    }

    fn signature(&self) -> &'static Signature {
        match self.0 {
            Formula::Huber => &Signature { inputs: INPUTS, outputs: &["loss"], options: &[REDUCTION, DELTA] },
            Formula::Hinge => &Signature { inputs: INPUTS, outputs: &["loss"], options: &[REDUCTION, MARGIN] },
            _ => &Signature { inputs: INPUTS, outputs: &["loss"], options: &[REDUCTION] },
        }
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        call.needs_device()?;
        let [x, target] = call.inputs else { unreachable!("the signature has two inputs") };
        for input in call.inputs {
            call.needs_dtype(input, input.tensor.dtype.is_float(), "floating-point values")?;
        }
        if x.tensor.dims != target.tensor.dims {
            let (has, found) = (format!("this is {}", x.tensor.dims), format!("this is {}", target.tensor.dims));
            return Err(call.differs(0, has, 1, found, "there is a target for each element"));
        }
        if self.0 == Formula::Huber && call.attrs.number("delta") <= 0.0 {
            let why = format!("{} is not positive", call.attrs.number("delta"));
            return Err(call.bad_option("delta", why, "write a number above 0: `delta: 1`"));
        }
        let dims = if call.attrs.word("reduction") == "none" { x.tensor.dims } else { Dims::new() };
        let dtype = call.given_dtype(0).unwrap_or(x.tensor.dtype.promote(target.tensor.dtype));
        Ok(vec![call.output(0, dtype, dims)?])
    }

    fn cost(&self, spec: &Spec) -> Cost {
        let expression = self.expression(spec);
        match function(spec) {
            Some(function) => Split::of(spec, &Extent::all(spec), compute_type(spec)).cost(spec, &expression, function),
            None => elementwise::cost(&expression, spec),
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

/// What becomes of the losses of all elements; `None` where each is an element of the output.
fn function(spec: &Spec) -> Option<Function> {
    match spec.attrs.word("reduction") {
        "mean" => Some(Function::Mean),
        "sum" => Some(Function::Sum),
        _ => None,
    }
}

/// An expression in the making, which has room for every formula.
struct Steps(Expression);

impl Steps {
    fn add(&mut self, node: Node) -> u16 {
        self.0.push(node).expect("a formula has a few steps")
    }

    fn constant(&mut self, value: f64) -> u16 {
        self.0.push_constant(value).expect("a formula has a few constants")
    }

    fn two(&mut self, function: Binary, a: u16, b: u16) -> u16 {
        self.add(Node::Binary(function, a, b))
    }
}

impl ElementLoss {
    /// The loss of an element, of inputs `x` and `target`.
    fn expression(&self, spec: &Spec) -> Expression {
        let mut steps = Steps(Expression::default());
        let (x, t) = (steps.add(Node::Input(0)), steps.add(Node::Input(1)));
        let last = match self.0 {
            Formula::Mse => {
                let difference = steps.two(Binary::Subtract, x, t);
                steps.two(Binary::Multiply, difference, difference)
            }
            Formula::L1 => {
                let difference = steps.two(Binary::Subtract, x, t);
                steps.add(Node::Unary(Unary::Abs, difference))
            }
            Formula::Huber => {
                let difference = steps.two(Binary::Subtract, x, t);
                let size = steps.add(Node::Unary(Unary::Abs, difference));
                let delta = spec.attrs.number("delta");
                let (half, delta, taken) = (steps.constant(0.5), steps.constant(delta), steps.constant(delta / 2.0));
                let halved = steps.two(Binary::Multiply, half, size);
                let square = steps.two(Binary::Multiply, halved, size);
                let beyond = steps.two(Binary::Subtract, size, taken);
                let linear = steps.two(Binary::Multiply, delta, beyond);
                let small = steps.two(Binary::LessEqual, size, delta);
                steps.add(Node::Select(small, square, linear))
            }
            Formula::KlDiv => {
                let logarithm = steps.add(Node::Unary(Unary::Log, t));
                let difference = steps.two(Binary::Subtract, logarithm, x);
                let product = steps.two(Binary::Multiply, t, difference);
                // The logarithm of 0 times 0 is no number.
                let zero = steps.constant(0.0);
                steps.add(Node::Select(t, product, zero))
            }
            Formula::Hinge => {
                let product = steps.two(Binary::Multiply, t, x);
                let margin = steps.constant(spec.attrs.number("margin"));
                let left = steps.two(Binary::Subtract, margin, product);
                steps.add(Node::Unary(Unary::Relu, left))
            }
        };
        steps.0.finish(last);
        steps.0
    }
}
