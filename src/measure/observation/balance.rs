//! Classifies why ranks wait for each other: load imbalance, a late rank, or a pipeline bubble.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::Nanos;

use crate::measure::record::{BalanceRecord, BehindRecord, CollectiveRecord, RankRecord, TotalsRecord, plain_name};
use crate::measure::statistics::summary::Summary;

/// Minimum share of an iteration that a rank must wait for the balance to be reported.
const WORTH_TELLING: f64 = 0.05;

/// Share of the others' waiting that a rank's additional work must explain to count as the cause.
const CAUSE_SHARE: f64 = 0.5;

/// Share of the difference between the longest and the shortest work up to which ranks count as equal.
const SIMILAR_WORK: f64 = 0.25;

/// Share of the longest waiting that every rank must have for a pipeline bubble.
const COMMON_WAIT: f64 = 0.25;

/// Work and waiting of a rank in its observed iteration.
struct RankLoad<'a> {
    rank: &'a RankRecord,
    totals: TotalsRecord,
    time: Nanos,
}

impl RankLoad<'_> {
    /// `None` if the rank was not observed.
    fn of(rank: &RankRecord) -> Option<RankLoad<'_>> {
        let analysis = rank.analysis.as_ref()?;
        Some(RankLoad { rank, totals: analysis.totals?, time: analysis.split.time_ns })
    }

    /// Share of the iteration in which the rank waits for others.
    fn waiting(&self) -> f64 {
        self.totals.wait_ns.0 as f64 / self.time.0.max(1) as f64
    }
}

/// Returns why ranks wait for each other. `None` if they hardly wait, or if a rank was not observed.
pub fn of(ranks: &[RankRecord], collectives: &[CollectiveRecord], straggler: Option<u32>) -> Option<BalanceRecord> {
    let loads: Vec<RankLoad> = ranks.iter().map(RankLoad::of).collect::<Option<_>>()?;
    let least = loads.iter().map(RankLoad::waiting).fold(f64::INFINITY, f64::min);
    let most = loads.iter().map(RankLoad::waiting).fold(0.0, f64::max);
    if loads.len() < 2 || most < WORTH_TELLING {
        return None;
    }
    let record = BalanceRecord { least_waiting: least, most_waiting: most, ..BalanceRecord::default() };
    let named = |late: &[&RankLoad], rest: &[&RankLoad]| BalanceRecord {
        ranks: late.iter().map(|load| load.rank.rank).collect(),
        busy_ns: median(late.iter().map(|load| load.totals.busy_ns)),
        others_busy_ns: median(rest.iter().map(|load| load.totals.busy_ns)),
        ..record.clone()
    };
    let wait = |of: &[&RankLoad]| median(of.iter().map(|load| load.totals.wait_ns)).map_or(0.0, |wait| wait.0 as f64);
    let (busiest, rest) = busiest(&loads);
    let imbalance = named(&busiest, &rest);
    if let (Some(busy), Some(others)) = (imbalance.busy_ns, imbalance.others_busy_ns)
        && busiest.len() <= rest.len()
        && (busy - others).0 as f64 >= CAUSE_SHARE * wait(&rest)
    {
        let behind = behind(ranks, &imbalance.ranks);
        return Some(BalanceRecord { kind: "imbalance".to_owned(), behind, ..imbalance });
    }
    let in_turn = waits_mostly_for_transfers(ranks, collectives);
    if in_turn && least >= COMMON_WAIT * most {
        return Some(BalanceRecord { kind: "pipeline bubble".to_owned(), ..record });
    }
    let (late, rest): (Vec<&RankLoad>, Vec<&RankLoad>) =
        loads.iter().partition(|load| Some(load.rank.rank) == straggler);
    let late_rank = named(&late, &rest);
    if !late.is_empty() && wait(&late) <= CAUSE_SHARE * wait(&rest) && late_rank.busy_ns <= late_rank.others_busy_ns {
        return Some(BalanceRecord { kind: "late rank".to_owned(), ..late_rank });
    }
    let kind = if in_turn { "pipeline bubble" } else { "waiting" };
    Some(BalanceRecord { kind: kind.to_owned(), ..record })
}

/// Splits ranks by the time that they work into the busiest ones and the others, at a gap that is large compared with
/// the spread among the busiest.
fn busiest<'s, 'a>(loads: &'s [RankLoad<'a>]) -> (Vec<&'s RankLoad<'a>>, Vec<&'s RankLoad<'a>>) {
    let busy = || loads.iter().map(|load| load.totals.busy_ns.0);
    let (least, most) = (busy().min().unwrap_or(0), busy().max().unwrap_or(0));
    let from = most as f64 - SIMILAR_WORK * (most - least) as f64;
    loads.iter().partition(|load| load.totals.busy_ns.0 as f64 >= from)
}

fn median(times: impl Iterator<Item = Nanos>) -> Option<Nanos> {
    let times: Vec<f64> = times.map(|time| time.0 as f64).collect();
    Summary::of(&times).map(|summary| Nanos::rounded(summary.p50))
}

/// True if ranks wait longer for point-to-point transfers than in collectives.
fn waits_mostly_for_transfers(ranks: &[RankRecord], collectives: &[CollectiveRecord]) -> bool {
    let arrivals = ranks.iter().flat_map(|rank| rank.collectives.iter().map(|arrival| (rank.rank, arrival)));
    let sent: BTreeSet<(u32, u32)> =
        arrivals.filter(|(_, arrival)| arrival.from.is_some()).map(|(rank, arrival)| (rank, arrival.id)).collect();
    let (mut in_transfers, mut in_collectives) = (Nanos(0), Nanos(0));
    for collective in collectives {
        let time: Nanos = collective.wait_ns.iter().copied().sum();
        match sent.contains(&(collective.ranks[0], collective.ids[0])) {
            true => in_transfers.0 += time.0,
            false => in_collectives.0 += time.0,
        }
    }
    in_transfers > in_collectives
}

/// Operations in which `late` ranks exceed the others' time most, by name and source location; `None` if they exceed it
/// in no operation.
fn behind(ranks: &[RankRecord], late: &[u32]) -> Option<BehindRecord> {
    type Sums = BTreeMap<(String, String), (Nanos, Option<String>)>;
    let sums = |rank: &RankRecord| {
        let mut sums = Sums::new();
        for operation in &rank.operations {
            let key = (plain_name(&operation.name), operation.place.clone());
            let sum = sums.entry(key).or_insert((Nanos(0), operation.phase.clone()));
            sum.0.0 += operation.work_ns().unwrap_or_default().0;
        }
        sums
    };
    let (late, others): (Vec<&RankRecord>, Vec<&RankRecord>) = ranks.iter().partition(|rank| late.contains(&rank.rank));
    let (late, others): (Vec<Sums>, Vec<Sums>) =
        (late.into_iter().map(sums).collect(), others.into_iter().map(sums).collect());
    let time = |of: &[Sums], key| median(of.iter().map(|sums| sums.get(key).map_or(Nanos(0), |sum| sum.0)));
    let behind = late.iter().flatten().filter_map(|(key, (_, phase))| {
        let (time_ns, others_ns) = (time(&late, key)?, time(&others, key)?);
        let (name, place) = key.clone();
        Some(BehindRecord { name, place, phase: phase.clone(), time_ns, others_ns })
    });
    // The first of equal ones.
    let behind: Vec<BehindRecord> = behind.collect();
    let most = behind.into_iter().rev().max_by_key(|behind| behind.time_ns - behind.others_ns)?;
    (most.time_ns > most.others_ns).then_some(most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::record::{AnalysisRecord, TimeSplitRecord};

    /// A rank that works and waits for so long in an iteration of 1000 ns.
    fn rank(rank: u32, busy: i64, wait: i64) -> RankRecord {
        let totals = TotalsRecord { busy_ns: Nanos(busy), wait_ns: Nanos(wait), ..TotalsRecord::default() };
        let split = TimeSplitRecord { time_ns: Nanos(1000), ..TimeSplitRecord::default() };
        let analysis = AnalysisRecord { split, totals: Some(totals), ..AnalysisRecord::default() };
        RankRecord { rank, analysis: Some(analysis), ..RankRecord::default() }
    }

    #[test]
    fn a_rank_that_comes_late_without_working_longer_is_named() {
        let late = [rank(0, 300, 500), rank(1, 300, 10), rank(2, 310, 480)];
        let found = |ranks: &[RankRecord], straggler| of(ranks, &[], straggler).expect("ranks wait");
        let named = found(&late, Some(1));
        assert_eq!((named.kind.as_str(), &named.ranks[..]), ("late rank", &[1][..]));
        assert_eq!((named.busy_ns, named.others_busy_ns), (Some(Nanos(300)), Some(Nanos(305))));
        // No rank is late if the last one to arrive varies, if it waits as long as the others, or if another rank works
        // longer.
        assert_eq!(found(&late, None).kind, "waiting");
        assert_eq!(found(&late, Some(0)).kind, "waiting");
        assert_eq!(found(&[rank(0, 300, 500), rank(1, 330, 10), rank(2, 310, 480)], Some(1)).kind, "waiting");
        assert_eq!(found(&[rank(0, 300, 500), rank(1, 800, 10), rank(2, 310, 480)], Some(1)).kind, "imbalance");
        assert_eq!(of(&[rank(0, 300, 40), rank(1, 300, 0)], &[], Some(1)), None);
    }
}
