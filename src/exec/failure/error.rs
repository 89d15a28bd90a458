//! Errors of preparing and running a session.

use miette::{Diagnostic, LabeledSpan, SourceSpan};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::base::OnceBlock;
use crate::ops::KernelCode;

use super::constant_text::{Constant, constant};

/// An error of preparing or running a session.
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

    #[error("{library} was not found, and is needed {purpose}")]
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

    #[error("the kernel `{name}` does not compile")]
    #[diagnostic(code(aorta::exec::user_kernel), help("{log}"))]
    UserKernel {
        name: String,
        /// The required head of the function, and the compiler's output.
        log: String,
        #[label("the compiler's first message refers to this")]
        at: SourceSpan,
    },

    #[error("the kernel `{name}` cannot be launched: {why}")]
    #[diagnostic(code(aorta::exec::kernel_limit), help("{help}"))]
    KernelLimit {
        name: String,
        why: String,
        help: String,
        /// True if the location is that of the declared shared memory.
        is_shared: bool,
        #[label("{}", if *is_shared { "more than a block can have" } else { "its code is here" })]
        at: SourceSpan,
    },

    #[error("the kernel `{name}` has no `reference`, which the CPU needs to compute it")]
    #[diagnostic(
        code(aorta::exec::no_reference),
        help("write the operation that computes the same, such as `reference: map(2 * x)`, or run it on a GPU")
    )]
    NoReference {
        name: String,
        #[label("called here")]
        at: SourceSpan,
    },

    #[error("the program takes {needed} of {space} memory, and {available}")]
    #[diagnostic(code(aorta::exec::out_of_memory), help("the largest: {largest}; lower a parameter, or use a preset"))]
    OutOfMemory {
        needed: String,
        #[serde(deserialize_with = "constant")]
        space: Constant,
        /// Bytes available, and the runtime's message if an allocation was attempted.
        available: String,
        largest: String,
    },

    #[error("{device} cannot share `managed` memory with the CPU")]
    #[diagnostic(
        code(aorta::exec::no_managed),
        help("declare the buffers `in pinned`, or `in device` and `copy` them")
    )]
    NoManaged { device: String },

    #[error("{fault}; an operation that was issued earlier may have caused it")]
    #[diagnostic(
        code(aorta::exec::late_fault),
        help("a device runs behind the host, and reports a failure at a later call; {outstanding}")
    )]
    Late {
        fault: String,
        /// The operations that were in flight, in words.
        outstanding: String,
        #[label(collection)]
        at: Vec<LabeledSpan>,
    },

    #[error("{} {how}", hung_part(*iteration, *block))]
    #[diagnostic(code(aorta::exec::hang), help("{help}"))]
    Hang {
        /// Number of the iteration; 0 in a block around the iterations.
        iteration: u64,
        /// The block around the iterations that hung; `None` for an iteration.
        block: Option<OnceBlock>,
        how: String,
        /// True if labels show where lanes stopped; false if the device does not report it.
        exact: bool,
        help: String,
        #[label(collection)]
        at: Vec<LabeledSpan>,
    },

    #[error("rank {rank} did not return from a call within {timeout}: in iteration {iteration}, {doing}")]
    #[diagnostic(
        code(aorta::exec::no_return),
        help(
            "the vendor's function may wait for another rank or for the device; if it needs longer, raise the limit: \
             --timeout …"
        )
    )]
    NoReturn {
        rank: u32,
        iteration: u64,
        timeout: String,
        doing: String,
        #[label(collection)]
        at: Vec<LabeledSpan>,
    },

    #[error("rank {rank}: the communicator of {on} for {stream} has failed in iteration {iteration}: {fault}")]
    #[diagnostic(
        code(aorta::exec::communicator),
        help("all ranks were ended; `--env NCCL_DEBUG=WARN` makes the library report more")
    )]
    Communicator {
        fault: String,
        /// The ranks of the communicator, in words.
        on: String,
        stream: String,
        rank: u32,
        iteration: u64,
        #[label(collection)]
        at: Vec<LabeledSpan>,
    },

    #[error("the ranks were not all ready within {timeout}: {who}")]
    #[diagnostic(
        code(aorta::exec::no_meeting),
        help("all ranks of a communicator create it together; `--timeout` sets how long they wait for each other")
    )]
    NoMeeting { timeout: String, who: String },

    #[error("rank {rank} died: {why}")]
    #[diagnostic(
        code(aorta::exec::rank_died),
        help("the other ranks were ended; this is a bug of aorta: please report it")
    )]
    Died { rank: u32, why: String },

    #[error("the system provides no {what}: {why}")]
    #[diagnostic(
        code(aorta::exec::shortage),
        help(
            "end other programs, or raise the limit: `ulimit -u` shows how many processes and threads there may be, and \
             `ulimit -v` how much memory"
        )
    )]
    Shortage { what: String, why: String },

    #[error("the run was ended because another rank failed")]
    Ended,

    #[error("the ranks did not find each other: {why}")]
    #[diagnostic(code(aorta::exec::rendezvous), help("{help}"))]
    Rendezvous { why: String, help: String },

    #[error("rank {rank} was lost: {why}")]
    #[diagnostic(
        code(aorta::exec::lost_rank),
        help("the output of that rank or of its launcher shows the reason; the other ranks end too")
    )]
    LostRank { rank: u32, why: String },
}

impl ExecError {
    /// The error for the code of a declared kernel that the compiler refuses, at the line that its log names first.
    pub fn user_kernel(name: &str, code: &KernelCode, log: &str) -> ExecError {
        let at = code.located(log).into();
        let log = format!("the code must define `{}`; output of the compiler:\n{log}", code.head);
        ExecError::UserKernel { name: name.to_owned(), log, at }
    }

    /// Returns the error for a thread that the system refused to start. `purpose` completes "no thread …".
    pub fn no_thread(purpose: &str, why: &std::io::Error) -> ExecError {
        ExecError::Shortage { what: format!("thread {purpose}"), why: why.to_string() }
    }

    /// True if the device may still be executing work that never finishes; synchronizing would block.
    pub fn leaves_work(&self) -> bool {
        use ExecError::*;
        matches!(
            self,
            Late { .. }
                | Hang { .. }
                | NoReturn { .. }
                | Communicator { .. }
                | NoMeeting { .. }
                | Died { .. }
                | LostRank { .. }
                | Ended
        )
    }

    /// True if a diagnostic run may find the operation at fault.
    pub fn wants_diagnosis(&self) -> bool {
        matches!(self, ExecError::Late { .. } | ExecError::Hang { exact: false, .. } | ExecError::NoReturn { .. })
    }

    /// Adds the rank to the error's message, for a run of several ranks.
    pub(in crate::exec) fn on_rank(mut self, rank: u32) -> ExecError {
        let text = match &mut self {
            ExecError::Device { fault, .. } | ExecError::Operation { fault, .. } | ExecError::Late { fault, .. } => {
                fault
            }
            ExecError::NoDevice { why, .. } => why,
            ExecError::Hang { help, .. } => help,
            _ => return self,
        };
        *text = format!("rank {rank}: {text}");
        self
    }
}

/// Names the part of the run that hung.
fn hung_part(iteration: u64, block: Option<OnceBlock>) -> String {
    match block {
        Some(block) => format!("the `{}`", block.name()),
        None => format!("iteration {iteration}"),
    }
}
