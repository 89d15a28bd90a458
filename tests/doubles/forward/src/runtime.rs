//! `libamdhip64`: its functions, each handed on to the one of CUDA's driver that does the same.

use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::cuda::{Cuda, Handle, IpcHandle, Rows};
use crate::device::{self, INVALID_VALUE, NO_DEVICE, NOT_SUPPORTED, OLD, R0600, returned};

/// HIP 6.4, whose header this was written after.
const VERSION: c_int = 60_443_483;

/// Declares exported functions, whose bodies get the driver and give its number.
macro_rules! hip {
    ($(fn $name:ident($cuda:ident $(, $arg:ident: $type:ty)* $(,)?) $body:block)*) => {
        $(
            #[unsafe(no_mangle)]
            #[inline(never)]
            #[allow(unused_unsafe, reason = "some bodies need nothing of it")]
            pub unsafe extern "C" fn $name($($arg: $type),*) -> c_int {
                let Some($cuda) = Cuda::get() else { return returned(NO_DEVICE) };
                // SAFETY: the caller keeps to the header, as the crate says.
                returned(unsafe { $body })
            }
        )*
    };
}

/// Declares functions that are not forwarded, and say so.
macro_rules! unsupported {
    ($($name:ident)*) => {
        $(
            #[unsafe(no_mangle)]
            pub extern "C" fn $name() -> c_int {
                returned(NOT_SUPPORTED)
            }
        )*
    };
}

/// Puts a text into a buffer, cut to its size.
///
/// # Safety
/// The buffer has that size.
unsafe fn put(text: &str, buffer: *mut c_char, size: c_int) -> c_int {
    let Some(most) = usize::try_from(size).ok().and_then(|size| size.checked_sub(1)) else { return INVALID_VALUE };
    let length = text.len().min(most);
    // SAFETY: the caller vouches for the size, and the text is not longer.
    unsafe {
        buffer.copy_from_nonoverlapping(text.as_ptr().cast(), length);
        buffer.add(length).write(0);
    }
    0
}

// --- Devices ----------------------------------------------------------------------------------------------------------

hip! {
    fn hipInit(cuda, flags: c_uint) { (cuda.init)(flags) }
    fn hipGetDeviceCount(cuda, count: *mut c_int) { (cuda.device_count)(count) }
    fn hipSetDevice(cuda, index: c_int) { device::set_current(cuda, index) }
    fn hipDeviceGetAttribute(cuda, value: *mut c_int, number: c_int, index: c_int) {
        match device::attribute(cuda, number, index) {
            Some(found) => {
                value.write(found);
                0
            }
            None => INVALID_VALUE,
        }
    }
    fn hipDeviceGetName(cuda, to: *mut c_char, size: c_int, index: c_int) {
        match device::name(cuda, index) {
            Ok(name) => put(&name, to, size),
            Err(code) => code,
        }
    }
    fn hipDeviceGetUuid(cuda, uuid: *mut [u8; 16], index: c_int) { (cuda.device_uuid)(uuid, index) }
    fn hipDeviceGetPCIBusId(cuda, to: *mut c_char, size: c_int, index: c_int) { (cuda.device_bus)(to, size, index) }
    fn hipDeviceTotalMem(cuda, bytes: *mut usize, index: c_int) { (cuda.device_memory)(bytes, index) }
    fn hipGetDevicePropertiesR0600(cuda, to: *mut u8, index: c_int) { device::properties(cuda, to, &R0600, index) }
    fn hipGetDeviceProperties(cuda, to: *mut u8, index: c_int) { device::properties(cuda, to, &OLD, index) }
    fn hipMemGetInfo(cuda, free: *mut usize, total: *mut usize) {
        device::ensure(cuda);
        (cuda.memory_info)(free, total)
    }
    fn hipDeviceSynchronize(cuda) {
        device::ensure(cuda);
        (cuda.context_synchronize)()
    }
    fn hipDeviceGetStreamPriorityRange(cuda, least: *mut c_int, greatest: *mut c_int) {
        device::ensure(cuda);
        (cuda.context_priorities)(least, greatest)
    }
    fn hipDeviceCanAccessPeer(cuda, can: *mut c_int, index: c_int, peer: c_int) {
        (cuda.device_can_access)(can, index, peer)
    }
    fn hipDeviceEnablePeerAccess(cuda, peer: c_int, flags: c_uint) {
        device::ensure(cuda);
        match device::context(cuda, peer) {
            Ok(context) => (cuda.context_enable_peer)(context as Handle, flags),
            Err(code) => code,
        }
    }
    fn hipDrvGetErrorString(cuda, code: c_int, to: *mut *const c_char) { (cuda.error_string)(code, to) }
    fn hipDrvGetErrorName(cuda, code: c_int, to: *mut *const c_char) { (cuda.error_name)(code, to) }
}

unsupported! { hipExtGetLinkTypeAndHopCount hipDeviceGetP2PAttribute }

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipRuntimeGetVersion(version: *mut c_int) -> c_int {
    // SAFETY: the output pointer is valid for the call.
    unsafe { version.write(VERSION) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipDriverGetVersion(version: *mut c_int) -> c_int {
    // SAFETY: the output pointer is valid for the call.
    unsafe { version.write(VERSION) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipGetDevice(index: *mut c_int) -> c_int {
    // SAFETY: the output pointer is valid for the call.
    unsafe { index.write(device::current()) };
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn hipGetLastError() -> c_int {
    device::take_last()
}

#[unsafe(no_mangle)]
pub extern "C" fn hipGetErrorString(code: c_int) -> *const c_char {
    let mut text = c"unknown error".as_ptr();
    if let Some(cuda) = Cuda::get() {
        // SAFETY: the output pointer is valid for the call; an unknown number leaves or empties it.
        unsafe { (cuda.error_string)(code, &mut text) };
    }
    if text.is_null() { c"unknown error".as_ptr() } else { text }
}

#[unsafe(no_mangle)]
pub extern "C" fn hipGetErrorName(code: c_int) -> *const c_char {
    let mut text = c"hipErrorUnknown".as_ptr();
    if let Some(cuda) = Cuda::get() {
        // SAFETY: the output pointer is valid for the call; an unknown number leaves or empties it.
        unsafe { (cuda.error_name)(code, &mut text) };
    }
    if text.is_null() { c"hipErrorUnknown".as_ptr() } else { text }
}

// --- Streams and events -----------------------------------------------------------------------------------------------

/// Blocking waits, and no timing; what AMD has about fences means nothing here.
const EVENT_FLAGS: c_uint = 3;

hip! {
    fn hipStreamCreateWithFlags(cuda, to: *mut Handle, flags: c_uint) {
        device::ensure(cuda);
        (cuda.stream_create)(to, flags, 0)
    }
    fn hipStreamCreateWithPriority(cuda, to: *mut Handle, flags: c_uint, priority: c_int) {
        device::ensure(cuda);
        (cuda.stream_create)(to, flags, priority)
    }
    fn hipStreamGetPriority(cuda, stream: Handle, priority: *mut c_int) { (cuda.stream_priority)(stream, priority) }
    fn hipStreamDestroy(cuda, stream: Handle) { (cuda.stream_destroy)(stream) }
    fn hipStreamQuery(cuda, stream: Handle) { (cuda.stream_query)(stream) }
    fn hipStreamSynchronize(cuda, stream: Handle) { (cuda.stream_synchronize)(stream) }
    fn hipStreamWaitEvent(cuda, stream: Handle, event: Handle, flags: c_uint) {
        (cuda.stream_wait)(stream, event, flags)
    }
    fn hipLaunchHostFunc(cuda, stream: Handle, function: *const c_void, told: *mut c_void) {
        (cuda.host_function)(stream, function, told)
    }
    fn hipStreamBeginCapture(cuda, stream: Handle, mode: c_int) { (cuda.capture_begin)(stream, mode) }
    fn hipStreamEndCapture(cuda, stream: Handle, graph: *mut Handle) { (cuda.capture_end)(stream, graph) }
    fn hipStreamIsCapturing(cuda, stream: Handle, status: *mut c_int) { (cuda.stream_capturing)(stream, status) }
    fn hipEventCreateWithFlags(cuda, to: *mut Handle, flags: c_uint) {
        device::ensure(cuda);
        (cuda.event_create)(to, flags & EVENT_FLAGS)
    }
    fn hipEventDestroy(cuda, event: Handle) { (cuda.event_destroy)(event) }
    fn hipEventRecord(cuda, event: Handle, stream: Handle) { (cuda.event_record)(event, stream) }
    fn hipEventRecordWithFlags(cuda, event: Handle, stream: Handle, flags: c_uint) {
        (cuda.event_record_flags)(event, stream, flags)
    }
    fn hipEventQuery(cuda, event: Handle) { (cuda.event_query)(event) }
    fn hipEventSynchronize(cuda, event: Handle) { (cuda.event_synchronize)(event) }
    fn hipEventElapsedTime(cuda, milliseconds: *mut f32, from: Handle, to: Handle) {
        (cuda.event_elapsed)(milliseconds, from, to)
    }
}

unsupported! {
    hipExtStreamCreateWithCUMask hipExtStreamGetCUMask hipStreamAddCallback hipStreamWriteValue32
    hipStreamWaitValue32 hipThreadExchangeStreamCaptureMode hipStreamGetCaptureInfo_v2
    hipStreamUpdateCaptureDependencies hipStreamBeginCaptureToGraph
}

// --- Memory -----------------------------------------------------------------------------------------------------------

hip! {
    fn hipMalloc(cuda, to: *mut *mut c_void, bytes: usize) {
        device::ensure(cuda);
        (cuda.allocate)(to.cast(), bytes)
    }
    fn hipMallocManaged(cuda, to: *mut *mut c_void, bytes: usize, flags: c_uint) {
        device::ensure(cuda);
        (cuda.allocate_managed)(to.cast(), bytes, flags)
    }
    fn hipFree(cuda, address: *mut c_void) { (cuda.free)(address as u64) }
    fn hipHostMalloc(cuda, to: *mut *mut c_void, bytes: usize, flags: c_uint) {
        device::ensure(cuda);
        // Portable and mapped; memory of the host is always coherent.
        (cuda.host_allocate)(to, bytes, flags & 3)
    }
    fn hipIpcGetMemHandle(cuda, handle: *mut IpcHandle, address: *mut c_void) {
        device::ensure(cuda);
        (cuda.ipc_export)(handle, address as u64)
    }
    fn hipIpcOpenMemHandle(cuda, to: *mut *mut c_void, handle: IpcHandle, flags: c_uint) {
        device::ensure(cuda);
        (cuda.ipc_import)(to.cast(), handle, flags)
    }
    fn hipIpcCloseMemHandle(cuda, address: *mut c_void) { (cuda.ipc_close)(address as u64) }
    fn hipHostRegister(cuda, address: *mut c_void, bytes: usize, flags: c_uint) {
        device::ensure(cuda);
        (cuda.host_register)(address, bytes, flags & 3)
    }
    fn hipHostUnregister(cuda, address: *mut c_void) { (cuda.host_unregister)(address) }
    fn hipHostGetDevicePointer(cuda, to: *mut *mut c_void, address: *mut c_void, flags: c_uint) {
        (cuda.host_on_device)(to.cast(), address, flags)
    }
    fn hipHostFree(cuda, address: *mut c_void) { (cuda.host_free)(address) }
    fn hipMemcpy(cuda, to: *mut c_void, from: *const c_void, bytes: usize, _kind: c_int) {
        device::ensure(cuda);
        (cuda.copy)(to as u64, from as u64, bytes)
    }
    fn hipMemcpyAsync(cuda, to: *mut c_void, from: *const c_void, bytes: usize, _kind: c_int, stream: Handle) {
        (cuda.copy_async)(to as u64, from as u64, bytes, stream)
    }
    fn hipMemcpyHtoDAsync(cuda, to: *mut c_void, from: *const c_void, bytes: usize, stream: Handle) {
        (cuda.copy_to_device)(to as u64, from, bytes, stream)
    }
    fn hipMemcpyDtoHAsync(cuda, to: *mut c_void, from: *mut c_void, bytes: usize, stream: Handle) {
        (cuda.copy_to_host)(to, from as u64, bytes, stream)
    }
    fn hipMemcpyDtoDAsync(cuda, to: *mut c_void, from: *mut c_void, bytes: usize, stream: Handle) {
        (cuda.copy_on_device)(to as u64, from as u64, bytes, stream)
    }
    fn hipMemcpyPeerAsync(
        cuda, to: *mut c_void, target: c_int, from: *const c_void, source: c_int, bytes: usize, stream: Handle,
    ) {
        match (device::context(cuda, target), device::context(cuda, source)) {
            (Ok(target), Ok(source)) => {
                (cuda.copy_peer)(to as u64, target as Handle, from as u64, source as Handle, bytes, stream)
            }
            (Err(code), _) | (_, Err(code)) => code,
        }
    }
    fn hipMemcpy2DAsync(
        cuda, to: *mut c_void, target_pitch: usize, from: *const c_void, source_pitch: usize, width: usize,
        height: usize, kind: c_int, stream: Handle,
    ) {
        // CU_MEMORYTYPE_HOST, _DEVICE and _UNIFIED: with the last, the address alone says where it is.
        let (source_kind, target_kind) = match kind {
            0 => (1, 1),
            1 => (1, 2),
            2 => (2, 1),
            3 => (2, 2),
            _ => (4, 4),
        };
        let rows = Rows {
            source_kind,
            source_host: from as usize,
            source_device: from as u64,
            source_pitch,
            target_kind,
            target_host: to as usize,
            target_device: to as u64,
            target_pitch,
            width,
            height,
            ..Rows::default()
        };
        (cuda.copy_rows)(&rows, stream)
    }
    fn hipMemsetAsync(cuda, to: *mut c_void, value: c_int, bytes: usize, stream: Handle) {
        (cuda.set8)(to as u64, value as u8, bytes, stream)
    }
    fn hipMemsetD8Async(cuda, to: *mut c_void, value: u8, count: usize, stream: Handle) {
        (cuda.set8)(to as u64, value, count, stream)
    }
    fn hipMemsetD16Async(cuda, to: *mut c_void, value: u16, count: usize, stream: Handle) {
        (cuda.set16)(to as u64, value, count, stream)
    }
    fn hipMemsetD32Async(cuda, to: *mut c_void, value: c_int, count: usize, stream: Handle) {
        (cuda.set32)(to as u64, value as c_uint, count, stream)
    }
}

unsupported! {
    hipMallocAsync hipFreeAsync hipMallocFromPoolAsync hipMemPoolCreate
    hipMemPoolDestroy hipMemPoolSetAttribute hipMemPoolGetAttribute hipMemPoolSetAccess hipMemPoolTrimTo
    hipDeviceGetDefaultMemPool
}

// --- Modules and graphs -----------------------------------------------------------------------------------------------

/// Attributes of functions and of devices, CUDA's numbers.
const OWN_SHARED: c_int = 1;
const MAX_DYNAMIC_SHARED: c_int = 8;
const DEVICE_MOST_SHARED: c_int = 97;

hip! {
    fn hipModuleLoadData(cuda, to: *mut Handle, image: *const c_void) {
        device::ensure(cuda);
        (cuda.module_load)(to, image)
    }
    fn hipModuleUnload(cuda, module: Handle) { (cuda.module_unload)(module) }
    fn hipModuleGetFunction(cuda, to: *mut Handle, module: Handle, name: *const c_char) {
        let code = (cuda.module_function)(to, module, name);
        if code == 0 {
            // On AMD's devices a launch may have all shared memory without asking.
            let mut own = 0;
            (cuda.function_get)(&mut own, OWN_SHARED, *to);
            let most = device::raw_attribute(cuda, DEVICE_MOST_SHARED, device::current()).unwrap_or(0);
            (cuda.function_set)(*to, MAX_DYNAMIC_SHARED, (most - own).max(0));
        }
        code
    }
    fn hipFuncGetAttribute(cuda, value: *mut c_int, attribute: c_int, function: Handle) {
        (cuda.function_get)(value, attribute, function)
    }
    fn hipFuncSetAttribute(cuda, function: Handle, attribute: c_int, value: c_int) {
        (cuda.function_set)(function, attribute, value)
    }
    fn hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(
        cuda, blocks: *mut c_int, function: Handle, threads: c_int, shared: usize,
    ) {
        (cuda.occupancy)(blocks, function, threads, shared)
    }
    fn hipModuleLaunchKernel(
        cuda, function: Handle, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared: c_uint, stream: Handle, params: *mut *mut c_void, extra: *mut *mut c_void,
    ) {
        (cuda.launch)(
            function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, params, extra,
        )
    }
    fn hipGraphInstantiate(
        cuda, to: *mut Handle, graph: Handle, _node: *mut Handle, _log: *mut c_char, _size: usize,
    ) {
        (cuda.graph_instantiate)(to, graph, 0)
    }
    fn hipGraphInstantiateWithFlags(cuda, to: *mut Handle, graph: Handle, flags: u64) {
        (cuda.graph_instantiate)(to, graph, flags)
    }
    fn hipGraphUpload(cuda, exec: Handle, stream: Handle) { (cuda.graph_upload)(exec, stream) }
    fn hipGraphLaunch(cuda, exec: Handle, stream: Handle) { (cuda.graph_launch)(exec, stream) }
    fn hipGraphExecDestroy(cuda, exec: Handle) { (cuda.graph_exec_destroy)(exec) }
    fn hipGraphDestroy(cuda, graph: Handle) { (cuda.graph_destroy)(graph) }
}

unsupported! { hipModuleLaunchCooperativeKernel hipModuleGetGlobal hipModuleLoad hipGraphExecUpdate }
