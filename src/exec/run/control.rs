//! Progress and cancellation of a run, shared by the threads of its ranks, the watchdog and the command line.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::base::{computing, stage};
use crate::exec::ExecError;

/// Callback for a thread that does not return from a call: reports the error, and may end the process.
struct NoReturnHandler(Box<dyn Fn(&ExecError) + Send + Sync>);

impl std::fmt::Debug for NoReturnHandler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NoReturnHandler")
    }
}

/// Shared state through which a run is observed and stopped from outside.
#[derive(Debug)]
pub struct Control {
    /// Set by a signal handler: the run ends after the current iteration.
    pub stop: Arc<AtomicBool>,
    /// The stage in which a signal asked this process to stop; empty if none did, or outside of all stages.
    interrupted_stage: OnceLock<String>,
    /// Completed iterations, including warm-up.
    pub done: AtomicU64,
    /// Number of times that [`Control::progress`] found a computation running on the CPU.
    computed: AtomicU64,
    /// Set once a rank has seen the request to stop.
    has_seen_stop: AtomicBool,
    /// Set once iterations have begun, so that there may be samples to keep.
    begun: AtomicBool,
    /// Set once a rank has failed; the other ranks then end too.
    pub(in crate::exec) failed: Arc<AtomicBool>,
    /// Index, among the ranks of this process, of the rank that failed first; [`u32::MAX`] if none did.
    first: AtomicU32,
    leave: OnceLock<NoReturnHandler>,
    /// Number of watchdogs that currently watch a phase.
    watched: AtomicU32,
    /// Set if other processes run ranks too. A phase is not cut short then: the run ends once all processes have
    /// agreed.
    linked: AtomicBool,
    /// Set once all processes have agreed to stop.
    agreed: AtomicBool,
}

impl Default for Control {
    fn default() -> Self {
        Control {
            stop: Arc::default(),
            interrupted_stage: OnceLock::new(),
            done: AtomicU64::new(0),
            computed: AtomicU64::new(0),
            has_seen_stop: AtomicBool::new(false),
            begun: AtomicBool::new(false),
            failed: Arc::default(),
            first: AtomicU32::new(u32::MAX),
            leave: OnceLock::new(),
            watched: AtomicU32::new(0),
            linked: AtomicBool::new(false),
            agreed: AtomicBool::new(false),
        }
    }
}

impl Control {
    /// True if the run must end; with several processes, if all of them have agreed to end it.
    pub fn stopped(&self) -> bool {
        let linked = self.linked.load(Ordering::Relaxed);
        let stopped = if linked { self.agreed.load(Ordering::Relaxed) } else { self.stop_requested() };
        if stopped {
            self.has_seen_stop.store(true, Ordering::Relaxed);
        }
        stopped
    }

    /// Asks the run to stop, and keeps the stage that it is in.
    pub fn interrupt(&self) {
        if let Some(stage) = stage::describe() {
            let _ = self.interrupted_stage.set(stage);
        }
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Returns `interrupted while measuring`, with the stage that a signal found; `interrupted` if there was none, for
    /// example because the signal reached another process of the run.
    pub fn interruption(&self) -> String {
        self.interrupted_stage
            .get()
            .map_or_else(|| "interrupted".to_owned(), |stage| format!("interrupted while {stage}"))
    }

    /// True if the run has seen the request to stop. It then ends by itself and keeps all samples.
    pub fn has_seen_stop(&self) -> bool {
        self.has_seen_stop.load(Ordering::Relaxed)
    }

    /// Returns a number that changes whenever this process makes progress: with each iteration, and while the CPU
    /// computes reference results.
    pub fn progress(&self) -> u64 {
        if computing::is_under_way() {
            self.computed.fetch_add(1, Ordering::Relaxed);
        }
        self.done.load(Ordering::Relaxed) + self.computed.load(Ordering::Relaxed)
    }

    /// True if this process received a request to stop.
    pub(in crate::exec) fn stop_requested(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// True if iterations have begun. Before that, there are no results to keep.
    pub fn begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }

    /// Makes the end of the run depend on the agreement of all processes.
    pub fn link(&self) {
        self.linked.store(true, Ordering::Relaxed);
    }

    /// Records that all processes agree to stop.
    pub(in crate::exec) fn agree(&self) {
        self.agreed.store(true, Ordering::Relaxed);
    }

    /// Sets the callback for a rank's thread that does not return from a call even after its communicators were
    /// aborted. A thread cannot be ended from outside, so the callback normally ends the process. The first callback
    /// wins.
    pub fn on_unresponsive(&self, leave: impl Fn(&ExecError) + Send + Sync + 'static) {
        let _ = self.leave.set(NoReturnHandler(Box::new(leave)));
    }

    /// Calls the callback of [`Control::on_unresponsive`]. Returns false if there is none.
    pub(in crate::exec) fn leave(&self, error: &ExecError) -> bool {
        let leave = self.leave.get();
        leave.iter().for_each(|leave| (leave.0)(error));
        leave.is_some()
    }

    /// Records that a watchdog begins (`on`) or ends watching a phase.
    pub(in crate::exec) fn set_watched(&self, on: bool) {
        match on {
            true => self.watched.fetch_add(1, Ordering::Relaxed),
            false => self.watched.fetch_sub(1, Ordering::Relaxed),
        };
    }

    /// True if a watchdog watches a phase.
    pub(in crate::exec) fn is_watched(&self) -> bool {
        self.watched.load(Ordering::Relaxed) > 0
    }

    /// Records the failure of a rank, given its index among the ranks of this process.
    pub(in crate::exec) fn fail(&self, index: u32) {
        if !self.failed.swap(true, Ordering::AcqRel) {
            self.first.store(index, Ordering::Release);
        }
    }

    /// True if a rank has failed in this phase.
    pub(in crate::exec) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Index of the rank that failed first; [`u32::MAX`] as `usize` if none did.
    pub(in crate::exec) fn first_failed(&self) -> usize {
        self.first.load(Ordering::Acquire) as usize
    }

    /// Records that iterations begin.
    pub(in crate::exec) fn begin_iterations(&self) {
        self.begun.store(true, Ordering::Relaxed);
    }

    /// Clears the failures of the last phase. Called before ranks begin a phase.
    pub(in crate::exec) fn begin(&self) {
        self.first.store(u32::MAX, Ordering::Release);
        self.failed.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iterations_and_computations_are_progress() {
        let control = Control::default();
        let mut seen = control.progress();
        let mut note_progress = || {
            let now = control.progress();
            std::mem::replace(&mut seen, now) < now
        };
        control.done.fetch_add(1, Ordering::Relaxed);
        assert!(note_progress());
        // A long computation is progress each time it is checked.
        assert!(computing::compute(|| note_progress() && note_progress()));
    }
}
