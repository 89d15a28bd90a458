//! Parallel work on all processors.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Maps items in parallel and keeps their order. A panic propagates to the caller.
pub fn map<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    map_on(1, items, work)
}

/// As [`map`], with several threads on each processor, for work that mostly waits.
pub fn map_on<T: Sync, R: Send>(threads_each: usize, items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<Option<R>>> = Mutex::new(items.iter().map(|_| None).collect());
    let threads = threads_each * thread::available_parallelism().map_or(1, |count| count.get());
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(index) else { return };
                    let result = work(item);
                    done.lock().expect("no thread panics with it")[index] = Some(result);
                }
            });
        }
    });
    done.into_inner().expect("no thread panics with it").into_iter().map(|one| one.expect("each was done")).collect()
}
