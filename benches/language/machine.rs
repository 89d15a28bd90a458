//! What is measured: live bytes, resident bytes, the processor's time.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The system's allocator, which counts live bytes and their peak.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// Forgets the peak, and returns the bytes that live now.
pub fn live() -> usize {
    let live = LIVE.load(Ordering::Relaxed);
    PEAK.store(live, Ordering::Relaxed);
    live
}

/// The most bytes that have lived since.
pub fn peak() -> usize {
    PEAK.load(Ordering::Relaxed)
}

fn grown(bytes: usize) {
    let live = LIVE.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(live, Ordering::Relaxed);
}

// SAFETY: every call goes to the system's allocator as it came; counting touches no memory but two atomics.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grown(layout.size());
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        grown(layout.size());
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // The system grows large stretches by their pages, without a copy beside them.
        match size.checked_sub(layout.size()) {
            Some(more) => grown(more),
            None => _ = LIVE.fetch_sub(layout.size() - size, Ordering::Relaxed),
        }
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The processor's time that this process has taken.
#[cfg(target_os = "linux")]
pub fn clock() -> Duration {
    #[repr(C)]
    struct Time {
        seconds: i64,
        nanos: i64,
    }
    unsafe extern "C" {
        fn clock_gettime(clock: i32, time: *mut Time) -> i32;
    }
    const PROCESS: i32 = 2;
    let mut time = Time { seconds: 0, nanos: 0 };
    // SAFETY: the C library writes one `timespec`, which is two 64-bit numbers on the systems that this runs on.
    let failed = unsafe { clock_gettime(PROCESS, &mut time) };
    assert_eq!(failed, 0, "the clock exists");
    Duration::new(time.seconds as u64, time.nanos as u32)
}

/// Elsewhere, the time on the wall.
#[cfg(not(target_os = "linux"))]
pub fn clock() -> Duration {
    static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    START.get_or_init(std::time::Instant::now).elapsed()
}

/// The most memory that this process has had, in bytes; 0 where the system does not tell.
pub fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}
