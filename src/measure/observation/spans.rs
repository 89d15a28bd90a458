//! Sets of time intervals: union, intersection, length. Times are plain numbers.

/// Start and end.
pub type TimeRange = (f64, f64);

/// Merges intervals that touch or overlap; sorts them.
pub fn union(mut ranges: Vec<TimeRange>) -> Vec<TimeRange> {
    ranges.retain(|(start, end)| end > start);
    ranges.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut joined: Vec<TimeRange> = Vec::new();
    for (start, end) in ranges {
        match joined.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => joined.push((start, end)),
        }
    }
    joined
}

/// Intersection of two unions.
pub fn common(a: &[TimeRange], b: &[TimeRange]) -> Vec<TimeRange> {
    let (mut i, mut j) = (0, 0);
    let mut common = Vec::new();
    while i < a.len() && j < b.len() {
        let (start, end) = (a[i].0.max(b[j].0), a[i].1.min(b[j].1));
        if start < end {
            common.push((start, end));
        }
        if a[i].1 < b[j].1 { i += 1 } else { j += 1 }
    }
    common
}

/// Total length of a union.
pub fn length(ranges: &[TimeRange]) -> f64 {
    ranges.iter().map(|(start, end)| end - start).sum()
}

/// Total length of a union outside of another.
pub fn outside(ranges: &[TimeRange], other: &[TimeRange]) -> f64 {
    length(ranges) - length(&common(ranges, other))
}

/// Shifts each interval by whole periods into 0 to `period`; one longer than a period covers all of it. Empty if the
/// period is 0.
pub fn folded(ranges: &[TimeRange], period: f64) -> Vec<TimeRange> {
    if period <= 0.0 {
        return Vec::new();
    }
    let parts = ranges.iter().flat_map(|&(start, end)| {
        let (from, long) = (start.rem_euclid(period), (end - start).min(period));
        [(from, (from + long).min(period)), (0.0, from + long - period)]
    });
    union(parts.collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Compares with sets of integer moments.
        #[test]
        fn intervals_agree_with_sets_of_moments(
            a in prop::collection::vec((0u32..60, 0u32..12), 0..12),
            b in prop::collection::vec((0u32..60, 0u32..12), 0..12),
        ) {
            let ranges = |list: &[(u32, u32)]| {
                union(list.iter().map(|&(start, long)| (f64::from(start), f64::from(start + long))).collect())
            };
            let holds = |list: &[(u32, u32)], moment: u32| {
                list.iter().any(|&(start, long)| (start..start + long).contains(&moment))
            };
            let count = |wanted: &dyn Fn(u32) -> bool| (0..80).filter(|&moment| wanted(moment)).count() as f64;
            let (left, right) = (ranges(&a), ranges(&b));
            prop_assert_eq!(length(&left), count(&|moment| holds(&a, moment)));
            prop_assert_eq!(length(&common(&left, &right)), count(&|moment| holds(&a, moment) && holds(&b, moment)));
            prop_assert_eq!(outside(&left, &right), count(&|moment| holds(&a, moment) && !holds(&b, moment)));
        }

        #[test]
        fn a_folded_stretch_lies_within_the_period(
            list in prop::collection::vec((-60i32..60, 0i32..30), 0..12),
            period in 1i32..50,
        ) {
            let ranges = list.iter().map(|&(start, long)| (f64::from(start), f64::from(start + long))).collect();
            let folded = folded(&union(ranges), f64::from(period));
            let holds = |moment: i32| {
                list.iter().any(|&(start, long)| (start..start + long).any(|at| at.rem_euclid(period) == moment))
            };
            prop_assert_eq!(length(&folded), (0..period).filter(|&moment| holds(moment)).count() as f64);
            prop_assert!(folded.iter().all(|&(start, end)| start >= 0.0 && end <= f64::from(period)));
        }
    }
}
