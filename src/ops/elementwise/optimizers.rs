//! Optimizer steps, which update parameters and moments in one pass, as `torch.optim` does.

use crate::ops::expression::formula::{Formula, formula};
use crate::ops::*;

use super::cost;

/// An optimizer whose step is an elementwise expression of parameters, moments and gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Optimizer {
    /// `adamw(g -> w, m, v)`: `torch.optim.AdamW` (Loshchilov, Hutter, "Decoupled weight decay regularization", 2019).
    AdamW,
    /// `sgd(g -> w)`, or `sgd(g -> w, v, momentum: 0.9)`: `torch.optim.SGD`.
    Sgd,
}

const ADAMW: Signature = Signature {
    name: "adamw",
    summary: "one AdamW step: updates the parameters `w` and their moments `m` and `v` from the gradient `g`",
    category: Category::Elementwise,
    inputs: &[Input::Tensor("g")],
    outputs: &["w", "m", "v"],
    options: &[
        OptionSpec::number("lr", 1e-3, "the learning rate"),
        OptionSpec::number("beta1", 0.9, "decay rate of the first moment"),
        OptionSpec::number("beta2", 0.999, "decay rate of the second moment"),
        OptionSpec::number("eps", 1e-8, "term added to the denominator for numerical stability"),
        OptionSpec::number("weight_decay", 1e-2, "decoupled weight decay coefficient"),
        OptionSpec::int("step", 1, 1 << 40, 1, "the step number, from 1, for bias correction"),
    ],
};

const SGD: Signature = Signature {
    name: "sgd",
    summary: "one SGD step: updates the parameters `w` and, with momentum, their velocity `v` from the gradient `g`",
    category: Category::Elementwise,
    inputs: &[Input::Tensor("g")],
    outputs: &["w", "v"],
    options: &[
        OptionSpec::number("lr", 1e-3, "the learning rate"),
        OptionSpec::number("momentum", 0.0, "momentum factor; without momentum there is no `v`"),
        OptionSpec::number("dampening", 0.0, "dampening of the momentum"),
        OptionSpec::number("weight_decay", 0.0, "weight decay (L2 penalty)"),
        OptionSpec::bool("nesterov", false, "use Nesterov momentum"),
    ],
};

/// Instructions per element of AdamW for the root of a negative number and the quotient of a root that is no number. Drawn second moments have
/// both signs, so that nearly each warp takes these ways too. A count in code for sm_90a by NVRTC 13.0.
const PER_EXCEPTION: f64 = 38.0;

/// The new parameter and moments.
fn adamw(spec: &Spec) -> Expression {
    let [lr, beta1, beta2, eps, decay] =
        ["lr", "beta1", "beta2", "eps", "weight_decay"].map(|name| spec.attrs.number(name));
    let step = spec.attrs.int("step") as f64;
    let (correction1, correction2) = (1.0 - beta1.powf(step), 1.0 - beta2.powf(step));
    formula(|[g, w, m, v]| {
        let m = beta1 * m + (1.0 - beta1) * g;
        let v = beta2 * v + (1.0 - beta2) * (g * g);
        let direction = m / (1.0 / correction2.sqrt() * v.sqrt() + eps);
        let w = (1.0 - lr * decay) * w - lr / correction1 * direction;
        [w, m, v]
    })
}

/// The new parameter and, with momentum, the new velocity.
fn sgd(spec: &Spec) -> Expression {
    let [lr, momentum, dampening, decay] =
        ["lr", "momentum", "dampening", "weight_decay"].map(|name| spec.attrs.number(name));
    let formula = Formula::default();
    let [g, w] = formula.inputs();
    let g = if decay == 0.0 { g } else { g + decay * w };
    if spec.outputs.len() == 1 {
        return formula.with_outputs([w - lr * g]);
    }
    let v = momentum * formula.input(2) + (1.0 - dampening) * g;
    let direction = if spec.attrs.bool("nesterov") { g + momentum * v } else { v };
    formula.with_outputs([w - lr * direction, v])
}

impl Operation for Optimizer {
    fn signature(&self) -> &'static Signature {
        match self {
            Optimizer::AdamW => &ADAMW,
            Optimizer::Sgd => &SGD,
        }
    }

    fn properties(&self) -> &'static [Property] {
        &[Property::InPlace, Property::OnHost]
    }

    fn outputs(&self, _: &Attrs, _: usize, given: usize) -> usize {
        match self {
            Optimizer::AdamW => ADAMW.outputs.len(),
            Optimizer::Sgd => given.clamp(1, SGD.outputs.len()),
        }
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        match self {
            Optimizer::AdamW => {
                for name in ["beta1", "beta2"] {
                    if !(0.0..1.0).contains(&call.attrs.number(name)) {
                        let why = "it has to be at least 0 and less than 1".to_owned();
                        return Err(call.bad_option(name, why, "write the share of the moment that stays: `0.9`"));
                    }
                }
                updated(call, "write the tensors that it updates: `adamw(g -> w, m, v)`")
            }
            Optimizer::Sgd => {
                let has_momentum = call.attrs.number("momentum") != 0.0;
                if !has_momentum && call.outputs.len() > 1 {
                    let why = "without momentum there is no velocity, and a second output is given".to_owned();
                    return Err(call.bad_option("momentum", why, "write `momentum: 0.9`, or `sgd(g -> w)`"));
                }
                if has_momentum && call.outputs.len() == 1 {
                    return Err(call.no_output(
                        "with momentum, write the velocity as the second output: `sgd(g -> w, v, momentum: 0.9)`",
                    ));
                }
                updated(call, "write the tensors that it updates: `sgd(g -> w)`, or `sgd(g -> w, v, momentum: 0.9)`")
            }
        }
    }

    fn elements(&self, spec: &Spec) -> Option<Expression> {
        Some(match self {
            Optimizer::AdamW => adamw(spec),
            Optimizer::Sgd => sgd(spec),
        })
    }

    fn cost(&self, spec: &Spec) -> Cost {
        let (step, elements) =
            (self.elements(spec).expect("a step is an expression"), spec.outputs[0].elements() as f64);
        let plain = cost(&step, spec);
        let exceptions = if *self == Optimizer::AdamW { PER_EXCEPTION * elements } else { 0.0 };
        Cost { instructions: plain.instructions + exceptions, ..plain }
    }

    fn updates(&self, _: &Attrs) -> bool {
        true
    }

    fn backward(&self, _: &mut Backward) -> Result<(), NoRule> {
        Err("an update of parameters is not differentiable")
    }
}

/// Types of the tensors that an optimizer updates. All must be given, with floating-point types and the gradient's
/// shape.
fn updated(call: &Call, help: &'static str) -> Result<Vec<(DType, Dims)>, OpError> {
    let dims = call.inputs[0].tensor.dims;
    let missing = || call.no_output(help);
    let given: Vec<&Operand> = call.outputs.iter().flatten().collect();
    if given.len() < call.outputs.len() {
        return Err(missing());
    }
    for operand in call.inputs {
        call.needs_float(operand, "floating-point types")?;
    }
    (0..given.len()).map(|output| call.output(output, given[output].tensor.dtype, dims)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the outputs of one step on single elements, from a gradient and the values that the outputs held.
    fn step(operation: &'static dyn Operation, options: &[(&'static str, Attr)], held: &[f64]) -> Vec<f64> {
        let attrs = operation.signature().attrs(options);
        let tensor = Tensor::packed(DType::F64, &[1]);
        let spec = Spec::new(operation, attrs, vec![tensor; held.len()], vec![tensor; held.len() - 1]);
        let inputs: Vec<&[f64]> = held.chunks(1).collect();
        let mut outputs = vec![vec![0.0]; held.len() - 1];
        operation.reference(&spec, &inputs, &mut outputs);
        outputs.concat()
    }

    fn near(found: &[f64], expected: &[f64]) {
        assert_eq!(found.len(), expected.len());
        let all = found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-14 * expected.abs());
        assert!(all, "{found:?}, not {expected:?}");
    }

    /// Follows `torch.optim.adamw._single_tensor_adamw` line by line.
    #[test]
    fn adamw_is_that_of_torch() {
        let (lr, beta1, beta2, eps, decay, count) = (0.01f64, 0.9f64, 0.99f64, 1e-6f64, 0.1f64, 3);
        let (g, mut w, mut m, mut v) = (0.7f64, -1.3f64, 0.2f64, 0.05f64);
        let options = [
            ("lr", Attr::number(lr)),
            ("beta1", Attr::number(beta1)),
            ("beta2", Attr::number(beta2)),
            ("eps", Attr::number(eps)),
            ("weight_decay", Attr::number(decay)),
            ("step", Attr::Int(count)),
        ];
        let found = step(&Optimizer::AdamW, &options, &[g, w, m, v]);
        w *= 1.0 - lr * decay;
        m += (g - m) * (1.0 - beta1);
        v = v * beta2 + (1.0 - beta2) * g * g;
        let step_size = lr / (1.0 - beta1.powi(count as i32));
        let denominator = v.sqrt() / (1.0 - beta2.powi(count as i32)).sqrt() + eps;
        w -= step_size * m / denominator;
        near(&found, &[w, m, v]);
    }

    /// Follows `torch.optim.sgd._single_tensor_sgd` line by line, with each option.
    #[test]
    fn sgd_is_that_of_torch() {
        let (g, w, v) = (0.7, -1.3, 0.2);
        near(&step(&Optimizer::Sgd, &[("lr", Attr::number(0.1))], &[g, w]), &[w - 0.1 * g]);
        for nesterov in [false, true] {
            let options = [
                ("lr", Attr::number(0.1)),
                ("momentum", Attr::number(0.9)),
                ("dampening", Attr::number(0.2)),
                ("weight_decay", Attr::number(0.3)),
                ("nesterov", Attr::Bool(nesterov)),
            ];
            let gradient = g + 0.3 * w;
            let velocity = 0.9 * v + (1.0 - 0.2) * gradient;
            let direction = if nesterov { gradient + 0.9 * velocity } else { velocity };
            let found = step(&Optimizer::Sgd, &options, &[g, w, v]);
            near(&found, &[w - 0.1 * direction, velocity]);
        }
    }
}
