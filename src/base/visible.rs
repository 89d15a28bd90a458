//! Escapes characters that a terminal, a log or an editor would interpret instead of showing.
//!
//! Text from files, records and drivers may contain them. Every text that leaves the program passes through [`visible`]
//! or [`without_workflow_commands`].

use std::borrow::Cow;

use serde::{Deserialize, Deserializer};

/// True if a terminal, a log or an editor may interpret the character or hide it: control characters other than line
/// feed and tab, direction marks, and zero-width characters.
pub fn is_hidden(letter: char) -> bool {
    match letter {
        '\n' | '\t' => false,
        '\u{ad}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{180e}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}' => true,
        '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' => true,
        '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}' => true,
        letter => letter.is_control(),
    }
}

/// Writes each hidden character as `\u001b`, in JSON's notation, so that JSON keeps its meaning. The carriage return of
/// `\r\n` stays.
pub fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\r' if letters.peek() == Some(&'\n') => shown.push(letter),
            letter if is_hidden(letter) => escape(letter, &mut shown),
            letter => shown.push(letter),
        }
    }
    Cow::Owned(shown)
}

/// Escapes what [`visible`] escapes, and commands of GitHub's workflows: `::` at the start of a line and `##[`, by
/// their first character.
pub fn without_workflow_commands(text: &str) -> Cow<'_, str> {
    let shown = visible(text);
    if !shown.contains("::") && !shown.contains("##[") {
        return shown;
    }
    let mut out = String::with_capacity(shown.len() + 16);
    for line in shown.split_inclusive('\n') {
        let start = line.len() - line.trim_start().len();
        out.push_str(&line[..start]);
        let mut rest = &line[start..];
        if let Some(behind) = rest.strip_prefix("::") {
            escape(':', &mut out);
            out.push(':');
            rest = behind;
        }
        out.push_str(&rest.replace("##[", "\\u0023#["));
    }
    Cow::Owned(out)
}

/// Escapes what [`visible`] escapes, and line feeds, so that the text stays on one line.
pub fn one_line(text: &str) -> Cow<'_, str> {
    if !text.contains(['\n', '\r']) {
        return visible(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        match letter == '\n' || is_hidden(letter) {
            true => escape(letter, &mut shown),
            false => shown.push(letter),
        }
    }
    Cow::Owned(shown)
}

/// Deserializes a text with [`one_line`], for fields that messages and reports print.
pub fn read_line<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    Ok(one_line(&String::deserialize(from)?).into_owned())
}

/// Appends a character as a JSON escape; one beyond 16 bits as a surrogate pair.
fn escape(letter: char, out: &mut String) {
    for unit in letter.encode_utf16(&mut [0; 2]) {
        out.push_str(&format!("\\u{unit:04x}"));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn hidden_characters_are_written_out() {
        assert_eq!(visible("a\u{1b}]0;x\u{7}b\r\nc\rd"), "a\\u001b]0;x\\u0007b\r\nc\\u000dd");
        assert_eq!(visible("\u{202e}\u{0}\u{9b}\u{e0041}"), "\\u202e\\u0000\\u009b\\udb40\\udc41");
        assert!(matches!(visible("plain, µ ± é 漢字\n\tx"), Cow::Borrowed(_)));
    }

    #[test]
    fn a_line_stays_one() {
        assert_eq!(one_line("a\r\nb\u{1b}\n"), "a\\u000d\\u000ab\\u001b\\u000a");
        assert!(matches!(one_line("a\tb"), Cow::Borrowed(_)));
    }

    #[test]
    fn commands_of_workflows_are_text() {
        assert_eq!(
            without_workflow_commands("::error::x\n  ::stop-commands::y\na ::b\n"),
            "\\u003a:error::x\n  \\u003a:stop-commands::y\na ::b\n"
        );
        assert_eq!(without_workflow_commands("a ##[error]b"), "a \\u0023#[error]b");
        assert_eq!(without_workflow_commands("aorta::model::x"), "aorta::model::x");
    }

    proptest! {
        /// Escaping preserves the meaning of JSON, for any texts in it.
        #[test]
        fn json_keeps_its_meaning(text in any::<String>(), other in "[\u{0}-\u{ff}\u{200b}-\u{206f}:#\\[]*") {
            let value = serde_json::json!({ text.clone(): [other.clone(), text] });
            for json in [serde_json::to_string(&value).unwrap(), serde_json::to_string_pretty(&value).unwrap()] {
                let shown = without_workflow_commands(&json);
                prop_assert!(!shown.contains(is_hidden));
                prop_assert_eq!(&serde_json::from_str::<serde_json::Value>(&shown).unwrap(), &value);
            }
        }
    }
}
