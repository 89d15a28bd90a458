//! Streams: each does one task after the other, on a hardware queue.

use std::sync::{Arc, Mutex, PoisonError};

use crate::capture::Capture;
use crate::device;
use crate::event::{Event, Mark, Recorded};
use crate::handles::Handles;
use crate::hardware::Hardware;
use crate::profiler::{self, Launch, Work};
use crate::status::{
    CAPTURE_ISOLATION, CAPTURE_MERGE, CAPTURE_UNSUPPORTED, Done, INVALID_HANDLE, INVALID_VALUE, Status,
};

/// A task of a stream. A graph repeats it at each launch.
#[derive(Clone)]
pub enum Task {
    Run(Arc<dyn Fn() -> Result<(), Status> + Send + Sync>, Work),
    /// Sets an event.
    Record(Arc<Event>),
    /// Only keeps an order.
    Nothing,
}

impl Task {
    /// Work of a kernel whose grid nobody knows: that of a library, or a fill.
    pub fn new(run: impl Fn() -> Result<(), Status> + Send + Sync + 'static) -> Task {
        Task::of(Work::LIBRARY, run)
    }

    pub fn of(work: Work, run: impl Fn() -> Result<(), Status> + Send + Sync + 'static) -> Task {
        Task::Run(Arc::new(run), work)
    }

    /// Does it, on a device that has not failed. A launch that the profiler records leaves a record.
    pub fn run(&self, device: i32, launch: Option<Launch>) {
        let Ok(device) = device::get(device) else { return };
        if let Task::Run(run, work) = self
            && device.check().is_ok()
        {
            let start = profiler::now();
            if let Err(status) = run() {
                device.fail(status);
            }
            if let Some(launch) = launch {
                profiler::record(*work, launch, start, profiler::now());
            }
        }
    }
}

pub struct Stream {
    pub device: i32,
    pub priority: i32,
    /// The compute units that it was asked to keep to, which nothing holds it to.
    pub mask: Vec<u32>,
    hardware: Arc<Hardware>,
    /// The mark of what was issued last.
    last: Mutex<Option<Arc<Mark>>>,
    capture: Mutex<Option<Arc<Capture>>>,
}

pub static STREAMS: Handles<Stream> = Handles::new();

impl Stream {
    pub fn start(device: i32, priority: i32) -> Arc<Stream> {
        Stream::with_mask(device, priority, Vec::new())
    }

    pub fn with_mask(device: i32, priority: i32, mask: Vec<u32>) -> Arc<Stream> {
        let hardware = Hardware::acquire(device, !mask.is_empty());
        Arc::new(Stream { device, priority, mask, hardware, last: Mutex::new(None), capture: Mutex::new(None) })
    }

    /// Gives the queue back, which does what was issued.
    pub fn close(&self) {
        self.hardware.release();
    }

    pub fn push(&self, task: Task, before: Vec<Arc<Mark>>) -> Arc<Mark> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let mark = self.hardware.push(task, before);
        *last = Some(mark.clone());
        mark
    }

    pub fn capture(&self) -> Option<Arc<Capture>> {
        self.capture.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn set_capture(&self, capture: Option<Arc<Capture>>) {
        *self.capture.lock().unwrap_or_else(PoisonError::into_inner) = capture;
    }

    /// Issues a task, or captures it.
    pub fn issue(self: &Arc<Self>, task: Task) -> Done {
        match self.capture() {
            Some(capture) => capture.add(self, task),
            None => {
                self.push(task, Vec::new());
                Ok(())
            }
        }
    }

    /// Records an event; `external` makes it a node of the graph where there is a capture.
    pub fn record(self: &Arc<Self>, event: &Arc<Event>, external: bool) -> Done {
        if event.device != self.device {
            return Err(INVALID_HANDLE);
        }
        match self.capture() {
            Some(capture) if external => capture.add(self, Task::Record(event.clone())),
            Some(capture) => {
                let nodes = capture.tail(self)?;
                event.set(Recorded::Captured(capture, nodes));
                Ok(())
            }
            None => {
                event.set(Recorded::Live(self.push(Task::Nothing, Vec::new())));
                Ok(())
            }
        }
    }

    /// Lets what is issued from now on wait for an event.
    pub fn wait(self: &Arc<Self>, event: &Event) -> Done {
        match (event.latest(), self.capture()) {
            (Recorded::Never, _) => Ok(()),
            (Recorded::Live(mark), None) => {
                self.push(Task::Nothing, vec![mark]);
                Ok(())
            }
            (Recorded::Live(_), Some(capture)) => {
                capture.invalidate();
                Err(CAPTURE_ISOLATION)
            }
            // A wait for what a capture recorded that has ended.
            (Recorded::Captured(from, _), None) if from.ended() => Err(INVALID_VALUE),
            (Recorded::Captured(from, nodes), own) => match own {
                Some(own) if !Arc::ptr_eq(&own, &from) => {
                    own.invalidate();
                    from.invalidate();
                    Err(CAPTURE_MERGE)
                }
                _ => from.join(self, &nodes),
            },
        }
    }

    /// A host that asks for a stream breaks its capture.
    fn forbid(&self) -> Done {
        match self.capture() {
            None => Ok(()),
            Some(capture) => {
                capture.invalidate();
                Err(CAPTURE_UNSUPPORTED)
            }
        }
    }

    pub fn idle(&self) -> Done<bool> {
        self.forbid()?;
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Ok(last.is_none_or(|mark| mark.reached().is_some()))
    }

    pub fn synchronize(&self) -> Done {
        self.forbid()?;
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        last.iter().for_each(|mark| mark.wait());
        device::get(self.device)?.check()
    }
}
