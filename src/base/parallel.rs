//! Work on all cores of the host.

use std::sync::{Mutex, PoisonError};

/// Calls `work` with each item, on as many threads as the host has cores; on the caller's own where there is one item.
pub fn each<T: Send>(items: Vec<T>, work: impl Fn(T) + Sync) {
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get()).min(items.len());
    if threads <= 1 {
        return items.into_iter().for_each(work);
    }
    let items = Mutex::new(items.into_iter());
    let next = || items.lock().unwrap_or_else(PoisonError::into_inner).next();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(item) = next() {
                    work(item);
                }
            });
        }
    });
}

/// The results of `work` for the numbers below `count`, in their order, computed on all cores.
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
}
