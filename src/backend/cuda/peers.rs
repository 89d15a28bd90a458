//! What one device does with another, of this process or of others: reach its memory, copy to it, and wait for its flags.

use std::ffi::c_void;

use cudarc::driver::sys::{
    CUstream, CUstreamBatchMemOpParams_union_CUstreamMemOpWaitValueParams_st,
    CUstreamBatchMemOpParams_union_CUstreamMemOpWaitValueParams_st__bindgen_ty_1,
    CUstreamBatchMemOpParams_union_CUstreamMemOpWriteValueParams_st,
    CUstreamBatchMemOpParams_union_CUstreamMemOpWriteValueParams_st__bindgen_ty_1, CUstreamBatchMemOpParams_v1,
    CUstreamBatchMemOpType,
};

use crate::backend::gpu::{Api, Call, Handle, Step};
use crate::ops::Copy as CopyLaunch;

use super::Cuda;
use super::driver::{IpcHandle, number};

/// What copies to other devices need and an old driver lacks.
fn lacks(symbol: &'static str) -> Box<crate::exec::Fault> {
    crate::exec::Fault::new(symbol, "this driver has no such function: copies to other ranks need CUDA 11.7")
}

/// What memory of other processes needs and this driver lacks.
fn lacks_ipc(symbol: &'static str) -> Box<crate::exec::Fault> {
    crate::exec::Fault::new(symbol, "this driver has no such function: it opens no memory of other processes")
}

impl Cuda {
    /// What another process opens memory of this device by.
    ///
    /// # Safety
    /// As for [`Api`].
    pub(super) unsafe fn export_memory(&self, address: u64) -> Call<Handle> {
        let export = self.driver.table.ipc_get_mem_handle.ok_or_else(|| lacks_ipc("cuIpcGetMemHandle"))?;
        let mut handle = IpcHandle([0; 64]);
        // SAFETY: the place is valid for the call, and the caller vouches for the address.
        let code = unsafe { export(&mut handle, address) };
        self.check("cuIpcGetMemHandle", code).map(|()| handle.0)
    }

    /// Opens memory of another process.
    pub(super) fn import_memory(&self, handle: &Handle) -> Call<u64> {
        let import = self.driver.table.ipc_open_mem_handle.ok_or_else(|| lacks_ipc("cuIpcOpenMemHandle"))?;
        let mut address = 0;
        // SAFETY: the place is valid for the call; a handle that is none is refused.
        let code = unsafe { import(&mut address, IpcHandle(*handle), number::IPC_LAZY_PEER_ACCESS) };
        self.check("cuIpcOpenMemHandle", code).map(|()| address)
    }

    /// # Safety
    /// As for [`Api`].
    pub(super) unsafe fn close_memory(&self, address: u64) {
        if let Some(close) = self.driver.table.ipc_close_mem_handle {
            // SAFETY: the caller vouches for the address.
            unsafe { close(address) };
        }
    }

    /// Lets devices use memory of the host, and returns where they find it.
    ///
    /// # Safety
    /// As for [`Api`].
    pub(super) unsafe fn register_host(&self, address: u64, bytes: u64) -> Call<u64> {
        let table = &self.driver.table;
        let register = table.mem_host_register.ok_or_else(|| lacks_ipc("cuMemHostRegister"))?;
        let find = table.mem_host_device_pointer.ok_or_else(|| lacks_ipc("cuMemHostGetDevicePointer"))?;
        let flags = number::HOST_REGISTER_PORTABLE | number::HOST_REGISTER_MAPPED;
        // SAFETY: the caller vouches for the memory.
        self.check("cuMemHostRegister", unsafe { register(address as *mut c_void, bytes as usize, flags) })?;
        let mut there = 0;
        // SAFETY: the place is valid for the call, and the memory is registered.
        let code = unsafe { find(&mut there, address as *mut c_void, 0) };
        self.check("cuMemHostGetDevicePointer", code).map(|()| there)
    }

    /// # Safety
    /// As for [`Api`].
    pub(super) unsafe fn unregister_host(&self, address: u64) {
        if let Some(unregister) = self.driver.table.mem_host_unregister {
            // SAFETY: the caller vouches for the address.
            unsafe { unregister(address as *mut c_void) };
        }
    }

    /// Whether this device can read and write the memory of another.
    pub(super) fn can_access(&self, other: &Self) -> Call<bool> {
        let Some(can_access) = self.driver.table.device_can_access_peer else { return Ok(false) };
        let mut can = 0;
        // SAFETY: the place is valid for the call.
        self.check("cuDeviceCanAccessPeer", unsafe { can_access(&mut can, self.device, other.device) })?;
        Ok(can != 0)
    }

    /// From now on it may.
    pub(super) fn enable_access(&self, other: &Self) -> Call {
        let Some(enable) = self.driver.table.ctx_enable_peer_access else { return Err(lacks("cuCtxEnablePeerAccess")) };
        self.make_current()?;
        // SAFETY: the other context is retained as long as `other` lives.
        match unsafe { enable(other.context, 0) } {
            number::PEER_ACCESS_ALREADY_ENABLED => Ok(()),
            code => self.check("cuCtxEnablePeerAccess", code),
        }
    }

    /// A copy row by row, by way of the host where the devices do not reach each other.
    ///
    /// # Safety
    /// As for [`Api`].
    pub(super) unsafe fn copy_rows(
        &self,
        copy: &CopyLaunch,
        source: u64,
        (target, other): (u64, &Self),
        stream: CUstream,
    ) -> Call {
        let Some(copy_peer) = self.driver.table.memcpy_peer_async else { return Err(lacks("cuMemcpyPeerAsync")) };
        // The driver knows rows between devices only where they reach each other.
        (0..copy.rows).try_for_each(|row| {
            let (to, from) = (target + row * copy.target_pitch, source + row * copy.source_pitch);
            // SAFETY: the caller vouches for memory and stream, and the contexts are retained.
            let code = unsafe { copy_peer(to, other.context, from, self.context, copy.row_bytes as usize, stream) };
            self.check("cuMemcpyPeerAsync", code)
        })
    }

    /// Raises and awaits flags, as one call of the driver as far as they fit. Each write stands behind a fence.
    ///
    /// # Safety
    /// As for [`Api`].
    pub(super) unsafe fn take_steps(&self, steps: &[Step], stream: CUstream) -> Call {
        /// Most steps are in pairs; the driver takes up to 256 operations.
        const AT_ONCE: usize = 4;
        let Some(batch) = self.driver.table.stream_batch_mem_op else { return Err(lacks("cuStreamBatchMemOp_v2")) };
        steps.chunks(AT_ONCE).try_for_each(|steps| {
            // An awaited flag is lowered, so it takes two.
            let mut ops = [CUstreamBatchMemOpParams_v1 { pad: [0; 6] }; 2 * AT_ONCE];
            let mut count = 0;
            let mut add = |op| {
                ops[count] = op;
                count += 1;
            };
            for step in steps {
                match *step {
                    Step::Raise(flag) => add(write(flag, 1)),
                    Step::Await(flag) => [wait(flag, 1), write(flag, 0)].into_iter().for_each(&mut add),
                }
            }
            // SAFETY: the operations are valid for the call; the caller vouches for memory and stream.
            self.check("cuStreamBatchMemOp", unsafe { batch(stream, count as u32, ops.as_mut_ptr(), 0) })
        })
    }
}

fn wait(address: u64, value: u32) -> CUstreamBatchMemOpParams_v1 {
    CUstreamBatchMemOpParams_v1 {
        waitValue: CUstreamBatchMemOpParams_union_CUstreamMemOpWaitValueParams_st {
            operation: CUstreamBatchMemOpType::CU_STREAM_MEM_OP_WAIT_VALUE_32,
            address,
            __bindgen_anon_1: CUstreamBatchMemOpParams_union_CUstreamMemOpWaitValueParams_st__bindgen_ty_1 { value },
            flags: number::WAIT_VALUE_EQ,
            alias: 0,
        },
    }
}

fn write(address: u64, value: u32) -> CUstreamBatchMemOpParams_v1 {
    CUstreamBatchMemOpParams_v1 {
        writeValue: CUstreamBatchMemOpParams_union_CUstreamMemOpWriteValueParams_st {
            operation: CUstreamBatchMemOpType::CU_STREAM_MEM_OP_WRITE_VALUE_32,
            address,
            __bindgen_anon_1: CUstreamBatchMemOpParams_union_CUstreamMemOpWriteValueParams_st__bindgen_ty_1 { value },
            flags: number::WRITE_VALUE_DEFAULT,
            alias: 0,
        },
    }
}
