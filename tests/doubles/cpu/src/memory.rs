//! Memory of devices, and pinned memory: all of it is the host's, and each access by a call is checked against what was
//! allocated. A device's memory is a file without a name, so that another process can open it by that of this one.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::device;
use crate::status::{Done, INVALID_VALUE, OUT_OF_MEMORY};

/// Contents of fresh memory, which is not zero on purpose: of its first and of its last bytes, so that the pages of a large
/// workspace that nobody uses cost nothing.
const FRESH: u8 = 0xa5;
const FRESH_BYTES: usize = 4 << 20;

const ALIGN: usize = 256;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    Device(i32),
    /// Memory of a device of another process, opened on this device.
    Abroad(i32),
    Pinned,
    /// Reached by devices and by the host, at one address.
    Managed,
    /// The host's own, lent to devices.
    Lent,
}

struct Allocation {
    bytes: usize,
    place: Place,
    /// A device's memory is a file, which other processes may open.
    file: Option<File>,
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
    let (address, file) = match place {
        Place::Device(_) => {
            let file = nameless().and_then(|file| file.set_len(layout.size() as u64).map(|()| file));
            let file = file.map_err(|_| OUT_OF_MEMORY)?;
            (mapped(&file, layout.size())?, Some(file))
        }
        // SAFETY: the layout is not empty.
        _ => (unsafe { alloc_zeroed(layout) } as usize, None),
    };
    if address == 0 {
        return Err(OUT_OF_MEMORY);
    }
    let filled = layout.size().min(FRESH_BYTES);
    for start in [0, layout.size() - filled] {
        // SAFETY: the memory is as large, and is written before anybody sees it.
        unsafe { (address as *mut u8).add(start).write_bytes(FRESH, filled) };
    }
    allocations().insert(address, Allocation { bytes, place, file });
    Ok(address)
}

/// A file that is in no folder.
fn nameless() -> std::io::Result<File> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = format!("hip-double-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let shared = Path::new("/dev/shm");
    let path = if shared.is_dir() { shared.join(name) } else { std::env::temp_dir().join(name) };
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(path).map(|()| file)
}

unsafe extern "C" {
    fn mmap(address: *mut c_void, bytes: usize, protection: c_int, flags: c_int, file: c_int, from: i64)
    -> *mut c_void;
    fn munmap(address: *mut c_void, bytes: usize) -> c_int;
}

fn mapped(file: &File, bytes: usize) -> Done<usize> {
    /// To be read and written.
    const BOTH: c_int = 1 | 2;
    const SHARED: c_int = 1;
    // SAFETY: the system chooses a place that nothing else has; nobody shortens the file.
    let address = unsafe { mmap(std::ptr::null_mut(), bytes, BOTH, SHARED, file.as_raw_fd(), 0) };
    if address as isize == -1 { Err(OUT_OF_MEMORY) } else { Ok(address as usize) }
}

/// The data by which another process opens an allocation: process id, file descriptor and size.
pub fn export(address: usize) -> Done<[u64; 3]> {
    let allocations = allocations();
    let found = allocations.get(&address).ok_or(INVALID_VALUE)?;
    let file = found.file.as_ref().ok_or(INVALID_VALUE)?;
    Ok([u64::from(std::process::id()), file.as_raw_fd() as u64, found.bytes as u64])
}

/// Opens an allocation of another process; of its own one does not, as on a device.
pub fn import([process, file, bytes]: [u64; 3], device: i32) -> Done<usize> {
    if process == u64::from(std::process::id()) {
        return Err(INVALID_VALUE);
    }
    let file = File::options().read(true).write(true).open(format!("/proc/{process}/fd/{file}"));
    let file = file.map_err(|_| INVALID_VALUE)?;
    let size = layout(bytes as usize)?.size();
    if file.metadata().map_err(|_| INVALID_VALUE)?.len() != size as u64 {
        return Err(INVALID_VALUE);
    }
    let address = mapped(&file, size)?;
    allocations().insert(address, Allocation { bytes: bytes as usize, place: Place::Abroad(device), file: Some(file) });
    Ok(address)
}

/// Memory of the host that devices may use from now on, or no longer.
pub fn lend(address: usize, bytes: usize) -> Done {
    if address == 0 || bytes == 0 || place(address, 0).is_some() {
        return Err(INVALID_VALUE);
    }
    allocations().insert(address, Allocation { bytes, place: Place::Lent, file: None });
    Ok(())
}

pub fn take_back(address: usize) -> Done {
    let mut allocations = allocations();
    match allocations.get(&address) {
        Some(found) if found.place == Place::Lent => {
            allocations.remove(&address);
            Ok(())
        }
        _ => Err(INVALID_VALUE),
    }
}

/// Closes an allocation of another process.
pub fn close(address: usize) -> Done {
    let mut allocations = allocations();
    match allocations.get(&address) {
        Some(Allocation { place: Place::Abroad(_), bytes, .. }) => {
            let bytes = layout(*bytes)?.size();
            allocations.remove(&address);
            // SAFETY: it was mapped with that many bytes, and is forgotten.
            unsafe { munmap(address as *mut c_void, bytes) };
            Ok(())
        }
        _ => Err(INVALID_VALUE),
    }
}

/// Gives memory back; the place says which call it is for.
pub fn free(address: usize, pinned: bool) -> Done {
    let mut allocations = allocations();
    match allocations.get(&address) {
        Some(found)
            if if pinned {
                found.place == Place::Pinned
            } else {
                matches!(found.place, Place::Device(_) | Place::Managed)
            } =>
        {
            let layout = layout(found.bytes)?;
            let found = allocations.remove(&address);
            // SAFETY: it was made with this layout, and is forgotten.
            unsafe {
                match found.and_then(|found| found.file) {
                    Some(_) => {
                        munmap(address as *mut c_void, layout.size());
                    }
                    None => dealloc(address as *mut u8, layout),
                }
            }
            Ok(())
        }
        _ => Err(INVALID_VALUE),
    }
}

/// The allocation that contains all of `bytes` bytes from the address on; `None` if there is none.
pub fn place(address: usize, bytes: usize) -> Option<Place> {
    let allocations = allocations();
    let (start, found) = allocations.range(..=address).next_back()?;
    let end = address.checked_add(bytes)?;
    (end <= start + found.bytes && address < start + found.bytes.max(1)).then_some(found.place)
}

/// Checks that the bytes are memory that a device has or shares.
pub fn on_device(address: usize, bytes: usize) -> Done {
    match place(address, bytes) {
        Some(Place::Device(_) | Place::Abroad(_) | Place::Managed) => Ok(()),
        _ => Err(INVALID_VALUE),
    }
}

/// Checks that the bytes are host memory: pinned, or unknown to this library.
pub fn on_host(address: usize, bytes: usize) -> Done {
    let known = place(address, 0);
    match known {
        None if address != 0 => Ok(()),
        Some(Place::Pinned | Place::Lent | Place::Managed) if place(address, bytes).is_some() => Ok(()),
        _ => Err(INVALID_VALUE),
    }
}
