//! `attention_backward`: the gradients of `attention`, from its logarithms.

use super::backward_kernel::Split;
use super::backward_reference::gradients;
use super::*;

/// `attention_backward(q, k, v, lse, dy, delta -> dq, dk, dv)`.
pub struct AttentionBackward;

impl Operation for AttentionBackward {
    fn name(&self) -> &'static str {
        "attention_backward"
    }

    fn summary(&self) -> &'static str {
        "the gradients of `attention`, which computes the weights again from `lse`; `delta` is the sum of `dy * o` for each \
         query, less the gradient of `lse`"
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
                    Input::Tensor("lse"),
                    Input::Tensor("dy"),
                    Input::Tensor("delta"),
                ],
                outputs: &["dq", "dk", "dv"],
                options: OPTIONS,
            }
        }
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        call.needs_device()?;
        call.needs_attention()?;
        let [q, k, v] = [0, 1, 2].map(|input| call.inputs[input].tensor);
        let (o, rows) = results(call, &q, &v);
        let compute = q.dtype.compute();
        for (index, dtype, dims) in [(3, compute, rows), (4, q.dtype, o), (5, compute, rows)] {
            let found = &call.inputs[index].tensor;
            if (found.dtype, found.dims) != (dtype, dims) {
                let help = format!("for these queries and values it has to be {dtype}{dims}");
                return Err(call.differs(0, format!("the queries are {q}"), index, format!("this is {found}"), &help));
            }
        }
        let types = [q, k, v].into_iter().enumerate().map(|(index, tensor)| {
            if let Some(output) = &call.outputs[index] {
                call.needs_dtype(output, output.tensor.dtype.is_float(), "a floating-point output")?;
            }
            call.output(index, call.given_dtype(index).unwrap_or(tensor.dtype), tensor.dims)
        });
        types.collect()
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

    /// A kernel whose rows are queries, for `dq`, and one whose rows are keys, for `dk` and `dv`.
    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        let split = Split::of(spec);
        vec![split.launch(spec, false), split.launch(spec, true)]
    }

    fn outputs(&self, _: &Attrs, _: usize, _: usize) -> usize {
        3
    }

    fn backward(&self, _: &mut Backward) -> Result<(), NoRule> {
        Err("gradients of gradients of attention are not in this version")
    }
}
