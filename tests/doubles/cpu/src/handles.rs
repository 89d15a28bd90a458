//! Handles that are given out: numbers, so that one which was destroyed is refused rather than followed.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::status::{Done, INVALID_HANDLE};

/// No two handles are equal, whatever they are of.
static NEXT: AtomicUsize = AtomicUsize::new(0x1000);

/// The live objects of one type.
pub struct Handles<T> {
    live: Mutex<BTreeMap<usize, Arc<T>>>,
}

impl<T> Handles<T> {
    pub const fn new() -> Self {
        Handles { live: Mutex::new(BTreeMap::new()) }
    }

    pub fn add(&self, value: Arc<T>) -> *mut c_void {
        let handle = NEXT.fetch_add(16, Ordering::Relaxed);
        self.live.lock().unwrap_or_else(PoisonError::into_inner).insert(handle, value);
        handle as *mut c_void
    }

    pub fn get(&self, handle: *const c_void) -> Done<Arc<T>> {
        let live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        live.get(&(handle as usize)).cloned().ok_or(INVALID_HANDLE)
    }

    pub fn remove(&self, handle: *const c_void) -> Done<Arc<T>> {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        live.remove(&(handle as usize)).ok_or(INVALID_HANDLE)
    }

    pub fn all(&self) -> Vec<Arc<T>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}
