//! Splits the value of an option at commas.

/// Splits a text at each comma outside of brackets and quotes, and trims the parts. So `[1, 2]`, `max(1, 2)` and
/// `"a,b"` are one value each.
pub fn split(text: &str) -> Vec<&str> {
    let mut values = Vec::new();
    let (mut depth, mut quoted, mut escaped, mut from) = (0u32, false, false, 0);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ if quoted => {}
            '(' | '[' | '{' => depth += 1,
            // An unmatched closing bracket is reported by the parser of the value.
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                values.push(text[from..at].trim());
                from = at + 1;
            }
            _ => {}
        }
    }
    values.push(text[from..].trim());
    values
}

/// Removes the quotes around a value that is not an expression of the language.
pub fn unquoted(value: &str) -> &str {
    let inner = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    inner.filter(|inner| !inner.contains('"')).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn commas_in_brackets_and_quotes_stay() {
        assert_eq!(split("1,2, 4"), ["1", "2", "4"]);
        assert_eq!(split("max(1, 2),[3, [4, 5]],{a, b}"), ["max(1, 2)", "[3, [4, 5]]", "{a, b}"]);
        assert_eq!(split(r#""a,b","c\",d",e"#), [r#""a,b""#, r#""c\",d""#, "e"]);
        assert_eq!(split("64MiB"), ["64MiB"]);
        assert_eq!(split("1,,2,"), ["1", "", "2", ""]);
        assert_eq!(split(""), [""]);
        assert_eq!(split("a),b,(c,d"), ["a)", "b", "(c,d"]);
    }

    #[test]
    fn quotes_around_a_whole_value_are_taken_away() {
        assert_eq!(unquoted(r#""0,1""#), "0,1");
        assert_eq!(unquoted(r#""0","1""#), r#""0","1""#);
        assert_eq!(unquoted("\""), "\"");
        assert_eq!(unquoted("Ring"), "Ring");
    }

    /// A value whose brackets and quotes are balanced.
    fn value() -> impl Strategy<Value = String> {
        let word = prop_oneof!["[a-z0-9]{1,4}", Just("64MiB".to_owned()), Just(r#""x,y""#.to_owned())];
        word.prop_recursive(3, 16, 4, |inner| {
            let list = prop::collection::vec(inner, 0..4);
            (list, 0..3usize).prop_map(|(items, kind)| {
                let (open, close) = [("[", "]"), ("f(", ")"), ("{", "}")][kind];
                format!("{open}{}{close}", items.join(", "))
            })
        })
    }

    proptest! {
        #[test]
        fn joined_values_are_split_again(values in prop::collection::vec(value(), 1..6), blank in " ?") {
            let joined = values.join(&format!("{blank},{blank}"));
            prop_assert_eq!(split(&joined), values);
        }

        #[test]
        fn splitting_loses_no_text_and_does_not_panic(text in ".{0,40}") {
            let joined: String = split(&text).concat();
            let kept = |c: &char| !c.is_whitespace() && *c != ',';
            prop_assert_eq!(joined.chars().filter(kept).collect::<String>(), text.chars().filter(kept).collect::<String>());
        }
    }
}
