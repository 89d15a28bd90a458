//! "Did you mean": finds the valid name that is nearest to a wrong one.

/// Maximum length of a compared name in bytes: the comparison takes quadratic time.
const MAX_LENGTH: usize = 64;

/// Maximum number of candidates. Among more names, some would always be near.
const MAX_CANDIDATES: usize = 10_000;

/// Maximum number of candidates whose edit distance is computed.
const MAX_COMPARED: usize = 200;

/// Returns the candidate that `wrong` was probably meant to be; `None` if no candidate is near. A candidate is near if
/// its edit distance (Damerau-Levenshtein) is at most a third of its letters, if it differs only in case, or if it is
/// the only one that `wrong` is a prefix of. If several are equally near, returns the alphabetically first.
pub fn nearest<'a>(wrong: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if wrong.len() > MAX_LENGTH {
        return None;
    }
    let lower = wrong.to_lowercase();
    // Any two names of one letter would be near.
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

/// The candidates in the order of likeness: those that share a word, then by edit distance; of equally near ones, the
/// alphabetically first. For few and short names.
pub fn similar<'a>(wrong: &str, candidates: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let wrong: String = wrong.to_lowercase().chars().take(MAX_LENGTH).collect();
    let words: Vec<&str> = wrong.split(['_', '-', ' ']).collect();
    let mut all: Vec<&str> = candidates.into_iter().collect();
    all.sort_by_cached_key(|candidate| {
        let shares = candidate.split('_').any(|word| words.contains(&word));
        (!shares, strsim::damerau_levenshtein(&wrong, candidate), *candidate)
    });
    all
}

/// Number of bytes that only one of the texts has: at most twice the edit distance if letters have one byte each. With
/// longer letters it may exceed that, which at worst loses a suggestion.
fn unlike(a: &str, b: &str) -> usize {
    let mut counts = [0i16; 256];
    a.bytes().for_each(|byte| counts[usize::from(byte)] += 1);
    b.bytes().for_each(|byte| counts[usize::from(byte)] -= 1);
    counts.iter().map(|count| usize::from(count.unsigned_abs())).sum()
}

/// Help text: the nearest name, or all candidates if none is near and they are few; `None` if they are many.
pub fn did_you_mean<'a>(wrong: &str, candidates: impl IntoIterator<Item = &'a str> + Clone) -> Option<String> {
    if let Some(name) = nearest(wrong, candidates.clone()) {
        return Some(format!("did you mean `{name}`?"));
    }
    let all: Vec<&str> = candidates.into_iter().collect();
    (!all.is_empty() && all.len() <= 12).then(|| format!("known here: {}", listed(&all)))
}

/// Formats names as `a`, `b` and `c`.
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
    fn names_that_share_a_word_are_similar() {
        let similar = similar("iterations", ["max_operations", "data", "observed_iterations"]);
        assert_eq!(similar, ["observed_iterations", "max_operations", "data"]);
    }

    #[test]
    fn nearest_name() {
        assert_eq!(nearest("strem", ["stream", "step"]), Some("stream"));
        assert_eq!(nearest("Gemm", ["gemm", "map"]), Some("gemm"));
        assert_eq!(nearest("xyz", ["stream", "step"]), None);
        assert_eq!(nearest("prio", ["priority", "units"]), Some("priority"));
        assert_eq!(nearest("all", ["all_to_all", "all_reduce"]), None);
    }
}
