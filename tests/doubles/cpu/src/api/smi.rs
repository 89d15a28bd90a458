//! ROCm SMI: absent unless `HIP_DOUBLE_SMI=NOW/MOST` names clocks in MHz. Its figures are invented, so that what a run
//! makes of them can be seen: half of the time the power cap holds the clock down.

use std::ffi::c_int;
use std::sync::OnceLock;
use std::time::Instant;

use crate::device;

const SUCCESS: c_int = 0;
const NOT_SUPPORTED: c_int = 2;
const INIT_ERROR: c_int = 8;

/// The clocks now and at most, in MHz.
fn clocks() -> Option<(u64, u64)> {
    let text = std::env::var("HIP_DOUBLE_SMI").ok()?;
    let (now, most) = text.split_once('/')?;
    Some((now.parse().ok()?, most.parse().ok()?))
}

fn start() -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    *START.get_or_init(Instant::now)
}

#[unsafe(no_mangle)]
pub extern "C" fn rsmi_init(_flags: u64) -> c_int {
    crate::api::counted!(rsmi_init);
    start();
    if clocks().is_some() { SUCCESS } else { INIT_ERROR }
}

/// # Safety
/// The pointer is valid for the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsmi_num_monitor_devices(count: *mut u32) -> c_int {
    crate::api::counted!(rsmi_num_monitor_devices);
    // SAFETY: the caller guarantees it.
    unsafe { count.write(device::all().len() as u32) };
    SUCCESS
}

/// # Safety
/// The pointer is valid for the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsmi_dev_pci_id_get(index: u32, place: *mut u64) -> c_int {
    crate::api::counted!(rsmi_dev_pci_id_get);
    // The bus of `hipDeviceGetPCIBusId`.
    // SAFETY: the caller guarantees it.
    unsafe { place.write(0xffff << 32 | u64::from(index) << 8) };
    SUCCESS
}

/// # Safety
/// There is room for the structure of clocks: `rsmi_frequencies_t` of 6.0 and later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsmi_dev_gpu_clk_freq_get(_index: u32, domain: u32, words: *mut u64) -> c_int {
    crate::api::counted!(rsmi_dev_gpu_clk_freq_get);
    let Some((now, most)) = clocks().filter(|_| domain == 0) else { return NOT_SUPPORTED };
    for (word, value) in [2 << 32, 0, now * 1_000_000, most * 1_000_000].into_iter().enumerate() {
        // SAFETY: the caller guarantees it.
        unsafe { words.add(word).write(value) };
    }
    SUCCESS
}

/// # Safety
/// The pointer is valid for the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsmi_dev_current_socket_power_get(_index: u32, microwatts: *mut u64) -> c_int {
    crate::api::counted!(rsmi_dev_current_socket_power_get);
    // SAFETY: the caller guarantees it.
    unsafe { microwatts.write(700_000_000) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn rsmi_dev_power_ave_get(_index: u32, _sensor: u32, _microwatts: *mut u64) -> c_int {
    crate::api::counted!(rsmi_dev_power_ave_get);
    NOT_SUPPORTED
}

/// # Safety
/// The pointer is valid for the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsmi_dev_power_cap_get(_index: u32, _sensor: u32, microwatts: *mut u64) -> c_int {
    crate::api::counted!(rsmi_dev_power_cap_get);
    // SAFETY: the caller guarantees it.
    unsafe { microwatts.write(750_000_000) };
    SUCCESS
}

/// # Safety
/// The pointer is valid for the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsmi_dev_temp_metric_get(_index: u32, sensor: u32, _metric: u32, to: *mut i64) -> c_int {
    crate::api::counted!(rsmi_dev_temp_metric_get);
    if sensor != 1 {
        return NOT_SUPPORTED;
    }
    // SAFETY: the caller guarantees it.
    unsafe { to.write(64_000) };
    SUCCESS
}

/// # Safety
/// There is room for the structure of metrics: `rsmi_gpu_metrics_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsmi_dev_gpu_metrics_info_get(_index: u32, words: *mut u64) -> c_int {
    crate::api::counted!(rsmi_dev_gpu_metrics_info_get);
    /// The counters of version 1.6: all rounds, and those in which something held the clock down.
    const COUNTERS: usize = 53;
    let rounds = start().elapsed().as_micros() as u64 + 2;
    let counters = [rounds, 0, rounds / 2, 0, 0, 0];
    // SAFETY: the caller guarantees it.
    unsafe {
        words.write(6 << 24 | 1 << 16 | 472);
        for (index, counter) in counters.into_iter().enumerate() {
            words.add(COUNTERS + index).write(counter);
        }
    }
    SUCCESS
}
