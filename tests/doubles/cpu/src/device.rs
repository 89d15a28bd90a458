//! The devices that there are, which of them a thread uses, and what has gone wrong on each.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

use crate::status::{Done, INVALID_DEVICE, Status};

/// The name says what this is.
pub const NAME: &str = "HIP double on a CPU, not an AMD GPU";

/// The name that ROCm's own tools use for a processor that is not a GPU.
pub const ARCHITECTURE: &str = "gfx000";

/// Ticks of the clock that kernels see, per second: those of an MI300X, so that a wrong factor shows.
pub const CLOCK_HZ: u64 = 100_000_000;

/// Threads that shuffle with each other.
pub const WAVE: u32 = 64;

/// Blocks that run at once are one for each stream; a schedule needs a number all the same.
pub const UNITS: i32 = 4;

/// Dynamic and static shared memory of a block together: what the wave's own hardware has.
pub const SHARED: i32 = 64 << 10;

pub const CACHE: i32 = 1 << 20;

#[derive(Default)]
pub struct Device {
    /// The error of a kernel that failed; nothing runs afterwards.
    failed: AtomicI32,
}

impl Device {
    pub fn check(&self) -> Done {
        match self.failed.load(Ordering::Acquire) {
            0 => Ok(()),
            status => Err(status),
        }
    }

    pub fn fail(&self, status: Status) {
        // The first error is the one that is told.
        let _ = self.failed.compare_exchange(0, status, Ordering::AcqRel, Ordering::Acquire);
    }
}

/// Two unless `HIP_DOUBLE_DEVICES` says another number.
pub fn all() -> &'static [Device] {
    static DEVICES: OnceLock<Vec<Device>> = OnceLock::new();
    DEVICES.get_or_init(|| {
        let count = std::env::var("HIP_DOUBLE_DEVICES").ok().and_then(|text| text.parse().ok()).unwrap_or(2);
        (0..count).map(|_| Device::default()).collect()
    })
}

/// Bytes of each device's memory: 8 GiB unless `HIP_DOUBLE_MEMORY` says another number.
pub fn memory_bytes() -> u64 {
    static BYTES: OnceLock<u64> = OnceLock::new();
    let given = || std::env::var("HIP_DOUBLE_MEMORY").ok().and_then(|text| text.parse().ok());
    *BYTES.get_or_init(|| given().unwrap_or(8 << 30))
}

pub fn get(index: i32) -> Done<&'static Device> {
    usize::try_from(index).ok().and_then(|index| all().get(index)).ok_or(INVALID_DEVICE)
}

thread_local! {
    static CURRENT: Cell<i32> = const { Cell::new(0) };
    static LAST: Cell<Status> = const { Cell::new(0) };
}

pub fn current() -> i32 {
    CURRENT.get()
}

pub fn set_current(index: i32) -> Done {
    get(index)?;
    CURRENT.set(index);
    Ok(())
}

/// The last error of a call by this thread, which is forgotten.
pub fn take_last() -> Status {
    LAST.replace(0)
}

pub fn peek_last() -> Status {
    LAST.get()
}

/// Converts a result to the status that a call returns.
pub fn returned(done: Done) -> Status {
    let status = done.err().unwrap_or(0);
    if status != 0 && status != crate::status::NOT_READY {
        LAST.set(status);
    }
    status
}
