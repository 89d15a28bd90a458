//! Resources of declared kernels on an SM or compute unit, and the device's limits for them.

use crate::backend::gpu::api::Api;
use crate::backend::gpu::api::runtime::{Function, Residency, number};
use crate::base::{Bytes, SrcSpan, counted};
use crate::exec::ExecError;
use crate::ops::UserKernel;

use super::lower::Context;

impl<A: Api> Context<'_, A> {
    /// Fails if a declared kernel needs more threads or shared memory than a block may have on this device. A generated
    /// kernel never does.
    pub fn check_limits(&self, declared: &UserKernel, function: Function) -> Result<(), ExecError> {
        let failed = |why: String, help: String, shared: Option<SrcSpan>| ExecError::KernelLimit {
            name: declared.name.to_string(),
            why,
            help,
            is_shared: shared.is_some(),
            at: shared.unwrap_or(declared.code.at).into(),
        };
        // SAFETY: the function is a loaded kernel of this device.
        let (threads, shared) =
            unsafe { (self.api.attribute(function, number::FUNCTION_MAX_THREADS), self.api.take_all_shared(function)) };
        let (threads, shared) = (threads.map_err(ExecError::device)?, shared.map_err(ExecError::device)?);
        let block = declared.threads();
        if block > u64::from(threads) {
            let why = format!("a block has {block} threads, and its registers leave room for {threads} on this device");
            let help = format!("lower `block`, or write `__launch_bounds__({block})` before the name of the function");
            return Err(failed(why, help, None));
        }
        if declared.shared > shared {
            let why = format!(
                "a block needs {} of dynamic shared memory, and {} are left for it on this device",
                Bytes(u64::from(declared.shared)),
                Bytes(u64::from(shared))
            );
            return Err(failed(why, "lower `shared`".to_owned(), declared.code.shared_at));
        }
        Ok(())
    }

    /// Describes the resources that a declared kernel takes of a compute unit.
    pub fn residency(&self, declared: &UserKernel, function: Function) -> Result<String, ExecError> {
        let threads = declared.threads() as u32;
        // SAFETY: the function is a loaded kernel of this device.
        let found = unsafe { self.api.residency(function, threads, declared.shared) };
        let Residency { registers, local, shared, blocks } = found.map_err(ExecError::device)?;
        let local = match local {
            0 => String::new(),
            bytes => format!(", {} of local memory a thread", Bytes(bytes.into())),
        };
        Ok(format!(
            "the kernel `{}` with {} a block: {registers} registers a thread{local}, {} of shared memory a block, and {} \
             on a compute unit at once",
            declared.name,
            counted(threads as usize, "thread"),
            Bytes(shared.into()),
            counted(blocks as usize, "block"),
        ))
    }
}
