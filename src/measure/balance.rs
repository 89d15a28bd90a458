//! Why ranks wait for each other: one works longer, one comes late, or data is handed from rank to rank.

use std::collections::BTreeMap;

use crate::base::Nanos;

use super::compare::plain_name;
use super::record::{BalanceRecord, BehindRecord, MeetingRecord, RankRecord, TotalsRecord};
use super::stats::Summary;

/// The share of its iteration that some rank has to wait before the balance is reported.
const WORTH_TELLING: f64 = 0.05;

/// The part of the others' waiting that one rank's additional work has to explain to be called the reason.
const REASON: f64 = 0.5;

/// The part of the longest waiting that every rank has to wait where ranks wait for each other in turn.
const EVERYBODY: f64 = 0.25;

/// How long a rank works and waits in its observed iteration.
struct Side<'a> {
    rank: &'a RankRecord,
    totals: TotalsRecord,
    time: Nanos,
}

impl Side<'_> {
    fn of(rank: &RankRecord) -> Option<Side<'_>> {
        let analysis = rank.analysis.as_ref()?;
        Some(Side { rank, totals: analysis.totals?, time: analysis.split.time_ns })
    }

    fn waiting(&self) -> f64 {
        self.totals.wait_ns.0 as f64 / self.time.0.max(1) as f64
    }
}

/// Why ranks wait for each other at these meetings. `None` where they hardly wait, or where a rank was not observed.
pub fn of(ranks: &[RankRecord], meetings: &[MeetingRecord], straggler: Option<u32>) -> Option<BalanceRecord> {
    let sides: Vec<Side> = ranks.iter().map(Side::of).collect::<Option<_>>()?;
    let least = sides.iter().map(Side::waiting).fold(f64::INFINITY, f64::min);
    let most = sides.iter().map(Side::waiting).fold(0.0, f64::max);
    if sides.len() < 2 || most < WORTH_TELLING {
        return None;
    }
    let record = BalanceRecord { least_waiting: least, most_waiting: most, ..BalanceRecord::default() };
    let busiest = sides.iter().rev().max_by_key(|side| side.totals.busy_ns)?;
    let others = |number: u32, value: &dyn Fn(&Side) -> Nanos| {
        median(sides.iter().filter(|side| side.rank.rank != number).map(value))
    };
    let named = |number: u32, busy: Nanos| {
        let others_busy_ns = others(number, &|side| side.totals.busy_ns);
        BalanceRecord { rank: Some(number), busy_ns: Some(busy), others_busy_ns, ..record.clone() }
    };
    let number = busiest.rank.rank;
    let more = busiest.totals.busy_ns - others(number, &|side| side.totals.busy_ns)?;
    if more.0 as f64 >= REASON * others(number, &|side| side.totals.wait_ns)?.0 as f64 && more > Nanos(0) {
        let record = named(number, busiest.totals.busy_ns);
        return Some(BalanceRecord { kind: "imbalance".to_owned(), behind: behind(ranks, number), ..record });
    }
    let in_turn = handed_on(ranks, meetings);
    if in_turn && least >= EVERYBODY * most {
        return Some(BalanceRecord { kind: "pipeline bubble".to_owned(), ..record });
    }
    let late = straggler.and_then(|number| sides.iter().find(|side| side.rank.rank == number));
    if let Some(late) = late
        && late.totals.wait_ns.0 as f64 <= REASON * others(late.rank.rank, &|side| side.totals.wait_ns)?.0 as f64
    {
        return Some(BalanceRecord { kind: "late rank".to_owned(), ..named(late.rank.rank, late.totals.busy_ns) });
    }
    let kind = if in_turn { "pipeline bubble" } else { "waiting" };
    Some(BalanceRecord { kind: kind.to_owned(), ..record })
}

fn median(times: impl Iterator<Item = Nanos>) -> Option<Nanos> {
    let times: Vec<f64> = times.map(|time| time.0 as f64).collect();
    Summary::of(&times).map(|summary| Nanos(summary.p50.round() as i64))
}

/// Whether ranks wait longer for data that one rank sends to another than in collectives.
fn handed_on(ranks: &[RankRecord], meetings: &[MeetingRecord]) -> bool {
    let is_transfer = |rank: u32, id: u32| {
        let visits = ranks.iter().filter(|of| of.rank == rank).flat_map(|of| &of.collectives);
        visits.filter(|visit| visit.id == id).any(|visit| visit.from.is_some())
    };
    let (mut transfers, mut collectives) = (Nanos(0), Nanos(0));
    for meeting in meetings {
        let time: Nanos = meeting.wait_ns.iter().copied().sum();
        match is_transfer(meeting.ranks[0], meeting.ids[0]) {
            true => transfers.0 += time.0,
            false => collectives.0 += time.0,
        }
    }
    transfers > collectives
}

/// The operations of one name and place that take a rank most longer than the others. `None` where none does.
fn behind(ranks: &[RankRecord], number: u32) -> Option<BehindRecord> {
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
    let own = sums(ranks.iter().find(|rank| rank.rank == number)?);
    let others: Vec<Sums> = ranks.iter().filter(|rank| rank.rank != number).map(sums).collect();
    let behind = own.into_iter().filter_map(|(key, (time_ns, phase))| {
        let others_ns = median(others.iter().map(|sums| sums.get(&key).map_or(Nanos(0), |sum| sum.0)))?;
        let (name, place) = key;
        Some(BehindRecord { name, place, phase, time_ns, others_ns })
    });
    behind.max_by_key(|behind| behind.time_ns - behind.others_ns).filter(|behind| behind.time_ns > behind.others_ns)
}
