//! `dropout`: sets random elements to zero.

use super::{compare, cost, evaluate};
use crate::ops::expression::formula::formula;
use crate::ops::kernels::kernel::compute_type;
use crate::ops::kernels::philox;
use crate::ops::kernels::walk::{self, Operand, Task};
use crate::ops::*;

/// `dropout(x -> y)`, as `torch.nn.functional.dropout`.
pub struct Dropout;

/// Instructions per element of [`philox`]: rounds of four, shared by four elements, and the comparison.
const PER_DRAW: f64 = (philox::ROUNDS + 1) as f64;

/// Probability of zeroing an element, rounded to `f32`.
fn share(spec: &Spec) -> f64 {
    f64::from(spec.attrs.number("p") as f32)
}

/// Returns the output as an expression of an element, and of 1 if the element is kept, otherwise 0.
fn expression(spec: &Spec) -> Expression {
    let share = share(spec);
    formula(|[x, kept]| {
        let zero = x.constant(0.0);
        [if share < 1.0 { kept.select(1.0 / (1.0 - share) * x, zero) } else { zero }]
    })
}

fn seed(spec: &Spec) -> u64 {
    spec.attrs.int("seed") as u64
}

/// Returns the spec with the mask of kept elements as a second input, which occupies no memory.
fn with_mask(spec: &Spec) -> Spec {
    let x = spec.inputs[0];
    let mask = Tensor { dtype: DType::F32, strides: x.dims.contiguous_strides(), align: 16, ..x };
    Spec { inputs: vec![x, mask], ..spec.clone() }
}

fn mask(spec: &Spec) -> Vec<f64> {
    let (seed, least) = (seed(spec), philox::least_kept(share(spec)));
    (0..spec.outputs[0].elements()).map(|index| f64::from(u8::from(philox::keeps(seed, index, least)))).collect()
}

impl Operation for Dropout {
    signature! {
        name: "dropout",
        summary: "zeroes elements at random with probability `p`, and scales the others by 1 / (1 - p)",
        category: Category::Elementwise,
        inputs: &[Input::Tensor("x")],
        outputs: &["y"],
        options: &[
            OptionSpec::number("p", 0.5, "probability of zeroing an element"),
            OptionSpec::int("seed", 0, i64::MAX, 0, "seed of the random mask: the same seed zeroes the same elements"),
        ],
    }

    fn properties(&self) -> &'static [Property] {
        &[Property::InPlace]
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        let x = &call.inputs[0];
        call.needs_float(x, "a floating-point type")?;
        if !(0.0..=1.0).contains(&call.attrs.number("p")) {
            let why = "a probability is a number from 0 to 1".to_owned();
            return Err(call.bad_option("p", why, "write a number in between: `p: 0.1`, or `p: 10%`"));
        }
        let dtype = call.given_dtype(0).unwrap_or(x.tensor.dtype);
        Ok(vec![call.output(0, dtype, x.tensor.dims)?])
    }

    fn cost(&self, spec: &Spec) -> Cost {
        let plain = cost(&expression(spec), spec);
        Cost { instructions: plain.instructions + PER_DRAW * spec.outputs[0].elements() as f64, ..plain }
    }

    fn reference(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        evaluate(&expression(spec), &with_mask(spec), &[inputs[0], &mask(spec)], outputs);
    }

    fn check(&self, spec: &Spec, inputs: &[&[f64]], _: PriorOutputs, actual: &[Vec<f64>]) -> Vec<Check> {
        compare(&expression(spec), &with_mask(spec), &[inputs[0], &mask(spec)], actual)
    }

    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        let (x, y, expression) = (&spec.inputs[0], &spec.outputs[0], expression(spec));
        let task = Task {
            expression: &expression,
            dims: y.dims,
            outputs: vec![Operand::of(1, y, y.strides)],
            inputs: vec![
                Operand::of(0, x, x.strides),
                Operand::mask(seed(spec), philox::least_kept(share(spec)), y.dims),
            ],
        };
        vec![walk::launch_all("dropout", &[task], compute_type(spec))]
    }

    fn backward(&self, rule: &mut Backward) -> Result<(), NoRule> {
        backward::dropout(rule)
    }
}
