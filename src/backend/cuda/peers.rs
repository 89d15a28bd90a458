//! Access from one device to others: copies, flags.

use cudarc::driver::sys::{
    CUstreamBatchMemOpParams_union_CUstreamMemOpWaitValueParams_st,
    CUstreamBatchMemOpParams_union_CUstreamMemOpWaitValueParams_st__bindgen_ty_1,
    CUstreamBatchMemOpParams_union_CUstreamMemOpWriteValueParams_st,
    CUstreamBatchMemOpParams_union_CUstreamMemOpWriteValueParams_st__bindgen_ty_1, CUstreamBatchMemOpParams_v1,
    CUstreamBatchMemOpType,
};

use crate::backend::gpu::runtime::Stream;
use crate::backend::gpu::{Api, Call, PeerAccess, SyncStep, required};
use crate::ops::CopyLaunch;

use super::Cuda;
use super::driver::number;

/// The use of functions that drivers before CUDA 11.7 lack.
const PEERS: &str = "copies to other ranks and host streams need CUDA 11.7";

impl PeerAccess for Cuda {
    fn reaches(&self, other: &Self) -> Call<bool> {
        let Some(can_access) = self.driver.table.device_can_access_peer else { return Ok(false) };
        let mut can = 0;
        // SAFETY: the output pointer is valid for the call.
        self.check("cuDeviceCanAccessPeer", unsafe { can_access(&mut can, self.device, other.device) })?;
        Ok(can != 0)
    }

    fn reach(&self, other: &Self) -> Call {
        let enable = required(self.driver.table.ctx_enable_peer_access, "cuCtxEnablePeerAccess", PEERS)?;
        self.make_current()?;
        // SAFETY: the other context is retained as long as `other` lives.
        match unsafe { enable(other.context, 0) } {
            number::PEER_ACCESS_ALREADY_ENABLED => Ok(()),
            code => self.check("cuCtxEnablePeerAccess", code),
        }
    }

    /// Copies row by row, through host memory if the devices cannot access each other.
    unsafe fn copy_staged(
        &self,
        copy: &CopyLaunch,
        source: u64,
        (target, other): (u64, &Self),
        stream: Stream,
    ) -> Call {
        let copy_peer = required(self.driver.table.memcpy_peer_async, "cuMemcpyPeerAsync", PEERS)?;
        // The driver copies strided rows between devices only if they can access each other.
        (0..copy.rows).try_for_each(|row| {
            let (to, from) = (target + row * copy.target_pitch, source + row * copy.source_pitch);
            // SAFETY: the caller vouches for memory and stream, and the contexts are retained.
            let code =
                unsafe { copy_peer(to, other.context, from, self.context, copy.row_bytes as usize, stream.cast()) };
            self.check("cuMemcpyPeerAsync", code)
        })
    }

    /// Raises and awaits flags, with as few driver calls as possible. Each write is preceded by a memory fence.
    unsafe fn execute_steps(&self, steps: &[SyncStep], stream: Stream) -> Call {
        /// Most steps come in pairs. The driver accepts up to 256 operations per call.
        const AT_ONCE: usize = 4;
        let batch = required(self.driver.table.stream_batch_mem_op, "cuStreamBatchMemOp_v2", PEERS)?;
        steps.chunks(AT_ONCE).try_for_each(|steps| {
            // Awaiting a flag takes two operations: wait, and lower it.
            let mut ops = [CUstreamBatchMemOpParams_v1 { pad: [0; 6] }; 2 * AT_ONCE];
            let mut count = 0;
            let mut add = |op| {
                ops[count] = op;
                count += 1;
            };
            for step in steps {
                match *step {
                    SyncStep::Raise { flag, value } => add(write(flag, value)),
                    SyncStep::Await(flag) => [wait(flag, 1), write(flag, 0)].into_iter().for_each(&mut add),
                }
            }
            // SAFETY: the operations are valid for the call; the caller vouches for memory and stream.
            self.check("cuStreamBatchMemOp", unsafe { batch(stream.cast(), count as u32, ops.as_mut_ptr(), 0) })
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
