//! The exported functions, by the libraries that they belong to.
//!
//! # Safety
//! Each is called as its vendor's header says: places for results are valid, texts end with NUL, addresses have the room
//! that is told. Handles may be anything: they are looked up.

mod blaslt;
mod devices;
mod events;
mod graphs;
mod memory;
mod modules;
mod rccl;
mod rocblas;
mod rocprofiler;
mod rtc;
mod smi;
mod streams;

use std::ffi::{CStr, c_char};

/// Declares exported functions, whose bodies give a `Done`.
macro_rules! hip {
    ($(fn $name:ident($($arg:ident: $type:ty),* $(,)?) $body:block)*) => {
        $(
            #[unsafe(no_mangle)]
            #[allow(unused_unsafe, clippy::redundant_closure_call, reason = "some bodies need nothing of it")]
            pub unsafe extern "C" fn $name($($arg: $type),*) -> crate::status::Status {
                if crate::fault::fails(stringify!($name)) {
                    return crate::device::returned(Err(crate::status::UNKNOWN));
                }
                // SAFETY: the caller keeps to the header, as the module `api` says.
                let body = || -> crate::status::Done { unsafe { $body } };
                crate::device::returned(body())
            }
        )*
    };
}

/// Declares functions that a double cannot do, and says so.
macro_rules! unsupported {
    ($($name:ident)*) => {
        $(
            #[unsafe(no_mangle)]
            pub extern "C" fn $name() -> crate::status::Status {
                crate::device::returned(Err(crate::status::NOT_SUPPORTED))
            }
        )*
    };
}

/// At the beginning of a function of another library: counts the call, and returns an error where it is to fail. The
/// number is an error in each of these libraries.
macro_rules! counted {
    ($name:ident) => {
        if crate::fault::fails(stringify!($name)) {
            return 2;
        }
    };
}

pub(crate) use {counted, hip, unsupported};

/// Puts a text into a buffer, cut to its size.
///
/// # Safety
/// The buffer has that size.
unsafe fn put(text: &str, buffer: *mut c_char, size: usize) {
    let length = text.len().min(size.saturating_sub(1));
    // SAFETY: the caller vouches for the size, and the text is not longer.
    unsafe {
        buffer.copy_from_nonoverlapping(text.as_ptr().cast(), length);
        if size > 0 {
            buffer.add(length).write(0);
        }
    }
}

/// # Safety
/// The text ends with NUL.
unsafe fn text(from: *const c_char) -> String {
    // SAFETY: the caller guarantees it.
    unsafe { CStr::from_ptr(from) }.to_string_lossy().into_owned()
}
