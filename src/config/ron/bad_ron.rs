//! Errors in RON texts, with the line, the field and the correction.

use std::ops::Range;

use ron::Error;
use ron::error::Position;

use crate::base::suggest;
use crate::config::{ConfigError, FIELDS, Field, OPTIONS_WITHOUT_FIELD, SETTINGS};

/// Returns the message for an error in a RON text, and the label for its location. `field` is the field whose value is
/// read; `None` outside of fields. `shown` is the text at the location; `is_cut` is true if it is a value of which only
/// the first part could be read. `help` is used if no correction is known.
pub(super) fn bad_ron(
    error: &Error,
    field: Option<&str>,
    (shown, is_cut): (&str, bool),
    help: &str,
) -> (ConfigError, String) {
    let near = match error {
        Error::NoSuchStructField { expected, found, .. } => Some(unknown_field(found, expected, help)),
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
    let is_empty = shown.is_empty() && matches!(error, Error::ExpectedNamedStructLike(_) | Error::ExpectedStructLike);
    let help = match correction {
        Some(correction) => correction,
        None if is_empty => format!("write `()` where no field is meant; {help}"),
        None => help.to_owned(),
    };
    (ConfigError::BadRon { message, help }, label)
}

/// Help for a name that is no field: what to write for an option or a setting, or the nearest names. `help` says where all
/// fields are explained.
fn unknown_field(found: &str, expected: &[&str], help: &str) -> String {
    let option = found.replace('_', "-");
    let says = |field: &&Field| field.option.trim_start_matches("--").split('=').next() == Some(option.as_str());
    let is_scenario = FIELDS.iter().all(|field| expected.contains(&field.name));
    if let Some(field) = FIELDS.iter().filter(|field| expected.contains(&field.name)).find(says) {
        return format!("write `{}` instead of `{found}`", field.name);
    }
    if let Some((_, why)) = OPTIONS_WITHOUT_FIELD.iter().find(|(known, _)| is_scenario && *known == option) {
        return format!("`--{option}` stays on the command line: {why}");
    }
    if is_scenario && SETTINGS.iter().any(|setting| setting.name == found) {
        return format!("write `settings: {{{found}: …}}`: it is a setting");
    }
    suggest::did_you_mean(found, expected.to_vec()).unwrap_or_else(|| {
        let near: Vec<&str> = suggest::similar(found, expected.to_vec()).into_iter().take(SIMILAR).collect();
        format!("{help}; the most similar are {}", suggest::listed(&near))
    })
}

/// Number of fields that the help for an unknown one lists.
const SIMILAR: usize = 3;

/// Byte offset of a position; the end of the text for a position after it.
pub(super) fn offset(text: &str, position: Position) -> usize {
    let line: usize = text.split_inclusive('\n').take(position.line - 1).map(str::len).sum();
    text[line..].char_indices().nth(position.col - 1).map_or(text.len(), |(at, _)| line + at)
}

/// The word, number, quoted text or sign at or around an offset. RON reports an error in a quoted text at the offset
/// after the quote, and an error in a value before the preceding space.
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

/// Name that serde gives to a range.
const SPAN: &str = "Span";

/// Fields of a scenario whose lists are axes.
const WITH_LISTS: [&str; 8] = ["preset", "streams", "ranks", "launch", "sync", "cache", "gate", "data"];

/// Returns the correction of a value that has the wrong brackets for its type, or none. `None` if the value is not
/// whole.
fn rebracketed(error: &Error, field: &str, value: &str) -> Option<String> {
    let open = value.chars().next()?;
    let is_group = "([{".contains(open);
    let inner = || value.get(1..value.len() - 1).filter(|_| value.ends_with([')', ']', '}'])).map(str::trim);
    let has_names = value.contains(':');
    let example = || {
        let help = FIELDS.iter().find(|known| known.name == field)?.help;
        let example = help.split('`').skip(1).step_by(2).find(|text| text.starts_with('{'))?;
        Some(format!("write it as `{field}: {example}`"))
    };
    match error {
        Error::ExpectedArray if !is_group => Some(format!("write `{field}: [{value}]`")),
        Error::ExpectedArray if !has_names => Some(format!("write `{field}: [{}]`", inner()?)),
        Error::ExpectedMap if is_group && has_names => Some(format!("write `{field}: {{{}}}`", inner()?)),
        Error::ExpectedMap => {
            let pair = value.trim_matches('"').split_once('=').filter(|_| !is_group);
            pair.map(|(name, value)| format!("write `{field}: {{{name}: {value}}}`")).or_else(example)
        }
        Error::ExpectedNamedStructLike(_) | Error::ExpectedStructLike if is_group && has_names => {
            Some(format!("write `{field}: ({})`", inner()?))
        }
        Error::ExpectedNamedStructLike(SPAN) if !is_group => {
            let quoted = value.starts_with('"');
            let bound = |text: &str| if quoted { format!("\"{text}\"") } else { text.to_owned() };
            let range = value.trim_matches('"').split_once("..").map(|(from, to)| (from, to.trim_start_matches('=')));
            Some(match range {
                Some(("", "")) => return None,
                Some(("", to)) => format!("write `{field}: (to: {})`", bound(to)),
                Some((from, "")) => format!("write `{field}: (from: {})`", bound(from)),
                Some((from, to)) => format!("write `{field}: (from: {}, to: {})`", bound(from), bound(to)),
                None => format!("write `{field}: (from: {value})` or `{field}: (to: {value})`"),
            })
        }
        Error::ExpectedInteger if open == '[' && WITH_LISTS.contains(&field) => Some(format!(
            "several values are an axis of a sweep: `axes: {{{field}: {value}}}` of a scenario; a suite has a case for each"
        )),
        Error::ExpectedBoolean => match value {
            "yes" | "on" | "1" | "True" => Some(format!("write `{field}: true`")),
            "no" | "off" | "0" | "False" => Some(format!("write `{field}: false`")),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the correction of a value of the wrong type, with other brackets, or with quotes added or removed; `None` if there
/// is none.
fn corrected(error: &Error, field: Option<&str>, token: &str) -> Option<String> {
    let field = field?;
    if let Some(correction) = rebracketed(error, field, token) {
        return Some(correction);
    }
    let is_plain = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || "_.+-".contains(c));
    let inner = token.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let about = FIELDS.iter().find(|known| known.name == field).map_or("", |known| known.help);
    let example = about.split_once("such as `").and_then(|(_, rest)| rest.split_once('`'));
    match (error, inner) {
        (Error::ExpectedString, None) if is_plain(token) => Some(match example {
            // A number in quotes would still lack its unit.
            Some((example, _)) if token.parse::<f64>().is_ok() => format!("write it as `{field}: {example}`"),
            _ => format!("add quotes: `{field}: \"{token}\"`"),
        }),
        (
            Error::ExpectedIdentifier | Error::ExpectedUnit | Error::ExpectedBoolean | Error::ExpectedInteger,
            Some(inner),
        ) if is_plain(inner) && (*error != Error::ExpectedInteger || inner.parse::<i64>().is_ok()) => {
            Some(format!("leave out the quotes: `{field}: {inner}`"))
        }
        _ => None,
    }
}

/// Describes a RON error without names from this program's source code.
pub(in crate::config) fn explain(error: &Error) -> String {
    use Error::*;
    match error {
        NoSuchStructField { found, .. } => format!("there is no field `{found}`"),
        MissingStructField { field, .. } => format!("the field `{field}` is missing"),
        DuplicateStructField { field, .. } => format!("the field `{field}` is there twice"),
        NoSuchEnumVariant { expected, found, .. } => format!("`{found}` is none of {}", suggest::listed(expected)),
        ExpectedNamedStructLike(SPAN) => "a range is expected: `from`, `to` or both, between `(` and `)`".to_owned(),
        ExpectedStructLike
        | ExpectedNamedStructLike(_)
        | ExpectedStructName(_)
        | ExpectedDifferentStructName { .. } => "fields between `(` and `)` are expected".to_owned(),
        ExpectedArray => "a list is expected: values between `[` and `]`".to_owned(),
        ExpectedMap => "names with their values are expected, between `{` and `}`".to_owned(),
        ExpectedStringEnd => "the text has no closing quote".to_owned(),
        InvalidValueForType { expected, found } if expected.contains("struct ") => {
            format!("fields between `(` and `)` are expected, and this is {found}")
        }
        ExpectedDifferentLength { expected, found } if expected.contains("struct ") => {
            format!("fields between `(` and `)` are expected, with another number of values than {found}")
        }
        Eof => "the text ends too early: a bracket is not closed".to_owned(),
        ExpectedComma => "a `,` or the closing bracket is expected".to_owned(),
        ExpectedArrayEnd => "a `,` or the `]` of this list is expected".to_owned(),
        ExpectedMapEnd => "a `,` or the `}` of this map is expected".to_owned(),
        ExpectedStructLikeEnd => "a `,` or the `)` of these fields is expected".to_owned(),
        ExpectedMapColon => "a `:` is expected between a name and its value".to_owned(),
        ExpectedString => "a text in quotes is expected, such as \"4\" or \"60s\"".to_owned(),
        ExpectedInteger | InvalidIntegerDigit { .. } => "a whole number is expected".to_owned(),
        IntegerOutOfBounds => "a whole number is expected, which is not negative and not too large".to_owned(),
        ExpectedFloat => "a number is expected".to_owned(),
        ExpectedBoolean => "`true` or `false` is expected".to_owned(),
        ExpectedUnit | ExpectedIdentifier => "a word without quotes is expected".to_owned(),
        SuggestRawIdentifier(name) => format!("there is no field `{name}`: names of fields have letters and `_`"),
        TrailingCharacters => "one value is expected, and there is more".to_owned(),
        error => error.to_string(),
    }
}
