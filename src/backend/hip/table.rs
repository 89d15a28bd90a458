//! The functions of HIP's runtime: names and prototypes, once, and what is called by them.
//!
//! The status that they return is a number: a newer runtime may return any. The feature `hip-sys` compares the
//! prototypes with that crate's declarations.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

use crate::backend::libraries::Opened;
use crate::exec::ExecError;

// What the handles point to is the runtime's.
pub type Stream = *mut c_void;
pub type Event = *mut c_void;
pub type Module = *mut c_void;
pub type Function = *mut c_void;
pub type Graph = *mut c_void;
pub type GraphExec = *mut c_void;
/// What stands for memory that another process opens: `hipIpcMemHandle_t`, which is passed whole.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct IpcHandle(pub [u8; 64]);
/// An address in a device's memory.
pub type Address = *mut c_void;

/// Declares the table: what has to be there, what may be absent, and what may be absent and is younger than the
/// declarations of `hip-sys`.
macro_rules! table {
    (
        required { $($field:ident = $symbol:ident ( $($arg:ty),* $(,)? );)* }
        optional { $($maybe:ident = $maybe_symbol:ident ( $($maybe_arg:ty),* $(,)? );)* }
        newer { $($newer:ident = $newer_symbol:ident ( $($newer_arg:ty),* $(,)? );)* }
    ) => {
        /// The runtime's functions, each resolved once.
        #[derive(Clone, Copy)]
        pub struct Table {
            $(pub $field: unsafe extern "C" fn($($arg),*) -> i32,)*
            $(pub $maybe: Option<unsafe extern "C" fn($($maybe_arg),*) -> i32>,)*
            $(pub $newer: Option<unsafe extern "C" fn($($newer_arg),*) -> i32>,)*
        }

        impl Table {
            /// Resolves every function, or says which one is missing.
            pub fn load(opened: &Opened) -> Result<Table, ExecError> {
                Ok(Table {
                    $(
                        // SAFETY: the types are those of the vendor's header.
                        $field: unsafe { opened.find(stringify!($symbol)) }
                            .ok_or_else(|| opened.lacks(stringify!($symbol)))?,
                    )*
                    $(
                        // SAFETY: the types are those of the vendor's header.
                        $maybe: unsafe { opened.find(stringify!($maybe_symbol)) },
                    )*
                    $(
                        // SAFETY: the types are those of the vendor's header.
                        $newer: unsafe { opened.find(stringify!($newer_symbol)) },
                    )*
                })
            }

            /// How many functions there are in all, and the names of those that this runtime lacks.
            pub fn lacking(&self) -> (usize, Vec<&'static str>) {
                let all = [$(stringify!($symbol),)* $(stringify!($maybe_symbol),)* $(stringify!($newer_symbol),)*];
                let absent = [
                    $((self.$maybe.is_none(), stringify!($maybe_symbol)),)*
                    $((self.$newer.is_none(), stringify!($newer_symbol)),)*
                ];
                (all.len(), absent.into_iter().filter(|(absent, _)| *absent).map(|(_, name)| name).collect())
            }
        }

        #[cfg(feature = "hip-sys")]
        super::prototypes::same! {
            $($symbol($($arg),*);)*
            $($maybe_symbol($($maybe_arg),*);)*
        }
    };
}

table! {
    required {
        init = hipInit(c_uint);
        runtime_version = hipRuntimeGetVersion(*mut c_int);
        device_count = hipGetDeviceCount(*mut c_int);
        set_device = hipSetDevice(c_int);
        device_attribute = hipDeviceGetAttribute(*mut c_int, c_uint, c_int);
        device_name = hipDeviceGetName(*mut c_char, c_int, c_int);
        device_bus = hipDeviceGetPCIBusId(*mut c_char, c_int, c_int);
        device_memory = hipDeviceTotalMem(*mut usize, c_int);
        device_properties = hipGetDeviceProperties(*mut c_void, c_int);
        device_synchronize = hipDeviceSynchronize();
        can_access_peer = hipDeviceCanAccessPeer(*mut c_int, c_int, c_int);
        enable_peer_access = hipDeviceEnablePeerAccess(c_int, c_uint);
        priority_range = hipDeviceGetStreamPriorityRange(*mut c_int, *mut c_int);
        memory_info = hipMemGetInfo(*mut usize, *mut usize);
        malloc = hipMalloc(*mut *mut c_void, usize);
        free = hipFree(*mut c_void);
        host_malloc = hipHostMalloc(*mut *mut c_void, usize, c_uint);
        host_free = hipHostFree(*mut c_void);
        memset_async = hipMemsetAsync(*mut c_void, c_int, usize, Stream);
        copy_to_device = hipMemcpyHtoDAsync(Address, *mut c_void, usize, Stream);
        copy_to_host = hipMemcpyDtoHAsync(*mut c_void, Address, usize, Stream);
        copy_on_device = hipMemcpyDtoDAsync(Address, Address, usize, Stream);
        copy = hipMemcpyAsync(*mut c_void, *const c_void, usize, c_uint, Stream);
        copy_rows = hipMemcpy2DAsync(
            *mut c_void, usize, *const c_void, usize, usize, usize, c_uint, Stream,
        );
        stream_create = hipStreamCreateWithPriority(*mut Stream, c_uint, c_int);
        stream_priority = hipStreamGetPriority(Stream, *mut c_int);
        stream_create_masked = hipExtStreamCreateWithCUMask(*mut Stream, c_uint, *const c_uint);
        stream_mask = hipExtStreamGetCUMask(Stream, c_uint, *mut c_uint);
        stream_destroy = hipStreamDestroy(Stream);
        stream_query = hipStreamQuery(Stream);
        stream_synchronize = hipStreamSynchronize(Stream);
        stream_wait_event = hipStreamWaitEvent(Stream, Event, c_uint);
        begin_capture = hipStreamBeginCapture(Stream, c_uint);
        end_capture = hipStreamEndCapture(Stream, *mut Graph);
        event_create = hipEventCreateWithFlags(*mut Event, c_uint);
        event_destroy = hipEventDestroy(Event);
        event_record = hipEventRecord(Event, Stream);
        event_query = hipEventQuery(Event);
        elapsed_time = hipEventElapsedTime(*mut f32, Event, Event);
        module_load = hipModuleLoadData(*mut Module, *const c_void);
        module_unload = hipModuleUnload(Module);
        module_function = hipModuleGetFunction(*mut Function, Module, *const c_char);
        function_attribute = hipFuncGetAttribute(*mut c_int, c_uint, Function);
        launch_kernel = hipModuleLaunchKernel(
            Function, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Stream,
            *mut *mut c_void, *mut *mut c_void,
        );
        graph_instantiate = hipGraphInstantiateWithFlags(*mut GraphExec, Graph, c_ulonglong);
        graph_launch = hipGraphLaunch(GraphExec, Stream);
        graph_exec_destroy = hipGraphExecDestroy(GraphExec);
        graph_destroy = hipGraphDestroy(Graph);
    }
    optional {
        link_type = hipExtGetLinkTypeAndHopCount(c_int, c_int, *mut c_uint, *mut c_uint);
        // For copies to ranks in other processes.
        ipc_get_mem_handle = hipIpcGetMemHandle(*mut IpcHandle, *mut c_void);
        ipc_open_mem_handle = hipIpcOpenMemHandle(*mut *mut c_void, IpcHandle, c_uint);
        ipc_close_mem_handle = hipIpcCloseMemHandle(*mut c_void);
        host_register = hipHostRegister(*mut c_void, usize, c_uint);
        host_unregister = hipHostUnregister(*mut c_void);
        host_device_pointer = hipHostGetDevicePointer(*mut *mut c_void, *mut c_void, c_uint);
        graph_upload = hipGraphUpload(GraphExec, Stream);
    }
    newer {
        // From 6.0: the same question for the larger structure.
        device_properties_r0600 = hipGetDevicePropertiesR0600(*mut c_void, c_int);
    }
}
