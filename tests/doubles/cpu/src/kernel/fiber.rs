//! Fibers: a device's threads that meet at a barrier take turns on one thread of the system.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

unsafe extern "C" {
    fn mmap(address: *mut c_void, length: usize, protect: c_int, flags: c_int, file: c_int, at: i64) -> *mut c_void;
    fn mprotect(address: *mut c_void, length: usize, protect: c_int) -> c_int;
    /// Keeps the registers that a call preserves on this stack, and goes on with those of another.
    fn hip_double_switch(keep: *mut *mut u8, go: *mut u8);
    fn hip_double_begin();
}

std::arch::global_asm!(
    ".hidden hip_double_switch",
    ".globl hip_double_switch",
    "hip_double_switch:",
    "push rbp",
    "push rbx",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "mov [rdi], rsp",
    "mov rsp, rsi",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbx",
    "pop rbp",
    "ret",
    // A fiber's first turn: its function and what it is told came in registers.
    ".hidden hip_double_begin",
    ".globl hip_double_begin",
    "hip_double_begin:",
    "mov rdi, r12",
    "call rbx",
    "ud2",
);

/// Bytes of a fiber's stack. Kernels keep a few hundred bytes of their own.
const STACK: usize = 64 << 10;
const PAGE: usize = 4096;

/// Distance between the first words of two stacks, within a page of the processor's cache, and the number of such distances. Without it the
/// first words of all stacks share a few lines of the cache, which the fibers of a wave then take from each other at each turn.
const STAGGER: usize = 384;
const STAGGERS: usize = 64;

/// The upper end of a stack, with a page below it that nobody may touch.
struct Stack(usize);

/// Stacks of fibers that are done, on this thread of the system, and of threads that have ended.
struct Spare(Vec<Stack>);
static SPARE: Mutex<Vec<Stack>> = Mutex::new(Vec::new());

thread_local! {
    static OWN: RefCell<Spare> = const { RefCell::new(Spare(Vec::new())) };
}

impl Drop for Spare {
    fn drop(&mut self) {
        SPARE.lock().unwrap_or_else(PoisonError::into_inner).append(&mut self.0);
    }
}

impl Stack {
    fn take() -> Stack {
        let spare = OWN.with_borrow_mut(|own| own.0.pop());
        let spare = spare.or_else(|| SPARE.lock().unwrap_or_else(PoisonError::into_inner).pop());
        spare.unwrap_or_else(|| {
            const READ_WRITE: c_int = 3;
            const PRIVATE_ANONYMOUS: c_int = 0x22;
            // SAFETY: fresh memory of our own, the lowest page of which is closed.
            unsafe {
                let base = mmap(std::ptr::null_mut(), STACK, READ_WRITE, PRIVATE_ANONYMOUS, -1, 0);
                assert!(base as isize != -1, "the system has memory for a stack");
                assert_eq!(mprotect(base, PAGE, 0), 0, "a page of our own can be closed");
                static NEXT: AtomicUsize = AtomicUsize::new(0);
                let turn = NEXT.fetch_add(1, Ordering::Relaxed) % STAGGERS;
                Stack(base as usize + STACK - turn * STAGGER)
            }
        })
    }
}

pub struct Fiber {
    stack: Option<Stack>,
    /// Stack pointer at which the fiber goes on.
    pub pointer: *mut u8,
}

impl Fiber {
    /// A fiber that will run the function, which may not return: its last [`switch`] is to another.
    pub fn new(function: unsafe extern "C" fn(*mut c_void), told: *mut c_void) -> Box<Fiber> {
        let stack = Stack::take();
        let top = stack.0 as *mut usize;
        // The registers as `hip_double_switch` takes them: r15, r14, r13, r12, rbx, rbp, and where to go on.
        let first = [0, 0, 0, told as usize, function as usize, 0, hip_double_begin as *const () as usize];
        // SAFETY: the words lie at the top of a stack that nobody uses.
        let pointer = unsafe {
            let place = top.sub(first.len());
            place.copy_from_nonoverlapping(first.as_ptr(), first.len());
            place.cast()
        };
        Box::new(Fiber { stack: Some(stack), pointer })
    }
}

/// Goes on at the stack pointer `go`, and keeps at `keep` where another switch goes on here.
///
/// # Safety
/// A switch or [`Fiber::new`] left `go`, and nothing has gone on there since.
pub unsafe fn switch(keep: *mut *mut u8, go: *mut u8) {
    // SAFETY: the caller vouches for the stack pointer; the stack holds the registers that belong to it.
    unsafe { hip_double_switch(keep, go) };
}

impl Drop for Fiber {
    fn drop(&mut self) {
        let stack = self.stack.take();
        OWN.with_borrow_mut(|own| own.0.extend(stack));
    }
}
