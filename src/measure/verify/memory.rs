//! The host's copy of a rank's memory, used to compute reference results.

use crate::base::{DType, Space, parallel};
use crate::exec::{Address, Fill, ReferenceProgram};
use crate::ops::{Tensor, TensorBytes, contiguous_runs};

/// Bytes that are initialized as one unit of parallel work.
const PIECE: usize = 1 << 22;

/// Memory of all spaces.
pub struct VerifiedMemory {
    spaces: [Vec<u8>; Space::COUNT],
}

impl VerifiedMemory {
    /// Returns the memory with its initial contents.
    pub fn new(inspected: &ReferenceProgram) -> VerifiedMemory {
        // The first write to a page is slow, so all cores share the initialization.
        let mut memory = VerifiedMemory { spaces: inspected.bytes.map(|bytes| vec![0; bytes as usize]) };
        for space in &mut memory.spaces {
            parallel::each(space.chunks_mut(PIECE).collect(), |piece| piece.fill(DType::POISON));
        }
        inspected.fills.iter().for_each(|fill| memory.fill(fill));
        memory
    }

    fn fill(&mut self, fill: &Fill) {
        let size = fill.dtype.size() as usize;
        let bytes = self.bytes_mut(Address { space: fill.space, offset: fill.offset }, fill.elements * size as u64);
        let pieces = bytes.chunks_mut(PIECE).enumerate().collect();
        parallel::each(pieces, |(piece, bytes): (usize, &mut [u8])| {
            for (index, element) in (piece * PIECE / size..).zip(bytes.chunks_exact_mut(size)) {
                fill.dtype.store(fill.init.value(fill.dtype, index as u64), element);
            }
        });
    }

    /// Bytes from an address on.
    pub fn bytes(&self, at: Address, bytes: u64) -> &[u8] {
        &self.spaces[at.space.index()][at.offset as usize..][..bytes as usize]
    }

    fn bytes_mut(&mut self, at: Address, bytes: u64) -> &mut [u8] {
        &mut self.spaces[at.space.index()][at.offset as usize..][..bytes as usize]
    }

    /// The tensors at these addresses.
    pub fn elements<'a>(&'a self, tensors: &[Tensor], places: &[Address]) -> Vec<TensorBytes<'a>> {
        let pairs = tensors.iter().zip(places);
        pairs.map(|(tensor, at)| TensorBytes { tensor: *tensor, bytes: self.bytes(*at, tensor.reach()) }).collect()
    }

    /// Copies a tensor into this memory, without the gaps between its rows.
    pub fn store(&mut self, elements: &TensorBytes, at: Address) {
        let size = elements.tensor.dtype.size();
        let (length, starts) = contiguous_runs(&elements.tensor);
        let to = self.bytes_mut(at, elements.tensor.reach());
        for start in starts {
            let stretch = (start * size) as usize..((start + length) * size) as usize;
            let (to, from) = (&mut to[stretch.clone()], &elements.bytes[stretch]);
            match to.len() > PIECE {
                true => parallel::each(to.chunks_mut(PIECE).zip(from.chunks(PIECE)).collect(), |(to, from)| {
                    to.copy_from_slice(from);
                }),
                false => to.copy_from_slice(from),
            }
        }
    }
}
