//! A source of random choices.

use aorta::base::random::hash;

/// Numbers that a seed determines.
pub struct Draws {
    seed: u64,
    drawn: u64,
}

impl Draws {
    pub fn new(seed: u64) -> Draws {
        Draws { seed, drawn: 0 }
    }

    /// A number from 0 to below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.drawn += 1;
        hash(self.seed, self.drawn) % limit
    }

    pub fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}
