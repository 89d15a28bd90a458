//! Decisions of a generator, read from bytes: the same bytes give the same decisions.

/// Bytes that have not been used yet. When none is left, every choice is the first one.
#[derive(Default)]
pub struct Choices<'a>(pub &'a [u8]);

impl Choices<'_> {
    /// A number below `count`, which is at least 1; 0 when the bytes are used up.
    pub fn below(&mut self, count: usize) -> usize {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        usize::from(first) % count
    }

    /// True once in `of` times; false when the bytes are used up.
    pub fn once_in(&mut self, of: usize) -> bool {
        self.below(of) == of - 1
    }

    /// One of `items`, which are not empty.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }
}
