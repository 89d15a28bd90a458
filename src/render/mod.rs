//! Formats diagnostics. A diagnostic is data; each file here is one output format.
//!
//! The functions return text: none prints, or depends on where a text comes from.

mod github;
mod json;
mod text;

use clap::ValueEnum;
use miette::{Diagnostic, Severity};

use crate::base::SourceMap;

pub use github::github;
pub use json::json;
pub use text::text;

/// Output format of diagnostics: the values of `--diagnostics`, with their help.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum DiagnosticFormat {
    /// For people, on standard error
    #[default]
    Text,
    /// JSON, an object on a line for each diagnostic, on standard output
    Json,
    /// Commands that GitHub's workflows show beside the lines, on standard output
    Github,
}

/// Appearance of text.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    pub color: bool,
    /// Line width in characters.
    pub width: usize,
}

impl Default for Style {
    fn default() -> Self {
        Style { color: false, width: 100 }
    }
}

/// Formats a diagnostic. `sources` has the texts that it refers to.
pub fn diagnostic(diagnostic: &dyn Diagnostic, sources: &SourceMap, format: DiagnosticFormat, style: Style) -> String {
    match format {
        DiagnosticFormat::Text => text(diagnostic, sources, style),
        DiagnosticFormat::Json => json(diagnostic, sources, &[]),
        DiagnosticFormat::Github => github(diagnostic, sources),
    }
}

/// The severity: `error`, `warning`, or `advice` on valid code that could be better.
pub fn severity(diagnostic: &dyn Diagnostic) -> &'static str {
    match diagnostic.severity() {
        None | Some(Severity::Error) => "error",
        Some(Severity::Warning) => "warning",
        Some(Severity::Advice) => "advice",
    }
}
