//! Numbers by hash. Finding a place and filling it is one look at memory, where a general table takes two: with
//! millions of slices, which no cache holds, that is where the time goes.

/// An open table, at most three quarters full, that is gone through from a hash's place to the next one that is free.
#[derive(Debug, Default)]
pub(super) struct Buckets {
    /// Hashes and numbers; a power of two of them.
    buckets: Vec<(u32, u32)>,
    used: usize,
}

const FREE: (u32, u32) = (0, u32::MAX);

impl Buckets {
    /// The number of that hash for which `same` holds.
    pub fn find(&self, hash: u32, same: impl Fn(u32) -> bool) -> Option<u32> {
        let mut at = self.start(hash)?;
        loop {
            match self.buckets[at] {
                FREE => return None,
                (other, number) if other == hash && same(number) => return Some(number),
                _ => at = (at + 1) & (self.buckets.len() - 1),
            }
        }
    }

    /// Adds a number, which has to be less than 2³² - 1.
    pub fn insert(&mut self, hash: u32, number: u32) {
        if 4 * (self.used + 1) > 3 * self.buckets.len() {
            let size = (2 * self.buckets.len()).max(16);
            for (hash, number) in std::mem::replace(&mut self.buckets, vec![FREE; size]) {
                if (hash, number) != FREE {
                    self.put(hash, number);
                }
            }
        }
        self.put(hash, number);
        self.used += 1;
    }

    fn put(&mut self, hash: u32, number: u32) {
        let Some(mut at) = self.start(hash) else { return };
        while self.buckets[at] != FREE {
            at = (at + 1) & (self.buckets.len() - 1);
        }
        self.buckets[at] = (hash, number);
    }

    /// Where to look first; nothing in an empty table.
    fn start(&self, hash: u32) -> Option<usize> {
        let mask = self.buckets.len().checked_sub(1)?;
        Some(hash as usize & mask)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_in_is_found() {
        let mut buckets = Buckets::default();
        assert_eq!(buckets.find(7, |_| true), None);
        // A third of them have a hash in common, and another third the place of the first.
        let hash = |number: u32| if number.is_multiple_of(3) { number } else { number % 3 * (1 << 20) };
        for number in 0..1000 {
            buckets.insert(hash(number), number);
        }
        for number in 0..1000 {
            assert_eq!(buckets.find(hash(number), |other| other == number), Some(number));
        }
        assert_eq!(buckets.find(5, |_| true), None);
        assert!(buckets.buckets.len().is_power_of_two());
    }
}
