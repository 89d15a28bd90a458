//! `libhiprtc`, handed on to NVRTC. A kernel's text sees CUDA's compiler, whose own branch of it is compiled.

use std::ffi::{CStr, CString, c_char, c_int, c_void};

use crate::library::table;

type Handle = *mut c_void;

table! {
    /// NVRTC's functions.
    Nvrtc, ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"], {
        version = "nvrtcVersion"(*mut c_int, *mut c_int);
        create = "nvrtcCreateProgram"(
            *mut Handle, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char,
        );
        destroy = "nvrtcDestroyProgram"(*mut Handle);
        compile = "nvrtcCompileProgram"(Handle, c_int, *const *const c_char);
        log_size = "nvrtcGetProgramLogSize"(Handle, *mut usize);
        log = "nvrtcGetProgramLog"(Handle, *mut c_char);
        code_size = "nvrtcGetCUBINSize"(Handle, *mut usize);
        code = "nvrtcGetCUBIN"(Handle, *mut c_char);
    }
}

/// hiprtc's numbers are NVRTC's as far as both go.
const INTERNAL: c_int = 11;

macro_rules! rtc {
    ($(fn $name:ident = $field:ident($($arg:ident: $type:ty),*);)*) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($arg: $type),*) -> c_int {
                match Nvrtc::get() {
                    // SAFETY: the caller keeps to the header, as the crate says.
                    Some(nvrtc) => unsafe { (nvrtc.$field)($($arg),*) },
                    None => INTERNAL,
                }
            }
        )*
    };
}

rtc! {
    fn hiprtcVersion = version(major: *mut c_int, minor: *mut c_int);
    fn hiprtcCreateProgram = create(
        to: *mut Handle, source: *const c_char, name: *const c_char, headers: c_int, texts: *const *const c_char,
        names: *const *const c_char
    );
    fn hiprtcDestroyProgram = destroy(program: *mut Handle);
    fn hiprtcGetProgramLogSize = log_size(program: Handle, size: *mut usize);
    fn hiprtcGetProgramLog = log(program: Handle, log: *mut c_char);
    fn hiprtcGetCodeSize = code_size(program: Handle, size: *mut usize);
    fn hiprtcGetCode = code(program: Handle, code: *mut c_char);
}

/// NVRTC's option for one of hiprtc's; `None` for an unknown one.
fn translated(option: &str) -> Option<String> {
    if let Some(architecture) = option.strip_prefix("--offload-arch=") {
        // The device's own name for itself: `gfx000:sm_90`.
        return Some(format!("--gpu-architecture={}", architecture.rsplit(':').next().unwrap_or(architecture)));
    }
    option.strip_prefix("-std=").or(option.strip_prefix("--std=")).map(|standard| format!("--std={standard}"))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hiprtcCompileProgram(program: Handle, count: c_int, options: *const *const c_char) -> c_int {
    let Some(nvrtc) = Nvrtc::get() else { return INTERNAL };
    // SAFETY: there are as many options as are told, each of which ends with NUL; their translations outlive the call.
    unsafe {
        let given = (0..count.max(0) as usize).map(|index| CStr::from_ptr(*options.add(index)));
        let texts: Vec<CString> =
            given.filter_map(|option| CString::new(translated(option.to_str().ok()?)?).ok()).collect();
        let pointers: Vec<*const c_char> = texts.iter().map(|text| text.as_ptr()).collect();
        (nvrtc.compile)(program, pointers.len() as c_int, pointers.as_ptr())
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn hiprtcGetErrorString(code: c_int) -> *const c_char {
    let name = match code {
        0 => c"HIPRTC_SUCCESS",
        5 => c"HIPRTC_ERROR_INVALID_OPTION",
        6 => c"HIPRTC_ERROR_COMPILATION",
        INTERNAL => c"HIPRTC_ERROR_INTERNAL_ERROR",
        _ => c"HIPRTC_ERROR_UNKNOWN",
    };
    name.as_ptr()
}

/// The code object manager's list, which real compilers query: the only supported architecture.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amd_comgr_get_isa_count(count: *mut usize) -> c_int {
    // SAFETY: the output pointer is valid for the call.
    unsafe { count.write(1) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn amd_comgr_get_isa_name(index: usize, name: *mut *const c_char) -> c_int {
    // SAFETY: the output pointer is valid for the call.
    unsafe { name.write(c"amdgcn-amd-amdhsa--gfx000".as_ptr()) };
    c_int::from(index != 0)
}
