//! Reads JSON from untrusted sources, such as records, files of cases and plan documents, and writes documents.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::error::Category;
use serde_json::{Error, Value};

use super::visible;

/// Parses a value from JSON. Line feeds inside its texts are escaped, as [`visible::one_line`] does, so that no text
/// can forge further lines of a report.
pub fn read<T: DeserializeOwned>(json: &[u8]) -> Result<T, Error> {
    let value = serde_json::from_slice(json)?;
    if !has_line_feed(json) {
        return Ok(value);
    }
    let mut value: Value = serde_json::from_slice(json)?;
    flatten(&mut value);
    // The text is read again so that only one form of each reader is compiled.
    serde_json::from_slice(&serde_json::to_vec(&value)?)
}

/// The schema that a JSON text names; `None` if it is no JSON, or names none.
pub fn schema(text: &str) -> Option<String> {
    serde_json::from_str(text).ok().and_then(|head: Head| head.schema)
}

/// Parses a document that names its schema. The error describes what is wrong with the text; `kind` is what the document
/// describes, such as `run`.
pub fn versioned<T: DeserializeOwned>(text: &str, schema: &str, kind: &str) -> Result<T, String> {
    if text.trim().is_empty() {
        return Err("it is empty".to_owned());
    }
    let head: Head = read(text.as_bytes()).map_err(|error| format!("it is no JSON of a {kind}: {}", fault(&error)))?;
    match head.schema {
        Some(found) if found == schema => {
            read(text.as_bytes()).map_err(|error| format!("it is damaged: {}", fault(&error)))
        }
        Some(other) => Err(format!("it has the schema `{other}`, and this version reads `{schema}`")),
        None => Err("it has no `schema`: it was not written by this program".to_owned()),
    }
}

/// The part of a document that names its schema.
#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct Head {
    schema: Option<String>,
}

/// Says where a text is not JSON of the expected form, and why: `line 1, column 9: trailing comma`.
pub fn fault(error: &Error) -> String {
    let (line, column) = (error.line(), error.column());
    match error.classify() {
        Category::Eof => format!("its end is missing after line {line}"),
        Category::Syntax | Category::Data | Category::Io => format!("line {line}, column {column}: {}", why(error)),
    }
}

/// Says why a text is not JSON of the expected form, without the place: `trailing comma`.
pub fn why(error: &Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    text.strip_suffix(&place).unwrap_or(&text).to_owned()
}

/// A document as indented JSON with a final newline.
pub fn document(value: &impl Serialize) -> String {
    serde_json::to_string_pretty(value).expect("a document holds nothing that JSON cannot") + "\n"
}

/// A value as a line of JSON.
pub fn line(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("a value holds nothing that JSON cannot") + "\n"
}

/// True if a text of the JSON may contain a line feed, which is always escaped there.
fn has_line_feed(json: &[u8]) -> bool {
    let is_escape = |at: usize| {
        let behind = &json[at + 1..];
        behind.first() == Some(&b'n') || behind.get(..5).is_some_and(|code| code.eq_ignore_ascii_case(b"u000a"))
    };
    (0..json.len()).any(|at| json[at] == b'\\' && is_escape(at))
}

fn flatten(value: &mut Value) {
    match value {
        Value::String(text) => *text = visible::one_line(text).into_owned(),
        Value::Array(all) => all.iter_mut().for_each(flatten),
        Value::Object(all) => {
            let fields = std::mem::take(all).into_iter();
            all.extend(fields.map(|(key, mut value)| {
                flatten(&mut value);
                (visible::one_line(&key).into_owned(), value)
            }));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn faults_name_the_line() {
        let fault = |text: &str| fault(&read::<Vec<u32>>(text.as_bytes()).unwrap_err());
        assert_eq!(fault("[1,\n2"), "its end is missing after line 2");
        assert_eq!(fault("[1,\n2,]"), "line 2, column 3: trailing comma");
        assert_eq!(fault("{}"), "line 1, column 0: invalid type: map, expected a sequence");
    }

    proptest! {
        #[test]
        fn texts_are_single_lines(key in "[a\n\\\\]{0,4}", text in "[a\n\\\\u0]{0,8}") {
            let json = serde_json::json!({ key.clone(): [text.clone()] }).to_string();
            let value: Value = read(json.as_bytes()).unwrap();
            let expected = serde_json::json!({ visible::one_line(&key): [visible::one_line(&text)] });
            prop_assert_eq!(&value, &expected);
            prop_assert!(!value[&*visible::one_line(&key)][0].as_str().unwrap().contains('\n'));
            // The notation with digits means the same.
            let digits = json.replace("\\\\", "\\u005c").replace("\\n", "\\u000A");
            prop_assert_eq!(read::<Value>(digits.as_bytes()).unwrap(), expected);
        }
    }
}
