//! Pageable host memory: the space `host`.

/// Host memory that is not registered with the runtime, aligned as allocations are.
pub struct Pageable {
    pub words: Vec<u64>,
}

impl Pageable {
    /// A range of the memory, in bytes.
    pub fn bytes_mut(&mut self, offset: usize, bytes: usize) -> &mut [u8] {
        // SAFETY: words are plain bytes, and the index panics if the slice is out of range.
        let all = unsafe { std::slice::from_raw_parts_mut(self.words.as_mut_ptr().cast::<u8>(), self.words.len() * 8) };
        &mut all[offset..offset + bytes]
    }
}
