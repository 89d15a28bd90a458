//! Driver functions that CUDA and HIP share under different names.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

use crate::backend::libraries::functions;

// Handles are opaque pointers owned by the driver.
pub type Stream = *mut c_void;
pub type Event = *mut c_void;
pub type Module = *mut c_void;
pub type Function = *mut c_void;
pub type CapturedGraph = *mut c_void;
/// An instantiated graph (`CUgraphExec`, `hipGraphExec_t`).
pub type Graph = *mut c_void;
/// An address in device memory, `CUdeviceptr` or a pointer of HIP.
pub type Address = *mut c_void;

/// `CUipcMemHandle` or `hipIpcMemHandle_t`: handle under which another process opens memory, passed by value.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct IpcHandle(pub [u8; 64]);

/// Constants with the same value for both vendors.
pub mod number {
    /// Status of a query about work that has not completed.
    pub const NOT_READY: i32 = 600;
    pub const NO_DEVICE: i32 = 100;
    pub const PEER_ACCESS_ALREADY_ENABLED: i32 = 704;
    pub const STREAM_NON_BLOCKING: u32 = 1;
    pub const EVENT_DEFAULT: u32 = 0;
    pub const EVENT_DISABLE_TIMING: u32 = 2;
    pub const CAPTURE_RELAXED: u32 = 2;
    pub const HOST_REGISTER_PORTABLE: u32 = 1;
    pub const HOST_REGISTER_MAPPED: u32 = 2;
    pub const MEM_ATTACH_GLOBAL: u32 = 1;
    pub const IPC_LAZY_PEER_ACCESS: u32 = 1;
    /// Attribute of a function: the most threads that a block may have.
    pub const FUNCTION_MAX_THREADS: u32 = 0;
    /// Attribute of a function: its static shared memory in bytes.
    pub const FUNCTION_SHARED: u32 = 1;
    /// Attribute of a function: local memory of a thread in bytes, where its arrays and spilled registers are.
    pub const FUNCTION_LOCAL: u32 = 3;
    /// Attribute of a function: registers of a thread.
    pub const FUNCTION_REGISTERS: u32 = 4;
}

functions! {
    /// The functions, each resolved once.
    Runtime named by Names {
        synchronize();
        priority_range(*mut c_int, *mut c_int);
        memory_info(*mut usize, *mut usize);
        malloc(*mut Address, usize);
        malloc_managed(*mut Address, usize, c_uint);
        free(Address);
        host_malloc(*mut *mut c_void, usize, c_uint);
        host_free(*mut c_void);
        stream_create(*mut Stream, c_uint, c_int);
        stream_destroy(Stream);
        stream_query(Stream);
        stream_wait_event(Stream, Event, c_uint);
        begin_capture(Stream, c_uint);
        end_capture(Stream, *mut CapturedGraph);
        event_create(*mut Event, c_uint);
        event_destroy(Event);
        event_record(Event, Stream);
        event_query(Event);
        module_load(*mut Module, *const c_void);
        module_unload(Module);
        module_function(*mut Function, Module, *const c_char);
        function_attribute(*mut c_int, c_uint, Function);
        resident_blocks(*mut c_int, Function, c_int, usize);
        launch_kernel(
            Function, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Stream, *mut *mut c_void,
            *mut *mut c_void,
        );
        graph_instantiate(*mut Graph, CapturedGraph, c_ulonglong);
        graph_launch(Graph, Stream);
        graph_destroy(CapturedGraph);
        graph_exec_destroy(Graph);
    }
    optional {
        graph_upload(Graph, Stream);
        // Copies to ranks in other processes.
        ipc_get_mem_handle(*mut IpcHandle, Address);
        ipc_open_mem_handle(*mut Address, IpcHandle, c_uint);
        ipc_close_mem_handle(Address);
        host_register(*mut c_void, usize, c_uint);
        host_unregister(*mut c_void);
        host_device_pointer(*mut Address, *mut c_void, c_uint);
    }
}

/// Registers and memory of a compiled kernel, and the number of its blocks that a compute unit holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Residency {
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of local memory of a thread: its arrays and spilled registers.
    pub local: u32,
    /// Bytes of shared memory of a block, static and dynamic.
    pub shared: u32,
    /// Number of blocks that a compute unit holds at once.
    pub blocks: u32,
}
