//! What the operating system says of the machine.

use rustix::time::{ClockId, clock_gettime};

use crate::base::Nanos;

/// The clock that never goes back. All processes of a host read the same, which the standard library does not promise.
pub fn now() -> Nanos {
    let time = clock_gettime(ClockId::Monotonic);
    Nanos(time.tv_sec * 1_000_000_000 + time.tv_nsec)
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
