//! Queries and settings of the operating system.

use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;

use rustix::time::{ClockId, clock_gettime};

use crate::base::Nanos;

/// Time of the monotonic clock that all processes of a host share. The standard library does not guarantee that for its
/// own.
pub fn now() -> Nanos {
    let time = clock_gettime(ClockId::Monotonic);
    Nanos(time.tv_sec * 1_000_000_000 + time.tv_nsec)
}

/// Number of that clock: processes with equal numbers read the same clock. The number is derived from the boot time, at
/// which the clock starts, and from the time namespace, which a container may have of its own. If the system reports
/// neither, the number is unique to this process.
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

/// Effective user id of this process.
pub fn user_id() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// True if a file or folder belongs to this user, and group and others have none of the rights in `mode`, such as
/// `0o077`.
pub fn is_own(about: &std::fs::Metadata, mode: u32) -> bool {
    about.uid() == user_id() && about.mode() & mode == 0
}

/// Width of a terminal in characters; `None` if the handle is not that of a terminal.
pub fn terminal_columns(handle: impl std::os::fd::AsFd) -> Option<usize> {
    rustix::termios::tcgetwinsize(handle).ok().map(|size| usize::from(size.ws_col))
}

/// Locks a file until it is closed, without waiting. Returns false if another process holds the lock; true also if the
/// file system has no locks.
pub fn lock(file: &std::fs::File) -> bool {
    use rustix::fs::{FlockOperation, flock};
    flock(file, FlockOperation::NonBlockingLockExclusive) != Err(rustix::io::Errno::WOULDBLOCK)
}

/// Bytes of available host memory; `None` if unknown.
pub fn available_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("MemAvailable:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

/// NUMA node of the host that is closest to a device with this PCI address; `None` if the system does not report it.
pub fn numa_node(bus: &str) -> Option<String> {
    let text = std::fs::read_to_string(format!("/sys/bus/pci/devices/{}/numa_node", bus.to_lowercase())).ok()?;
    Some(text.trim().to_owned()).filter(|node| node.parse::<u32>().is_ok())
}

/// Runs `work`, which installs signal handlers. If hang-ups were ignored before, as under `nohup`, they stay ignored.
pub fn preserving_ignored_hangup(work: impl FnOnce()) {
    use std::ffi::c_int;

    unsafe extern "C" {
        fn signal(number: c_int, handler: usize) -> usize;
    }
    /// SIGHUP has this value on every Unix.
    const HANG_UP: c_int = 1;
    const IGNORED: usize = 1;

    // SAFETY: the function is that of the C library; no handler of ours is passed.
    let before = unsafe { signal(HANG_UP, IGNORED) };
    work();
    if before == IGNORED {
        // SAFETY: the function is that of the C library; the handler is the constant for ignored signals.
        unsafe { signal(HANG_UP, IGNORED) };
    }
}

/// Ends the process at once, without exit handlers. Those of vendors' libraries would wait for the device, and a normal
/// exit would wait for blocked threads.
pub fn leave(code: u8) -> ! {
    unsafe extern "C" {
        fn _exit(code: std::ffi::c_int) -> !;
    }
    // SAFETY: the function is the system's, and takes any number.
    unsafe { _exit(std::ffi::c_int::from(code)) }
}
