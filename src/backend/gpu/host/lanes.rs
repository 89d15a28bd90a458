//! Host streams of a GPU run: CPU threads execute the operations of a lane, and a stream of the device orders them.
//!
//! The lane of a host stream is an ordinary stream of the device: it records events, waits for them, records stamps, is
//! held at the gate and captured in graphs. An operation consists of two steps on it: the stream writes the operation's
//! number to a word in pinned memory, the request, and waits for a second word, which a thread raises when the work is
//! done. Therefore no host call is needed while iterations run. Both words are 0 again after each operation, also in a
//! graph.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use crate::backend::gpu::api::{Api, SyncStep};
use crate::base::threads;
use crate::exec::{Address, ExecError, Fault, Image};
use crate::ops::Launch;

use super::file_read::OpenFiles;
use super::work::{HostWork, ThreadBuffers};

/// Distance in bytes between the words of a lane, so that each is in a cache line of its own.
const LINE: u64 = 128;

/// Number of polls after which a waiting thread yields its core and reads the clock.
const POLLS: u32 = 256;

/// Time after which a waiting thread sleeps between polls.
const SLEEP_AFTER: Duration = Duration::from_millis(50);

/// The next sleep is the time waited so far divided by this number, so that sleeping delays an operation by 0.1 % at
/// most.
const SLEEP_PART: u32 = 1000;

/// Longest sleep between two polls.
const LONGEST_SLEEP: Duration = Duration::from_millis(1);

/// The host streams of an image, with their threads.
#[derive(Debug, Default)]
pub struct HostLanes {
    /// For each operation of the image, the steps of its stream: to raise the request, and to await its completion;
    /// `None` for operations that the device executes.
    steps: Vec<Option<[SyncStep; 2]>>,
    /// Address in pinned memory of the words of all lanes; 0 if the image has no host streams.
    words: u64,
    lanes: Vec<Arc<HostLane>>,
    threads: Vec<JoinHandle<()>>,
}

/// State that the threads of one host stream share. Thread 0, the leader, awaits requests and raises the flag `done`.
#[derive(Debug)]
struct HostLane {
    /// Address of the request: 0 if there is none, otherwise the number of an operation in `works`, counted from 1.
    request: u64,
    /// Address of the flag that is raised when an operation is complete.
    done: u64,
    threads: u32,
    works: Vec<HostWork>,
    /// Index in `works` of the operation under way.
    current: AtomicU32,
    /// Number of operations that the leader has begun, modulo 2^32.
    begun: AtomicU32,
    /// Number of threads besides the leader that are still busy with the operation.
    busy: AtomicU32,
    stop: AtomicBool,
    /// The first failure of an operation.
    failure: OnceLock<String>,
}

impl HostLanes {
    /// Starts the threads of all host streams of an image. `address` returns the address of an operand in this process.
    pub fn start<A: Api>(api: &A, image: &Image, address: impl Fn(Address) -> u64) -> Result<HostLanes, ExecError> {
        let mut started = HostLanes { steps: vec![None; image.ops.len()], ..HostLanes::default() };
        let begun = started.begin(api, image, address);
        if begun.is_err() {
            started.end();
            // SAFETY: the threads have ended, and the device has no work with the words yet.
            unsafe { started.free(api) };
        }
        begun.map(|()| started)
    }

    fn begin<A: Api>(&mut self, api: &A, image: &Image, address: impl Fn(Address) -> u64) -> Result<(), ExecError> {
        let numbers: Vec<u32> = (0..).zip(&image.lanes).filter_map(|(n, lane)| lane.threads.map(|_| n)).collect();
        if numbers.is_empty() {
            return Ok(());
        }
        let mut files = OpenFiles::new();
        let bytes = numbers.len() as u64 * 2 * LINE;
        self.words = api.allocate_pinned(bytes).map_err(ExecError::device)?;
        // SAFETY: the memory was allocated with that many bytes, and nothing uses it yet.
        unsafe { std::ptr::write_bytes(self.words as *mut u8, 0, bytes as usize) };
        for (place, &number) in numbers.iter().enumerate() {
            let request = self.words + place as u64 * 2 * LINE;
            let mut works = Vec::new();
            for (op, step) in image.ops.iter().zip(&mut self.steps).filter(|(op, _)| op.lane == number) {
                let work = &image.works[op.work as usize];
                // Copies that a verification adds run on the device.
                if let Some(Launch::Host { .. }) = work.launches.first() {
                    works.push(HostWork::of(&work.spec, image.operands(op), &address, &mut files)?);
                    let value = works.len() as u32;
                    *step = Some([SyncStep::Raise { flag: request, value }, SyncStep::Await(request + LINE)]);
                }
            }
            let lane = &image.lanes[number as usize];
            let lane_state = Arc::new(HostLane {
                request,
                done: request + LINE,
                threads: lane.threads.map_or(1, |threads| threads.get()),
                works,
                current: AtomicU32::new(0),
                begun: AtomicU32::new(0),
                busy: AtomicU32::new(0),
                stop: AtomicBool::new(false),
                failure: OnceLock::new(),
            });
            self.lanes.push(lane_state.clone());
            for thread in 0..lane_state.threads {
                let lane_state = lane_state.clone();
                let builder = Builder::new().name(format!("{} {thread}", lane.name));
                let spawned = threads::spawn(builder, move || match thread {
                    0 => lane_state.lead(),
                    _ => lane_state.help(thread),
                });
                self.threads.push(spawned.map_err(|error| ExecError::no_thread("for a host stream", &error))?);
            }
        }
        Ok(())
    }

    /// True if the image has host streams.
    pub fn is_used(&self) -> bool {
        !self.lanes.is_empty()
    }

    /// The steps of an operation's stream; `None` if the device executes the operation.
    pub fn steps(&self, op: usize) -> Option<[SyncStep; 2]> {
        self.steps.get(op).copied().flatten()
    }

    /// The first failure of an operation; `None` if none has failed.
    pub fn failure(&self) -> Option<Box<Fault>> {
        let failure = self.lanes.iter().find_map(|lane| lane.failure.get())?;
        Some(Fault::new("host stream", failure.clone()))
    }

    /// Requests the threads to end, without waiting for them.
    pub fn stop(&self) {
        self.lanes.iter().for_each(|lane| lane.stop.store(true, Ordering::Release));
    }

    /// Ends the threads once the current operations are complete.
    pub fn end(&mut self) {
        self.stop();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }

    /// Frees the memory of the words.
    ///
    /// # Safety
    ///
    /// The threads have ended, and the device is idle.
    pub unsafe fn free<A: Api>(&mut self, api: &A) {
        if self.words != 0 {
            // SAFETY: `start` allocated it; the caller guarantees that nothing uses it.
            unsafe { api.free_pinned(self.words) };
            self.words = 0;
        }
    }
}

impl HostLane {
    /// The word at this address, which is that of the request or of `done`.
    fn word(&self, address: u64) -> &AtomicU32 {
        // SAFETY: the words live until the threads have ended, and are only accessed atomically.
        unsafe { AtomicU32::from_ptr(address as *mut u32) }
    }

    /// Executes requested operations together with the other threads until the lane is stopped. Run by the leader.
    fn lead(&self) {
        let mut room = ThreadBuffers::for_all(&self.works);
        while let Some(number) = self.wait(|| Some(self.word(self.request).load(Ordering::Acquire)).filter(|&n| n != 0))
        {
            self.word(self.request).store(0, Ordering::Relaxed);
            self.current.store(number - 1, Ordering::Relaxed);
            self.busy.store(self.threads - 1, Ordering::Relaxed);
            self.begun.fetch_add(1, Ordering::Release);
            self.share(0, &mut room);
            if self.wait(|| (self.busy.load(Ordering::Acquire) == 0).then_some(())).is_none() {
                return;
            }
            self.word(self.done).store(1, Ordering::Release);
        }
    }

    /// Takes part in the operations that the leader begins until the lane is stopped. Run by the other threads.
    fn help(&self, thread: u32) {
        let mut room = ThreadBuffers::for_all(&self.works);
        let mut seen = 0;
        while let Some(begun) = self.wait(|| Some(self.begun.load(Ordering::Acquire)).filter(|&begun| begun != seen)) {
            seen = begun;
            self.share(thread, &mut room);
            self.busy.fetch_sub(1, Ordering::Release);
        }
    }

    /// Executes a thread's share of the current operation, and notes a failure.
    fn share(&self, thread: u32, room: &mut ThreadBuffers) {
        let work = &self.works[self.current.load(Ordering::Relaxed) as usize];
        // SAFETY: the image's memory is freed after the threads have ended, or never.
        if let Err(why) = unsafe { work.run((thread, self.threads), room) } {
            let _ = self.failure.set(why);
        }
    }

    /// Polls until `poll` returns a value; `None` if the lane is stopped before. Yields the core between polls, and
    /// sleeps only after a long wait.
    fn wait<T>(&self, mut poll: impl FnMut() -> Option<T>) -> Option<T> {
        let mut start = None;
        loop {
            for _ in 0..POLLS {
                if let Some(found) = poll() {
                    return Some(found);
                }
                std::hint::spin_loop();
            }
            if self.stop.load(Ordering::Acquire) {
                return None;
            }
            let waited = start.get_or_insert_with(Instant::now).elapsed();
            match waited > SLEEP_AFTER {
                true => std::thread::sleep((waited / SLEEP_PART).min(LONGEST_SLEEP)),
                false => std::thread::yield_now(),
            }
        }
    }
}
