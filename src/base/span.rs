//! Ranges of source text.

/// A range of source text: an offset into the [`SourceMap`](super::SourceMap) of all files, so that one diagnostic may
/// refer to several of them. Lengths and offsets are in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SrcSpan {
    pub start: u32,
    pub len: u32,
}

impl SrcSpan {
    pub fn new(start: usize, end: usize) -> Self {
        SrcSpan { start: start as u32, len: end.saturating_sub(start) as u32 }
    }

    /// Offset after the last byte.
    pub fn end(self) -> u32 {
        self.start + self.len
    }

    /// Returns the range from the start of `self` to the end of `other`.
    pub fn to(self, other: SrcSpan) -> SrcSpan {
        SrcSpan::new(self.start as usize, other.end().max(self.end()) as usize)
    }
}

impl From<SrcSpan> for miette::SourceSpan {
    fn from(span: SrcSpan) -> Self {
        (span.start as usize, span.len as usize).into()
    }
}
