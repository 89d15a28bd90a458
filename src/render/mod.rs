//! Diagnostics to text, at the edge. A diagnostic is data; each file here is one way to show it.
//!
//! Nothing here prints, or knows where a text comes from.

mod github;
mod json;
mod text;

use miette::{Diagnostic, Severity};

use crate::base::SourceMap;

pub use github::github;
pub use json::json;
pub use text::text;

/// How diagnostics are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// For people: see [`text()`].
    #[default]
    Text,
    /// For programs: see [`json()`].
    Json,
    /// For GitHub's pages: see [`github()`].
    GitHub,
}

/// How text may look.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    pub color: bool,
    /// Characters of a line.
    pub width: usize,
}

impl Default for Style {
    fn default() -> Self {
        Style { color: false, width: 100 }
    }
}

/// A diagnostic in a format, with the texts that it points into.
pub fn diagnostic(diagnostic: &dyn Diagnostic, sources: &SourceMap, format: Format, style: Style) -> String {
    match format {
        Format::Text => text(diagnostic, sources, style),
        Format::Json => json(diagnostic, sources),
        Format::GitHub => github(diagnostic, sources),
    }
}

/// What a diagnostic is, in one word: `error`, `warning`, or `advice` on what is right and could be better.
pub fn severity(diagnostic: &dyn Diagnostic) -> &'static str {
    match diagnostic.severity() {
        None | Some(Severity::Error) => "error",
        Some(Severity::Warning) => "warning",
        Some(Severity::Advice) => "advice",
    }
}
