//! Reads a generator's decisions from bytes, so that the same bytes give the same decisions.

/// The unused bytes. Once there are none, every choice is the first option.
#[derive(Default)]
pub struct Choices<'a>(pub &'a [u8]);

impl Choices<'_> {
    /// Returns a number below `count`, which must be at least 1; 0 when the bytes are used up.
    pub fn below(&mut self, count: usize) -> usize {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        usize::from(first) % count
    }

    /// Returns true with probability 1 / `of`; false when the bytes are used up.
    pub fn once_in(&mut self, of: usize) -> bool {
        self.below(of) == of - 1
    }

    /// Returns an element of `items`, which must not be empty; the first one when the bytes are used up.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }
}
