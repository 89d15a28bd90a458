//! The CUDA driver library: its functions, each resolved once, and queries about devices.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUstream, CUstreamBatchMemOpParams_v1,
};

use crate::backend::gpu::NoDriver;
use crate::backend::gpu::runtime::{Names, Runtime};
use crate::backend::libraries::{NotOpened, SearchPaths, functions, text};
use crate::exec::{ExecError, Fault};

static NAMES: Names = Names {
    synchronize: "cuCtxSynchronize",
    priority_range: "cuCtxGetStreamPriorityRange",
    memory_info: "cuMemGetInfo_v2",
    malloc: "cuMemAlloc_v2",
    malloc_managed: "cuMemAllocManaged",
    free: "cuMemFree_v2",
    host_malloc: "cuMemHostAlloc",
    host_free: "cuMemFreeHost",
    stream_create: "cuStreamCreateWithPriority",
    stream_destroy: "cuStreamDestroy_v2",
    stream_query: "cuStreamQuery",
    stream_wait_event: "cuStreamWaitEvent",
    begin_capture: "cuStreamBeginCapture_v2",
    end_capture: "cuStreamEndCapture",
    event_create: "cuEventCreate",
    event_destroy: "cuEventDestroy_v2",
    event_record: "cuEventRecord",
    event_query: "cuEventQuery",
    module_load: "cuModuleLoadData",
    module_unload: "cuModuleUnload",
    module_function: "cuModuleGetFunction",
    function_attribute: "cuFuncGetAttribute",
    resident_blocks: "cuOccupancyMaxActiveBlocksPerMultiprocessor",
    launch_kernel: "cuLaunchKernel",
    graph_instantiate: "cuGraphInstantiateWithFlags",
    graph_launch: "cuGraphLaunch",
    graph_destroy: "cuGraphDestroy",
    graph_exec_destroy: "cuGraphExecDestroy",
    graph_upload: "cuGraphUpload",
    ipc_get_mem_handle: "cuIpcGetMemHandle",
    ipc_open_mem_handle: "cuIpcOpenMemHandle_v2",
    ipc_close_mem_handle: "cuIpcCloseMemHandle",
    host_register: "cuMemHostRegister_v2",
    host_unregister: "cuMemHostUnregister",
    host_device_pointer: "cuMemHostGetDevicePointer_v2",
};

functions! {
    /// Functions that only CUDA's driver has.
    Table {
        init = cuInit(c_uint);
        driver_get_version = cuDriverGetVersion(*mut c_int);
        get_error_string = cuGetErrorString(c_int, *mut *const c_char);
        device_get_count = cuDeviceGetCount(*mut c_int);
        device_get = cuDeviceGet(*mut CUdevice, c_int);
        device_get_name = cuDeviceGetName(*mut c_char, c_int, CUdevice);
        device_total_mem = cuDeviceTotalMem_v2(*mut usize, CUdevice);
        device_get_attribute = cuDeviceGetAttribute(*mut c_int, c_int, CUdevice);
        primary_ctx_retain = cuDevicePrimaryCtxRetain(*mut CUcontext, CUdevice);
        primary_ctx_release = cuDevicePrimaryCtxRelease_v2(CUdevice);
        ctx_set_current = cuCtxSetCurrent(CUcontext);
        memset_d8_async = cuMemsetD8Async(CUdeviceptr, u8, usize, CUstream);
        memcpy_htod_async = cuMemcpyHtoDAsync_v2(CUdeviceptr, *const c_void, usize, CUstream);
        memcpy_dtoh_async = cuMemcpyDtoHAsync_v2(*mut c_void, CUdeviceptr, usize, CUstream);
        memcpy_dtod_async = cuMemcpyDtoDAsync_v2(CUdeviceptr, CUdeviceptr, usize, CUstream);
        memcpy_2d_async = cuMemcpy2DAsync_v2(*const cudarc::driver::sys::CUDA_MEMCPY2D_st, CUstream);
        memcpy_dtoh = cuMemcpyDtoH_v2(*mut c_void, CUdeviceptr, usize);
        event_record_with_flags = cuEventRecordWithFlags(CUevent, CUstream, c_uint);
        func_set_attribute = cuFuncSetAttribute(CUfunction, c_int, c_int);
    }
    optional {
        // Copies to other devices.
        device_can_access_peer = cuDeviceCanAccessPeer(*mut c_int, CUdevice, CUdevice);
        ctx_enable_peer_access = cuCtxEnablePeerAccess(CUcontext, c_uint);
        memcpy_peer_async = cuMemcpyPeerAsync(CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, usize, CUstream);
        // Since CUDA 11.7.
        stream_batch_mem_op = cuStreamBatchMemOp_v2(CUstream, c_uint, *mut CUstreamBatchMemOpParams_v1, c_uint);
        // Since CUDA 12.0.
        tensor_map_encode_tiled = cuTensorMapEncodeTiled(
            *mut c_void, c_uint, c_uint, *mut c_void, *const u64, *const u64, *const u32, *const u32, c_uint, c_uint, c_uint, c_uint
        );
        // Newer headers map this name to the second version of the function.
        elapsed_time = cuEventElapsedTime(*mut f32, CUevent, CUevent);
        elapsed_time_v2 = cuEventElapsedTime_v2(*mut f32, CUevent, CUevent);
        device_get_uuid = cuDeviceGetUuid_v2(*mut [u8; 16], CUdevice);
        device_get_bus = cuDeviceGetPCIBusId(*mut c_char, c_int, CUdevice);
    }
}

/// Constants of the driver's header `cuda.h`.
pub mod number {
    pub use crate::backend::gpu::runtime::number::*;

    pub const HOST_ALLOC_PORTABLE: u32 = 1;
    pub const WAIT_VALUE_EQ: u32 = 1;
    pub const WRITE_VALUE_DEFAULT: u32 = 0;
    pub const EVENT_RECORD_EXTERNAL: u32 = 1;
    pub const ATTRIBUTE_CLOCK_RATE: i32 = 13;
    pub const ATTRIBUTE_MULTIPROCESSORS: i32 = 16;
    pub const ATTRIBUTE_L2_BYTES: i32 = 38;
    pub const ATTRIBUTE_UNIT_THREADS: i32 = 39;
    pub const ATTRIBUTE_COPY_ENGINES: i32 = 40;
    pub const ATTRIBUTE_MAJOR: i32 = 75;
    pub const ATTRIBUTE_MINOR: i32 = 76;
    pub const ATTRIBUTE_UNIT_SHARED: i32 = 81;
    pub const ATTRIBUTE_UNIT_REGISTERS: i32 = 82;
    pub const ATTRIBUTE_CONCURRENT_MANAGED: i32 = 89;
    pub const ATTRIBUTE_SHARED_OPTIN: i32 = 97;
    pub const ATTRIBUTE_UNIT_BLOCKS: i32 = 106;
    pub const ATTRIBUTE_RESERVED_SHARED: i32 = 111;
    pub const FUNCTION_MAX_DYNAMIC_SHARED: i32 = 8;
    pub const TENSOR_MAP_UINT16: u32 = 1;
    pub const TENSOR_MAP_NO_INTERLEAVE: u32 = 0;
    pub const TENSOR_MAP_SWIZZLE_128B: u32 = 3;
    pub const TENSOR_MAP_PROMOTE_L2_128B: u32 = 2;
    pub const TENSOR_MAP_PROMOTE_L2_256B: u32 = 3;
    pub const TENSOR_MAP_FILL_ZEROS: u32 = 0;
}

/// The driver library, opened and initialized.
#[derive(Clone, Copy)]
pub struct CudaDriver {
    pub table: Table,
    pub runtime: Runtime,
    pub elapsed_time: unsafe extern "C" fn(*mut f32, CUevent, CUevent) -> i32,
    pub path: &'static str,
}

/// Message for a driver without usable devices.
pub const NONE_SEEN: &str = "the CUDA driver sees no device";

/// Status codes of asynchronous failures, which any later call can return: ECC and other memory errors, illegal
/// addresses, timeouts, assertions, illegal instructions, failed launches.
const ASYNCHRONOUS_FAILURES: [i32; 11] = [214, 220, 700, 702, 710, 714, 715, 716, 717, 718, 719];

impl CudaDriver {
    /// Opens and initializes the driver.
    pub fn open(paths: &SearchPaths) -> Result<CudaDriver, NoDriver> {
        let names = ["libcuda.so.1", "libcuda.so"].map(str::to_owned);
        let opened = match paths.open(&names) {
            Ok(opened) => opened,
            Err(NotOpened::Absent) => return Err(NoDriver::Absent("no libcuda.so.1 on this machine")),
            Err(NotOpened::Broken(why)) => {
                return Err(NoDriver::Fails(no_device(format!("the driver's library does not load: {why}"))));
            }
        };
        let table = Table::load(&opened).map_err(NoDriver::Fails)?;
        let runtime = Runtime::load(&opened, &NAMES).map_err(NoDriver::Fails)?;
        let elapsed_time = table
            .elapsed_time_v2
            .or(table.elapsed_time)
            .ok_or_else(|| NoDriver::Fails(opened.missing_function("cuEventElapsedTime")))?;
        let driver = CudaDriver { table, runtime, elapsed_time, path: opened.path };
        // SAFETY: the function takes a number that has to be 0.
        let code = unsafe { (table.init)(0) };
        if code == number::NO_DEVICE {
            return Err(NoDriver::NoDevice(NONE_SEEN.to_owned()));
        }
        driver.check("cuInit", code).map_err(|fault| NoDriver::Fails(no_device(fault.to_string())))?;
        Ok(driver)
    }

    /// Returns a fault if a call's status is not 0.
    #[inline]
    pub fn check(&self, call: &'static str, code: i32) -> Result<(), Box<Fault>> {
        if code == 0 { Ok(()) } else { Err(self.fault(call, code)) }
    }

    #[cold]
    fn fault(&self, call: &'static str, code: i32) -> Box<Fault> {
        let mut text: *const c_char = std::ptr::null();
        // SAFETY: the output pointer is valid for the call; the text, if any, is a constant of the library.
        let message = unsafe {
            match (self.table.get_error_string)(code, &mut text) {
                0 if !text.is_null() => CStr::from_ptr(text).to_string_lossy().into_owned(),
                _ => "unknown to this driver".to_owned(),
            }
        };
        // The header names the second version of a function without its suffix.
        let call = call.strip_suffix("_v2").unwrap_or(call);
        Box::new(Fault { call, code: i64::from(code), message, late: ASYNCHRONOUS_FAILURES.contains(&code) })
    }

    /// Latest CUDA version that the driver supports: 13000 for 13.0.
    pub fn version(&self) -> i32 {
        let mut version = 0;
        // SAFETY: the output pointer is valid for the call.
        match unsafe { (self.table.driver_get_version)(&mut version) } {
            0 => version,
            _ => 0,
        }
    }

    /// Number of devices.
    pub fn count(&self) -> Result<u32, Box<Fault>> {
        let mut count = 0;
        // SAFETY: the output pointer is valid for the call.
        match unsafe { (self.table.device_get_count)(&mut count) } {
            number::NO_DEVICE => Ok(0),
            code => self.check("cuDeviceGetCount", code).map(|()| count.max(0) as u32),
        }
    }

    /// The device's UUID as NVIDIA's tools write it: `GPU-` and 32 hexadecimal digits in groups. `None` if the driver
    /// does not report it.
    pub fn uuid(&self, device: CUdevice) -> Option<String> {
        let mut bytes = [0u8; 16];
        // SAFETY: the output pointer is valid for the call.
        if unsafe { self.table.device_get_uuid?(&mut bytes, device) } != 0 {
            return None;
        }
        let mut text = String::from("GPU");
        for (index, byte) in bytes.iter().enumerate() {
            if matches!(index, 0 | 4 | 6 | 8 | 10) {
                text.push('-');
            }
            text += &format!("{byte:02x}");
        }
        Some(text)
    }

    /// The device's PCI address, such as `0000:1b:00.0`; `None` if the driver does not report it.
    pub fn bus(&self, device: CUdevice) -> Option<String> {
        let read = self.table.device_get_bus?;
        // SAFETY: `text` passes a buffer of the size that it states.
        text(|at, room| unsafe { read(at, room, device) }).map(|bus| bus.to_lowercase())
    }

    /// Returns an attribute of a device; `None` if the driver does not know it.
    pub fn attribute(&self, device: CUdevice, attribute: i32) -> Option<i32> {
        let mut value = 0;
        // SAFETY: the output pointer is valid for the call; an unknown attribute makes the call fail.
        let code = unsafe { (self.table.device_get_attribute)(&mut value, attribute, device) };
        (code == 0).then_some(value)
    }
}

/// The error for a device that cannot be used, for this reason.
pub fn no_device(why: String) -> ExecError {
    ExecError::NoDevice {
        backend: "CUDA",
        why,
        help: Some("`nvidia-smi` shows what the driver sees; `--backend sim` simulates a device".to_owned()),
    }
}
