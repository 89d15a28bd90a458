//! Made-up noise for tests, whose figures the book has: the same on every machine.

use crate::base::random;

/// Random numbers; the first number says where in the one long series of them it begins.
pub struct Random(pub u64);

impl Random {
    /// A number between 0 and 1, never 0.
    pub fn uniform(&mut self) -> f64 {
        self.0 += 1;
        ((random::hash(17, self.0) >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// A number of the normal distribution with the mean 0 and the standard deviation 1.
    pub fn normal(&mut self) -> f64 {
        (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }
}
