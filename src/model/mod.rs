//! Semantic analysis: checks the tree's names, types, units and shapes, and expands loops and definitions.
//!
//! Independent of the device: a [`Program`] is the same on every machine. Later stages refer to everything by number.
//!
//! If no doc comment says otherwise, a function of the analysis that returns an `Option` returns `None` after an error,
//! which it has reported.

mod analyzer;
mod calls;
mod check;
mod circumstances;
mod declare;
mod error;
mod expand;
mod gradient;
pub mod limits;
mod lint;
mod memory;
mod metrics;
mod mistakes;
mod names;
mod program;
mod ranks;
mod rewrite;
mod stack;
mod streams;
mod turns;
mod values;

use crate::base::{SrcSpan, lcm, threads};
use crate::syntax::Ast;
use crate::syntax::ast::Expr;

pub use error::{
    GradientError, HostStreamError, KernelError, LimitError, ModelError, ModuleError, PeerError, SliceError,
    StructureError, TraceError,
};
pub use lint::{ModelWarning, lint};
pub use memory::views::{Extent, Layout, View, Views};
pub use metrics::figure::{Figure, Sets};
pub use metrics::figures::{Expectation, FigureExpr, Metric};
pub use metrics::statistic::Statistic;
pub use metrics::{figure, figures};
pub use mistakes::Mistake;
pub use names::foreign_calls::operation_elsewhere;
pub use names::index::Index;
pub use names::sets::{OpSet, SetPart};
pub use names::shipped::STANDARD;
pub use names::unknown::figure_elsewhere;
pub use program::*;
pub use ranks::group::{Factor, Group};
pub use ranks::peers::{common_cycle, link};
pub use rewrite::{Replacement, Rewritten};
pub use streams::host_streams::DataFiles;
pub use streams::units::Units;
pub use turns::{Turn, TurnOrigin, Turns};
pub use values::draws::DISTRIBUTIONS;
pub use values::functions::FUNCTIONS;
pub use values::trace::{TraceFault, Traces};
pub(crate) use values::trace::{column as trace_column, source as trace_source};

/// Values and limits with which a file is analyzed for one rank.
#[derive(Debug)]
pub struct AnalysisOptions {
    /// The preset that sets parameters; `None` for the defaults.
    pub preset: Option<String>,
    /// Values of parameters, which take precedence over the preset and the defaults.
    pub set: Vec<ParamSetting>,
    pub rank: u32,
    pub world: u32,
    /// Number of iterations to expand if the step depends on the iteration's number.
    pub cycle: u64,
    /// The number of iterations to expand is a multiple of this.
    pub cycle_multiple: u64,
    /// Replaces the step's own `sync`; `None` keeps it.
    pub sync: Option<Sync>,
    /// Maximum number of operations of an iteration.
    pub max_operations: usize,
    /// Maximum bytes of the declared buffers and bare inputs.
    pub max_memory: u64,
    /// The columns that draws from a trace read.
    pub traces: Traces,
    /// The files with data that operations read.
    pub files: DataFiles,
}

/// A parameter's value from outside of the file. The expression's names are interned with the file's.
#[derive(Debug)]
pub struct ParamSetting {
    pub name: String,
    pub value: Expr,
    pub span: SrcSpan,
}

impl Default for AnalysisOptions {
    fn default() -> Self {
        AnalysisOptions {
            preset: None,
            set: Vec::new(),
            rank: 0,
            world: 1,
            cycle: 64,
            cycle_multiple: 1,
            sync: None,
            max_operations: 1 << 20,
            max_memory: 1 << 40,
            traces: Traces::new(),
            files: DataFiles::new(),
        }
    }
}

/// Number of slots of a world: iterations after which the programs of all ranks repeat. At most the longest cycle
/// allowed for one rank.
pub fn slots<'a>(programs: impl Iterator<Item = &'a Program>) -> usize {
    let cycles = programs.map(|program| program.cycle.len().max(1) as u64);
    cycles.fold(1, |all, cycle| lcm(all, cycle).unwrap_or(u64::MAX).min(limits::CYCLE)) as usize
}

/// Analyzes the program of one rank. The error has all mistakes of the file.
///
/// # Panics
///
/// The system refuses to create a thread. [`try_analyze`] returns that as an error.
pub fn analyze(ast: &Ast, options: &AnalysisOptions) -> Result<Program, Vec<Mistake>> {
    try_analyze(ast, options).expect("the system gives a thread")
}

/// Analyzes the program of one rank on a thread whose stack is large enough for the file's nesting. The inner error has
/// all mistakes of the file.
///
/// # Errors
///
/// The system refuses to create such a thread.
pub fn try_analyze(ast: &Ast, options: &AnalysisOptions) -> std::io::Result<Result<Program, Vec<Mistake>>> {
    std::thread::scope(|scope| {
        let work = || analyzer::Analyzer::new(ast, options).run();
        let builder = std::thread::Builder::new().name("analyze".to_owned());
        let thread = threads::spawn_scoped_with_stack(stack::needed(ast, options), builder, scope, work)?;
        Ok(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// Analyzes the text of a test, which has no syntax errors.
#[cfg(test)]
pub fn analyze_text(text: &str, options: &AnalysisOptions) -> Result<Program, Vec<Mistake>> {
    let (ast, errors) = crate::syntax::parse(text, 0, &crate::syntax::SyntaxLimits::default());
    assert!(errors.is_empty(), "{errors:?}");
    analyze(&ast, options)
}
