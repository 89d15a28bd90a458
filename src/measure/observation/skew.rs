//! Skew between ranks: how far apart they begin, which arrives last at collectives, and how long others wait for it.
//!
//! Uses only the records of ranks. Names a straggler only if its delay exceeds the errors of the clocks and the spread
//! of the samples.

use indexmap::IndexMap;

use crate::base::Nanos;
use crate::exec::Moment;

use super::balance;
use super::waiting::{MatchedOperation, MatchedOperations};
use crate::measure::record::{CollectiveRecord, LateRecord, RankRecord, SkewRecord};
use crate::measure::statistics::summary::Summary;

/// Minimum number of observed iterations for naming a straggler.
const MIN_ITERATIONS: usize = 3;

/// Computes the skew between ranks; `None` if they share no operations.
pub fn of(ranks: &[RankRecord]) -> Option<SkewRecord> {
    let sides: Vec<_> = ranks.iter().map(|rank| (rank.rank, &rank.origins[..], &rank.collectives[..])).collect();
    let matched = MatchedOperations::of(&sides);
    let together = matched.together();
    let ends = ranks.iter().flat_map(|rank| &rank.collectives).flat_map(|arrival| &arrival.ends_ns);
    let longest = ends.max().map_or(f64::INFINITY, |end| end.0 as f64);
    let collectives: Vec<CollectiveRecord> =
        together.iter().filter_map(|parties| collective(ranks, &matched, parties, longest)).collect();
    if collectives.is_empty() {
        return None;
    }
    let origins: Vec<&[Moment]> = ranks.iter().map(|rank| rank.origins.as_slice()).collect();
    let begin = ArrivalTimes::of(&origins, |_, _| Nanos(0)).and_then(|arrivals| arrivals.skew(longest));
    let straggler = straggler(&collectives);
    let (begin_ns, begin_error_ns) = (begin.map(|estimate| estimate.value()), begin.map(|estimate| estimate.error()));
    let balance = balance::of(ranks, &collectives, straggler);
    Some(SkewRecord { begin_ns, begin_error_ns, straggler, balance, collectives })
}

/// Record of matching operations; `None` if some were not observed. `longest` is the duration of an iteration in ns.
fn collective(
    ranks: &[RankRecord],
    matched: &MatchedOperations,
    parties: &[&MatchedOperation],
    longest: f64,
) -> Option<CollectiveRecord> {
    let first = parties[0];
    let of_first = ranks.iter().find(|rank| rank.rank == first.rank)?;
    let operation = of_first.operations.get(first.arrival.id as usize)?;
    let waits: Vec<Vec<Nanos>> = parties.iter().map(|party| matched.waits(party)).collect();
    let iterations = waits.iter().map(Vec::len).min()?;
    let shortest = |at: usize| {
        let transfers = parties.iter().zip(&waits).map(|(party, waits)| party.duration(at) - waits[at]);
        transfers.min().map_or(0.0, |transfer| transfer.0 as f64)
    };
    let median = |samples: &[f64]| Some(Nanos::rounded(Summary::of(samples)?.p50));
    let wait = |waits: &Vec<Nanos>| median(&waits.iter().map(|wait| wait.0 as f64).collect::<Vec<_>>());
    let origins: Vec<&[Moment]> = parties.iter().map(|party| party.origins).collect();
    let start = |party: usize, at: usize| parties[party].arrival.starts_ns.get(at).copied().unwrap_or_default();
    let arrivals = ArrivalTimes::of(&origins, start);
    let skew = arrivals.as_ref().and_then(|arrivals| arrivals.skew(longest));
    let last = arrivals.and_then(|arrivals| arrivals.last());
    Some(CollectiveRecord {
        name: operation.name.clone(),
        operation: operation.operation.clone(),
        ranks: parties.iter().map(|party| party.rank).collect(),
        ids: parties.iter().map(|party| party.arrival.id).collect(),
        transfer_ns: median(&(0..iterations).map(shortest).collect::<Vec<_>>())?,
        wait_ns: waits.iter().map(wait).collect::<Option<_>>()?,
        skew_ns: skew.map(|estimate| estimate.value()),
        skew_error_ns: skew.map(|estimate| estimate.error()),
        last: last.map(|(party, late)| LateRecord { rank: parties[party].rank, ..late }),
    })
}

/// The rank with the largest total delay over all collectives; `None` if no rank is ever last beyond the error.
fn straggler(collectives: &[CollectiveRecord]) -> Option<u32> {
    let mut late: IndexMap<u32, i64> = IndexMap::new();
    for last in collectives.iter().filter_map(|collective| collective.last) {
        *late.entry(last.rank).or_default() += last.late_ns.0;
    }
    late.into_iter().max_by_key(|&(rank, time)| (time, std::cmp::Reverse(rank))).map(|(rank, _)| rank)
}

/// A median with its error.
#[derive(Clone, Copy, Debug)]
struct Estimate {
    median: f64,
    error: f64,
}

impl Estimate {
    /// Estimates a time from samples with a clock error of `clocks`; `None` without samples. If they are too few for an
    /// interval of the median, the error is their whole range.
    fn of(samples: &[f64], clocks: f64) -> Option<Estimate> {
        let summary = Summary::of(samples)?;
        let median = summary.p50;
        let spread = match summary.interval {
            Some((low, high)) => (median - low).max(high - median),
            None => summary.max - summary.min,
        };
        Some(Estimate { median, error: spread + clocks })
    }

    fn value(self) -> Nanos {
        Nanos::rounded(self.median)
    }

    fn error(self) -> Nanos {
        Nanos(self.error.ceil() as i64)
    }
}

/// Arrivals of each rank in each iteration, on a common clock.
struct ArrivalTimes {
    /// Time of each arrival of each rank, in ns from a common origin.
    times: Vec<Vec<f64>>,
    /// Clock error of each rank, in ns.
    errors: Vec<f64>,
}

impl ArrivalTimes {
    /// Arrivals `behind(rank, iteration)` after the starts of iterations; `None` if a start is unknown, or if ranks
    /// have different clocks.
    fn of(origins: &[&[Moment]], behind: impl Fn(usize, usize) -> Nanos) -> Option<ArrivalTimes> {
        let iterations = origins.iter().map(|rank| rank.len()).min().filter(|count| *count > 0)?;
        if origins.iter().any(|rank| rank[0].clock != origins[0][0].clock) {
            return None;
        }
        // Subtract the origin first: host times are too large for exact floats.
        let zero = origins[0][0].at;
        let time = |rank: usize, at: usize| (origins[rank][at].at - zero + behind(rank, at)).0 as f64;
        let times = (0..origins.len()).map(|rank| (0..iterations).map(|at| time(rank, at)).collect()).collect();
        let worst = |of: &&[Moment]| of.iter().map(|moment| moment.error.0).max().unwrap_or(0) as f64;
        Some(ArrivalTimes { times, errors: origins.iter().map(worst).collect() })
    }

    fn iterations(&self) -> usize {
        self.times[0].len()
    }

    /// Time from the first to the last arrival; `None` if its error exceeds `longest`, the duration of an iteration in ns:
    /// then a clock has jumped, or is too imprecise.
    fn skew(&self, longest: f64) -> Option<Estimate> {
        let skew = |at: usize| {
            let all = || self.times.iter().map(|rank| rank[at]);
            all().fold(f64::NEG_INFINITY, f64::max) - all().fold(f64::INFINITY, f64::min)
        };
        let samples: Vec<f64> = (0..self.iterations()).map(skew).collect();
        let mut errors = self.errors.clone();
        errors.sort_by(f64::total_cmp);
        Estimate::of(&samples, errors.iter().rev().take(2).sum()).filter(|estimate| estimate.error <= longest)
    }

    /// Index and delay of the rank that arrives after all others; `None` if chance may explain it.
    fn last(&self) -> Option<(usize, LateRecord)> {
        if self.iterations() < MIN_ITERATIONS {
            return None;
        }
        (0..self.times.len()).find_map(|rank| {
            let others = || (0..self.times.len()).filter(|other| *other != rank);
            let clocks = self.errors[rank] + others().map(|other| self.errors[other]).fold(0.0, f64::max);
            let behind = |at: usize| {
                let last = others().map(|other| self.times[other][at]).fold(f64::NEG_INFINITY, f64::max);
                self.times[rank][at] - last
            };
            let samples: Vec<f64> = (0..self.iterations()).map(behind).collect();
            let estimate = Estimate::of(&samples, clocks)?;
            let times = samples.iter().filter(|late| **late > clocks).count();
            let late =
                LateRecord { rank: 0, late_ns: estimate.value(), error_ns: estimate.error(), times, of: samples.len() };
            (estimate.median > estimate.error).then_some((rank, late))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::record::{ArrivalRecord, OperationRecord};

    /// Ranks that arrive at a collective at these times of the host's clock, and leave it together.
    fn ranks(arrivals: &[&[i64]], error: i64) -> Vec<RankRecord> {
        const LONG_AGO: i64 = 9_000_000_000_000_000;
        let end = |at: usize| arrivals.iter().map(|of| of[at]).max().expect("there are ranks") + 1_000;
        let rank = |(number, arrivals): (usize, &&[i64])| {
            // Iterations of the ranks begin at different times, so arrivals can be compared on the common clock only.
            let begin = |at: usize| number as i64 * 777 - 300 * at as i64;
            let count = 0..arrivals.len();
            RankRecord {
                rank: number as u32,
                operations: vec![OperationRecord { name: "sum".to_owned(), ..OperationRecord::default() }],
                origins: count
                    .clone()
                    .map(|at| Moment { at: Nanos(LONG_AGO + begin(at)), error: Nanos(error), clock: 7 })
                    .collect(),
                collectives: vec![ArrivalRecord {
                    id: 0,
                    ranks: (0..3).collect(),
                    stream: "comm".to_owned(),
                    number: 0,
                    starts_ns: count.clone().map(|at| Nanos(arrivals[at] - begin(at))).collect(),
                    ends_ns: count.map(|at| Nanos(end(at) - begin(at))).collect(),
                    ..ArrivalRecord::default()
                }],
                ..RankRecord::default()
            }
        };
        arrivals.iter().enumerate().map(rank).collect()
    }

    #[test]
    fn a_rank_that_is_last_beyond_the_error_is_named() {
        let late: &[&[i64]] = &[&[0, 0, 0, 0], &[100, 90, 110, 105], &[2_100, 2_090, 2_110, 2_105]];
        let skew = of(&ranks(late, 400)).unwrap();
        let collective = &skew.collectives[0];
        assert_eq!((collective.name.as_str(), collective.transfer_ns, skew.straggler), ("sum", Nanos(1_000), Some(2)));
        assert_eq!(collective.wait_ns, [Nanos(2_103), Nanos(2_000), Nanos(0)]);
        let last = collective.last.unwrap();
        assert_eq!((last.rank, last.late_ns, last.times, last.of), (2, Nanos(2_000), 4, 4));
        assert_eq!(last.error_ns, Nanos(800), "both clocks may be off, and the samples are equal");
        assert_eq!((collective.skew_ns, collective.skew_error_ns), (Some(Nanos(2_103)), Some(Nanos(820))));
    }

    #[test]
    fn a_skew_with_an_error_longer_than_an_iteration_is_absent() {
        let late: &[&[i64]] = &[&[0, 0, 0, 0], &[100, 90, 110, 105], &[2_100, 2_090, 2_110, 2_105]];
        let skew = |error: i64| of(&ranks(late, error)).map(|skew| (skew.begin_ns, skew.collectives[0].skew_ns));
        assert!(skew(400).is_some_and(|(_, skew)| skew.is_some()));
        assert_eq!(skew(1_000_000), Some((None, None)));
    }

    #[test]
    fn no_rank_is_named_within_the_error() {
        let named = |arrivals: &[&[i64]], error: i64| {
            let skew = of(&ranks(arrivals, error)).unwrap();
            assert_eq!(skew.straggler, skew.collectives[0].last.map(|last| last.rank));
            skew.straggler
        };
        let late: &[&[i64]] = &[&[0, 0, 0, 0], &[0, 0, 0, 0], &[2_000, 2_000, 2_000, 2_000]];
        assert_eq!(named(late, 999), Some(2));
        assert_eq!(named(late, 1_000), None, "the clocks may be that far apart");
        let unsteady: &[&[i64]] = &[&[0, 0, 0, 0], &[0, 0, 0, 0], &[2_000, 100, 1_500, 2_500]];
        assert_eq!(named(unsteady, 0), None, "the samples differ by more");
        let equal: &[&[i64]] = &[&[0, 10, 5, 0], &[7, 0, 0, 3], &[0, 3, 9, 1]];
        assert_eq!(named(equal, 0), None);
        let few: &[&[i64]] = &[&[0, 0], &[0, 0], &[2_000, 2_000]];
        assert_eq!(named(few, 0), None, "twice is no rule");
    }

    #[test]
    fn without_a_common_clock_only_durations_are_given() {
        let mut ranks = ranks(&[&[0, 0, 0], &[0, 0, 0], &[50, 50, 50]], 0);
        assert_eq!(of(&ranks).unwrap().straggler, Some(2));
        ranks[1].origins.iter_mut().for_each(|origin| origin.clock = 8);
        assert_eq!(of(&ranks).unwrap().straggler, None, "another host");
        ranks[1].origins.clear();
        let skew = of(&ranks).unwrap();
        assert_eq!((skew.begin_ns, skew.straggler), (None, None));
        let collective = &skew.collectives[0];
        assert_eq!((collective.skew_ns, collective.last), (None, None));
        assert_eq!(collective.wait_ns, [Nanos(50), Nanos(50), Nanos(0)]);
        ranks.pop();
        assert_eq!(of(&ranks), None, "a rank is missing");
    }
}
