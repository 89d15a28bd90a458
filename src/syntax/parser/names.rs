//! Help for words that cannot be names: they begin with a digit, or contain other characters than letters, digits and `_`.

use super::failure_point::{FailurePoint, leading_word};

/// Beginning of the help for a name that begins with a digit.
pub(super) const NUMBERED: &str = "a name begins with a letter";

/// A help for a word that begins with a digit where a name is expected; `None` for another mistake.
pub(super) fn numbered(place: &FailurePoint) -> Option<String> {
    let is_name_expected = place.expects("a..z") && !place.expects("0..9") && !place.expects_value();
    if is_name_expected { numbered_name(leading_word(place.found)) } else { None }
}

/// A help for a name with a `-` or a `.` in it; `None` for another mistake.
pub(super) fn joined(place: &FailurePoint) -> Option<String> {
    let (first, second) = (place.word_before(), leading_word(place.rest.get(1..).unwrap_or("")));
    let is_joined = place.is_joined && place.rest.starts_with(['-', '.']) && !second.is_empty();
    let is_name = !first.is_empty() && !first.starts_with(|c: char| c.is_ascii_digit());
    (is_joined && is_name && !place.expects("*"))
        .then(|| format!("a name consists of letters, digits and `_`: `{first}_{second}`"))
}

/// A help for a word in the place of a name that begins with a digit and has letters; `None` for another word.
pub(super) fn numbered_name(word: &str) -> Option<String> {
    let letters = word.trim_start_matches(|c: char| c.is_ascii_digit());
    let digits = &word[..word.len() - letters.len()];
    (!digits.is_empty() && !letters.is_empty()).then(|| format!("{NUMBERED}: `{letters}{digits}`"))
}
