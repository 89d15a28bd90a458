//! Random choices that are the same on every machine.

use aorta::base::random::hash;

/// A sequence of choices determined by its seed.
#[derive(Clone, Debug)]
pub struct Random {
    seed: u64,
    count: u64,
}

impl Random {
    pub fn new(seed: u64) -> Random {
        Random { seed, count: 0 }
    }

    fn next(&mut self) -> u64 {
        self.count += 1;
        hash(self.seed, self.count)
    }

    /// A number below `count`.
    pub fn below(&mut self, count: usize) -> usize {
        (self.next() % count.max(1) as u64) as usize
    }

    /// A number of the range, both ends included.
    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.next() % (to - from + 1)
    }

    /// Returns true with probability 1 / `count`.
    pub fn once_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    pub fn of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())].clone()
    }
}
