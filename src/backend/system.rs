//! What the operating system says of the machine, and what it was told of this process.

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
