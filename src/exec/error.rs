//! What can go wrong between a schedule and its samples.

use miette::{Diagnostic, SourceSpan};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::peers::{Constant, constant};

#[derive(Clone, Debug, Error, Diagnostic, Serialize, Deserialize)]
pub enum ExecError {
    #[error("no {backend} device: {why}")]
    #[diagnostic(code(aorta::exec::no_device))]
    NoDevice {
        #[serde(deserialize_with = "constant")]
        backend: Constant,
        why: String,
        #[help]
        help: Option<String>,
    },

    #[error("{library} is not there, and is needed {purpose}")]
    #[diagnostic(code(aorta::exec::missing_library))]
    MissingLibrary {
        library: String,
        purpose: String,
        #[help]
        help: Option<String>,
    },

    #[error("{fault}")]
    #[diagnostic(code(aorta::exec::device_fault))]
    Device {
        fault: String,
        #[help]
        help: Option<String>,
    },

    #[error("{fault}, in this {what}")]
    #[diagnostic(code(aorta::exec::operation_fault))]
    Operation {
        fault: String,
        what: String,
        #[label("this operation")]
        at: SourceSpan,
    },

    #[error("the kernel of this {what} does not compile")]
    #[diagnostic(
        code(aorta::exec::kernel),
        help("this is a bug of aorta: please report it with the text below\n{log}")
    )]
    Kernel {
        what: String,
        log: String,
        #[label("this operation")]
        at: SourceSpan,
    },

    #[error("the program takes {needed} of {space} memory, and {available} are there")]
    #[diagnostic(code(aorta::exec::out_of_memory), help("the largest: {largest}; lower a parameter, or take a preset"))]
    OutOfMemory {
        needed: String,
        #[serde(deserialize_with = "constant")]
        space: Constant,
        available: String,
        largest: String,
    },

    #[error("iteration {iteration} did not end within {timeout}")]
    #[diagnostic(
        code(aorta::exec::hang),
        help("streams that are still busy: {busy}; raise the limit for long iterations: --config timeout=…")
    )]
    Hang { iteration: u64, timeout: String, busy: String },

    #[error("the run was ended, since another rank failed")]
    Ended,

    #[error("the ranks did not find each other: {why}")]
    #[diagnostic(code(aorta::exec::rendezvous), help("{help}"))]
    Rendezvous { why: String, help: String },

    #[error("rank {rank} is gone: {why}")]
    #[diagnostic(
        code(aorta::exec::lost_rank),
        help("what that rank printed, or its launcher, says why; the others end with it")
    )]
    LostRank { rank: u32, why: String },
}

impl ExecError {
    /// The same, said of one rank among several.
    pub(super) fn on_rank(mut self, rank: u32) -> ExecError {
        let text = match &mut self {
            ExecError::Device { fault, .. } | ExecError::Operation { fault, .. } => fault,
            ExecError::Hang { busy, .. } => busy,
            ExecError::NoDevice { why, .. } => why,
            _ => return self,
        };
        *text = format!("rank {rank}: {text}");
        self
    }
}
