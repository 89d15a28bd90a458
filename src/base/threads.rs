//! Threads that the system may refuse to give.

use std::sync::{Mutex, PoisonError};
use std::thread::{Builder, scope};

/// Calls `work` once with each item, each on a thread of its own, and returns when all are done. Where the system gives
/// no more threads, the caller's thread takes the items that are left.
pub fn side_by_side<T: Send>(items: impl IntoIterator<Item = T>, work: impl Fn(T) + Sync) {
    let items: Mutex<Vec<T>> = Mutex::new(items.into_iter().collect());
    let count = items.lock().unwrap_or_else(PoisonError::into_inner).len();
    let one = || {
        let item = items.lock().unwrap_or_else(PoisonError::into_inner).pop();
        item.map(&work).is_some()
    };
    scope(|scope| {
        let spawned = (0..count).map_while(|_| Builder::new().spawn_scoped(scope, one).ok()).count();
        if spawned < count {
            while one() {}
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_item_is_taken_once() {
        let taken = Mutex::new(Vec::new());
        side_by_side(0..20, |item| taken.lock().expect("no item panics").push(item));
        let mut taken = taken.into_inner().expect("no item panics");
        taken.sort_unstable();
        assert_eq!(taken, (0..20).collect::<Vec<_>>());
    }
}
