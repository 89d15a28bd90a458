//! Memory of devices, and pinned memory: all of it is the host's, and each access by a call is checked against what was
//! allocated.

use std::alloc::{Layout, alloc, dealloc};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::device;
use crate::status::{Done, INVALID_VALUE, OUT_OF_MEMORY};

/// What fresh memory holds: nobody may count on zeros.
const FRESH: u8 = 0xa5;

const ALIGN: usize = 256;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    Device(i32),
    Pinned,
}

struct Allocation {
    bytes: usize,
    place: Place,
}

static ALLOCATIONS: Mutex<BTreeMap<usize, Allocation>> = Mutex::new(BTreeMap::new());

fn allocations() -> MutexGuard<'static, BTreeMap<usize, Allocation>> {
    ALLOCATIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn layout(bytes: usize) -> Done<Layout> {
    Layout::from_size_align(bytes.max(1), ALIGN).map_err(|_| OUT_OF_MEMORY)
}

pub fn free_bytes(index: i32) -> u64 {
    let used = |allocations: &BTreeMap<usize, Allocation>| {
        let own = allocations.values().filter(|one| one.place == Place::Device(index));
        own.map(|one| one.bytes as u64).sum::<u64>()
    };
    device::memory_bytes().saturating_sub(used(&allocations()))
}

pub fn allocate(bytes: usize, place: Place) -> Done<usize> {
    if let Place::Device(index) = place
        && bytes as u64 > free_bytes(index)
    {
        return Err(OUT_OF_MEMORY);
    }
    let layout = layout(bytes)?;
    // SAFETY: the layout is not empty, and what was allocated is written whole before anybody sees it.
    let address = unsafe {
        let address = alloc(layout);
        if address.is_null() {
            return Err(OUT_OF_MEMORY);
        }
        address.write_bytes(FRESH, layout.size());
        address as usize
    };
    allocations().insert(address, Allocation { bytes, place });
    Ok(address)
}

/// Gives memory back; the place says which call it is for.
pub fn free(address: usize, pinned: bool) -> Done {
    let mut allocations = allocations();
    match allocations.get(&address) {
        Some(found) if (found.place == Place::Pinned) == pinned => {
            let layout = layout(found.bytes)?;
            allocations.remove(&address);
            // SAFETY: it was allocated with this layout, and is forgotten.
            unsafe { dealloc(address as *mut u8, layout) };
            Ok(())
        }
        _ => Err(INVALID_VALUE),
    }
}

/// Where `bytes` bytes from the address on lie, if all of them lie in one allocation.
pub fn place(address: usize, bytes: usize) -> Option<Place> {
    let allocations = allocations();
    let (start, found) = allocations.range(..=address).next_back()?;
    let end = address.checked_add(bytes)?;
    (end <= start + found.bytes && address < start + found.bytes.max(1)).then_some(found.place)
}

/// That the bytes are memory of a device.
pub fn on_device(address: usize, bytes: usize) -> Done {
    match place(address, bytes) {
        Some(Place::Device(_)) => Ok(()),
        _ => Err(INVALID_VALUE),
    }
}

/// That the bytes are the host's: pinned, or memory that nobody here knows.
pub fn on_host(address: usize, bytes: usize) -> Done {
    let known = place(address, 0);
    match known {
        None if address != 0 => Ok(()),
        Some(Place::Pinned) if place(address, bytes).is_some() => Ok(()),
        _ => Err(INVALID_VALUE),
    }
}
