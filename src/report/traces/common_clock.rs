//! Shifts the times of ranks, which count from the start of each rank's own iteration, to a common clock.

use crate::base::Nanos;
use crate::exec::Moment;
use crate::measure::record::RankRecord;

/// Moment at which the traced iteration of each rank began, on a common clock; `None` unless known for all ranks.
pub(in crate::report) fn origins(ranks: &[RankRecord]) -> Option<Vec<&Moment>> {
    let origins: Option<Vec<&Moment>> = ranks.iter().map(|rank| rank.origins.last()).collect();
    origins.filter(|all| all.iter().all(|origin| origin.clock == all[0].clock))
}

/// Offsets that convert each rank's times to a common clock that starts with the earliest span. Without a common clock,
/// the iterations of all ranks begin at the same time.
pub(in crate::report) fn shifts(ranks: &[RankRecord]) -> Vec<Nanos> {
    let origins = origins(ranks);
    let zero = origins.iter().flatten().map(|origin| origin.at).min().unwrap_or(Nanos(0));
    let begins = match origins {
        Some(origins) => origins.iter().map(|origin| origin.at - zero).collect(),
        None => vec![Nanos(0); ranks.len()],
    };
    // With overlapping iterations, a span may begin before its own iteration.
    let first = |(rank, begin): (&RankRecord, &Nanos)| rank.trace.iter().map(|span| span.start_ns + *begin).min();
    let earliest = ranks.iter().zip(&begins).filter_map(first).min().unwrap_or(Nanos(0)).min(Nanos(0));
    begins.into_iter().map(|begin| begin - earliest).collect()
}
