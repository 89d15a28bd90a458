//! Streams: each is a thread that does one task after the other.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::capture::Capture;
use crate::device;
use crate::event::{Event, Mark, Recorded};
use crate::handles::Handles;
use crate::status::{CAPTURE_ISOLATION, CAPTURE_MERGE, CAPTURE_UNSUPPORTED, Done, INVALID_HANDLE, Status};

/// What a stream does. A graph does it again at each launch.
#[derive(Clone)]
pub enum Task {
    Run(Arc<dyn Fn() -> Result<(), Status> + Send + Sync>),
    /// Sets an event.
    Record(Arc<Event>),
    /// Only keeps an order.
    Nothing,
}

impl Task {
    pub fn new(run: impl Fn() -> Result<(), Status> + Send + Sync + 'static) -> Task {
        Task::Run(Arc::new(run))
    }

    /// Does it, on a device that has not failed.
    pub fn run(&self, device: i32) {
        let Ok(device) = device::get(device) else { return };
        if let Task::Run(run) = self
            && device.check().is_ok()
            && let Err(status) = run()
        {
            device.fail(status);
        }
    }
}

/// A task in its queue: what has to be reached before, and what is reached by it.
struct Item {
    task: Task,
    before: Vec<Arc<Mark>>,
    mark: Arc<Mark>,
}

#[derive(Default)]
struct Queue {
    items: VecDeque<Item>,
    closed: bool,
    /// The mark of what was issued last.
    last: Option<Arc<Mark>>,
}

pub struct Stream {
    pub device: i32,
    pub priority: i32,
    queue: Mutex<Queue>,
    changed: Condvar,
    capture: Mutex<Option<Arc<Capture>>>,
}

pub static STREAMS: Handles<Stream> = Handles::new();

impl Stream {
    pub fn start(device: i32, priority: i32) -> Arc<Stream> {
        let (queue, capture) = (Mutex::default(), Mutex::new(None));
        let stream = Arc::new(Stream { device, priority, queue, changed: Condvar::new(), capture });
        let worker = stream.clone();
        std::thread::spawn(move || worker.work());
        stream
    }

    fn work(&self) {
        loop {
            let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            let waited = self.changed.wait_while(queue, |queue| queue.items.is_empty() && !queue.closed);
            let Some(item) = waited.unwrap_or_else(PoisonError::into_inner).items.pop_front() else { return };
            item.before.iter().for_each(|mark| mark.wait());
            item.task.run(self.device);
            item.mark.reach();
        }
    }

    /// Ends the thread when all is done that was issued.
    pub fn close(&self) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.changed.notify_all();
    }

    pub fn push(&self, task: Task, before: Vec<Arc<Mark>>) -> Arc<Mark> {
        let mark = Arc::new(Mark::default());
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.items.push_back(Item { task, before, mark: mark.clone() });
        queue.last = Some(mark.clone());
        self.changed.notify_all();
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
        let last = self.queue.lock().unwrap_or_else(PoisonError::into_inner).last.clone();
        Ok(last.is_none_or(|mark| mark.reached().is_some()))
    }

    pub fn synchronize(&self) -> Done {
        self.forbid()?;
        let last = self.queue.lock().unwrap_or_else(PoisonError::into_inner).last.clone();
        last.iter().for_each(|mark| mark.wait());
        device::get(self.device)?.check()
    }
}
