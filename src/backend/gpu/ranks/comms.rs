//! The communicators of a rank, shared by the rank's thread and the watchdog's thread, which may abort them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::backend::collective::{Collectives, Comm};
use crate::base::threads::lock;
use crate::exec::{CommMonitor, Fault};

/// Time that the library may take to abort communicators. It frees memory, which may wait for the device.
const ABORT_TIMEOUT: Duration = Duration::from_secs(3);

/// The communicators of one rank, by their number in the image.
pub struct Comms {
    collectives: Option<Collectives>,
    alive: Mutex<Vec<CommHandle>>,
    /// True once the communicators are being destroyed or aborted; none may be used from then on.
    over: AtomicBool,
}

/// Handle of a communicator.
#[derive(Clone, Copy)]
struct CommHandle(Comm);

// SAFETY: the library lets any thread query and abort a communicator; only its rank's thread uses it otherwise.
unsafe impl Send for CommHandle {}

impl Comms {
    pub fn new(collectives: Option<Collectives>, comms: &[Comm]) -> Comms {
        let alive = Mutex::new(comms.iter().copied().map(CommHandle).collect());
        Comms { collectives, alive, over: AtomicBool::new(false) }
    }

    /// True if the communicators may still be used.
    #[inline]
    pub fn usable(&self) -> bool {
        !self.over.load(Ordering::Relaxed)
    }

    /// Destroys the communicators. Their operations must have completed.
    pub fn destroy(&self) {
        let Some(collectives) = self.collectives else { return };
        for CommHandle(comm) in lock(&self.alive).drain(..) {
            // SAFETY: the communicator is alive, and the caller has waited for the device.
            unsafe { collectives.destroy(comm) };
        }
    }
}

impl CommMonitor for Comms {
    fn failure(&self) -> Option<(u32, Box<Fault>)> {
        let collectives = self.collectives.as_ref()?;
        let alive = lock(&self.alive);
        // SAFETY: the communicators in the list are alive, and nobody ends one while the list is locked.
        (0..)
            .zip(alive.iter())
            .find_map(|(number, comm)| unsafe { collectives.failure(comm.0) }.map(|fault| (number, fault)))
    }

    fn abort(&self) {
        self.over.store(true, Ordering::Relaxed);
        let handles: Vec<CommHandle> = lock(&self.alive).drain(..).collect();
        let Some(collectives) = self.collectives.filter(|_| !handles.is_empty()) else { return };
        let (done, ended) = channel();
        // The call may block forever, so a detached thread makes it.
        let end = move || {
            // The thread takes whole handles, because raw pointers are not `Send`.
            let handles: Vec<CommHandle> = handles;
            for CommHandle(comm) in handles {
                // SAFETY: the communicator was alive until it was taken off the list just now.
                unsafe { collectives.abort(comm) };
            }
            let _ = done.send(());
        };
        if std::thread::Builder::new().name("abort".to_owned()).spawn(end).is_ok() {
            let _ = ended.recv_timeout(ABORT_TIMEOUT);
        }
    }
}

/// The communicators of a driver that has none.
pub fn none() -> Arc<Comms> {
    Arc::new(Comms::new(None, &[]))
}
