//! hiprtc: kernels from text to code.

use std::ffi::{c_char, c_int, c_void};
use std::sync::{Mutex, PoisonError};

use crate::handles::Handles;
use crate::kernel::{self, Program};

use super::text;

static PROGRAMS: Handles<Mutex<Program>> = Handles::new();

const SUCCESS: c_int = 0;
const INVALID_INPUT: c_int = 3;
const INVALID_PROGRAM: c_int = 4;

type Handle = *mut c_void;

/// Does something with a program.
fn with(program: Handle, what: impl FnOnce(&mut Program) -> c_int) -> c_int {
    match PROGRAMS.get(program) {
        Ok(program) => what(&mut program.lock().unwrap_or_else(PoisonError::into_inner)),
        Err(_) => INVALID_PROGRAM,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hiprtcVersion(major: *mut c_int, minor: *mut c_int) -> c_int {
    crate::api::counted!(hiprtcVersion);
    // SAFETY: the output pointers are valid for the call.
    unsafe {
        major.write(6);
        minor.write(4);
    }
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hiprtcCreateProgram(
    to: *mut Handle,
    source: *const c_char,
    _name: *const c_char,
    headers: c_int,
    _texts: *const *const c_char,
    _names: *const *const c_char,
) -> c_int {
    crate::api::counted!(hiprtcCreateProgram);
    if source.is_null() || headers != 0 {
        return INVALID_INPUT;
    }
    // SAFETY: the text ends with NUL, and the place is valid for the call.
    unsafe {
        let program = Program { text: text(source), ..Program::default() };
        to.write(PROGRAMS.add(std::sync::Arc::new(Mutex::new(program))));
    }
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hiprtcCompileProgram(program: Handle, count: c_int, options: *const *const c_char) -> c_int {
    crate::api::counted!(hiprtcCompileProgram);
    // SAFETY: there are as many options as are told, each of which ends with NUL.
    let options: Vec<String> = (0..count.max(0) as usize).map(|index| unsafe { text(*options.add(index)) }).collect();
    with(program, |program| kernel::compile(program, &options).err().unwrap_or(SUCCESS))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hiprtcGetProgramLogSize(program: Handle, size: *mut usize) -> c_int {
    crate::api::counted!(hiprtcGetProgramLogSize);
    with(program, |program| {
        // SAFETY: the output pointer is valid for the call.
        unsafe { size.write(program.log.len() + 1) };
        SUCCESS
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hiprtcGetProgramLog(program: Handle, log: *mut c_char) -> c_int {
    crate::api::counted!(hiprtcGetProgramLog);
    with(program, |program| {
        // SAFETY: the buffer has the size that was told.
        unsafe { super::put(&program.log, log, program.log.len() + 1) };
        SUCCESS
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hiprtcGetCodeSize(program: Handle, size: *mut usize) -> c_int {
    crate::api::counted!(hiprtcGetCodeSize);
    with(program, |program| {
        // SAFETY: the output pointer is valid for the call.
        unsafe { size.write(program.code.len()) };
        if program.code.is_empty() { INVALID_PROGRAM } else { SUCCESS }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hiprtcGetCode(program: Handle, code: *mut c_char) -> c_int {
    crate::api::counted!(hiprtcGetCode);
    with(program, |program| {
        // SAFETY: the buffer has the size that was told.
        unsafe { code.copy_from_nonoverlapping(program.code.as_ptr().cast(), program.code.len()) };
        if program.code.is_empty() { INVALID_PROGRAM } else { SUCCESS }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hiprtcDestroyProgram(program: *mut Handle) -> c_int {
    crate::api::counted!(hiprtcDestroyProgram);
    // SAFETY: the output pointer is valid for the call.
    let handle = unsafe { program.replace(std::ptr::null_mut()) };
    if PROGRAMS.remove(handle).is_ok() { SUCCESS } else { INVALID_PROGRAM }
}

#[unsafe(no_mangle)]
pub extern "C" fn hiprtcGetErrorString(code: c_int) -> *const c_char {
    let name = match code {
        SUCCESS => c"HIPRTC_SUCCESS",
        INVALID_INPUT => c"HIPRTC_ERROR_INVALID_INPUT",
        INVALID_PROGRAM => c"HIPRTC_ERROR_INVALID_PROGRAM",
        5 => c"HIPRTC_ERROR_INVALID_OPTION",
        6 => c"HIPRTC_ERROR_COMPILATION",
        11 => c"HIPRTC_ERROR_INTERNAL_ERROR",
        _ => c"HIPRTC_ERROR_UNKNOWN",
    };
    name.as_ptr()
}

/// The code object manager's list, which real compilers query: the only supported architecture.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amd_comgr_get_isa_count(count: *mut usize) -> c_int {
    crate::api::counted!(amd_comgr_get_isa_count);
    // SAFETY: the output pointer is valid for the call.
    unsafe { count.write(1) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn amd_comgr_get_isa_name(index: usize, name: *mut *const c_char) -> c_int {
    crate::api::counted!(amd_comgr_get_isa_name);
    // SAFETY: the output pointer is valid for the call.
    unsafe { name.write(c"amdgcn-amd-amdhsa--gfx000".as_ptr()) };
    if index == 0 { SUCCESS } else { INVALID_INPUT }
}
