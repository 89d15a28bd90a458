//! Files of the kernel's driver about a device: chips, partition, links, sensors. ROCm's libraries read the same files.
//! A value that no file contains is `None` or missing from a list.
//!
//! Only reads: no setting of a device is changed.

use std::path::{Path, PathBuf};

use crate::exec::{Health, Sensors};

/// Link types as the driver numbers them.
const PCIE: u64 = 2;
const XGMI: u64 = 11;

/// The folders and files that describe a device.
pub struct Sysfs {
    /// The folder of the PCI device.
    pci: PathBuf,
    /// The folder of the compute node, of which each partition of a device has its own; `None` if none was found.
    node: Option<PathBuf>,
    driver: PathBuf,
}

impl Sysfs {
    /// Finds the folders of the device with a PCI address such as `0000:1b:00.0`, below `root`, which is `/sys` except
    /// in tests.
    pub fn new(root: &Path, bus: &str) -> Sysfs {
        let devices = root.join("bus/pci/devices");
        // A partition other than the first has its number as PCI function, and no PCI device of that name exists.
        let whole = bus.rsplit_once('.').map_or(bus.to_owned(), |(place, _)| format!("{place}.0"));
        let pci = Some(devices.join(bus)).filter(|path| path.is_dir()).unwrap_or_else(|| devices.join(whole));
        let nodes = std::fs::read_dir(root.join("class/kfd/kfd/topology/nodes"));
        let mut nodes: Vec<PathBuf> = nodes.into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        nodes.sort();
        let place = place(bus);
        let node = nodes.into_iter().find(|node| {
            let properties = Properties::read(node);
            let at = properties.get("domain").zip(properties.get("location_id"));
            properties.get("simd_count").is_some_and(|count| count > 0) && at.is_some() && at == place
        });
        Sysfs { pci, node, driver: root.join("module/amdgpu/version") }
    }

    /// Number of XCDs; `None` if the driver does not report it.
    pub fn xcds(&self) -> Option<u32> {
        let properties = Properties::read(self.node.as_ref()?);
        properties.get("num_xcc").and_then(|count| u32::try_from(count).ok()).filter(|count| (1..=64).contains(count))
    }

    /// Settings and state of the device, by name, for the record.
    pub fn facts(&self) -> Vec<(String, String)> {
        let mut facts = Vec::new();
        let mut add = |name: &str, value: Option<String>| facts.extend(value.map(|value| (name.to_owned(), value)));
        // A driver that is part of the kernel has no version of its own.
        let kernel = || Some(format!("of Linux {}", line(Path::new("/proc/sys/kernel/osrelease"))?));
        add("driver", line(&self.driver).or_else(|| self.node.as_ref().and_then(|_| kernel())));
        for (name, file) in [
            ("vbios", "vbios_version"),
            ("compute_partition", "current_compute_partition"),
            ("memory_partition", "current_memory_partition"),
            ("pcie_speed", "current_link_speed"),
            ("max_pcie_speed", "max_link_speed"),
            ("pcie_width", "current_link_width"),
            ("max_pcie_width", "max_link_width"),
        ] {
            add(name, line(&self.pci.join(file)));
        }
        let Some(node) = &self.node else { return facts };
        let properties = Properties::read(node);
        for (name, property) in [
            ("xcds", "num_xcc"),
            ("sdma_engines", "num_sdma_engines"),
            ("sdma_engines_for_xgmi", "num_sdma_xgmi_engines"),
            ("queues_of_an_sdma_engine", "num_sdma_queues_per_engine"),
            ("compute_queues", "num_cp_queues"),
        ] {
            add(name, properties.get(property).map(|value| value.to_string()));
        }
        add("links", links(node));
        facts
    }

    /// Current clocks and power of the device; `None` if the driver does not report them. These files contain no
    /// throttle reasons.
    pub fn health(&self) -> Option<Health> {
        let folders = std::fs::read_dir(self.pci.join("hwmon"));
        let folder = folders.into_iter().flatten().flatten().map(|entry| entry.path()).min()?;
        let number = |name: &str| line(&folder.join(name))?.parse::<u64>().ok();
        let scaled = |value: Option<u64>, by: u64| value.and_then(|value| u32::try_from(value / by).ok());
        // The second temperature sensor is at the hottest point.
        let sensors = Sensors {
            clock_mhz: scaled(number("freq1_input"), 1_000_000),
            max_clock_mhz: self.highest_clock(),
            power_watts: scaled(number("power1_input").or_else(|| number("power1_average")), 1_000_000),
            power_limit_watts: scaled(number("power1_cap"), 1_000_000),
            celsius: scaled(number("temp2_input"), 1000),
            ..Sensors::default()
        };
        Some(Health { sensors, ..Health::default() })
    }

    /// The highest clock in MHz in the driver's list, whose lines look like `1: 2100Mhz *`; `None` without such a list.
    fn highest_clock(&self) -> Option<u32> {
        let text = std::fs::read_to_string(self.pci.join("pp_dpm_sclk")).ok()?;
        let clock = |line: &str| line.split_whitespace().nth(1)?.to_lowercase().strip_suffix("mhz")?.parse().ok();
        text.lines().filter_map(clock).max()
    }
}

/// Counts a device's links by kind, with the driver's rates: `7 xGMI of 48000 MB/s, 1 PCIe of 64000 MB/s`; `None`
/// without any.
fn links(node: &Path) -> Option<String> {
    let mut found: Vec<(u64, u64, usize)> = Vec::new();
    for folder in ["io_links", "p2p_links"] {
        for entry in std::fs::read_dir(node.join(folder)).into_iter().flatten().flatten() {
            let properties = Properties::read(&entry.path());
            let (kind, rate) = (properties.get("type"), properties.get("max_bandwidth").unwrap_or(0));
            let Some(kind) = kind else { continue };
            match found.iter_mut().find(|(known, fastest, _)| (*known, *fastest) == (kind, rate)) {
                Some((_, _, count)) => *count += 1,
                None => found.push((kind, rate, 1)),
            }
        }
    }
    found.sort_unstable_by(|a, b| b.cmp(a));
    let text = found.into_iter().map(|(kind, rate, count)| {
        let name = match kind {
            PCIE => "PCIe".to_owned(),
            XGMI => "xGMI".to_owned(),
            other => format!("of kind {other}"),
        };
        let rate = if rate > 0 { format!(" of {rate} MB/s") } else { String::new() };
        format!("{count} {name}{rate}")
    });
    Some(text.collect::<Vec<_>>().join(", ")).filter(|text| !text.is_empty())
}

/// Splits a PCI address into its domain and the driver's number of the rest; `None` if the text is no PCI address.
fn place(bus: &str) -> Option<(u64, u64)> {
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let (rest, function) = bus.rsplit_once('.')?;
    let (rest, device) = rest.rsplit_once(':')?;
    let (domain, bus) = rest.split_once(':')?;
    Some((hex(domain)?, hex(bus)? << 8 | hex(device)? << 3 | hex(function)?))
}

/// Contents of a file with a name and a number on each line.
struct Properties(String);

impl Properties {
    fn read(folder: &Path) -> Properties {
        Properties(std::fs::read_to_string(folder.join("properties")).unwrap_or_default())
    }

    fn get(&self, name: &str) -> Option<u64> {
        let line = self.0.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.trim().parse().ok())
    }
}

/// The first line of a file; `None` if the file is missing or empty.
fn line(path: &Path) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty() && !text.contains('\n')).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates the files of one device as the kernel's documentation describes them.
    fn tree(root: &Path) {
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let pci = "bus/pci/devices/0000:1b:00.0";
        write(&format!("{pci}/current_compute_partition"), "SPX\n");
        write(&format!("{pci}/current_memory_partition"), "NPS1\n");
        write(&format!("{pci}/current_link_speed"), "32.0 GT/s PCIe\n");
        write(&format!("{pci}/pp_dpm_sclk"), "0: 132Mhz\n1: 1900Mhz *\n2: 2100Mhz\n");
        for (sensor, value) in [("freq1_input", "1900000000"), ("power1_cap", "750000000"), ("temp2_input", "64000")] {
            write(&format!("{pci}/hwmon/hwmon3/{sensor}"), &format!("{value}\n"));
        }
        write("module/amdgpu/version", "6.10.5\n");
        let nodes = "class/kfd/kfd/topology/nodes";
        write(&format!("{nodes}/0/properties"), "cpu_cores_count 96\nsimd_count 0\nlocation_id 0\ndomain 0\n");
        let gpu = "simd_count 1216\nlocation_id 6912\ndomain 0\nnum_xcc 8\nnum_sdma_engines 2\n";
        write(&format!("{nodes}/1/properties"), gpu);
        write(&format!("{nodes}/1/io_links/0/properties"), "type 2\nmax_bandwidth 64000\n");
        for link in 1..8 {
            write(&format!("{nodes}/1/io_links/{link}/properties"), "type 11\nmin_bandwidth 1\nmax_bandwidth 48000\n");
        }
    }

    #[test]
    fn a_device_s_files_are_read() {
        let root = tempfile::tempdir().unwrap();
        tree(root.path());
        let sysfs = Sysfs::new(root.path(), "0000:1b:00.0");
        assert_eq!(sysfs.xcds(), Some(8));
        let facts = sysfs.facts();
        let fact = |name: &str| facts.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
        assert_eq!(fact("driver"), Some("6.10.5"));
        assert_eq!(fact("compute_partition"), Some("SPX"));
        assert_eq!(fact("memory_partition"), Some("NPS1"));
        assert_eq!(fact("links"), Some("7 xGMI of 48000 MB/s, 1 PCIe of 64000 MB/s"));
        assert_eq!(fact("vbios"), None, "what is not there is absent");
        let sensors = sysfs.health().unwrap().sensors;
        let readings = (sensors.clock_mhz, sensors.max_clock_mhz, sensors.celsius, sensors.power_watts);
        assert_eq!(readings, (Some(1900), Some(2100), Some(64), None), "without a power there is none");
        assert_eq!(sensors.power_limit_watts, Some(750));
        // The second partition of the same device has no compute node here, and shares the files of the PCI device.
        let second = Sysfs::new(root.path(), "0000:1b:00.1");
        assert_eq!(second.xcds(), None);
        assert!(second.facts().contains(&("compute_partition".to_owned(), "SPX".to_owned())));
    }

    #[test]
    fn a_machine_without_the_driver_has_no_facts() {
        let root = tempfile::tempdir().unwrap();
        for bus in ["0000:1b:00.0", "nonsense", "", "...", "a:b:c.d"] {
            let sysfs = Sysfs::new(root.path(), bus);
            assert!(sysfs.facts().is_empty() && sysfs.health().is_none(), "{bus}");
        }
    }
}
