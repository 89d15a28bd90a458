//! Parsing and quoting of command lines, as in a POSIX shell.

/// Splits a command line into words like a shell: at white space, with both kinds of quotes, backslash escapes, and
/// `\n` as a line feed in `$'…'`. `None` if a quote is not closed.
pub fn words(text: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (None, '$') if letters.as_str().starts_with('\'') => {
                letters.next();
                quote = Some('$');
                word.get_or_insert_default();
            }
            (Some('$'), '\'') => quote = None,
            (Some('$'), '\\') => {
                let escaped = letters.next().map(|letter| if letter == 'n' { '\n' } else { letter });
                word.get_or_insert_default().extend(escaped);
            }
            (Some('$'), _) => word.get_or_insert_default().push(letter),
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (Some(open), _) if open == letter => quote = None,
            (None | Some('"'), '\\') => word.get_or_insert_default().extend(letters.next()),
            (None, _) if letter.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

/// Joins words to a command line, quoted where a shell needs it. The result has no line feed.
pub fn command<S: AsRef<str>>(words: impl IntoIterator<Item = S>) -> String {
    let quoted: Vec<String> = words.into_iter().map(|word| quoted(word.as_ref())).collect();
    quoted.join(" ")
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./,:+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    if word.contains('\n') {
        return format!("$'{}'", word.replace('\\', r"\\").replace('\'', r"\'").replace('\n', r"\n"));
    }
    // Single quotes protect everything but the single quote itself.
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn words_are_a_shells() {
        let read = |text: &str| words(text).map(|words| words.join("|"));
        assert_eq!(read("  --streams 8\t--set a=b "), Some("--streams|8|--set|a=b".to_owned()));
        assert_eq!(read(r#"--set 'x = 1' "a b"c \' """#), Some("--set|x = 1|a bc|'|".to_owned()));
        assert_eq!(read(""), Some(String::new()));
        assert_eq!(read("'open"), None);
    }

    #[test]
    fn only_what_needs_quotes_has_them() {
        assert_eq!(
            command(["--set", "n=4", "--set", "n=[1, 2]", "it's", ""]),
            r"--set n=4 --set 'n=[1, 2]' 'it'\''s' ''"
        );
        assert_eq!(command(["it's\n\\n"]), r"$'it\'s\n\\n'");
    }

    proptest! {
        #[test]
        fn a_command_has_its_words(list in prop::collection::vec("(\\PC|[\n'\\\\$])*", 0..4)) {
            let command = command(&list);
            prop_assert!(!command.contains('\n'));
            prop_assert_eq!(words(&command), Some(list));
        }
    }
}
