//! Memory that threads share without `unsafe`.
//!
//! A schedule orders conflicting accesses, but a file may permit races, and several threads may write neighbouring
//! bytes. Therefore memory consists of atomic words, and a write to some bytes of a word leaves the other bytes
//! unchanged.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::backend::exhausted::may_be_refused;

/// A range of memory, addressed by byte offsets from 0.
#[derive(Debug, Default)]
pub struct HostMemory {
    words: Vec<AtomicU32>,
}

impl HostMemory {
    /// Allocates memory of which every byte is `poison`; `None` if the system does not have enough.
    pub fn new(bytes: u64, poison: u8) -> Option<HostMemory> {
        let count = usize::try_from(bytes.div_ceil(4)).ok()?;
        let mut words = Vec::new();
        may_be_refused(|| words.try_reserve_exact(count)).ok()?;
        let word = u32::from_le_bytes([poison; 4]);
        words.extend((0..count).map(|_| AtomicU32::new(word)));
        Some(HostMemory { words })
    }

    /// Sets every byte.
    pub fn fill(&self, value: u8) {
        let word = u32::from_le_bytes([value; 4]);
        self.words.iter().for_each(|place| place.store(word, Ordering::Relaxed));
    }

    /// Reads `out.len()` bytes from `offset` on.
    pub fn load(&self, offset: u64, out: &mut [u8]) {
        let mut at = offset as usize;
        let mut rest = out;
        while !rest.is_empty() {
            let word = self.words[at / 4].load(Ordering::Relaxed).to_le_bytes();
            let from = at % 4;
            let count = (4 - from).min(rest.len());
            rest[..count].copy_from_slice(&word[from..from + count]);
            rest = &mut rest[count..];
            at += count;
        }
    }

    /// Writes bytes from `offset` on.
    pub fn store(&self, offset: u64, bytes: &[u8]) {
        let mut at = offset as usize;
        let mut rest = bytes;
        while !rest.is_empty() {
            let from = at % 4;
            let count = (4 - from).min(rest.len());
            let cell = &self.words[at / 4];
            let mut word = [0; 4];
            word[from..from + count].copy_from_slice(&rest[..count]);
            let word = u32::from_le_bytes(word);
            if count == 4 {
                cell.store(word, Ordering::Relaxed);
            } else {
                let mut mask = [0; 4];
                mask[from..from + count].fill(0xff);
                // Two atomic steps, neither of which affects the other bytes of the word.
                cell.fetch_and(!u32::from_le_bytes(mask), Ordering::Relaxed);
                cell.fetch_or(word, Ordering::Relaxed);
            }
            rest = &rest[count..];
            at += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_at_any_place() {
        let memory = HostMemory::new(12, 0xff).unwrap();
        memory.store(3, &[1, 2, 3, 4, 5, 6]);
        let mut out = [0; 12];
        memory.load(0, &mut out);
        assert_eq!(out, [255, 255, 255, 1, 2, 3, 4, 5, 6, 255, 255, 255]);
        let mut part = [0; 3];
        memory.load(4, &mut part);
        assert_eq!(part, [2, 3, 4]);
    }
}
