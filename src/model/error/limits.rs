//! Errors about limits. Each says how to need less, or which setting raises the limit.

use miette::{Diagnostic, SourceSpan};
use thiserror::Error;

/// Too many operations, turns, calls, or too much memory.
#[derive(Clone, Debug, Error, Diagnostic)]
pub enum LimitError {
    #[error("{} more than {limit} operations", match iterations {
        1 => "an iteration has".to_owned(),
        _ => format!("the first {iterations} iterations of the cycle, which are planned ahead, have"),
    })]
    #[diagnostic(
        code(aorta::model::too_many_operations),
        help(
            "lower the counts of the loops (of a cycle, its length: --cycle N), or raise the limit: --config max_operations=…"
        )
    )]
    TooManyOperations {
        limit: usize,
        iterations: usize,
        #[label("passed here")]
        at: SourceSpan,
    },

    #[error("the loops and calls of the step have more than {limit} turns")]
    #[diagnostic(
        code(aorta::model::too_many_turns),
        help(
            "lower the counts of the loops and how often definitions call each other, or raise the limit, \
             which is 4 turns for each of {max_operations} operations, a call being 4: --config max_operations=…"
        )
    )]
    TooManyTurns {
        limit: usize,
        max_operations: usize,
        #[label("passed here")]
        at: SourceSpan,
    },

    #[error("this loop takes {turns} turns, and an iteration may have {limit} operations")]
    #[diagnostic(
        code(aorta::model::range_too_long),
        help("shorten the range, or raise the limit, which goes up to 268435456: --config max_operations=…")
    )]
    RangeTooLong {
        turns: i64,
        limit: usize,
        #[label("{turns} turns")]
        at: SourceSpan,
    },

    #[error("calls are nested deeper than {limit}")]
    #[diagnostic(
        code(aorta::model::too_deep),
        help("write the operations of the innermost `def` in place of its call")
    )]
    TooDeep {
        limit: usize,
        #[label("this is one too many")]
        at: SourceSpan,
    },

    #[error("{what} takes {total} of memory, and {limit} are allowed")]
    #[diagnostic(
        code(aorta::model::too_much_memory),
        help("{largest}lower a parameter, or raise the limit: --config max_memory=…")
    )]
    TooMuchMemory {
        what: String,
        total: String,
        limit: String,
        /// The largest buffers, before the rest of the help.
        largest: String,
        #[label("{}", if largest.is_empty() { "this buffer alone is above the limit" } else { "the largest" })]
        at: SourceSpan,
    },
}
