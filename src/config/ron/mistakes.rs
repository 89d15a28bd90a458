//! The mistakes of a RON file, each at its place in the text.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use miette::Diagnostic;
use thiserror::Error;

use crate::base::{SourceMap, SrcSpan, suggest};

use super::places::Places;

/// Maximum number of mistakes that are reported of one file.
pub(super) const MAX_MISTAKES: usize = 100;

/// A mistake at its place.
#[derive(Clone, Debug, Error, Diagnostic)]
#[error("{what}")]
#[diagnostic(forward(what))]
pub struct Mistake {
    pub(in crate::config) what: Arc<dyn Diagnostic + Send + Sync>,
    #[label("{label}")]
    pub(in crate::config) at: SrcSpan,
    pub(super) label: String,
}

/// The mistakes of a file, in the order of its text.
#[derive(Clone, Debug)]
pub struct Mistakes {
    pub(in crate::config) sources: Arc<SourceMap>,
    /// Places of the text's values; `None` if its brackets do not match.
    pub(super) places: Option<Places>,
    /// Entries that could not be read, so that the value lacks them.
    pub(super) unread: Vec<UnreadEntry>,
    pub(in crate::config) all: Vec<Mistake>,
}

/// An entry that could not be read.
#[derive(Clone, Debug)]
pub(super) struct UnreadEntry {
    /// Offset of the start of the unread part.
    pub(in crate::config) start: usize,
    /// Name of the field, or of the entry of a map; `None` for an element of a list.
    pub(in crate::config) key: Option<String>,
}

impl UnreadEntry {
    /// True if the entry lies in these bytes and probably is a misspelling of the field.
    pub(super) fn is(&self, group: &Range<usize>, field: &str) -> bool {
        let recognizes = |key: &str| key == field || suggest::nearest(key, [field]).is_some();
        group.contains(&self.start) && self.key.as_deref().is_some_and(recognizes)
    }
}

impl Mistakes {
    /// Adds a mistake in the value at a path of names; an element of a list is named by its index in decimal digits.
    /// Does nothing if a part of the value, or the field that is reported as missing, exists but could not be read.
    pub fn add(&mut self, names: &[&str], what: impl Diagnostic + Send + Sync + 'static) {
        if self.all.len() >= MAX_MISTAKES {
            return;
        }
        let find = |count: usize| Some((count, self.places.as_ref()?.find(&names[..count])?));
        let found = (0..=names.len()).rev().find_map(find);
        let is_consequence = |unread: &UnreadEntry| match found {
            Some((count, entry)) if count < names.len() => unread.is(&entry.value, names[count]),
            Some((_, entry)) => entry.value.contains(&unread.start),
            None => false,
        };
        if self.unread.iter().any(is_consequence) {
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

    /// Bytes of the name and of the value to which names lead, without quotes; `None` if it is not there, or if the places
    /// in the text are unknown.
    pub fn place(&self, names: &[&str]) -> Option<(Range<usize>, Range<usize>)> {
        let entry = self.places.as_ref()?.find(names)?;
        let text = self.sources.text(SrcSpan::new(entry.value.start, entry.value.end));
        let quotes = usize::from(text.len() > 1 && text.starts_with('"') && text.ends_with('"'));
        Some((entry.name.clone(), entry.value.start + quotes..entry.value.end - quotes))
    }

    /// True if the value at a path of names exists, or if the positions in the text are unknown.
    pub fn has(&self, names: &[&str]) -> bool {
        self.places.as_ref().is_none_or(|places| places.find(names).is_some())
    }

    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// Iterates over the mistakes.
    pub fn all(&self) -> impl Iterator<Item = &dyn Diagnostic> {
        self.all.iter().map(|mistake| mistake as &dyn Diagnostic)
    }

    /// The text that the labels refer to.
    pub fn sources(&self) -> &SourceMap {
        &self.sources
    }
}

/// The first mistake with its place, and the number of the others.
impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((first, others)) = self.all.split_first() else { return Ok(()) };
        write!(f, "{}: {first}", self.sources.place(first.at))?;
        match others.len() {
            0 => Ok(()),
            1 => write!(f, "; and another mistake"),
            count => write!(f, "; and {count} more mistakes"),
        }
    }
}
