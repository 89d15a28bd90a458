//! Compile-time comparison of our prototypes with those of `hip-sys`; generates no code.
//!
//! Our handles are opaque pointers, and our enumerations are integers. Therefore the types of both prototypes are
//! converted to common plain types, which the compiler requires to be equal.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};
use std::marker::PhantomData;

use hip_sys::hiprt;

use crate::backend::gpu::runtime::{IpcHandle, Runtime};

/// A type of a prototype, with the plain type to which it is converted.
pub trait Plain {
    type As;
}

macro_rules! plain {
    ($($named:ty => $plain:ty),* $(,)?) => { $(impl Plain for $named { type As = $plain; })* };
}

plain! {
    c_void => c_void, c_char => c_char, c_int => c_int, c_uint => c_uint, usize => usize, f32 => f32,
    c_ulonglong => c_ulonglong,
    hiprt::ihipStream_t => c_void, hiprt::ihipEvent_t => c_void, hiprt::ihipModule_t => c_void,
    hiprt::ihipModuleSymbol_t => c_void, hiprt::ihipGraph => c_void, hiprt::hipGraphExec => c_void,
    hiprt::hipDeviceProp_t => c_void,
    hiprt::hipDeviceAttribute_t => c_uint, hiprt::hipMemcpyKind => c_uint, hiprt::hipFunction_attribute => c_uint,
    hiprt::hipStreamCaptureMode => c_uint,
    IpcHandle => IpcHandle, hiprt::hipIpcMemHandle_t => IpcHandle,
    // Our status is signed, as for every vendor.
    hiprt::hipError_t => c_int,
}

impl<T: Plain> Plain for *mut T {
    type As = *mut T::As;
}

impl<T: Plain> Plain for *const T {
    type As = *const T::As;
}

macro_rules! functions {
    ($(($($arg:ident)*))*) => { $(
        impl<$($arg: Plain,)* R: Plain> Plain for unsafe extern "C" fn($($arg),*) -> R {
            type As = fn($($arg::As),*) -> R::As;
        }
    )* };
}

functions! { () (A) (A B) (A B C) (A B C D) (A B C D E) (A B C D E F G H) (A B C D E F G H I J K) }

/// Compiles only if both types have the same plain type. Does nothing at run time.
pub const fn compare<Ours: Plain, Theirs: Plain<As = Ours::As>>(_: PhantomData<Ours>, _: &Theirs) {}

/// Any type, for each argument of a function whose types are inferred.
macro_rules! any {
    ($arg:ty) => {
        _
    };
}

macro_rules! same {
    ($($symbol:ident($($arg:ty),*);)*) => { $(
        const _: () = {
            let theirs: unsafe extern "C" fn($(super::prototypes::any!($arg)),*) -> _ = hip_sys::hiprt::$symbol;
            super::prototypes::compare(std::marker::PhantomData::<unsafe extern "C" fn($($arg),*) -> i32>, &theirs);
        };
    )* };
}

/// Compiles only if the type of a function in `Runtime` has this plain type. Does nothing at run time.
pub const fn compare_alike<Ours: Plain, Theirs: Plain<As = Ours::As>>(_: fn(&Runtime) -> Ours, _: &Theirs) {}

macro_rules! alike {
    ($($symbol:ident($($any:tt),*) |$runtime:ident| $function:expr;)*) => { $(
        const _: () = {
            let theirs: unsafe extern "C" fn($($any),*) -> _ = hip_sys::hiprt::$symbol;
            super::prototypes::compare_alike(|$runtime| $function, &theirs);
        };
    )* };
}

pub(super) use {alike, any, same};
