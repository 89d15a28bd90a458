//! Properties of devices by number or by offset: HIP's attributes, and its structure of properties.

use crate::device::{CACHE, CLOCK_HZ, SHARED, UNITS, WAVE};

/// Whether host and device reach managed memory at the same time: not with `HIP_DOUBLE_UNMANAGED`.
fn shares_managed() -> bool {
    std::env::var_os("HIP_DOUBLE_UNMANAGED").is_none()
}

/// The value of a `hipDeviceAttribute_t`; nothing for one that says nothing about a CPU.
pub fn attribute(number: i32, index: i32) -> Option<i32> {
    Some(match number {
        2 => 0,                             // asynchronous engines: none, streams copy by themselves
        5 | 59 | 60 => 0,                   // clocks and bus width, unknown
        8 => 1,                             // concurrent kernels
        10 | 78 | 88 | 10_013 => 0,         // cooperative launch, priorities, pools, waits for values: none
        9 => i32::from(shares_managed()),   // managed memory of host and device at the same time
        16 => 1,                            // integrated: its memory is the host's
        19 => CACHE,                        // last cache
        23 | 61 => 0,                       // compute capability
        25 => 1,                            // blocks of a multiprocessor
        26..=28 | 56 | 57 => 1024,          // threads of a block, and of a multiprocessor
        29..=31 => i32::MAX,                // blocks of a grid
        63 | 10_015 => UNITS,               // multiprocessors
        67 => index,                        // PCI bus
        68 => 0,                            // PCI device
        69 => 0xffff,                       // PCI domain
        74..=76 | 10_002 => SHARED,         // shared memory
        85 => 1,                            // unified addressing
        87 => WAVE as i32,                  // threads of a wave
        10_017 => (CLOCK_HZ / 1000) as i32, // kilohertz of the clock that kernels see
        _ => return None,
    })
}

/// `hipDeviceProp_t`: what is said of it, by place.
pub mod property {
    use crate::device::{ARCHITECTURE, CACHE, NAME, SHARED, UNITS, WAVE, memory_bytes};

    /// Offsets of the fields in one version of the structure.
    pub struct Places {
        bytes: usize,
        total: usize,
        shared: usize,
        wave: usize,
        block: usize,
        units: usize,
        bus: usize,
        cache: Option<usize>,
        architecture: usize,
    }

    /// From HIP 6.0 on.
    pub const R0600: Places = Places {
        bytes: 1472,
        total: 288,
        shared: 296,
        wave: 308,
        block: 320,
        units: 388,
        bus: 584,
        cache: Some(616),
        architecture: 1160,
    };

    /// Before, and in later libraries under the old name.
    pub const OLD: Places = Places {
        bytes: 792,
        total: 256,
        shared: 264,
        wave: 276,
        block: 280,
        units: 336,
        bus: 368,
        cache: None,
        architecture: 396,
    };

    /// # Safety
    /// There is room for the structure.
    pub unsafe fn fill(to: *mut u8, places: &Places, index: i32) {
        // SAFETY: every place lies in the structure, for which there is room.
        unsafe {
            to.write_bytes(0, places.bytes);
            let text = |text: &str, at: usize| to.add(at).copy_from_nonoverlapping(text.as_ptr(), text.len());
            let number = |value: i32, at: usize| to.add(at).cast::<i32>().write_unaligned(value);
            text(NAME, 0);
            text(ARCHITECTURE, places.architecture);
            to.add(places.total).cast::<u64>().write_unaligned(memory_bytes());
            to.add(places.shared).cast::<u64>().write_unaligned(SHARED as u64);
            number(WAVE as i32, places.wave);
            number(1024, places.block);
            number(UNITS, places.units);
            number(index, places.bus);
            places.cache.iter().for_each(|&at| number(CACHE, at));
        }
    }
}
