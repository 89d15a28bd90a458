//! hipRTC: kernels from text to machine code.
//!
//! A compiler that is asked for an architecture that it does not know brings the process down, in every version that
//! was tried. So it is never asked: its own list is looked at first.

use std::ffi::{CStr, CString, c_char, c_int, c_void};

use crate::backend::libraries::{NotOpened, Opened, SearchPaths, functions};
use crate::exec::ExecError;
use crate::ops::Source;

use super::driver::versioned;

type Program = *mut c_void;

functions! {
    /// hipRTC's functions.
    Table {
        version = "hiprtcVersion"(*mut c_int, *mut c_int);
        create_program = "hiprtcCreateProgram"(
            *mut Program, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char,
        );
        destroy_program = "hiprtcDestroyProgram"(*mut Program);
        compile_program = "hiprtcCompileProgram"(Program, c_int, *const *const c_char);
        get_log_size = "hiprtcGetProgramLogSize"(Program, *mut usize);
        get_log = "hiprtcGetProgramLog"(Program, *mut c_char);
        get_code_size = "hiprtcGetCodeSize"(Program, *mut usize);
        get_code = "hiprtcGetCode"(Program, *mut c_char);
    }
    optional {
    }
}

functions! {
    /// The code object manager: what hipRTC compiles with.
    Manager {
        count = "amd_comgr_get_isa_count"(*mut usize);
        name = "amd_comgr_get_isa_name"(usize, *mut *const c_char);
    }
    optional {
    }
}

/// Architectures that every compiler from 5.7 on knows: what is gone by where the compiler's own list cannot be had.
const SURE: [&str; 8] = ["gfx906", "gfx908", "gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1101", "gfx1102"];

/// The compiler, open.
#[derive(Clone)]
pub struct Hiprtc {
    table: Table,
    pub path: &'static str,
    pub version: (i32, i32),
    /// The architectures that the compiler knows.
    pub architectures: Vec<String>,
}

/// An architecture without its features, which stand behind colons.
fn name(architecture: &str) -> &str {
    architecture.split(':').next().unwrap_or_default()
}

fn missing(why: NotOpened) -> ExecError {
    super::missing("hipRTC (libhiprtc)", "to compile kernels", "hip-runtime-amd", why)
}

impl Hiprtc {
    /// Opens the compiler: of the runtime's version if there are several, and within the runtime's own library where it
    /// has none beside it, as before 6.0. `device` is the architecture of a device that the runtime runs.
    pub fn open(paths: &SearchPaths, major: Option<u32>, device: Option<&str>) -> Result<Hiprtc, ExecError> {
        let beside = paths.open(&versioned("libhiprtc", major));
        let opened = match beside {
            Ok(opened) => opened,
            Err(NotOpened::Absent) => paths.open(&versioned("libamdhip64", major)).map_err(missing)?,
            Err(broken) => return Err(missing(broken)),
        };
        let table = Table::load(&opened)?;
        let mut version = (0, 0);
        // SAFETY: both places are valid for the call.
        let code = unsafe { (table.version)(&mut version.0, &mut version.1) };
        if code != 0 {
            return Err(missing(NotOpened::Broken(format!("hiprtcVersion returned {code}"))));
        }
        // A compiler that does not say what it knows: it is of the runtime's version, so it knows what that runs.
        let unsaid = || SURE.into_iter().chain(device.map(name)).map(str::to_owned).collect();
        let architectures = known(paths).unwrap_or_else(unsaid);
        Ok(Hiprtc { table, path: opened.path, version, architectures })
    }

    /// Whether the compiler knows an architecture, such as `gfx942:sramecc+:xnack-`.
    pub fn knows(&self, architecture: &str) -> bool {
        self.architectures.iter().any(|known| known == name(architecture))
    }

    /// Compiles to machine code for `architecture`; the error is the compiler's log.
    pub fn compile(&self, source: &Source, architecture: &str) -> Result<Vec<u8>, String> {
        if !self.knows(architecture) {
            return Err(format!(
                "hipRTC {}.{} does not know {architecture}; it knows {}",
                self.version.0,
                self.version.1,
                self.architectures.join(", ")
            ));
        }
        let options = [format!("--offload-arch={architecture}"), "-std=c++17".to_owned()];
        let text = CString::new(source.text.as_str()).map_err(|_| "the text holds a NUL".to_owned())?;
        let name = CString::new(format!("{}.hip", source.name)).map_err(|_| "the name holds a NUL".to_owned())?;
        let options: Vec<CString> = options
            .into_iter()
            .map(CString::new)
            .collect::<Result<_, _>>()
            .map_err(|_| "an option holds a NUL".to_owned())?;
        let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let mut program: Program = std::ptr::null_mut();
        let table = &self.table;
        let none = std::ptr::null();
        let failed = |call: &str, code: c_int| format!("{call} returned {code}");
        // SAFETY: all texts end with NUL and outlive the calls, the program is destroyed once, and the buffers have the
        // sizes that the library asks for.
        unsafe {
            let code = (table.create_program)(&mut program, text.as_ptr(), name.as_ptr(), 0, none, none);
            if code != 0 {
                return Err(failed("hiprtcCreateProgram", code));
            }
            let code = (table.compile_program)(program, options.len() as c_int, options.as_ptr());
            let result = match code {
                0 => self.code(program),
                code => Err(format!("{}\n{}", failed("hiprtcCompileProgram", code), self.log(program))),
            };
            (table.destroy_program)(&mut program);
            result
        }
    }

    /// # Safety
    /// The program is alive and compiled.
    unsafe fn code(&self, program: Program) -> Result<Vec<u8>, String> {
        let mut size = 0;
        // SAFETY: the caller vouches for the program; the buffer has the size that is asked for.
        unsafe {
            // Without its size, there is no buffer that the code could be written to.
            let failed = (self.table.get_code_size)(program, &mut size);
            if failed != 0 {
                return Err(format!("hiprtcGetCodeSize returned {failed}"));
            }
            let mut code = vec![0u8; size];
            match (self.table.get_code)(program, code.as_mut_ptr().cast()) {
                0 => Ok(code),
                failed => Err(format!("hiprtcGetCode returned {failed}")),
            }
        }
    }

    /// # Safety
    /// The program is alive.
    unsafe fn log(&self, program: Program) -> String {
        let mut size = 0;
        // SAFETY: the caller vouches for the program; the buffer has the size that is asked for.
        unsafe {
            if (self.table.get_log_size)(program, &mut size) != 0 {
                return String::new();
            }
            let mut log = vec![0u8; size];
            if (self.table.get_log)(program, log.as_mut_ptr().cast()) != 0 {
                return String::new();
            }
            String::from_utf8_lossy(&log).trim_end_matches('\0').to_owned()
        }
    }
}

/// The architectures that the compiler behind hipRTC has been built for; nothing where it does not say.
fn known(paths: &SearchPaths) -> Option<Vec<String>> {
    let names = ["libamd_comgr.so.4", "libamd_comgr.so.3", "libamd_comgr.so.2", "libamd_comgr.so"].map(str::to_owned);
    let opened: Opened = paths.open(&names).ok()?;
    let manager = Manager::load(&opened).ok()?;
    let mut count = 0;
    // SAFETY: the place is valid for the call.
    if unsafe { (manager.count)(&mut count) } != 0 {
        return None;
    }
    let mut found = Vec::new();
    for index in 0..count {
        let mut name: *const c_char = std::ptr::null();
        // SAFETY: the place is valid for the call; the text, if any, is a constant of the library.
        let name = unsafe {
            match (manager.name)(index, &mut name) {
                0 if !name.is_null() => CStr::from_ptr(name).to_string_lossy().into_owned(),
                _ => continue,
            }
        };
        // Such as `amdgcn-amd-amdhsa--gfx942`.
        found.extend(name.rsplit_once("--").map(|(_, architecture)| architecture.to_owned()));
    }
    (!found.is_empty()).then_some(found)
}
