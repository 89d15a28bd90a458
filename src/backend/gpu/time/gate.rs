//! The gate on a device: a one-thread kernel that polls a word in host memory until the host sets it.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::backend::gpu::api::runtime::{Function, Stream};
use crate::backend::gpu::api::{Api, Call};
use crate::base::Nanos;
use crate::exec::{ExecError, Fault};
use crate::ops::{KernelSource, kernel};

/// Time after which a gate opens by itself. The host issues an iteration that fits into the queues in a tenth of it. A
/// host that waits for the device by mistake loses no more than this.
const TIMEOUT: Nanos = Nanos(250_000_000);

/// Number of words of a gate, so that each gate has a cache line of its own. The host sets the first word to open the
/// gate; the kernel sets the second word when it times out.
const WORDS: usize = 32;
const OPEN: usize = 0;
const FORCED: usize = 1;

/// The kernel of a gate, which polls a word in host memory until the host sets it or a time has passed.
pub fn source() -> Arc<KernelSource> {
    let body = "  volatile u32* word = cell;\n  u64 start = WHOLE_CLOCK();\n  while (word[0] == 0u) {\n    \
                if (WHOLE_CLOCK() - start >= ticks) {\n      word[1] = 1u;\n      __threadfence_system();\n      \
                break;\n    }\n  }\n";
    kernel::source("gate", "", &["u32* cell".to_owned(), "u64 ticks".to_owned()], body)
}

/// The gates of a driver, made once.
pub struct Gates {
    function: Function,
    /// Address of the words in pinned memory, the same on host and device.
    cells: u64,
    count: u32,
    /// Arguments of each gate's kernel.
    values: Vec<u64>,
    /// Pointers to the values.
    pointers: Vec<*mut c_void>,
}

impl Gates {
    /// Allocates the words of `count` gates.
    pub fn new<A: Api>(api: &A, function: Function, count: u32) -> Result<Self, Box<Fault>> {
        let cells = api.allocate_pinned(u64::from(count) * 4 * WORDS as u64)?;
        let ticks = api.ticks(TIMEOUT);
        let addresses = (0..u64::from(count)).map(|gate| cells + gate * 4 * WORDS as u64);
        let mut values: Vec<u64> = addresses.flat_map(|address| [address, ticks]).collect();
        let base = values.as_mut_ptr();
        let pointers = (0..values.len()).map(|index| base.wrapping_add(index).cast()).collect();
        let gates = Gates { function, cells, count, values, pointers };
        (0..count).for_each(|gate| gates.word(gate, FORCED).store(0, Ordering::Relaxed));
        Ok(gates)
    }

    fn word(&self, gate: u32, which: usize) -> &AtomicU32 {
        assert!(gate < self.count, "a gate of the image");
        let address = self.cells as usize + 4 * (gate as usize * WORDS + which);
        // SAFETY: the word lies in the gates' memory, which lives as long as they do, and is only accessed atomically.
        unsafe { AtomicU32::from_ptr(address as *mut u32) }
    }

    /// Closes a gate, and launches its kernel on a stream.
    pub fn hold<A: Api>(&mut self, api: &A, gate: u32, stream: Stream) -> Call {
        self.word(gate, FORCED).store(0, Ordering::Relaxed);
        self.word(gate, OPEN).store(0, Ordering::Release);
        let args = self.pointers.as_mut_ptr().wrapping_add(2 * gate as usize);
        debug_assert_eq!(self.values.len(), self.pointers.len());
        // SAFETY: the kernel takes two 64-bit values, which the pointers point to.
        unsafe { api.launch(self.function, [1; 3], [1; 3], 0, stream, args) }
    }

    /// Opens a gate.
    pub fn release(&self, gate: u32) {
        self.word(gate, OPEN).store(1, Ordering::Release);
    }

    /// True if a gate has timed out since it was closed.
    pub fn forced(&self, gate: u32) -> bool {
        self.word(gate, FORCED).load(Ordering::Acquire) != 0
    }

    /// Opens all gates. Called when the host abandons the run, so that the device does not wait.
    pub fn release_all(&self) {
        (0..self.count).for_each(|gate| self.release(gate));
    }

    /// Frees the gates' memory.
    ///
    /// # Safety
    ///
    /// No gate's kernel is running.
    pub unsafe fn free<A: Api>(self, api: &A) {
        // SAFETY: the caller guarantees that no gate uses the memory.
        unsafe { api.free_pinned(self.cells) };
    }
}

/// The error for gates that could not be created.
pub fn failed(fault: &Fault) -> ExecError {
    ExecError::Device { fault: fault.to_string(), help: Some("`--gate off` runs without gates".to_owned()) }
}
