//! Warnings about valid files that look like a mistake. Independent of the device; changes nothing.

mod hidden;
mod ranges;
mod results;
mod units;
mod unused;

use miette::{Diagnostic, SourceSpan};
use thiserror::Error;

use crate::syntax::Ast;

use super::program::Program;

/// A warning about a valid file.
#[derive(Clone, Debug, Error, Diagnostic)]
pub enum ModelWarning {
    #[error("the {what} `{name}` is never used")]
    #[diagnostic(
        code(aorta::model::unused),
        severity(Warning),
        help("{}, or remove it; `_{name}` is a name that may stay unused", match *what {
            "stream" => format!("write operations inside `on {name} {{ … }}`"),
            "family of streams" => format!("write operations inside `on {name}[i] {{ … }}`"),
            _ => "use it".to_owned(),
        })
    )]
    Unused {
        what: &'static str,
        name: String,
        #[label("nothing names it")]
        at: SourceSpan,
    },

    #[error("the `def` `{name}` hides the operation of this name")]
    #[diagnostic(
        code(aorta::model::hidden_operation),
        severity(Warning),
        help("give the `def` another name: below, each `{name}(…)` calls the `def`")
    )]
    HiddenOperation {
        name: String,
        #[label("`aorta explain {name}` describes the operation")]
        at: SourceSpan,
    },

    #[error("of the {count} streams of `{name}`, {idle} without an operation")]
    #[diagnostic(
        code(aorta::model::idle_streams),
        severity(Advice),
        help("declare {used}, or spread the operations over all of them")
    )]
    IdleStreams {
        name: String,
        /// Number and verb: `1 is`, `2 are`.
        idle: String,
        count: usize,
        used: usize,
        #[label("nothing runs on {which}")]
        at: SourceSpan,
        which: String,
    },

    #[error("this loop never runs")]
    #[diagnostic(
        code(aorta::model::empty_range),
        severity(Warning),
        help("a range counts up: write `rev({least}..{count})` to count down")
    )]
    EmptyRange {
        /// The limits of the reversed range, for the range that was probably meant; the end is excluded.
        count: String,
        least: String,
        #[label("ends before it begins")]
        at: SourceSpan,
    },

    #[error("`depth` has no effect without `sync: end`")]
    #[diagnostic(
        code(aorta::model::unused_depth),
        severity(Warning),
        help("write `step(sync: end, depth: {depth})` to let iterations overlap, or remove it")
    )]
    UnusedDepth {
        depth: String,
        #[label("an iteration begins after the previous one has ended")]
        at: SourceSpan,
    },

    #[error("the result of `{name}` is never read")]
    #[diagnostic(code(aorta::model::unread_result), severity(Warning), help("{help}"))]
    UnreadResult {
        name: String,
        /// The block whose end is the end of the result: `iteration`, `setup` or `teardown`.
        block: String,
        help: String,
        #[label("its output is scratch memory, which ends with the {block}")]
        at: SourceSpan,
    },

    #[error("`{unit}` is not a unit of the language")]
    #[diagnostic(code(aorta::model::unit_as_text), severity(Warning), help("did you mean `{near}`?"))]
    UnitAsText {
        unit: String,
        near: &'static str,
        #[label("printed in SI units, with that text after the number")]
        at: SourceSpan,
    },

    #[error("this copy blocks the host until it is complete")]
    #[diagnostic(
        code(aorta::model::pageable_copy),
        severity(Advice),
        help("declare `{name}` `in pinned`: then a copy engine moves it while the host continues")
    )]
    PageableCopy {
        name: String,
        #[label("goes through a staging buffer, so nothing is issued meanwhile")]
        at: SourceSpan,
        #[label("`{name}` is in pageable host memory")]
        declared: SourceSpan,
    },
}

impl ModelWarning {
    /// Location as an offset, for sorting.
    fn offset(&self) -> usize {
        self.labels().and_then(|mut labels| labels.next()).map_or(0, |label| label.offset())
    }
}

/// Maximum number of warnings for one file.
const MAX_WARNINGS: usize = 100;

/// The warnings for a file, in the order of its text, at most a hundred.
pub fn lint(ast: &Ast, program: &Program) -> Vec<ModelWarning> {
    let mut warnings = Vec::new();
    hidden::operations(ast, &mut warnings);
    unused::names(ast, program, &mut warnings);
    unused::depth(ast, program, &mut warnings);
    ranges::backwards(ast, &mut warnings);
    // Something unused on this rank may be used on another one.
    if !(program.by_rank && program.world > 1) {
        unused::streams(program, &mut warnings);
        results::unread(ast, program, &mut warnings);
    }
    results::pageable_copies(program, &mut warnings);
    units::as_text(program, &mut warnings);
    warnings.sort_by_key(ModelWarning::offset);
    warnings.truncate(MAX_WARNINGS);
    warnings
}
