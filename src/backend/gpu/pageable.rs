//! A space of the host's ordinary memory.

/// Host memory that the runtime knows nothing of, aligned as allocations are.
pub struct Pageable {
    pub words: Vec<u64>,
}

impl Pageable {
    /// A stretch of it, in bytes.
    pub fn bytes_mut(&mut self, offset: usize, bytes: usize) -> &mut [u8] {
        // SAFETY: words are plain bytes, and the slice that is taken lies inside of them or the index panics.
        let all = unsafe { std::slice::from_raw_parts_mut(self.words.as_mut_ptr().cast::<u8>(), self.words.len() * 8) };
        &mut all[offset..offset + bytes]
    }
}
