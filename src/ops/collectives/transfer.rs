//! `send`, `recv` and `barrier`.

use std::collections::{BTreeMap, VecDeque};

use crate::base::{DType, Dims};

use super::batch::parts;
use super::*;

/// `send(src, to: 1)`.
pub struct Send;

impl Operation for Send {
    fn signature(&self) -> &'static Signature {
        const {
            &Signature {
                name: "send",
                summary: "sends a tensor to another rank of the group, which must call `recv`",
                category: Category::Collective,
                inputs: &[Input::Tensor("src")],
                outputs: &[],
                options: &[OptionSpec::required("to", MEMBER, "destination rank within the group")],
            }
        }
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        needs_stretches(call)?;
        member(call, "to")?;
        Ok(Vec::new())
    }

    fn cost(&self, spec: &Spec) -> Cost {
        match peer(spec, "to") == spec.team.rank {
            true => traffic(spec),
            false => Cost { sent: spec.inputs[0].bytes(), ..Cost::default() },
        }
    }

    fn reference(&self, _: &Spec, _: &[&[f64]], _: &mut [Vec<f64>]) {}

    fn exchange(&self, members: &mut [Member]) {
        transfer(members);
    }

    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        let peer = peer(spec, "to");
        launched(Collective { peer, ..entry(spec, CollectiveKind::Send) })
    }

    fn backward(&self, rule: &mut Backward) -> Result<(), NoRule> {
        backward::send(rule)
    }
}

/// `recv(-> dst, from: 0)`.
pub struct Recv;

impl Operation for Recv {
    fn signature(&self) -> &'static Signature {
        const {
            &Signature {
                name: "recv",
                summary: "receives a tensor from another rank of the group, which must call `send`",
                category: Category::Collective,
                inputs: &[],
                outputs: &["dst"],
                options: &[OptionSpec::required("from", MEMBER, "source rank within the group")],
            }
        }
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        needs_stretches(call)?;
        member(call, "from")?;
        let Some(target) = call.outputs[0] else {
            return Err(OpError::OutputMissing {
                op: "recv",
                help: "write the output, whose type determines the amount of data: `recv(-> y, from: 0)`",
                at: call.span.into(),
            });
        };
        Ok(vec![(target.tensor.dtype, target.tensor.dims)])
    }

    fn cost(&self, spec: &Spec) -> Cost {
        match peer(spec, "from") == spec.team.rank {
            true => traffic(spec),
            false => Cost { received: spec.outputs[0].bytes(), ..Cost::default() },
        }
    }

    fn reference(&self, _: &Spec, _: &[&[f64]], _: &mut [Vec<f64>]) {}

    fn exchange(&self, members: &mut [Member]) {
        transfer(members);
    }

    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        let peer = peer(spec, "from");
        launched(Collective { peer, ..entry(spec, CollectiveKind::Recv) })
    }

    fn backward(&self, rule: &mut Backward) -> Result<(), NoRule> {
        backward::recv(rule)
    }
}

/// `barrier()`.
pub struct Barrier;

impl Operation for Barrier {
    fn signature(&self) -> &'static Signature {
        &Signature {
            name: "barrier",
            summary: "synchronizes the ranks of the group: each waits until all have arrived",
            category: Category::Collective,
            ..Signature::NOTHING
        }
    }

    fn infer(&self, _: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        Ok(Vec::new())
    }

    fn cost(&self, spec: &Spec) -> Cost {
        traffic(spec)
    }

    fn reference(&self, _: &Spec, _: &[&[f64]], _: &mut [Vec<f64>]) {}

    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        launched(entry(spec, CollectiveKind::Barrier))
    }

    fn backward(&self, _: &mut Backward) -> Result<(), NoRule> {
        Ok(())
    }
}

/// Returns the peer of a transfer, the value of `option`, as a number in the group.
fn peer(spec: &Spec, option: &'static str) -> u32 {
    spec.attrs.int(option) as u32
}

/// Copies each sent tensor to its receiver: the k-th `send` of a rank matches the k-th `recv` from it. A receive
/// without a send leaves its target unchanged.
pub(super) fn transfer(members: &mut [Member]) {
    let mut sent: BTreeMap<(u32, u32), VecDeque<&[f64]>> = BTreeMap::new();
    for member in members.iter() {
        for part in parts(member.spec).filter(|part| part.spec.operation.name() == Send.name()) {
            let way = (part.spec.team.rank, part.spec.attrs.int("to") as u32);
            sent.entry(way).or_default().push_back(&member.inputs[part.inputs.start]);
        }
    }
    for member in members.iter_mut() {
        for part in parts(member.spec).filter(|part| part.spec.operation.name() == Recv.name()) {
            let way = (part.spec.attrs.int("from") as u32, part.spec.team.rank);
            if let Some(values) = sent.get_mut(&way).and_then(VecDeque::pop_front) {
                copy(values, &mut member.outputs[part.outputs.start]);
            }
        }
    }
}
