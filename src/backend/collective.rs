//! Collectives: one table for NCCL and RCCL, which share names, types and numbers.

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::base::DType;
use crate::exec::{ExecError, Fault};

use super::libraries::{Opened, functions};

/// A communicator of the library.
pub type Comm = *mut c_void;

/// What the ranks of a communicator find each other by.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UniqueId {
    bytes: [c_char; 128],
}

functions! {
    /// The functions of NCCL, or of RCCL.
    Table {
        get_version = "ncclGetVersion"(*mut c_int);
        get_unique_id = "ncclGetUniqueId"(*mut UniqueId);
        comm_init_rank = "ncclCommInitRank"(*mut Comm, c_int, UniqueId, c_int);
        comm_destroy = "ncclCommDestroy"(Comm);
        group_start = "ncclGroupStart"();
        group_end = "ncclGroupEnd"();
        send = "ncclSend"(*const c_void, usize, c_int, c_int, Comm, *mut c_void);
        recv = "ncclRecv"(*mut c_void, usize, c_int, c_int, Comm, *mut c_void);
    }
    optional {
        all_to_all = "ncclAlltoAll"(*const c_void, *mut c_void, usize, c_int, Comm, *mut c_void);
    }
}

/// The library, open.
#[derive(Clone, Copy)]
pub struct Collectives {
    table: Table,
    error_string: unsafe extern "C" fn(c_int) -> *const c_char,
}

/// The library's number of an element type.
fn number(dtype: DType) -> c_int {
    match dtype {
        DType::I8 => 0,
        DType::U8 => 1,
        DType::I32 => 2,
        DType::F16 => 6,
        DType::F32 => 7,
        DType::F64 => 8,
        DType::BF16 => 9,
    }
}

impl Collectives {
    pub fn load(opened: &Opened) -> Result<Collectives, ExecError> {
        let symbol = "ncclGetErrorString";
        // SAFETY: the type is that of the library's header.
        let error_string = unsafe { opened.find(symbol) }.ok_or_else(|| opened.lacks(symbol))?;
        Ok(Collectives { table: Table::load(opened)?, error_string })
    }

    fn check(&self, call: &'static str, code: c_int) -> Result<(), Box<Fault>> {
        if code == 0 { Ok(()) } else { Err(self.fault(call, code)) }
    }

    #[cold]
    fn fault(&self, call: &'static str, code: c_int) -> Box<Fault> {
        // SAFETY: the function takes any number and returns a constant text.
        let text = unsafe { CStr::from_ptr((self.error_string)(code)) };
        Box::new(Fault { call, code: i64::from(code), message: text.to_string_lossy().into_owned() })
    }

    /// `2.28.3`.
    pub fn version(&self) -> Option<String> {
        let mut version = 0;
        // SAFETY: the place is valid for the call.
        let code = unsafe { (self.table.get_version)(&mut version) };
        (code == 0).then(|| format!("{}.{}.{}", version / 10_000, version / 100 % 100, version % 100))
    }

    /// A communicator of one rank, on the device that is current.
    pub fn alone(&self) -> Result<Comm, Box<Fault>> {
        let mut id = UniqueId { bytes: [0; 128] };
        let mut comm: Comm = std::ptr::null_mut();
        // SAFETY: both places are valid for the calls.
        unsafe {
            self.check("ncclGetUniqueId", (self.table.get_unique_id)(&mut id))?;
            self.check("ncclCommInitRank", (self.table.comm_init_rank)(&mut comm, 1, id, 0))?;
        }
        Ok(comm)
    }

    /// Sends each rank its part: `count` elements from `source` on for each.
    ///
    /// # Safety
    /// The communicator is alive, the stream is one of its device, and both addresses are that device's memory, with
    /// room for `count` elements a rank.
    #[expect(clippy::too_many_arguments, reason = "the library's own call has as many")]
    pub unsafe fn all_to_all(
        &self,
        comm: Comm,
        ranks: i32,
        source: u64,
        target: u64,
        count: u64,
        dtype: DType,
        stream: *mut c_void,
    ) -> Result<(), Box<Fault>> {
        let kind = number(dtype);
        let (source, target) = (source as *const c_void, target as *mut c_void);
        // SAFETY: the caller vouches for handles and memory.
        unsafe {
            if let Some(all_to_all) = self.table.all_to_all {
                return self.check("ncclAlltoAll", all_to_all(source, target, count as usize, kind, comm, stream));
            }
            self.check("ncclGroupStart", (self.table.group_start)())?;
            let step = (count * dtype.size()) as usize;
            for rank in 0..ranks {
                let offset = step * rank as usize;
                let from = source.cast::<u8>().wrapping_add(offset).cast();
                let to = target.cast::<u8>().wrapping_add(offset).cast();
                self.check("ncclSend", (self.table.send)(from, count as usize, kind, rank, comm, stream))?;
                self.check("ncclRecv", (self.table.recv)(to, count as usize, kind, rank, comm, stream))?;
            }
            self.check("ncclGroupEnd", (self.table.group_end)())
        }
    }

    /// # Safety
    /// The communicator is alive, and nothing of it is under way.
    pub unsafe fn destroy(&self, comm: Comm) {
        // SAFETY: the caller vouches for it. A failure changes nothing: the process is about to let go of it anyway.
        unsafe { (self.table.comm_destroy)(comm) };
    }
}
