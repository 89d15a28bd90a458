//! A diagnostic as text: the message, the source lines, the help.

use std::fmt::{Debug, Display, Formatter};

use miette::{Diagnostic, GraphicalReportHandler, GraphicalTheme, LabeledSpan, SourceCode};

use crate::base::visible;

use super::Style;

/// Longest source line, in characters, that is shown.
const MAX_LINE: usize = 1000;

/// Maximum number of lines of a location that are shown; of a longer one, only the first is.
const MAX_LINES: usize = 20;

/// Maximum number of characters of quoted text that are shown.
const MAX_QUOTED: usize = 200;

/// Number of lines shown before and after the location.
const CONTEXT: usize = 1;

/// First of the private-use characters that replace those in backticks at which a line could be broken.
const JOINED: u32 = 0xf_0000;

/// A diagnostic as text with its source. Coloured text contains no escape characters except those of its colours: if
/// the diagnostic or the source contains any, there is no colour.
pub fn text(diagnostic: &dyn Diagnostic, source: &dyn SourceCode, style: Style) -> String {
    let plain = drawn(diagnostic, source, Style { color: false, ..style });
    match plain.contains('\x1b') {
        true => visible::visible(&plain).into_owned(),
        false if style.color => drawn(diagnostic, source, style),
        false => plain,
    }
}

fn drawn(diagnostic: &dyn Diagnostic, source: &dyn SourceCode, style: Style) -> String {
    let theme = if style.color { GraphicalTheme::unicode() } else { GraphicalTheme::unicode_nocolor() };
    let handler =
        GraphicalReportHandler::new_themed(theme).with_width(style.width).with_links(false).with_context_lines(CONTEXT);
    let (mut labels, mut places) = (Vec::new(), String::new());
    for label in diagnostic.labels().into_iter().flatten() {
        let text = label.label().map(shortened);
        match place_in_long_line(&label, source) {
            Some(place) => places += &format!("\n{place}: {}", text.as_deref().unwrap_or("here")),
            None => labels.push(LabeledSpan::new(text, label.offset(), shown_length(&label, source))),
        }
    }
    let message = joined(&shortened(&format!("{diagnostic}{places}")));
    let help = diagnostic.help().map(|help| joined(&shortened(&help.to_string())));
    let mut out = String::new();
    // Writing to a string only fails if a diagnostic's own text does.
    if handler.render_report(&mut out, &ShownDiagnostic { diagnostic, source, message, help, labels }).is_err() {
        out = format!("{diagnostic}\n");
    }
    restore_joined(&out)
}

/// A label's `file:line:column`, if the lines around it are too long to be shown; `None` otherwise.
fn place_in_long_line(label: &LabeledSpan, source: &dyn SourceCode) -> Option<String> {
    let lines = source.read_span(label.inner(), CONTEXT, CONTEXT).ok()?;
    let text = String::from_utf8_lossy(lines.data());
    if text.lines().all(|line| line.len() <= MAX_LINE || line.chars().count() <= MAX_LINE) {
        return None;
    }
    let before = lines.data().get(..label.offset().checked_sub(lines.span().offset())?)?;
    let before = String::from_utf8_lossy(before);
    let line = lines.line() + before.matches('\n').count() + 1;
    let column = before.chars().rev().take_while(|&c| c != '\n').count() + 1;
    Some(format!("{}:{line}:{column}", lines.name().unwrap_or("at")))
}

/// Length of the range that is marked: only its first line if it has too many.
fn shown_length(label: &LabeledSpan, source: &dyn SourceCode) -> usize {
    let Ok(text) = source.read_span(label.inner(), 0, 0) else { return label.len() };
    let start = label.offset().saturating_sub(text.span().offset());
    let marked = text.data().get(start..).unwrap_or_default();
    let marked = &marked[..marked.len().min(label.len())];
    match marked.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at).next() {
        Some(first) if marked.iter().filter(|byte| **byte == b'\n').count() >= MAX_LINES => first,
        _ => label.len(),
    }
}

/// Shortens long texts in backticks, since words of a file can have any length.
fn shortened(text: &str) -> String {
    let cut = |part: &str| match part.char_indices().nth(MAX_QUOTED) {
        Some((end, _)) => format!("{}…", &part[..end]),
        None => part.to_owned(),
    };
    let parts =
        text.split('`').enumerate().map(|(index, part)| if index % 2 == 1 { cut(part) } else { part.to_owned() });
    parts.collect::<Vec<_>>().join("`")
}

/// Replaces the characters in backticks at which a line could be broken.
fn joined(text: &str) -> String {
    let replaced = |c: char| match c {
        c if c.is_alphanumeric() => c,
        c => char::from_u32(JOINED + c as u32).filter(|_| (c as u32) < 0xfffe).unwrap_or(c),
    };
    let join = |(index, part): (usize, &str)| match index % 2 {
        0 => part.to_owned(),
        _ => part.chars().map(replaced).collect(),
    };
    text.split('`').enumerate().map(join).collect::<Vec<_>>().join("`")
}

/// Restores the characters that [`joined`] has replaced.
fn restore_joined(text: &str) -> String {
    let original = |c: char| (c as u32).checked_sub(JOINED).filter(|code| *code < 0xfffe).and_then(char::from_u32);
    text.chars().map(|c| original(c).unwrap_or(c)).collect()
}

struct ShownDiagnostic<'a> {
    diagnostic: &'a dyn Diagnostic,
    source: &'a dyn SourceCode,
    message: String,
    help: Option<String>,
    labels: Vec<LabeledSpan>,
}

impl Debug for ShownDiagnostic<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        Debug::fmt(self.diagnostic, f)
    }
}

impl Display for ShownDiagnostic<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ShownDiagnostic<'_> {}

impl Diagnostic for ShownDiagnostic<'_> {
    fn code<'a>(&'a self) -> Option<Box<dyn Display + 'a>> {
        self.diagnostic.code()
    }

    fn severity(&self) -> Option<miette::Severity> {
        self.diagnostic.severity()
    }

    fn help<'a>(&'a self) -> Option<Box<dyn Display + 'a>> {
        self.help.as_ref().map(|help| Box::new(help) as Box<dyn Display>)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        (!self.labels.is_empty()).then(|| Box::new(self.labels.iter().cloned()) as Box<dyn Iterator<Item = _>>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        Some(self.source)
    }
}

#[cfg(test)]
mod tests {
    use thiserror::Error;

    use super::*;
    use crate::base::SourceMap;

    #[derive(Debug, Error, Diagnostic)]
    #[error("this is wrong: {}`--backend host`", "word ".repeat(16))]
    #[diagnostic(code(aorta::test), help("{}`--backend host`", "word ".repeat(17)))]
    struct Wrong {
        #[label("here it is")]
        at: miette::SourceSpan,
    }

    /// The error at the only `x` of a text.
    fn shown(source: &str) -> String {
        let mut sources = SourceMap::new();
        sources.add("first.aorta", "another file").expect("there is room");
        let base = sources.add("a.aorta", source).expect("there is room");
        let at = (base as usize + source.find('x').expect("it is marked"), 1).into();
        text(&Wrong { at }, &sources, Style::default())
    }

    #[test]
    fn a_line_is_shown_unless_it_is_long() {
        let line = |length: usize| format!("step {{\n  o{}x\n}}\n", " ".repeat(length - 4));
        let short = shown(&line(MAX_LINE));
        assert!(
            short.contains("here it is") && short.contains("  o  ") && short.contains("a.aorta:2:1000]"),
            "{short}"
        );
        let long = shown(&line(MAX_LINE + 1));
        assert!(long.contains("a.aorta:2:1001: here it is") && !long.contains("  o  "), "{long}");
        // A long line is not shown as the context of a short one either.
        let beside = shown(&format!("x\n{}", " ".repeat(MAX_LINE + 1)));
        assert!(beside.contains("a.aorta:1:1: here it is") && beside.lines().all(|line| line.len() < 200), "{beside}");
    }

    #[test]
    fn characters_between_backticks_come_back() {
        let text = "a b `on s { … } [é](x) -> y` c `d";
        assert_eq!(restore_joined(&joined(text)), text);
        assert!(joined(text).contains("a b `on") && !joined(text).contains('…'));
    }

    #[test]
    fn source_text_cannot_add_colours() {
        let escapes = |source: &str| {
            let mut sources = SourceMap::new();
            let base = sources.add("a.aorta", source).expect("there is room");
            let at = (base as usize + source.find('x').expect("it is marked"), 1).into();
            text(&Wrong { at }, &sources, Style { color: true, ..Style::default() }).contains('\x1b')
        };
        assert!(escapes("step { x }"));
        // With colours, an escape sequence of the file could not be distinguished from ours.
        assert!(!escapes("step { x } // \x1b[31mred"));
    }

    #[test]
    fn quoted_text_is_not_broken() {
        let text = shown("x");
        assert_eq!(text.matches("`--backend host`").count(), 2, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }
}
