//! `group { … }`: several collectives that are issued together.

use std::ops::Range;

use super::transfer::transfer;
use super::*;

/// The operation of `group { … }`. Its operands are the concatenated operands of its members, none of which waits for
/// another. The catalogue does not list it, since no call names it.
pub struct Batch;

/// Name of the internal option that holds the members.
const PARTS: &str = "parts";

/// A collective of a batch, with its operands among those of the batch.
#[derive(Clone, Debug)]
pub struct BatchMember<'a> {
    pub spec: &'a Spec,
    pub inputs: Range<usize>,
    pub outputs: Range<usize>,
}

/// Returns the collectives of an operation: the members of a batch, or the operation itself.
pub fn parts(spec: &Spec) -> impl Iterator<Item = BatchMember<'_>> {
    let specs = spec.attrs.batch(PARTS).unwrap_or(std::slice::from_ref(spec));
    let mut ends = (0, 0);
    specs.iter().map(move |spec| {
        let inputs = ends.0..ends.0 + spec.inputs.len();
        let outputs = ends.1..ends.1 + spec.outputs.len();
        ends = (inputs.end, outputs.end);
        BatchMember { spec, inputs, outputs }
    })
}

impl Batch {
    /// Returns the batch of these collectives, which all have the same group.
    pub fn of(specs: Vec<Spec>, team: Team) -> Spec {
        let inputs = specs.iter().flat_map(|spec| spec.inputs.iter().copied()).collect();
        let outputs = specs.iter().flat_map(|spec| spec.outputs.iter().copied()).collect();
        let attrs = Attrs::of([(PARTS, Attr::Batch(specs.into()))]);
        Spec { team, ..Spec::new(&Batch, attrs, inputs, outputs) }
    }
}

/// `infer` keeps its default, since the shapes of the members are known.
impl Operation for Batch {
    signature! {
        name: "group",
        summary: "collectives that are launched as one group",
        category: Category::Collective,
        ..Signature::NOTHING
    }

    fn cost(&self, spec: &Spec) -> Cost {
        parts(spec).map(|part| part.spec.cost()).fold(Cost::default(), |sum, cost| Cost {
            flops: sum.flops + cost.flops,
            read: sum.read + cost.read,
            written: sum.written + cost.written,
            sent: sum.sent + cost.sent,
            received: sum.received + cost.received,
            ..sum
        })
    }

    fn reference(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        for part in parts(spec) {
            let operation = part.spec.operation;
            operation.reference(part.spec, &inputs[part.inputs], &mut outputs[part.outputs]);
        }
        // A rank may send to itself.
        let inputs: Vec<Vec<f64>> = inputs.iter().map(|input| input.to_vec()).collect();
        transfer(&mut [RankMember { spec, inputs: &inputs, outputs }]);
    }

    fn exchange(&self, members: &mut [RankMember]) {
        self.enclose_exchange(members);
    }

    /// The n-th collectives of all members belong together; sends and receives are matched by their ranks.
    fn enclose_exchange(&self, members: &mut [RankMember]) -> Vec<Vec<Tolerance>> {
        transfer(members);
        let mut tolerances: Vec<Vec<Tolerance>> = members.iter().map(|member| check::exactly(member.outputs)).collect();
        for place in 0.. {
            let mut round: Vec<RankMember> = Vec::new();
            let mut outputs = Vec::new();
            for (index, member) in members.iter_mut().enumerate() {
                let Some(part) = parts(member.spec).filter(|part| !is_transfer(part.spec)).nth(place) else { continue };
                outputs.push((index, part.outputs.clone()));
                round.push(RankMember {
                    spec: part.spec,
                    inputs: &member.inputs[part.inputs],
                    outputs: &mut member.outputs[part.outputs],
                });
            }
            let Some(first) = round.first() else { break };
            let found = first.spec.operation.enclose_exchange(&mut round);
            for ((index, outputs), found) in outputs.into_iter().zip(found) {
                tolerances[index].splice(outputs, found);
            }
        }
        tolerances
    }

    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        let all = spec.inputs.len();
        let mut entries: Vec<Collective> = Vec::new();
        for part in parts(spec) {
            let launches = part.spec.launch();
            entries.extend(launches.iter().flat_map(Launch::collectives).cloned().map(|mut collective| {
                let shift = (all + part.outputs.start - part.spec.inputs.len()) as u8;
                collective.source = collective.source.map(|source| source + part.inputs.start as u8);
                collective.target = collective.target.map(|target| target + shift);
                collective
            }));
        }
        vec![Launch::Collective(entries.into())]
    }
}

fn is_transfer(spec: &Spec) -> bool {
    [Transfer::Send.name(), Transfer::Recv.name()].contains(&spec.operation.name())
}
