//! Hardware counters of single operations, by CUPTI's range profiler.
//!
//! A range is one operation that runs alone, since counters belong to the device and not to a stream. The chip has a
//! limited number of counters, so that a range may have to run several times (passes). Parameters of each call are a
//! structure that begins with its size, up to the end of its last field.

use std::ffi::{CString, c_char, c_void};
use std::mem::offset_of;

use cudarc::driver::sys::CUcontext;

use crate::backend::libraries::{SearchPaths, functions};
use crate::exec::counters::{CounterValue, Counters};

use super::cupti;

/// Declares the parameters of a call: the size, a pointer that stays null, and fields. `SIZE` is the size that the library
/// expects.
macro_rules! params {
    ($($name:ident { $($field:ident: $type:ty),* ; $last:ident: $last_type:ty })*) => {
        $(
            #[repr(C)]
            #[derive(Clone, Copy)]
            pub struct $name {
                size: usize,
                private: *mut c_void,
                $(pub $field: $type,)*
                pub $last: $last_type,
            }

            impl $name {
                pub const SIZE: usize = offset_of!($name, $last) + size_of::<$last_type>();

                /// Returns the structure with its size, as CUPTI requires, and all other fields 0.
                fn new() -> $name {
                    // SAFETY: the structure has numbers and pointers alone.
                    $name { size: $name::SIZE, ..unsafe { std::mem::zeroed() } }
                }
            }
        )*
    };
}

type Bytes = *mut u8;
type Handle = *mut c_void;
type Names = *const *const c_char;

params! {
    Initialize { ; reserved: [u8; 0] }
    ChipName { device: usize; name: *const c_char }
    Availability { context: CUcontext, bytes: usize; image: Bytes }
    HostInitialize { kind: i32, chip: *const c_char, availability: Bytes; host: Handle }
    Host { ; host: Handle }
    AddMetrics { host: Handle, names: Names; count: usize }
    ConfigSize { host: Handle; bytes: usize }
    Config { host: Handle, bytes: usize; image: Bytes }
    Evaluate { host: Handle, data: Bytes, bytes: usize, range: usize, names: Names, count: usize; values: *mut f64 }
    Enable { context: CUcontext; profiler: Handle }
    Profiler { ; profiler: Handle }
    DataSize { profiler: Handle, names: Names, count: usize, ranges: usize, nodes: u32; bytes: usize }
    InitializeData { profiler: Handle, bytes: usize; data: Bytes }
    SetConfig {
        profiler: Handle, config_bytes: usize, config: Bytes, data_bytes: usize, data: Bytes, range: i32, replay: i32,
        ranges: usize, levels: u16, least_level: u16, pass: usize; level: u16
    }
    Push { profiler: Handle; name: *const c_char }
    Stop { profiler: Handle, pass: usize, level: usize; complete: u8 }
    Decode { profiler: Handle; dropped: usize }
}

functions! {
    /// The functions of the range profiler.
    Table {
        initialize = cuptiProfilerInitialize(*mut Initialize);
        chip_name = cuptiDeviceGetChipName(*mut ChipName);
        availability = cuptiProfilerGetCounterAvailability(*mut Availability);
        host_initialize = cuptiProfilerHostInitialize(*mut HostInitialize);
        host_deinitialize = cuptiProfilerHostDeinitialize(*mut Host);
        add_metrics = cuptiProfilerHostConfigAddMetrics(*mut AddMetrics);
        config_size = cuptiProfilerHostGetConfigImageSize(*mut ConfigSize);
        config = cuptiProfilerHostGetConfigImage(*mut Config);
        evaluate = cuptiProfilerHostEvaluateToGpuValues(*mut Evaluate);
        enable = cuptiRangeProfilerEnable(*mut Enable);
        disable = cuptiRangeProfilerDisable(*mut Profiler);
        data_size = cuptiRangeProfilerGetCounterDataSize(*mut DataSize);
        initialize_data = cuptiRangeProfilerCounterDataImageInitialize(*mut InitializeData);
        set_config = cuptiRangeProfilerSetConfig(*mut SetConfig);
        start = cuptiRangeProfilerStart(*mut Profiler);
        stop = cuptiRangeProfilerStop(*mut Stop);
        push = cuptiRangeProfilerPushRange(*mut Push);
        pop = cuptiRangeProfilerPopRange(*mut Profiler);
        decode = cuptiRangeProfilerDecodeData(*mut Decode);
        result_string = cuptiGetResultString(i32, *mut *const c_char);
    }
}

/// Prefix of the names of the libraries that CUPTI loads by itself to read counters.
const NVPERF_PREFIX: &str = "libnvperf_";

const USER_RANGES: i32 = 2;
const USER_REPLAY: i32 = 3;

/// A quantity that the report shows.
struct CounterQuantity {
    /// NVIDIA's name of the metric, or of two metrics whose quotient is the quantity. `ncu --query-metrics` lists the
    /// metrics of each chip.
    metrics: &'static [&'static str],
    text: &'static str,
    unit: &'static str,
}

/// The quantities, in the order of the report. A range includes the time in which the host launches the operation.
/// Shares are therefore relative to active cycles and not to the length of the range.
const QUANTITIES: [CounterQuantity; 9] = [
    CounterQuantity {
        metrics: &["sm__cycles_active.avg", "sm__cycles_active.max"],
        text: "active cycles of an SM on average, as a share of those of the busiest SM",
        unit: "%",
    },
    CounterQuantity {
        metrics: &["sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"],
        text: "tensor cores active, as a share of the active cycles of the SMs",
        unit: "%",
    },
    CounterQuantity { metrics: &["dram__bytes_read.sum"], text: "read from device memory", unit: "B" },
    CounterQuantity { metrics: &["dram__bytes_write.sum"], text: "written to device memory", unit: "B" },
    CounterQuantity { metrics: &["lts__t_bytes.sum"], text: "read from and written to the L2 cache", unit: "B" },
    CounterQuantity { metrics: &["nvlrx__bytes.sum"], text: "received by NVLink", unit: "B" },
    CounterQuantity { metrics: &["nvltx__bytes.sum"], text: "sent by NVLink", unit: "B" },
    CounterQuantity { metrics: &["pcie__read_bytes.sum"], text: "received by PCIe", unit: "B" },
    CounterQuantity { metrics: &["pcie__write_bytes.sum"], text: "sent by PCIe", unit: "B" },
];

/// The chip of a device in CUPTI's terms, and an image of the counters that are available on it.
struct Chip {
    context: CUcontext,
    name: *const c_char,
    availability: Vec<u8>,
}

/// The range profiler of one device, with the quantities that it counts there.
pub struct RangeProfiler {
    table: Table,
    /// Quantities that are counted, as indices of [`QUANTITIES`].
    counted: Vec<usize>,
    names: Vec<CString>,
    host: Handle,
    profiler: Handle,
    config: Vec<u8>,
    data: Vec<u8>,
    /// The next pass that a range executes, with its nesting level, as the library numbers them.
    next: (usize, usize),
}

// SAFETY: the handles may be used from any thread, one at a time.
unsafe impl Send for RangeProfiler {}

impl Table {
    /// Resolves the functions of the library, preferably of the major version that is first in `names`. The error is
    /// the reason in words why they cannot be used.
    pub fn open(paths: &SearchPaths, names: &[String]) -> Result<Table, String> {
        let opened = cupti::find(paths, names)?;
        opened.open_beside(NVPERF_PREFIX);
        Table::load(&opened).map_err(|error| format!("a newer CUPTI is needed: {error}"))
    }

    /// Returns the reason, in words, if a call's status is not 0.
    fn check(&self, call: &str, code: i32) -> Result<(), String> {
        cupti::check(self.result_string, call, code)
    }

    fn chip(&self, device: u32, context: CUcontext) -> Result<Chip, String> {
        let mut chip = ChipName { device: device as usize, ..ChipName::new() };
        let mut availability = Availability { context, ..Availability::new() };
        // SAFETY: each structure is that of its call, and lives as long as the call.
        unsafe {
            // After an error here, the library crashes in the next call.
            self.check("cuptiProfilerInitialize", (self.initialize)(&mut Initialize::new()))?;
            self.check("cuptiDeviceGetChipName", (self.chip_name)(&mut chip))?;
            self.check("cuptiProfilerGetCounterAvailability", (self.availability)(&mut availability))?;
        }
        let mut image = vec![0u8; availability.bytes];
        availability.image = image.as_mut_ptr();
        // SAFETY: the image has the size that the structure says.
        self.check("cuptiProfilerGetCounterAvailability", unsafe { (self.availability)(&mut availability) })?;
        Ok(Chip { context, name: chip.name, availability: image })
    }
}

fn pointers(names: &[CString]) -> Vec<*const c_char> {
    names.iter().map(|name| name.as_ptr()).collect()
}

impl RangeProfiler {
    /// Enables the profiler on a device, whose context is current, for the quantities that the chip can count. The
    /// error is the reason in words why none can be counted.
    pub fn enable(table: Table, device: u32, context: CUcontext) -> Result<RangeProfiler, String> {
        let mut chip = table.chip(device, context)?;
        // The library rejects a whole list of metrics because of a single one, so metrics are tried one after the
        // other.
        let (mut counted, mut refused) = (Vec::new(), None);
        for index in 0..QUANTITIES.len() {
            let more = [&counted[..], &[index]].concat();
            match Self::enable_and_test(table, &mut chip, more.clone()) {
                Ok(_) => counted = more,
                Err(why) => drop(refused.get_or_insert(why)),
            }
        }
        match refused {
            Some(why) if counted.is_empty() => Err(why),
            _ => Self::enable_and_test(table, &mut chip, counted),
        }
    }

    /// Enables the profiler for some quantities, and counts an empty range to test it.
    fn enable_and_test(table: Table, chip: &mut Chip, counted: Vec<usize>) -> Result<RangeProfiler, String> {
        let metrics = counted.iter().flat_map(|index| QUANTITIES[*index].metrics);
        let names = metrics.map(|name| CString::new(*name).expect("a constant without NUL")).collect();
        let mut host =
            HostInitialize { chip: chip.name, availability: chip.availability.as_mut_ptr(), ..HostInitialize::new() };
        // SAFETY: the structure is that of the call, and lives as long as the call.
        table.check("cuptiProfilerHostInitialize", unsafe { (table.host_initialize)(&mut host) })?;
        let mut made = RangeProfiler {
            table,
            counted,
            names,
            host: host.host,
            profiler: std::ptr::null_mut(),
            config: Vec::new(),
            data: Vec::new(),
            next: (0, 1),
        };
        made.prepare(chip.context)?;
        made.begin()?;
        made.end()?;
        made.reset()?;
        Ok(made)
    }

    /// Creates the images of configuration and counter data, and attaches the profiler to the context.
    fn prepare(&mut self, context: CUcontext) -> Result<(), String> {
        let (table, host) = (self.table, self.host);
        let names = pointers(&self.names);
        let (list, count) = (names.as_ptr(), names.len());
        let mut add = AddMetrics { host, names: list, count, ..AddMetrics::new() };
        let mut size = ConfigSize { host, ..ConfigSize::new() };
        // SAFETY: each structure is that of its call; images have the sizes that the structures say; the library copies names.
        unsafe {
            table.check("cuptiProfilerHostConfigAddMetrics", (table.add_metrics)(&mut add))?;
            table.check("cuptiProfilerHostGetConfigImageSize", (table.config_size)(&mut size))?;
            self.config = vec![0; size.bytes];
            let mut config = Config { host, bytes: size.bytes, image: self.config.as_mut_ptr(), ..Config::new() };
            table.check("cuptiProfilerHostGetConfigImage", (table.config)(&mut config))?;
            let mut enable = Enable { context, ..Enable::new() };
            table.check("cuptiRangeProfilerEnable", (table.enable)(&mut enable))?;
            self.profiler = enable.profiler;
            let profiler = self.profiler;
            let mut size = DataSize { profiler, names: list, count, ranges: 1, nodes: 1, ..DataSize::new() };
            table.check("cuptiRangeProfilerGetCounterDataSize", (table.data_size)(&mut size))?;
            self.data = vec![0; size.bytes];
        }
        self.reset()
    }

    /// Clears the counter data, so that the next range begins with the first pass.
    fn reset(&mut self) -> Result<(), String> {
        let (profiler, bytes, data) = (self.profiler, self.data.len(), self.data.as_mut_ptr());
        let mut initialize = InitializeData { profiler, bytes, data, ..InitializeData::new() };
        // SAFETY: the structure is that of the call, and the image has the size that it says.
        let code = unsafe { (self.table.initialize_data)(&mut initialize) };
        self.table.check("cuptiRangeProfilerCounterDataImageInitialize", code)?;
        self.next = (0, 1);
        Ok(())
    }

    /// Returns a value for each of [`QUANTITIES`], from the library's values of the counted metrics; `None` for
    /// quantities that the chip cannot count.
    fn counts(&self, values: &[f64]) -> Vec<CounterValue> {
        let mut values = values.iter().copied();
        let value = |(index, quantity): (usize, &CounterQuantity)| {
            let is_counted = self.counted.contains(&index);
            let mut next = || if is_counted { values.next() } else { None };
            let value = match quantity.metrics {
                [_, _] => next().zip(next()).map(|(part, whole)| if whole == 0.0 { 0.0 } else { 100.0 * part / whole }),
                _ => next(),
            };
            CounterValue {
                metric: quantity.metrics.join(" / "),
                text: quantity.text.to_owned(),
                unit: quantity.unit.to_owned(),
                value: value.filter(|value| value.is_finite()),
            }
        };
        QUANTITIES.iter().enumerate().map(value).collect()
    }
}

impl Counters for RangeProfiler {
    fn begin(&mut self) -> Result<(), String> {
        let profiler = self.profiler;
        let mut config = SetConfig {
            profiler,
            config_bytes: self.config.len(),
            config: self.config.as_mut_ptr(),
            data_bytes: self.data.len(),
            data: self.data.as_mut_ptr(),
            range: USER_RANGES,
            replay: USER_REPLAY,
            ranges: 1,
            levels: 1,
            least_level: 1,
            pass: self.next.0,
            level: self.next.1 as u16,
            ..SetConfig::new()
        };
        let mut push = Push { profiler, name: c"operation".as_ptr(), ..Push::new() };
        // SAFETY: each structure is that of its call; the images live as long as the profiler.
        unsafe {
            self.table.check("cuptiRangeProfilerSetConfig", (self.table.set_config)(&mut config))?;
            self.table
                .check("cuptiRangeProfilerStart", (self.table.start)(&mut Profiler { profiler, ..Profiler::new() }))?;
            self.table.check("cuptiRangeProfilerPushRange", (self.table.push)(&mut push))
        }
    }

    fn end(&mut self) -> Result<bool, String> {
        let profiler = self.profiler;
        let mut stop = Stop { profiler, ..Stop::new() };
        // SAFETY: each structure is that of its call.
        unsafe {
            self.table
                .check("cuptiRangeProfilerPopRange", (self.table.pop)(&mut Profiler { profiler, ..Profiler::new() }))?;
            self.table.check("cuptiRangeProfilerStop", (self.table.stop)(&mut stop))?;
        }
        self.next = (stop.pass, stop.level);
        Ok(stop.complete != 0)
    }

    fn values(&mut self) -> Result<Vec<CounterValue>, String> {
        let mut decode = Decode { profiler: self.profiler, ..Decode::new() };
        // SAFETY: the structure is that of the call.
        self.table.check("cuptiRangeProfilerDecodeData", unsafe { (self.table.decode)(&mut decode) })?;
        if decode.dropped > 0 {
            return Err("the library dropped the counts".to_owned());
        }
        let names = pointers(&self.names);
        let mut values = vec![0.0; names.len()];
        let mut evaluate = Evaluate {
            host: self.host,
            data: self.data.as_mut_ptr(),
            bytes: self.data.len(),
            names: names.as_ptr(),
            count: names.len(),
            values: values.as_mut_ptr(),
            ..Evaluate::new()
        };
        // SAFETY: as above; there is a value for each name.
        self.table.check("cuptiProfilerHostEvaluateToGpuValues", unsafe { (self.table.evaluate)(&mut evaluate) })?;
        self.reset()?;
        Ok(self.counts(&values))
    }
}

impl Drop for RangeProfiler {
    fn drop(&mut self) {
        // SAFETY: both were made by this value. A status other than 0 leaves nothing else to do.
        unsafe {
            if !self.profiler.is_null() {
                (self.table.disable)(&mut Profiler { profiler: self.profiler, ..Profiler::new() });
            }
            (self.table.host_deinitialize)(&mut Host { host: self.host, ..Host::new() });
        }
    }
}

#[cfg(test)]
mod tests;
