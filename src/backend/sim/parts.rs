//! The launches of an image's operations: for each, the host's time and the work on the simulated machine.

use std::ops::Range;

use rustc_hash::FxHashMap;

use crate::backend::crossings::SyncSharing;
use crate::base::Space;
use crate::config::Profile;
use crate::cost::cache::{self, OperationAccesses};
use crate::cost::{self, Task};
use crate::exec::Image;
use crate::ops::Launch;

use super::exchange::Exchanges;
use super::machine::{Action, SimMachine, Time, whole};

/// Launch of an operation on the simulator.
#[derive(Clone, Copy, Debug)]
pub struct SimLaunch {
    pub action: Action,
    /// Time in ns that the call takes on the host.
    pub host: Time,
    /// True if the call blocks the host until the work has ended.
    pub holds_host: bool,
    /// True if the host reads the numbers of rows before it launches the transfer, so that no graph can contain it.
    pub reads_counts: bool,
}

/// The parts of one operation: its lane, its range of launches, and its range of launches in observed iterations.
#[derive(Clone, Debug)]
pub struct OperationParts {
    pub lane: u32,
    pub parts: Range<u32>,
    pub observed: Range<u32>,
}

/// The operations of an image, and the launches that their ranges refer to.
pub type Parts = (Vec<OperationParts>, Vec<SimLaunch>);

/// The parts of operations that were computed already, so that equal operations share them.
#[derive(Debug, Default)]
pub struct KnownParts {
    /// Ranges of launches, normally and in observed iterations.
    ranges: FxHashMap<PartsKey, [Range<u32>; 2]>,
}

/// The facts that the parts of an operation depend on.
#[derive(Debug, PartialEq, Eq, Hash)]
struct PartsKey {
    work: u32,
    /// Share of the operands that the cache holds, in parts of [`cache::WHOLE`].
    cached: u8,
    /// Bytes that replace lines of the last flush.
    replaced: u64,
    comm: u32,
    /// Number of a copy between ranks.
    crossing: u32,
    /// True if the operation consists of collectives of one rank whose results are in place.
    in_place: bool,
}

/// The accesses of an image's operation with this number.
fn accesses(image: &Image, number: u32) -> OperationAccesses<'_> {
    let op = &image.ops[number as usize];
    OperationAccesses {
        spec: &image.works[op.work as usize].spec,
        offsets: image.operands(op).iter().map(|at| (at.space == Space::Device).then_some(at.offset)).collect(),
        cold: image.cold.binary_search(&number).is_ok(),
    }
}

/// True if the last-level cache has lost the commands of an iteration when it begins. A flush removes them, and so do the operations of a
/// period if they access more bytes than the cache holds.
pub fn evicts(image: &Image, profile: &Profile) -> bool {
    let all = (0..image.predecessors.launches() as u32).map(|number| accesses(image, number));
    !image.cold.is_empty() || cache::working_set(all) as f64 > cost::cache_room(profile)
}

impl KnownParts {
    /// Computes the parts of an image's operations.
    pub fn parts(
        &mut self,
        image: &Image,
        profile: &Profile,
        exchanges: &Exchanges,
        machine: &mut SimMachine,
    ) -> Parts {
        self.ranges.clear();
        let flag = whole(profile.host.wait.value());
        let mut parts = Vec::new();
        let order = begin_order(image, profile);
        let shares = cache::shares(&order, |number| accesses(image, number), profile);
        let cached = |number: usize| f64::from(shares[number]) / f64::from(cache::WHOLE);
        // Bytes by which each operation replaces lines of the last flush, and those that still replace some.
        let (mut replaced, mut flushed) = (vec![0.0; image.ops.len()], 0.0);
        for &number in &order {
            if image.cold.binary_search(&number).is_ok() {
                flushed = profile.cache.value();
            }
            let number = number as usize;
            if flushed > 0.0 {
                let spec = &image.works[image.ops[number].work as usize].spec;
                replaced[number] = cost::missed_bytes(spec, cached(number)).min(flushed);
            }
            flushed -= replaced[number];
        }
        let ops = image.ops.iter().enumerate().map(|(number, op)| {
            let work = &image.works[op.work as usize];
            let (share, cached, replaced) = (shares[number], cached(number), replaced[number]);
            let operands = image.operands(op);
            let mut collectives = work.launches.iter().flat_map(Launch::collectives).peekable();
            let in_place = collectives.peek().is_some() && collectives.all(|one| one.is_in_place(|at| operands[usize::from(at)]));
            let key = PartsKey {
                work: op.work,
                cached: share,
                replaced: replaced as u64,
                comm: op.comm,
                crossing: op.crossing,
                in_place,
            };
            let ranges = self.ranges.entry(key).or_insert_with(|| {
                let mut tasks = cost::tasks(&work.spec, &work.launches, cached, profile);
                cost::add_write_back(&mut tasks, replaced, profile);
                let mut add = |new: Vec<SimLaunch>| {
                    let first = parts.len() as u32;
                    // Only a position on the stream remains of an operation that does nothing on this rank.
                    let is_empty = new.is_empty();
                    let mark = SimLaunch { action: Action::Mark(None), host: 0, holds_host: false, reads_counts: false };
                    parts.extend(new.into_iter().chain(is_empty.then_some(mark)));
                    first..parts.len() as u32
                };
                if let ([launch @ Launch::Peer(peer)], [task]) = (&work.launches[..], &tasks[..]) {
                    return [SyncSharing::Batched, SyncSharing::Unshared].map(|sharing| {
                        let actions = exchanges.peer((op.crossing, sharing), peer, *task, machine);
                        let host = |action| match action {
                            Action::Run(_) => whole(cost::issue(launch, profile)),
                            Action::Mark(_) | Action::BranchEnd => 0,
                            Action::Meet(_) | Action::Exchange(_) => flag,
                        };
                        let part = |action| SimLaunch { action, host: host(action), holds_host: false, reads_counts: false };
                        add(actions.into_iter().map(part).collect())
                    });
                }
                let part = |(launch, task): (&Launch, Task)| {
                    let action = match launch {
                        // The vendors' libraries launch nothing.
                        Launch::Collective(_) if in_place => Some(Action::Mark(None)),
                        Launch::Collective(collectives) => exchanges.action(image, op, collectives, machine),
                        _ => None,
                    };
                    SimLaunch {
                        action: action.unwrap_or(Action::Run(task)),
                        host: whole(cost::issue(launch, profile)),
                        holds_host: matches!(task, Task::Copy { pageable: true, .. }),
                        reads_counts: matches!(launch, Launch::Collective(all) if all.iter().any(|one| one.counted.is_some())),
                    }
                };
                let run = work.launches.iter().filter(|launch| cost::runs(launch, profile));
                let range = add(run.zip(tasks).map(part).collect());
                [range.clone(), range]
            });
            let [parts, observed] = ranges.clone();
            OperationParts { lane: op.lane, parts, observed }
        });
        (ops.collect(), parts)
    }
}

/// The numbers of an image's operations in the order in which they begin: those of the period, then the others.
fn begin_order(image: &Image, profile: &Profile) -> Vec<u32> {
    let mut durations = vec![None; image.works.len()];
    let takes = image.ops.iter().map(|op| {
        let ranks = image.comms.get(op.comm as usize).map_or(&[][..], |comm| &comm.ranks);
        let work = &image.works[op.work as usize];
        let duration = || cost::duration_of(&work.spec, &work.launches, ranks, 0.0, profile);
        *durations[op.work as usize].get_or_insert_with(duration)
    });
    let takes: Vec<f64> = takes.collect();
    let occupies =
        |number: usize| image.works[image.ops[number].work as usize].launches.iter().any(Launch::occupies_units);
    let mut order = image.predecessors.begin_order(|number| takes[number], occupies);
    order.extend(order.len() as u32..image.ops.len() as u32);
    order
}
