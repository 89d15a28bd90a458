//! What the operating system says of the machine, and what it was told of this process.

use std::sync::OnceLock;

use rustix::time::{ClockId, clock_gettime};

use crate::base::Nanos;

/// The clock that never goes back. All processes of a host read the same, which the standard library does not promise.
pub fn now() -> Nanos {
    let time = clock_gettime(ClockId::Monotonic);
    Nanos(time.tv_sec * 1_000_000_000 + time.tv_nsec)
}

/// Which clock that is: processes that read the same number read the same clock. Taken from when the system was started,
/// since a clock of this kind begins then, and from the name space of its time, which a container may have for itself.
/// Where the system does not say, no other process has the number.
pub fn clock() -> u32 {
    static CLOCK: OnceLock<u32> = OnceLock::new();
    *CLOCK.get_or_init(|| {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok();
        let boot = boot.and_then(|id| u32::from_str_radix(id.get(..8)?, 16).ok());
        let space = std::fs::read_link("/proc/self/ns/time").ok();
        let digits = |name: &str| {
            name.chars().filter_map(|c| c.to_digit(10)).fold(0, |n: u32, d| n.wrapping_mul(10).wrapping_add(d))
        };
        let space = space.and_then(|path| path.to_str().map(digits)).unwrap_or(0);
        boot.map_or_else(|| now().0 as u32, |boot| boot ^ space)
    })
}

/// The number of the user whose rights this process has; 0 where the system has no users.
pub fn user_id() -> u32 {
    #[cfg(unix)]
    return rustix::process::geteuid().as_raw();
    #[cfg(not(unix))]
    return 0;
}

/// Locks a file for this process until it closes it. Returns false where another process has it; true also where the file
/// system knows no locks.
#[cfg(unix)]
pub fn lock(file: &std::fs::File) -> bool {
    use rustix::fs::{FlockOperation, flock};
    flock(file, FlockOperation::NonBlockingLockExclusive) != Err(rustix::io::Errno::WOULDBLOCK)
}

#[cfg(not(unix))]
pub fn lock(_file: &std::fs::File) -> bool {
    true
}

/// Bytes of the host's memory that can be had; nothing where the system does not say.
pub fn available_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("MemAvailable:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

/// The host's memory node that a device on the PCI bus is next to; nothing where the system does not say.
pub fn numa_node(bus: &str) -> Option<String> {
    let text = std::fs::read_to_string(format!("/sys/bus/pci/devices/{}/numa_node", bus.to_lowercase())).ok()?;
    Some(text.trim().to_owned()).filter(|node| node.parse::<u32>().is_ok())
}

/// Does something that takes signals over, and leaves hang-ups ignored where whoever started this process wants that, as
/// `nohup` does.
#[cfg(unix)]
pub fn keeping_hang_ups(work: impl FnOnce()) {
    use std::ffi::c_int;

    unsafe extern "C" {
        fn signal(number: c_int, handler: usize) -> usize;
    }
    /// The same on every Unix.
    const HANG_UP: c_int = 1;
    const IGNORED: usize = 1;

    // SAFETY: the function is that of the C library; no handler of ours is passed.
    let before = unsafe { signal(HANG_UP, IGNORED) };
    work();
    if before == IGNORED {
        // SAFETY: as above.
        unsafe { signal(HANG_UP, IGNORED) };
    }
}

/// Where there are no hang-ups, nothing is to be kept.
#[cfg(not(unix))]
pub fn keeping_hang_ups(work: impl FnOnce()) {
    work();
}

/// Ends the process at once. A regular end runs what libraries have left for it, and theirs waits for the device; a
/// thread that is inside of a call would be waited for too.
pub fn leave(code: u8) -> ! {
    unsafe extern "C" {
        fn _exit(code: std::ffi::c_int) -> !;
    }
    // SAFETY: the function is the system's, and takes any number.
    unsafe { _exit(std::ffi::c_int::from(code)) }
}
