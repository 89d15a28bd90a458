//! How a run is watched from outside, and ended: what the threads of its ranks and the rest of the program share.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::base::computing;

use super::error::ExecError;

/// What is done when a thread does not come back: the error is told, and the process may end.
struct Leave(Box<dyn Fn(&ExecError) + Send + Sync>);

impl std::fmt::Debug for Leave {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Leave")
    }
}

/// How a run is watched and stopped from outside.
#[derive(Debug)]
pub struct Control {
    /// Set by a signal: the run ends after the iteration under way.
    pub stop: Arc<AtomicBool>,
    /// Iterations done, warm-up included.
    pub done: AtomicU64,
    /// How often [`Control::progress`] has found a computation under way.
    computed: AtomicU64,
    /// A rank has seen that the run has to end, and ends.
    noticed: AtomicBool,
    /// Iterations have begun, so that there may be figures to keep.
    begun: AtomicBool,
    /// A rank has failed: the others end too.
    pub(super) failed: Arc<AtomicBool>,
    /// The first of them, by its place among those of this process; [`u32::MAX`] for none of them.
    first: AtomicU32,
    leave: OnceLock<Leave>,
    /// Watchdogs that look after a phase.
    watched: AtomicU32,
    /// Other processes have ranks too. They cannot be told in the middle of a phase: one ends when all have agreed to.
    linked: AtomicBool,
    /// All processes have agreed to stop.
    agreed: AtomicBool,
}

impl Default for Control {
    fn default() -> Self {
        Control {
            stop: Arc::default(),
            done: AtomicU64::new(0),
            computed: AtomicU64::new(0),
            noticed: AtomicBool::new(false),
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
    /// Whether the run has to end: on all processes that have ranks of it, or on none.
    pub fn stopped(&self) -> bool {
        let linked = self.linked.load(Ordering::Relaxed);
        let stopped = if linked { self.agreed.load(Ordering::Relaxed) } else { self.asked() };
        if stopped {
            self.noticed.store(true, Ordering::Relaxed);
        }
        stopped
    }

    /// Whether the run has seen that it has to end. It then does so by itself, and keeps all that it has measured.
    pub fn noticed(&self) -> bool {
        self.noticed.load(Ordering::Relaxed)
    }

    /// A number that is another one each time while this process makes progress: its iterations, and the moments at which
    /// the CPU computed a reference result.
    pub fn progress(&self) -> u64 {
        if computing::is_under_way() {
            self.computed.fetch_add(1, Ordering::Relaxed);
        }
        self.done.load(Ordering::Relaxed) + self.computed.load(Ordering::Relaxed)
    }

    /// Whether this process was asked to stop.
    pub(super) fn asked(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Whether iterations have begun. Before that, there is nothing to end well, and nothing to keep.
    pub fn begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }

    /// From now on the run ends when all processes have agreed to that.
    pub fn link(&self) {
        self.linked.store(true, Ordering::Relaxed);
    }

    /// All processes know that one of them was asked to stop.
    pub(super) fn agree(&self) {
        self.agreed.store(true, Ordering::Relaxed);
    }

    /// What to do when a rank's thread does not come back from a call although everything was tried: nobody can end a
    /// thread, so that only the end of the process is left. Of several, the first counts.
    pub fn when_stuck(&self, leave: impl Fn(&ExecError) + Send + Sync + 'static) {
        let _ = self.leave.set(Leave(Box::new(leave)));
    }

    /// Does what [`Control::when_stuck`] was told. Returns whether there was anything.
    pub(super) fn leave(&self, error: &ExecError) -> bool {
        let leave = self.leave.get();
        leave.iter().for_each(|leave| (leave.0)(error));
        leave.is_some()
    }

    /// A watchdog begins to look after a phase, and ends.
    pub(super) fn watched(&self, on: bool) {
        match on {
            true => self.watched.fetch_add(1, Ordering::Relaxed),
            false => self.watched.fetch_sub(1, Ordering::Relaxed),
        };
    }

    /// Whether a watchdog looks after a phase.
    pub(super) fn is_watched(&self) -> bool {
        self.watched.load(Ordering::Relaxed) > 0
    }

    /// A rank has failed, by its place among those of this process.
    pub(super) fn fail(&self, index: u32) {
        if !self.failed.swap(true, Ordering::AcqRel) {
            self.first.store(index, Ordering::Release);
        }
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// The place of the rank that failed first.
    pub(super) fn first_failed(&self) -> usize {
        self.first.load(Ordering::Acquire) as usize
    }

    /// Iterations are about to begin.
    pub(super) fn begin_iterations(&self) {
        self.begun.store(true, Ordering::Relaxed);
    }

    /// Ranks are about to begin something together.
    pub(super) fn begin(&self) {
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
        let mut goes_on = || {
            let now = control.progress();
            std::mem::replace(&mut seen, now) < now
        };
        control.done.fetch_add(1, Ordering::Relaxed);
        assert!(goes_on());
        // One that takes long, looked at several times.
        assert!(computing::compute(|| goes_on() && goes_on()));
    }
}
