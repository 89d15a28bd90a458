//! Parallel work on threads. If the system refuses a thread, the calling thread does the work.

use std::sync::Mutex;
use std::thread::{Builder, available_parallelism, scope};

use super::threads::{self, lock};

/// Calls `work` with each item, on as many threads as the host has cores.
pub fn each<T: Send>(items: Vec<T>, work: impl Fn(T) + Sync) {
    let cores = available_parallelism().map_or(1, |count| count.get());
    on_threads(cores.min(items.len()), items, work);
}

/// Calls `work` with each item, each on its own thread if the system provides that many.
pub fn side_by_side<T: Send>(items: impl IntoIterator<Item = T>, work: impl Fn(T) + Sync) {
    let items: Vec<T> = items.into_iter().collect();
    on_threads(items.len(), items, work);
}

/// Calls `work` with each item, on at most `threads` threads including the caller's.
fn on_threads<T: Send>(threads: usize, items: Vec<T>, work: impl Fn(T) + Sync) {
    let items = Mutex::new(items.into_iter());
    let next = || lock(&items).next();
    let all = || {
        while let Some(item) = next() {
            work(item);
        }
    };
    scope(|scope| {
        // Stop at the first refused thread: the existing ones do the work.
        let _ = (1..threads).try_for_each(|_| threads::spawn_scoped(Builder::new(), scope, all).map(drop));
        all();
    });
}

/// Returns the results of `work` for the numbers below `count`, in order, computed on all cores.
pub fn map<T: Send>(count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let mut results: Vec<Option<T>> = (0..count).map(|_| None).collect();
    each(results.iter_mut().enumerate().collect(), |(index, result)| *result = Some(work(index)));
    results.into_iter().map(|result| result.expect("each number has been worked on")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_order() {
        assert_eq!(map(1000, |index| 2 * index), (0..1000).map(|index| 2 * index).collect::<Vec<_>>());
        assert!(map(0, |index| index).is_empty());
    }

    /// Items run concurrently, so an item may wait until all others have begun.
    #[test]
    fn items_side_by_side_may_wait_for_each_other() {
        let all = std::sync::Barrier::new(20);
        let taken = Mutex::new(Vec::new());
        side_by_side(0..20, |item| {
            all.wait();
            taken.lock().expect("no item panics").push(item);
        });
        let mut taken = taken.into_inner().expect("no item panics");
        taken.sort_unstable();
        assert_eq!(taken, (0..20).collect::<Vec<_>>());
    }
}
