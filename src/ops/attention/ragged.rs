//! `ragged_attention` and its gradients: sequences of unequal lengths, one behind the other in one tensor.

use super::backward_kernel::Split as BackwardSplit;
use super::backward_reference::gradients;
use super::*;

/// `ragged_attention(q, k, v, ends, key_ends -> o, lse)`, or its gradients:
/// `ragged_attention_backward(q, k, v, o, lse, dy, ends, key_ends, [dlse] -> dq, dk, dv)`.
#[derive(Debug, PartialEq, Eq)]
pub enum RaggedAttention {
    Forward,
    Backward,
}

/// The most sequences, since each block of threads looks for its own one after the other.
const MOST_SEQUENCES: u64 = 4096;

impl RaggedAttention {
    /// The place of `ends` among the inputs, before that of `key_ends`; `None` for a use of another operation.
    pub fn ends(spec: &Spec) -> Option<usize> {
        let all: [&'static RaggedAttention; 2] = [&RaggedAttention::Forward, &RaggedAttention::Backward];
        all.into_iter().find(|one| spec.operation.name() == one.name()).map(RaggedAttention::place)
    }

    fn place(&self) -> usize {
        match self {
            RaggedAttention::Forward => 3,
            RaggedAttention::Backward => 6,
        }
    }
}

impl Operation for RaggedAttention {
    fn name(&self) -> &'static str {
        match self {
            RaggedAttention::Forward => "ragged_attention",
            RaggedAttention::Backward => "ragged_attention_backward",
        }
    }

    fn summary(&self) -> &'static str {
        match self {
            RaggedAttention::Forward => {
                "`attention` of packed sequences of different lengths in one tensor; `ends` and `key_ends` hold the end \
                 of each"
            }
            RaggedAttention::Backward => {
                "the gradients of `ragged_attention` with respect to `q`, `k` and `v`; recomputes the attention weights from `lse`"
            }
        }
    }

    fn category(&self) -> Category {
        Category::Matrix
    }

    fn signature(&self) -> &'static Signature {
        const FORWARD: &Signature = &Signature {
            inputs: &[
                Input::Tensor("q"),
                Input::Tensor("k"),
                Input::Tensor("v"),
                Input::Tensor("ends"),
                Input::Tensor("key_ends"),
            ],
            outputs: &["o", "lse"],
            options: OPTIONS,
        };
        const BACKWARD: &Signature = &Signature {
            inputs: &[
                Input::Tensor("q"),
                Input::Tensor("k"),
                Input::Tensor("v"),
                Input::Tensor("o"),
                Input::Tensor("lse"),
                Input::Tensor("dy"),
                Input::Tensor("ends"),
                Input::Tensor("key_ends"),
                Input::Optional("dlse"),
            ],
            outputs: &["dq", "dk", "dv"],
            options: OPTIONS,
        };
        match self {
            RaggedAttention::Forward => FORWARD,
            RaggedAttention::Backward => BACKWARD,
        }
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        call.needs_device()?;
        let needs = |index: usize, rank: usize, needs: &str| {
            let input = &call.inputs[index];
            match input.tensor.dims.len() == rank {
                true => Ok(()),
                false => {
                    let (op, needs, found) = (self.name(), needs.to_owned(), input.tensor.to_string());
                    Err(OpError::Rank { op, needs, found, at: input.span.into() })
                }
            }
        };
        for index in 0..3 {
            needs(index, 3, "three dimensions: heads, the positions of all sequences and elements")?;
        }
        call.needs_attention()?;
        let place = self.place();
        for index in [place, place + 1] {
            call.needs_indices(&call.inputs[index])?;
            needs(index, 1, "one dimension: the end of each sequence")?;
        }
        let [ends, key_ends] = [place, place + 1].map(|index| call.inputs[index].tensor.dims[0]);
        if ends != key_ends {
            let help = "each sequence has queries and keys: pass `ends` twice where both end at the same places";
            let (left, right) = (format!("{ends} sequences"), format!("{key_ends} sequences"));
            return Err(call.differs(place, left, place + 1, right, help));
        }
        if ends > MOST_SEQUENCES {
            let (op, found) = (self.name(), call.inputs[place].tensor.to_string());
            let needs = format!("at most {MOST_SEQUENCES} sequences");
            return Err(OpError::Rank { op, needs, found, at: call.inputs[place].span.into() });
        }
        match self {
            RaggedAttention::Forward => call.infer_results(),
            RaggedAttention::Backward => call.infer_gradients(&[3, 4, 5, 8]),
        }
    }

    fn cost(&self, spec: &Spec) -> Cost {
        match self {
            RaggedAttention::Forward => Split::of(spec).cost(spec),
            RaggedAttention::Backward => BackwardSplit::of(spec).cost(spec),
        }
    }

    fn reference(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        match self {
            RaggedAttention::Forward => drop(reference::attend(spec, inputs, outputs, false)),
            RaggedAttention::Backward => drop(gradients(spec, inputs, outputs, false)),
        }
    }

    fn enclose(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) -> Vec<Tolerance> {
        match self {
            RaggedAttention::Forward => reference::attend(spec, inputs, outputs, true).map(Tolerance::Within).into(),
            RaggedAttention::Backward => gradients(spec, inputs, outputs, true).map(Tolerance::Within).into(),
        }
    }

    /// As for `attention` and its gradients, by the kernels of aorta.
    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        let kernels = match self {
            RaggedAttention::Forward => Split::of(spec).kernels(spec),
            RaggedAttention::Backward => BackwardSplit::of(spec).kernels(spec),
        };
        fused::launches(None, kernels)
    }

    fn outputs(&self, _: &Attrs, _: usize, _: usize) -> usize {
        self.signature().outputs.len()
    }

    fn backward(&self, rule: &mut Backward) -> Result<(), NoRule> {
        match self {
            RaggedAttention::Forward => backward::attention(rule),
            RaggedAttention::Backward => Err("gradients of gradients of attention are not in this version"),
        }
    }
}
