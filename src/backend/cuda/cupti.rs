//! CUPTI, NVIDIA's library that records when kernels, copies and fills run, with the device's own timestamps.
//!
//! A run attaches it only while iterations are observed. A process has one copy of the library, with one subscriber, so the
//! state of this module is that of the process. The records are read at offsets that are the same in all versions since CUDA
//! 12, because newer versions append fields.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use crate::backend::gpu::tracer::Tracer;
use crate::backend::libraries::{NotOpened, OpenedLibrary, SearchPaths, functions};
use crate::base::threads::lock;
use crate::exec::KernelLaunch;
use crate::exec::activity::{Activity, CallPurpose, GraphNode, LaunchCall};

type Subscriber = *mut c_void;
type Callback = unsafe extern "C" fn(*mut c_void, u32, u32, *const u8);
type Requested = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
type Completed = unsafe extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);

functions! {
    /// The library's functions.
    Table {
        version = cuptiGetVersion(*mut u32);
        result_string = cuptiGetResultString(i32, *mut *const c_char);
        subscribe = cuptiSubscribe(*mut Subscriber, Callback, *mut c_void);
        unsubscribe = cuptiUnsubscribe(Subscriber);
        enable_domain = cuptiEnableDomain(u32, Subscriber, u32);
        enable_callback = cuptiEnableCallback(u32, Subscriber, u32, u32);
        register = cuptiActivityRegisterCallbacks(Requested, Completed);
        enable = cuptiActivityEnable(u32);
        disable = cuptiActivityDisable(u32);
        flush_all = cuptiActivityFlushAll(u32);
        next_record = cuptiActivityGetNextRecord(*mut u8, usize, *mut *mut u8);
        dropped = cuptiActivityGetNumDroppedRecords(*mut c_void, u32, *mut usize);
        node_id = cuptiGetGraphNodeId(*mut c_void, *mut u64);
    }
    optional {
        finalize = cuptiFinalize();
    }
}

/// First version of CUPTI's interface whose records have all offsets below: that of CUDA 12.0.
const OLDEST: u32 = 19;

/// The first version whose `cuptiFinalize` is sound in a process with graphs: that of CUDA 12.6.
const FINALIZES: u32 = 24;

/// First version number of the form 10000 · major + 100 · minor of the toolkit. Earlier versions are numbered from 1.
const BY_TOOLKIT: u32 = 100_000;

const MAX_LIMIT_REACHED: i32 = 12;
const HARDWARE_BUSY: i32 = 26;
const INSUFFICIENT_PRIVILEGES: i32 = 35;
const MULTIPLE_SUBSCRIBERS: i32 = 39;
const FLUSH_FORCED: u32 = 1;

/// Domains of callbacks (`CUpti_CallbackDomain`), and the callbacks of the domain of resources that are used.
const DRIVER: u32 = 1;
const RUNTIME: u32 = 2;
const RESOURCE: u32 = 3;
const NODE_CREATED: u32 = 13;
const NODE_CLONED: u32 = 20;

/// Kinds of records (`CUpti_ActivityKind`).
const MEMCPY: u32 = 1;
const MEMSET: u32 = 2;
const CONCURRENT_KERNEL: u32 = 10;
const MEMCPY_PEER: u32 = 22;
const KINDS: [u32; 4] = [CONCURRENT_KERNEL, MEMCPY, MEMSET, MEMCPY_PEER];

/// Size of a buffer for records in 8-byte words: 4 MiB, which hold 17 000 kernels or more.
const BUFFER_WORDS: usize = 4 << 17;

/// Byte offsets of start and end in the records of all kinds: `CUpti_ActivityKernel9`, `CUpti_ActivityMemcpy5`,
/// `CUpti_ActivityMemcpyPtoP4`, `CUpti_ActivityMemset4` and their successors.
const START: usize = 16;
const END: usize = 24;

/// Byte offsets of the correlation id, the graph node's id and the channel id in a record; `None` for kinds that are
/// not read.
fn offsets(kind: u32) -> Option<(usize, usize, usize)> {
    match kind {
        CONCURRENT_KERNEL => Some((92, 144, 168)),
        MEMCPY | MEMSET => Some((44, 64, 76)),
        MEMCPY_PEER => Some((60, 72, 84)),
        _ => None,
    }
}

/// Byte offsets in the record of a kernel: registers per thread, grid and block, static and dynamic shared memory per
/// block, name, and the size of shared memory that the SM was configured to.
const REGISTERS: usize = 6;
const GRID: usize = 52;
const BLOCK: usize = 64;
const STATIC_SHARED: usize = 76;
const DYNAMIC_SHARED: usize = 80;
const NAME: usize = 104;
const SHARED_EXECUTED: usize = 140;

/// Byte offset of the correlation id in `CUpti_CallbackData`.
const CALL_CORRELATION: usize = 64;

/// Byte offsets of the descriptor in `CUpti_ResourceData`, and of the node and the node that it was cloned from in
/// `CUpti_GraphData`.
const RESOURCE_DESCRIPTOR: usize = 16;
const GRAPH_NODE: usize = 16;
const ORIGINAL_NODE: usize = 24;

/// Calls and graph nodes that the thread of one rank has made while the library was attached.
#[derive(Default)]
struct LaunchNotes {
    purpose: Option<CallPurpose>,
    calls: Vec<LaunchCall>,
    nodes: HashMap<u64, u32>,
}

thread_local! {
    static NOTES: RefCell<LaunchNotes> = RefCell::new(LaunchNotes::default());
}

/// State of the recording, shared by the ranks of the process.
#[derive(Default)]
struct RecorderState {
    /// Number of ranks that are recording.
    ranks: u32,
    /// Handle of the subscriber; 0 while no rank records.
    subscriber: usize,
    /// Records that were read, but that no rank has taken yet.
    activities: Vec<Activity>,
    dropped: u64,
}

static STATE: Mutex<RecorderState> =
    Mutex::new(RecorderState { ranks: 0, subscriber: 0, activities: Vec::new(), dropped: 0 });

/// Full buffers, each with its number of valid bytes, and empty buffers, by address. The library holds all other
/// buffers.
static FULL: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());
static EMPTY: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// True once CUPTI has recorded operations in this process and was detached; its range profiler fails from then on.
static HAS_RECORDED: AtomicBool = AtomicBool::new(false);

/// Returns an error, in words, if CUPTI has recorded operations in this process, after which it cannot read counters.
pub fn can_count() -> Result<(), String> {
    if HAS_RECORDED.load(Ordering::Relaxed) {
        return Err(
            "CUPTI cannot read counters in a process in which it has recorded operations: use `--observe events`"
                .to_owned(),
        );
    }
    Ok(())
}

/// The library, opened at most once by a process.
static LIBRARY: OnceLock<Result<Arc<Cupti>, String>> = OnceLock::new();

/// The opened library.
pub struct Cupti {
    table: &'static Table,
    version: u32,
    pub path: &'static str,
}

/// Returns the reason, in words, if a call's status is not 0. `result_string` is the library's function of that name.
pub fn check(
    result_string: unsafe extern "C" fn(i32, *mut *const c_char) -> i32,
    call: &str,
    code: i32,
) -> Result<(), String> {
    match code {
        0 => return Ok(()),
        MULTIPLE_SUBSCRIBERS => return Err("another profiler is attached to the process".to_owned()),
        INSUFFICIENT_PRIVILEGES => {
            return Err("the driver permits only administrators to use CUPTI: run as root, or load the kernel module \
                        `nvidia` with `NVreg_RestrictProfilingToAdminUsers=0`"
                .to_owned());
        }
        HARDWARE_BUSY => return Err("another program, such as DCGM, reads the counters of this GPU".to_owned()),
        _ => {}
    }
    let mut text: *const c_char = std::ptr::null();
    // SAFETY: the output pointer is valid for the call; the text, if any, is a constant of the library.
    let message = unsafe {
        match result_string(code, &mut text) {
            0 if !text.is_null() => CStr::from_ptr(text).to_string_lossy().into_owned(),
            _ => "unknown".to_owned(),
        }
    };
    Err(format!("`{call}` returned {code} ({message})"))
}

/// Loads the library, preferably of the major version that is first in `names`. The error is the reason in words why it
/// cannot be loaded.
pub fn find(paths: &SearchPaths, names: &[String]) -> Result<OpenedLibrary, String> {
    paths.open(names).map_err(|why| match why {
        NotOpened::Absent => "there is no CUPTI (libcupti), which is part of the CUDA toolkit".to_owned(),
        NotOpened::Broken(why) => format!("CUPTI does not load: {why}"),
    })
}

impl Cupti {
    /// Opens the library once in a process, preferably in the major version that is first in `names`. The error is the
    /// reason in words why it cannot be used.
    pub fn open(paths: &SearchPaths, names: &[String]) -> Result<Arc<Cupti>, String> {
        LIBRARY.get_or_init(|| Self::load(paths, names).map(Arc::new)).clone()
    }

    fn load(paths: &SearchPaths, names: &[String]) -> Result<Cupti, String> {
        let opened = find(paths, names)?;
        let table: &'static Table = Box::leak(Box::new(Table::load(&opened).map_err(|error| error.to_string())?));
        let mut version = 0;
        // SAFETY: the output pointer is valid for the call.
        let code = unsafe { (table.version)(&mut version) };
        let cupti = Cupti { table, version, path: opened.path };
        cupti.check("cuptiGetVersion", code)?;
        if version < OLDEST {
            return Err(format!("{} is older than that of CUDA 12", cupti.name()));
        }
        Ok(cupti)
    }

    fn check(&self, call: &str, code: i32) -> Result<(), String> {
        check(self.table.result_string, call, code)
    }

    /// Attaches to the process: subscribes, and enables callbacks and records.
    fn attach(&self, state: &mut RecorderState) -> Result<(), String> {
        let mut subscriber: Subscriber = std::ptr::null_mut();
        // SAFETY: the callbacks have the types of the library's header, and the table that they get is never freed.
        unsafe {
            let table = self.table;
            let user = std::ptr::from_ref(table).cast_mut().cast();
            self.check("cuptiSubscribe", (table.subscribe)(&mut subscriber, noted, user))?;
            state.subscriber = subscriber as usize;
            self.check("cuptiActivityRegisterCallbacks", (table.register)(requested, completed))?;
            for domain in [DRIVER, RUNTIME] {
                self.check("cuptiEnableDomain", (table.enable_domain)(1, subscriber, domain))?;
            }
            for callback in [NODE_CREATED, NODE_CLONED] {
                self.check("cuptiEnableCallback", (table.enable_callback)(1, subscriber, RESOURCE, callback))?;
            }
            for kind in KINDS {
                let code = (table.enable)(kind);
                // Some versions record copies between devices with the other copies.
                if kind != MEMCPY_PEER {
                    self.check("cuptiActivityEnable", code)?;
                }
            }
        }
        Ok(())
    }

    /// Disables records and callbacks, and detaches from the process.
    fn detach(&self, state: &mut RecorderState) {
        let subscriber = state.subscriber as Subscriber;
        // SAFETY: the subscriber is attached. A status other than 0 leaves nothing else to do.
        unsafe {
            for kind in KINDS {
                (self.table.disable)(kind);
            }
            (self.table.flush_all)(FLUSH_FORCED);
            for domain in [DRIVER, RUNTIME, RESOURCE] {
                (self.table.enable_domain)(0, subscriber, domain);
            }
            (self.table.unsubscribe)(subscriber);
            // Without this, the graphs that run later in the process are slower than before.
            if let Some(finalize) = self.table.finalize.filter(|_| self.version >= FINALIZES) {
                finalize();
            }
        }
        HAS_RECORDED.store(true, Ordering::Relaxed);
        // Records that arrive this late belong to no operation.
        let full = std::mem::take(&mut *lock(&FULL));
        lock(&EMPTY).extend(full.into_iter().map(|(buffer, _)| buffer));
        *state = RecorderState::default();
    }

    /// Flushes the library and reads the records of all full buffers. All devices must be idle.
    fn collect(&self, state: &mut RecorderState) -> Result<(), String> {
        // SAFETY: the library is attached.
        self.check("cuptiActivityFlushAll", unsafe { (self.table.flush_all)(FLUSH_FORCED) })?;
        let mut dropped = 0;
        // SAFETY: the output pointer is valid for the call; a null context selects the buffers of all contexts.
        let code = unsafe { (self.table.dropped)(std::ptr::null_mut(), 0, &mut dropped) };
        self.check("cuptiActivityGetNumDroppedRecords", code)?;
        state.dropped += dropped as u64;
        let full = std::mem::take(&mut *lock(&FULL));
        for (buffer, valid) in full {
            let read = self.read(buffer as *mut u8, valid, &mut state.activities);
            lock(&EMPTY).push(buffer);
            read?;
        }
        Ok(())
    }

    /// Appends the records of one buffer, of which `valid` bytes are valid.
    fn read(&self, buffer: *mut u8, valid: usize, activities: &mut Vec<Activity>) -> Result<(), String> {
        let mut record: *mut u8 = std::ptr::null_mut();
        let mut names = HashMap::new();
        loop {
            // SAFETY: the buffer has as many valid bytes, and the record is null or the one before.
            match unsafe { (self.table.next_record)(buffer, valid, &mut record) } {
                MAX_LIMIT_REACHED => return Ok(()),
                code => self.check("cuptiActivityGetNextRecord", code)?,
            }
            // SAFETY: a record begins with its kind, and has at least the fields of the oldest version. Records are packed
            // to 8 bytes.
            unsafe {
                let word = |at: usize| record.add(at).cast::<u64>().read_unaligned();
                let half = |at: usize| record.add(at).cast::<u32>().read_unaligned();
                let kind = half(0);
                let Some((call, node, channel)) = offsets(kind) else { continue };
                activities.push(Activity {
                    correlation: half(call),
                    node: word(node),
                    start: word(START),
                    end: word(END),
                    queue: Some(half(channel).into()),
                    kernel: (kind == CONCURRENT_KERNEL).then(|| kernel(record, &mut names)),
                });
            }
        }
    }
}

/// Reads the launch of a kernel from its record. `names` caches the names by address.
///
/// # Safety
///
/// The record is that of a kernel.
unsafe fn kernel(record: *const u8, names: &mut HashMap<usize, Option<Arc<str>>>) -> KernelLaunch {
    // SAFETY: the caller vouches for the record. The library never frees names.
    unsafe {
        let half = |at: usize| record.add(at).cast::<u32>().read_unaligned();
        let sizes = |at: usize| [half(at), half(at + 4), half(at + 8)];
        let name = record.add(NAME).cast::<*const c_char>().read_unaligned();
        let read = || (!name.is_null()).then(|| CStr::from_ptr(name).to_string_lossy().into());
        KernelLaunch {
            name: names.entry(name.addr()).or_insert_with(read).clone(),
            grid: sizes(GRID),
            block: sizes(BLOCK),
            registers: Some(record.add(REGISTERS).cast::<u16>().read_unaligned().into()),
            shared_bytes: half(STATIC_SHARED).saturating_add(half(DYNAMIC_SHARED)),
            unit_shared_bytes: Some(half(SHARED_EXECUTED)).filter(|bytes| *bytes > 0),
            occupancy: None,
        }
    }
}

impl Tracer for Cupti {
    fn name(&self) -> String {
        match self.version {
            version if version >= BY_TOOLKIT => format!("CUPTI {}.{}", version / 10_000, version % 10_000 / 100),
            version => format!("CUPTI, version {version} of its interface,"),
        }
    }

    fn names_nodes(&self) -> bool {
        true
    }

    fn begin(&self) -> Result<(), String> {
        let mut state = lock(&STATE);
        if state.ranks == 0 {
            let attached = self.attach(&mut state);
            if attached.is_err() && state.subscriber != 0 {
                self.detach(&mut state);
            }
            attached?;
        }
        state.ranks += 1;
        Ok(())
    }

    fn set_purpose(&self, purpose: Option<CallPurpose>) {
        NOTES.with_borrow_mut(|notes| notes.purpose = purpose);
    }

    fn take_notes(&self) -> (Vec<LaunchCall>, Vec<GraphNode>) {
        let notes = NOTES.take();
        (notes.calls, notes.nodes.into_iter().map(|(id, op)| GraphNode { id, op }).collect())
    }

    fn end(&self, calls: &HashSet<u32>) -> Result<(Vec<Activity>, u64), String> {
        let mut state = lock(&STATE);
        let collected = self.collect(&mut state);
        let (own, others) = std::mem::take(&mut state.activities)
            .into_iter()
            .partition(|activity: &Activity| calls.contains(&activity.correlation));
        state.activities = others;
        let dropped = state.dropped;
        state.ranks = state.ranks.saturating_sub(1);
        if state.ranks == 0 && state.subscriber != 0 {
            self.detach(&mut state);
        }
        collected.map(|()| (own, dropped))
    }
}

/// Callback of the library, within the thread's own calls: notes the correlation id of a call, or the operation of a
/// graph node.
unsafe extern "C" fn noted(user: *mut c_void, domain: u32, callback: u32, data: *const u8) {
    // A thread that is ending has already destroyed its notes and makes no observed calls.
    let _ = NOTES.try_with(|notes| {
        let Ok(mut notes) = notes.try_borrow_mut() else { return };
        // SAFETY: the data are those of the domain's callbacks, and the user's pointer is the table, as registered.
        unsafe {
            if domain != RESOURCE {
                let Some(purpose) = notes.purpose else { return };
                let correlation = data.add(CALL_CORRELATION).cast::<u32>().read();
                // Each call is announced when it begins and when it ends.
                if notes.calls.last().is_none_or(|last| last.correlation != correlation) {
                    notes.calls.push(LaunchCall { correlation, purpose });
                }
                return;
            }
            let table = &*user.cast_const().cast::<Table>();
            let graph = data.add(RESOURCE_DESCRIPTOR).cast::<*const u8>().read();
            let id = |offset: usize| {
                let mut id = 0;
                let node = graph.add(offset).cast::<*mut c_void>().read();
                ((table.node_id)(node, &mut id) == 0).then_some(id)
            };
            let op = match (callback, notes.purpose) {
                (NODE_CREATED, Some(CallPurpose::Operation { op, .. })) => Some(op),
                (NODE_CLONED, _) => id(ORIGINAL_NODE).and_then(|original| notes.nodes.get(&original).copied()),
                _ => None,
            };
            if let Some((op, id)) = op.and_then(|op| Some((op, id(GRAPH_NODE)?))) {
                notes.nodes.insert(id, op);
            }
        }
    });
}

/// Callback of the library: provides an empty buffer.
unsafe extern "C" fn requested(buffer: *mut *mut u8, size: *mut usize, most: *mut usize) {
    let empty = lock(&EMPTY).pop();
    let address = empty.unwrap_or_else(|| Box::leak(vec![0u64; BUFFER_WORDS].into_boxed_slice()).as_mut_ptr() as usize);
    // SAFETY: the library passes valid pointers. As many records as fit may be written.
    unsafe {
        *buffer = address as *mut u8;
        *size = 8 * BUFFER_WORDS;
        *most = 0;
    }
}

/// Callback of the library: takes back a buffer with `valid` bytes of records.
unsafe extern "C" fn completed(_context: *mut c_void, _stream: u32, buffer: *mut u8, _size: usize, valid: usize) {
    lock(&FULL).push((buffer as usize, valid));
}

#[cfg(test)]
mod tests;
