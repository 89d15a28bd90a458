//! rocprofiler-sdk: one tool, with one context and one buffer. `HIP_DOUBLE_ROCPROFILER` says what is wrong with it: `old`,
//! an old version; `locked`, another tool was first; `denied`, no permission; `full`, each buffer drops a record; `lost`,
//! the records of copies never come.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Mutex;
use std::sync::PoisonError;

use crate::fault;
use crate::profiler::{self, Record, Work};

use super::counted;

const SUCCESS: c_int = 0;
const CONTEXT_NOT_FOUND: c_int = 2;
const CONFIGURATION_LOCKED: c_int = 16;
const INVALID_ARGUMENT: c_int = 19;
const PERMISSION_DENIED: c_int = 40;

const CONTEXT: u64 = 1;
const BUFFER: u64 = 1;
const MEMORY_COPY: u32 = 10;
const KERNEL_DISPATCH: u32 = 11;

fn has_fault(what: &str) -> bool {
    std::env::var("HIP_DOUBLE_ROCPROFILER").is_ok_and(|wrong| wrong == what)
}

type Initialize = unsafe extern "C" fn(*const c_void, *mut c_void) -> c_int;
type Delivered = unsafe extern "C" fn(u64, u64, *const *const Header, usize, *mut c_void, u64);

/// `rocprofiler_client_id_t`.
#[repr(C)]
pub struct Client {
    size: usize,
    name: *const c_char,
    handle: u32,
}

/// `rocprofiler_tool_configure_result_t`.
#[repr(C)]
pub struct Tool {
    size: usize,
    initialize: Option<Initialize>,
    finalize: Option<unsafe extern "C" fn(*mut c_void)>,
    data: *mut c_void,
}

/// `rocprofiler_record_header_t`.
#[repr(C)]
pub struct Header {
    category: u32,
    kind: u32,
    payload: *const u8,
}

/// The first fields of every record.
#[repr(C)]
struct Common {
    size: u64,
    kind: u32,
    operation: u32,
    internal: u64,
    external: u64,
    thread: u64,
    start: u64,
    end: u64,
}

/// `rocprofiler_buffer_tracing_kernel_dispatch_record_t`, with the dispatch's description.
#[repr(C)]
pub struct Dispatch {
    common: Common,
    size: u64,
    agent: u64,
    queue: u64,
    kernel: u64,
    dispatch: u64,
    private_segment: u32,
    group_segment: u32,
    workgroup: [u32; 3],
    grid: [u32; 3],
    reserved: [u8; 56],
}

/// `rocprofiler_buffer_tracing_memory_copy_record_t`.
#[repr(C)]
pub struct MemoryCopy {
    common: Common,
    target: u64,
    source: u64,
    bytes: u64,
    addresses: [u64; 2],
}

// The sizes of version 1.0.
const _: () = assert!(size_of::<Dispatch>() == 184 && size_of::<MemoryCopy>() == 96);

/// The callback of the buffer, its user data, and the kinds that it gets.
#[derive(Default)]
struct Buffer {
    delivered: Option<Delivered>,
    data: usize,
    kinds: Vec<u32>,
}

static MADE: Mutex<Buffer> = Mutex::new(Buffer { delivered: None, data: 0, kinds: Vec::new() });

/// # Safety
/// The places are valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocprofiler_get_version(major: *mut u32, minor: *mut u32, patch: *mut u32) -> c_int {
    counted!(rocprofiler_get_version);
    // SAFETY: the caller guarantees it.
    unsafe {
        (*major, *minor, *patch) = if has_fault("old") { (0, 6, 0) } else { (1, 0, 0) };
    }
    SUCCESS
}

/// # Safety
/// The function is one that configures a tool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocprofiler_force_configure(
    configure: unsafe extern "C" fn(u32, *const c_char, u32, *mut Client) -> *const Tool,
) -> c_int {
    counted!(rocprofiler_force_configure);
    if has_fault("locked") || fault::called("hipInit") {
        return CONFIGURATION_LOCKED;
    }
    let mut client = Client { size: size_of::<Client>(), name: std::ptr::null(), handle: 1 };
    // SAFETY: the caller vouches for the function, and the tool for what it returns.
    unsafe {
        let tool = configure(10_000, c"1.0.0".as_ptr(), 0, &mut client);
        if tool.is_null() || (*tool).size != size_of::<Tool>() || client.name.is_null() {
            return INVALID_ARGUMENT;
        }
        if let Some(initialize) = (*tool).initialize {
            initialize(std::ptr::null(), (*tool).data);
        }
    }
    SUCCESS
}

/// # Safety
/// The place is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocprofiler_create_context(context: *mut u64) -> c_int {
    counted!(rocprofiler_create_context);
    // SAFETY: the caller guarantees it.
    unsafe { *context = CONTEXT };
    SUCCESS
}

/// # Safety
/// The place is valid, and the callback is one for records.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocprofiler_create_buffer(
    context: u64,
    size: usize,
    watermark: usize,
    _policy: c_int,
    delivered: Delivered,
    data: *mut c_void,
    buffer: *mut u64,
) -> c_int {
    counted!(rocprofiler_create_buffer);
    if context != CONTEXT || watermark > size {
        return INVALID_ARGUMENT;
    }
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    (made.delivered, made.data) = (Some(delivered), data as usize);
    // SAFETY: the caller guarantees it.
    unsafe { *buffer = BUFFER };
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_configure_buffer_tracing_service(
    context: u64,
    kind: u32,
    _operations: *const c_int,
    _count: usize,
    buffer: u64,
) -> c_int {
    counted!(rocprofiler_configure_buffer_tracing_service);
    if has_fault("denied") {
        return PERMISSION_DENIED;
    }
    if context != CONTEXT || buffer != BUFFER {
        return CONTEXT_NOT_FOUND;
    }
    MADE.lock().unwrap_or_else(PoisonError::into_inner).kinds.push(kind);
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_start_context(context: u64) -> c_int {
    counted!(rocprofiler_start_context);
    if context != CONTEXT {
        return CONTEXT_NOT_FOUND;
    }
    profiler::start();
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_stop_context(context: u64) -> c_int {
    counted!(rocprofiler_stop_context);
    if context != CONTEXT {
        return CONTEXT_NOT_FOUND;
    }
    profiler::stop();
    SUCCESS
}

/// Delivers all records, from a thread of the library.
#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_flush_buffer(buffer: u64) -> c_int {
    counted!(rocprofiler_flush_buffer);
    let made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let (Some(delivered), BUFFER) = (made.delivered, buffer) else { return INVALID_ARGUMENT };
    let (data, kinds) = (made.data, &made.kinds);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            deliver(profiler::take(), kinds, |headers, count, dropped| {
                // SAFETY: the callback is that of the buffer, and the headers live until it returns.
                unsafe { delivered(CONTEXT, BUFFER, headers, count, data as *mut c_void, dropped) }
            })
        });
    });
    SUCCESS
}

/// Lays the records out as the library does.
fn deliver(mut records: Vec<Record>, kinds: &[u32], callback: impl Fn(*const *const Header, usize, u64)) {
    let is_copy = |record: &Record| matches!(record.work, Work::Copy);
    records.retain(|record| kinds.contains(if is_copy(record) { &MEMORY_COPY } else { &KERNEL_DISPATCH }));
    if has_fault("lost") {
        records.retain(|record| !is_copy(record));
    }
    let dropped = if has_fault("full") { records.pop().map_or(0, |_| 1) } else { 0 };
    let common = |record: &Record, size: usize, kind: u32| Common {
        size: size as u64,
        kind,
        operation: 1,
        internal: 7,
        external: record.external,
        thread: record.thread,
        start: record.start,
        end: record.end,
    };
    let payloads: Vec<(u32, *const u8)> = records
        .iter()
        .map(|record| match record.work {
            Work::Kernel { blocks, block, shared } => {
                let dispatch = Dispatch {
                    common: common(record, size_of::<Dispatch>(), KERNEL_DISPATCH),
                    size: 72,
                    agent: 1,
                    queue: record.queue,
                    kernel: 1,
                    dispatch: 1,
                    private_segment: 0,
                    group_segment: shared,
                    workgroup: block,
                    grid: std::array::from_fn(|axis| blocks[axis] * block[axis]),
                    reserved: [0xA5; 56],
                };
                (KERNEL_DISPATCH, Box::into_raw(Box::new(dispatch)).cast_const().cast())
            }
            Work::Copy | Work::Host => {
                let common = common(record, size_of::<MemoryCopy>(), MEMORY_COPY);
                let copy = MemoryCopy { common, target: 1, source: 2, bytes: 0, addresses: [0; 2] };
                (MEMORY_COPY, Box::into_raw(Box::new(copy)).cast_const().cast())
            }
        })
        .collect();
    let headers: Vec<Header> = payloads.iter().map(|&(kind, payload)| Header { category: 1, kind, payload }).collect();
    let pointers: Vec<*const Header> = headers.iter().map(std::ptr::from_ref).collect();
    callback(pointers.as_ptr(), pointers.len(), dropped);
    for (kind, payload) in payloads {
        // SAFETY: made above from boxes of these types. What the callback read is no longer used.
        unsafe {
            match kind {
                KERNEL_DISPATCH => drop(Box::from_raw(payload.cast_mut().cast::<Dispatch>())),
                _ => drop(Box::from_raw(payload.cast_mut().cast::<MemoryCopy>())),
            }
        }
    }
}

/// # Safety
/// The place is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocprofiler_get_thread_id(thread: *mut u64) -> c_int {
    counted!(rocprofiler_get_thread_id);
    // SAFETY: the caller guarantees it.
    unsafe { *thread = profiler::thread() };
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_push_external_correlation_id(context: u64, thread: u64, number: u64) -> c_int {
    counted!(rocprofiler_push_external_correlation_id);
    if context != CONTEXT || thread != profiler::thread() {
        return INVALID_ARGUMENT;
    }
    profiler::push(number);
    SUCCESS
}

/// # Safety
/// The place is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocprofiler_pop_external_correlation_id(context: u64, thread: u64, number: *mut u64) -> c_int {
    counted!(rocprofiler_pop_external_correlation_id);
    let (CONTEXT, Some(last)) = (context, profiler::pop().filter(|_| thread == profiler::thread())) else {
        return INVALID_ARGUMENT;
    };
    // SAFETY: the caller guarantees it.
    unsafe { *number = last };
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_get_status_string(status: c_int) -> *const c_char {
    let text: &CStr = match status {
        SUCCESS => c"Success",
        2 => c"No valid context for given context id",
        _ => c"an error of the double",
    };
    text.as_ptr()
}
