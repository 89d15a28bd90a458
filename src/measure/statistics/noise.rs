//! Deterministic random noise for tests and for the book's tables.

use crate::base::random;

/// Random numbers. The value is the position in a fixed sequence.
pub struct Random(pub u64);

impl Random {
    /// Next uniformly distributed number in (0, 1).
    pub fn uniform(&mut self) -> f64 {
        self.0 += 1;
        ((random::hash(17, self.0) >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// Next normally distributed number, with mean 0 and standard deviation 1.
    pub fn normal(&mut self) -> f64 {
        (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }
}
