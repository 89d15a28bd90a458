//! Names and prototypes of the HIP runtime's functions, and the table that resolves them.
//!
//! The returned status is a plain integer, since a newer runtime may return any value. The build of the unit tests compares
//! the prototypes with those of `hip-sys`.

use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::backend::gpu::runtime::{self, Address, Event, Stream};
use crate::backend::libraries::functions;

/// Declares the table from three lists: required functions, optional functions, and optional functions newer than
/// `hip-sys`.
macro_rules! table {
    (
        required { $($field:ident = $symbol:ident ( $($arg:ty),* $(,)? );)* }
        optional { $($maybe:ident = $maybe_symbol:ident ( $($maybe_arg:ty),* $(,)? );)* }
        newer { $($newer:ident = $newer_symbol:ident ( $($newer_arg:ty),* $(,)? );)* }
    ) => {
        functions! {
            /// The runtime's functions, each resolved once.
            Table {
                $($field = $symbol($($arg),*);)*
            }
            optional {
                $($maybe = $maybe_symbol($($maybe_arg),*);)*
                $($newer = $newer_symbol($($newer_arg),*);)*
            }
        }

        impl Table {
            /// Names of the optional functions that this runtime lacks.
            pub fn lacking(&self) -> Vec<&'static str> {
                let absent = [
                    $((self.$maybe.is_none(), stringify!($maybe_symbol)),)*
                    $((self.$newer.is_none(), stringify!($newer_symbol)),)*
                ];
                absent.into_iter().filter(|(absent, _)| *absent).map(|(_, name)| name).collect()
            }
        }

        #[cfg(all(test, target_os = "linux", target_env = "gnu", any(target_arch = "x86_64", target_arch = "aarch64")))]
        super::prototypes::same! {
            $($symbol($($arg),*);)*
            $($maybe_symbol($($maybe_arg),*);)*
        }
    };
}

/// Declares the names of the functions of `Runtime`, each with its number of arguments.
macro_rules! names {
    (
        required { $($field:ident = $symbol:ident ( $($arg:tt),* );)* }
        optional { $($maybe:ident = $maybe_symbol:ident ( $($maybe_arg:tt),* );)* }
    ) => {
        pub static NAMES: runtime::Names = runtime::Names {
            $($field: stringify!($symbol),)*
            $($maybe: stringify!($maybe_symbol),)*
        };

        /// Names of the optional functions of `Runtime` that this runtime lacks.
        pub fn lacking(runtime: &runtime::Runtime) -> Vec<&'static str> {
            let absent = [$((runtime.$maybe.is_none(), stringify!($maybe_symbol)),)*];
            absent.into_iter().filter(|(absent, _)| *absent).map(|(_, name)| name).collect()
        }

        #[cfg(all(test, target_os = "linux", target_env = "gnu", any(target_arch = "x86_64", target_arch = "aarch64")))]
        super::prototypes::alike! {
            $($symbol($($arg),*) |runtime| runtime.$field;)*
            $($maybe_symbol($($maybe_arg),*) |runtime| runtime.$maybe.unwrap();)*
        }
    };
}

names! {
    required {
        synchronize = hipDeviceSynchronize();
        priority_range = hipDeviceGetStreamPriorityRange(_, _);
        memory_info = hipMemGetInfo(_, _);
        malloc = hipMalloc(_, _);
        malloc_managed = hipMallocManaged(_, _, _);
        free = hipFree(_);
        host_malloc = hipHostMalloc(_, _, _);
        host_free = hipHostFree(_);
        stream_create = hipStreamCreateWithPriority(_, _, _);
        stream_destroy = hipStreamDestroy(_);
        stream_query = hipStreamQuery(_);
        stream_wait_event = hipStreamWaitEvent(_, _, _);
        begin_capture = hipStreamBeginCapture(_, _);
        end_capture = hipStreamEndCapture(_, _);
        event_create = hipEventCreateWithFlags(_, _);
        event_destroy = hipEventDestroy(_);
        event_record = hipEventRecord(_, _);
        event_query = hipEventQuery(_);
        module_load = hipModuleLoadData(_, _);
        module_unload = hipModuleUnload(_);
        module_function = hipModuleGetFunction(_, _, _);
        function_attribute = hipFuncGetAttribute(_, _, _);
        resident_blocks = hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(_, _, _, _);
        launch_kernel = hipModuleLaunchKernel(_, _, _, _, _, _, _, _, _, _, _);
        graph_instantiate = hipGraphInstantiateWithFlags(_, _, _);
        graph_launch = hipGraphLaunch(_, _);
        graph_destroy = hipGraphDestroy(_);
        graph_exec_destroy = hipGraphExecDestroy(_);
    }
    optional {
        graph_upload = hipGraphUpload(_, _);
        ipc_get_mem_handle = hipIpcGetMemHandle(_, _);
        ipc_open_mem_handle = hipIpcOpenMemHandle(_, _, _);
        ipc_close_mem_handle = hipIpcCloseMemHandle(_);
        host_register = hipHostRegister(_, _, _);
        host_unregister = hipHostUnregister(_);
        host_device_pointer = hipHostGetDevicePointer(_, _, _);
    }
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
        can_access_peer = hipDeviceCanAccessPeer(*mut c_int, c_int, c_int);
        enable_peer_access = hipDeviceEnablePeerAccess(c_int, c_uint);
        memset_async = hipMemsetAsync(*mut c_void, c_int, usize, Stream);
        copy_to_device = hipMemcpyHtoDAsync(Address, *mut c_void, usize, Stream);
        copy_to_host = hipMemcpyDtoHAsync(*mut c_void, Address, usize, Stream);
        copy_on_device = hipMemcpyDtoDAsync(Address, Address, usize, Stream);
        copy = hipMemcpyAsync(*mut c_void, *const c_void, usize, c_uint, Stream);
        copy_rows = hipMemcpy2DAsync(
            *mut c_void, usize, *const c_void, usize, usize, usize, c_uint, Stream,
        );
        stream_priority = hipStreamGetPriority(Stream, *mut c_int);
        stream_create_masked = hipExtStreamCreateWithCUMask(*mut Stream, c_uint, *const c_uint);
        stream_mask = hipExtStreamGetCUMask(Stream, c_uint, *mut c_uint);
        stream_synchronize = hipStreamSynchronize(Stream);
        elapsed_time = hipEventElapsedTime(*mut f32, Event, Event);
    }
    optional {
        link_type = hipExtGetLinkTypeAndHopCount(c_int, c_int, *mut c_uint, *mut c_uint);
    }
    newer {
        // Since 6.0: fills the larger structure.
        device_properties_r0600 = hipGetDevicePropertiesR0600(*mut c_void, c_int);
    }
}
