//! Reads RON files with all of their mistakes, each at its place.
//!
//! The reader of RON stops at the first mistake. So a wrong entry is reported, replaced by spaces, and the text is read
//! again, until the rest is valid. The checks of values then report theirs.

use std::ops::Range;
use std::sync::Arc;

use ron::Error;
use serde::de::DeserializeOwned;

use crate::base::{SourceMap, SrcSpan};
use crate::config::ConfigError;

use super::bad_ron::{bad_ron, offset, token};
use super::mistakes::{MAX_MISTAKES, Mistake, Mistakes, UnreadEntry};
use super::places::{PlacedValue, Places};
use super::punctuation::punctuation_mistakes;

/// RON options for all files: `Some` can be left out.
pub(in crate::config) fn options() -> ron::Options {
    ron::Options::default().with_default_extension(ron::extensions::Extensions::IMPLICIT_SOME)
}

/// Reads a text as a `T`; `None` if too little of it is valid. `file` is its name in messages, and `help` says where its
/// fields are explained.
pub(in crate::config) fn read<T: DeserializeOwned>(file: &str, text: &str, help: &str) -> (Option<T>, Mistakes) {
    let mut sources = SourceMap::new();
    // Files are far smaller than a map. Without a place, the message is still complete.
    sources.add(file, text).unwrap_or_default();
    let mut mistakes = Mistakes { sources: Arc::new(sources), places: None, unread: Vec::new(), all: Vec::new() };
    let mut rest = text.to_owned();
    if !is_punctuated(&mut rest, &mut mistakes) {
        return (None, mistakes);
    }
    loop {
        mistakes.places = Places::of(&rest);
        let mut error = match options().from_str::<T>(&rest) {
            Ok(value) => return (Some(value), mistakes),
            Err(error) => error,
        };
        let mut start = offset(&rest, error.span.start);
        // The name of a first field is read together with the bracket before it.
        if let Error::SuggestRawIdentifier(name) = &error.code {
            start += rest[start..].find(name.as_str()).unwrap_or(0);
        }
        let path = mistakes.places.as_ref().map(|places| places.around(start)).unwrap_or_default();
        if let Error::SuggestRawIdentifier(name) = &error.code
            && path.last().is_some_and(|entry| entry.value.contains(&start) && !entry.name.contains(&start))
        {
            error.code = Error::Message(format!("`{name}` is not a known word"));
        }
        let (at, removed) = extent(&rest, start, &error.code, &path);
        let is_consequence = match &error.code {
            Error::MissingStructField { field, .. } => {
                let group = path.iter().rev().find(|entry| entry.value.end > start);
                group.is_some_and(|group| mistakes.unread.iter().any(|entry| entry.is(&group.value, field)))
            }
            _ => false,
        };
        if !is_consequence {
            // RON reports a missing field after the last field.
            let is_missing = matches!(error.code, Error::MissingStructField { .. });
            let named = path.iter().rev().find(|entry| entry.key.is_some() && !is_missing);
            let field = named.map(|entry| &rest[entry.name.clone()]);
            let is_cut = removed.is_some() && !is_value(&error.code);
            let (what, label) = bad_ron(&error.code, field, (&rest[at.clone()], is_cut), help);
            // A bracket that was added stands behind the text.
            let at = at.start.min(text.len())..at.end.min(text.len());
            mistakes.all.push(Mistake { what: Arc::new(what), at: SrcSpan::new(at.start, at.end), label });
        }
        match removed {
            Some(removed) if mistakes.all.len() < MAX_MISTAKES => {
                mistakes.unread.push(UnreadEntry { start: removed.whole().start, key: removed.key.clone() });
                blank(&mut rest, removed.whole());
            }
            _ => return (None, mistakes),
        }
    }
}

/// Reports the mistakes in the punctuation of a text, and corrects them there. False if the text cannot be read because one
/// needs room.
fn is_punctuated(rest: &mut String, mistakes: &mut Mistakes) -> bool {
    let length = rest.len();
    loop {
        let misplaced = punctuation_mistakes(rest);
        if misplaced.is_empty() {
            return true;
        }
        let mut is_fixed = true;
        for slip in misplaced {
            // The file has no such bytes: an earlier correction added closing brackets behind its text, and a bracket is now too much.
            if slip.at.end > length {
                is_fixed = false;
                continue;
            }
            let what = Arc::new(ConfigError::BadRon { message: slip.message, help: slip.help });
            let at = SrcSpan::new(slip.at.start, slip.at.end);
            mistakes.all.push(Mistake { what, at, label: "here".to_owned() });
            mistakes.unread.extend(slip.lost.map(|key| UnreadEntry { start: slip.at.start, key: Some(key) }));
            is_fixed &= !slip.fixes.is_empty();
            slip.fixes.iter().for_each(|(range, by)| rest.replace_range(range.clone(), by));
        }
        if !is_fixed || mistakes.all.len() >= MAX_MISTAKES {
            return false;
        }
    }
}

/// The bytes that a message shows, and the entry without which the rest may be valid; `None` if nothing can be
/// left out.
fn extent<'e>(
    text: &str,
    start: usize,
    error: &Error,
    path: &[&'e PlacedValue],
) -> (Range<usize>, Option<&'e PlacedValue>) {
    let is_about_name = matches!(
        error,
        Error::NoSuchStructField { .. } | Error::DuplicateStructField { .. } | Error::SuggestRawIdentifier(_)
    );
    // RON reports these errors at the closing bracket of the entry to which they belong.
    let is_about_group = matches!(error, Error::MissingStructField { .. } | Error::ExpectedDifferentLength { .. });
    let path = match is_about_group {
        true => &path[..path.iter().rposition(|entry| entry.value.end > start).map_or(0, |last| last + 1)],
        false => path,
    };
    let removed = path.iter().rev().find(|entry| entry.is_removable()).copied();
    let shown = match path.last() {
        Some(entry) if is_about_name => entry.name.clone(),
        Some(entry) if is_about_group || is_value(error) => entry.value.clone(),
        // The first part of the value has been read, such as the number of `5us`. Otherwise a comma or a bracket is
        // missing, and the rest cannot be understood without it.
        Some(entry) if entry.is_plain && entry.is_removable() && !entry.value.is_empty() => entry.value.clone(),
        _ => return (token(text, start), None),
    };
    if shown.is_empty() {
        return (token(text, start), removed);
    }
    let line = text[shown.clone()].find('\n').map_or(shown.end, |end| shown.start + end);
    (shown.start..line, removed)
}

/// True for an error in a value, false for one between values.
fn is_value(error: &Error) -> bool {
    use Error::*;
    !matches!(
        error,
        Eof | ExpectedComma
            | ExpectedArrayEnd
            | ExpectedMapEnd
            | ExpectedMapColon
            | ExpectedStructLikeEnd
            | ExpectedOptionEnd
            | TrailingCharacters
            | UnexpectedChar(_)
            | UnclosedBlockComment
            | UnclosedLineComment
    )
}

/// Replaces bytes by spaces. Line ends stay, so that all places stay.
fn blank(text: &mut String, range: Range<usize>) {
    let spaces: String = text[range.clone()].bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }).collect();
    text.replace_range(range, &spaces);
}

/// The value, unless a mistake was found.
pub(in crate::config) fn strict<T>((value, mistakes): (Option<T>, Mistakes)) -> Result<T, ConfigError> {
    mistakes.finish()?;
    Ok(value.expect("a text without mistakes has a value"))
}
