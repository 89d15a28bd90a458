//! Implements `Api` for HIP.

use std::convert::Infallible;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::backend::collective::Collectives;
use crate::backend::gpu::runtime::{Event, Runtime, Stream};
use crate::backend::gpu::tracer::Tracer;
use crate::backend::gpu::{Addresses, Api, Call, EngineNumber, LibraryWork, UnitRange};
use crate::backend::system::{available_memory, numa_node};
use crate::base::Nanos;
use crate::base::threads::lock;
use crate::exec::{DeviceInfo, ExecError, Fault, Health};
use crate::model::Priority;
use crate::ops::{CopyLaunch, Direction, Gemm, KernelSource};
use crate::schedule::Topology;

use super::Hip;
use super::driver::number;
use super::products::Product;
use super::rocprofiler;
use super::smi::Smi;

impl Hip {
    /// Reads a new stream's priority back and adds a note: newer runtimes accept the number and ignore it.
    fn read_priority_back(&self, stream: Stream, asked: c_int) {
        let mut level = 0;
        // SAFETY: the output pointer is valid for the call, and the stream was made just now.
        let code = unsafe { (self.driver.table.stream_priority)(stream, &mut level) };
        if asked == 0 && (code, level) == (0, 0) {
            return;
        }
        let read = match code {
            0 if level == asked => "the runtime reports the same value".to_owned(),
            0 => format!("the runtime reports {level}"),
            code => format!("the runtime does not report it ({code})"),
        };
        self.note(format!(
            "a stream of priority {asked}: {read}; not proven to act, since newer runtimes ignore priorities unless \
             DEBUG_HIP_IGNORE_STREAM_PRIORITY=0"
        ));
    }

    /// Adds a note if a graph of the open streams has more branches than this version of the runtime executes
    /// concurrently.
    fn note_branches(&self) {
        let streams = self.streams.load(Ordering::Relaxed);
        let Some(branches) = self.limits.branches.filter(|&branches| streams > branches) else { return };
        let version = self.driver.version_text();
        self.note(format!(
            "a graph of {streams} streams: HIP {version} runs {branches} branches side by side, and the others behind \
             them, unless DEBUG_HIP_FORCE_GRAPH_QUEUES says otherwise (by AMD's source, not measured)"
        ));
    }

    /// The stream for reading device memory. The default stream would occupy a hardware queue and block other streams.
    fn reads(&self) -> Call<Stream> {
        if let Some(&stream) = self.reads.get() {
            return Ok(stream as Stream);
        }
        let stream = self.make_stream(0)?;
        let _ = self.reads.set(stream as usize);
        Ok(stream)
    }
}

impl Drop for Hip {
    fn drop(&mut self) {
        if let Some(&stream) = self.reads.get() {
            // SAFETY: made by this value, and every read has completed.
            unsafe { (self.driver.runtime.stream_destroy)(stream as Stream) };
        }
    }
}

// SAFETY: as the trait requires for each method.
impl Api for Hip {
    const NAME: &'static str = "hip";
    // According to AMD's issue tracker (rocm-systems 2380), no version supports it.
    const EVENTS_IN_GRAPHS: bool = false;
    // By default the runtime's own waits and writes are kernels too, and a capture does not record them.
    const STEPS_ON_STREAMS: bool = false;
    const HOST_COPIES_BY_KERNEL: bool = true;

    // Coherent memory: otherwise a running kernel would not see the host's writes, and a gate would never open.
    const PINNED: c_uint = number::HOST_PORTABLE | number::HOST_MAPPED | number::HOST_COHERENT;

    type Product = Product;
    // Generated kernels compute all convolutions and attention.
    type Engine = Infallible;

    #[inline]
    fn runtime(&self) -> &Runtime {
        &self.driver.runtime
    }

    #[inline]
    fn check(&self, call: &'static str, code: c_int) -> Call {
        self.driver.check(call, code)
    }

    fn device(&self) -> DeviceInfo {
        let attribute = |number: u32| self.driver.attribute(self.index, number).unwrap_or(0);
        let mut memory = 0usize;
        // SAFETY: the output pointer is valid for the call.
        let code = unsafe { (self.driver.table.device_memory)(&mut memory, self.index as c_int) };
        let mut facts = vec![
            ("architecture".to_owned(), self.architecture.clone()),
            ("hip".to_owned(), self.driver.version_text()),
            ("wave_size".to_owned(), attribute(number::ATTRIBUTE_WARP_SIZE).to_string()),
            ("copy_engines".to_owned(), attribute(number::ATTRIBUTE_COPY_ENGINES).to_string()),
            ("l2_bytes".to_owned(), attribute(number::ATTRIBUTE_L2_BYTES).to_string()),
            ("clock_khz".to_owned(), attribute(number::ATTRIBUTE_CLOCK_RATE).to_string()),
            ("timer_hz".to_owned(), self.clock_rate.to_string()),
            ("hardware_queues".to_owned(), self.queues.to_string()),
            ("copies".to_owned(), self.limits.copies()),
        ];
        // The runtime fills one of two structures, depending on its version.
        let layout =
            if self.driver.table.device_properties_r0600.is_some() { "of 6.0 and later" } else { "before 6.0" };
        facts.push(("properties".to_owned(), layout.to_owned()));
        let lacking = self.driver.lacking();
        if !lacking.is_empty() {
            facts.push(("runtime_lacks".to_owned(), lacking.join(", ")));
        }
        if let Some(bus) = self.driver.bus(self.index) {
            facts.extend(numa_node(&bus).map(|node| ("numa_node".to_owned(), node)));
            facts.push(("pci".to_owned(), bus));
        }
        facts.extend(self.sysfs().map(|sysfs| sysfs.facts()).unwrap_or_default());
        if let Some(Health { sensors, .. }) = self.health() {
            let figures = [
                ("clock_mhz", sensors.clock_mhz),
                ("max_clock_mhz", sensors.max_clock_mhz),
                ("power_watts", sensors.power_watts),
                ("power_limit_watts", sensors.power_limit_watts),
                ("celsius", sensors.celsius),
            ];
            facts.extend(figures.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.to_string()))));
        }
        facts.extend(self.smi().map(Smi::facts).unwrap_or_default());
        // Reports only libraries that the run has opened.
        if let Some(hiprtc) = self.hiprtc.get() {
            facts.push(("hiprtc".to_owned(), hiprtc.version()));
        }
        if let Some(Ok(library)) = self.hipblaslt.get() {
            facts.push(("hipblaslt".to_owned(), library.version.clone()));
        }
        if let Some(Ok(library)) = self.rocblas.get() {
            facts.push(("rocblas".to_owned(), library.path.to_owned()));
        }
        if let Some(version) = self.collectives.get().and_then(Collectives::version) {
            facts.push(("rccl".to_owned(), version));
        }
        DeviceInfo {
            name: self.driver.name(self.index).unwrap_or_else(|| "AMD GPU".to_owned()),
            simulated: false,
            index: Some(self.index),
            units: Some(self.units()),
            memory_bytes: (code == 0).then_some(memory as u64),
            host_memory_bytes: available_memory(),
            facts,
        }
    }

    fn topology(&self) -> Topology {
        // Each priority has its own pool of queues, and a stream with a CU mask has a queue of its own.
        Topology { queues: self.queues, by_priority: true, limits_units: true }
    }

    fn has_tracer(&self) -> bool {
        rocprofiler::is_wanted()
    }

    fn tracer(&self) -> Result<Arc<dyn Tracer>, String> {
        Ok(rocprofiler::attached()?)
    }

    fn health(&self) -> Option<Health> {
        // The management library and sysfs read the same sensors. The library is asked first, because sysfs has no
        // throttle reasons.
        self.smi().map(Smi::health).or_else(|| self.sysfs()?.health())
    }

    fn notes(&self) -> Vec<String> {
        lock(&self.notes).clone()
    }

    fn copy_engines(&self) -> u32 {
        // Runtimes before 6 do not report it; every device that they support has copy engines.
        self.driver.attribute(self.index, number::ATTRIBUTE_COPY_ENGINES).unwrap_or(1).max(0) as u32
    }

    fn cache_bytes(&self) -> u64 {
        /// Size of the Infinity Cache of CDNA 3 and CDNA 4, which no attribute reports.
        const INFINITY: u64 = 256 << 20;
        let last = match self.architecture.split(':').next() {
            Some("gfx940" | "gfx941" | "gfx942" | "gfx950") => INFINITY,
            _ => 0,
        };
        let l2 = self.driver.attribute(self.index, number::ATTRIBUTE_L2_BYTES).unwrap_or(0).max(0) as u64;
        last.max(l2)
    }

    fn ticks(&self, time: Nanos) -> u64 {
        (time.0.max(0) as u128 * u128::from(self.clock_rate) / 1_000_000_000) as u64
    }

    fn shared_limit(&self) -> u32 {
        self.shared_limit
    }

    fn make_current(&self) -> Call {
        self.use_device()
    }

    fn compiler(&self) -> Result<String, ExecError> {
        let compiler = self.hiprtc()?.version();
        Ok(format!("hiprtc {compiler} {} {}", self.driver.version_text(), self.architecture))
    }

    fn compile(&self, source: &KernelSource) -> Result<Vec<u8>, String> {
        let hiprtc = self.hiprtc().map_err(|error| error.to_string())?;
        hiprtc.compile(source, &self.architecture).map_err(|reason| reason.to_string())
    }

    fn stream(&self, priority: Priority) -> Call<Stream> {
        let level = self.level(priority)?;
        let stream = self.make_stream(level)?;
        self.streams.fetch_add(1, Ordering::Relaxed);
        self.read_priority_back(stream, level);
        Ok(stream)
    }

    fn stream_within(&self, priority: Priority, part: UnitRange) -> Call<Option<Stream>> {
        self.masked_stream(priority, part)
    }

    fn unit_step(&self) -> u32 {
        self.xcds()
    }

    unsafe fn destroy_stream(&self, stream: Stream) {
        self.streams.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: the caller vouches for the stream.
        unsafe { (self.driver.runtime.stream_destroy)(stream) };
    }

    unsafe fn record_in_graph(&self, _: Event, _: Stream) -> Call {
        Err(Fault::new("record_in_graph", "HIP does not record the time of an event inside a graph"))
    }

    unsafe fn elapsed(&self, from: Event, to: Event) -> Call<Nanos> {
        let mut milliseconds = 0.0f32;
        // SAFETY: the output pointer is valid for the call; the caller vouches for the events.
        let code = unsafe { (self.driver.table.elapsed_time)(&mut milliseconds, from, to) };
        self.check("hipEventElapsedTime", code)?;
        Ok(Nanos::rounded(f64::from(milliseconds) * 1e6))
    }

    fn shares_managed(&self) -> bool {
        self.driver.attribute(self.index, number::ATTRIBUTE_CONCURRENT_MANAGED).is_some_and(|shares| shares > 0)
    }

    unsafe fn memset(&self, address: u64, value: u8, bytes: u64, stream: Stream) -> Call {
        let (address, value) = (address as *mut c_void, c_int::from(value));
        // SAFETY: the caller vouches for memory and stream.
        let code = unsafe { (self.driver.table.memset_async)(address, value, bytes as usize, stream) };
        self.check("hipMemsetAsync", code)
    }

    unsafe fn copy(&self, copy: &CopyLaunch, source: u64, target: u64, stream: Stream) -> Call {
        let table = &self.driver.table;
        let bytes = copy.row_bytes as usize;
        let (from, to) = (source as *mut c_void, target as *mut c_void);
        // SAFETY: the caller vouches for memory and stream.
        unsafe {
            match (copy.rows, copy.direction) {
                (1, Direction::HostToDevice) => {
                    self.check("hipMemcpyHtoDAsync", (table.copy_to_device)(to, from, bytes, stream))
                }
                (1, Direction::DeviceToHost) => {
                    self.check("hipMemcpyDtoHAsync", (table.copy_to_host)(to, from, bytes, stream))
                }
                // Within a device the runtime uses a kernel, unless this flag asks for a copy engine.
                (1, Direction::DeviceToDevice) if copy.engine && self.limits.copies_without_units => {
                    let kind = number::DEVICE_TO_DEVICE_NO_UNITS;
                    self.check("hipMemcpyAsync", (table.copy)(to, from, bytes, kind, stream))
                }
                (1, Direction::DeviceToDevice) => {
                    self.check("hipMemcpyDtoDAsync", (table.copy_on_device)(to, from, bytes, stream))
                }
                (rows, direction) => {
                    let kind = match direction {
                        Direction::HostToDevice => number::HOST_TO_DEVICE,
                        Direction::DeviceToHost => number::DEVICE_TO_HOST,
                        Direction::DeviceToDevice => number::DEVICE_TO_DEVICE,
                    };
                    let pitches = (copy.target_pitch as usize, copy.source_pitch as usize);
                    let code = (table.copy_rows)(to, pitches.0, from, pitches.1, bytes, rows as usize, kind, stream);
                    self.check("hipMemcpy2DAsync", code)
                }
            }
        }
    }

    unsafe fn read(&self, address: u64, out: &mut [u8]) -> Call {
        let stream = self.reads()?;
        let table = &self.driver.table;
        // SAFETY: the buffer has the stated size and outlives the copy; the caller vouches for the address.
        unsafe {
            let code = (table.copy_to_host)(out.as_mut_ptr().cast(), address as *mut c_void, out.len(), stream);
            self.check("hipMemcpyDtoHAsync", code)?;
            self.check("hipStreamSynchronize", (table.stream_synchronize)(stream))
        }
    }

    fn note_graph(&self) {
        self.note_branches();
        self.note_masks_in_graphs();
    }

    fn products(&self, gemm: &Gemm, workspace: u64, wanted: u32) -> Result<Vec<Product>, ExecError> {
        self.algorithms(gemm, workspace, wanted)
    }

    fn same_algorithm(one: &Product, other: &Product) -> bool {
        one.same_algorithm(other)
    }

    #[inline]
    unsafe fn multiply(&self, product: &Product, operands: Addresses, workspace: (u64, u64), stream: Stream) -> Call {
        // SAFETY: the caller vouches for memory and stream.
        unsafe { product.multiply(operands, workspace, stream) }
    }

    fn engine_library(&self) -> Option<&str> {
        None
    }

    fn engines(&self, _: &LibraryWork, _: u64, _: u32, _: Option<EngineNumber>) -> Call<Vec<Infallible>> {
        Ok(Vec::new())
    }

    fn engine_number(engine: &Infallible) -> EngineNumber {
        match *engine {}
    }

    unsafe fn run_engine(&self, engine: &Infallible, _: &[u64], _: (u64, u64), _: Stream) -> Call {
        match *engine {}
    }

    fn collectives(&self) -> Result<Collectives, ExecError> {
        self.rccl().copied()
    }
}
