//! AMD's management library: a device's clocks, power and throttling. It is used if it is installed; a value that it
//! does not report is `None` or missing from a list.
//!
//! Uses ROCm SMI rather than its successor AMD SMI: nearly all of its functions return a single number, so few
//! structures that change between versions are involved. Only reads: no setting of a device is changed.

use std::time::Instant;

use crate::backend::libraries::{SearchPaths, functions};
use crate::base::Nanos;
use crate::exec::{ExecError, Health, Sensors};

use super::driver::versioned;

functions! {
    /// The library's functions.
    Table {
        init = rsmi_init(u64);
        count = rsmi_num_monitor_devices(*mut u32);
        bus = rsmi_dev_pci_id_get(u32, *mut u64);
        clocks = rsmi_dev_gpu_clk_freq_get(u32, u32, *mut u64);
        average_power = rsmi_dev_power_ave_get(u32, u32, *mut u64);
        power_limit = rsmi_dev_power_cap_get(u32, u32, *mut u64);
        temperature = rsmi_dev_temp_metric_get(u32, u32, u32, *mut i64);
        metrics = rsmi_dev_gpu_metrics_info_get(u32, *mut u64);
    }
    optional {
        default_power_limit = rsmi_dev_power_cap_default_get(u32, *mut u64);
        // Since 6.0, when the structure of clocks grew too.
        power = rsmi_dev_current_socket_power_get(u32, *mut u64);
    }
}

/// Clock domain of the compute units.
const CLOCK_SYSTEM: u32 = 0;
/// Clock domain of the memory.
const CLOCK_MEMORY: u32 = 4;

/// The temperature sensor at the hottest point of the chip, and the kind of value that is its current temperature.
const SENSOR_JUNCTION: u32 = 1;
const TEMPERATURE_NOW: u32 = 0;

/// Sizes in 64-bit words of the buffers for structures; larger than the structures of every version.
const CLOCKS_ROOM: usize = 128;
const METRICS_ROOM: usize = 2048;

/// Offsets in the structure of metrics, in 64-bit words: by AMD's header of 6.4, whose earlier versions begin in the
/// same way. The driver fills them from version 1.6 of its table on.
const ACCUMULATED: usize = 53;
const BY_PROCHOT: usize = 54;
const BY_POWER: usize = 55;
const BY_TEMPERATURE: usize = 56;
const BY_REGULATOR: usize = 57;
const BY_MEMORY: usize = 58;

/// Opens the library and resolves its functions.
pub fn open(paths: &SearchPaths) -> Result<(Table, &'static str), ExecError> {
    let mut names = versioned("librocm_smi64", None);
    // Distributions use other version numbers.
    names.push("librocm_smi64.so.1".to_owned());
    let missing = |why| super::missing("ROCm SMI (librocm_smi64)", "for clocks and power", "rocm-smi-lib", why);
    let opened = paths.open(&names).map_err(missing)?;
    Ok((Table::load(&opened)?, opened.path))
}

/// A device, accessed through the management library.
pub struct Smi {
    table: Table,
    device: u32,
    /// Throttling counters when the device was opened, with the time; `None` if the device has none.
    first: Option<(Instant, ThrottleCounters)>,
}

/// Counters of the device's control loop: all of its rounds, and the rounds that power or temperature has throttled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ThrottleCounters {
    rounds: u64,
    by_power: u64,
    by_temperature: u64,
}

impl Smi {
    /// Opens the device with a PCI address such as `0000:1b:00.0`; `None` if the library is not installed or does not
    /// work.
    pub fn open(paths: &SearchPaths, bus: &str) -> Option<Smi> {
        let (table, _) = open(paths).ok()?;
        // SAFETY: the argument is a bit mask of which 0 is valid. The library is never shut down.
        if unsafe { (table.init)(0) } != 0 {
            return None;
        }
        let mut count = 0;
        // SAFETY: the output pointer is valid for the call.
        let code = unsafe { (table.count)(&mut count) };
        let device = (0..if code == 0 { count } else { 0 }).find(|&device| {
            let mut value = 0;
            // SAFETY: the output pointer is valid for the call.
            unsafe { (table.bus)(device, &mut value) == 0 && written(value) == bus }
        })?;
        let mut smi = Smi { table, device, first: None };
        smi.first = smi.throttle_counters().map(|counters| (Instant::now(), counters));
        Some(smi)
    }

    /// Current and highest clock of a domain, in MHz; `None` if the library reports no clocks.
    fn clock(&self, domain: u32) -> Option<(u32, u32)> {
        let mut buffer = [0u64; CLOCKS_ROOM];
        // SAFETY: the buffer is larger than the structure of every version.
        let code = unsafe { (self.table.clocks)(self.device, domain, buffer.as_mut_ptr()) };
        if code == 0 { parse_clock(&buffer, self.table.power.is_some()) } else { None }
    }

    fn watts(&self, read: impl FnOnce(*mut u64) -> i32) -> Option<u32> {
        let mut microwatts = 0;
        (read(&mut microwatts) == 0).then_some((microwatts / 1_000_000) as u32)
    }

    fn power(&self) -> Option<u32> {
        let Smi { table, device, .. } = self;
        // SAFETY: the output pointer is valid for the call.
        let now = table.power.and_then(|power| self.watts(|at| unsafe { power(*device, at) }));
        // SAFETY: as above.
        now.or_else(|| self.watts(|at| unsafe { (table.average_power)(*device, 0, at) }))
    }

    fn temperature(&self) -> Option<u32> {
        let mut millidegrees = 0;
        // SAFETY: the output pointer is valid for the call.
        let code =
            unsafe { (self.table.temperature)(self.device, SENSOR_JUNCTION, TEMPERATURE_NOW, &mut millidegrees) };
        (code == 0).then(|| (millidegrees / 1000).max(0) as u32)
    }

    /// The throttling counters; `None` if the device has none.
    fn throttle_counters(&self) -> Option<ThrottleCounters> {
        let mut buffer = vec![0u64; METRICS_ROOM];
        // SAFETY: the buffer is larger than the structure of every version.
        let code = unsafe { (self.table.metrics)(self.device, buffer.as_mut_ptr()) };
        if code == 0 { parse_counters(&buffer) } else { None }
    }

    /// Current clocks, power and throttling of the device.
    pub fn health(&self) -> Health {
        let clock = self.clock(CLOCK_SYSTEM);
        let since = self.first.zip(self.throttle_counters());
        let share = |of: fn(&ThrottleCounters) -> u64| {
            let ((start, first), now) = since?;
            let rounds = now.rounds.checked_sub(first.rounds).filter(|rounds| *rounds > 0)?;
            let throttled_share = of(&now).checked_sub(of(&first))?.min(rounds) as f64 / rounds as f64;
            Some(Nanos((start.elapsed().as_nanos() as f64 * throttled_share) as i64))
        };
        let sensors = Sensors {
            clock_mhz: clock.map(|(now, _)| now),
            max_clock_mhz: clock.map(|(_, most)| most),
            power_watts: self.power(),
            // SAFETY: the output pointer is valid for the call.
            power_limit_watts: self.watts(|at| unsafe { (self.table.power_limit)(self.device, 0, at) }),
            celsius: self.temperature(),
            reasons: Vec::new(),
        };
        Health {
            sensors,
            by_power: share(|counters| counters.by_power),
            by_temperature: share(|counters| counters.by_temperature),
        }
    }

    /// Settings of the device, by name, for the record.
    pub fn facts(&self) -> Vec<(String, String)> {
        let memory = self.clock(CLOCK_MEMORY);
        let default = self.table.default_power_limit;
        // SAFETY: the output pointer is valid for the call.
        let default = default.and_then(|read| self.watts(|at| unsafe { read(self.device, at) }));
        let facts = [
            ("memory_clock_mhz", memory.map(|(now, _)| now)),
            ("max_memory_clock_mhz", memory.map(|(_, most)| most)),
            ("default_power_limit_watts", default),
        ];
        facts.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.to_string()))).collect()
    }
}

/// Formats a PCI address as HIP does. The number of a partition is in bits of its own, or in the function number.
fn written(place: u64) -> String {
    let partition = place >> 28 & 0xf;
    let function = if partition > 0 { partition } else { place & 7 };
    format!("{:04x}:{:02x}:{:02x}.{function:x}", place >> 32, place >> 8 & 0xff, place >> 3 & 0x1f)
}

/// Reads the current and the highest clock, in MHz, from the structure of clocks; `None` if it contains no clocks.
/// Before 6.0, the structure begins with the number of clocks and the index of the current one; since 6.0 (`grown`), a
/// Boolean that takes one word precedes them.
fn parse_clock(words: &[u64], grown: bool) -> Option<(u32, u32)> {
    let half = |index: usize| (words[index / 2] >> (32 * (index % 2))) as u32 as usize;
    let (count, current, first) = if grown { (half(1), half(2), 2) } else { (half(0), half(1), 1) };
    let clocks = words.get(first..first + count).filter(|clocks| !clocks.is_empty())?;
    let mhz = |hertz: u64| u32::try_from(hertz / 1_000_000).ok();
    Some((mhz(*clocks.get(current)?)?, mhz(*clocks.iter().max()?)?))
}

/// Reads the counters from the structure of metrics; `None` if the driver does not fill them.
fn parse_counters(words: &[u64]) -> Option<ThrottleCounters> {
    // The driver's table begins with its size and version.
    let (format, content) = (words[0] >> 16 & 0xff, words[0] >> 24 & 0xff);
    // Missing counters are all ones.
    let counter = |index: usize| Some(words[index]).filter(|value| *value != u64::MAX);
    let rounds = counter(ACCUMULATED).filter(|rounds| *rounds > 0)?;
    let of = |indices: &[usize]| indices.iter().filter_map(|&index| counter(index)).max().unwrap_or(0);
    ((format, content) >= (1, 6)).then(|| ThrottleCounters {
        rounds,
        by_power: of(&[BY_POWER]),
        by_temperature: of(&[BY_PROCHOT, BY_TEMPERATURE, BY_REGULATOR, BY_MEMORY]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_written_as_hip_does() {
        assert_eq!(written(0x1b00), "0000:1b:00.0");
        assert_eq!(written(1 << 32 | 0xc1 << 8 | 2 << 3 | 1), "0001:c1:02.1");
        assert_eq!(written(3 << 28 | 0x1b00), "0000:1b:00.3", "the third partition");
    }

    #[test]
    fn clocks_are_read_in_both_layouts() {
        // Three clocks, of which the second is current.
        let (low, high) = (132_000_000, 2_100_000_000);
        let old = [3 | 1 << 32, low, 1_700_000_000, high, 0];
        assert_eq!(parse_clock(&old, false), Some((1700, 2100)));
        let grown = [3 << 32, 1, low, 1_700_000_000, high, 0];
        assert_eq!(parse_clock(&grown, true), Some((1700, 2100)));
        assert_eq!(parse_clock(&[9 << 32, 1, low, high], true), None, "more than there are");
        assert_eq!(parse_clock(&[3 << 32, 7, low, low, high], true), None, "none of them");
        assert_eq!(parse_clock(&[0; 8], true), None);
    }

    #[test]
    fn counters_are_those_of_tables_that_have_them() {
        let mut words = vec![u64::MAX; 128];
        words[0] = 6 << 24 | 1 << 16 | 400;
        words[ACCUMULATED] = 1000;
        words[BY_POWER] = 250;
        words[BY_MEMORY] = 3;
        assert_eq!(parse_counters(&words), Some(ThrottleCounters { rounds: 1000, by_power: 250, by_temperature: 3 }));
        words[0] = 4 << 24 | 1 << 16 | 400;
        assert_eq!(parse_counters(&words), None, "an older table says nothing of it");
    }

    #[test]
    fn a_machine_without_the_library_has_no_figures() {
        assert!(Smi::open(&SearchPaths::default(), "ffff:ff:1f.7").is_none());
    }
}
