//! Ends the program with a message and the exit code of a failed run when the system is out of memory.
//!
//! The standard library would abort the process, which looks like a crash.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fmt::Arguments;
use std::io::Write;
use std::os::fd::BorrowedFd;

use super::system::leave;

/// Exit code of a failed run.
const FAILED: u8 = 4;

thread_local! {
    /// True if this thread handles failed allocations itself.
    static MAY_FAIL: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work` in which allocations may fail: `try_reserve` and similar functions return their error. Outside of such a
/// function, a failed allocation ends the process.
pub fn may_be_refused<T>(work: impl FnOnce() -> T) -> T {
    let outer = MAY_FAIL.replace(true);
    let result = work();
    MAY_FAIL.set(outer);
    result
}

/// The system's allocator, except that a failed allocation ends the process with exit code 4 and a message.
#[derive(Debug)]
pub struct Allocator;

/// Makes a thread that gets no memory for its signal handler's stack end the process like [`Allocator`]. The standard
/// library panics there, in the new thread, after its creator was notified that it runs.
pub fn end_threads_without_memory() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if panic.location().is_some_and(|place| place.file().ends_with("stack_overflow.rs")) {
            print_message(format_args!("a thread could not start"));
            leave(FAILED);
        }
        usual(panic);
    }));
}

/// Returns the allocation of `bytes`, or ends the process if it failed.
fn or_exit(pointer: *mut u8, bytes: usize) -> *mut u8 {
    // A thread that ends may still allocate after its flag was destroyed.
    if pointer.is_null() && !MAY_FAIL.try_with(Cell::get).unwrap_or(false) {
        print_message(format_args!("an allocation of {bytes} bytes failed"));
        leave(FAILED);
    }
    pointer
}

/// Writes the message without allocating.
fn print_message(why: Arguments) {
    let mut text = [0; 512];
    let mut rest = &mut text[..];
    let _ = write!(
        rest,
        "aorta::exec::shortage\n\n  × the system is out of memory: {why}\n  help: end other \
         programs, raise the limit that `ulimit -v` shows, or lower a parameter\n"
    );
    let left = rest.len();
    // Writes to the file descriptor without a lock, because this thread may hold the lock. SAFETY: the program never
    // closes it.
    let terminal = unsafe { BorrowedFd::borrow_raw(2) };
    let _ = rustix::io::write(terminal, &text[..text.len() - left]);
}

// SAFETY: each call is passed to the system's allocator unchanged, and its result is returned unchanged.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        or_exit(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        or_exit(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as the caller promises.
        or_exit(unsafe { System.realloc(pointer, layout, size) }, size)
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}
