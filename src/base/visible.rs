//! Characters that a terminal, a log or an editor would obey instead of showing them.
//!
//! Text from files, records and drivers may hold such characters. Every text that leaves the program passes through
//! [`visible`] or [`inert`].

use std::borrow::Cow;

use serde::{Deserialize, Deserializer};

/// Whether a terminal, a log or an editor may obey the character, or show nothing: control characters other than the
/// line feed and the tab, marks that change the direction of text, and characters without width.
pub fn is_hidden(letter: char) -> bool {
    match letter {
        '\n' | '\t' => false,
        '\u{ad}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{180e}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}' => true,
        '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' => true,
        '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}' => true,
        letter => letter.is_control(),
    }
}

/// The text with each hidden character written as `\u001b`: JSON's own notation, so that JSON keeps its meaning. The
/// carriage return of a line that ends in `\r\n` stays.
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

/// [`visible`] text in which GitHub's workflows find no command: neither `::` at the beginning of a line nor `##[`. The
/// first character of such a mark is escaped in the same notation.
pub fn inert(text: &str) -> Cow<'_, str> {
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

/// [`visible`] text in which each line feed is written out too: it stays on one line wherever it is printed.
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

/// Reads a text of a file as [`one_line`]: for fields that messages and reports print.
pub fn read_line<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    Ok(one_line(&String::deserialize(from)?).into_owned())
}

/// Appends a character as JSON escapes it; one beyond 16 bits as two halves.
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
            inert("::error::x\n  ::stop-commands::y\na ::b\n"),
            "\\u003a:error::x\n  \\u003a:stop-commands::y\na ::b\n"
        );
        assert_eq!(inert("a ##[error]b"), "a \\u0023#[error]b");
        assert_eq!(inert("aorta::model::x"), "aorta::model::x");
    }

    proptest! {
        /// JSON means the same, whatever its texts hold.
        #[test]
        fn json_keeps_its_meaning(text in any::<String>(), other in "[\u{0}-\u{ff}\u{200b}-\u{206f}:#\\[]*") {
            let value = serde_json::json!({ text.clone(): [other.clone(), text] });
            for json in [serde_json::to_string(&value).unwrap(), serde_json::to_string_pretty(&value).unwrap()] {
                let shown = inert(&json);
                prop_assert!(!shown.contains(is_hidden));
                prop_assert_eq!(&serde_json::from_str::<serde_json::Value>(&shown).unwrap(), &value);
            }
        }
    }
}
