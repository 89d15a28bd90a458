//! The two traits that a backend implements: [`Backend`] opens devices, [`Driver`] runs one rank on one.

use std::sync::Arc;

use crate::base::{Nanos, Space};
use crate::schedule::Topology;

use super::failure::watchdog::CommMonitor;
use super::observe::activity::ActivityLog;
use super::observe::counters::Counters;
use super::{ExecError, Health, Image, RankProcesses, Timer};

/// A device of one vendor, or a substitute for one: CPU threads or the simulator.
pub trait Backend {
    /// Name of the backend, such as `cuda`, `host` or `sim`.
    fn name(&self) -> &'static str;

    fn device(&self) -> DeviceInfo;

    fn topology(&self) -> Topology;

    /// Measures the overhead of timing; `None` if times do not come from a device's clock. Kernels that take longer than
    /// `timeout` count as stuck.
    fn timer(&self, _timeout: Nanos) -> Result<Option<Timer>, ExecError> {
        Ok(None)
    }

    /// Creates streams, events, initialized memory, kernels and communicators for `images`, one for each rank of this
    /// process. Returns one driver per image, in the same order. Nothing of this happens again while a run is measured.
    fn open(&self, images: Vec<Image>) -> Result<Vec<Box<dyn Driver>>, ExecError>;

    /// The link to the processes that run the other ranks; `None` if this process runs all of them.
    fn processes(&self) -> Option<Arc<dyn RankProcesses>> {
        None
    }
}

/// Properties of a device. A field is `None` if the backend cannot determine it.
#[derive(Clone, Debug, Default)]
pub struct DeviceInfo {
    pub name: String,
    /// True if times come from a model instead of a clock.
    pub simulated: bool,
    /// Number of the device in the vendor's order; `None` if it is simulated or the CPU.
    pub index: Option<u32>,
    /// Number of compute units; for the CPU, number of its processors. `None` if unknown.
    pub units: Option<u32>,
    /// Bytes of the device's own memory; `None` if it shares the host's.
    pub memory_bytes: Option<u64>,
    /// Bytes that the host can still allocate; `None` if the backend uses no host memory.
    pub host_memory_bytes: Option<u64>,
    /// Versions of the driver, the compiler and the libraries, and clock rates, each with its name.
    pub facts: Vec<(String, String)>,
}

/// An error of a backend's call, before it is related to an operation of the program.
#[derive(Clone, Debug)]
pub struct Fault {
    /// The vendor's function, or the action that was attempted.
    pub call: &'static str,
    /// The vendor's error code; 0 if there is none.
    pub code: i64,
    pub message: String,
    /// True if earlier asynchronous work may have caused the error: a device runs behind the host and reports a failure
    /// at a later call.
    pub late: bool,
}

/// Progress of one lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneCompletion {
    /// Operations completed since the driver was opened.
    pub ended: u64,
    /// True if the next operation is running.
    pub running: bool,
}

/// Progress of a rank just after it issued an iteration.
#[derive(Clone, Copy, Debug)]
pub struct Issued {
    /// Iterations issued and not yet retired, including this one.
    pub under_way: u64,
    /// Index of the next iteration in the period.
    pub period_index: u64,
    /// The start stamp of the next iteration, as an index into the ring of stamps.
    pub next_stamp: u32,
    /// Size of the ring of stamps. Each iteration uses two stamps and one gate, so the ring of gates is half as large.
    pub stamps: u32,
    /// Iterations that are still to be issued; `None` if later iterations are not issued and measured like this one.
    pub left: Option<u64>,
}

/// Iterations that a simulator proved equal to earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeat {
    /// Distance in iterations from each repeated iteration to its original.
    pub period: u64,
    /// Number of repeated iterations, a multiple of `period`.
    pub iterations: u64,
}

impl Fault {
    /// Creates a fault without an error code, for a failure that no vendor's function returned.
    pub fn new(call: &'static str, message: impl Into<String>) -> Box<Fault> {
        Box::new(Fault { call, code: 0, message: message.into(), late: false })
    }

    /// The fault of capturing, in a graph, a transfer of rows that a tensor counts.
    pub fn counts_in_graph() -> Box<Fault> {
        Fault::new(
            "issue",
            "the host must read the row counts, which it cannot do inside a graph: run it as streams (`--launch stream`), or write \
             `copy(x, counts -> y at r)` for each rank, which reads the counts on the device",
        )
    }
}

impl ExecError {
    /// Returns the error for a fault during preparation, when no operation can have caused it.
    pub fn device(fault: Box<Fault>) -> ExecError {
        ExecError::Device { fault: fault.to_string(), help: None }
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.code {
            0 => write!(f, "`{}`: {}", self.call, self.message),
            code => write!(f, "`{}` returned {code} ({})", self.call, self.message),
        }
    }
}

/// An open device with one rank's image. Operations, events, stamps and lanes are identified by their numbers in the
/// image.
///
/// A stamp is an event with a timestamp. The methods above the line "Not used while iterations are measured" make up a
/// measured iteration: on a GPU they do not allocate, lock, or look up anything by name.
///
/// A driver may be moved to another thread, which then calls [`Driver::enter`].
pub trait Driver: Send {
    /// Launches an operation on its lane.
    fn launch(&mut self, op: u32) -> Result<(), Box<Fault>>;

    /// Records an event on a lane, after its earlier work.
    fn record(&mut self, event: u32, lane: u32) -> Result<(), Box<Fault>>;

    /// Makes a lane wait for the latest recording of an event. Does nothing if the event was never recorded.
    fn wait(&mut self, lane: u32, event: u32) -> Result<(), Box<Fault>>;

    /// Records a timestamp on a lane.
    fn stamp(&mut self, stamp: u32, lane: u32) -> Result<(), Box<Fault>>;

    /// Makes a lane wait for the latest recording of a stamp.
    fn wait_stamp(&mut self, lane: u32, stamp: u32) -> Result<(), Box<Fault>>;

    /// Launches a captured graph on a lane.
    fn launch_graph(&mut self, graph: u32, lane: u32) -> Result<(), Box<Fault>>;

    /// True if a stamp has been reached, so that its time is known. Does not block.
    fn reached(&mut self, stamp: u32) -> Result<bool, Box<Fault>>;

    /// Returns the time between two stamps that have been reached.
    fn elapsed(&mut self, from: u32, to: u32) -> Result<Nanos, Box<Fault>>;

    /// True if lanes can be held at a gate.
    fn gates(&self) -> bool {
        false
    }

    /// Makes a lane wait until the host releases the gate. A gate that is not released opens by itself after some time,
    /// so that the device never depends on the host.
    fn hold(&mut self, _gate: u32, _lane: u32) -> Result<(), Box<Fault>> {
        Err(Fault::new("hold", "this backend has no gates"))
    }

    /// Tells the driver that this rank has issued one more iteration. With `wait`, a driver that runs ranks in turns
    /// lets the other ranks of the process catch up first.
    fn issued(&mut self, _wait: bool, _issued: Issued) {}

    /// Returns iterations that are proved to equal the latest ones, so that they need not be issued. Each is returned
    /// once. `None` if nothing is proved, which is always the case on real devices.
    fn repeats(&mut self) -> Option<Repeat> {
        None
    }

    /// True if the stamps around observed operations take commands of the hardware queues.
    fn queues_observed_stamps(&self) -> bool {
        true
    }

    /// Opens a gate.
    fn release(&mut self, _gate: u32) {}

    /// True if a gate that lanes have passed opened by itself.
    fn forced(&mut self, _gate: u32) -> bool {
        false
    }

    /// True if this backend can flush data caches.
    fn flushes(&self) -> bool {
        false
    }

    /// Flushes the data caches at this point of a lane.
    fn flush(&mut self, _lane: u32) -> Result<(), Box<Fault>> {
        Err(Fault::new("flush", "this backend cannot flush caches"))
    }

    /// The host's clock, in ns from an arbitrary origin. All ranks of a host share it, also across processes.
    fn now(&self) -> Nanos;

    // --- Not used while iterations are measured -------------------------------------------------------------

    /// Identifies the host's clock: times of drivers that return the same number are comparable, also across processes.
    fn host_clock(&self) -> u32 {
        0
    }

    /// Begins a capture: until `end_capture`, calls are recorded into a graph instead of being issued, including stamps
    /// and events.
    fn begin_capture(&mut self, lane: u32) -> Result<(), Box<Fault>>;

    /// Instantiates the captured graph and returns its number. Fails if the device refuses the graph.
    fn end_capture(&mut self, lane: u32) -> Result<u32, Box<Fault>>;

    /// Binds this rank to the calling thread until [`Driver::leave`]. The ranks of a process all enter together, or
    /// none does.
    fn enter(&mut self) -> Result<(), Box<Fault>> {
        Ok(())
    }

    /// Releases this rank from the calling thread.
    fn leave(&mut self) {}

    /// True if the ranks of a process run concurrently, so that one may wait for another. A simulator runs one at a
    /// time.
    fn runs_ranks_concurrently(&self) -> bool {
        true
    }

    /// Announces whether the following stamps serve to observe operations. The simulator then charges the host nothing
    /// for them.
    fn observing(&mut self, _on: bool) {}

    /// Starts recording the number of occupied compute units, if the device reports it. Only the simulator does.
    fn watch_units(&mut self) {}

    /// Stops this recording. Returns the occupied compute units since a stamp: times at which their number changed,
    /// each with the number in 1/32 from then on. Empty if the device does not report it.
    fn units_since(&mut self, _begin: u32) -> Vec<(Nanos, u32)> {
        Vec::new()
    }

    /// True if the vendor has a library that records when operations run. Otherwise stamps time operations, which the
    /// simulator does exactly.
    fn has_recorder(&self) -> bool {
        false
    }

    /// Starts recording the device's activities with the vendor's library, and returns the library's name. Called on
    /// all ranks of a process before one of them issues observed iterations, as a graph if `as_graph`. The error is the
    /// reason in words.
    fn begin_records(&mut self, _as_graph: bool) -> Result<String, String> {
        Err("the backend has no such library".to_owned())
    }

    /// Announces that the calling thread's following calls belong to the observed iteration with this number, or to none.
    fn record_iteration(&mut self, _iteration: Option<u32>) {}

    /// Ends the recording and returns the records of this rank. Called once all ranks of the process are idle. The
    /// error is the reason in words why there are none.
    fn end_records(&mut self) -> Result<ActivityLog, String> {
        Err("nothing was recorded".to_owned())
    }

    /// Returns the vendor's library that counts hardware events, attached to the device. The error is the reason in words why it
    /// cannot be used.
    fn counters(&mut self) -> Result<Box<dyn Counters>, String> {
        Err("this backend has no library that counts hardware events; only `cuda` has one".to_owned())
    }

    /// True if stamps use a clock of the device; otherwise they use the host's.
    fn has_clock(&self) -> bool {
        true
    }

    /// Returns the time of a stamp on the host's clock. Only for devices without a clock of their own.
    fn reached_at(&mut self, _stamp: u32) -> Result<Nanos, Box<Fault>> {
        Err(Fault::new("reached_at", "the device has a clock of its own"))
    }

    /// Possible error of the time between two stamps that are `elapsed` apart.
    fn uncertainty(&self, _elapsed: Nanos) -> Nanos {
        Nanos(0)
    }

    /// Blocks until the device is idle. A `host_sync()` of the file calls it within an iteration.
    fn synchronize(&mut self) -> Result<(), Box<Fault>>;

    /// True if a lane has no work left. Used for the message of a hang.
    fn idle(&mut self, lane: u32) -> Result<bool, Box<Fault>>;

    /// Returns the progress of a lane; `None` if the device does not report it.
    fn progress(&mut self, _lane: u32) -> Option<LaneCompletion> {
        None
    }

    /// True if the issued work certainly never completes.
    fn stuck(&mut self) -> bool {
        false
    }

    /// A handle that lets the watchdog's thread abort communicators while this rank's thread is blocked in a call;
    /// `None` if calls always return.
    fn comm_monitor(&self) -> Option<Arc<dyn CommMonitor>> {
        None
    }

    /// Restores the initial contents of all memory.
    fn reset(&mut self) -> Result<(), Box<Fault>>;

    /// Reads `out.len()` bytes of memory; false if the backend has no memory.
    fn read(&mut self, space: Space, offset: u64, out: &mut [u8]) -> Result<bool, Box<Fault>>;

    /// Abandons the device after a hang or after another rank has failed: aborts communicators. Dropping the driver
    /// then neither synchronizes nor frees anything.
    fn abandon(&mut self) {}

    /// Returns clocks and throttling state; `None` if the device does not report them. Takes up to some milliseconds.
    fn health(&mut self) -> Option<Health> {
        None
    }

    /// Time that a compiler took for kernels during preparation; `None` if nothing is compiled.
    fn compile_time(&self) -> Option<Nanos> {
        None
    }

    /// Determines by a test whether copy engines or kernels execute the image's copies. Returns a note for each direction;
    /// empty if there is no copy to test. The test overwrites buffers and may leave the device slower, so nothing may be
    /// measured after it.
    fn infer_copy_units(&mut self) -> Result<Vec<String>, Box<Fault>> {
        Ok(Vec::new())
    }

    /// Notes from preparation for the report, such as chosen algorithms and fallbacks.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}
