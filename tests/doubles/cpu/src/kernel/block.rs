//! Blocks of a grid, one after the other, and their threads: in turn as long as none waits, each on a fiber of its own
//! from its first barrier on.

use std::ffi::c_void;
use std::sync::OnceLock;
use std::time::Instant;

use crate::device::{CLOCK_HZ, WAVE};
use crate::status::{Done, LAUNCH_FAILURE};

use super::fiber::{self, Fiber};
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

/// Most threads of a block.
pub const THREADS: u64 = 1024;

/// Indices of a thread, in the layout of the prelude.
#[repr(C)]
pub struct Place {
    thread: [u32; 3],
    block: [u32; 3],
    block_dim: [u32; 3],
    grid_dim: [u32; 3],
    /// The block, for the functions that the library provides.
    running: *mut Block<'static>,
    /// Parity of the number of shuffles of each thread.
    shuffles: [u8; THREADS as usize],
}

/// Functions that the library provides to kernels, in the layout of the prelude.
#[repr(C)]
pub struct Host {
    block_barrier: unsafe extern "C" fn(*mut Block<'static>),
    wave_barrier: unsafe extern "C" fn(*mut Block<'static>),
    clock: extern "C" fn() -> u64,
}

impl Host {
    pub const FUNCTIONS: Host = Host { block_barrier, wave_barrier, clock };
}

/// The state of a thread between two of its turns.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// It waits for the threads of its block.
    AtBlock,
    /// It waits for the threads of its wave.
    AtWave,
    Ended,
}

/// A thread that has begun to wait, with the fiber that it stays on.
struct Paused {
    fiber: Box<Fiber>,
    thread: u32,
    state: State,
}

/// The block that runs on this thread of the system.
pub struct Block<'a> {
    entry: *const Entry,
    args: *mut *mut c_void,
    place: *mut Place,
    /// The place of each thread in the block.
    places: &'a [[u32; 3]],
    threads: u32,
    /// The thread that begins next, and the one that runs.
    next: u32,
    thread: u32,
    /// State of the last fiber that gave control back to [`run_block`], and where that goes on.
    state: State,
    back: *mut u8,
    /// The fiber that runs. Of a wave whose fibers take turns, also the fibers, the index of the one that runs, and
    /// whether each that had its turn waits for its wave; no fibers while threads begin.
    fiber: *mut Fiber,
    wave: *mut [Paused],
    turn: usize,
    all_at_wave: bool,
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
        let mut block = Block {
            entry,
            args,
            place,
            places: &places,
            threads: places.len() as u32,
            next: 0,
            thread: 0,
            state: State::Ended,
            back: std::ptr::null_mut(),
            fiber: std::ptr::null_mut(),
            wave: &mut [],
            turn: 0,
            all_at_wave: false,
        };
        let block = (&raw mut block).cast::<Block<'static>>();
        // SAFETY: the place is the calling thread's, which runs nothing else now. The caller vouches for what the block is
        // made of; nothing uses the pointers to it after its last thread.
        unsafe {
            place.write(Place {
                thread: [0; 3],
                block: at,
                block_dim: grid.block,
                grid_dim: grid.blocks,
                running: block,
                shuffles: [0; THREADS as usize],
            });
            run_block(block)?;
        }
    }
    Ok(())
}

/// # Safety
/// The block is that of this thread of the system.
unsafe fn run_block(block: *mut Block<'static>) -> Done {
    // SAFETY: fibers of this block touch it only in their turns, between which no reference to it is held.
    unsafe {
        let threads = (*block).threads;
        let mut waves: Vec<Vec<Paused>> = (0..threads.div_ceil(WAVE)).map(|_| Vec::new()).collect();
        // A fiber begins threads until one of them waits.
        while (*block).next < threads {
            let mut fiber = Fiber::new(run_threads, block.cast());
            (*block).fiber = &raw mut *fiber;
            fiber::switch(&raw mut (*block).back, fiber.pointer);
            if (*block).state != State::Ended {
                let thread = (*block).thread;
                waves[(thread / WAVE) as usize].push(Paused { fiber, thread, state: (*block).state });
            }
        }
        // A wave goes on while all of its threads that have not ended wait for each other; the block, once all threads
        // wait for it.
        while waves.iter().any(|wave| !wave.is_empty()) {
            for wave in &mut waves {
                while !wave.is_empty() && wave.iter().all(|one| one.state == State::AtWave) {
                    take_turns(block, wave);
                }
            }
            if waves.iter().flatten().any(|one| one.state == State::AtWave) {
                eprintln!("HIP double: threads of a block wait at different barriers");
                return Err(LAUNCH_FAILURE);
            }
            waves.iter_mut().filter(|wave| !wave.is_empty()).for_each(|wave| take_turns(block, wave));
        }
    }
    Ok(())
}

/// Gives each fiber of a wave turns, until one of them has ended or waits for the block. Removes those that have ended.
///
/// # Safety
/// As for [`run_block`]; the fibers are those of this block, and there is one.
unsafe fn take_turns(block: *mut Block<'static>, wave: &mut Vec<Paused>) {
    // SAFETY: the caller guarantees it.
    unsafe {
        (*block).wave = &raw mut **wave;
        let first = begin_turn(block, 0);
        fiber::switch(&raw mut (*block).back, (*first).pointer);
        (*block).wave = &mut [];
    }
    wave.retain(|one| one.state != State::Ended);
}

/// Prepares the turn of a wave's fiber, and returns it.
///
/// # Safety
/// As for [`take_turns`]; the wave has a fiber of that index.
unsafe fn begin_turn(block: *mut Block<'static>, index: usize) -> *const Fiber {
    // SAFETY: the caller guarantees it.
    unsafe {
        (*block).turn = index;
        (*block).all_at_wave |= index == 0;
        let one = &raw mut (*(*block).wave)[index];
        (*block).fiber = &raw mut *(*one).fiber;
        stand(block, (*one).thread);
        (*block).fiber
    }
}

/// Ends the turn of the fiber that runs: the next one of its wave goes on, or [`run_block`].
///
/// # Safety
/// It is a fiber of this block that runs.
unsafe fn pause(block: *mut Block<'static>, state: State) {
    // SAFETY: the caller guarantees it. Each fiber keeps its registers before another one goes on.
    unsafe {
        let own = (*block).fiber;
        let count = (*block).wave.len();
        if count == 0 {
            (*block).state = state;
            return fiber::switch(&raw mut (*own).pointer, (*block).back);
        }
        let index = (*block).turn;
        (&mut (*(*block).wave))[index].state = state;
        (*block).all_at_wave &= state == State::AtWave;
        if index + 1 == count && !(*block).all_at_wave {
            return fiber::switch(&raw mut (*own).pointer, (*block).back);
        }
        let next = begin_turn(block, (index + 1) % count);
        if !std::ptr::eq(next, own) {
            fiber::switch(&raw mut (*own).pointer, (*next).pointer);
        }
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
/// ends with it or continues with others.
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
        pause(block, State::Ended);
    }
}

/// # Safety
/// A thread of this block calls it.
unsafe extern "C" fn block_barrier(block: *mut Block<'static>) {
    // SAFETY: the caller guarantees it.
    unsafe { pause(block, State::AtBlock) }
}

/// # Safety
/// A thread of this block calls it.
unsafe extern "C" fn wave_barrier(block: *mut Block<'static>) {
    // SAFETY: the caller guarantees it.
    unsafe { pause(block, State::AtWave) }
}

/// The device's clock. Who looks at it waits for something, so others get their turn.
extern "C" fn clock() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    std::thread::yield_now();
    let time = START.get_or_init(Instant::now).elapsed();
    (time.as_nanos() * u128::from(CLOCK_HZ) / 1_000_000_000) as u64
}
