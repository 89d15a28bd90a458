//! Blocks of a grid, one after the other, and their threads: in turn as long as none waits, each on a fiber of its own
//! from its first barrier on.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::OnceLock;
use std::time::Instant;

use crate::device::{CLOCK_HZ, WAVE};
use crate::status::{Done, LAUNCH_FAILURE};

use super::fiber::Fiber;
use super::module::Entry;

#[derive(Clone, Copy)]
pub struct Grid {
    pub blocks: [u32; 3],
    pub block: [u32; 3],
    pub shared: u32,
}

impl Grid {
    pub fn threads(&self) -> u64 {
        self.block.iter().map(|&size| u64::from(size)).product()
    }
}

/// Indices of a thread, in the layout of the prelude.
#[repr(C)]
pub struct Place {
    thread: [u32; 3],
    block: [u32; 3],
    block_dim: [u32; 3],
    grid_dim: [u32; 3],
}

/// Functions that the library provides to kernels, in the layout of the prelude.
#[repr(C)]
pub struct Host {
    block_barrier: extern "C" fn(),
    wave_barrier: extern "C" fn(),
    clock: extern "C" fn() -> u64,
}

impl Host {
    pub const FUNCTIONS: Host = Host { block_barrier, wave_barrier, clock };
}

/// The barrier that a thread waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Barrier {
    Block,
    Wave,
}

/// A thread that waits.
struct Waiting {
    fiber: Box<Fiber>,
    thread: u32,
    barrier: Barrier,
}

/// The block that runs on this thread of the system.
struct Block<'a> {
    entry: *const Entry,
    args: *mut *mut c_void,
    place: *mut Place,
    /// The place of each thread in the block.
    places: &'a [[u32; 3]],
    threads: u32,
    /// The thread that begins next.
    next: u32,
    /// The thread that runs, and its fiber; what it waits for when it pauses.
    thread: u32,
    fiber: *mut Fiber,
    pausing: Option<Barrier>,
}

thread_local! {
    static BLOCK: Cell<*mut Block<'static>> = const { Cell::new(std::ptr::null_mut()) };
}

/// Runs a whole grid.
///
/// # Safety
/// The entry is a kernel's, `args` are its arguments, and the place is that of the calling thread.
pub unsafe fn run(entry: *const Entry, grid: &Grid, place: *mut Place, args: *mut *mut c_void) -> Done {
    let [x, y, z] = grid.block;
    let places: Vec<[u32; 3]> = (0..x * y * z).map(|thread| [thread % x, thread / x % y, thread / x / y]).collect();
    let [x, y, z] = grid.blocks;
    for number in 0..u64::from(x) * u64::from(y) * u64::from(z) {
        let (row, column) = (number / u64::from(x), (number % u64::from(x)) as u32);
        let at = [column, (row % u64::from(y)) as u32, (row / u64::from(y)) as u32];
        // SAFETY: the place is the calling thread's, which runs nothing else now.
        unsafe { place.write(Place { thread: [0; 3], block: at, block_dim: grid.block, grid_dim: grid.blocks }) };
        let mut block = Block {
            entry,
            args,
            place,
            places: &places,
            threads: places.len() as u32,
            next: 0,
            thread: 0,
            fiber: std::ptr::null_mut(),
            pausing: None,
        };
        // SAFETY: the caller vouches for what the block is made of; the pointer is taken back before the block ends.
        let done = unsafe {
            BLOCK.set((&raw mut block).cast());
            let done = run_block((&raw mut block).cast());
            BLOCK.set(std::ptr::null_mut());
            done
        };
        done?;
    }
    Ok(())
}

/// # Safety
/// The block is that of this thread of the system.
unsafe fn run_block(block: *mut Block<'static>) -> Done {
    // SAFETY: fibers of this block touch it only in their turns, between which no reference to it is held.
    unsafe {
        let threads = (*block).threads;
        let mut waves: Vec<Vec<Waiting>> = (0..threads.div_ceil(WAVE)).map(|_| Vec::new()).collect();
        // A fiber begins threads until one of them waits.
        loop {
            let mut fiber = Fiber::new(run_threads, block.cast());
            if let Some(barrier) = turn(block, &mut fiber, None) {
                let thread = (*block).thread;
                waves[(thread / WAVE) as usize].push(Waiting { fiber, thread, barrier });
            }
            if (*block).next == threads {
                break;
            }
        }
        let mut resume = |one: &mut Waiting| {
            let barrier = turn(block, &mut one.fiber, Some(one.thread));
            barrier.inspect(|barrier| one.barrier = *barrier).is_some()
        };
        // A wave goes on while all of its threads that have not ended wait for each other; the block, once all threads
        // wait for it.
        while waves.iter().any(|wave| !wave.is_empty()) {
            for wave in &mut waves {
                while !wave.is_empty() && wave.iter().all(|one| one.barrier == Barrier::Wave) {
                    wave.retain_mut(&mut resume);
                }
            }
            if waves.iter().flatten().any(|one| one.barrier == Barrier::Wave) {
                eprintln!("HIP double: threads of a block wait at different barriers");
                return Err(LAUNCH_FAILURE);
            }
            waves.iter_mut().for_each(|wave| wave.retain_mut(&mut resume));
        }
    }
    Ok(())
}

/// Gives a fiber a turn; returns what it waits for, or `None` if it has no more threads to run.
///
/// # Safety
/// As for [`run_block`]; the fiber is one of this block.
unsafe fn turn(block: *mut Block<'static>, fiber: &mut Fiber, thread: Option<u32>) -> Option<Barrier> {
    // SAFETY: the caller guarantees it.
    unsafe {
        (*block).fiber = fiber;
        if let Some(thread) = thread {
            stand(block, thread);
        }
        Fiber::resume((*block).fiber);
        (*block).pausing.take()
    }
}

/// # Safety
/// As for [`run_block`].
unsafe fn stand(block: *mut Block<'static>, thread: u32) {
    // SAFETY: the place is that of this thread of the system.
    unsafe {
        (*block).thread = thread;
        (*(*block).place).thread = (*block).places[thread as usize];
    }
}

/// A fiber's function: runs threads one after the other until one of them waits; that thread stays on this fiber, which
/// then continues with others.
unsafe extern "C" fn run_threads(block: *mut c_void) {
    let block = block.cast::<Block<'static>>();
    // SAFETY: it is this block's fiber that runs.
    unsafe {
        while (*block).next < (*block).threads {
            let thread = (*block).next;
            (*block).next += 1;
            stand(block, thread);
            ((*(*block).entry).run)((*block).args);
        }
        Fiber::pause((*block).fiber);
    }
}

fn pause(barrier: Barrier) {
    let block = BLOCK.get();
    // SAFETY: a kernel calls this, so that a block runs on this thread of the system, on the fiber that it names.
    unsafe {
        (*block).pausing = Some(barrier);
        Fiber::pause((*block).fiber);
    }
}

extern "C" fn block_barrier() {
    pause(Barrier::Block);
}

extern "C" fn wave_barrier() {
    pause(Barrier::Wave);
}

/// The device's clock. Who looks at it waits for something, so others get their turn.
extern "C" fn clock() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    std::thread::yield_now();
    let time = START.get_or_init(Instant::now).elapsed();
    (time.as_nanos() * u128::from(CLOCK_HZ) / 1_000_000_000) as u64
}
