//! The compute units that are occupied during an observed iteration.

use crate::base::Nanos;
use crate::ops::Cost;

use crate::measure::record::OccupiedRecord;

/// Maximum number of entries in the list of occupied compute units over time.
const ENTRIES: usize = 2000;

/// Returns the number of occupied compute units over time. `changes` has the times of changes, each with the number
/// from then on, in 1/32. If there are more than [`ENTRIES`], each entry is the mean over an equal part of the
/// iteration.
pub fn occupied(changes: &[(Nanos, u32)]) -> Vec<OccupiedRecord> {
    let units = |parts: f64| parts / f64::from(Cost::WHOLE_UNIT);
    if changes.len() <= ENTRIES {
        let entry = |(at_ns, parts): &(Nanos, u32)| OccupiedRecord { at_ns: *at_ns, units: units(f64::from(*parts)) };
        return changes.iter().map(entry).collect();
    }
    let end = changes.last().map_or(0, |(at, _)| at.0).max(1);
    let step = end as f64 / (ENTRIES - 1) as f64;
    let mut sums = vec![0.0; ENTRIES];
    for pair in changes.windows(2) {
        let (from, to) = (pair[0].0.0 as f64 / step, pair[1].0.0 as f64 / step);
        for (index, sum) in
            sums.iter_mut().enumerate().skip(from as usize).take_while(|(index, _)| (*index as f64) < to)
        {
            *sum += f64::from(pair[0].1) * (to.min(index as f64 + 1.0) - from.max(index as f64));
        }
    }
    let at = |index: usize| Nanos::rounded(index as f64 * step);
    sums.into_iter().enumerate().map(|(index, sum)| OccupiedRecord { at_ns: at(index), units: units(sum) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_changes_stay_and_many_become_means() {
        let record = |at: i64, units: f64| OccupiedRecord { at_ns: Nanos(at), units };
        assert_eq!(occupied(&[(Nanos(0), 64), (Nanos(9), 16)]), [record(0, 2.0), record(9, 0.5)]);
        // Every second nanosecond one of two units is occupied; at the end none is.
        let mut changes: Vec<(Nanos, u32)> = (0..100_000).map(|at| (Nanos(at), 32 * (at as u32 % 2))).collect();
        changes.push((Nanos(100_000), 0));
        let entries = occupied(&changes);
        assert_eq!(entries.len(), ENTRIES);
        assert!(entries[..ENTRIES - 1].iter().all(|entry| (entry.units - 0.5).abs() < 0.02), "{:?}", &entries[..4]);
        assert_eq!(entries[ENTRIES - 1], record(100_000, 0.0));
    }
}
