//! Chooses candidates by their times: those that are timed again, and the best.

use crate::base::Nanos;

/// A candidate is timed again if its first time is below this multiple of the least. First times of an algorithm differed from its
/// time in a graph of many by up to 8 % on an H200 (docs/measurements/2026-11-28-timed-tilings.md).
pub const NEAR: f64 = 1.15;

/// Maximum number of candidates that are timed again.
const MAX_FINALISTS: usize = 6;

/// A later candidate replaces an earlier one only if its time is less than this multiple; a smaller gain may be noise.
const MIN_GAIN: f64 = 0.99;

/// Returns the first candidate, by number and time, unless another one is clearly faster; `None` without candidates.
pub fn best(times: &[(usize, Nanos)]) -> Option<(usize, Nanos)> {
    let is_faster = |time: Nanos, than: Nanos| (time.0 as f64) < MIN_GAIN * than.0 as f64;
    times.iter().copied().reduce(|best, next| if is_faster(next.1, best.1) { next } else { best })
}

/// Returns the candidates whose times are near the least, at most [`MAX_FINALISTS`], in the order of their numbers.
pub fn finalists(mut times: Vec<(usize, Nanos)>) -> Vec<(usize, Nanos)> {
    times.sort_by_key(|(_, time)| *time);
    let limit = times.first().map_or(0.0, |(_, least)| NEAR * least.0 as f64);
    times.retain(|(_, time)| time.0 as f64 <= limit);
    times.truncate(MAX_FINALISTS);
    times.sort_by_key(|(number, _)| *number);
    times
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finalists_are_the_fastest_and_keep_their_order() {
        let of = |times: &[i64]| {
            let times = times.iter().enumerate().map(|(number, &time)| (number, Nanos(time))).collect();
            finalists(times).into_iter().map(|(number, _)| number).collect::<Vec<_>>()
        };
        assert_eq!(of(&[]), [0; 0]);
        assert_eq!(of(&[100]), [0]);
        assert_eq!(of(&[120, 100, 114]), [1, 2]);
        assert_eq!(of(&[108, 107, 106, 105, 104, 103, 102, 101]), [2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn an_earlier_candidate_is_kept_unless_another_is_clearly_faster() {
        let of = |times: &[i64]| {
            let times: Vec<(usize, Nanos)> = times.iter().map(|&time| Nanos(time)).enumerate().collect();
            best(&times).map(|(number, _)| number)
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[1000, 995]), Some(0));
        assert_eq!(of(&[1000, 995, 980]), Some(2));
    }
}
