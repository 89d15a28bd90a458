//! A rank's part of a copy between ranks: the data that it sends and receives.

use super::{copies, counted};
use std::sync::Arc;

use crate::ops::*;

/// A rank's part of `copy(x -> y at r)`: it reads the data that this rank sends, and writes the data that other ranks
/// send to it. The catalogue does not list it, because it depends on the other ranks' programs.
pub struct PeerCopy;

/// Name of the internal option that holds one rank's part.
const CROSSING: &str = "crossing";

impl Crossing {
    /// The rows that this rank sends if a tensor counts them, otherwise `None`.
    pub fn counted(&self) -> Option<RowCounts> {
        self.sends.as_ref().and_then(|(_, copy)| RowCounts::of(copy))
    }

    /// Bytes that a copy moves to or from a tensor; of counted rows, those that a rank usually sends to another.
    pub fn bytes(&self, tensor: &Tensor) -> u64 {
        self.counted().map_or(tensor.bytes(), |rows| rows.usual_bytes(tensor.dtype))
    }
}

impl PeerCopy {
    /// Returns the part of the rank that `team` describes: the data that it sends, and the ranks that write to it with
    /// their outputs.
    pub fn of(sends: Option<(u32, Spec)>, arrives: Vec<(u32, Tensor)>, team: Team) -> Spec {
        let inputs = sends.as_ref().map(|(_, copy)| copy.inputs.clone()).unwrap_or_default();
        let (from, outputs) = arrives.into_iter().unzip();
        let attrs = Attrs::of([(CROSSING, Attr::Crossing(Arc::new(Crossing { sends, from })))]);
        Spec { team, ..Spec::new(&PeerCopy, attrs, inputs, outputs) }
    }
}

/// Returns a rank's part of a copy between ranks; `None` for any other operation.
pub fn crossing(spec: &Spec) -> Option<&Crossing> {
    spec.attrs.crossing(CROSSING)
}

fn own(spec: &Spec) -> &Crossing {
    crossing(spec).expect("`PeerCopy::of` alone makes such specs")
}

/// `infer` keeps its default, since the shapes of the sender's copy are known.
impl Operation for PeerCopy {
    signature! {
        name: "copy",
        summary: "copies a tensor to another rank",
        category: Category::Copy,
        ..Signature::NOTHING
    }

    /// Rows that arrive from other ranks by counts are assumed to be as many as those that this rank sends.
    fn live_rows(&self, spec: &Spec, facts: &[Option<RowFact>]) -> LiveOperation {
        match (own(spec).counted(), spec.inputs.first()) {
            (Some(counted), Some(source)) => LiveOperation::exchanged(source, facts, &spec.outputs, counted.ranks),
            _ => LiveOperation::default(),
        }
    }

    /// Returns the cost of a local copy if the rank sends to itself; otherwise the cost of the copy's kernel, with
    /// sent and received bytes instead of bytes read and written.
    fn cost(&self, spec: &Spec) -> Cost {
        let Crossing { sends, from } = own(spec);
        let rank = spec.team.rank;
        let arrives = from.iter().zip(&spec.outputs).filter(|(from, _)| **from != rank);
        // A rank is assumed to receive as many counted rows as it sends.
        let bytes = |tensor: &Tensor| own(spec).bytes(tensor);
        let received = arrives.map(|(_, output)| bytes(output)).sum();
        match sends {
            Some((to, copy)) if *to == rank => Cost { received, ..copy.cost() },
            Some((_, copy)) => {
                let sent = bytes(&copy.inputs[0]);
                Cost { read: Traffic::NONE, written: Traffic::NONE, sent, received, ..copy.cost() }
            }
            None => Cost { received, ..Cost::default() },
        }
    }

    /// Performs the copy that a rank sends to itself.
    fn reference(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        let inputs: Vec<Vec<f64>> = inputs.iter().map(|input| input.to_vec()).collect();
        self.exchange(&mut [RankMember { spec, inputs: &inputs, outputs }]);
    }

    fn exchange(&self, members: &mut [RankMember]) {
        let sent: Vec<_> = members
            .iter()
            .filter_map(|member| {
                let crossing = own(member.spec);
                let (to, _) = crossing.sends.as_ref()?;
                Some((member.spec.team.rank, *to, crossing.counted(), member.inputs))
            })
            .collect();
        for member in members.iter_mut() {
            let to = member.spec.team.rank;
            for (from, output) in own(member.spec).from.iter().zip(member.outputs.iter_mut()) {
                let found = sent.iter().find(|(sender, receiver, ..)| sender == from && *receiver == to);
                match found {
                    Some((.., Some(counted), inputs)) => counted.copy(&inputs[1], (*from, &inputs[0]), (to, output)),
                    Some((.., None, inputs)) => output.copy_from_slice(&inputs[0]),
                    None => {}
                }
            }
        }
    }

    fn pieces(&self, spec: &Spec) -> Option<Pieces> {
        if own(spec).counted().is_some() {
            return None;
        }
        let mut operands = spec.inputs.iter().chain(&spec.outputs);
        let elements = operands.clone().next()?.elements();
        operands.all(|tensor| tensor.contiguous() && tensor.elements() == elements).then_some(Pieces::Blocks(elements))
    }

    fn implementation(&self, spec: &Spec) -> Option<&'static str> {
        own(spec).counted().map(|_| counted::IMPLEMENTATION)
    }

    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        let Crossing { sends, from } = own(spec);
        let sends = sends.as_ref().map(|(to, copy)| {
            let counted = RowCounts::of(copy);
            let launch = match &counted {
                Some(counted) => counted::kernel(copy, counted, (spec.team.rank, *to)),
                None => copies::launch_to_peer(copy),
            };
            Sent { to: *to, launch: Box::new(launch), counted }
        });
        vec![Launch::Peer(Peer { rank: spec.team.rank, sends, from: from.as_slice().into() })]
    }
}
