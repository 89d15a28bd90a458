//! NVML, NVIDIA's management library: a device's clocks, power and throttling. It is used if it is installed; a value
//! that it does not report is `None` or missing from a list.
//!
//! Only reads: no setting of a device is changed.

use std::ffi::{CString, c_char, c_uint, c_ulonglong, c_void};

use crate::backend::libraries::{SearchPaths, functions, text};
use crate::base::Nanos;
use crate::exec::{Health, Sensors};

type Device = *mut c_void;

/// `nvmlViolationTime_t`: for how long a policy has throttled the clock since the driver was loaded.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Violation {
    reference: c_ulonglong,
    nanoseconds: c_ulonglong,
}

functions! {
    /// The library's functions.
    Table {
        init = nvmlInit_v2();
        by_bus = nvmlDeviceGetHandleByPciBusId_v2(*const c_char, *mut Device);
    }
    optional {
        driver_version = nvmlSystemGetDriverVersion(*mut c_char, c_uint);
        vbios = nvmlDeviceGetVbiosVersion(Device, *mut c_char, c_uint);
        clock = nvmlDeviceGetClockInfo(Device, c_uint, *mut c_uint);
        max_clock = nvmlDeviceGetMaxClockInfo(Device, c_uint, *mut c_uint);
        power = nvmlDeviceGetPowerUsage(Device, *mut c_uint);
        power_limit = nvmlDeviceGetEnforcedPowerLimit(Device, *mut c_uint);
        default_power_limit = nvmlDeviceGetPowerManagementDefaultLimit(Device, *mut c_uint);
        temperature = nvmlDeviceGetTemperature(Device, c_uint, *mut c_uint);
        reasons = nvmlDeviceGetCurrentClocksEventReasons(Device, *mut c_ulonglong);
        reasons_before = nvmlDeviceGetCurrentClocksThrottleReasons(Device, *mut c_ulonglong);
        violation = nvmlDeviceGetViolationStatus(Device, c_uint, *mut Violation);
        ecc = nvmlDeviceGetEccMode(Device, *mut c_uint, *mut c_uint);
        persistence = nvmlDeviceGetPersistenceMode(Device, *mut c_uint);
        mig = nvmlDeviceGetMigMode(Device, *mut c_uint, *mut c_uint);
        link_width = nvmlDeviceGetCurrPcieLinkWidth(Device, *mut c_uint);
        max_link_width = nvmlDeviceGetMaxPcieLinkWidth(Device, *mut c_uint);
        link_generation = nvmlDeviceGetCurrPcieLinkGeneration(Device, *mut c_uint);
        max_link_generation = nvmlDeviceGetMaxPcieLinkGeneration(Device, *mut c_uint);
        numa_node = nvmlDeviceGetNumaNodeId(Device, *mut c_uint);
        processes = nvmlDeviceGetComputeRunningProcesses_v3(Device, *mut c_uint, *mut ProcessInfo);
    }
}

/// `nvmlProcessInfo_t`: a process with a context on the device. Only the number of entries is used.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct ProcessInfo {
    pid: c_uint,
    memory: c_ulonglong,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

/// Number of processes for which the buffer of [`Nvml::processes`] has room.
const PROCESSES: usize = 256;

/// NVML's error for a buffer that is too small. The call then stores the number of entries that it needs.
const INSUFFICIENT_SIZE: i32 = 7;

/// Clock domain of the SMs.
const CLOCK_SM: u32 = 1;
/// Clock domain of the memory.
const CLOCK_MEMORY: u32 = 2;

/// The temperature sensor in the chip.
const SENSOR_GPU: u32 = 0;

/// Throttle reasons by NVML's bit. Idle devices and clocks set by a user do not count.
const REASONS: [(u64, &str); 6] = [
    (0x04, "power cap"),
    (0x08, "hardware slowdown"),
    (0x10, "sync boost"),
    (0x20, "temperature"),
    (0x40, "temperature, by the hardware"),
    (0x80, "power brake, by the hardware"),
];

/// Throttling policies whose accumulated time is read (`nvmlPerfPolicyType_t`): power cap, and temperature.
const POLICY_POWER: u32 = 0;
const POLICY_THERMAL: u32 = 1;

/// A device, accessed through NVML.
#[derive(Clone, Copy)]
pub struct Nvml {
    table: Table,
    device: Device,
}

// SAFETY: the library's functions may be called from any thread, and the handle is only a name of the device.
unsafe impl Send for Nvml {}
// SAFETY: as above.
unsafe impl Sync for Nvml {}

impl Nvml {
    /// Opens the device with a PCI address such as `0000:1b:00.0`; `None` if NVML is not installed or does not work.
    pub fn open(paths: &SearchPaths, bus: &str) -> Option<Nvml> {
        let names = ["libnvidia-ml.so.1", "libnvidia-ml.so"].map(str::to_owned);
        let table = Table::load(&paths.open(&names).ok()?).ok()?;
        let bus = CString::new(bus).ok()?;
        let mut device: Device = std::ptr::null_mut();
        // SAFETY: the text and the output pointer are valid for the calls. The library is never shut down.
        let found = unsafe { (table.init)() == 0 && (table.by_bus)(bus.as_ptr(), &mut device) == 0 };
        found.then_some(Nvml { table, device })
    }

    /// Reads a value of the device; `None` if NVML does not report it.
    fn read(&self, function: Option<unsafe extern "C" fn(Device, *mut c_uint) -> i32>) -> Option<u32> {
        let mut value = 0;
        // SAFETY: the handle is this library's, the output pointer valid for the call.
        (unsafe { function?(self.device, &mut value) } == 0).then_some(value)
    }

    /// Reads a value of one domain of the device, such as a clock domain; `None` if NVML does not report it.
    fn of(&self, function: Option<unsafe extern "C" fn(Device, c_uint, *mut c_uint) -> i32>, part: u32) -> Option<u32> {
        let mut value = 0;
        // SAFETY: the handle is this library's, the output pointer valid for the call.
        (unsafe { function?(self.device, part, &mut value) } == 0).then_some(value)
    }

    /// Reads whether a mode is currently on; NVML also reports whether it will be on after a reboot. `None` if NVML
    /// does not report the mode.
    fn mode(&self, function: Option<unsafe extern "C" fn(Device, *mut c_uint, *mut c_uint) -> i32>) -> Option<bool> {
        let (mut now, mut next) = (0, 0);
        // SAFETY: the handle is this library's, the output pointers valid for the call.
        (unsafe { function?(self.device, &mut now, &mut next) } == 0).then_some(now != 0)
    }

    /// Current throttle reasons as a bit mask, see [`REASONS`]; `None` if NVML does not report them.
    fn reasons(&self) -> Option<u64> {
        let mut bits = 0;
        let function = self.table.reasons.or(self.table.reasons_before)?;
        // SAFETY: the handle is this library's, the output pointer valid for the call.
        (unsafe { function(self.device, &mut bits) } == 0).then_some(bits)
    }

    /// Time for which a policy has throttled the clock since the driver was loaded; `None` if NVML does not report it.
    fn held_down(&self, policy: u32) -> Option<Nanos> {
        let mut violation = Violation::default();
        // SAFETY: the handle is this library's, the output pointer valid for the call.
        let code = unsafe { self.table.violation?(self.device, policy, &mut violation) };
        (code == 0).then_some(Nanos(i64::try_from(violation.nanoseconds).unwrap_or(i64::MAX)))
    }

    /// Number of processes with a context on the device, including this one; `None` if NVML does not report it.
    fn processes(&self) -> Option<u32> {
        let mut count = PROCESSES as c_uint;
        let mut infos = [ProcessInfo::default(); PROCESSES];
        // SAFETY: the buffer has room for as many entries as stated.
        let code = unsafe { self.table.processes?(self.device, &mut count, infos.as_mut_ptr()) };
        (code == 0 || code == INSUFFICIENT_SIZE).then_some(count)
    }

    /// Current clocks, power and throttling of the device.
    pub fn health(&self) -> Health {
        let bits = self.reasons().unwrap_or(0);
        let sensors = Sensors {
            clock_mhz: self.of(self.table.clock, CLOCK_SM),
            max_clock_mhz: self.of(self.table.max_clock, CLOCK_SM),
            power_watts: self.read(self.table.power).map(|milliwatts| milliwatts / 1000),
            power_limit_watts: self.read(self.table.power_limit).map(|milliwatts| milliwatts / 1000),
            celsius: self.of(self.table.temperature, SENSOR_GPU),
            reasons: names(bits).into_iter().map(str::to_owned).collect(),
        };
        Health { sensors, by_power: self.held_down(POLICY_POWER), by_temperature: self.held_down(POLICY_THERMAL) }
    }

    /// Settings and state of the device, by name, for the record.
    pub fn facts(&self) -> Vec<(String, String)> {
        let table = &self.table;
        let Sensors { clock_mhz, max_clock_mhz, power_watts, power_limit_watts, celsius, .. } = self.health().sensors;
        let on = |on: bool| if on { "on" } else { "off" }.to_owned();
        let mut facts = Vec::new();
        let mut add = |name: &str, value: Option<String>| facts.extend(value.map(|value| (name.to_owned(), value)));
        let number = |value: Option<u32>| value.map(|value| value.to_string());
        // SAFETY: `text` passes a buffer of the size that it states.
        add(
            "driver",
            table.driver_version.and_then(|function| text(|at, room| unsafe { function(at, room as c_uint) })),
        );
        // SAFETY: as above, and the handle is this library's.
        add(
            "vbios",
            table.vbios.and_then(|function| text(|at, room| unsafe { function(self.device, at, room as c_uint) })),
        );
        add("clock_mhz", number(clock_mhz));
        add("max_clock_mhz", number(max_clock_mhz));
        add("memory_clock_mhz", number(self.of(table.clock, CLOCK_MEMORY)));
        add("max_memory_clock_mhz", number(self.of(table.max_clock, CLOCK_MEMORY)));
        add("power_watts", number(power_watts));
        add("power_limit_watts", number(power_limit_watts));
        add("default_power_limit_watts", number(self.read(table.default_power_limit).map(|limit| limit / 1000)));
        add("celsius", number(celsius));
        add("held_down_by", self.reasons().map(|bits| names_or_nothing(&names(bits))));
        add("ecc", self.mode(table.ecc).map(on));
        add("persistence", self.read(table.persistence).map(|mode| on(mode != 0)));
        add("mig", self.mode(table.mig).map(on));
        add("pcie_width", number(self.read(table.link_width)));
        add("max_pcie_width", number(self.read(table.max_link_width)));
        add("pcie_generation", number(self.read(table.link_generation)));
        add("max_pcie_generation", number(self.read(table.max_link_generation)));
        // NVML returns all ones if the device's memory is not a NUMA node.
        add("memory_numa_node", number(self.read(table.numa_node).filter(|node| *node < 1 << 16)));
        add("other_processes", self.processes().map(|count| count.saturating_sub(1).to_string()));
        facts
    }
}

/// Names of the throttle reasons in a bit mask.
fn names(bits: u64) -> Vec<&'static str> {
    REASONS.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| *name).collect()
}

/// Joins names by commas; `nothing` if there are none.
fn names_or_nothing(names: &[&str]) -> String {
    if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throttle_reasons_have_names_and_idle_is_not_one() {
        assert_eq!(names(0x01), Vec::<&str>::new(), "idle");
        assert_eq!(names(0x02), Vec::<&str>::new(), "a clock that somebody set");
        assert_eq!(names(0x24), ["power cap", "temperature"]);
        assert_eq!(names_or_nothing(&names(0)), "nothing");
    }

    #[test]
    fn process_info_has_the_library_s_size() {
        assert_eq!(size_of::<ProcessInfo>(), 24);
    }

    #[test]
    fn a_machine_without_the_library_has_no_figures() {
        assert!(Nvml::open(&SearchPaths::default(), "ffff:ff:1f.7").is_none());
    }
}
