//! NVRTC: kernels from text to machine code.

use std::ffi::{CString, c_char, c_int};

use cudarc::nvrtc::sys::nvrtcProgram;

use crate::backend::libraries::{NotOpened, SearchPaths, functions};
use crate::exec::ExecError;
use crate::ops::Source;

functions! {
    /// NVRTC's functions.
    Table {
        version = "nvrtcVersion"(*mut c_int, *mut c_int);
        create_program = "nvrtcCreateProgram"(
            *mut nvrtcProgram, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char,
        );
        destroy_program = "nvrtcDestroyProgram"(*mut nvrtcProgram);
        compile_program = "nvrtcCompileProgram"(nvrtcProgram, c_int, *const *const c_char);
        get_log_size = "nvrtcGetProgramLogSize"(nvrtcProgram, *mut usize);
        get_log = "nvrtcGetProgramLog"(nvrtcProgram, *mut c_char);
        get_cubin_size = "nvrtcGetCUBINSize"(nvrtcProgram, *mut usize);
        get_cubin = "nvrtcGetCUBIN"(nvrtcProgram, *mut c_char);
    }
    optional {
    }
}

/// The compiler, open.
#[derive(Clone, Copy)]
pub struct Nvrtc {
    table: Table,
    pub path: &'static str,
    pub version: (i32, i32),
}

impl Nvrtc {
    /// Opens the compiler, of the driver's major version if there are several.
    pub fn open(paths: &SearchPaths, driver_major: i32) -> Result<Nvrtc, ExecError> {
        let names = super::versioned("libnvrtc.so", driver_major);
        let opened = paths.open(&names).map_err(|why| {
            super::missing("NVRTC (libnvrtc)", "to compile kernels", why, "pip install nvidia-cuda-nvrtc")
        })?;
        opened.open_beside("libnvrtc-builtins.so");
        let table = Table::load(&opened)?;
        let mut version = (0, 0);
        // SAFETY: both places are valid for the call.
        let code = unsafe { (table.version)(&mut version.0, &mut version.1) };
        if code != 0 {
            let broken = NotOpened::Broken(format!("nvrtcVersion returned {code}"));
            return Err(super::missing("NVRTC (libnvrtc)", "to compile kernels", broken, "install it again"));
        }
        Ok(Nvrtc { table, path: opened.path, version })
    }

    /// Compiles to machine code for `architecture`; the error is the compiler's log.
    pub fn compile(&self, source: &Source, architecture: &str) -> Result<Vec<u8>, String> {
        let options = [format!("--gpu-architecture={architecture}"), "--std=c++17".to_owned()];
        let text = CString::new(source.text.as_str()).map_err(|_| "the text holds a NUL".to_owned())?;
        let name = CString::new(format!("{}.cu", source.name)).map_err(|_| "the name holds a NUL".to_owned())?;
        let options: Vec<CString> = options
            .into_iter()
            .map(CString::new)
            .collect::<Result<_, _>>()
            .map_err(|_| "an option holds a NUL".to_owned())?;
        let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let mut program: nvrtcProgram = std::ptr::null_mut();
        let table = &self.table;
        let none = std::ptr::null();
        let failed = |call: &str, code: c_int| format!("{call} returned {code}");
        // SAFETY: all texts end with NUL and outlive the calls, the program is destroyed once, and the buffers have the
        // sizes that the library asks for.
        unsafe {
            let code = (table.create_program)(&mut program, text.as_ptr(), name.as_ptr(), 0, none, none);
            if code != 0 {
                return Err(failed("nvrtcCreateProgram", code));
            }
            let code = (table.compile_program)(program, options.len() as c_int, options.as_ptr());
            let result = match code {
                0 => self.cubin(program),
                code => Err(format!("{}\n{}", failed("nvrtcCompileProgram", code), self.log(program))),
            };
            (table.destroy_program)(&mut program);
            result
        }
    }

    /// # Safety
    /// The program is alive and compiled.
    unsafe fn cubin(&self, program: nvrtcProgram) -> Result<Vec<u8>, String> {
        let mut size = 0;
        // SAFETY: the caller vouches for the program; the buffer has the size that is asked for.
        unsafe {
            // Without its size, there is no buffer that the code could be written to.
            let code = (self.table.get_cubin_size)(program, &mut size);
            if code != 0 {
                return Err(format!("nvrtcGetCUBINSize returned {code}"));
            }
            let mut cubin = vec![0u8; size];
            match (self.table.get_cubin)(program, cubin.as_mut_ptr().cast()) {
                0 => Ok(cubin),
                code => Err(format!("nvrtcGetCUBIN returned {code}")),
            }
        }
    }

    /// # Safety
    /// The program is alive.
    unsafe fn log(&self, program: nvrtcProgram) -> String {
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
