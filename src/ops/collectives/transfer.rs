//! `send`, `recv` and `barrier`.

use std::collections::{BTreeMap, VecDeque};

use super::batch::parts;
use super::*;

/// The operations `send` and `recv`, which together copy a tensor from one rank to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// `send(src, to: 1)`.
    Send,
    /// `recv(-> dst, from: 0)`.
    Recv,
}

impl Transfer {
    /// The option that names the other rank.
    fn option(self) -> &'static str {
        match self {
            Transfer::Send => "to",
            Transfer::Recv => "from",
        }
    }

    /// The other rank, as a number in the group.
    fn peer(self, spec: &Spec) -> u32 {
        spec.attrs.int(self.option()) as u32
    }
}

impl Operation for Transfer {
    fn signature(&self) -> &'static Signature {
        const SEND: Signature = Signature {
            name: "send",
            summary: "sends a tensor to another rank of the group, which must call `recv`",
            category: Category::Collective,
            inputs: &[Input::Tensor("src")],
            outputs: &[],
            options: &[OptionSpec::required("to", MEMBER, "destination rank within the group")],
        };
        const RECV: Signature = Signature {
            name: "recv",
            summary: "receives a tensor from another rank of the group, which must call `send`",
            category: Category::Collective,
            inputs: &[],
            outputs: &["dst"],
            options: &[OptionSpec::required("from", MEMBER, "source rank within the group")],
        };
        match self {
            Transfer::Send => &SEND,
            Transfer::Recv => &RECV,
        }
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        needs_contiguous_device_memory(call)?;
        member(call, self.option())?;
        match (self, call.outputs.first()) {
            (Transfer::Recv, Some(Some(target))) => Ok(vec![(target.tensor.dtype, target.tensor.dims)]),
            (Transfer::Recv, _) => {
                Err(call.no_output("write the output, whose type determines the amount of data: `recv(-> y, from: 0)`"))
            }
            (Transfer::Send, _) => Ok(Vec::new()),
        }
    }

    fn cost(&self, spec: &Spec) -> Cost {
        match self {
            _ if self.peer(spec) == spec.team.rank => local_traffic(spec),
            Transfer::Send => Cost { sent: spec.inputs[0].bytes(), ..Cost::default() },
            Transfer::Recv => Cost { received: spec.outputs[0].bytes(), ..Cost::default() },
        }
    }

    /// Does nothing: in a group of one rank, no other rank sends.
    fn reference(&self, _: &Spec, _: &[&[f64]], _: &mut [Vec<f64>]) {}

    fn exchange(&self, members: &mut [RankMember]) {
        transfer(members);
    }

    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        let kind = match self {
            Transfer::Send => CollectiveKind::Send,
            Transfer::Recv => CollectiveKind::Recv,
        };
        launched(Collective { peer: self.peer(spec), ..entry(spec, kind) })
    }

    fn backward(&self, rule: &mut Backward) -> Result<(), NoRule> {
        match self {
            Transfer::Send => backward::send(rule),
            Transfer::Recv => backward::recv(rule),
        }
    }
}

/// `barrier()`.
pub struct Barrier;

impl Operation for Barrier {
    signature! {
        name: "barrier",
        summary: "synchronizes the ranks of the group: each waits until all have arrived",
        category: Category::Collective,
        ..Signature::NOTHING
    }

    fn cost(&self, spec: &Spec) -> Cost {
        traffic(spec)
    }

    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        launched(entry(spec, CollectiveKind::Barrier))
    }

    fn backward(&self, _: &mut Backward) -> Result<(), NoRule> {
        Ok(())
    }
}

/// Copies each sent tensor to its receiver: the k-th `send` of a rank matches the k-th `recv` from it. A receive
/// without a send leaves its target unchanged.
pub(super) fn transfer(members: &mut [RankMember]) {
    let mut sent: BTreeMap<(u32, u32), VecDeque<&[f64]>> = BTreeMap::new();
    for member in members.iter() {
        for part in parts(member.spec).filter(|part| part.spec.operation.name() == Transfer::Send.name()) {
            let way = (part.spec.team.rank, Transfer::Send.peer(part.spec));
            sent.entry(way).or_default().push_back(&member.inputs[part.inputs.start]);
        }
    }
    for member in members.iter_mut() {
        for part in parts(member.spec).filter(|part| part.spec.operation.name() == Transfer::Recv.name()) {
            let way = (Transfer::Recv.peer(part.spec), part.spec.team.rank);
            if let Some(values) = sent.get_mut(&way).and_then(VecDeque::pop_front) {
                copy(values, &mut member.outputs[part.outputs.start]);
            }
        }
    }
}
