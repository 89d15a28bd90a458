//! Errors in RON texts, with the line, the field and the correction.

use std::ops::Range;

use ron::Error;
use ron::error::{Position, SpannedError};

use crate::base::{SourceMap, SrcSpan, suggest};

use super::error::ConfigError;

/// The error of a RON text. `help` is used if no correction is known.
pub(super) fn bad_ron(file: &str, text: &str, error: &SpannedError, help: &str) -> ConfigError {
    let near = match &error.code {
        Error::NoSuchStructField { expected, found, .. } | Error::NoSuchEnumVariant { expected, found, .. } => {
            suggest::nearest(found, expected.iter().copied())
        }
        _ => None,
    };
    let token = token(text, offset(text, error.span.start));
    let field = field(&text[..token.start]);
    let correction = near.map(|near| format!("did you mean `{near}`?"));
    let correction = correction.or_else(|| corrected(&error.code, field, &text[token.clone()]));
    let mut sources = SourceMap::new();
    // Files are far smaller than a map. Without a place, the message is still complete.
    sources.add(file, text).unwrap_or_default();
    ConfigError::BadRon {
        message: match &error.code {
            Error::NoSuchStructField { found, .. } if near.is_some() => format!("there is no field `{found}`"),
            code => explain(code),
        },
        sources,
        at: SrcSpan::new(token.start, token.end),
        label: field.map_or_else(|| "here".to_owned(), |field| format!("the value of `{field}`")),
        help: correction.unwrap_or_else(|| help.to_owned()),
    }
}

/// Byte offset of a position; the end of the text for one behind it.
fn offset(text: &str, position: Position) -> usize {
    let line: usize = text.split_inclusive('\n').take(position.line - 1).map(str::len).sum();
    text[line..].char_indices().nth(position.col - 1).map_or(text.len(), |(at, _)| line + at)
}

/// The word, number, quoted text or sign at or around an offset. RON places an error in a quoted text behind its quote, and
/// that in a value before the space that precedes it.
fn token(text: &str, at: usize) -> Range<usize> {
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

/// The field whose value follows a text, with its quotes; `None` if the text does not end with a name and `:`.
fn field(before: &str) -> Option<&str> {
    let name = before.trim_end().strip_suffix(':')?.trim_end();
    let start = match name.strip_suffix('"') {
        Some(quoted) => quoted.rfind('"')?,
        None => name.rfind(|c: char| !(c.is_alphanumeric() || c == '_')).map_or(0, |at| at + 1),
    };
    Some(&name[start..]).filter(|name| !name.is_empty())
}

/// The correction of a value of the wrong type: with quotes added or removed.
fn corrected(error: &Error, field: Option<&str>, token: &str) -> Option<String> {
    let field = field?;
    let is_plain = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || "_.+-".contains(c));
    let inner = token.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    match (error, inner) {
        (Error::ExpectedString, None) if is_plain(token) => Some(format!("add quotes: `{field}: \"{token}\"`")),
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
        TrailingCharacters => "one value is expected, and there is more".to_owned(),
        error => error.to_string(),
    }
}
