//! Command lines as a POSIX shell reads and writes them.

/// The words of a command line, as a shell would separate them: at white space; quotes of both kinds hold together what
/// is between them, a backslash takes the next character as it is, and `\n` between `$'` and `'` is a line feed. `None`
/// where a quote is not closed.
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

/// A command line of these words, quoted where a shell would read something else. It has no line feed.
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
    // Nothing is special between single quotes; a single quote itself stands outside of them.
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
