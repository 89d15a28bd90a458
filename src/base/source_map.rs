//! The source texts of a run in one space of offsets.

use std::sync::Arc;

use miette::{MietteError, MietteSpanContents, SourceCode, SourceSpan, SpanContents};

use super::SrcSpan;

#[derive(Clone, Debug)]
struct Source {
    name: String,
    text: Arc<str>,
    start: u32,
    /// Offset of each line, for a fast lookup of line numbers.
    lines: Vec<u32>,
}

/// Every file that a run has read, concatenated. A [`SrcSpan`] is an offset into the whole.
#[derive(Clone, Debug, Default)]
pub struct SourceMap {
    sources: Vec<Source>,
}

impl SourceMap {
    /// Creates an empty map.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a text and returns the offset of its first byte; `None` if the map is full (4 GiB).
    pub fn add(&mut self, name: impl Into<String>, text: impl Into<Arc<str>>) -> Option<u32> {
        // A byte separates files, so that the end of one is not the start of the next.
        let start = match self.sources.last() {
            None => 0,
            Some(last) => u32::try_from(last.start as usize + last.text.len() + 1).ok()?,
        };
        let text = text.into();
        u32::try_from(start as usize + text.len()).ok()?;
        let ends = text.bytes().enumerate().filter(|&(_, byte)| byte == b'\n');
        let lines = std::iter::once(0).chain(ends.map(|(index, _)| index as u32 + 1)).collect();
        self.sources.push(Source { name: name.into(), text, start, lines });
        Some(start)
    }

    fn source(&self, offset: u32) -> Option<&Source> {
        let after = self.sources.partition_point(|source| source.start <= offset);
        let source = self.sources.get(after.checked_sub(1)?)?;
        (offset as usize <= source.start as usize + source.text.len()).then_some(source)
    }

    /// Text of a span; empty if it lies outside of every file.
    pub fn text(&self, span: SrcSpan) -> &str {
        self.source(span.start)
            .and_then(|source| {
                let from = (span.start - source.start) as usize;
                source.text.get(from..from + span.len as usize)
            })
            .unwrap_or("")
    }

    /// The text that a span covers on one line, with single spaces in place of white space.
    pub fn one_line(&self, span: SrcSpan) -> String {
        self.text(span).split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// Rest of the line from an offset on; empty outside of every file.
    pub fn rest_of_line(&self, offset: u32) -> &str {
        let rest = self.source(offset).and_then(|source| source.text.get((offset - source.start) as usize..));
        rest.and_then(|rest| rest.lines().next()).unwrap_or("")
    }

    /// Source location of an offset; `None` outside of every file.
    pub fn locate(&self, offset: u32) -> Option<SourceLocation<'_>> {
        let source = self.source(offset)?;
        let offset = offset - source.start;
        let (line, column) = source.line_column(offset);
        Some(SourceLocation { file: &source.name, line, column, offset: offset as usize })
    }

    /// Formats the start of a span as `file:line:column`, for messages and records.
    pub fn place(&self, span: SrcSpan) -> String {
        let text = |SourceLocation { file, line, column, .. }: SourceLocation<'_>| format!("{file}:{line}:{column}");
        self.locate(span.start).map_or_else(String::new, text)
    }
}

/// Source location in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceLocation<'a> {
    pub file: &'a str,
    /// Line, counted from 1.
    pub line: usize,
    /// Column in characters, counted from 1.
    pub column: usize,
    /// Offset in bytes of the file.
    pub offset: usize,
}

impl Source {
    fn line_column(&self, offset: u32) -> (usize, usize) {
        let line = self.lines.partition_point(|&start| start <= offset);
        let start = self.lines[line - 1] as usize;
        let before = self.text.get(start..offset as usize).unwrap_or("");
        (line, before.chars().count() + 1)
    }
}

impl SourceCode for SourceMap {
    fn read_span<'a>(
        &'a self,
        span: &SourceSpan,
        before: usize,
        after: usize,
    ) -> Result<Box<dyn SpanContents<'a> + 'a>, MietteError> {
        let source =
            u32::try_from(span.offset()).ok().and_then(|offset| self.source(offset)).ok_or(MietteError::OutOfBounds)?;
        let start = source.start as usize;
        let local: SourceSpan = (span.offset() - start, span.len()).into();
        let inner = source.text.as_ref().read_span(&local, before, after)?;
        // Columns count characters, as those of `locate`.
        // A span may begin within a character, and a slice may not.
        let first = (0..=inner.span().offset()).rev().find(|&at| source.text.is_char_boundary(at));
        let before = &source.text[..first.unwrap_or(0)];
        let column = before.chars().rev().take_while(|char| *char != '\n').count();
        let moved: SourceSpan = (inner.span().offset() + start, inner.span().len()).into();
        Ok(Box::new(MietteSpanContents::new_named(
            source.name.clone(),
            inner.data(),
            moved,
            inner.line(),
            column,
            inner.line_count(),
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_in_two_files() {
        let mut map = SourceMap::new();
        let first = map.add("a.aorta", "one\ntwo").unwrap();
        let second = map.add("b.aorta", "drei\nvier").unwrap();
        let two = SrcSpan::new(first as usize + 4, first as usize + 7);
        let vier = SrcSpan::new(second as usize + 5, second as usize + 9);
        assert_eq!(map.place(two), "a.aorta:2:1");
        assert_eq!(map.text(two), "two");
        assert_eq!(map.place(vier), "b.aorta:2:1");
        assert_eq!(map.text(vier), "vier");
    }

    #[test]
    fn a_span_may_begin_within_a_character() {
        let mut map = SourceMap::new();
        map.add("a.aorta", "süß").unwrap();
        let read = map.read_span(&(2, 1).into(), 0, 0).unwrap();
        assert_eq!(read.column(), 1);
    }
}
