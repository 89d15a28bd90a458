//! Errors found by an analysis, each with the calls of definitions that lead to it.

use std::fmt;
use std::mem::{Discriminant, discriminant};

use miette::{Diagnostic, LabeledSpan};
use rustc_hash::FxHashMap;
use thiserror::Error;

use crate::base::{SrcSpan, counted};

use super::error::{ModelError, SliceError};

/// Maximum number of errors reported for one file.
pub(super) const MAX_ERRORS: usize = 100;

/// Maximum number of calls shown for one error: the innermost ones and the outermost one.
const MAX_CALLS: usize = 3;

/// An error with its help, and labels for it and for the calls of the definitions that contain it.
#[derive(Clone, Debug, Error, Diagnostic)]
#[error("{error}")]
#[diagnostic(forward(error))]
pub struct Mistake {
    pub error: ModelError,
    #[help]
    help: Option<String>,
    #[label(collection)]
    labels: Vec<LabeledSpan>,
}

/// An error, and the calls of the definitions that contain it.
#[derive(Debug)]
struct LocatedError {
    error: ModelError,
    /// Calls, the innermost first.
    calls: Vec<CallSite>,
    /// Number of calls between the last two of `calls` that are not shown.
    hidden_calls: usize,
    /// Number of other locations where the same name is unknown.
    other_locations: usize,
    /// Number of other calls of the innermost definition with the same error.
    other_calls: usize,
    /// Number of the innermost call in which the mistake was last found.
    last_call: u32,
    /// The first iteration with the mistake, and its drawn values; `None` if the mistake depends on no iteration.
    circumstances: Option<Circumstances>,
}

/// The iteration in which an error was first found, and the drawn values that it used there.
#[derive(Clone, Debug)]
pub(super) struct Circumstances {
    pub iteration: i64,
    /// The draw, or a member of it, and its value.
    pub drawn: Vec<(String, String)>,
}

impl fmt::Display for Circumstances {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "in iteration {}", self.iteration)?;
        for (index, (name, value)) in self.drawn.iter().enumerate() {
            let before = ["where", "and"][index.min(1)];
            write!(f, "{} {before} `{name}` is {value}", if index == 0 { "," } else { "" })?;
        }
        Ok(())
    }
}

/// A call of a definition.
#[derive(Debug)]
struct CallSite {
    at: SrcSpan,
    /// Arguments of the call, such as `x: f32[8], n = 4`; may be empty.
    arguments: String,
}

impl LocatedError {
    fn called_in(&mut self, site: CallSite) {
        if self.calls.len() == MAX_CALLS {
            self.calls.pop();
            self.hidden_calls += 1;
        }
        self.calls.push(site);
    }

    /// The label's text at the call with this index in `calls`.
    fn call_text(&self, place: usize) -> String {
        let mut text = "called here".to_owned();
        if !self.calls[place].arguments.is_empty() {
            text += &format!(" with {}", self.calls[place].arguments);
        }
        if place == 0 && self.other_calls > 0 {
            text += &format!("; the same in {}", counted(self.other_calls, "other call"));
        }
        if place + 1 == self.calls.len() && self.hidden_calls > 0 {
            text += &format!("; {} in between", counted(self.hidden_calls, "call"));
        }
        text
    }

    fn help(&self) -> Option<String> {
        let help = self.error.help()?.to_string();
        let drawn = self.circumstances.as_ref().and_then(|found| found.drawn.first());
        let (least, largest) = match &self.error {
            ModelError::Slice(SliceError::SliceOutOfRange { size, from, to, .. }) => (*from.min(to), *size as i64),
            ModelError::Slice(SliceError::IndexOutOfRange { last, index, .. }) => (*index, *last),
            _ => return Some(help),
        };
        Some(match drawn {
            Some((name, _)) if least < 0 => format!("{help}; limit what is drawn: `max({name}, 0)`"),
            Some((name, _)) => format!("{help}; limit what is drawn: `min({name}, {largest})`"),
            None => help,
        })
    }

    fn labels(&self) -> Vec<LabeledSpan> {
        let labels = self.error.labels().into_iter().flatten().enumerate().map(|(index, label)| match label.label() {
            Some(text) if index == 0 => {
                let mut text = text.to_owned();
                if self.other_locations > 0 {
                    text += &format!(", nor in {}", counted(self.other_locations, "other place"));
                }
                if let Some(circumstances) = &self.circumstances {
                    text += &format!(", {circumstances}");
                }
                LabeledSpan::new_with_span(Some(text), *label.inner())
            }
            _ => label,
        });
        let calls = self.calls.iter().enumerate().map(|(place, site)| {
            LabeledSpan::new(Some(self.call_text(place)), site.at.start as usize, site.at.len as usize)
        });
        labels.chain(calls).collect()
    }

    fn shown(self) -> Mistake {
        Mistake { help: self.help(), labels: self.labels(), error: self.error }
    }
}

/// The errors found so far, without repetitions by loops and calls.
#[derive(Debug, Default)]
pub(super) struct Mistakes {
    found: Vec<LocatedError>,
    /// Indices in `found`, by kind of error and location.
    known: FxHashMap<(Discriminant<ModelError>, usize), usize>,
    /// Indices in `found` of unknown names, by their kind and name.
    unknown: FxHashMap<(&'static str, String), usize>,
    /// True while errors are not added.
    pub is_muted: bool,
    /// True while errors of slices are not added.
    pub are_slices_muted: bool,
    /// Number of errors so far, with those that repeat another one.
    pub raised: u64,
}

/// The kind and the name of an error about an unknown name, which is reported at its first location. `None` for other errors.
fn unknown(error: &ModelError) -> Option<(&'static str, String)> {
    match error {
        // A stream that is not declared is no set of operations either.
        ModelError::UnknownName { name, .. } | ModelError::UnknownSet { name, .. } => Some(("name", name.clone())),
        ModelError::UnknownOperation { name, .. } => Some(("operation", name.clone())),
        ModelError::UnknownFunction { name, .. } => Some(("function", name.clone())),
        _ => None,
    }
}

impl Mistakes {
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    pub fn len(&self) -> usize {
        self.found.len()
    }

    /// True if a `require` of the file does not hold.
    pub fn has_requirement(&self) -> bool {
        self.found.iter().any(|mistake| matches!(mistake.error, ModelError::Requirement { .. }))
    }

    /// Keeps, of the errors from index `first` on, those in the `conditions` of the file: the others may follow from a condition
    /// that does not hold.
    pub fn keep_requirements(&mut self, first: usize, conditions: &[SrcSpan]) {
        let inside =
            |at: usize| conditions.iter().any(|span| (span.start..span.start + span.len).contains(&(at as u32)));
        let later = self.found.split_off(first);
        self.found.extend(later.into_iter().filter(|found| inside(found.error.offset())));
    }

    /// True if the maximum number of errors has been found.
    pub fn is_full(&self) -> bool {
        self.found.len() >= MAX_ERRORS
    }

    /// Adds an error found in the call with number `call`; 0 means outside of calls. Returns whether it is a new one.
    pub fn add(&mut self, error: ModelError, call: u32) -> bool {
        if self.is_muted || self.are_slices_muted && matches!(error, ModelError::Slice(_)) {
            return false;
        }
        self.raised += 1;
        let offset = match &error {
            // The location of the error is the division, even if its result is used several times.
            ModelError::NotWhole { division: Some(division), .. } => division.offset(),
            error => error.offset(),
        };
        let key = (discriminant(&error), offset);
        if let Some(&index) = self.known.get(&key) {
            let known = &mut self.found[index];
            known.other_calls += usize::from(known.last_call != call);
            known.last_call = call;
            return false;
        }
        let unknown = unknown(&error);
        if let Some(&index) = unknown.as_ref().and_then(|unknown| self.unknown.get(unknown)) {
            self.known.insert(key, index);
            self.found[index].other_locations += 1;
            return false;
        }
        if self.is_full() {
            return false;
        }
        self.known.insert(key, self.found.len());
        self.unknown.extend(unknown.map(|unknown| (unknown, self.found.len())));
        self.found.push(LocatedError {
            error,
            calls: Vec::new(),
            hidden_calls: 0,
            other_locations: 0,
            other_calls: 0,
            last_call: call,
            circumstances: None,
        });
        true
    }

    /// Says of the error that was added last in which iteration it was found.
    pub fn found_in(&mut self, circumstances: Option<Circumstances>) {
        if let Some(last) = self.found.last_mut() {
            last.circumstances = circumstances;
        }
    }

    /// Adds the circumstances of a call to all errors from index `first` on that name no drawn value.
    pub fn called_in(&mut self, first: usize, circumstances: &Circumstances) {
        let silent =
            |mistake: &&mut LocatedError| mistake.circumstances.as_ref().is_none_or(|known| known.drawn.is_empty());
        for mistake in self.found[first..].iter_mut().filter(silent) {
            mistake.circumstances = Some(circumstances.clone());
        }
    }

    /// Adds a call to all errors from index `first` on.
    pub fn called(&mut self, first: usize, at: SrcSpan, arguments: String) {
        for mistake in &mut self.found[first..] {
            mistake.called_in(CallSite { at, arguments: arguments.clone() });
        }
    }

    /// Returns the errors sorted by location.
    pub fn sorted(mut self) -> Vec<Mistake> {
        self.found.sort_by_key(|found| found.error.offset());
        self.found.into_iter().map(LocatedError::shown).collect()
    }
}
