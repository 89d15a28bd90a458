//! What rocprofiler-sdk records: each kernel and copy of a launch that was issued while a context was started, with the
//! number that the launching thread had pushed.

use std::cell::RefCell;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// The kind of a task's work, for its record.
#[derive(Clone, Copy)]
pub enum Work {
    Kernel {
        blocks: [u32; 3],
        block: [u32; 3],
        shared: u32,
    },
    Copy,
    /// Work of the host, which leaves no record.
    Host,
}

impl Work {
    /// A kernel of a library, whose grid nobody knows.
    pub const LIBRARY: Work = Work::Kernel { blocks: [1; 3], block: [64, 1, 1], shared: 0 };
}

/// The launch that a task belongs to: the number that its thread had pushed, or 0, and the thread.
#[derive(Clone, Copy)]
pub struct Launch {
    external: u64,
    thread: u64,
}

/// A record. The times are in ns of the double's own clock.
#[derive(Clone, Copy)]
pub struct Record {
    pub work: Work,
    pub external: u64,
    pub thread: u64,
    pub queue: u64,
    pub start: u64,
    pub end: u64,
}

static STARTED: AtomicBool = AtomicBool::new(false);
static RECORDS: Mutex<Vec<Record>> = Mutex::new(Vec::new());

thread_local! {
    static PUSHED: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// A number of the calling thread, from 1.
pub fn thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local!(static OWN: u64 = NEXT.fetch_add(1, Ordering::Relaxed));
    OWN.with(|own| *own)
}

pub fn start() {
    STARTED.store(true, Ordering::Release);
}

pub fn stop() {
    STARTED.store(false, Ordering::Release);
}

pub fn push(number: u64) {
    PUSHED.with_borrow_mut(|pushed| pushed.push(number));
}

pub fn pop() -> Option<u64> {
    PUSHED.with_borrow_mut(Vec::pop)
}

/// The launch that the calling thread makes now; `None` if no context is started.
pub fn launch() -> Option<Launch> {
    let external = PUSHED.with_borrow(|pushed| pushed.last().copied().unwrap_or(0));
    STARTED.load(Ordering::Acquire).then(|| Launch { external, thread: thread() })
}

/// Nanoseconds of the double's clock. It begins long before the first call, since 0 is no time.
pub fn now() -> u64 {
    static BEGIN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    1_000_000_000 + BEGIN.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

pub fn record(work: Work, launch: Launch, start: u64, end: u64) {
    if !matches!(work, Work::Host) {
        let Launch { external, thread: issuer } = launch;
        // The thread that runs a task is the hardware queue.
        let record = Record { work, external, thread: issuer, queue: thread(), start, end };
        RECORDS.lock().unwrap_or_else(PoisonError::into_inner).push(record);
    }
}

/// Takes all records.
pub fn take() -> Vec<Record> {
    std::mem::take(&mut *RECORDS.lock().unwrap_or_else(PoisonError::into_inner))
}
