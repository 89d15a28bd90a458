//! Devices: which one a thread uses, and what HIP's numbers and structures say of it.

use std::cell::Cell;
use std::ffi::{c_char, c_int};
use std::sync::OnceLock;

use crate::cuda::{Cuda, Handle};

/// HIP's numbers are CUDA's, where both have an error.
pub const INVALID_VALUE: c_int = 1;
pub const NO_DEVICE: c_int = 100;
pub const INVALID_DEVICE: c_int = 101;
pub const NOT_SUPPORTED: c_int = 801;

/// Most devices of one machine.
const MOST: usize = 64;

thread_local! {
    static CURRENT: Cell<c_int> = const { Cell::new(-1) };
    static LAST: Cell<c_int> = const { Cell::new(0) };
}

/// The thread's device: the first one where it has named none, as in HIP.
pub fn current() -> c_int {
    CURRENT.get().max(0)
}

pub fn set_current(cuda: &Cuda, index: c_int) -> c_int {
    let context = match context(cuda, index) {
        Ok(context) => context,
        Err(code) => return code,
    };
    // SAFETY: the context was retained, and is never released.
    let code = unsafe { (cuda.context_set)(context as Handle) };
    if code == 0 {
        CURRENT.set(index);
    }
    code
}

/// Lets a thread that has named no device have the first.
#[inline]
pub fn ensure(cuda: &Cuda) {
    if CURRENT.get() < 0 {
        set_current(cuda, 0);
    }
}

/// A device's context, as a number.
pub fn context(cuda: &Cuda, index: c_int) -> Result<usize, c_int> {
    static CONTEXTS: [OnceLock<usize>; MOST] = [const { OnceLock::new() }; MOST];
    let Some(place) = usize::try_from(index).ok().and_then(|index| CONTEXTS.get(index)) else {
        return Err(INVALID_DEVICE);
    };
    if let Some(&context) = place.get() {
        return Ok(context);
    }
    let mut context: Handle = std::ptr::null_mut();
    // SAFETY: the output pointer is valid for the call; a device that is not there is refused.
    match unsafe { (cuda.context_retain)(&mut context, index) } {
        0 => Ok(*place.get_or_init(|| context as usize)),
        code => Err(code),
    }
}

/// Keeps what a call returned for `hipGetLastError`.
#[inline]
pub fn returned(code: c_int) -> c_int {
    if code != 0 && code != 600 {
        LAST.set(code);
    }
    code
}

pub fn take_last() -> c_int {
    LAST.replace(0)
}

pub fn raw_attribute(cuda: &Cuda, number: c_int, index: c_int) -> Option<c_int> {
    let mut value = 0;
    // SAFETY: the output pointer is valid for the call.
    (unsafe { (cuda.device_attribute)(&mut value, number, index) } == 0).then_some(value)
}

/// The value of a `hipDeviceAttribute_t`.
pub fn attribute(cuda: &Cuda, number: c_int, index: c_int) -> Option<c_int> {
    let cuda_number = match number {
        0 => 32,                // error correction
        2 => 40,                // asynchronous engines
        5 => 13,                // clock rate
        8 => 31,                // concurrent kernels
        9 => 89,                // managed memory of host and device at the same time
        16 => 18,               // integrated
        19 => 38,               // last cache
        23 => 75,               // compute capability, major
        61 => 76,               // and minor
        26..=28 => number - 24, // dimensions of a block
        29..=31 => number - 24, // and of a grid
        56 => 1,                // threads of a block
        57 => 39,               // threads of a multiprocessor
        59 => 37,               // bus width
        60 => 36,               // memory clock
        63 | 10_015 => 16,      // multiprocessors
        67 => 33,               // PCI bus
        68 => 34,               // PCI device
        69 => 50,               // PCI domain
        // A block can use all shared memory without opting in, as on AMD's devices: `hipModuleGetFunction` opts in.
        74 | 75 => 97,
        76 | 10_002 => 81, // shared memory of a multiprocessor
        78 => 78,          // priorities
        85 => 41,          // unified addressing
        87 => 10,          // threads of a warp
        // Cooperative launches, pools and waits for values are not forwarded.
        10 | 88 | 10_013 => return Some(0),
        // Kernels see a clock that counts nanoseconds: the number is in kilohertz.
        10_017 => return Some(1_000_000),
        _ => return None,
    };
    raw_attribute(cuda, cuda_number, index)
}

/// "HIP double on NVIDIA H200, not an AMD GPU".
pub fn name(cuda: &Cuda, index: c_int) -> Result<String, c_int> {
    let mut name = [0u8; 256];
    // SAFETY: the buffer has the size that is told.
    let code = unsafe { (cuda.device_name)(name.as_mut_ptr().cast::<c_char>(), 256, index) };
    if code != 0 {
        return Err(code);
    }
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(0);
    Ok(format!("HIP double on {}, not an AMD GPU", String::from_utf8_lossy(&name[..end])))
}

/// `gfx000:sm_90`: what ROCm calls a processor that is no GPU of AMD's, with what it is.
pub fn architecture(cuda: &Cuda, index: c_int) -> String {
    let part = |number| raw_attribute(cuda, number, index).unwrap_or(0);
    format!("gfx000:sm_{}{}", part(75), part(76))
}

/// Offsets of the fields in one version of `hipDeviceProp_t`.
pub struct Places {
    bytes: usize,
    total: usize,
    shared: usize,
    warp: usize,
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
    warp: 308,
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
    warp: 276,
    block: 280,
    units: 336,
    bus: 368,
    cache: None,
    architecture: 396,
};

/// Fills the structure of properties.
///
/// # Safety
/// There is room for the structure.
pub unsafe fn properties(cuda: &Cuda, to: *mut u8, places: &Places, index: c_int) -> c_int {
    let name = match name(cuda, index) {
        Ok(name) => name,
        Err(code) => return code,
    };
    let architecture = architecture(cuda, index);
    let of = |number| attribute(cuda, number, index).unwrap_or(0);
    let mut total = 0usize;
    // SAFETY: every place lies in the structure, for which there is room; the texts are shorter than their fields.
    unsafe {
        (cuda.device_memory)(&mut total, index);
        to.write_bytes(0, places.bytes);
        let text = |text: &str, at: usize| to.add(at).copy_from_nonoverlapping(text.as_ptr(), text.len().min(255));
        let number = |value: c_int, at: usize| to.add(at).cast::<c_int>().write_unaligned(value);
        text(&name, 0);
        text(&architecture, places.architecture);
        to.add(places.total).cast::<usize>().write_unaligned(total);
        to.add(places.shared).cast::<usize>().write_unaligned(of(74).max(0) as usize);
        number(of(87), places.warp);
        number(of(56), places.block);
        number(of(63), places.units);
        number(of(67), places.bus);
        places.cache.iter().for_each(|&at| number(of(19), at));
    }
    0
}
