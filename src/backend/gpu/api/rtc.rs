//! Run-time compilers: NVRTC and hipRTC, which have the same functions under different names.

use std::ffi::{CString, c_char, c_int, c_void};

use crate::backend::libraries::{NotOpened, OpenedLibrary, functions};
use crate::exec::ExecError;
use crate::ops::{KernelSource, NotCompiled};

type Program = *mut c_void;

functions! {
    /// Functions of the compiler.
    Table named by Names {
        version(*mut c_int, *mut c_int);
        create_program(
            *mut Program, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char,
        );
        destroy_program(*mut Program);
        compile_program(Program, c_int, *const *const c_char);
        get_log_size(Program, *mut usize);
        get_log(Program, *mut c_char);
        get_code_size(Program, *mut usize);
        get_code(Program, *mut c_char);
    }
}

/// An open compiler.
#[derive(Clone, Copy)]
pub struct Compiler {
    table: Table,
    pub path: &'static str,
    /// Major and minor version.
    version: (i32, i32),
}

/// Status of a text that does not compile, `NVRTC_ERROR_COMPILATION` and `HIPRTC_ERROR_COMPILATION`.
const COMPILATION: c_int = 6;

impl Compiler {
    /// Resolves the compiler's functions and queries its version. `missing` makes the error for a compiler that reports
    /// no version.
    pub fn open(
        opened: &OpenedLibrary,
        names: &'static Names,
        missing: impl FnOnce(NotOpened) -> ExecError,
    ) -> Result<Compiler, ExecError> {
        let table = Table::load(opened, names)?;
        let mut version = (0, 0);
        // SAFETY: both output pointers are valid for the call.
        let code = unsafe { (table.version)(&mut version.0, &mut version.1) };
        match code {
            0 => Ok(Compiler { table, path: opened.path, version }),
            code => Err(missing(NotOpened::Broken(failed(names.version, code)))),
        }
    }

    /// The version, such as `12.8`.
    pub fn version_text(&self) -> String {
        format!("{}.{}", self.version.0, self.version.1)
    }

    /// Compiles a kernel to machine code. `extension` is that of the file name under which messages show the source.
    pub fn compile(&self, source: &KernelSource, extension: &str, options: &[String]) -> Result<Vec<u8>, NotCompiled> {
        let terminated = |text: &str, what: &str| {
            CString::new(text).map_err(|_| NotCompiled::Refused(format!("{what} holds a NUL")))
        };
        let text = terminated(&source.text, "the text")?;
        let name = terminated(&format!("{}.{extension}", source.name), "the name")?;
        let options: Vec<CString> =
            options.iter().map(|option| terminated(option, "an option")).collect::<Result<_, _>>()?;
        let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let mut program: Program = std::ptr::null_mut();
        let Compiler { table, .. } = self;
        let none = std::ptr::null();
        // SAFETY: all texts end with NUL and outlive the calls, and the program is destroyed once.
        unsafe {
            let code = (table.create_program)(&mut program, text.as_ptr(), name.as_ptr(), 0, none, none);
            if code != 0 {
                return Err(NotCompiled::NoCompiler(failed(table.names.create_program, code)));
            }
            let code = (table.compile_program)(program, options.len() as c_int, options.as_ptr());
            let result = match code {
                0 => self.code(program).map_err(NotCompiled::NoCompiler),
                code => {
                    let log = format!("{}\n{}", failed(table.names.compile_program, code), self.log(program));
                    Err(if code == COMPILATION { NotCompiled::Refused(log) } else { NotCompiled::NoCompiler(log) })
                }
            };
            (table.destroy_program)(&mut program);
            result
        }
    }

    /// Reads the machine code.
    ///
    /// # Safety
    ///
    /// The program is alive and compiled.
    unsafe fn code(&self, program: Program) -> Result<Vec<u8>, String> {
        let Compiler { table, .. } = self;
        let mut size = 0;
        // SAFETY: the caller vouches for the program; the buffer has the queried size.
        unsafe {
            // A failed query leaves no size to allocate.
            let status = (table.get_code_size)(program, &mut size);
            if status != 0 {
                return Err(failed(table.names.get_code_size, status));
            }
            let mut code = vec![0u8; size];
            match (table.get_code)(program, code.as_mut_ptr().cast()) {
                0 => Ok(code),
                status => Err(failed(table.names.get_code, status)),
            }
        }
    }

    /// Reads the compiler's log.
    ///
    /// # Safety
    ///
    /// The program is alive.
    unsafe fn log(&self, program: Program) -> String {
        let mut size = 0;
        // SAFETY: the caller vouches for the program; the buffer has the queried size.
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

fn failed(call: &str, code: c_int) -> String {
    format!("{call} returned {code}")
}
