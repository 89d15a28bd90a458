//! `attention_backward`: the gradients of `attention`, from its results.

use super::backward_kernel::Split;
use super::backward_reference::gradients;
use super::*;

/// `attention_backward(q, k, v, o, lse, dy, [dlse] -> dq, dk, dv)`.
pub struct AttentionBackward;

impl Operation for AttentionBackward {
    fn name(&self) -> &'static str {
        "attention_backward"
    }

    fn summary(&self) -> &'static str {
        "the gradients of `attention` with respect to `q`, `k` and `v`; recomputes the attention weights from `lse`"
    }

    fn category(&self) -> Category {
        Category::Matrix
    }

    fn signature(&self) -> &'static Signature {
        const {
            &Signature {
                inputs: &[
                    Input::Tensor("q"),
                    Input::Tensor("k"),
                    Input::Tensor("v"),
                    Input::Tensor("o"),
                    Input::Tensor("lse"),
                    Input::Tensor("dy"),
                    Input::Optional("dlse"),
                ],
                outputs: &["dq", "dk", "dv"],
                options: OPTIONS,
            }
        }
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        call.needs_device()?;
        call.needs_attention()?;
        call.infer_gradients(&[3, 4, 5, 6])
    }

    fn cost(&self, spec: &Spec) -> Cost {
        Split::of(spec).cost(spec)
    }

    fn reference(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        gradients(spec, inputs, outputs, false);
    }

    fn enclose(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) -> Vec<Tolerance> {
        gradients(spec, inputs, outputs, true).map(Tolerance::Within).into()
    }

    fn pieces(&self, spec: &Spec) -> Option<Pieces> {
        (spec.inputs[0].dims.len() > 3).then(|| Pieces::Rows(vec![true; spec.inputs.len()]))
    }

    /// A library's call, or three kernels: one adds up the products of `dy` and `o`, one whose rows are queries computes `dq`,
    /// and one whose rows are keys `dk` and `dv`.
    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        let kernels = Split::of(spec).kernels(spec);
        // Libraries have no gradient of the logarithms.
        let fused = match spec.inputs.len() {
            6 => FusedAttention::of(spec, AttentionForm::Backward, &[0, 1, 2, 3, 4, 5, 6, 7, 8]),
            _ => None,
        };
        fused::launches(fused, kernels)
    }

    fn outputs(&self, _: &Attrs, _: usize, _: usize) -> usize {
        3
    }

    fn backward(&self, _: &mut Backward) -> Result<(), NoRule> {
        Err("gradients of gradients of attention are not in this version")
    }
}
