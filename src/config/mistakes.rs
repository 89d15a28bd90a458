//! The mistakes of a RON file, each at its place in the text.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use miette::{Diagnostic, LabeledSpan};

use crate::base::{SourceMap, SrcSpan, suggest};

use super::places::Places;

/// Maximum number of mistakes that are reported of one file.
pub(super) const MAX_MISTAKES: usize = 100;

/// A mistake at its place.
#[derive(Clone, Debug)]
pub struct Mistake {
    pub(super) what: Arc<dyn Diagnostic + Send + Sync>,
    pub(super) at: SrcSpan,
    pub(super) label: String,
}

/// The mistakes of a file, in the order of its text.
#[derive(Clone, Debug)]
pub struct Mistakes {
    pub(super) sources: Arc<SourceMap>,
    /// `None` if the text's brackets do not match.
    pub(super) places: Option<Places>,
    /// Entries that could not be read, and that the value lacks.
    pub(super) lost: Vec<Lost>,
    pub(super) all: Vec<Mistake>,
}

/// An entry that could not be read.
#[derive(Clone, Debug)]
pub(super) struct Lost {
    /// Offset of its begin.
    pub(super) start: usize,
    /// Name of the field, or of the entry of a map; `None` for an element of a list.
    pub(super) key: Option<String>,
}

impl Lost {
    /// True if the entry lies in these bytes and was probably meant as the field.
    pub(super) fn is(&self, group: &Range<usize>, field: &str) -> bool {
        let is_meant = |key: &str| key == field || suggest::nearest(key, [field]).is_some();
        group.contains(&self.start) && self.key.as_deref().is_some_and(is_meant)
    }
}

impl Mistakes {
    /// Adds a mistake in the value to which names lead, the index of an element in decimal digits among them. Not if a part
    /// of the value, or the field that the mistake misses, was there and could not be read.
    pub fn add(&mut self, names: &[&str], what: impl Diagnostic + Send + Sync + 'static) {
        if self.all.len() >= MAX_MISTAKES {
            return;
        }
        let find = |count: usize| Some((count, self.places.as_ref()?.find(&names[..count])?));
        let found = (0..=names.len()).rev().find_map(find);
        let is_consequence = |lost: &Lost| match found {
            Some((count, entry)) if count < names.len() => lost.is(&entry.value, names[count]),
            Some((_, entry)) => entry.value.contains(&lost.start),
            None => false,
        };
        if self.lost.iter().any(is_consequence) {
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

    /// Each mistake.
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
