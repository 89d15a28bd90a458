//! Prints diagnostics in the format that the user chose.

use std::sync::Arc;

use miette::{Diagnostic, Severity};

use crate::base::{SourceMap, counted};
use crate::compile::{BoxedDiagnostic, Parsed};
use crate::config::ConfigError;
use crate::render::{self, DiagnosticFormat};

use super::output;
use crate::cli::error::{CliError, Note};
use crate::cli::{CHECK_FAILED, CliResult, DONE};

impl CliError {
    /// Shows the error.
    pub fn print(&self, how: DiagnosticFormat) {
        let empty = SourceMap::new();
        let (all, sources): (Vec<&dyn Diagnostic>, &SourceMap) = match self {
            CliError::Source { diagnostics, sources, .. } => {
                (diagnostics.iter().map(|one| one.as_ref() as &dyn Diagnostic).collect(), sources)
            }
            CliError::Input(error) => (vec![error], &empty),
            CliError::Config(ConfigError::File(mistakes)) => (mistakes.all().collect(), mistakes.sources()),
            CliError::Config(error) => (vec![error], &empty),
            CliError::Exec { error, sources } => (vec![error], sources),
        };
        match self {
            CliError::Source { note, .. } => show_noted(all, sources, how, note),
            CliError::Config(ConfigError::File(_)) => show(all, sources, how),
            _ => show_one(all[0], sources, how),
        }
    }

    /// True if both errors have the same messages about the same text.
    pub fn is_same(&self, other: &CliError) -> bool {
        match (self, other) {
            (
                CliError::Source { diagnostics: of, sources, .. },
                CliError::Source { diagnostics: others, sources: other_sources, .. },
            ) => {
                let shown = |one: &BoxedDiagnostic, sources| {
                    render::diagnostic(one.as_ref(), sources, DiagnosticFormat::Json, output::error_style())
                };
                let of = of.iter().map(|one| shown(one, sources));
                of.eq(others.iter().map(|one| shown(one, other_sources)))
            }
            _ => self.code() == other.code() && self.text() == other.text(),
        }
    }
}

/// Shows diagnostics, and in text form their number.
pub fn show<'a>(all: impl IntoIterator<Item = &'a dyn Diagnostic>, sources: &SourceMap, how: DiagnosticFormat) {
    show_noted(all, sources, how, &Note::default());
}

/// Shows diagnostics with their context: after their number in text form, in a field of each in JSON.
pub fn show_noted<'a>(
    all: impl IntoIterator<Item = &'a dyn Diagnostic>,
    sources: &SourceMap,
    how: DiagnosticFormat,
    note: &Note,
) {
    let mut text = String::new();
    let mut counts = [0; 3];
    for one in all {
        if how == DiagnosticFormat::Text && !text.is_empty() {
            text.push('\n');
        }
        text += &match how {
            DiagnosticFormat::Json => render::json(one, sources, &note.ranks),
            _ => render::diagnostic(one, sources, how, output::error_style()),
        };
        counts[level(one)] += 1;
    }
    if how == DiagnosticFormat::Text {
        text += &format!("{}{}\n", numbers(counts), note.text);
    }
    print(&text, how);
}

/// Shows one diagnostic without a count.
pub fn show_one(one: &dyn Diagnostic, sources: &SourceMap, how: DiagnosticFormat) {
    print(&render::diagnostic(one, sources, how, output::error_style()), how);
}

/// Prints formatted diagnostics where their format belongs.
fn print(text: &str, how: DiagnosticFormat) {
    match how {
        DiagnosticFormat::Text if output::error_style().color => output::eprint_styled(text),
        DiagnosticFormat::Text => output::eprint(text),
        DiagnosticFormat::Json => output::print(text),
        DiagnosticFormat::Github => output::print_data(text),
    }
}

fn level(diagnostic: &dyn Diagnostic) -> usize {
    match diagnostic.severity() {
        None | Some(Severity::Error) => 0,
        Some(Severity::Warning) => 1,
        Some(Severity::Advice) => 2,
    }
}

/// Returns the counts in words, such as `1 error, 2 warnings`.
fn numbers([errors, warnings, advice]: [usize; 3]) -> String {
    let pieces = match advice {
        1 => "1 piece of advice".to_owned(),
        _ => format!("{advice} pieces of advice"),
    };
    let parts = [(errors, counted(errors, "error")), (warnings, counted(warnings, "warning")), (advice, pieces)];
    let parts: Vec<String> = parts.into_iter().filter(|(count, _)| *count > 0).map(|(_, text)| text).collect();
    parts.join(", ")
}

/// Number of warnings, not counting advice.
pub fn warnings(all: &[BoxedDiagnostic]) -> usize {
    all.iter().filter(|one| level(one.as_ref()) == 1).count()
}

/// Fails with the syntax errors of a parsed text, if it has any.
pub fn syntax_errors(parsed: Parsed) -> Result<(), CliError> {
    if parsed.errors.is_empty() {
        return Ok(());
    }
    let (diagnostics, sources) = (parsed.errors, Arc::new(parsed.sources));
    Err(CliError::Source { diagnostics, sources, note: Note::default() })
}

/// The combined result for many files. A file that fails does not prevent the others.
pub struct FileResults {
    how: DiagnosticFormat,
    found: bool,
    last_error: Option<CliError>,
}

impl FileResults {
    pub fn new(how: DiagnosticFormat) -> FileResults {
        FileResults { how, found: false, last_error: None }
    }

    /// Adds the result for a file, which is true if it needs a change or has warnings. Prints the error before it; the caller of
    /// the command prints the last one.
    pub fn add(&mut self, result: Result<bool, CliError>) {
        match result {
            Ok(found) => self.found |= found,
            Err(error) => {
                if let Some(before) = self.last_error.replace(error) {
                    before.print(self.how);
                }
            }
        }
    }

    /// The result of the command, which fails with `strict` if something was found.
    pub fn end(self, strict: bool) -> CliResult {
        match self.last_error {
            Some(error) => Err(error),
            None if strict && self.found => Ok(CHECK_FAILED),
            None => Ok(DONE),
        }
    }
}
