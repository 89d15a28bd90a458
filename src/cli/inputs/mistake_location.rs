//! Places the mistakes of a compiled workload in the scenario or the suite that has caused them.
//!
//! The compiler knows a value of a parameter as the text of `--set NAME`. A user who wrote it in a file looks for it there.

use std::ops::Range;
use std::sync::Arc;

use miette::{Diagnostic, LabeledSpan};
use thiserror::Error;

use crate::base::SourceMap;
use crate::compile::BoxedDiagnostic;

use crate::cli::error::{CliError, Note};

/// Code of the error about the name of a parameter: it shows the name, not the value.
const UNKNOWN_PARAMETER: &str = "aorta::model::unknown_parameter";

/// Code of the error about the name of a preset, which has no place in the workload.
const UNKNOWN_PRESET: &str = "aorta::model::unknown_preset";

/// Prefix of the names under which the compiler knows the texts of values.
const SET: &str = "--set ";

/// A value that a file gives to a workload.
#[derive(Clone, Copy, Debug)]
pub enum Given<'a> {
    /// The parameter with this name, and its value.
    Param(&'a str, &'a str),
    Preset,
}

/// Bytes of the name of a field and of its value.
pub type FieldPlace = (Range<usize>, Range<usize>);

/// Returns the place of a value in the text of a file; `None` if the file does not give it.
pub type FindPlace<'a> = &'a dyn Fn(Given) -> Option<FieldPlace>;

/// The error with the lines of a file, given by name and text, in place of the arguments that it stands for.
pub fn in_file(error: CliError, (name, text): (&str, &str), find: FindPlace) -> CliError {
    let CliError::Source { diagnostics, sources, note } = error else { return error };
    let mut extended = SourceMap::clone(&sources);
    let Some(base) = extended.add(name, text) else { return CliError::Source { diagnostics, sources, note } };
    let mut is_placed = false;
    let place = |what: BoxedDiagnostic| {
        let labels = moved_labels(what.as_ref(), &sources, base as usize, (text, find));
        is_placed |= labels.is_some();
        match labels {
            Some(labels) => Box::new(RelabelledDiagnostic { what, labels }) as BoxedDiagnostic,
            None => what,
        }
    };
    let diagnostics = diagnostics.into_iter().map(place).collect();
    match is_placed {
        true => CliError::Source { diagnostics, sources: Arc::new(extended), note: Note::default() },
        false => CliError::Source { diagnostics, sources, note },
    }
}

/// True if the diagnostic is about the value of this parameter, or about the preset, that an argument gives.
pub fn is_of_argument(what: &dyn Diagnostic, sources: &SourceMap, option: &str, name: &str) -> bool {
    if what.code().is_some_and(|code| code.to_string() == UNKNOWN_PRESET) {
        return option == "preset";
    }
    let is_there = |label: LabeledSpan| {
        let place = u32::try_from(label.offset()).ok().and_then(|offset| sources.locate(offset));
        place.is_some_and(|place| place.file.strip_prefix(SET) == Some(name))
    };
    what.labels().is_some_and(|mut labels| labels.any(is_there))
}

/// The labels of a diagnostic with those of arguments moved to a file at `base`; `None` if none is of an argument that the
/// file gives.
fn moved_labels(
    what: &dyn Diagnostic,
    sources: &SourceMap,
    base: usize,
    (text, find): (&str, FindPlace),
) -> Option<Vec<LabeledSpan>> {
    let code = what.code().map(|code| code.to_string()).unwrap_or_default();
    if code == UNKNOWN_PRESET {
        let (_, place) = find(Given::Preset)?;
        let label = Some("not a preset of the workload".to_owned());
        return Some(vec![LabeledSpan::new(label, base + place.start, place.len())]);
    }
    let mut is_moved = false;
    let labels = what.labels()?.map(|label| {
        let to = || {
            let place = sources.locate(u32::try_from(label.offset()).ok()?)?;
            let param = place.file.strip_prefix(SET)?;
            let value = sources.rest_of_line((label.offset() - place.offset) as u32);
            let (name, found) = find(Given::Param(param, value))?;
            if code == UNKNOWN_PARAMETER {
                return Some(name);
            }
            // A value that RON writes in another way, with an escape, is shown as a whole.
            let start = found.start + place.offset;
            let is_same = text.get(found.clone()) == Some(value);
            Some(if is_same { start..start + label.len() } else { found })
        };
        let Some(to) = to() else { return label };
        is_moved = true;
        LabeledSpan::new(label.label().map(str::to_owned), base + to.start, to.len())
    });
    let labels: Vec<LabeledSpan> = labels.collect();
    is_moved.then_some(labels)
}

/// A diagnostic with other labels.
#[derive(Debug, Error, Diagnostic)]
#[error("{what}")]
#[diagnostic(forward(what))]
struct RelabelledDiagnostic {
    what: BoxedDiagnostic,
    #[label(collection)]
    labels: Vec<LabeledSpan>,
}
