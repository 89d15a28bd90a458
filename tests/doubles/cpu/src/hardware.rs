//! Hardware queues: each is a thread that does one task after the other, in the order in which they were issued, whatever
//! streams they are of.
//!
//! A stream has a queue of its own, unless `GPU_MAX_HW_QUEUES` says how many there are on a device. Then streams are
//! spread over them as AMD's runtime has done it since 3.x: a new queue for each while there may be more, then the one
//! with the fewest streams. A stream with a mask has a queue of its own in any case.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};

use crate::event::Mark;
use crate::profiler::{self, Launch};
use crate::stream::Task;

/// A task in its queue: what has to be reached before, and what is reached by it.
struct Item {
    task: Task,
    /// The launch to record; `None` if nothing records it.
    launch: Option<Launch>,
    before: Vec<Arc<Mark>>,
    mark: Arc<Mark>,
}

#[derive(Default)]
struct Entries {
    items: VecDeque<Item>,
    /// Streams that use it. Without any it ends when all is done.
    streams: usize,
    /// True if the queue remains when no stream uses it.
    pooled: bool,
}

pub struct Hardware {
    device: i32,
    entries: Mutex<Entries>,
    changed: Condvar,
}

/// Number of queues of a device; `None` if it is not limited.
fn limit() -> Option<usize> {
    static LIMIT: OnceLock<Option<usize>> = OnceLock::new();
    let given = || std::env::var("GPU_MAX_HW_QUEUES").ok()?.trim().parse().ok().filter(|count| *count > 0);
    *LIMIT.get_or_init(given)
}

impl Hardware {
    /// The queue of a new stream.
    pub fn acquire(device: i32, masked: bool) -> Arc<Hardware> {
        static POOLS: Mutex<BTreeMap<i32, Vec<Arc<Hardware>>>> = Mutex::new(BTreeMap::new());
        let Some(limit) = limit().filter(|_| !masked) else { return Hardware::start(device, false) };
        let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
        let pool = pools.entry(device).or_default();
        let least = pool.iter().map(|queue| (queue.lock().streams, queue)).min_by_key(|(streams, _)| *streams);
        if let Some((streams, queue)) = least
            && (streams == 0 || pool.len() >= limit)
        {
            queue.lock().streams += 1;
            return queue.clone();
        }
        let queue = Hardware::start(device, true);
        pool.push(queue.clone());
        queue
    }

    fn start(device: i32, pooled: bool) -> Arc<Hardware> {
        let entries = Mutex::new(Entries { items: VecDeque::new(), streams: 1, pooled });
        let queue = Arc::new(Hardware { device, entries, changed: Condvar::new() });
        let worker = queue.clone();
        std::thread::spawn(move || worker.work());
        queue
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let empty = |entries: &mut Entries| entries.items.is_empty() && (entries.pooled || entries.streams > 0);
        loop {
            let waited = self.changed.wait_while(self.lock(), empty);
            let Some(item) = waited.unwrap_or_else(PoisonError::into_inner).items.pop_front() else { return };
            item.before.iter().for_each(|mark| mark.wait());
            item.task.run(self.device, item.launch);
            item.mark.reach();
        }
    }

    /// A stream no longer uses it.
    pub fn release(&self) {
        self.lock().streams -= 1;
        self.changed.notify_all();
    }

    /// Issues a task behind all that were issued before, and says when it is done.
    pub fn push(&self, task: Task, before: Vec<Arc<Mark>>) -> Arc<Mark> {
        let mark = Arc::new(Mark::default());
        self.lock().items.push_back(Item { task, launch: profiler::launch(), before, mark: mark.clone() });
        self.changed.notify_all();
        mark
    }
}
