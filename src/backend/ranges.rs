//! Named ranges for profilers: NVTX for NVIDIA's, ROCTx for AMD's. Nothing is linked.
//!
//! Since version 3, NVTX consists of C headers only. They load the library that a profiler names, pass it a table of
//! empty function slots, and call the functions that the library stores there. This module implements that protocol.

use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::sync::atomic::{AtomicPtr, Ordering};

use clap::ValueEnum;

use super::libraries::{OpenedLibrary, SearchPaths};
use crate::base::SrcSpan;

type Push = unsafe extern "C" fn(*const c_char) -> c_int;
type Pop = unsafe extern "C" fn() -> c_int;
type ExportTable = unsafe extern "C" fn(u32) -> *const c_void;
type Initialize = unsafe extern "C" fn(ExportTable) -> c_int;

/// The vendor's library that receives the ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RangeLibrary {
    Nvtx,
    Roctx,
}

/// Functions that open and close a range, and the names of operations by their source location.
pub struct Ranges {
    push: Push,
    pop: Pop,
    names: BTreeMap<SrcSpan, CString>,
}

impl Ranges {
    /// Connects to an attached profiler; `None` if there is none. `injection` is the path of the library that an NVIDIA
    /// profiler has named, if any.
    pub fn open(kind: RangeLibrary, injection: Option<&Path>, paths: &SearchPaths) -> Option<Ranges> {
        let (push, pop) = match kind {
            RangeLibrary::Nvtx => nvtx(injection?)?,
            RangeLibrary::Roctx => roctx(paths)?,
        };
        Some(Ranges { push, pop, names: BTreeMap::new() })
    }

    /// Sets the name of the operation at a source location.
    pub fn name(&mut self, span: SrcSpan, name: &str) {
        let text = CString::new(name.replace('\0', " ")).expect("no NUL is left");
        self.names.insert(span, text);
    }

    /// Name of the range for the operation at a source location.
    pub fn named(&self, span: SrcSpan) -> CString {
        self.names.get(&span).cloned().unwrap_or_else(|| c"aorta".to_owned())
    }

    /// Opens a range.
    pub fn enter(&self, name: &CString) {
        // SAFETY: the text is valid for the call and ends with a NUL.
        unsafe { (self.push)(name.as_ptr()) };
    }

    /// Closes the innermost range.
    pub fn leave(&self) {
        // SAFETY: the function takes nothing.
        unsafe { (self.pop)() };
    }
}

/// Functions of ROCTx; `None` if the library is missing. The version that current profilers use is tried first.
fn roctx(paths: &SearchPaths) -> Option<(Push, Pop)> {
    let names = ["librocprofiler-sdk-roctx.so.1", "librocprofiler-sdk-roctx.so", "libroctx64.so.4", "libroctx64.so"];
    let opened = paths.open(&names.map(str::to_owned)).ok()?;
    // SAFETY: the types are those of the vendor's header.
    unsafe { Some((opened.find("roctxRangePushA")?, opened.find("roctxRangePop")?)) }
}

/// Functions that a profiler's library stores in the slots; `None` if the library cannot be loaded or stores none.
fn nvtx(injection: &Path) -> Option<(Push, Pop)> {
    let opened: OpenedLibrary = SearchPaths::default().open(&[injection.to_str()?.to_owned()]).ok()?;
    // SAFETY: every library for NVTX exports the function with this type.
    let initialize: Initialize = unsafe { opened.find("InitializeInjectionNvtx2") }?;
    attach(initialize)
}

/// Passes the table of slots to a profiler's library, and returns the functions that it stores for ranges; `None` if it
/// fails or stores none.
fn attach(initialize: Initialize) -> Option<(Push, Pop)> {
    // SAFETY: the table that is handed over lives as long as the program.
    if unsafe { initialize(export_table) } == 0 {
        return None;
    }
    let slot = |index: usize| SLOTS[CORE][index].load(Ordering::Acquire);
    let (push, pop) = (slot(CORE_RANGE_PUSH), slot(CORE_RANGE_POP));
    if push.is_null() || pop.is_null() {
        return None;
    }
    // SAFETY: the protocol says that these slots hold functions of these types.
    unsafe { Some((std::mem::transmute::<*mut c_void, Push>(push), std::mem::transmute::<*mut c_void, Pop>(pop))) }
}

// --- The protocol: numbers and layouts of NVTX's headers -----------------------------------------------------------

/// Function modules, from 1: core, CUDA, OpenCL, the CUDA runtime, core by domains, synchronization.
const MODULES: usize = 7;
const CORE: usize = 1;
/// Number of slots of each module; there is no module 0.
const SIZES: [usize; MODULES] = [0, 16, 9, 15, 7, 16, 7];
const MAX_SLOTS: usize = 16;
const CORE_RANGE_PUSH: usize = 9;
const CORE_RANGE_POP: usize = 11;
const TABLE_CALLBACKS: u32 = 1;
const TABLE_VERSION: u32 = 3;

type Slot = AtomicPtr<c_void>;

static SLOTS: [[Slot; MAX_SLOTS]; MODULES] =
    [const { [const { AtomicPtr::new(std::ptr::null_mut()) }; MAX_SLOTS] }; MODULES];

/// For each module the addresses of its slots, in the layout that a profiler expects; index 0 is null.
struct Addresses([[*const Slot; MAX_SLOTS + 1]; MODULES]);

// SAFETY: addresses of statics, which nobody writes.
unsafe impl Sync for Addresses {}

static ADDRESSES: Addresses = Addresses({
    let mut all = [[std::ptr::null(); MAX_SLOTS + 1]; MODULES];
    let mut module = 1;
    while module < MODULES {
        let mut slot = 1;
        while slot < SIZES[module] {
            all[module][slot] = &raw const SLOTS[module][slot];
            slot += 1;
        }
        module += 1;
    }
    all
});

#[repr(C)]
struct Callbacks {
    size: usize,
    table_of: unsafe extern "C" fn(c_uint, *mut *const *const Slot, *mut c_uint) -> c_int,
}

#[repr(C)]
struct Version {
    size: usize,
    version: u32,
    reserved: u32,
    set: unsafe extern "C" fn(u32),
}

static CALLBACKS: Callbacks = Callbacks { size: size_of::<Callbacks>(), table_of };
static VERSION: Version = Version { size: size_of::<Version>(), version: 3, reserved: 0, set: ignore };

unsafe extern "C" fn export_table(id: u32) -> *const c_void {
    match id {
        TABLE_CALLBACKS => (&raw const CALLBACKS).cast(),
        TABLE_VERSION => (&raw const VERSION).cast(),
        _ => std::ptr::null(),
    }
}

unsafe extern "C" fn ignore(_version: u32) {}

unsafe extern "C" fn table_of(module: c_uint, table: *mut *const *const Slot, size: *mut c_uint) -> c_int {
    let module = module as usize;
    if module == 0 || module >= MODULES {
        return 0;
    }
    // SAFETY: the caller gives places for both, or null for what it does not want.
    unsafe {
        if !table.is_null() {
            *table = ADDRESSES.0[module].as_ptr();
        }
        if !size.is_null() {
            *size = SIZES[module] as c_uint;
        }
    }
    1
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;
    use std::sync::Mutex;

    use super::*;

    static LOG: Mutex<Vec<String>> = Mutex::new(Vec::new());

    unsafe extern "C" fn push(name: *const c_char) -> c_int {
        // SAFETY: a test gives whole texts.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
        LOG.lock().unwrap().push(name);
        0
    }

    unsafe extern "C" fn pop() -> c_int {
        LOG.lock().unwrap().push("end".to_owned());
        0
    }

    /// Simulates a profiler's library when it is loaded.
    unsafe extern "C" fn profiler(export: ExportTable) -> c_int {
        // SAFETY: the tables are those of this file, with the layouts that it says.
        unsafe {
            let callbacks = export(1).cast::<Callbacks>();
            assert_eq!((*callbacks).size, 16);
            assert!(export(2).is_null());
            let mut table: *const *const Slot = std::ptr::null();
            let mut size = 0;
            assert_eq!(((*callbacks).table_of)(7, &mut table, &mut size), 0, "there is no such module");
            assert_eq!(((*callbacks).table_of)(1, &mut table, &mut size), 1);
            assert_eq!(size, 16);
            assert!((*table).is_null(), "the first is no slot");
            (**table.add(9)).store(push as *mut c_void, Ordering::Release);
            (**table.add(11)).store(pop as *mut c_void, Ordering::Release);
        }
        1
    }

    #[test]
    fn a_profiler_receives_ranges() {
        let (push, pop) = attach(profiler).expect("it filled the slots");
        let mut ranges = Ranges { push, pop, names: BTreeMap::new() };
        ranges.name(SrcSpan::default(), "up fill moe.aorta:3:5");
        let name = ranges.named(SrcSpan::default());
        ranges.enter(&name);
        ranges.leave();
        assert_eq!(*LOG.lock().unwrap(), ["up fill moe.aorta:3:5", "end"]);
    }

    #[test]
    fn without_a_profiler_there_are_no_ranges() {
        let paths = SearchPaths::default();
        assert!(Ranges::open(RangeLibrary::Nvtx, None, &paths).is_none());
        assert!(Ranges::open(RangeLibrary::Nvtx, Some(Path::new("/nowhere/libinjection.so")), &paths).is_none());
    }
}
