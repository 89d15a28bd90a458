//! Errors in copies to other ranks.

use miette::{Diagnostic, SourceSpan};
use thiserror::Error;

/// An error in a copy to another rank.
#[derive(Clone, Debug, Error, Diagnostic)]
pub enum PeerError {
    #[error("only the output of a `copy` can be on another rank")]
    #[diagnostic(
        code(aorta::model::peer_operand),
        help("write `copy(x -> y at 1)`: it writes `y` of rank 1, which executes this copy too")
    )]
    Operand {
        #[label("another rank")]
        at: SourceSpan,
    },

    #[error("a copy to another rank goes from `device` memory to a declared buffer in it, and `{name}` {why}")]
    #[diagnostic(
        code(aorta::model::peer_memory),
        help(
            "copy it to the device first; the destination is a buffer that every rank declares alike: \
             `buffer y: f32[8]`"
        )
    )]
    Memory {
        name: String,
        why: String,
        #[label("`{name}` {why}")]
        at: SourceSpan,
    },

    #[error("rank {receiver} does not execute this copy, which rank {sender} sends to it")]
    #[diagnostic(
        code(aorta::model::peer_absent),
        help(
            "the receiver takes part by executing the same statement: let every rank execute it, and restrict the \
             sender: `copy(x -> y at {receiver} when rank == {sender})`"
        )
    )]
    Absent {
        sender: u32,
        receiver: u32,
        #[label("rank {receiver} is in another branch here, or in another loop iteration")]
        at: SourceSpan,
    },

    #[error("{what}")]
    #[diagnostic(code(aorta::model::peer_clash), help("{help}"))]
    Clash {
        what: String,
        help: String,
        #[label("both in this statement, so nothing orders them")]
        at: SourceSpan,
    },
}
