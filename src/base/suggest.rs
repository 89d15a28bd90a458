//! "Did you mean": the nearest of the names that would have been right.

/// The candidate that `wrong` was probably meant to be: at most a third of its letters differ
/// (Damerau-Levenshtein), or it is the same but for case, or the only one that `wrong` is the beginning of.
pub fn nearest<'a>(wrong: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = wrong.to_lowercase();
    let mut longer: Option<&str> = None;
    let mut several = false;
    let near = candidates
        .into_iter()
        .inspect(|candidate| {
            if wrong.len() > 2 && candidate.len() > wrong.len() && candidate.starts_with(lower.as_str()) {
                several |= longer.is_some_and(|known| known != *candidate);
                longer = Some(candidate);
            }
        })
        .filter(|candidate| *candidate != wrong)
        .map(|candidate| {
            let distance = strsim::damerau_levenshtein(&lower, &candidate.to_lowercase());
            (distance, candidate)
        })
        // Of one letter, any other would be near.
        .filter(|(distance, candidate)| {
            *distance == 0 || (wrong.len() > 1 && *distance <= (wrong.len().max(candidate.len()) / 3).max(1))
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate);
    near.or(longer.filter(|_| !several))
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
