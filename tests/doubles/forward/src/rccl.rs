//! `librccl`, handed on to NCCL, whose names and numbers it has.

use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;

use crate::library::{self, table};

type Handle = *mut c_void;

/// `ncclInternalError`.
const INTERNAL: c_int = 3;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct UniqueId {
    bytes: [c_char; 128],
}

const NAMES: [&str; 2] = ["libnccl.so.2", "libnccl.so"];

/// Declares the table, and an exported function for each of its.
macro_rules! nccl {
    ($($field:ident = $symbol:literal $name:ident($($arg:ident: $type:ty),* $(,)?);)*) => {
        table! {
            /// NCCL's functions.
            Nccl, NAMES, { $($field = $symbol($($type),*);)* }
        }

        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($arg: $type),*) -> c_int {
                match Nccl::get() {
                    // SAFETY: the caller keeps to the header, as the crate says.
                    Some(nccl) => unsafe { (nccl.$field)($($arg),*) },
                    None => INTERNAL,
                }
            }
        )*
    };
}

nccl! {
    version = "ncclGetVersion" ncclGetVersion(version: *mut c_int);
    unique_id = "ncclGetUniqueId" ncclGetUniqueId(id: *mut UniqueId);
    init_rank = "ncclCommInitRank" ncclCommInitRank(to: *mut Handle, ranks: c_int, id: UniqueId, rank: c_int);
    destroy = "ncclCommDestroy" ncclCommDestroy(comm: Handle);
    abort = "ncclCommAbort" ncclCommAbort(comm: Handle);
    count = "ncclCommCount" ncclCommCount(comm: Handle, count: *mut c_int);
    rank = "ncclCommUserRank" ncclCommUserRank(comm: Handle, rank: *mut c_int);
    error = "ncclCommGetAsyncError" ncclCommGetAsyncError(comm: Handle, state: *mut c_int);
    group_start = "ncclGroupStart" ncclGroupStart();
    group_end = "ncclGroupEnd" ncclGroupEnd();
    all_reduce = "ncclAllReduce" ncclAllReduce(
        from: *const c_void, to: *mut c_void, count: usize, element: c_int, op: c_int, comm: Handle, stream: Handle,
    );
    all_gather = "ncclAllGather" ncclAllGather(
        from: *const c_void, to: *mut c_void, count: usize, element: c_int, comm: Handle, stream: Handle,
    );
    reduce_scatter = "ncclReduceScatter" ncclReduceScatter(
        from: *const c_void, to: *mut c_void, count: usize, element: c_int, op: c_int, comm: Handle, stream: Handle,
    );
    broadcast = "ncclBroadcast" ncclBroadcast(
        from: *const c_void, to: *mut c_void, count: usize, element: c_int, root: c_int, comm: Handle, stream: Handle,
    );
    reduce = "ncclReduce" ncclReduce(
        from: *const c_void, to: *mut c_void, count: usize, element: c_int, op: c_int, root: c_int, comm: Handle,
        stream: Handle,
    );
    send = "ncclSend" ncclSend(
        from: *const c_void, count: usize, element: c_int, peer: c_int, comm: Handle, stream: Handle,
    );
    recv = "ncclRecv" ncclRecv(
        to: *mut c_void, count: usize, element: c_int, peer: c_int, comm: Handle, stream: Handle,
    );
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclGetErrorString(code: c_int) -> *const c_char {
    type Text = unsafe extern "C" fn(c_int) -> *const c_char;
    static TEXT: OnceLock<Option<Text>> = OnceLock::new();
    // SAFETY: the type is that of the vendor's header.
    let find = || unsafe { library::open(&NAMES)?.get::<Text>(b"ncclGetErrorString").ok().map(|found| *found) };
    match TEXT.get_or_init(find) {
        // SAFETY: the function takes any number and returns a constant text.
        Some(text) => unsafe { text(code) },
        None => c"the HIP double finds no NCCL".as_ptr(),
    }
}
