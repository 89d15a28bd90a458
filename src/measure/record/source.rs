//! The files of a run in its record, so that the record alone can run again.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::base::{hex, visible};
use crate::config::{Bundle, BundledFile, unhex};
use crate::syntax::LANGUAGE;

/// The files of a run, with paths relative to a common folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceFiles {
    /// Name of the part that repeats the run: a scenario.
    pub runs: String,
    /// Contents by path, with `/` between folders.
    pub parts: IndexMap<String, FileContents>,
}

/// The contents of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum FileContents {
    /// A text with `\\n` for a line feed, `\\\\` for a backslash and `\\u{…}` for hidden characters: readers of records
    /// escape these characters, so that no text of a record begins a line of a report.
    Text(String),
    /// Bytes that are no text, in hexadecimal digits.
    Bytes { hex: String },
}

/// Escapes a text so that it fits on one line.
fn escaped(text: &str) -> String {
    let mut line = String::with_capacity(text.len() + text.len() / 16);
    for letter in text.chars() {
        match letter {
            '\n' => line += "\\n",
            '\\' => line += "\\\\",
            letter if visible::is_hidden(letter) => line += &format!("\\u{{{:x}}}", u32::from(letter)),
            letter => line.push(letter),
        }
    }
    line
}

/// The text that [`escaped`] returned as this line; `None` if it cannot have.
fn unescaped(line: &str) -> Option<String> {
    let mut text = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((before, behind)) = rest.split_once('\\') {
        text += before;
        let letter = behind.chars().next()?;
        rest = &behind[letter.len_utf8()..];
        match letter {
            'n' => text.push('\n'),
            '\\' => text.push('\\'),
            'u' => {
                let (digits, behind) = rest.strip_prefix('{')?.split_once('}')?;
                text.push(char::from_u32(u32::from_str_radix(digits, 16).ok()?)?);
                rest = behind;
            }
            _ => return None,
        }
    }
    Some(text + rest)
}

impl SourceFiles {
    /// The files of a run. `runs` is the name of one of them.
    pub fn new<'a>(runs: &str, parts: impl IntoIterator<Item = (String, &'a [u8])>) -> SourceFiles {
        let contents = |bytes: &[u8]| match std::str::from_utf8(bytes) {
            Ok(text) => FileContents::Text(escaped(text)),
            Err(_) => FileContents::Bytes { hex: hex(bytes) },
        };
        let parts = parts.into_iter().map(|(name, bytes)| (name, contents(bytes))).collect();
        SourceFiles { runs: runs.to_owned(), parts }
    }

    /// The name and the text of each file that is a text.
    pub fn texts(&self) -> impl Iterator<Item = (&str, String)> {
        self.parts.iter().filter_map(|(name, contents)| match contents {
            FileContents::Text(text) => Some((name.as_str(), unescaped(text)?)),
            FileContents::Bytes { .. } => None,
        })
    }

    /// The files as a bundle. `aorta` is the version that wrote the record.
    ///
    /// # Errors
    ///
    /// The name of a part or its contents are invalid.
    pub fn bundle(&self, aorta: &str) -> Result<Bundle, String> {
        let bytes = |name: &String, contents: &FileContents| {
            let bytes = match contents {
                FileContents::Text(text) => unescaped(text).map(String::into_bytes),
                FileContents::Bytes { hex } => unhex(hex),
            };
            bytes.ok_or_else(|| format!("the contents of `{name}` have other characters than a record writes"))
        };
        let parts = self.parts.iter();
        let parts = parts.map(|(name, contents)| Ok((name.clone(), BundledFile::new(bytes(name, contents)?))));
        let bundle = Bundle {
            aorta: aorta.to_owned(),
            language: LANGUAGE,
            runs: self.runs.clone(),
            parts: parts.collect::<Result<_, String>>()?,
            ..Bundle::default()
        };
        bundle.check()?;
        Ok(bundle)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn parts_stay_as_they_are(text in "[a-z\\\\\n\r\t\u{1b}\u{202e}{}u0-9é]{0,40}", bytes in any::<Vec<u8>>()) {
            let parts = [("a.ron".to_owned(), text.as_bytes()), ("b/c.cubin".to_owned(), bytes.as_slice())];
            let source = SourceFiles::new("a.ron", parts);
            let json = serde_json::to_string_pretty(&source).unwrap();
            let read: SourceFiles = crate::base::json::read(json.as_bytes()).unwrap();
            prop_assert_eq!(&read, &source);
            let bundle = read.bundle("0.1.0").unwrap();
            prop_assert_eq!(&bundle.parts["a.ron"].bytes, text.as_bytes());
            prop_assert_eq!(&bundle.parts["b/c.cubin"].bytes, &bytes);
        }

        #[test]
        fn any_line_is_read_or_refused(line in "[\\\\nu{}0-9a-f]{0,12}") {
            let text = unescaped(&line);
            prop_assert!(text.is_none_or(|text| unescaped(&escaped(&text)) == Some(text)));
        }
    }
}
