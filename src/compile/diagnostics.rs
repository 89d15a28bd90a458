//! Diagnostics of all stages in one type, with the texts that they refer to.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;

use miette::Diagnostic;
use thiserror::Error;

use crate::base::{SourceMap, SrcSpan};
use crate::model::{Mistake, ModelError};
use crate::plan::PlanError;
use crate::syntax::{self, Ast};

/// A diagnostic of any stage.
pub type BoxedDiagnostic = Box<dyn Diagnostic + Send + Sync>;

/// Boxes the diagnostics of one stage.
pub fn boxed<D: Diagnostic + Send + Sync + 'static>(all: impl IntoIterator<Item = D>) -> Vec<BoxedDiagnostic> {
    all.into_iter().map(|one| Box::new(one) as BoxedDiagnostic).collect()
}

/// Offset of a diagnostic's first label, for sorting; 0 if it has no labels.
pub fn first_offset(diagnostic: &dyn Diagnostic) -> usize {
    diagnostic.labels().and_then(|mut labels| labels.next()).map_or(0, |label| label.offset())
}

/// Reason why a workload could not be compiled.
#[derive(Debug, Error)]
pub enum CompileError {
    /// The text, or a value that the caller set, has mistakes.
    #[error("{}", .0.all.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Mistakes(Diagnostics),
    /// The texts together exceed 4 GiB; `name` is the one that did not fit.
    #[error("{name} is too large")]
    TooLarge { name: String },
    /// The system has no thread for the analysis.
    #[error("no thread could be created to analyze the file: {0}")]
    NoThread(#[from] io::Error),
}

/// The mistakes of a workload.
#[derive(Debug)]
pub struct Diagnostics {
    /// Errors, at least one, in the order of the text.
    pub all: Vec<BoxedDiagnostic>,
    /// Texts that the labels of the errors refer to.
    pub sources: Arc<SourceMap>,
    /// Number of ranks for which the workload was compiled.
    pub ranks: u32,
}

/// Converts the diagnostics of a stage to an error.
pub(super) struct Reporting {
    pub sources: Arc<SourceMap>,
    /// Number of ranks.
    pub world: u32,
}

impl Reporting {
    /// Explains why the merged operations cannot run: an error of their plan, which is not a mistake in the file.
    pub fn refusal(&self, error: &PlanError, rank: u32) -> String {
        let is_about_a_rank =
            !matches!(error, PlanError::Deadlock { .. } | PlanError::Unmatched { .. } | PlanError::Differ { .. });
        let on = if is_about_a_rank && self.world > 1 { format!(" on rank {rank}") } else { String::new() };
        let place = error.labels().and_then(|mut labels| labels.next()).map_or(String::new(), |label| {
            let span = SrcSpan::new(label.offset(), label.offset() + label.len());
            format!(", at {}", self.sources.place(span))
        });
        format!("with merged operations{on}, {error}{place}")
    }

    /// Returns the error that consists of these diagnostics.
    pub fn all<D: Diagnostic + Send + Sync + 'static>(&self, all: impl IntoIterator<Item = D>) -> CompileError {
        self.mistakes(boxed(all))
    }

    /// Returns the error that consists of the diagnostics of one rank. Each names the rank, except those of rank 0.
    pub fn on_rank<D: Diagnostic + Send + Sync + 'static>(&self, all: Vec<D>, rank: u32) -> CompileError {
        match rank {
            0 => self.all(all),
            _ => self.all(all.into_iter().map(|what| OnRank { what, rank, world: self.world })),
        }
    }

    /// The error with `syntax_errors` and those of the analysis that do not follow from them.
    pub fn with_syntax_errors(
        &self,
        syntax_errors: Vec<BoxedDiagnostic>,
        errors: Vec<Mistake>,
        ast: &Ast,
    ) -> CompileError {
        let broken = !syntax_errors.is_empty();
        let declared: Vec<&str> =
            ast.unparsed.iter().flat_map(|&span| syntax::declared(self.sources.text(span))).collect();
        let mut lost: HashSet<&str> = declared.iter().copied().collect();
        // As many unknown names as there are declarations without a name may be theirs.
        let unknown: HashSet<String> = errors.iter().filter_map(|mistake| unknown_name(&mistake.error)).collect();
        let unnamed = declared.iter().filter(|name| name.is_empty()).count();
        if unknown.iter().filter(|name| !lost.contains(name.as_str())).count() <= unnamed {
            lost.extend(unknown.iter().map(String::as_str));
        }
        let causes = errors.into_iter().filter(|mistake| !broken || !is_consequence(&mistake.error, &lost));
        let mut all = syntax_errors;
        all.extend(boxed(causes));
        all.sort_by_key(|one| first_offset(one.as_ref()));
        self.mistakes(all)
    }

    fn mistakes(&self, all: Vec<BoxedDiagnostic>) -> CompileError {
        CompileError::Mistakes(Diagnostics { all, sources: self.sources.clone(), ranks: self.world })
    }
}

/// True if an error may follow from text that could not be parsed and that would have declared the names `lost`.
fn is_consequence(error: &ModelError, lost: &HashSet<&str>) -> bool {
    use ModelError::*;
    match error {
        NoStep { .. } | NothingToRun { .. } | SlotOutOfRange { .. } => true,
        ReadBeforeWrite { name, .. } => lost.contains(name.as_str()),
        error => unknown_name(error).is_some_and(|name| lost.contains(name.as_str())),
    }
}

/// The name that an error does not find; `None` for other errors.
fn unknown_name(error: &ModelError) -> Option<String> {
    use ModelError::*;
    match error {
        UnknownName { name, .. }
        | DeclaredBelow { name, .. }
        | UnknownOperation { name, .. }
        | UnknownSet { name, .. }
        | UnknownFigure { name, .. }
        | UnknownParameter { name, .. }
        | NoMember { name, .. } => Some(name.to_string()),
        _ => None,
    }
}

/// A mistake found on another rank than the first.
#[derive(Debug, Error, Diagnostic)]
#[error("{what}, on rank {rank} of {world}")]
#[diagnostic(forward(what))]
struct OnRank<D: Diagnostic + 'static> {
    what: D,
    rank: u32,
    /// Number of ranks.
    world: u32,
}
