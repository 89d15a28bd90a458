//! A hash table of numbers that needs one memory access per lookup where a general table needs two. With millions of
//! slices, which fit into no cache, these accesses dominate the time.

/// An open-addressing table with linear probing, at most three quarters full.
#[derive(Clone, Debug, Default)]
pub(super) struct Buckets {
    /// Hashes and numbers; the length is a power of two.
    buckets: Vec<(u32, u32)>,
    used: usize,
}

const FREE: (u32, u32) = (0, u32::MAX);

impl Buckets {
    /// Finds a number with this hash that satisfies `same`; `None` if there is none.
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

    /// Adds a number, which must be less than 2³² - 1.
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

    /// First index to probe; `None` if the table is empty.
    fn start(&self, hash: u32) -> Option<usize> {
        let mask = self.buckets.len().checked_sub(1)?;
        Some(hash as usize & mask)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inserted_numbers_are_found() {
        let mut buckets = Buckets::default();
        assert_eq!(buckets.find(7, |_| true), None);
        // A third of the numbers share a hash, and another third share its bucket.
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
