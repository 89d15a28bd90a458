//! Collectives that copy data to all ranks: `all_gather`, `broadcast`.

use super::*;

/// A collective that copies tensors to every rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copying {
    /// `all_gather(src -> dst)`.
    AllGather,
    /// `broadcast(src -> dst, root: 0)`.
    Broadcast,
}

impl Operation for Copying {
    fn signature(&self) -> &'static Signature {
        const ROOT: OptionSpec =
            OptionSpec { name: "root", kind: MEMBER, default: Preset::Int(0), doc: "source rank within the group" };
        const ALL_GATHER: Signature =
            signature("all_gather", "gathers the tensors of all ranks on every rank, concatenated in rank order", &[]);
        const BROADCAST: Signature = signature("broadcast", "copies the tensor of rank `root` to every rank", &[ROOT]);
        match self {
            Copying::AllGather => &ALL_GATHER,
            Copying::Broadcast => &BROADCAST,
        }
    }

    fn properties(&self) -> &'static [Property] {
        match self {
            Copying::AllGather => &[Property::OwnPart],
            Copying::Broadcast => &[Property::InPlace],
        }
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        needs_contiguous_device_memory(call)?;
        let (source, ranks) = (call.inputs[0].tensor, u64::from(call.team.ranks));
        let mut dims = source.dims;
        if *self == Copying::Broadcast {
            member(call, "root")?;
            return flat_output(call, source.dtype, source.elements(), Some(dims));
        }
        let too_large = || call.bad_shape(&call.inputs[0], format!("a tensor of which {ranks} fit into memory"));
        let count = source.elements().checked_mul(ranks).ok_or_else(too_large)?;
        // Tensors are concatenated along the first dimension; scalars become a vector.
        match dims.first() {
            Some(&first) => dims.set(0, first * ranks),
            None => dims = Dims::from([ranks]),
        }
        flat_output(call, source.dtype, count, Some(dims))
    }

    fn cost(&self, spec: &Spec) -> Cost {
        traffic(spec)
    }

    fn reference(&self, _: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        outputs[0].copy_from_slice(inputs[0]);
    }

    fn exchange(&self, members: &mut [RankMember]) {
        let root =
            members.first().filter(|_| *self == Copying::Broadcast).map(|one| one.spec.attrs.int("root") as usize);
        let sent = (0..members.len()).filter(|&rank| root.is_none_or(|root| rank == root));
        let all: Vec<f64> = sent.flat_map(|rank| members[rank].inputs[0].iter().copied()).collect();
        members.iter_mut().for_each(|member| copy(&all, &mut member.outputs[0]));
    }

    fn pieces(&self, spec: &Spec) -> Option<Pieces> {
        Some(Pieces::Blocks(spec.inputs[0].elements()))
    }

    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        launched(match self {
            Copying::AllGather => entry(spec, CollectiveKind::AllGather),
            Copying::Broadcast => {
                let peer = spec.attrs.int("root") as u32;
                Collective { peer, ..entry(spec, CollectiveKind::Broadcast) }
            }
        })
    }

    fn backward(&self, rule: &mut Backward) -> Result<(), NoRule> {
        match self {
            Copying::AllGather => backward::all_gather(rule),
            Copying::Broadcast => backward::broadcast(rule),
        }
    }
}
