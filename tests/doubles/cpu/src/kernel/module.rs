//! Loaded code, its functions, and their launches.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use crate::device;
use crate::fault;
use crate::handles::Handles;
use crate::profiler::Work;
use crate::status::{
    Done, ILLEGAL_ADDRESS, INVALID_CONFIGURATION, INVALID_HANDLE, INVALID_IMAGE, NOT_FOUND, OUT_OF_RESOURCES,
};
use crate::stream::{Stream, Task};

use super::block::{self, Grid, Host, Place};
use super::compile::MARK;

unsafe extern "C" {
    fn memfd_create(name: *const c_char, flags: c_uint) -> c_int;
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

const RTLD_NOW: c_int = 2;

/// A kernel as the prelude describes it.
#[repr(C)]
pub struct Entry {
    pub run: unsafe extern "C" fn(*mut *mut c_void),
    count: c_uint,
    sizes: *const c_uint,
}

/// A shared object, which is never closed: a thread of a stream may still have memory of it.
pub struct Module {
    library: usize,
    device: i32,
}

pub struct Function {
    pub name: String,
    entry: &'static Entry,
    pub place: unsafe extern "C" fn() -> *mut Place,
    device: i32,
}

// SAFETY: an entry is constant data of a library that stays open.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

pub static MODULES: Handles<Module> = Handles::new();
pub static FUNCTIONS: Handles<Function> = Handles::new();

impl Module {
    /// Loads code.
    ///
    /// # Safety
    /// The image begins with a mark; where that is ours, all of the code follows.
    pub unsafe fn load(image: *const u8) -> Done<Module> {
        // SAFETY: the caller vouches for the mark and what follows it.
        let object = unsafe {
            if image.is_null() || std::slice::from_raw_parts(image, MARK.len()) != MARK {
                return Err(INVALID_IMAGE);
            }
            let length = image.add(MARK.len()).cast::<u64>().read_unaligned();
            std::slice::from_raw_parts(image.add(MARK.len() + 8), length as usize)
        };
        let library = open(object).ok_or(INVALID_IMAGE)?;
        let host = find(library, c"hip_double_host").ok_or(INVALID_IMAGE)?.cast::<Host>();
        // SAFETY: the prelude declares this variable with this type, and no kernel of the library runs yet.
        unsafe { host.write(Host::FUNCTIONS) };
        Ok(Module { library: library as usize, device: device::current() })
    }

    pub fn function(&self, name: &str) -> Done<Function> {
        let library = self.library as *mut c_void;
        let symbol = CString::new(format!("hip_double_entry_{name}")).map_err(|_| NOT_FOUND)?;
        let entry = find(library, &symbol).ok_or(NOT_FOUND)?;
        let place = find(library, c"hip_double_place").ok_or(INVALID_IMAGE)?;
        // SAFETY: the prelude declares both functions with these types; the entry is a constant.
        let (entry, place) = unsafe {
            let entry = std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> *const Entry>(entry);
            (&*entry(), std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> *mut Place>(place))
        };
        Ok(Function { name: name.to_owned(), entry, place, device: self.device })
    }
}

fn find(library: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the library is open, and the name ends with NUL.
    let found = unsafe { dlsym(library, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// Opens a shared object that is nowhere on disk.
fn open(object: &[u8]) -> Option<*mut c_void> {
    // SAFETY: the name ends with NUL; what comes back is a file of our own, or a negative number.
    let file = unsafe {
        let file = memfd_create(c"kernel".as_ptr(), 0);
        if file < 0 {
            return None;
        }
        OwnedFd::from_raw_fd(file)
    };
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    std::fs::write(&path, object).ok()?;
    let path = CString::new(path).ok()?;
    // SAFETY: the object was built by this library's own compiler run, and has no initialisers.
    let library = unsafe { dlopen(path.as_ptr(), RTLD_NOW) };
    // The loader knows objects by their paths: the next one may not have this one's.
    std::mem::forget(file);
    (!library.is_null()).then_some(library)
}

/// The values of a launch's arguments, copied when it is issued.
struct Args {
    values: Vec<Vec<u64>>,
}

impl Args {
    /// # Safety
    /// `params` points to as many pointers to values as the kernel has parameters.
    unsafe fn copy(entry: &Entry, params: *mut *mut c_void) -> Args {
        let one = |index: usize| {
            // SAFETY: the caller vouches for the pointers; the sizes are the compiler's. The copy has room, in words.
            unsafe {
                let bytes = *entry.sizes.add(index) as usize;
                let mut value = vec![0u64; bytes.div_ceil(8)];
                let from = (*params.add(index)).cast::<u8>();
                value.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(from, bytes);
                value
            }
        };
        Args { values: (0..entry.count as usize).map(one).collect() }
    }

    fn pointers(&self) -> Vec<*mut c_void> {
        self.values.iter().map(|value| value.as_ptr().cast_mut().cast()).collect()
    }
}

/// Launches a kernel.
///
/// # Safety
/// As for [`Args::copy`]; the addresses among the arguments are memory that the kernel may use as it does.
pub unsafe fn launch(function: &Arc<Function>, grid: Grid, stream: &Arc<Stream>, params: *mut *mut c_void) -> Done {
    if fault::strikes("launch", &function.name) {
        return Err(OUT_OF_RESOURCES);
    }
    if fault::strikes("dies", &function.name) {
        std::process::abort();
    }
    if fault::strikes("stuck", &function.name) {
        loop {
            std::thread::park();
        }
    }
    if grid.threads() == 0 || grid.threads() > block::THREADS || grid.shared > device::SHARED as u32 {
        return Err(INVALID_CONFIGURATION);
    }
    if function.device != stream.device || (params.is_null() && function.entry.count > 0) {
        return Err(INVALID_HANDLE);
    }
    // SAFETY: the caller vouches for the parameters.
    let args = unsafe { Args::copy(function.entry, params) };
    // Counted where the host can count them: streams run in no order.
    let (hangs, fails) = (fault::strikes("hang", &function.name), fault::strikes("late", &function.name));
    let function = function.clone();
    let work = Work::Kernel { blocks: grid.blocks, block: grid.block, shared: grid.shared };
    stream.issue(Task::of(work, move || {
        if hangs {
            loop {
                std::thread::park();
            }
        }
        if fails {
            return Err(ILLEGAL_ADDRESS);
        }
        // SAFETY: the caller of the launch vouched for arguments and memory; the place is that of this thread.
        unsafe { block::run(function.entry, &grid, (function.place)(), args.pointers().as_mut_ptr()) }
    }))
}
