//! rocprofiler-sdk, AMD's library that records when kernels and copies run, with the device's own timestamps.
//!
//! The library must be configured before the process calls HIP for the first time, and intercepts every launch from
//! then on. Therefore it is opened only if a run requests it. Its records do not name the nodes of graphs, so that it
//! can observe streams only. The byte offsets below are those of version 1.0 (ROCm 7.0); later versions append fields.

use std::cell::RefCell;
use std::collections::HashSet;
use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use crate::backend::gpu::tracer::Tracer;
use crate::backend::libraries::{NotOpened, SearchPaths, functions};
use crate::base::threads::lock;
use crate::exec::KernelLaunch;
use crate::exec::activity::{Activity, CallPurpose, GraphNode, LaunchCall};

type Delivered = unsafe extern "C" fn(u64, u64, *const *const Header, usize, *mut c_void, u64);
type Configure = unsafe extern "C" fn(u32, *const c_char, u32, *mut ClientId) -> *const ConfigureResult;

functions! {
    /// The library's functions.
    Table {
        version = rocprofiler_get_version(*mut u32, *mut u32, *mut u32);
        configure = rocprofiler_force_configure(Configure);
        create_context = rocprofiler_create_context(*mut u64);
        create_buffer = rocprofiler_create_buffer(u64, usize, usize, u32, Delivered, *mut c_void, *mut u64);
        trace = rocprofiler_configure_buffer_tracing_service(u64, u32, *const i32, usize, u64);
        start = rocprofiler_start_context(u64);
        stop = rocprofiler_stop_context(u64);
        flush = rocprofiler_flush_buffer(u64);
        thread = rocprofiler_get_thread_id(*mut u64);
        push = rocprofiler_push_external_correlation_id(u64, u64, u64);
        pop = rocprofiler_pop_external_correlation_id(u64, u64, *mut u64);
    }
}

/// `rocprofiler_client_id_t`.
#[repr(C)]
pub struct ClientId {
    size: usize,
    name: *const c_char,
    handle: u32,
}

/// `rocprofiler_tool_configure_result_t`.
#[repr(C)]
pub struct ConfigureResult {
    size: usize,
    initialize: unsafe extern "C" fn(*const c_void, *mut c_void) -> i32,
    finalize: unsafe extern "C" fn(*mut c_void),
    data: *mut c_void,
}

// SAFETY: the pointer is null, and nothing is written.
unsafe impl Sync for ConfigureResult {}

/// `rocprofiler_record_header_t`.
#[repr(C)]
pub struct Header {
    category: u32,
    kind: u32,
    payload: *const u8,
}

/// File names of the library.
const NAMES: [&str; 2] = ["librocprofiler-sdk.so.1", "librocprofiler-sdk.so"];

/// First version whose records have the offsets below.
const OLDEST: (u32, u32) = (1, 0);

const CONFIGURATION_LOCKED: i32 = 16;
const PERMISSION_DENIED: i32 = 40;
const LOSSLESS: u32 = 2;
const TRACING: u32 = 1;
const MEMORY_COPY: u32 = 10;
const KERNEL_DISPATCH: u32 = 11;

/// Size in bytes of the library's buffer for records.
const BUFFER_BYTES: usize = 16 << 20;
/// Number of filled bytes at which the library delivers records.
const WATERMARK_BYTES: usize = 12 << 20;

/// Byte offsets in the records of kernels and of copies: number that was pushed when the work was launched, start, end.
const EXTERNAL: usize = 24;
const START: usize = 40;
const END: usize = 48;
/// Byte offsets in the record of a kernel: queue, bytes of LDS of a workgroup, threads of a workgroup, threads of the
/// grid.
const QUEUE: usize = 72;
const GROUP_SEGMENT: usize = 100;
const WORKGROUP: usize = 104;
const GRID: usize = 116;

/// Time in which the library must deliver the records of an idle device.
const DELIVERY: Duration = Duration::from_millis(500);
/// Interval between two attempts to flush records.
const ATTEMPT: Duration = Duration::from_millis(1);

/// Launch calls that the thread of one rank has made while the library recorded.
#[derive(Default)]
struct LaunchNotes {
    calls: Vec<LaunchCall>,
    /// The library's id of the thread; 0 before the thread's first call.
    thread: u64,
    /// True if a number has been pushed and not popped.
    pushed: bool,
}

thread_local! {
    static NOTES: RefCell<LaunchNotes> = RefCell::new(LaunchNotes::default());
}

/// State of the process: number of ranks that are recording, and delivered records that no rank has taken yet.
#[derive(Default)]
struct RecorderState {
    ranks: u32,
    activities: Vec<Activity>,
    dropped: u64,
}

static STATE: Mutex<RecorderState> = Mutex::new(RecorderState { ranks: 0, activities: Vec::new(), dropped: 0 });

/// Handles of the library's context and of its buffer. The library's initialization of its tools sets them; they are 0
/// before.
static CONTEXT: AtomicU64 = AtomicU64::new(0);
static BUFFER: AtomicU64 = AtomicU64::new(0);

/// Number of the next launch. The records of a launch contain its number.
static NEXT: AtomicU32 = AtomicU32::new(1);

/// The table of functions for the library's callbacks, and the first failure of a callback.
static TABLE: OnceLock<Table> = OnceLock::new();
static FAILED: Mutex<Option<String>> = Mutex::new(None);

/// The library, configured at most once by a process.
static LIBRARY: OnceLock<Result<Arc<Rocprofiler>, String>> = OnceLock::new();

/// The configured library.
pub struct Rocprofiler {
    table: Table,
    status_text: Option<unsafe extern "C" fn(i32) -> *const c_char>,
    version: (u32, u32),
}

/// Configures the library for this process. Must be called before the process calls HIP. Later calls have no effect.
pub fn attach(paths: &SearchPaths) {
    LIBRARY.get_or_init(|| Rocprofiler::load(paths).map(Arc::new));
}

/// True if a run has requested the library.
pub fn is_wanted() -> bool {
    LIBRARY.get().is_some()
}

/// Returns the configured library. The error is the reason in words why it cannot be used.
pub fn attached() -> Result<Arc<Rocprofiler>, String> {
    LIBRARY.get().cloned().unwrap_or_else(|| Err("rocprofiler-sdk was not configured before HIP".to_owned()))
}

impl Rocprofiler {
    fn load(paths: &SearchPaths) -> Result<Rocprofiler, String> {
        let opened = paths.open(&NAMES.map(str::to_owned)).map_err(|why| match why {
            NotOpened::Absent => {
                "there is no rocprofiler-sdk (librocprofiler-sdk), which is a package of ROCm".to_owned()
            }
            NotOpened::Broken(why) => format!("rocprofiler-sdk does not load: {why}"),
        })?;
        let table = Table::load(&opened).map_err(|error| error.to_string())?;
        // SAFETY: the type is that of the library's header, with an integer for the enumeration.
        let status_text = unsafe { opened.find("rocprofiler_get_status_string") };
        let (mut major, mut minor, mut patch) = (0, 0, 0);
        // SAFETY: the output pointers are valid for the call.
        let code = unsafe { (table.version)(&mut major, &mut minor, &mut patch) };
        let library = Rocprofiler { table, status_text, version: (major, minor) };
        library.check("rocprofiler_get_version", code)?;
        if library.version < OLDEST {
            return Err(format!("{} is older than that of ROCm 7", library.name()));
        }
        let _ = TABLE.set(table);
        // SAFETY: the callback has the type of the library's header.
        let code = unsafe { (table.configure)(configured) };
        library.check("rocprofiler_force_configure", code)?;
        match lock(&FAILED).take() {
            Some(why) => Err(why),
            None if BUFFER.load(Ordering::Acquire) == 0 => {
                Err("rocprofiler-sdk did not initialize its tools".to_owned())
            }
            None => Ok(library),
        }
    }

    /// Returns the reason, in words, if a call's status is not 0.
    fn check(&self, call: &str, code: i32) -> Result<(), String> {
        match code {
            0 => return Ok(()),
            CONFIGURATION_LOCKED => {
                return Err("another profiler configured rocprofiler-sdk in this process".to_owned());
            }
            PERMISSION_DENIED => return Err("the system does not permit rocprofiler-sdk to trace".to_owned()),
            _ => {}
        }
        let text = self.status_text.and_then(|text| {
            // SAFETY: the function returns a constant text, or null for an unknown status.
            unsafe {
                let text = text(code);
                (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
            }
        });
        Err(format!("`{call}` returned {code} ({})", text.as_deref().unwrap_or("unknown")))
    }

    /// Waits until the library has delivered a record of each call, or until [`DELIVERY`] has passed.
    fn collect(&self, calls: &HashSet<u32>) -> Result<(), String> {
        let start = Instant::now();
        loop {
            // SAFETY: the buffer exists.
            self.check("rocprofiler_flush_buffer", unsafe { (self.table.flush)(BUFFER.load(Ordering::Acquire)) })?;
            let known: HashSet<u32> = lock(&STATE).activities.iter().map(|activity| activity.correlation).collect();
            if calls.is_subset(&known) || start.elapsed() > DELIVERY {
                return Ok(());
            }
            std::thread::sleep(ATTEMPT);
        }
    }
}

impl Tracer for Rocprofiler {
    fn name(&self) -> String {
        format!("rocprofiler-sdk {}.{}", self.version.0, self.version.1)
    }

    fn names_nodes(&self) -> bool {
        false
    }

    fn begin(&self) -> Result<(), String> {
        let mut state = lock(&STATE);
        if state.ranks == 0 {
            // SAFETY: the context exists.
            self.check("rocprofiler_start_context", unsafe { (self.table.start)(CONTEXT.load(Ordering::Acquire)) })?;
        }
        state.ranks += 1;
        Ok(())
    }

    fn set_purpose(&self, purpose: Option<CallPurpose>) {
        let context = CONTEXT.load(Ordering::Acquire);
        NOTES.with_borrow_mut(|notes| {
            // SAFETY: the pointers are valid for the calls. A launch whose number is not pushed lacks a record, which the
            // correlation notices.
            unsafe {
                if notes.thread == 0 {
                    (self.table.thread)(&mut notes.thread);
                }
                if std::mem::take(&mut notes.pushed) {
                    let mut number = 0;
                    (self.table.pop)(context, notes.thread, &mut number);
                }
                if let Some(purpose) = purpose {
                    let correlation = NEXT.fetch_add(1, Ordering::Relaxed);
                    notes.pushed = (self.table.push)(context, notes.thread, correlation.into()) == 0;
                    notes.calls.push(LaunchCall { correlation, purpose });
                }
            }
        });
    }

    fn take_notes(&self) -> (Vec<LaunchCall>, Vec<GraphNode>) {
        (NOTES.with_borrow_mut(|notes| std::mem::take(&mut notes.calls)), Vec::new())
    }

    fn end(&self, calls: &HashSet<u32>) -> Result<(Vec<Activity>, u64), String> {
        let collected = self.collect(calls);
        let mut state = lock(&STATE);
        let (own, others) = std::mem::take(&mut state.activities)
            .into_iter()
            .partition(|activity: &Activity| calls.contains(&activity.correlation));
        state.activities = others;
        let dropped = state.dropped;
        state.ranks = state.ranks.saturating_sub(1);
        if state.ranks == 0 {
            // SAFETY: the context exists. A status other than 0 leaves nothing else to do.
            unsafe { (self.table.stop)(CONTEXT.load(Ordering::Acquire)) };
            *state = RecorderState::default();
        }
        collected.map(|()| (own, dropped))
    }
}

/// Callback of the library: registers this program as one of its tools.
unsafe extern "C" fn configured(_: u32, _: *const c_char, _: u32, client: *mut ClientId) -> *const ConfigureResult {
    static RESULT: ConfigureResult = ConfigureResult {
        size: size_of::<ConfigureResult>(),
        initialize: initialized,
        finalize: finalized,
        data: std::ptr::null_mut(),
    };
    // SAFETY: the library passes a valid pointer, and the name is a constant.
    unsafe { (*client).name = c"aorta".as_ptr() };
    &RESULT
}

/// Callback of the library when it initializes its tools: creates the context and its buffer, which is permitted only
/// then.
unsafe extern "C" fn initialized(_: *const c_void, _: *mut c_void) -> i32 {
    let made = TABLE.get().ok_or(("rocprofiler_create_context", -1)).and_then(|table| {
        let good = |call: &'static str, code: i32| if code == 0 { Ok(()) } else { Err((call, code)) };
        let (mut context, mut buffer) = (0, 0);
        // SAFETY: the output pointers are valid for the calls, and the callback has the type of the library's header.
        unsafe {
            good("rocprofiler_create_context", (table.create_context)(&mut context))?;
            let null = std::ptr::null_mut();
            let code =
                (table.create_buffer)(context, BUFFER_BYTES, WATERMARK_BYTES, LOSSLESS, delivered, null, &mut buffer);
            good("rocprofiler_create_buffer", code)?;
            for kind in [KERNEL_DISPATCH, MEMORY_COPY] {
                let code = (table.trace)(context, kind, std::ptr::null(), 0, buffer);
                good("rocprofiler_configure_buffer_tracing_service", code)?;
            }
        }
        CONTEXT.store(context, Ordering::Release);
        BUFFER.store(buffer, Ordering::Release);
        Ok(())
    });
    let Err((call, code)) = made else { return 0 };
    let why = match code {
        PERMISSION_DENIED => "the system does not permit rocprofiler-sdk to trace".to_owned(),
        _ => format!("`{call}` returned {code}"),
    };
    *lock(&FAILED) = Some(why);
    -1
}

unsafe extern "C" fn finalized(_: *mut c_void) {}

/// Callback of the library, on a thread of its own: reads delivered records.
unsafe extern "C" fn delivered(
    _context: u64,
    _buffer: u64,
    headers: *const *const Header,
    count: usize,
    _data: *mut c_void,
    dropped: u64,
) {
    let mut state = lock(&STATE);
    state.dropped += dropped;
    for index in 0..count {
        // SAFETY: the library passes so many valid headers, whose payloads have the layout of their kind.
        unsafe {
            let header = &**headers.add(index);
            if header.category == TRACING && matches!(header.kind, KERNEL_DISPATCH | MEMORY_COPY) {
                state.activities.push(activity(header.kind, header.payload));
            }
        }
    }
}

/// Reads one record.
///
/// # Safety
///
/// The record has the layout of its kind.
unsafe fn activity(kind: u32, record: *const u8) -> Activity {
    // SAFETY: the caller vouches for the layout.
    let (word, half) = unsafe {
        (
            |at: usize| record.add(at).cast::<u64>().read_unaligned(),
            |at: usize| record.add(at).cast::<u32>().read_unaligned(),
        )
    };
    let sizes = |at: usize| [half(at), half(at + 4), half(at + 8)];
    let kernel = (kind == KERNEL_DISPATCH).then(|| {
        let (items, block) = (sizes(GRID), sizes(WORKGROUP));
        // The vendor counts the threads of the grid, not its blocks.
        let grid = std::array::from_fn(|axis| items[axis].div_ceil(block[axis].max(1)));
        KernelLaunch { grid, block, shared_bytes: half(GROUP_SEGMENT), ..KernelLaunch::default() }
    });
    Activity {
        correlation: u32::try_from(word(EXTERNAL)).unwrap_or(0),
        node: 0,
        start: word(START),
        end: word(END),
        queue: kernel.as_ref().map(|_| word(QUEUE)),
        kernel,
    }
}
