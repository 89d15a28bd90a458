//! What one device does with another: reach its memory, copy to it, and wait for its flags.

use cudarc::driver::sys::{
    CUstream, CUstreamBatchMemOpParams_union_CUstreamMemOpWaitValueParams_st,
    CUstreamBatchMemOpParams_union_CUstreamMemOpWaitValueParams_st__bindgen_ty_1,
    CUstreamBatchMemOpParams_union_CUstreamMemOpWriteValueParams_st,
    CUstreamBatchMemOpParams_union_CUstreamMemOpWriteValueParams_st__bindgen_ty_1, CUstreamBatchMemOpParams_v1,
    CUstreamBatchMemOpType,
};

use crate::backend::gpu::{Api, Call, Step};
use crate::ops::Copy as CopyLaunch;

use super::Cuda;
use super::driver::number;

/// What copies to other devices need and an old driver lacks.
fn lacks(symbol: &'static str) -> Box<crate::exec::Fault> {
    crate::exec::Fault::new(symbol, "this driver has no such function: copies to other ranks need CUDA 11.7")
}

impl Cuda {
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
