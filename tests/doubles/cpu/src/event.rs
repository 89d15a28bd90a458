//! Events, and the marks that they point to.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::capture::Capture;
use crate::handles::Handles;
use crate::status::{CAPTURED_EVENT, Done, INVALID_HANDLE, NOT_READY};

/// How long a query waits for an event that is not reached: hosts query in a loop, and the device's threads need the
/// processor that such a loop would take.
const QUERY: Duration = Duration::from_micros(100);

/// A point of a stream: when it was reached, if it was.
#[derive(Default)]
pub struct Mark {
    at: Mutex<Option<Instant>>,
    changed: Condvar,
}

impl Mark {
    pub fn reach(&self) {
        *self.at.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        self.changed.notify_all();
    }

    pub fn wait(&self) {
        let at = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.changed.wait_while(at, |at| at.is_none()));
    }

    /// Whether the point is reached before this much time has passed.
    fn is_reached_within(&self, time: Duration) -> bool {
        let at = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(at, time, |at| at.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.is_some()
    }

    pub fn reached(&self) -> Option<Instant> {
        *self.at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The latest record of an event.
#[derive(Clone)]
pub enum Recorded {
    Never,
    Live(Arc<Mark>),
    /// In a capture, behind these nodes.
    Captured(Arc<Capture>, Vec<usize>),
}

pub struct Event {
    pub device: i32,
    pub timed: bool,
    latest: Mutex<Recorded>,
}

pub static EVENTS: Handles<Event> = Handles::new();

impl Event {
    pub fn new(device: i32, timed: bool) -> Event {
        Event { device, timed, latest: Mutex::new(Recorded::Never) }
    }

    pub fn set(&self, recorded: Recorded) {
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = recorded;
    }

    pub fn latest(&self) -> Recorded {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The mark that a host may ask for.
    fn mark(&self) -> Done<Option<Arc<Mark>>> {
        match self.latest() {
            Recorded::Never => Ok(None),
            Recorded::Live(mark) => Ok(Some(mark)),
            Recorded::Captured(..) => Err(CAPTURED_EVENT),
        }
    }

    pub fn query(&self) -> Done {
        match self.mark()? {
            Some(mark) if !mark.is_reached_within(QUERY) => Err(NOT_READY),
            _ => Ok(()),
        }
    }

    pub fn wait(&self) -> Done {
        self.mark()?.iter().for_each(|mark| mark.wait());
        Ok(())
    }

    /// Milliseconds from one event to another.
    pub fn elapsed(from: &Event, to: &Event) -> Done<f32> {
        let (Some(first), Some(last)) = (from.mark()?, to.mark()?) else { return Err(INVALID_HANDLE) };
        if !from.timed || !to.timed || from.device != to.device {
            return Err(INVALID_HANDLE);
        }
        let (Some(first), Some(last)) = (first.reached(), last.reached()) else { return Err(NOT_READY) };
        let seconds = match last.checked_duration_since(first) {
            Some(time) => time.as_secs_f64(),
            None => -first.duration_since(last).as_secs_f64(),
        };
        Ok((seconds * 1e3) as f32)
    }
}
