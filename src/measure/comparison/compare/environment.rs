//! Facts about the machine and the settings of a run.

use indexmap::IndexMap;

use crate::base::Bytes;
use crate::exec::Sensors;
use crate::measure::record::{RunRecord, Variant};

/// Device facts that differ in every run, or that are reported under another name.
const READINGS: [&str; 6] =
    ["clock_mhz", "memory_clock_mhz", "power_watts", "celsius", "max_clock_mhz", "power_limit_watts"];

/// Name of the clock read during the measurement, in MHz. Compared with a tolerance, since it varies from run to run.
pub const MEASURED_CLOCK: &str = "clock while measuring";

/// Facts about where and how a run was made, without those that identify its case.
pub fn of_record(record: &RunRecord, variant: &Variant) -> IndexMap<String, String> {
    let mut known = IndexMap::new();
    let mut add = |name: &str, value: String| {
        if !value.is_empty() {
            known.insert(name.to_owned(), value);
        }
    };
    let (device, environment, settings) = (&record.device, &record.environment, &record.settings);
    add("aorta", record.aorta.clone());
    add("backend", settings.backend.clone());
    add("device", device.name.clone());
    add("device index", device.index.map(|index| index.to_string()).unwrap_or_default());
    add("units", device.units.map(|units| units.to_string()).unwrap_or_default());
    add("device memory", device.memory_bytes.map(|bytes| Bytes(bytes).to_string()).unwrap_or_default());
    let is_reading = |name: &str| READINGS.contains(&name) || (name.starts_with("timer_") && name.ends_with("_ns"));
    for (name, value) in device.facts.iter().filter(|(name, _)| !is_reading(name)) {
        add(&name.replace('_', " "), value.clone());
    }
    let health = || variant.health.iter().chain(variant.blocks.iter().flat_map(|block| &block.health));
    let first = |of: fn(&Sensors) -> Option<u32>| health().find_map(of);
    let text = |value: Option<u32>, unit: &str| value.map(|value| format!("{value} {unit}")).unwrap_or_default();
    add("highest clock", text(first(|health| health.max_clock_mhz), "MHz"));
    add("power limit", text(first(|health| health.power_limit_watts), "W"));
    let mut clocks: Vec<u32> = health().filter_map(|health| health.clock_mhz).collect();
    clocks.sort_unstable();
    add(MEASURED_CLOCK, text(clocks.get(clocks.len() / 2).copied(), "MHz"));
    add("host", environment.host.clone());
    add("system", environment.os.clone());
    add("CPU", environment.cpu.clone());
    add("processors that may be used", environment.cpus.to_string());
    add("host memory", environment.memory_bytes.map(|bytes| Bytes(bytes).to_string()).unwrap_or_default());
    for (name, value) in &environment.facts {
        add(&name.replace('_', " "), value.clone());
    }
    for (name, value) in &environment.variables {
        add(name, value.clone());
    }
    add("effort", settings.effort.clone());
    add("warm-up iterations at least", settings.warmup.to_string());
    add("iterations", settings.iterations.to_string());
    add("gate", settings.gate.clone());
    known
}
