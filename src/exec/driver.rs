//! What a backend has to be able to do.

use std::sync::Arc;

use crate::base::{Nanos, Space};
use crate::schedule::Topology;

use super::watchdog::Breaker;
use super::{ExecError, Health, Image, Peers, Timer};

/// A device, or something that stands for one.
pub trait Backend {
    /// `cuda`, `host` or `sim`.
    fn name(&self) -> &'static str;

    fn device(&self) -> DeviceInfo;

    fn topology(&self) -> Topology;

    /// Measures what timing costs; nothing where time is not told by a device's clock.
    fn timer(&self) -> Result<Option<Timer>, ExecError> {
        Ok(None)
    }

    /// Makes everything that the images need, one of each rank that this process runs: streams, events, memory with its
    /// contents, kernels, communicators. Nothing of this happens again while a run is measured. Gives a driver for each,
    /// in their order.
    fn open(&self, images: Vec<Image>) -> Result<Vec<Box<dyn Driver>>, ExecError>;

    /// The processes that run the other ranks of the world, where this one runs a single rank of it.
    fn peers(&self) -> Option<Arc<dyn Peers>> {
        None
    }
}

/// What is known of a device; absent where nobody says.
#[derive(Clone, Debug, Default)]
pub struct DeviceInfo {
    pub name: String,
    /// Figures come from a model, not from a clock.
    pub simulated: bool,
    pub index: Option<u32>,
    pub units: Option<u32>,
    /// Bytes of its own memory; nothing where it shares the host's.
    pub memory_bytes: Option<u64>,
    /// Bytes that the host can still give; nothing where none of it is used.
    pub host_memory_bytes: Option<u64>,
    /// Names with versions or values: driver, compiler, libraries, clocks.
    pub facts: Vec<(String, String)>,
}

/// What went wrong in a call, where nothing of the program is known yet.
#[derive(Clone, Debug)]
pub struct Fault {
    /// The vendor's function, or what was attempted.
    pub call: &'static str,
    /// The vendor's number; 0 where there is none.
    pub code: i64,
    pub message: String,
    /// It may be of something that was issued before: a device works behind the host, and tells a failure at whatever
    /// call comes next.
    pub late: bool,
}

/// How far a lane has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Operations that have ended since the driver was opened.
    pub ended: u64,
    /// The next one is under way.
    pub running: bool,
}

/// Where a rank is in its iterations when it has issued one.
#[derive(Clone, Copy, Debug)]
pub struct Issued {
    /// Iterations that have been issued and not been waited for, with this one.
    pub under_way: u64,
    /// The place of the next iteration in the period.
    pub slot: u64,
    /// The stamp at which the next iteration begins, and how many stamps iterations use in turn, two each. Iterations use
    /// as many gates, one each.
    pub next_stamp: u32,
    pub stamps: u32,
    /// Iterations that are still issued; None where the coming ones are not issued and measured as these are.
    pub left: Option<u64>,
}

/// Iterations that are equal to earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeat {
    /// How many iterations before each the equal one is.
    pub period: u64,
    /// How many there are: a multiple of the period.
    pub iterations: u64,
}

impl Fault {
    pub fn new(call: &'static str, message: impl Into<String>) -> Box<Fault> {
        Box::new(Fault { call, code: 0, message: message.into(), late: false })
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

/// An open device with an image on it. Operations, events, stamps and lanes go by their numbers in the image.
///
/// A stamp is an event that can be timed. The calls of the first group are what a measured iteration consists of:
/// on a GPU they allocate nothing, take no lock, and look nothing up by name.
///
/// A driver is one rank's. It may be moved to another thread, which then says so by [`Driver::enter`].
pub trait Driver: Send {
    /// Launches an operation on its lane.
    fn launch(&mut self, op: u32) -> Result<(), Box<Fault>>;

    /// Notes the place that a lane has reached.
    fn record(&mut self, event: u32, lane: u32) -> Result<(), Box<Fault>>;

    /// Lets a lane wait for the place that an event noted last; for none, if it never has.
    fn wait(&mut self, lane: u32, event: u32) -> Result<(), Box<Fault>>;

    /// Notes the time at which a lane comes to this place.
    fn stamp(&mut self, stamp: u32, lane: u32) -> Result<(), Box<Fault>>;

    /// Lets a lane wait for a stamp.
    fn wait_stamp(&mut self, lane: u32, stamp: u32) -> Result<(), Box<Fault>>;

    fn launch_graph(&mut self, graph: u32, lane: u32) -> Result<(), Box<Fault>>;

    /// Whether a stamp's time is known.
    fn reached(&mut self, stamp: u32) -> Result<bool, Box<Fault>>;

    /// The time between two stamps that have been reached.
    fn elapsed(&mut self, from: u32, to: u32) -> Result<Nanos, Box<Fault>>;

    /// Whether lanes can be held at a gate.
    fn gates(&self) -> bool {
        false
    }

    /// Holds a lane here until the gate is released; some time later it opens by itself. Nothing waits for the host.
    fn hold(&mut self, _gate: u32, _lane: u32) -> Result<(), Box<Fault>> {
        Err(Fault::new("hold", "this backend has no gates"))
    }

    /// This rank has issued one more iteration. Where ranks go on one at a time, those of a process cannot look at each
    /// other: `wait` then lets the others come as far first, in so far as they can.
    fn issued(&mut self, _wait: bool, _issued: Issued) {}

    /// Iterations that are certain to be equal to the last ones, so that they need not be issued. Says so once; None where
    /// nobody knows, as on every device that is not simulated.
    fn repeats(&mut self) -> Option<Repeat> {
        None
    }

    /// Opens a gate.
    fn release(&mut self, _gate: u32) {}

    /// Whether a gate that has been passed opened by itself.
    fn forced(&mut self, _gate: u32) -> bool {
        false
    }

    /// Whether the caches of data can be emptied.
    fn flushes(&self) -> bool {
        false
    }

    /// Empties the caches of data at this place of a lane.
    fn flush(&mut self, _lane: u32) -> Result<(), Box<Fault>> {
        Err(Fault::new("flush", "this backend empties no caches"))
    }

    /// The host's clock: one for all ranks of a host, whichever process they are in, from any beginning.
    fn now(&self) -> Nanos;

    // --- Outside of what is measured ------------------------------------------------------------------------

    /// Which clock the host's is: where drivers say the same, also in other processes, their times are comparable.
    fn host_clock(&self) -> u32 {
        0
    }

    /// From here to `end_capture`, calls are noted instead of issued; stamps and events too.
    fn begin_capture(&mut self, lane: u32) -> Result<(), Box<Fault>>;

    /// Makes a graph of what was noted, ready to launch, and returns its number. A refusal is a fault.
    fn end_capture(&mut self, lane: u32) -> Result<u32, Box<Fault>>;

    /// The calling thread is this rank's until [`Driver::leave`]: others may run beside it. The ranks of a process enter
    /// together, or none does.
    fn enter(&mut self) -> Result<(), Box<Fault>> {
        Ok(())
    }

    /// The thread is done with this rank.
    fn leave(&mut self) {}

    /// Whether the ranks of a process run side by side, so that one may wait for another: a simulator lets one go on at a
    /// time.
    fn side_by_side(&self) -> bool {
        true
    }

    /// From here on, stamps serve to observe operations, or no longer do. A simulator sees without being asked: its
    /// stamps then cost the host nothing.
    fn observing(&mut self, _on: bool) {}

    /// Whether the device has a clock of its own, which its stamps go by. Else they go by the host's.
    fn has_clock(&self) -> bool {
        true
    }

    /// When a stamp was reached, on the host's clock: for devices that have none of their own.
    fn reached_at(&mut self, _stamp: u32) -> Result<Nanos, Box<Fault>> {
        Err(Fault::new("reached_at", "the device has a clock of its own"))
    }

    /// How far from the truth the time between two stamps may be that are `elapsed` apart.
    fn uncertainty(&self, _elapsed: Nanos) -> Nanos {
        Nanos(0)
    }

    /// Waits until the device has nothing left to do.
    fn synchronize(&mut self) -> Result<(), Box<Fault>>;

    /// Whether a lane has nothing left to do: what a hang's message is made of.
    fn idle(&mut self, lane: u32) -> Result<bool, Box<Fault>>;

    /// How far a lane has come; nothing where the device does not say.
    fn progress(&mut self, _lane: u32) -> Option<Progress> {
        None
    }

    /// Whether it is certain that what has been issued never ends.
    fn stuck(&mut self) -> bool {
        false
    }

    /// What another thread can do where this rank's own does not come back from a call; nothing where calls always
    /// come back.
    fn breaker(&self) -> Option<Arc<dyn Breaker>> {
        None
    }

    /// Gives all memory the contents that it had at the beginning.
    fn reset(&mut self) -> Result<(), Box<Fault>>;

    /// Reads as much memory as `out` holds; false where the backend has none.
    fn read(&mut self, space: Space, offset: u64, out: &mut [u8]) -> Result<bool, Box<Fault>>;

    /// The device does not answer, or another rank has failed: what ranks do together is ended, and whoever drops this
    /// waits for nothing and gives nothing back.
    fn abandon(&mut self) {}

    /// How the device is doing now; nothing where it does not say. Takes up to milliseconds.
    fn health(&mut self) -> Option<Health> {
        None
    }

    /// Things worth knowing that showed during preparation: algorithms chosen, fall-backs taken.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}
