//! CUDA's driver: the functions that HIP's are forwarded to.

use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::library::table;

/// Any handle: HIP's are CUDA's.
pub type Handle = *mut c_void;
pub type Address = u64;

/// `CUipcMemHandle`, which is `hipIpcMemHandle_t`: both are passed whole.
#[repr(C)]
pub struct IpcHandle([u64; 8]);

/// `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Default)]
pub struct Rows {
    pub source_x: usize,
    pub source_y: usize,
    pub source_kind: c_uint,
    pub source_host: usize,
    pub source_device: Address,
    pub source_array: usize,
    pub source_pitch: usize,
    pub target_x: usize,
    pub target_y: usize,
    pub target_kind: c_uint,
    pub target_host: usize,
    pub target_device: Address,
    pub target_array: usize,
    pub target_pitch: usize,
    pub width: usize,
    pub height: usize,
}

table! {
    /// The driver's functions.
    Cuda, ["libcuda.so.1", "libcuda.so"], {
        init = "cuInit"(c_uint);
        error_string = "cuGetErrorString"(c_int, *mut *const c_char);
        error_name = "cuGetErrorName"(c_int, *mut *const c_char);
        device_count = "cuDeviceGetCount"(*mut c_int);
        device_name = "cuDeviceGetName"(*mut c_char, c_int, c_int);
        device_uuid = "cuDeviceGetUuid_v2"(*mut [u8; 16], c_int);
        device_bus = "cuDeviceGetPCIBusId"(*mut c_char, c_int, c_int);
        device_memory = "cuDeviceTotalMem_v2"(*mut usize, c_int);
        device_attribute = "cuDeviceGetAttribute"(*mut c_int, c_int, c_int);
        device_can_access = "cuDeviceCanAccessPeer"(*mut c_int, c_int, c_int);
        context_retain = "cuDevicePrimaryCtxRetain"(*mut Handle, c_int);
        context_set = "cuCtxSetCurrent"(Handle);
        context_synchronize = "cuCtxSynchronize"();
        context_enable_peer = "cuCtxEnablePeerAccess"(Handle, c_uint);
        context_priorities = "cuCtxGetStreamPriorityRange"(*mut c_int, *mut c_int);
        memory_info = "cuMemGetInfo_v2"(*mut usize, *mut usize);
        allocate = "cuMemAlloc_v2"(*mut Address, usize);
        allocate_managed = "cuMemAllocManaged"(*mut Address, usize, c_uint);
        free = "cuMemFree_v2"(Address);
        ipc_export = "cuIpcGetMemHandle"(*mut IpcHandle, u64);
        ipc_import = "cuIpcOpenMemHandle_v2"(*mut u64, IpcHandle, c_uint);
        ipc_close = "cuIpcCloseMemHandle"(u64);
        host_register = "cuMemHostRegister_v2"(*mut c_void, usize, c_uint);
        host_unregister = "cuMemHostUnregister"(*mut c_void);
        host_on_device = "cuMemHostGetDevicePointer_v2"(*mut u64, *mut c_void, c_uint);
        host_allocate = "cuMemHostAlloc"(*mut *mut c_void, usize, c_uint);
        host_free = "cuMemFreeHost"(*mut c_void);
        set8 = "cuMemsetD8Async"(Address, u8, usize, Handle);
        set16 = "cuMemsetD16Async"(Address, u16, usize, Handle);
        set32 = "cuMemsetD32Async"(Address, c_uint, usize, Handle);
        copy = "cuMemcpy"(Address, Address, usize);
        copy_async = "cuMemcpyAsync"(Address, Address, usize, Handle);
        copy_to_device = "cuMemcpyHtoDAsync_v2"(Address, *const c_void, usize, Handle);
        copy_to_host = "cuMemcpyDtoHAsync_v2"(*mut c_void, Address, usize, Handle);
        copy_on_device = "cuMemcpyDtoDAsync_v2"(Address, Address, usize, Handle);
        copy_peer = "cuMemcpyPeerAsync"(Address, Handle, Address, Handle, usize, Handle);
        copy_rows = "cuMemcpy2DAsync_v2"(*const Rows, Handle);
        stream_create = "cuStreamCreateWithPriority"(*mut Handle, c_uint, c_int);
        stream_destroy = "cuStreamDestroy_v2"(Handle);
        stream_priority = "cuStreamGetPriority"(Handle, *mut c_int);
        stream_query = "cuStreamQuery"(Handle);
        stream_synchronize = "cuStreamSynchronize"(Handle);
        stream_wait = "cuStreamWaitEvent"(Handle, Handle, c_uint);
        stream_capturing = "cuStreamIsCapturing"(Handle, *mut c_int);
        capture_begin = "cuStreamBeginCapture_v2"(Handle, c_int);
        capture_end = "cuStreamEndCapture"(Handle, *mut Handle);
        host_function = "cuLaunchHostFunc"(Handle, *const c_void, *mut c_void);
        event_create = "cuEventCreate"(*mut Handle, c_uint);
        event_destroy = "cuEventDestroy_v2"(Handle);
        event_record = "cuEventRecord"(Handle, Handle);
        event_record_flags = "cuEventRecordWithFlags"(Handle, Handle, c_uint);
        event_query = "cuEventQuery"(Handle);
        event_synchronize = "cuEventSynchronize"(Handle);
        event_elapsed = "cuEventElapsedTime"(*mut f32, Handle, Handle);
        module_load = "cuModuleLoadData"(*mut Handle, *const c_void);
        module_unload = "cuModuleUnload"(Handle);
        module_function = "cuModuleGetFunction"(*mut Handle, Handle, *const c_char);
        function_get = "cuFuncGetAttribute"(*mut c_int, c_int, Handle);
        function_set = "cuFuncSetAttribute"(Handle, c_int, c_int);
        occupancy = "cuOccupancyMaxActiveBlocksPerMultiprocessor"(*mut c_int, Handle, c_int, usize);
        launch = "cuLaunchKernel"(
            Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void,
            *mut *mut c_void,
        );
        graph_instantiate = "cuGraphInstantiateWithFlags"(*mut Handle, Handle, u64);
        graph_upload = "cuGraphUpload"(Handle, Handle);
        graph_launch = "cuGraphLaunch"(Handle, Handle);
        graph_exec_destroy = "cuGraphExecDestroy"(Handle);
        graph_destroy = "cuGraphDestroy"(Handle);
    }
}
