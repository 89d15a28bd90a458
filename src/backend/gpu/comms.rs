//! A rank's communicators, where its own thread and the watchdog both reach them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::backend::collective::{Collectives, Comm};
use crate::exec::{CommMonitor, Fault};

/// How long the library may take to end communicators. It gives memory back, and may wait for the device to do so.
const ENDING: Duration = Duration::from_secs(3);

/// The communicators of one rank, by their numbers in the image.
pub struct Comms {
    collectives: Option<Collectives>,
    alive: Mutex<Vec<Handle>>,
    /// They are being ended, or have been: none may be used any more.
    over: AtomicBool,
}

/// A communicator's handle.
#[derive(Clone, Copy)]
struct Handle(Comm);

// SAFETY: the library lets any thread ask for a communicator's state and end it; it is used by its rank's thread alone.
unsafe impl Send for Handle {}

impl Comms {
    pub fn new(collectives: Option<Collectives>, comms: &[Comm]) -> Comms {
        let alive = Mutex::new(comms.iter().copied().map(Handle).collect());
        Comms { collectives, alive, over: AtomicBool::new(false) }
    }

    fn alive(&self) -> MutexGuard<'_, Vec<Handle>> {
        self.alive.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether they may still be used.
    #[inline]
    pub fn usable(&self) -> bool {
        !self.over.load(Ordering::Relaxed)
    }

    /// Ends them when nothing of them is under way.
    pub fn destroy(&self) {
        let Some(collectives) = self.collectives else { return };
        for Handle(comm) in self.alive().drain(..) {
            // SAFETY: it is alive, and whoever calls this has waited for the device.
            unsafe { collectives.destroy(comm) };
        }
    }
}

impl CommMonitor for Comms {
    fn failure(&self) -> Option<(u32, Box<Fault>)> {
        let collectives = self.collectives.as_ref()?;
        let alive = self.alive();
        // SAFETY: those in the list are alive, and nobody ends one while the list is locked.
        (0..)
            .zip(alive.iter())
            .find_map(|(number, comm)| unsafe { collectives.failure(comm.0) }.map(|fault| (number, fault)))
    }

    fn abort(&self) {
        self.over.store(true, Ordering::Relaxed);
        let handles: Vec<Handle> = self.alive().drain(..).collect();
        let Some(collectives) = self.collectives.filter(|_| !handles.is_empty()) else { return };
        let (done, ended) = channel();
        // The call may not come back: it is left to a thread that nobody waits for.
        let end = move || {
            // Whole handles, not the pointers inside of them, go to the thread.
            let handles: Vec<Handle> = handles;
            for Handle(comm) in handles {
                // SAFETY: it was alive, and has just been taken off the list.
                unsafe { collectives.abort(comm) };
            }
            let _ = done.send(());
        };
        if std::thread::Builder::new().name("abort".to_owned()).spawn(end).is_ok() {
            let _ = ended.recv_timeout(ENDING);
        }
    }
}

/// What a driver without communicators shares.
pub fn none() -> Arc<Comms> {
    Arc::new(Comms::new(None, &[]))
}
