//! Arrivals of one rank at collectives and transfers: when its observed iterations began, and when it entered and left
//! each operation with other ranks.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::OpId;
use crate::exec::{Moment, Span, Trace};
use crate::model::{OpKind, Program};
use crate::ops::{self, CollectiveKind, Launch, Spec};

use crate::measure::record::ArrivalRecord;

/// Arrivals of a rank in the observed iterations of one slot.
#[derive(Clone, Debug, Default)]
pub struct RankArrivals {
    pub rank: u32,
    /// Start of each iteration on the host's clock; empty unless all are known.
    pub origins: Vec<Moment>,
    /// Arrivals of the rank's operations, in the order of the text.
    pub arrivals: Vec<ArrivalRecord>,
}

/// Operations that can match across ranks: collectives of the same ranks on the same stream, transfers between the same
/// two ranks, or copies of the same statement. The n-th on one rank matches the n-th on the others.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Channel {
    pub ranks: Vec<u32>,
    pub stream: String,
    /// Sender and receiver; `None` for a collective.
    pub pair: Option<(u32, u32)>,
}

impl Channel {
    pub fn of(arrival: &ArrivalRecord) -> Channel {
        let pair = arrival.from.zip(arrival.to);
        Channel { ranks: arrival.ranks.clone(), stream: arrival.stream.clone(), pair }
    }

    /// Number of ranks that take part.
    pub fn size(&self) -> usize {
        self.pair.map_or(self.ranks.len(), |_| 2)
    }
}

impl RankArrivals {
    /// Arrivals of a rank in slot `number` of its own cycle, which `traces` observed.
    pub fn of(program: &Program, rank: u32, number: usize, traces: &[&Trace]) -> RankArrivals {
        RankArrivals { rank, origins: origins(traces), arrivals: arrivals(program, rank, number, traces) }
    }

    /// Number of arrivals at each channel.
    fn counts(&self) -> BTreeMap<Channel, usize> {
        let mut counts = BTreeMap::new();
        for arrival in &self.arrivals {
            *counts.entry(Channel::of(arrival)).or_default() += 1;
        }
        counts
    }
}

/// Removes arrivals that cannot be matched within an iteration: those at a channel at which its ranks do not arrive
/// equally often in each slot. `slots` has the arrivals of all ranks by slot.
pub fn keep_matched(slots: &mut [Vec<RankArrivals>]) {
    let mut uneven: BTreeSet<Channel> = BTreeSet::new();
    for ranks in slots.iter() {
        let mut counts: BTreeMap<Channel, Vec<usize>> = BTreeMap::new();
        for (channel, count) in ranks.iter().flat_map(RankArrivals::counts) {
            counts.entry(channel).or_default().push(count);
        }
        let differs = |(channel, counts): &(Channel, Vec<usize>)| {
            counts.len() != channel.size() || counts.iter().any(|count| *count != counts[0])
        };
        uneven.extend(counts.into_iter().filter(differs).map(|(channel, _)| channel));
    }
    for ranks in slots.iter_mut().flatten() {
        ranks.arrivals.retain(|arrival| !uneven.contains(&Channel::of(arrival)));
    }
}

/// Start of each observed iteration; empty unless all are known.
fn origins(traces: &[&Trace]) -> Vec<Moment> {
    traces.iter().map(|trace| trace.origin).collect::<Option<_>>().unwrap_or_default()
}

/// Arrivals in slot `number` of the rank's own cycle, in the order of the text.
fn arrivals(program: &Program, rank: u32, number: usize, traces: &[&Trace]) -> Vec<ArrivalRecord> {
    let step = &program.cycle[number];
    let mut counts: BTreeMap<Channel, u32> = BTreeMap::new();
    let mut arrivals: Vec<ArrivalRecord> = Vec::new();
    // Index of each operation's first arrival, and their number.
    let mut places = vec![(0, 0); step.ops.len()];
    for op in step.ids() {
        let OpKind::Run(spec) = step.op(op).kind else { continue };
        let first = arrivals.len();
        let crossing = step.peer(op).map(|peer| peer.crossing);
        let stream = &program.streams[step.op(op).stream.index()].name;
        for mut channel in channels(program, rank, program.spec(spec)) {
            let number = match crossing {
                Some(crossing) => crossing,
                None => {
                    channel.stream.clone_from(stream);
                    let count = counts.entry(channel.clone()).or_default();
                    *count += 1;
                    *count - 1
                }
            };
            let (from, to) = channel.pair.unzip();
            let Channel { ranks, stream, .. } = channel;
            arrivals.push(ArrivalRecord { id: op.0, ranks, stream, number, from, to, ..ArrivalRecord::default() });
        }
        places[op.index()] = (first, arrivals.len() - first);
    }
    for Span { op: OpId(op), start, end, .. } in traces.iter().flat_map(|trace| &trace.spans) {
        let (first, count) = places[*op as usize];
        for arrival in &mut arrivals[first..first + count] {
            arrival.starts_ns.push(*start);
            arrival.ends_ns.push(*end);
        }
    }
    arrivals
}

/// The channels at which an operation of a rank meets other ranks, without the stream's name.
fn channels(program: &Program, rank: u32, spec: &Spec) -> Vec<Channel> {
    let pair = |ranks: &[u32], from: u32, to: u32| Channel {
        ranks: ranks.to_vec(),
        pair: Some((from, to)),
        ..Channel::default()
    };
    if let Some(crossing) = ops::crossing(spec) {
        let sends = crossing.sends.iter().map(|(to, _)| (rank, *to));
        let pairs = sends.chain(crossing.from.iter().map(|from| (*from, rank)));
        return pairs.filter(|(from, to)| from != to).map(|(from, to)| pair(&[from, to], from, to)).collect();
    }
    if spec.operation.category() != ops::Category::Collective {
        return Vec::new();
    }
    let ranks: Vec<u32> = program.groups[spec.team.group.index()].members_with(rank).collect();
    let launches = spec.launch();
    let entries = launches.iter().flat_map(Launch::collectives);
    let channel = |entry: &ops::Collective| {
        let peer = ranks.get(entry.peer as usize).copied();
        match entry.kind {
            CollectiveKind::Send => peer.map(|to| pair(&ranks, rank, to)),
            CollectiveKind::Recv => peer.map(|from| pair(&ranks, from, rank)),
            _ => Some(Channel { ranks: ranks.clone(), ..Channel::default() }),
        }
    };
    let apart = |channel: &Channel| channel.pair.map_or(ranks.len() > 1, |(from, to)| from != to);
    entries.filter_map(channel).filter(apart).collect()
}
