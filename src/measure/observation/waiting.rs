//! Splits the duration of operations between ranks into waiting and transfer.
//!
//! An operation waits from its start until the last matching operation of another rank has started; the rest is
//! transfer. A group of sends and receives has several partners, and its first transfer begins when one of them has
//! started, so its waiting ends then: waiting for the others overlaps with transfers. Two sources determine this.
//! Durations need no common clock: operations that end together share the transfer, and the last to arrive waits for
//! nobody, so the shortest duration is the transfer. Start times on a common clock bound the waiting up to the clocks'
//! error. The durations decide, within those bounds.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::base::{Nanos, OpId};
use crate::exec::{Moment, RankSchedule, Span, Trace};

use super::arrivals::{Channel, RankArrivals, keep_matched};
use crate::measure::record::ArrivalRecord;

/// An operation of a rank, with the matching operations of other ranks.
#[derive(Debug)]
pub struct MatchedOperation<'a> {
    pub rank: u32,
    pub origins: &'a [Moment],
    /// The rank's arrival at the operation, as the record stores it. A record may have several arrivals for one operation, which
    /// have the same times.
    pub arrival: &'a ArrivalRecord,
    /// Indices of the matching operations, for each channel: one for a collective, several for a group of sends and
    /// receives.
    partners: Vec<Vec<usize>>,
}

/// The operations of a slot that match operations of other ranks, by rank and in the order of the text.
#[derive(Debug)]
pub struct MatchedOperations<'a>(Vec<MatchedOperation<'a>>);

impl MatchedOperation<'_> {
    /// Duration of the operation in an observed iteration.
    pub fn duration(&self, at: usize) -> Nanos {
        self.arrival.ends_ns[at] - self.arrival.starts_ns[at]
    }

    /// Number of observed iterations.
    pub fn iterations(&self) -> usize {
        self.arrival.starts_ns.len()
    }

    /// Time by which an operation of another rank started later, according to the clocks, and the error of this time.
    /// `None` without a common clock.
    fn behind(&self, other: &MatchedOperation, at: usize) -> Option<(Nanos, Nanos)> {
        let (own, their) = (self.origins.get(at)?, other.origins.get(at)?);
        let start = |party: &MatchedOperation, origin: &Moment| origin.at + party.arrival.starts_ns[at];
        let behind = start(other, their) - start(self, own);
        (own.clock == their.clock).then_some((behind, own.error + their.error))
    }
}

impl<'a> MatchedOperations<'a> {
    /// Matches the operations of ranks in one slot.
    pub fn of(ranks: &[(u32, &'a [Moment], &'a [ArrivalRecord])]) -> MatchedOperations<'a> {
        let mut parties: Vec<MatchedOperation> = Vec::new();
        let mut met: BTreeMap<(Channel, u32), Vec<usize>> = BTreeMap::new();
        for &(rank, origins, arrivals) in ranks {
            for arrival in arrivals {
                let same = |party: &MatchedOperation| party.rank == rank && party.arrival.id == arrival.id;
                if !parties.last().is_some_and(same) {
                    parties.push(MatchedOperation { rank, origins, arrival, partners: Vec::new() });
                }
                met.entry((Channel::of(arrival), arrival.number)).or_default().push(parties.len() - 1);
            }
        }
        for ((channel, _), sides) in met {
            // Incomplete if a rank was not observed.
            if sides.len() != channel.size() {
                continue;
            }
            for &side in &sides {
                let others = sides.iter().copied().filter(|other| *other != side);
                parties[side].partners.push(others.collect());
            }
        }
        MatchedOperations(parties)
    }

    /// Waiting time of an operation in an observed iteration. `None` if a matching operation was not observed.
    fn wait(&self, party: &MatchedOperation, at: usize) -> Option<Nanos> {
        let waits: Option<Vec<Nanos>> =
            party.partners.iter().map(|partners| self.wait_for(party, partners, at)).collect();
        waits?.into_iter().min()
    }

    /// Waiting time of an operation for the partners of one channel; `None` if an iteration of one of them is missing.
    fn wait_for(&self, party: &MatchedOperation, partners: &[usize], at: usize) -> Option<Nanos> {
        let partners = || partners.iter().map(|partner| &self.0[*partner]);
        if partners().chain([party]).any(|party| party.iterations() <= at) {
            return None;
        }
        let duration = party.duration(at);
        let by_durations = partners().map(|partner| duration - partner.duration(at)).fold(Nanos(0), Nanos::max);
        let clocks: Option<Vec<(Nanos, Nanos)>> = partners().map(|partner| party.behind(partner, at)).collect();
        let Some(clocks) = clocks else { return Some(by_durations) };
        // A rank cannot have waited for one that arrived after its own end: the data was buffered.
        let waited = clocks.iter().map(|(behind, _)| *behind).filter(|behind| *behind <= duration);
        let (last, error) = (waited.fold(Nanos(0), Nanos::max), clocks.iter().map(|(_, error)| *error).max()?);
        Some(by_durations.clamp(last - error, last + error).min(duration).max(Nanos(0)))
    }

    /// Waiting time of an operation in each observed iteration for which it is known.
    pub fn waits(&self, party: &MatchedOperation) -> Vec<Nanos> {
        (0..party.iterations()).map_while(|at| self.wait(party, at)).collect()
    }

    /// Groups of operations that match directly or through others, with at least two each.
    pub fn together(&self) -> Vec<Vec<&MatchedOperation<'a>>> {
        let mut seen = vec![false; self.0.len()];
        let mut together = Vec::new();
        for first in 0..self.0.len() {
            let mut found = Vec::new();
            let mut open = vec![first];
            while let Some(next) = open.pop() {
                if !std::mem::replace(&mut seen[next], true) {
                    found.push(next);
                    open.extend(self.0[next].partners.iter().flatten());
                }
            }
            found.sort_unstable();
            if found.len() > 1 {
                together.push(found.into_iter().map(|party| &self.0[party]).collect());
            }
        }
        together
    }
}

/// An observed iteration of a rank, with the waiting time of each operation.
#[derive(Debug)]
pub struct Iteration<'a> {
    pub trace: &'a Trace,
    waits: BTreeMap<OpId, Nanos>,
}

impl<'a> Iteration<'a> {
    /// An iteration without operations between ranks.
    pub fn alone(trace: &'a Trace) -> Iteration<'a> {
        Iteration { trace, waits: BTreeMap::new() }
    }

    /// Working time of an operation: its duration without waiting for other ranks.
    pub fn work(&self, span: &Span) -> Nanos {
        span.duration() - self.wait(span.op).unwrap_or_default()
    }

    /// Waiting time of an operation; `None` if it involves no other rank or the others were not observed.
    pub fn wait(&self, op: OpId) -> Option<Nanos> {
        self.waits.get(&op).copied()
    }
}

/// The observed iterations of several ranks.
#[derive(Debug)]
pub struct Observations<'a> {
    /// Iterations of each rank, in the order of their traces.
    pub iterations: Vec<Vec<Iteration<'a>>>,
    /// Matched arrivals, by slot and rank.
    pub arrivals: Vec<Vec<RankArrivals>>,
}

impl<'a> Observations<'a> {
    /// Computes waiting times from the ranks' traces. `slots` is the number of iterations after which the programs of
    /// all ranks repeat.
    pub fn of(ranks: &[RankSchedule], slots: usize, traces: &'a [Vec<Trace>]) -> Observations<'a> {
        let alone = |traces: &'a Vec<Trace>| traces.iter().map(Iteration::alone).collect();
        let mut iterations: Vec<Vec<Iteration>> = traces.iter().map(alone).collect();
        if ranks.len() < 2 {
            return Observations { iterations, arrivals: Vec::new() };
        }
        let of_slot = |slot: usize| {
            let arrivals = |(rank, traces): (&RankSchedule, &'a Vec<Trace>)| {
                let traces: Vec<&Trace> = traces.iter().filter(|trace| trace.slot == slot).collect();
                RankArrivals::of(rank.program, rank.number, slot % rank.program.cycle.len(), &traces)
            };
            ranks.iter().zip(traces).map(arrivals).collect()
        };
        let mut arrivals: Vec<Vec<RankArrivals>> = (0..slots).map(of_slot).collect();
        keep_matched(&mut arrivals);
        for (slot, arrivals) in arrivals.iter().enumerate() {
            note_waits(arrivals, slot, &mut iterations);
        }
        Observations { iterations, arrivals }
    }
}

/// Adds the waiting times of a slot's operations to the iterations.
fn note_waits(arrivals: &[RankArrivals], slot: usize, iterations: &mut [Vec<Iteration>]) {
    let ranks: Vec<_> = arrivals.iter().map(|rank| (rank.rank, &rank.origins[..], &rank.arrivals[..])).collect();
    let matched = MatchedOperations::of(&ranks);
    let by_rank: FxHashMap<u32, usize> = arrivals.iter().enumerate().map(|(index, of)| (of.rank, index)).collect();
    for party in &matched.0 {
        let of_slot = iterations[by_rank[&party.rank]].iter_mut().filter(|iteration| iteration.trace.slot == slot);
        for (iteration, wait) in of_slot.zip(matched.waits(party)) {
            iteration.waits.insert(OpId(party.arrival.id), wait);
        }
    }
}
