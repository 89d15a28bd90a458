//! The device as `backend::gpu` drives it: each of its calls is one of the driver's, or a few that belong together.

use std::ffi::{CString, c_int, c_void};

use cudarc::driver::sys::{CUDA_MEMCPY2D_st, CUevent, CUfunction, CUgraphExec, CUmemorytype, CUmodule, CUstream};

use crate::backend::collective::Collectives;
use crate::backend::gpu::{Api, Call, Handle, Step};
use crate::backend::system::{available_memory, numa_node};
use crate::base::Nanos;
use crate::exec::{DeviceInfo, ExecError, Health};
use crate::model::Priority;
use crate::ops::{Copy as CopyLaunch, Direction, Gemm, Source};
use crate::schedule::Topology;

use super::Cuda;
use super::cublaslt::{CublasLt, Product};
use super::driver::number;
use super::nvml::Nvml;

impl Api for Cuda {
    const NAME: &'static str = "cuda";
    const EVENTS_IN_GRAPHS: bool = true;
    const STEPS_ON_STREAMS: bool = true;
    const HOST_COPIES_BY_KERNEL: bool = false;

    type Stream = CUstream;
    type Event = CUevent;
    type Module = CUmodule;
    type Function = CUfunction;
    type Graph = CUgraphExec;
    type Product = Product;

    fn device(&self) -> DeviceInfo {
        let attribute = |number: i32| self.driver.attribute(self.device, number).unwrap_or(0);
        let mut memory = 0usize;
        // SAFETY: the place is valid for the call.
        let code = unsafe { (self.driver.table.device_total_mem)(&mut memory, self.device) };
        let version = self.driver.version();
        let mut facts = vec![
            ("architecture".to_owned(), self.architecture.clone()),
            ("cuda".to_owned(), format!("{}.{}", version / 1000, version % 1000 / 10)),
            ("copy_engines".to_owned(), attribute(number::ATTRIBUTE_COPY_ENGINES).to_string()),
            ("l2_bytes".to_owned(), attribute(number::ATTRIBUTE_L2_BYTES).to_string()),
            ("clock_khz".to_owned(), attribute(number::ATTRIBUTE_CLOCK_RATE).to_string()),
            ("connections".to_owned(), self.connections.to_string()),
        ];
        facts.extend(self.driver.uuid(self.device).map(|uuid| ("uuid".to_owned(), uuid)));
        if let Some(bus) = self.driver.bus(self.device) {
            facts.extend(numa_node(&bus).map(|node| ("numa_node".to_owned(), node)));
            facts.push(("pci".to_owned(), bus));
        }
        facts.extend(self.nvml().map(Nvml::facts).unwrap_or_default());
        // The versions of libraries that the run has opened.
        if let Some(nvrtc) = self.nvrtc.get() {
            facts.push(("nvrtc".to_owned(), nvrtc.version()));
        }
        if let Some(library) = self.cublaslt.get() {
            facts.push(("cublaslt".to_owned(), library.version.clone()));
        }
        if let Some(version) = self.collectives.get().and_then(|(library, _)| library.version()) {
            facts.push(("nccl".to_owned(), version));
        }
        DeviceInfo {
            name: self.name(),
            simulated: false,
            index: Some(self.index),
            units: Some(attribute(number::ATTRIBUTE_MULTIPROCESSORS).max(0) as u32),
            memory_bytes: (code == 0).then_some(memory as u64),
            host_memory_bytes: available_memory(),
            facts,
        }
    }

    fn topology(&self) -> Topology {
        Topology { queues: self.connections, by_priority: false, units_apart: false }
    }

    fn health(&self) -> Option<Health> {
        self.nvml().map(Nvml::health)
    }

    fn copy_engines(&self) -> u32 {
        self.driver.attribute(self.device, number::ATTRIBUTE_COPY_ENGINES).unwrap_or(0).max(0) as u32
    }

    fn cache_bytes(&self) -> u64 {
        self.driver.attribute(self.device, number::ATTRIBUTE_L2_BYTES).unwrap_or(0).max(0) as u64
    }

    fn ticks(&self, time: Nanos) -> u64 {
        // `globaltimer` counts nanoseconds.
        time.0.max(0) as u64
    }

    fn shared_limit(&self) -> u32 {
        self.shared_limit
    }

    fn make_current(&self) -> Call {
        // SAFETY: the context is retained as long as this value lives.
        self.check("cuCtxSetCurrent", unsafe { (self.driver.table.ctx_set_current)(self.context) })
    }

    fn compiler(&self) -> Result<String, ExecError> {
        Ok(format!("nvrtc {} {}", self.nvrtc()?.version(), self.architecture))
    }

    fn compile(&self, source: &Source) -> Result<Vec<u8>, String> {
        let nvrtc = self.nvrtc().map_err(|error| error.to_string())?;
        nvrtc.compile(source, &self.architecture)
    }

    unsafe fn load(&self, code: &[u8]) -> Call<CUmodule> {
        let mut module: CUmodule = std::ptr::null_mut();
        // SAFETY: the place is valid, and the code is a whole cubin, which carries its own length.
        let status = unsafe { (self.driver.table.module_load_data)(&mut module, code.as_ptr().cast()) };
        self.check("cuModuleLoadData", status).map(|()| module)
    }

    unsafe fn unload(&self, module: CUmodule) {
        // SAFETY: the caller vouches for the module.
        unsafe { (self.driver.table.module_unload)(module) };
    }

    unsafe fn function(&self, module: CUmodule, name: &str) -> Call<CUfunction> {
        let mut function: CUfunction = std::ptr::null_mut();
        let name =
            CString::new(name).map_err(|_| crate::exec::Fault::new("cuModuleGetFunction", "a NUL in the name"))?;
        // SAFETY: the place and the name are valid for the call; the caller vouches for the module.
        let status = unsafe { (self.driver.table.module_get_function)(&mut function, module, name.as_ptr()) };
        self.check("cuModuleGetFunction", status).map(|()| function)
    }

    unsafe fn take_all_shared(&self, function: CUfunction) -> Call<u32> {
        let mut own = 0;
        // SAFETY: the place is valid for the call; the caller vouches for the function.
        unsafe {
            let code = (self.driver.table.func_get_attribute)(&mut own, number::FUNCTION_SHARED, function);
            self.check("cuFuncGetAttribute", code)?;
            let bytes = self.shared_limit.saturating_sub(own.max(0) as u32);
            let attribute = number::FUNCTION_MAX_DYNAMIC_SHARED;
            let code = (self.driver.table.func_set_attribute)(function, attribute, bytes as c_int);
            self.check("cuFuncSetAttribute", code)?;
            Ok(bytes)
        }
    }

    #[inline]
    unsafe fn launch(
        &self,
        function: CUfunction,
        grid: u32,
        block: u32,
        shared: u32,
        stream: CUstream,
        args: *mut *mut c_void,
    ) -> Call {
        let extra = std::ptr::null_mut();
        // SAFETY: the caller vouches for handles and arguments.
        let code = unsafe {
            (self.driver.table.launch_kernel)(function, grid, 1, 1, block, 1, 1, shared, stream, args, extra)
        };
        self.check("cuLaunchKernel", code)
    }

    fn stream(&self, priority: Priority) -> Call<CUstream> {
        let (mut least, mut greatest) = (0, 0);
        let mut stream: CUstream = std::ptr::null_mut();
        // SAFETY: all places are valid for the calls.
        unsafe {
            let code = (self.driver.table.ctx_get_stream_priority_range)(&mut least, &mut greatest);
            self.check("cuCtxGetStreamPriorityRange", code)?;
            // Lower numbers are more urgent: `greatest` is the most urgent.
            let level = match priority {
                Priority::High => greatest,
                Priority::Normal => 0,
                Priority::Low => least,
                Priority::Level(level) => level,
            };
            let level = level.clamp(greatest, least);
            let create = self.driver.table.stream_create_with_priority;
            let code = create(&mut stream, number::STREAM_NON_BLOCKING, level);
            self.check("cuStreamCreateWithPriority", code).map(|()| stream)
        }
    }

    unsafe fn destroy_stream(&self, stream: CUstream) {
        // SAFETY: the caller vouches for the stream.
        unsafe { (self.driver.table.stream_destroy)(stream) };
    }

    unsafe fn idle(&self, stream: CUstream) -> Call<bool> {
        // SAFETY: the caller vouches for the stream.
        match unsafe { (self.driver.table.stream_query)(stream) } {
            number::NOT_READY => Ok(false),
            code => self.check("cuStreamQuery", code).map(|()| true),
        }
    }

    fn event(&self, timed: bool) -> Call<CUevent> {
        let mut event: CUevent = std::ptr::null_mut();
        let flags = if timed { number::EVENT_DEFAULT } else { number::EVENT_DISABLE_TIMING };
        // SAFETY: the place is valid for the call.
        let code = unsafe { (self.driver.table.event_create)(&mut event, flags) };
        self.check("cuEventCreate", code).map(|()| event)
    }

    unsafe fn destroy_event(&self, event: CUevent) {
        // SAFETY: the caller vouches for the event.
        unsafe { (self.driver.table.event_destroy)(event) };
    }

    #[inline]
    unsafe fn record(&self, event: CUevent, stream: CUstream) -> Call {
        // SAFETY: the caller vouches for both.
        self.check("cuEventRecord", unsafe { (self.driver.table.event_record)(event, stream) })
    }

    unsafe fn record_in_graph(&self, event: CUevent, stream: CUstream) -> Call {
        let flags = number::EVENT_RECORD_EXTERNAL;
        // SAFETY: the caller vouches for both.
        let code = unsafe { (self.driver.table.event_record_with_flags)(event, stream, flags) };
        self.check("cuEventRecordWithFlags", code)
    }

    #[inline]
    unsafe fn wait(&self, stream: CUstream, event: CUevent) -> Call {
        // SAFETY: the caller vouches for both.
        self.check("cuStreamWaitEvent", unsafe { (self.driver.table.stream_wait_event)(stream, event, 0) })
    }

    unsafe fn reached(&self, event: CUevent) -> Call<bool> {
        // SAFETY: the caller vouches for the event.
        match unsafe { (self.driver.table.event_query)(event) } {
            number::NOT_READY => Ok(false),
            code => self.check("cuEventQuery", code).map(|()| true),
        }
    }

    unsafe fn elapsed(&self, from: CUevent, to: CUevent) -> Call<Nanos> {
        let mut milliseconds = 0.0f32;
        // SAFETY: the place is valid for the call; the caller vouches for the events.
        let code = unsafe { (self.driver.elapsed_time)(&mut milliseconds, from, to) };
        self.check("cuEventElapsedTime", code)?;
        Ok(Nanos((f64::from(milliseconds) * 1e6).round() as i64))
    }

    fn synchronize(&self) -> Call {
        // SAFETY: the function takes nothing.
        self.check("cuCtxSynchronize", unsafe { (self.driver.table.ctx_synchronize)() })
    }

    fn free_memory(&self) -> Call<u64> {
        let (mut free, mut total) = (0usize, 0usize);
        // SAFETY: both places are valid for the call.
        let code = unsafe { (self.driver.table.mem_get_info)(&mut free, &mut total) };
        self.check("cuMemGetInfo", code).map(|()| free as u64)
    }

    fn allocate(&self, bytes: u64) -> Call<u64> {
        let mut address = 0;
        // SAFETY: the place is valid for the call.
        let code = unsafe { (self.driver.table.mem_alloc)(&mut address, bytes as usize) };
        self.check("cuMemAlloc", code).map(|()| address)
    }

    unsafe fn free(&self, address: u64) {
        // SAFETY: the caller vouches for the address.
        unsafe { (self.driver.table.mem_free)(address) };
    }

    fn allocate_pinned(&self, bytes: u64) -> Call<u64> {
        let mut address: *mut c_void = std::ptr::null_mut();
        // SAFETY: the place is valid for the call.
        // Portable: what other devices write is of use to them too.
        let flags = number::HOST_ALLOC_PORTABLE;
        let code = unsafe { (self.driver.table.mem_host_alloc)(&mut address, bytes as usize, flags) };
        self.check("cuMemHostAlloc", code).map(|()| address as u64)
    }

    unsafe fn free_pinned(&self, address: u64) {
        // SAFETY: the caller vouches for the address.
        unsafe { (self.driver.table.mem_free_host)(address as *mut c_void) };
    }

    unsafe fn memset(&self, address: u64, value: u8, bytes: u64, stream: CUstream) -> Call {
        // SAFETY: the caller vouches for memory and stream.
        let code = unsafe { (self.driver.table.memset_d8_async)(address, value, bytes as usize, stream) };
        self.check("cuMemsetD8Async", code)
    }

    unsafe fn copy(&self, copy: &CopyLaunch, source: u64, target: u64, stream: CUstream) -> Call {
        let table = &self.driver.table;
        let bytes = copy.row_bytes as usize;
        // SAFETY: the caller vouches for memory and stream.
        unsafe {
            match (copy.rows, copy.direction) {
                (1, Direction::HostToDevice) => {
                    let code = (table.memcpy_htod_async)(target, source as *const c_void, bytes, stream);
                    self.check("cuMemcpyHtoDAsync", code)
                }
                (1, Direction::DeviceToHost) => {
                    let code = (table.memcpy_dtoh_async)(target as *mut c_void, source, bytes, stream);
                    self.check("cuMemcpyDtoHAsync", code)
                }
                (1, Direction::DeviceToDevice) => {
                    self.check("cuMemcpyDtoDAsync", (table.memcpy_dtod_async)(target, source, bytes, stream))
                }
                _ => {
                    let kind = |host: bool| match host {
                        true => CUmemorytype::CU_MEMORYTYPE_HOST,
                        false => CUmemorytype::CU_MEMORYTYPE_DEVICE,
                    };
                    let from_host = copy.direction == Direction::HostToDevice;
                    let to_host = copy.direction == Direction::DeviceToHost;
                    let rows = CUDA_MEMCPY2D_st {
                        srcXInBytes: 0,
                        srcY: 0,
                        srcMemoryType: kind(from_host),
                        srcHost: if from_host { source as *const c_void } else { std::ptr::null() },
                        srcDevice: if from_host { 0 } else { source },
                        srcArray: std::ptr::null_mut(),
                        srcPitch: copy.source_pitch as usize,
                        dstXInBytes: 0,
                        dstY: 0,
                        dstMemoryType: kind(to_host),
                        dstHost: if to_host { target as *mut c_void } else { std::ptr::null_mut() },
                        dstDevice: if to_host { 0 } else { target },
                        dstArray: std::ptr::null_mut(),
                        dstPitch: copy.target_pitch as usize,
                        WidthInBytes: bytes,
                        Height: copy.rows as usize,
                    };
                    self.check("cuMemcpy2DAsync", (table.memcpy_2d_async)(&rows, stream))
                }
            }
        }
    }

    unsafe fn read(&self, address: u64, out: &mut [u8]) -> Call {
        // SAFETY: the buffer has the size that is told; the caller vouches for the address.
        let code = unsafe { (self.driver.table.memcpy_dtoh)(out.as_mut_ptr().cast(), address, out.len()) };
        self.check("cuMemcpyDtoH", code)
    }

    unsafe fn export(&self, address: u64) -> Call<Handle> {
        // SAFETY: the same contract.
        unsafe { self.export_memory(address) }
    }

    fn import(&self, handle: &Handle) -> Call<u64> {
        self.import_memory(handle)
    }

    unsafe fn close(&self, address: u64) {
        // SAFETY: the same contract.
        unsafe { self.close_memory(address) }
    }

    unsafe fn register(&self, address: u64, bytes: u64) -> Call<u64> {
        // SAFETY: the same contract.
        unsafe { self.register_host(address, bytes) }
    }

    unsafe fn unregister(&self, address: u64) {
        // SAFETY: the same contract.
        unsafe { self.unregister_host(address) }
    }

    fn reaches(&self, other: &Self) -> Call<bool> {
        self.can_access(other)
    }

    fn reach(&self, other: &Self) -> Call {
        self.enable_access(other)
    }

    unsafe fn copy_staged(&self, copy: &CopyLaunch, source: u64, target: (u64, &Self), stream: CUstream) -> Call {
        // SAFETY: the caller vouches for memory and stream.
        unsafe { self.copy_rows(copy, source, target, stream) }
    }

    unsafe fn meet(&self, steps: &[Step], stream: CUstream) -> Call {
        // SAFETY: the caller vouches for memory and stream.
        unsafe { self.take_steps(steps, stream) }
    }

    unsafe fn begin_capture(&self, stream: CUstream) -> Call {
        // Relaxed: NCCL connects ranks at its first call, also in a capture, and then allocates and opens other devices'
        // memory, from this thread and from its own.
        // SAFETY: the caller vouches for the stream.
        let code = unsafe { (self.driver.table.stream_begin_capture)(stream, number::CAPTURE_RELAXED) };
        self.check("cuStreamBeginCapture", code)
    }

    unsafe fn end_capture(&self, stream: CUstream) -> Call<CUgraphExec> {
        let mut graph = std::ptr::null_mut();
        let mut launchable: CUgraphExec = std::ptr::null_mut();
        let table = &self.driver.table;
        // SAFETY: all places are valid for the calls; the caller vouches for the stream.
        unsafe {
            self.check("cuStreamEndCapture", (table.stream_end_capture)(stream, &mut graph))?;
            let made = self.check("cuGraphInstantiate", (table.graph_instantiate)(&mut launchable, graph, 0));
            (table.graph_destroy)(graph);
            made?;
            let uploaded = self.check("cuGraphUpload", (table.graph_upload)(launchable, stream));
            let ready = uploaded.and_then(|()| self.synchronize());
            if ready.is_err() {
                (table.graph_exec_destroy)(launchable);
            }
            ready.map(|()| launchable)
        }
    }

    unsafe fn destroy_graph(&self, graph: CUgraphExec) {
        // SAFETY: the caller vouches for the graph.
        unsafe { (self.driver.table.graph_exec_destroy)(graph) };
    }

    unsafe fn launch_graph(&self, graph: CUgraphExec, stream: CUstream) -> Call {
        // SAFETY: the caller vouches for both.
        self.check("cuGraphLaunch", unsafe { (self.driver.table.graph_launch)(graph, stream) })
    }

    fn products(&self, gemm: &Gemm, workspace: u64, wanted: u32) -> Result<Vec<Product>, ExecError> {
        CublasLt::products(self.cublaslt()?, gemm, workspace, wanted)
            .map_err(|fault| ExecError::Device { fault: fault.to_string(), help: None })
    }

    #[inline]
    unsafe fn multiply(&self, product: &Product, operands: [u64; 3], workspace: (u64, u64), stream: CUstream) -> Call {
        // SAFETY: the caller vouches for memory and stream.
        unsafe { product.multiply(operands, workspace, stream.cast()) }
    }

    fn collectives(&self) -> Result<Collectives, ExecError> {
        self.open_collectives().map(|(collectives, _)| *collectives)
    }

    fn raw_stream(stream: CUstream) -> *mut c_void {
        stream.cast()
    }
}
