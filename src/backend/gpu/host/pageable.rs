//! Pageable host memory: the space `host`.

use crate::base::Space;
use crate::exec::{Fault, Image};
use crate::ops::{Direction, Launch};

/// Host memory that is not registered with the runtime, aligned to 8 bytes at least.
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

/// The ranges of pageable memory that captured operations use.
///
/// A graph's copy reads pageable memory when the graph is launched, not when the copy is reached: on an H200 with
/// driver 580 it copied data before a host stream had written it (docs/measurements/2026-11-23-unseen-shapes.md). The
/// time at which a copy to such memory completes is not known either. Therefore a graph must not pass data through
/// pageable memory by a copy of the device.
#[derive(Debug, Default)]
pub struct CapturedUses {
    all: Vec<PageableUse>,
}

/// An access of a captured operation to a range of pageable memory, in bytes from its start.
#[derive(Clone, Copy, Debug)]
struct PageableUse {
    begin: u64,
    end: u64,
    writes: bool,
    /// Direction if the operation is a copy by the device; `None` for an operation of a host stream.
    copy: Option<Direction>,
}

impl PageableUse {
    /// True if one of two accesses is a write, the other a read of the same memory, and one of them a copy by the
    /// device.
    fn hands_on(self, other: PageableUse) -> bool {
        self.writes != other.writes
            && (self.copy.is_some() || other.copy.is_some())
            && self.begin < other.end
            && other.begin < self.end
    }
}

impl CapturedUses {
    /// Adds an operation that a graph captures. Fails if it would exchange data with another captured operation through
    /// pageable memory.
    pub fn add(&mut self, image: &Image, op: u32) -> Result<(), Box<Fault>> {
        let op = &image.ops[op as usize];
        let work = &image.works[op.work as usize];
        let copy = work.launches.iter().find_map(|launch| match launch {
            Launch::Copy(copy) => Some(copy.direction),
            _ => None,
        });
        let inputs = work.spec.inputs.iter().map(|tensor| (tensor, false));
        let outputs = work.spec.outputs.iter().map(|tensor| (tensor, true));
        for ((tensor, writes), place) in inputs.chain(outputs).zip(image.operands(op)) {
            if place.space != Space::Host {
                continue;
            }
            let own = PageableUse { begin: place.offset, end: place.offset + tensor.reach(), writes, copy };
            if self.all.iter().any(|other| own.hands_on(*other)) {
                let why = "a graph copies memory in `host` when it is launched, before its other operations have written it: \
                           declare the buffer `in pinned`";
                return Err(Fault::new("capture", why));
            }
            self.all.push(own);
        }
        Ok(())
    }
}
