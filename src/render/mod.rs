//! Diagnostics to text, at the edge.

use miette::{Diagnostic, GraphicalReportHandler, GraphicalTheme, SourceCode};

/// How text may look.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    pub color: bool,
    pub width: usize,
}

impl Default for Style {
    fn default() -> Self {
        Style { color: false, width: 100 }
    }
}

/// A diagnostic as text, with the source that it points into.
pub fn text(diagnostic: &dyn Diagnostic, source: &dyn SourceCode, style: Style) -> String {
    let theme = if style.color { GraphicalTheme::unicode() } else { GraphicalTheme::unicode_nocolor() };
    let handler = GraphicalReportHandler::new_themed(theme).with_width(style.width).with_links(false);
    let with_source = WithSource { diagnostic, source };
    let mut out = String::new();
    // Writing to a string fails only if a diagnostic's own text does.
    if handler.render_report(&mut out, &with_source).is_err() {
        out = format!("{diagnostic}\n");
    }
    out
}

/// A diagnostic beside the texts that its labels point into.
struct WithSource<'a> {
    diagnostic: &'a dyn Diagnostic,
    source: &'a dyn SourceCode,
}

impl std::fmt::Debug for WithSource<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(self.diagnostic, f)
    }
}

impl std::fmt::Display for WithSource<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self.diagnostic, f)
    }
}

impl std::error::Error for WithSource<'_> {}

impl Diagnostic for WithSource<'_> {
    fn code<'a>(&'a self) -> Option<Box<dyn std::fmt::Display + 'a>> {
        self.diagnostic.code()
    }

    fn severity(&self) -> Option<miette::Severity> {
        self.diagnostic.severity()
    }

    fn help<'a>(&'a self) -> Option<Box<dyn std::fmt::Display + 'a>> {
        self.diagnostic.help()
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = miette::LabeledSpan> + '_>> {
        self.diagnostic.labels()
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        Some(self.source)
    }
}
