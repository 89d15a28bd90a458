//! What the operating system says of the machine.

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

/// Ends the process at once. A regular end runs what libraries have left for it, and theirs waits for the device; a
/// thread that is inside of a call would be waited for too.
pub fn leave(code: u8) -> ! {
    unsafe extern "C" {
        fn _exit(code: std::ffi::c_int) -> !;
    }
    // SAFETY: the function is the system's, and takes any number.
    unsafe { _exit(std::ffi::c_int::from(code)) }
}
