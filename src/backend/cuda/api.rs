//! Implements `Api` for CUDA: each method is one driver call, or a few that belong together.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

use cudarc::driver::sys::{CUDA_MEMCPY2D_st, CUmemorytype};

use crate::backend::collective::Collectives;
use crate::backend::gpu::runtime::{Event, Function, Runtime, Stream};
use crate::backend::gpu::tracer::Tracer;
use crate::backend::gpu::{Addresses, Api, Call, EngineNumber, LibraryWork, required};
use crate::backend::system::{available_memory, numa_node};
use crate::base::Nanos;
use crate::exec::counters::Counters;
use crate::exec::{DeviceInfo, ExecError, Health, KernelLaunch};
use crate::ops::{CopyLaunch, Direction, Gemm, KernelSource, TensorMap};
use crate::schedule::Topology;

use super::Cuda;
use super::cublaslt::{CublasLt, Product};
use super::cudnn::Cudnn;
use super::cudnn_engine::CudnnEngine;
use super::driver::number;
use super::nvml::Nvml;
use super::occupancy;

/// Size in bytes of a line of the L2 cache.
const LINE: u64 = 128;

impl Api for Cuda {
    const NAME: &'static str = "cuda";
    const EVENTS_IN_GRAPHS: bool = true;
    const STEPS_ON_STREAMS: bool = true;
    const HOST_COPIES_BY_KERNEL: bool = false;

    // Portable, so that other devices can write it too.
    const PINNED: c_uint = number::HOST_ALLOC_PORTABLE;

    type Product = Product;
    type Engine = CudnnEngine;

    #[inline]
    fn runtime(&self) -> &Runtime {
        &self.driver.runtime
    }

    #[inline]
    fn check(&self, call: &'static str, code: c_int) -> Call {
        self.driver.check(call, code)
    }

    fn device(&self) -> DeviceInfo {
        let attribute = |number: i32| self.driver.attribute(self.device, number).unwrap_or(0);
        let mut memory = 0usize;
        // SAFETY: the output pointer is valid for the call.
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
        // Reports only libraries that the run has opened.
        if let Some(nvrtc) = self.nvrtc.get() {
            facts.push(("nvrtc".to_owned(), nvrtc.version()));
        }
        if let Some(library) = self.cublaslt.get() {
            facts.push(("cublaslt".to_owned(), library.version.clone()));
        }
        if let Some(version) = self.collectives.get().and_then(Collectives::version) {
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
        Topology { queues: self.connections, by_priority: false, limits_units: false }
    }

    fn has_tracer(&self) -> bool {
        true
    }

    fn tracer(&self) -> Result<Arc<dyn Tracer>, String> {
        Ok(self.cupti()?)
    }

    fn counters(&self) -> Result<Box<dyn Counters>, String> {
        super::cupti::can_count()?;
        self.make_current().map_err(|fault| fault.to_string())?;
        Ok(Box::new(self.range_profiler()?))
    }

    fn occupancy(&self, kernel: &KernelLaunch) -> Option<f64> {
        occupancy::theoretical(self.unit_limits.as_ref()?, kernel)
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

    fn tensor_map(&self, map: &TensorMap, address: u64) -> Call<[u64; 16]> {
        #[repr(align(64))]
        struct Encoded([u64; 16]);
        let mut encoded = Encoded([0; 16]);
        // Kernels copy by tensor maps only on Hopper; other devices compile another path.
        if self.architecture != "sm_90a" {
            return Ok(encoded.0);
        }
        let name = "cuTensorMapEncodeTiled";
        let encode =
            required(self.driver.table.tensor_map_encode_tiled, name, "kernels that copy by tensor maps need it")?;
        let extent = [map.extent[0], map.extent[1], 1];
        // A row of a box has 128 bytes. In rows that are no whole lines of the cache, it is in two lines, and reading 256 bytes of each
        // takes twice the traffic of the memory (docs/measurements/2026-11-28-rows-of-tensor-maps.md).
        let promotion = match map.strides[0].is_multiple_of(LINE) {
            true => number::TENSOR_MAP_PROMOTE_L2_256B,
            false => number::TENSOR_MAP_PROMOTE_L2_128B,
        };
        // SAFETY: every pointer is valid for the call, to as many numbers as the tensor has dimensions.
        let code = unsafe {
            encode(
                (&raw mut encoded.0).cast(),
                number::TENSOR_MAP_UINT16,
                map.dims.len() as c_uint,
                address as *mut c_void,
                map.dims.as_ptr(),
                map.strides.as_ptr(),
                extent.as_ptr(),
                [1; 3].as_ptr(),
                number::TENSOR_MAP_NO_INTERLEAVE,
                number::TENSOR_MAP_SWIZZLE_128B,
                promotion,
                number::TENSOR_MAP_FILL_ZEROS,
            )
        };
        self.check(name, code).map(|()| encoded.0)
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

    fn compile(&self, source: &KernelSource) -> Result<Vec<u8>, String> {
        let nvrtc = self.nvrtc().map_err(|error| error.to_string())?;
        nvrtc.compile(source, &self.architecture).map_err(|reason| reason.to_string())
    }

    unsafe fn take_all_shared(&self, function: Function) -> Call<u32> {
        // SAFETY: the caller vouches for the function.
        unsafe {
            let bytes = self.free_shared(function)?;
            let attribute = number::FUNCTION_MAX_DYNAMIC_SHARED;
            let code = (self.driver.table.func_set_attribute)(function.cast(), attribute, bytes as c_int);
            self.check("cuFuncSetAttribute", code)?;
            Ok(bytes)
        }
    }

    unsafe fn record_in_graph(&self, event: Event, stream: Stream) -> Call {
        let flags = number::EVENT_RECORD_EXTERNAL;
        // SAFETY: the caller vouches for both.
        let code = unsafe { (self.driver.table.event_record_with_flags)(event.cast(), stream.cast(), flags) };
        self.check("cuEventRecordWithFlags", code)
    }

    unsafe fn elapsed(&self, from: Event, to: Event) -> Call<Nanos> {
        let mut milliseconds = 0.0f32;
        // SAFETY: the output pointer is valid for the call; the caller vouches for the events.
        let code = unsafe { (self.driver.elapsed_time)(&mut milliseconds, from.cast(), to.cast()) };
        self.check("cuEventElapsedTime", code)?;
        Ok(Nanos::rounded(f64::from(milliseconds) * 1e6))
    }

    fn shares_managed(&self) -> bool {
        self.driver.attribute(self.device, number::ATTRIBUTE_CONCURRENT_MANAGED).is_some_and(|shares| shares > 0)
    }

    unsafe fn memset(&self, address: u64, value: u8, bytes: u64, stream: Stream) -> Call {
        // SAFETY: the caller vouches for memory and stream.
        let code = unsafe { (self.driver.table.memset_d8_async)(address, value, bytes as usize, stream.cast()) };
        self.check("cuMemsetD8Async", code)
    }

    unsafe fn copy(&self, copy: &CopyLaunch, source: u64, target: u64, stream: Stream) -> Call {
        let table = &self.driver.table;
        let bytes = copy.row_bytes as usize;
        // SAFETY: the caller vouches for memory and stream.
        unsafe {
            match (copy.rows, copy.direction) {
                (1, Direction::HostToDevice) => {
                    let code = (table.memcpy_htod_async)(target, source as *const c_void, bytes, stream.cast());
                    self.check("cuMemcpyHtoDAsync", code)
                }
                (1, Direction::DeviceToHost) => {
                    let code = (table.memcpy_dtoh_async)(target as *mut c_void, source, bytes, stream.cast());
                    self.check("cuMemcpyDtoHAsync", code)
                }
                (1, Direction::DeviceToDevice) => {
                    self.check("cuMemcpyDtoDAsync", (table.memcpy_dtod_async)(target, source, bytes, stream.cast()))
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
                    self.check("cuMemcpy2DAsync", (table.memcpy_2d_async)(&rows, stream.cast()))
                }
            }
        }
    }

    unsafe fn read(&self, address: u64, out: &mut [u8]) -> Call {
        // SAFETY: the buffer has the stated size; the caller vouches for the address.
        let code = unsafe { (self.driver.table.memcpy_dtoh)(out.as_mut_ptr().cast(), address, out.len()) };
        self.check("cuMemcpyDtoH", code)
    }

    fn has_clusters(&self) -> bool {
        self.has_clusters
    }

    fn products(&self, gemm: &Gemm, workspace: u64, wanted: u32) -> Result<Vec<Product>, ExecError> {
        /// CUBLAS_STATUS_NOT_SUPPORTED.
        const NONE: i64 = 15;
        match CublasLt::products(self.cublaslt()?, gemm, workspace, wanted) {
            Err(fault) if fault.code == NONE => Ok(Vec::new()),
            found => found.map_err(ExecError::device),
        }
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
        self.cudnn().ok().map(|(_, name)| name.as_str())
    }

    fn engines(
        &self,
        work: &LibraryWork,
        workspace: u64,
        wanted: u32,
        engine: Option<EngineNumber>,
    ) -> Call<Vec<CudnnEngine>> {
        match self.cudnn() {
            Ok((library, _)) => Cudnn::engines(library, work, workspace, (wanted, engine)),
            Err(_) => Ok(Vec::new()),
        }
    }

    fn engine_number(engine: &CudnnEngine) -> EngineNumber {
        engine.number()
    }

    #[inline]
    unsafe fn run_engine(&self, engine: &CudnnEngine, operands: &[u64], workspace: (u64, u64), stream: Stream) -> Call {
        // SAFETY: the caller vouches for memory and stream.
        unsafe { engine.run(operands, workspace.0, stream) }
    }

    fn collectives(&self) -> Result<Collectives, ExecError> {
        self.nccl().copied()
    }
}
