//! Operations in which all ranks of a group take part.

use crate::base::{DType, Dims, Space};

use super::*;

/// `all_to_all(src -> dst)`.
pub struct AllToAll;

impl Operation for AllToAll {
    fn name(&self) -> &'static str {
        "all_to_all"
    }

    fn summary(&self) -> &'static str {
        "each rank's r-th part goes to rank r; parts arrive in the order of the ranks they come from"
    }

    fn category(&self) -> Category {
        Category::Collective
    }

    fn signature(&self) -> &'static Signature {
        &Signature { inputs: &[Input::Tensor("src")], outputs: &["dst"], options: &[] }
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        let source = &call.inputs[0];
        let from = &source.tensor;
        let target = call.outputs[0];
        for operand in std::iter::once(source).chain(&target) {
            if operand.tensor.space != Space::Device {
                return Err(OpError::Space {
                    op: "all_to_all",
                    space: operand.tensor.space.name(),
                    help: "collectives work on `device` memory; `copy` brings the rest over",
                    at: operand.span.into(),
                });
            }
            if !operand.tensor.contiguous() {
                return Err(OpError::Gaps {
                    op: "all_to_all",
                    help: "collectives move whole stretches: copy the slice first, or order the buffer's dimensions \
                           so that the slice is one piece",
                    at: operand.span.into(),
                });
            }
        }
        if !from.elements().is_multiple_of(u64::from(call.team.ranks)) {
            return Err(OpError::Rank {
                op: "all_to_all",
                needs: format!("a number of elements that {} ranks can share", call.team.ranks),
                found: format!("{from}, {} elements", from.elements()),
                at: source.span.into(),
            });
        }
        let Some(target) = target else {
            return Ok(vec![(from.dtype, from.dims)]);
        };
        let to = &target.tensor;
        if from.dtype != to.dtype || from.elements() != to.elements() {
            return Err(OpError::Output {
                op: "all_to_all",
                expected: format!("{} elements of {}", from.elements(), from.dtype),
                found: format!("{to}, which is {} of {}", to.elements(), to.dtype),
                at: target.span.into(),
                call: source.span.into(),
            });
        }
        Ok(vec![(to.dtype, to.dims)])
    }

    fn cost(&self, spec: &Spec) -> Cost {
        let bytes = spec.inputs[0].bytes();
        Cost { read: bytes, written: bytes, ..Cost::default() }
    }

    fn reference(&self, _: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        // On one rank, the only part comes from and goes to that rank.
        outputs[0].copy_from_slice(inputs[0]);
    }

    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        let collective = Collective {
            kind: CollectiveKind::AllToAll,
            group: spec.team.group,
            ranks: spec.team.ranks,
            rank: spec.team.rank,
            source: Some(0),
            target: Some(1),
            dtype: spec.inputs[0].dtype,
            count: spec.inputs[0].elements() / u64::from(spec.team.ranks),
            reduction: Reduction::Sum,
            peer: 0,
            parts: None,
        };
        vec![Launch::Collective([collective].into())]
    }
}
