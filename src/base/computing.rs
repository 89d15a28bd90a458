//! Marks long computations on the CPU, so that the watchdog sees progress during them.

use std::sync::atomic::{AtomicU32, Ordering};

/// Number of computations under way, on all threads.
static UNDER_WAY: AtomicU32 = AtomicU32::new(0);

/// Runs a computation that may take long but does not wait for other threads. Until it returns or panics,
/// [`is_under_way`] is true.
pub fn compute<T>(work: impl FnOnce() -> T) -> T {
    struct Ended;
    impl Drop for Ended {
        fn drop(&mut self) {
            UNDER_WAY.fetch_sub(1, Ordering::Relaxed);
        }
    }
    UNDER_WAY.fetch_add(1, Ordering::Relaxed);
    let _ended = Ended;
    work()
}

/// True if a thread of this process is in [`compute`].
pub fn is_under_way() -> bool {
    UNDER_WAY.load(Ordering::Relaxed) > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_computation_is_under_way_until_it_ends() {
        let before = || UNDER_WAY.load(Ordering::Relaxed);
        assert!(compute(is_under_way));
        // Other tests run computations concurrently. A counter that a panic fails to decrement would affect several of
        // them.
        for _ in 0..1000 {
            std::panic::catch_unwind(|| compute(|| std::panic::resume_unwind(Box::new(())))).expect_err("it panics");
        }
        assert!(before() < 1000);
    }
}
