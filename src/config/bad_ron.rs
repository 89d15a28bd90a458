//! Errors in RON texts, with the line, the field and the correction.

use std::ops::Range;

use ron::Error;
use ron::error::Position;

use crate::base::suggest;

use super::error::ConfigError;
use super::scenario::{FIELDS, Field};

/// The error of a RON text, and the label of its place. `field` is the field whose value is read; `shown` is the text at
/// the place, and true if it is a value of which only the first part could be read. `help` is used if no correction is
/// known.
pub(super) fn bad_ron(
    error: &Error,
    field: Option<&str>,
    (shown, is_cut): (&str, bool),
    help: &str,
) -> (ConfigError, String) {
    let near = match error {
        Error::NoSuchStructField { expected, found, .. } => {
            option(found, expected).or_else(|| suggest::did_you_mean(found, expected.to_vec()))
        }
        Error::NoSuchEnumVariant { expected, found, .. } => {
            suggest::nearest(found, expected.iter().copied()).map(|near| format!("did you mean `{near}`?"))
        }
        Error::SuggestRawIdentifier(name) if name.contains('-') => {
            Some(format!("did you mean `{}`?", name.replace('-', "_")))
        }
        _ => None,
    };
    let is_name = matches!(error, Error::NoSuchStructField { .. } | Error::SuggestRawIdentifier(_));
    let message = match error {
        Error::NoSuchStructField { found, .. } if near.is_some() => format!("there is no field `{found}`"),
        _ if is_cut && shown.parse::<f64>().is_ok() => "a whole number is expected".to_owned(),
        _ if is_cut => format!("`{shown}` is not one value: an expression, or a number with a unit, stands in quotes"),
        code => explain(code),
    };
    let label = match field {
        Some(field) if !is_name => format!("the value of `{field}`"),
        _ => "here".to_owned(),
    };
    let correction = match is_cut {
        true if shown.parse::<f64>().is_ok() => None,
        true => field.map(|field| format!("add quotes: `{field}: \"{shown}\"`")),
        false => near.or_else(|| corrected(error, field, shown)),
    };
    let help = correction.unwrap_or_else(|| help.to_owned());
    (ConfigError::BadRon { message, help }, label)
}

/// The field that says what an option of the command line says, for a user who takes the option's name for that of a field.
fn option(found: &str, expected: &[&str]) -> Option<String> {
    let says = |field: &&Field| field.option.trim_start_matches("--").split('=').next() == Some(found);
    let field = FIELDS.iter().filter(|field| expected.contains(&field.name)).find(says)?;
    Some(format!("write `{}`, which says what `--{found}` says", field.name))
}

/// Byte offset of a position; the end of the text for one behind it.
pub(super) fn offset(text: &str, position: Position) -> usize {
    let line: usize = text.split_inclusive('\n').take(position.line - 1).map(str::len).sum();
    text[line..].char_indices().nth(position.col - 1).map_or(text.len(), |(at, _)| line + at)
}

/// The word, number, quoted text or sign at or around an offset. RON places an error in a quoted text behind its quote, and
/// that in a value before the space that precedes it.
pub(super) fn token(text: &str, at: usize) -> Range<usize> {
    let line = text[..at].rfind('\n').map_or(0, |end| end + 1);
    let is_quoted = text[line..at].matches('"').count() % 2 == 1;
    let start = match text[..at].strip_suffix('"') {
        Some(before) if is_quoted => before.len(),
        _ => at + text[at..].find(|c: char| !c.is_whitespace()).unwrap_or(0),
    };
    let rest = &text[start..];
    let is_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '+' | '-');
    let length = match rest.chars().next() {
        Some('"') => {
            rest[1..].find(['"', '\n']).map_or(1, |end| end + if rest[1 + end..].starts_with('"') { 2 } else { 1 })
        }
        Some(first) if is_word(first) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
        first => first.map_or(0, char::len_utf8),
    };
    start..start + length
}

/// The correction of a value of the wrong type: with quotes added or removed.
fn corrected(error: &Error, field: Option<&str>, token: &str) -> Option<String> {
    let field = field?;
    let is_plain = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || "_.+-".contains(c));
    let inner = token.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let about = FIELDS.iter().find(|known| known.name == field).map_or("", |known| known.help);
    let example = about.split_once("such as `").and_then(|(_, rest)| rest.split_once('`'));
    match (error, inner) {
        (Error::ExpectedString, None) if is_plain(token) => Some(match example {
            // A number in quotes would lack its unit.
            Some((example, _)) if token.parse::<f64>().is_ok() => format!("write it as `{field}: {example}`"),
            _ => format!("add quotes: `{field}: \"{token}\"`"),
        }),
        (
            Error::ExpectedIdentifier | Error::ExpectedUnit | Error::ExpectedBoolean | Error::ExpectedInteger,
            Some(inner),
        ) if is_plain(inner) => Some(format!("leave out the quotes: `{field}: {inner}`")),
        _ => None,
    }
}

/// Describes a RON error without names from this program's source code.
pub(super) fn explain(error: &Error) -> String {
    use Error::*;
    match error {
        NoSuchStructField { expected, found, .. } => {
            format!("there is no field `{found}`, expected one of {}", suggest::listed(expected))
        }
        MissingStructField { field, .. } => format!("the field `{field}` is missing"),
        DuplicateStructField { field, .. } => format!("the field `{field}` is there twice"),
        NoSuchEnumVariant { expected, found, .. } => format!("`{found}` is none of {}", suggest::listed(expected)),
        ExpectedStructLike
        | ExpectedNamedStructLike(_)
        | ExpectedStructName(_)
        | ExpectedDifferentStructName { .. } => "Expected opening `(`".to_owned(),
        InvalidValueForType { expected, found } if expected.contains("struct ") => {
            format!("Expected `( … )` but found {found} instead")
        }
        ExpectedDifferentLength { expected, found } if expected.contains("struct ") => {
            format!("Expected `( … )` with another number of values than {found}")
        }
        Eof => "the text ends too early: a bracket is not closed".to_owned(),
        ExpectedComma => "a `,` or the closing bracket is expected".to_owned(),
        ExpectedArrayEnd => "a `,` or the `]` of this list is expected".to_owned(),
        ExpectedMapEnd => "a `,` or the `}` of this map is expected".to_owned(),
        ExpectedStructLikeEnd => "a `,` or the `)` of these fields is expected".to_owned(),
        ExpectedMapColon => "a `:` is expected between a name and its value".to_owned(),
        ExpectedString => "a text in quotes is expected, such as \"4\" or \"60s\"".to_owned(),
        ExpectedInteger | InvalidIntegerDigit { .. } | IntegerOutOfBounds => "a whole number is expected".to_owned(),
        ExpectedFloat => "a number is expected".to_owned(),
        ExpectedBoolean => "`true` or `false` is expected".to_owned(),
        ExpectedUnit | ExpectedIdentifier => "a word without quotes is expected".to_owned(),
        SuggestRawIdentifier(name) => format!("there is no field `{name}`: names of fields have letters and `_`"),
        TrailingCharacters => "one value is expected, and there is more".to_owned(),
        error => error.to_string(),
    }
}
