//! Reads RON files with all of their mistakes, each at its place.
//!
//! The reader of RON stops at the first mistake. So a wrong entry is reported, replaced by spaces, and the text is read
//! again, until the rest is valid. The checks of values then report theirs.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use miette::{Diagnostic, LabeledSpan};
use ron::Error;
use serde::de::DeserializeOwned;

use crate::base::{SourceMap, SrcSpan, suggest};

use super::bad_ron::{bad_ron, offset, token};
use super::error::ConfigError;
use super::places::{Entry, Places};

/// Maximum number of mistakes that are reported of one file.
const MAX_MISTAKES: usize = 100;

/// RON options for all files: `Some` can be left out.
pub(super) fn options() -> ron::Options {
    ron::Options::default().with_default_extension(ron::extensions::Extensions::IMPLICIT_SOME)
}

/// A mistake at its place.
#[derive(Clone, Debug)]
pub struct Mistake {
    what: Arc<dyn Diagnostic + Send + Sync>,
    at: SrcSpan,
    label: String,
}

/// The mistakes of a file, in the order of its text.
#[derive(Clone, Debug)]
pub struct Mistakes {
    sources: Arc<SourceMap>,
    /// `None` if the text's brackets do not match.
    places: Option<Places>,
    /// Entries that could not be read, and that the value lacks.
    lost: Vec<Lost>,
    all: Vec<Mistake>,
}

/// Reads a text as a `T`; `None` if too little of it is valid. `file` is its name in messages, and `help` says where its
/// fields are explained.
pub(super) fn read<T: DeserializeOwned>(file: &str, text: &str, help: &str) -> (Option<T>, Mistakes) {
    let mut sources = SourceMap::new();
    // Files are far smaller than a map. Without a place, the message is still complete.
    sources.add(file, text).unwrap_or_default();
    let mut mistakes = Mistakes { sources: Arc::new(sources), places: None, lost: Vec::new(), all: Vec::new() };
    let mut rest = text.to_owned();
    loop {
        mistakes.places = Places::of(&rest);
        let error = match options().from_str::<T>(&rest) {
            Ok(value) => return (Some(value), mistakes),
            Err(error) => error,
        };
        let start = offset(&rest, error.span.start);
        let path = mistakes.places.as_ref().map(|places| places.around(start)).unwrap_or_default();
        let (at, removed) = extent(&rest, start, &error.code, &path);
        let is_consequence = match &error.code {
            Error::MissingStructField { field, .. } => {
                let group = path.iter().rev().find(|entry| entry.value.end > start);
                group.is_some_and(|group| mistakes.lost.iter().any(|lost| lost.is(&group.value, field)))
            }
            _ => false,
        };
        if !is_consequence {
            let field = path.iter().rev().find(|entry| entry.key.is_some()).map(|entry| &rest[entry.name.clone()]);
            let is_cut = removed.is_some() && !is_value(&error.code);
            let (what, label) = bad_ron(&error.code, field, (&rest[at.clone()], is_cut), help);
            mistakes.all.push(Mistake { what: Arc::new(what), at: SrcSpan::new(at.start, at.end), label });
        }
        match removed {
            Some(removed) if mistakes.all.len() < MAX_MISTAKES => {
                mistakes.lost.push(Lost { start: removed.whole().start, key: removed.key.clone() });
                blank(&mut rest, removed.whole());
            }
            _ => return (None, mistakes),
        }
    }
}

/// The bytes that a message shows, and the entry without which the rest may be valid; `None` if nothing can be
/// left out.
fn extent<'e>(text: &str, start: usize, error: &Error, path: &[&'e Entry]) -> (Range<usize>, Option<&'e Entry>) {
    let is_about_name = matches!(
        error,
        Error::NoSuchStructField { .. } | Error::DuplicateStructField { .. } | Error::SuggestRawIdentifier(_)
    );
    // These are found at the closing bracket of the entry that they are about.
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

/// An entry that could not be read.
#[derive(Clone, Debug)]
struct Lost {
    /// Offset of its begin.
    start: usize,
    /// Its name; `None` for an element of a list.
    key: Option<String>,
}

impl Lost {
    /// True if the entry lies in these bytes and was probably meant as the field.
    fn is(&self, group: &Range<usize>, field: &str) -> bool {
        let is_meant = |key: &str| key == field || suggest::nearest(key, [field]).is_some();
        group.contains(&self.start) && self.key.as_deref().is_some_and(is_meant)
    }
}

impl Mistakes {
    /// Adds a mistake in the value to which names lead, the index of an element in decimal digits among them. Not if a part
    /// of the value, or the field that the mistake misses, was there and could not be read.
    pub fn add(&mut self, names: &[&str], what: impl Diagnostic + Send + Sync + 'static) {
        let find = |count: usize| Some((count, self.places.as_ref()?.find(&names[..count])?));
        let found = (0..=names.len()).rev().find_map(find);
        let is_consequence = |lost: &Lost| match found {
            Some((count, entry)) if count < names.len() => lost.is(&entry.value, names[count]),
            Some((_, entry)) => entry.value.contains(&lost.start),
            None => false,
        };
        if self.lost.iter().any(is_consequence) || self.all.len() >= MAX_MISTAKES {
            return;
        }
        let named = names.iter().rev().find(|name| name.parse::<usize>().is_err());
        let (at, label) = match (found, named) {
            (Some((count, entry)), Some(name)) if count == names.len() => {
                (entry.value.clone(), format!("the value of `{name}`"))
            }
            (Some((_, entry)), _) => (entry.value.start..entry.value.start + 1, "here".to_owned()),
            (None, _) => (0..0, "here".to_owned()),
        };
        let first_line = self.sources.text(SrcSpan::new(at.start, at.end)).lines().next().map_or(0, str::len);
        let at = SrcSpan::new(at.start, at.start + first_line);
        self.all.push(Mistake { what: Arc::new(what), at, label });
    }

    /// True if the value to which names lead is there, or if the places in the text are unknown.
    pub fn has(&self, names: &[&str]) -> bool {
        self.places.as_ref().is_none_or(|places| places.find(names).is_some())
    }

    /// Number of mistakes.
    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// Fails if there is a mistake.
    pub fn finish(mut self) -> Result<(), ConfigError> {
        if self.all.is_empty() {
            return Ok(());
        }
        self.all.sort_by_key(|mistake| mistake.at);
        Err(self.into())
    }

    /// Each mistake.
    pub fn all(&self) -> impl Iterator<Item = &dyn Diagnostic> {
        self.all.iter().map(|mistake| mistake as &dyn Diagnostic)
    }

    /// The text that the labels refer to.
    pub fn sources(&self) -> &SourceMap {
        &self.sources
    }
}

impl From<Mistakes> for ConfigError {
    fn from(mistakes: Mistakes) -> ConfigError {
        ConfigError::File(Box::new(mistakes))
    }
}

/// The value, unless a mistake was found.
pub(super) fn strict<T>((value, mistakes): (Option<T>, Mistakes)) -> Result<T, ConfigError> {
    mistakes.finish()?;
    Ok(value.expect("a text without mistakes has a value"))
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, mistake) in self.all.iter().enumerate() {
            let between = if index == 0 { "" } else { "; " };
            write!(f, "{between}{}: {mistake}", self.sources.place(mistake.at))?;
        }
        Ok(())
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.what.fmt(f)
    }
}

impl std::error::Error for Mistake {}

impl Diagnostic for Mistake {
    fn code<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.what.code()
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.what.help()
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let label = LabeledSpan::new_with_span(Some(self.label.clone()), self.at);
        Some(Box::new(std::iter::once(label)))
    }
}
