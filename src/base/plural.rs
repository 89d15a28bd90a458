//! Counts with nouns: `1 operation`, `2 operations`.

/// Formats a number with its noun, in the plural unless it is 1.
pub fn counted(count: usize, noun: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_is_singular() {
        let all = [0, 1, 2].map(|count| counted(count, "wait"));
        assert_eq!(all, ["0 waits", "1 wait", "2 waits"]);
    }
}
