//! Verification of operations between ranks: checks each rank's result against the contributions of all ranks.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use crate::base::OpId;
use crate::base::computing::compute;
use crate::exec::{ExecError, LaunchedOperation, MatchBy, Ranks, ReferenceProgram};
use crate::model::Program;
use crate::ops::{self, Check, Collective, CollectiveKind, Launch, RankOperands, Spec, Tensor, TensorBytes};

/// Identifies matching operations of several ranks in an iteration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum MatchKey {
    /// A collective: its communicator's ranks and stream, and the number of earlier collectives on it.
    Collective(Vec<u32>, String, u32),
    /// Sends and receives of a communicator, which match in pairs.
    Transfers(Vec<u32>, String),
    /// A copy between ranks, by its number.
    Crossing(u32),
}

/// The contribution of a rank to an operation.
#[derive(Debug)]
pub struct Contribution {
    pub key: MatchKey,
    /// Index of the rank among those that are verified.
    pub rank: usize,
    /// Slot of the cycle, and operation.
    pub op: (usize, OpId),
    /// Bytes of the inputs, each from its first element to the end of its last.
    pub inputs: Vec<Vec<u8>>,
}

/// The contents that a device left in the outputs of an operation between ranks.
#[derive(Debug)]
pub struct DeviceOutputs {
    pub key: MatchKey,
    pub rank: usize,
    pub op: (usize, OpId),
    pub before: Vec<Vec<u8>>,
    pub actual: Vec<Vec<u8>>,
}

/// Result of checking an operation's outputs.
#[derive(Debug)]
pub struct CheckResult {
    pub rank: usize,
    pub op: (usize, OpId),
    pub checks: Vec<Check>,
}

/// Keys of a rank's launches, for each iteration of the period; `None` for operations without other ranks.
pub fn keys(inspected: &ReferenceProgram) -> Vec<Vec<Option<MatchKey>>> {
    let of_step = |step: &Vec<LaunchedOperation>| {
        let mut places: BTreeMap<u32, u32> = BTreeMap::new();
        let of_launch = |launched: &LaunchedOperation| match launched.match_by {
            MatchBy::None => None,
            MatchBy::Crossing(crossing) => Some(MatchKey::Crossing(crossing)),
            MatchBy::Comm(number) => {
                let comm = &inspected.comms[number as usize];
                let (ranks, stream) = (comm.ranks.clone(), comm.stream.clone());
                if launched.work.launches.iter().flat_map(Launch::collectives).all(Collective::is_transfer) {
                    return Some(MatchKey::Transfers(ranks, stream));
                }
                let contributions = places.entry(number).or_default();
                *contributions += 1;
                Some(MatchKey::Collective(ranks, stream, *contributions - 1))
            }
        };
        step.iter().map(of_launch).collect()
    };
    inspected.steps.iter().map(of_step).collect()
}

/// The keys of operations whose result some rank uses later, in any iteration of its period.
pub fn live(
    ranks: &Ranks,
    own: &[(&ReferenceProgram, &Vec<Vec<Option<MatchKey>>>)],
) -> Result<BTreeSet<MatchKey>, ExecError> {
    let steps = own.iter().flat_map(|(inspected, keys)| inspected.steps.iter().zip(*keys));
    let launches = steps.flat_map(|(step, keys)| step.iter().zip(keys));
    let live = launches.filter(|(launched, _)| launched.found.is_some()).filter_map(|(_, key)| key.clone());
    let all: Vec<BTreeSet<MatchKey>> = ranks.agree("operations to compare", Ok(live.collect()))?;
    Ok(all.into_iter().flatten().collect())
}

/// Gathers the contributions of the ranks of all processes.
pub fn shared(ranks: &Ranks, own: Result<Vec<Contribution>, ExecError>) -> Result<Vec<Contribution>, ExecError> {
    if ranks.is_one_process() {
        return own;
    }
    // Describes a contribution; the bytes of all contributions follow.
    type Line = (MatchKey, usize, (usize, OpId), Vec<usize>);
    let line =
        |one: &Contribution| -> Line { (one.key.clone(), one.rank, one.op, one.inputs.iter().map(Vec::len).collect()) };
    let lines = own.as_ref().map(|own| own.iter().map(line).collect::<Vec<_>>()).map_err(ExecError::clone);
    let lines = ranks.agree("what is exchanged", lines)?;
    let bytes = own?.into_iter().flat_map(|one| one.inputs.into_iter().flatten()).collect();
    let bytes = ranks.share("what is exchanged", bytes)?;
    let mut all = Vec::new();
    for (lines, bytes) in lines.into_iter().zip(bytes) {
        let mut rest = bytes.as_slice();
        for (key, rank, op, lengths) in lines {
            let mut take = |length: usize| {
                let (own, behind) = rest.split_at(length.min(rest.len()));
                rest = behind;
                own.to_vec()
            };
            let inputs = lengths.into_iter().map(&mut take).collect();
            all.push(Contribution { key, rank, op, inputs });
        }
    }
    Ok(all)
}

/// A rank's number in the world, and the program of the part of the run that is checked.
pub type NumberedProgram<'a> = (u32, &'a Program);

/// Compares the devices' results with those computed from all contributions.
pub fn check(ranks: &[NumberedProgram], brought: &[Contribution], left: &[DeviceOutputs]) -> Vec<CheckResult> {
    let mut contributions: BTreeMap<&MatchKey, (Vec<&Contribution>, Vec<&DeviceOutputs>)> = BTreeMap::new();
    brought.iter().for_each(|one| contributions.entry(&one.key).or_default().0.push(one));
    left.iter().for_each(|one| contributions.entry(&one.key).or_default().1.push(one));
    let mut found = Vec::new();
    for (key, (brought, left)) in contributions {
        match key {
            MatchKey::Transfers(members, _) => found.extend(transfers(ranks, members, &brought, &left)),
            _ => found.extend(together(ranks, &brought, &left)),
        }
    }
    found
}

/// Checks a collective or a copy between ranks.
fn together(ranks: &[NumberedProgram], brought: &[&Contribution], left: &[&DeviceOutputs]) -> Vec<CheckResult> {
    let mut members = brought.to_vec();
    members.sort_by_key(|one| one.rank);
    let left_by = |rank: usize| left.iter().find(|left| left.rank == rank);
    let mut shares = Vec::with_capacity(members.len());
    for one in &members {
        let spec = spec(ranks, one.rank, one.op);
        let outputs = left_by(one.rank)
            .map(|left| (elements(&spec.outputs, &left.before), elements(&spec.outputs, &left.actual)));
        shares.push(RankOperands { spec, inputs: elements(&spec.inputs, &one.inputs), outputs });
    }
    let compared = members.iter().filter(|one| left_by(one.rank).is_some());
    compared
        .zip(compute(|| ops::check_exchange(&shares)))
        .map(|(one, checks)| CheckResult { rank: one.rank, op: one.op, checks })
        .collect()
}

/// Checks the sends and receives of a communicator: the n-th send of one rank to another matches the n-th receive
/// there.
fn transfers(
    ranks: &[NumberedProgram],
    members: &[u32],
    brought: &[&Contribution],
    left: &[&DeviceOutputs],
) -> Vec<CheckResult> {
    let number = |rank: usize| members.iter().position(|member| *member == ranks[rank].0).unwrap_or(0) as u32;
    let mut sent: BTreeMap<(u32, u32), VecDeque<TensorBytes>> = BTreeMap::new();
    for one in brought {
        let spec = spec(ranks, one.rank, one.op);
        let inputs = elements(&spec.inputs, &one.inputs);
        for call in spec.launch().iter().flat_map(Launch::collectives) {
            if let (CollectiveKind::Send, Some(source)) = (call.kind, call.source) {
                sent.entry((number(one.rank), call.peer)).or_default().push_back(inputs[usize::from(source)]);
            }
        }
    }
    let mut found = Vec::new();
    // Unobserved receives count too, so that later ones match.
    for one in brought {
        let spec = spec(ranks, one.rank, one.op);
        let own = left.iter().find(|left| left.rank == one.rank && left.op == one.op);
        let mut checks = Vec::new();
        for call in spec.launch().iter().flat_map(Launch::collectives) {
            let (CollectiveKind::Recv, Some(target)) = (call.kind, call.target) else { continue };
            let values = sent.get_mut(&(call.peer, number(one.rank))).and_then(VecDeque::pop_front);
            let output = usize::from(target) - spec.inputs.len();
            if let (Some(own), Some(values)) = (own, values) {
                let tensor = spec.outputs[output];
                let actual = TensorBytes { tensor, bytes: &own.actual[output] }.values();
                let check = ops::compare(tensor.dtype, &actual, &values.values(), &ops::Tolerance::Exact);
                checks.push((output, check));
            }
        }
        checks.sort_by_key(|(output, _)| *output);
        if !checks.is_empty() {
            let checks = checks.into_iter().map(|(_, check)| check).collect();
            found.push(CheckResult { rank: one.rank, op: one.op, checks });
        }
    }
    found
}

fn spec<'a>(ranks: &[NumberedProgram<'a>], rank: usize, (step, op): (usize, OpId)) -> &'a Spec {
    let (_, program) = ranks[rank];
    program.op_spec(program.cycle[step].op(op)).expect("only what runs meets others")
}

fn elements<'a>(tensors: &[Tensor], bytes: &'a [Vec<u8>]) -> Vec<TensorBytes<'a>> {
    tensors.iter().zip(bytes).map(|(tensor, bytes)| TensorBytes { tensor: *tensor, bytes }).collect()
}
