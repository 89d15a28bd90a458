//! Streams restricted to some compute units by a CU mask, which has a bit for each unit.
//!
//! On a device with several XCDs, the kernel driver distributes the bits of a mask round-robin: bit i is a unit of XCD
//! i modulo the number of XCDs. So a range of consecutive bits is balanced if its length is a multiple of that number.

use std::sync::atomic::Ordering;

use crate::backend::gpu::runtime::Stream;
use crate::backend::gpu::{Api, Call, UnitRange};
use crate::model::Priority;

use super::Hip;
use super::driver::number;

/// Returns the words of a CU mask, which has a bit for each unit of the device.
fn words(part: UnitRange, units: u32) -> Vec<u32> {
    let mut words = vec![0; units.div_ceil(32).max(1) as usize];
    for unit in part.first..(part.first + part.count).min(units) {
        words[unit as usize / 32] |= 1 << (unit % 32);
    }
    words
}

fn counted(words: &[u32]) -> u32 {
    words.iter().map(|word| word.count_ones()).sum()
}

impl Hip {
    /// Creates a stream with a CU mask, and reads the mask back; `None` if the runtime does not support masks.
    pub(super) fn masked_stream(&self, priority: Priority, part: UnitRange) -> Call<Option<Stream>> {
        let wanted = words(part, self.units());
        let mut stream: Stream = std::ptr::null_mut();
        let create = self.driver.table.stream_create_masked;
        // SAFETY: both pointers are valid for the call, and there are as many words as stated.
        let code = unsafe { create(&mut stream, wanted.len() as u32, wanted.as_ptr()) };
        if code == number::NOT_SUPPORTED {
            return Ok(None);
        }
        self.check("hipExtStreamCreateWithCUMask", code)?;
        self.streams.fetch_add(1, Ordering::Relaxed);
        self.masked.store(true, Ordering::Relaxed);
        let mut read = vec![0; wanted.len()];
        // SAFETY: there is room for as many words as stated, and the stream was made just now.
        let code = unsafe { (self.driver.table.stream_mask)(stream, read.len() as u32, read.as_mut_ptr()) };
        let difference = match code {
            0 if read == wanted => None,
            // If a mask is set for the whole process, runtimes return an empty mask.
            0 if counted(&read) == 0 => Some("the runtime does not report it".to_owned()),
            0 => Some(format!("the runtime reports a mask of {} units", counted(&read))),
            code => Some(format!("the runtime does not report it ({code})")),
        };
        if let Some(difference) = difference {
            self.note(format!("a stream with a mask of {} units: {difference}; not proven to hold", counted(&wanted)));
        }
        if priority != Priority::Normal {
            self.note(format!("a stream with a mask has no priority on HIP: `{}` is left out", priority.name()));
        }
        Ok(Some(stream))
    }

    /// Adds a note if a stream has a mask, since the branches of a graph run on streams without masks.
    pub(super) fn note_masks_in_graphs(&self) {
        if self.masked.load(Ordering::Relaxed) {
            self.note(
                "a graph's branches run on streams of the runtime's own, which have no masks: `units` are not proven to \
                 hold in a graph"
                    .to_owned(),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_has_a_bit_for_each_unit() {
        assert_eq!(words(UnitRange { first: 0, count: 8 }, 304)[..2], [0xff, 0]);
        assert_eq!(words(UnitRange { first: 0, count: 8 }, 304).len(), 10);
        assert_eq!(words(UnitRange { first: 24, count: 16 }, 64), [0xff00_0000, 0xff]);
        assert_eq!(words(UnitRange { first: 0, count: 99 }, 4), [0xf], "no more than there are");
        // A part has the same number of units on each of 8 chips, and so has every other part.
        let chips = |part: UnitRange| {
            let mut chips = [0; 8];
            let words = words(part, 304);
            (0..304).filter(|unit| words[unit / 32] >> (unit % 32) & 1 == 1).for_each(|unit| chips[unit % 8] += 1);
            chips
        };
        assert_eq!(chips(UnitRange { first: 80, count: 80 }), [10; 8]);
    }
}
