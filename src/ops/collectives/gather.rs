//! Collectives that copy data to all ranks: `all_gather`, `broadcast`.

use crate::base::{DType, Dims};

use super::*;

/// `all_gather(src -> dst)`.
pub struct AllGather;

impl Operation for AllGather {
    fn signature(&self) -> &'static Signature {
        &Signature {
            name: "all_gather",
            summary: "gathers the tensors of all ranks on every rank, concatenated in rank order",
            category: Category::Collective,
            inputs: &[Input::Tensor("src")],
            outputs: &["dst"],
            options: &[],
        }
    }

    fn properties(&self) -> &'static [Property] {
        &[Property::OwnPart]
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        needs_stretches(call)?;
        let (source, ranks) = (call.inputs[0].tensor, u64::from(call.team.ranks));
        let too_large = || OpError::Rank {
            op: "all_gather",
            needs: format!("a tensor of which {ranks} fit into memory"),
            found: source.to_string(),
            at: call.inputs[0].span.into(),
        };
        let count = source.elements().checked_mul(ranks).ok_or_else(too_large)?;
        // Tensors are concatenated along the first dimension; scalars become a vector.
        let mut dims = source.dims;
        match dims.first() {
            Some(&first) => dims.set(0, first * ranks),
            None => dims = Dims::from_slice(&[ranks]).expect("a tensor has room for one dimension"),
        }
        stretch(call, source.dtype, count, Some(dims))
    }

    fn cost(&self, spec: &Spec) -> Cost {
        traffic(spec)
    }

    fn reference(&self, _: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        outputs[0].copy_from_slice(inputs[0]);
    }

    fn exchange(&self, members: &mut [Member]) {
        let all: Vec<f64> = members.iter().flat_map(|member| member.inputs[0].iter().copied()).collect();
        members.iter_mut().for_each(|member| copy(&all, &mut member.outputs[0]));
    }

    fn pieces(&self, spec: &Spec) -> Option<Pieces> {
        Some(Pieces::Blocks(spec.inputs[0].elements()))
    }

    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        launched(entry(spec, CollectiveKind::AllGather))
    }

    fn backward(&self, rule: &mut Backward) -> Result<(), NoRule> {
        backward::all_gather(rule)
    }
}

/// `broadcast(src -> dst, root: 0)`.
pub struct Broadcast;

impl Operation for Broadcast {
    fn signature(&self) -> &'static Signature {
        &Signature {
            name: "broadcast",
            summary: "copies the tensor of rank `root` to every rank",
            category: Category::Collective,
            inputs: &[Input::Tensor("src")],
            outputs: &["dst"],
            options: &[OptionSpec {
                name: "root",
                kind: MEMBER,
                default: Preset::Int(0),
                doc: "source rank within the group",
            }],
        }
    }

    fn properties(&self) -> &'static [Property] {
        &[Property::InPlace]
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        needs_stretches(call)?;
        member(call, "root")?;
        let source = call.inputs[0].tensor;
        stretch(call, source.dtype, source.elements(), Some(source.dims))
    }

    fn cost(&self, spec: &Spec) -> Cost {
        traffic(spec)
    }

    fn reference(&self, _: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        outputs[0].copy_from_slice(inputs[0]);
    }

    fn exchange(&self, members: &mut [Member]) {
        let root = members.first().map_or(0, |member| member.spec.attrs.int("root") as usize);
        let Some(values) = members.get(root).map(|member| member.inputs[0].clone()) else { return };
        members.iter_mut().for_each(|member| copy(&values, &mut member.outputs[0]));
    }

    fn pieces(&self, spec: &Spec) -> Option<Pieces> {
        Some(Pieces::Blocks(spec.inputs[0].elements()))
    }

    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        let peer = spec.attrs.int("root") as u32;
        launched(Collective { peer, ..entry(spec, CollectiveKind::Broadcast) })
    }

    fn backward(&self, rule: &mut Backward) -> Result<(), NoRule> {
        backward::broadcast(rule)
    }
}
