//! "Did you mean": the nearest of the names that would have been right.

/// Bytes of the longest name that is compared: that takes the square of its length.
const MAX_LENGTH: usize = 64;

/// Candidates that are looked at. Among so many names, any is near.
const MAX_CANDIDATES: usize = 10_000;

/// Candidates that are compared letter by letter.
const MAX_COMPARED: usize = 200;

/// The candidate that `wrong` was probably meant to be: at most a third of its letters differ
/// (Damerau-Levenshtein), or it is the same but for case, or the only one that `wrong` is the beginning of. Of several
/// that are as near, the first in the alphabet.
pub fn nearest<'a>(wrong: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if wrong.len() > MAX_LENGTH {
        return None;
    }
    let lower = wrong.to_lowercase();
    // Of one letter, any other would be near.
    let allowed = |candidate: &str| match wrong.len() {
        0 | 1 => 0,
        length => (length.max(candidate.len()) / 3).max(1),
    };
    let mut longer: Option<&str> = None;
    let mut several = false;
    let near = candidates
        .into_iter()
        .take(MAX_CANDIDATES)
        .filter(|candidate| *candidate != wrong && candidate.len() <= MAX_LENGTH)
        .inspect(|candidate| {
            if wrong.len() > 2 && candidate.starts_with(lower.as_str()) {
                several |= longer.is_some_and(|known| known != *candidate);
                longer = Some(candidate);
            }
        })
        .map(|candidate| (candidate, candidate.to_lowercase()))
        .filter(|(candidate, letters)| 2 * allowed(candidate) >= unlike(&lower, letters))
        .take(MAX_COMPARED)
        .map(|(candidate, letters)| (strsim::damerau_levenshtein(&lower, &letters), candidate))
        .filter(|(distance, candidate)| *distance <= allowed(candidate))
        .min()
        .map(|(_, candidate)| candidate);
    near.or(longer.filter(|_| !several))
}

/// Bytes that only one of two texts has, at any place: each letter that differs makes two of them at most (of a
/// letter with several bytes more, and then nothing is suggested).
fn unlike(a: &str, b: &str) -> usize {
    let mut counts = [0i16; 256];
    a.bytes().for_each(|byte| counts[usize::from(byte)] += 1);
    b.bytes().for_each(|byte| counts[usize::from(byte)] -= 1);
    counts.iter().map(|count| usize::from(count.unsigned_abs())).sum()
}

/// A help text: the nearest name, or the whole choice when there is none near and it is short.
pub fn did_you_mean<'a>(wrong: &str, candidates: impl IntoIterator<Item = &'a str> + Clone) -> Option<String> {
    if let Some(name) = nearest(wrong, candidates.clone()) {
        return Some(format!("did you mean `{name}`?"));
    }
    let all: Vec<&str> = candidates.into_iter().collect();
    (!all.is_empty() && all.len() <= 12).then(|| format!("known here: {}", listed(&all)))
}

/// `a`, `b` and `c`.
pub fn listed(names: &[&str]) -> String {
    match names {
        [] => "nothing".to_owned(),
        [one] => format!("`{one}`"),
        [most @ .., last] => {
            let most: Vec<String> = most.iter().map(|name| format!("`{name}`")).collect();
            format!("{} and `{last}`", most.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_name() {
        assert_eq!(nearest("strem", ["stream", "step"]), Some("stream"));
        assert_eq!(nearest("Gemm", ["gemm", "map"]), Some("gemm"));
        assert_eq!(nearest("xyz", ["stream", "step"]), None);
        assert_eq!(nearest("prio", ["priority", "units"]), Some("priority"));
        assert_eq!(nearest("all", ["all_to_all", "all_reduce"]), None);
    }
}
