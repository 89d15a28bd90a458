//! Prints diagnostics in the format that the user chose.

use std::sync::Arc;

use clap::ValueEnum;
use miette::{Diagnostic, Severity};

use crate::base::{SourceMap, counted};
use crate::compile::{BoxedDiagnostic, Parsed};
use crate::config::ConfigError;
use crate::render::{self, DiagnosticFormat};

use super::error::CliError;
use super::{CliResult, DONE, output};

/// Values of `--diagnostics`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum DiagnosticsArg {
    /// For people, on standard error
    #[default]
    Text,
    /// One JSON object on a line for each, on standard output
    Json,
    /// Commands that GitHub's workflows show beside the lines, on standard output
    Github,
}

impl DiagnosticsArg {
    fn format(self) -> DiagnosticFormat {
        match self {
            DiagnosticsArg::Text => DiagnosticFormat::Text,
            DiagnosticsArg::Json => DiagnosticFormat::Json,
            DiagnosticsArg::Github => DiagnosticFormat::GitHub,
        }
    }
}

impl CliError {
    /// Shows the error.
    pub fn print(&self, how: DiagnosticsArg) {
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
            CliError::Source { check, .. } => {
                let note = check.as_ref().map(|check| format!("; `{check}` shows the same"));
                show_noted(all, sources, how, note.as_deref().unwrap_or(""));
            }
            CliError::Config(ConfigError::File(_)) => show(all, sources, how),
            _ => show_one(all[0], sources, how),
        }
    }
}

/// Shows diagnostics, and in text form their number.
pub fn show<'a>(all: impl IntoIterator<Item = &'a dyn Diagnostic>, sources: &SourceMap, how: DiagnosticsArg) {
    show_noted(all, sources, how, "");
}

/// Shows diagnostics, and in text form their number followed by `note`.
pub fn show_noted<'a>(
    all: impl IntoIterator<Item = &'a dyn Diagnostic>,
    sources: &SourceMap,
    how: DiagnosticsArg,
    note: &str,
) {
    let mut text = String::new();
    let mut counts = [0; 3];
    for one in all {
        if how == DiagnosticsArg::Text && !text.is_empty() {
            text.push('\n');
        }
        text += &render::diagnostic(one, sources, how.format(), output::error_style());
        counts[level(one)] += 1;
    }
    match how {
        DiagnosticsArg::Text => print_text(&format!("{text}{}{note}\n", numbers(counts))),
        DiagnosticsArg::Json => output::print(&text),
        DiagnosticsArg::Github => output::print_data(&text),
    }
}

/// Shows one diagnostic without a count.
pub fn show_one(one: &dyn Diagnostic, sources: &SourceMap, how: DiagnosticsArg) {
    let text = render::diagnostic(one, sources, how.format(), output::error_style());
    match how {
        DiagnosticsArg::Text => print_text(&text),
        DiagnosticsArg::Json => output::print(&text),
        DiagnosticsArg::Github => output::print_data(&text),
    }
}

fn print_text(text: &str) {
    if output::error_style().color { output::eprint_styled(text) } else { output::eprint(text) }
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

/// Ends a command with the syntax errors of a parsed text; `Ok` if it has none.
pub fn syntax_errors(parsed: Parsed) -> CliResult {
    match parsed.errors.is_empty() {
        true => Ok(DONE),
        false => {
            let (diagnostics, sources) = (parsed.errors, Arc::new(parsed.sources));
            Err(CliError::Source { diagnostics, sources, check: None })
        }
    }
}
