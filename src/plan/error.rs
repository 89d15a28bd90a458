//! Errors about the order of operations, within a rank and between ranks.

use miette::{Diagnostic, LabeledSpan, SourceSpan};
use thiserror::Error;

/// An error about the order of operations.
#[derive(Clone, Debug, Error, Diagnostic)]
pub enum PlanError {
    #[error("`{first}` and `{second}` race for `{memory}`")]
    #[diagnostic(
        code(aorta::plan::race),
        help(
            "nothing orders them: {missing}; `step(order: data)` finds such orders by itself, \
             `races: allow` permits all of them"
        )
    )]
    Race {
        first: String,
        second: String,
        memory: String,
        /// The text that declares the missing dependency.
        missing: Box<str>,
        #[label("{first_does} {first_slice} on stream `{first_stream}`")]
        first_at: SourceSpan,
        first_does: &'static str,
        first_slice: String,
        first_stream: Box<str>,
        #[label("{second_does} {second_slice} on stream `{second_stream}`{second_when}")]
        second_at: SourceSpan,
        second_does: &'static str,
        second_slice: String,
        second_stream: Box<str>,
        /// Clause about the iteration of the second operation; empty if it is that of the first.
        second_when: &'static str,
        /// Calls of the definitions that contain the operations.
        #[label(collection)]
        calls: Vec<LabeledSpan>,
    },

    #[error("more than {limit} pairs of slices of `{memory}` have elements in common")]
    #[diagnostic(
        code(aorta::plan::tangled),
        help(
            "each pair is checked for dependencies; use slices of `{memory}` that are equal or disjoint, or fewer \
             operations"
        )
    )]
    Tangled {
        memory: String,
        limit: usize,
        #[label("one of them")]
        at: SourceSpan,
    },

    #[error("rank {first} and rank {second} do not agree on {what}")]
    #[diagnostic(code(aorta::plan::ranks_differ), help("{help}"))]
    Differ {
        first: u32,
        second: u32,
        what: &'static str,
        #[label("{here}")]
        at: SourceSpan,
        /// Text at `at`: the call of the first rank, or those of both ranks if they are at the same location.
        here: String,
        #[label("{there}")]
        second_at: Option<SourceSpan>,
        there: String,
        help: String,
        /// Calls of the definitions that contain the operations.
        #[label(collection)]
        calls: Vec<LabeledSpan>,
    },

    #[error("rank {rank} waits for rank {other}, which {verb}")]
    #[diagnostic(code(aorta::plan::unmatched), help("{help}"))]
    Unmatched {
        rank: u32,
        other: u32,
        call: String,
        /// Says how the other rank lacks the call.
        verb: &'static str,
        #[label("rank {rank}: {call}")]
        at: SourceSpan,
        #[label("the last of its kind on rank {other}")]
        last: Option<SourceSpan>,
        help: String,
        /// Calls of the definitions that contain the operation.
        #[label(collection)]
        calls: Vec<LabeledSpan>,
    },

    #[error("{who}")]
    #[diagnostic(code(aorta::plan::deadlock), help("{help}"))]
    Deadlock {
        who: String,
        #[label("{here}")]
        at: SourceSpan,
        /// Text at `at`: the call of the first rank, and what it waits for; for both ranks if they are at the same
        /// location.
        here: String,
        #[label("{there}")]
        second_at: Option<SourceSpan>,
        there: String,
        help: &'static str,
        /// Calls of the definitions that contain the operations.
        #[label(collection)]
        calls: Vec<LabeledSpan>,
    },
}
