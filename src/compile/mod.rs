//! Compiles a text to planned programs: parses, analyzes and plans a workload for every rank, or returns all of its
//! mistakes.
//!
//! Reads no files, prints nothing and does not depend on a device, so that the command line, the fuzz targets and an
//! editor call the same function. [`parse`] is its first half, for callers that only need the tree.

mod diagnostics;
mod modules;
mod parsed;
mod ranks;
mod standard;
mod traces;

use std::num::NonZeroU32;
use std::sync::Arc;

use crate::base::SourceMap;
use crate::fuse::{self, Fusion};
use crate::model::{self, Program};
use crate::plan::{self, Plan, PlanError, RankPlan};
use crate::schedule::{self, Schedule, Topology};
use crate::syntax::{self, Ast};

use diagnostics::Reporting;

pub use diagnostics::{BoxedDiagnostic, CompileError, Diagnostics, boxed, first_offset};
pub use modules::{COMPILED, DATA, FindModule, METADATA, ModuleText, SOURCES};
pub use parsed::{Parsed, no_files, parse};
pub use ranks::RankCount;
pub use standard::{STANDARD, standard_module};

/// Options of a compilation. The default compiles the file unchanged for one rank.
#[derive(Clone)]
pub struct CompileOptions<'a> {
    /// Name of the preset that gives parameters their values; `None` for their defaults.
    pub preset: Option<String>,
    /// Names of parameters with expressions, such as `("tokens", "4 * 1024")`. They take precedence over the preset;
    /// the last of several for one parameter counts. Diagnostics call such a text `--set NAME`.
    pub set: Vec<(String, String)>,
    /// Value of the parameter `streams` if the file has one, otherwise the maximum number of real streams; `None` for
    /// the parameter's default and no maximum.
    pub streams: Option<NonZeroU32>,
    /// Number of ranks.
    pub ranks: RankCount,
    /// The order of consecutive iterations; `None` for the `sync` that the step declares.
    pub sync: Option<model::Sync>,
    /// Number of iterations to expand if the step depends on the iteration's number.
    pub cycle: u64,
    /// True to merge chains of operations into one operation each.
    pub fuse: bool,
    /// Maximum size and nesting of a text.
    pub limits: syntax::SyntaxLimits,
    /// Finds the text of a module that the file uses.
    pub find: FindModule<'a>,
    /// Maximum number of operations of an iteration, or of all slots of a cycle.
    pub max_operations: usize,
    /// Maximum bytes of the declared buffers and bare inputs.
    pub max_memory: u64,
    /// Called with the number of finished steps and of all steps when more ranks than the first are compiled. A step is
    /// the analysis or the plan of one rank.
    pub progress: Option<&'a dyn Fn(u64, u64)>,
}

impl Default for CompileOptions<'_> {
    fn default() -> Self {
        let model::AnalysisOptions { cycle, max_operations, max_memory, .. } = model::AnalysisOptions::default();
        CompileOptions {
            preset: None,
            set: Vec::new(),
            streams: None,
            ranks: RankCount::default(),
            sync: None,
            cycle,
            fuse: false,
            limits: syntax::SyntaxLimits::default(),
            find: &no_files,
            max_operations,
            max_memory,
            progress: None,
        }
    }
}

/// A workload without mistakes, planned for every rank.
#[derive(Debug)]
pub struct Compiled {
    /// Name of the text, as the caller gave it.
    pub name: String,
    /// SHA-256 of the text, as in [`Parsed::sha256`].
    pub sha256: String,
    pub ast: Arc<Ast>,
    /// Name of the preset that was used; `None` for the file's defaults.
    pub preset: Option<String>,
    /// Plans of the ranks in the order of their numbers, at least one. Ranks whose programs are equal share one.
    pub ranks: Vec<RankPlan>,
    /// Operations merged by [`CompileOptions::fuse`], for each rank; empty without that option.
    pub fused: Vec<Arc<Fusion>>,
    /// Reason why the merged operations do not run; `None` if they do, and without [`CompileOptions::fuse`].
    pub refused: Option<String>,
    /// The ranks as they were before operations were merged; empty without [`CompileOptions::fuse`].
    unfused: Vec<RankPlan>,
    /// Texts that the spans of the programs refer to: the file and the values that were set.
    pub sources: Arc<SourceMap>,
    /// Maximum number of real streams; `None` for no limit, and if `streams` is a parameter of the file.
    pub max_streams: Option<u32>,
}

/// Parses, analyzes and plans a text for every rank, and checks that the ranks match. `name` is the name of the text in
/// diagnostics.
///
/// # Errors
///
/// [`CompileError::Mistakes`] holds all diagnostics of the first stage that finds any, in the order of the text. Syntax
/// errors come together with the analysis errors of the text that could be parsed.
pub fn compile(name: &str, text: &str, options: &CompileOptions) -> Result<Compiled, CompileError> {
    parse(name, text, &options.limits, options.find)?.compile(options)
}

impl Parsed {
    /// Analyzes and plans the text for every rank: the second half of [`compile()`].
    ///
    /// # Errors
    /// The same as [`compile()`].
    pub fn compile(mut self, options: &CompileOptions) -> Result<Compiled, CompileError> {
        let mut diagnostics = std::mem::take(&mut self.errors);
        let has_streams = self.has_param("streams");
        let set = self.values(options, has_streams, &mut diagnostics)?;
        let (mut world, certain) = options.ranks.count(&self.ast);
        let mut settings = model::AnalysisOptions {
            preset: options.preset.clone(),
            set,
            rank: 0,
            world,
            cycle: options.cycle,
            cycle_multiple: 1,
            sync: options.sync,
            max_operations: options.max_operations,
            max_memory: options.max_memory,
            traces: std::mem::take(&mut self.traces),
            files: std::mem::take(&mut self.files),
        };
        let mut analyzed = model::try_analyze(&self.ast, &settings)?;
        if !certain && !analyzed.as_ref().is_ok_and(copies_to_others) {
            (world, settings.world) = (1, 1);
            analyzed = model::try_analyze(&self.ast, &settings)?;
        }
        let Parsed { name, sha256, ast, sources, .. } = self;
        let reporting = Reporting { sources: Arc::new(sources), world };
        let first = match analyzed {
            Ok(program) if diagnostics.is_empty() => program,
            other => {
                return Err(reporting.with_syntax_errors(diagnostics, other.err().unwrap_or_default(), &ast));
            }
        };
        let max_streams = options.streams.filter(|_| !has_streams).map(NonZeroU32::get);
        let unfused = all_ranks(first, &ast, settings, &reporting, options.progress)?;
        if max_streams.is_some() {
            let lanes_of = |rank: &RankPlan| schedule::real_streams(&rank.program, max_streams);
            if let Some(error) = plan::ranks::deadlock_on_lanes(&unfused, lanes_of) {
                return Err(reporting.all([error]));
            }
        }
        let all = match options.fuse {
            true => fused(unfused, &reporting),
            false => Fused { ranks: unfused, ..Fused::default() },
        };
        let Fused { ranks, fusions: fused, refused, unfused } = all;
        Ok(Compiled {
            name,
            sha256,
            ast: Arc::new(ast),
            preset: options.preset.clone(),
            ranks,
            fused,
            refused,
            unfused,
            sources: reporting.sources,
            max_streams,
        })
    }
}

/// True if a step copies to another rank.
fn copies_to_others(program: &Program) -> bool {
    let blocks = program.around.iter().map(|(_, block)| &**block);
    std::iter::once(program).chain(blocks).flat_map(|program| &program.cycle).any(|step| !step.peers().is_empty())
}

/// Plans the first rank's program and those of the others, and checks all of them together.
fn all_ranks(
    first: Program,
    ast: &Ast,
    mut settings: model::AnalysisOptions,
    reporting: &Reporting,
    progress: Option<&dyn Fn(u64, u64)>,
) -> Result<Vec<RankPlan>, CompileError> {
    let world = settings.world;
    let others = if first.by_rank { 1..world } else { 0..0 };
    let (mut done, total) = (0, 2 * others.len() as u64 + 1);
    let mut step = || {
        if total > 1 {
            progress.iter().for_each(|progress| progress(done, total));
        }
        done += 1;
    };
    let mut programs = vec![first];
    for rank in others {
        step();
        settings.rank = rank;
        programs.push(model::try_analyze(ast, &settings)?.map_err(|errors| reporting.on_rank(errors, rank))?);
    }
    // Copies meet in the same slot of the cycle, so all ranks need a cycle of the same length.
    if programs.iter().any(copies_to_others) {
        let slots = model::common_cycle(&programs).map_err(|errors| reporting.all(errors))?;
        settings.cycle_multiple = slots as u64;
        for (rank, program) in (0..).zip(&mut programs).filter(|(_, program)| program.cycle.len() != slots) {
            settings.rank = rank;
            *program = model::try_analyze(ast, &settings)?.map_err(|errors| reporting.on_rank(errors, rank))?;
        }
    }
    model::link(&mut programs).map_err(|errors| reporting.all(errors))?;
    let mut ranks = Vec::with_capacity(world as usize);
    for (rank, program) in (0..).zip(programs) {
        step();
        ranks.push(planned(program).map_err(|errors| reporting.on_rank(errors, rank))?);
    }
    // Ranks with equal programs share one.
    ranks.resize(world as usize, ranks[0].clone());
    plan::ranks::check(&ranks).map_err(|errors| reporting.all(errors))?;
    Ok(ranks)
}

/// The ranks of a program after [`fuse`]. The fields are those of [`Compiled`].
#[derive(Default)]
struct Fused {
    ranks: Vec<RankPlan>,
    fusions: Vec<Arc<Fusion>>,
    refused: Option<String>,
    unfused: Vec<RankPlan>,
}

/// Merges operations of every rank. Ranks that share a program share the result. If the merged operations of any rank
/// cannot be planned, or ranks would wait for each other in a cycle, all ranks keep their operations, and `refused`
/// holds the reason.
fn fused(unfused: Vec<RankPlan>, reporting: &Reporting) -> Fused {
    let (mut ranks, mut fusions): (Vec<RankPlan>, Vec<Arc<Fusion>>) = (Vec::new(), Vec::new());
    let mut refused = None;
    for (number, rank) in unfused.iter().enumerate() {
        let shared = unfused[..number].iter().rposition(|other| Arc::ptr_eq(&other.program, &rank.program));
        if let Some(other) = shared {
            ranks.push(ranks[other].clone());
            fusions.push(fusions[other].clone());
            continue;
        }
        let (program, fusion) = fuse::fuse(Program::clone(&rank.program));
        fusions.push(Arc::new(fusion));
        match planned(program) {
            Ok(rank) => ranks.push(rank),
            Err(errors) => {
                ranks.push(rank.clone());
                refused = refused.or_else(|| errors.first().map(|error| reporting.refusal(error, number as u32)));
            }
        }
    }
    if refused.is_none() {
        let errors = plan::ranks::check(&ranks).err();
        refused = errors.and_then(|errors| errors.first().map(|error| reporting.refusal(error, 0)));
    }
    match refused {
        None => Fused { ranks, fusions, refused, unfused },
        Some(_) => Fused { ranks: unfused, fusions, refused, unfused: Vec::new() },
    }
}

fn planned(mut program: Program) -> Result<RankPlan, Vec<PlanError>> {
    program.derive_live_rows();
    program.derive_sizes();
    let plan = plan::build(&program)?;
    Ok(RankPlan { program: Arc::new(program), plan: Arc::new(plan) })
}

impl Compiled {
    /// The program of rank 0.
    pub fn program(&self) -> &Program {
        &self.ranks[0].program
    }

    /// The plan of rank 0.
    pub fn plan(&self) -> &Plan {
        &self.ranks[0].plan
    }

    /// Returns the workload without merged operations, for a device that does not support them. `why` is the reason
    /// shown in records.
    pub fn unfused(&self, why: String) -> Compiled {
        Compiled {
            name: self.name.clone(),
            sha256: self.sha256.clone(),
            ast: self.ast.clone(),
            preset: self.preset.clone(),
            ranks: self.unfused.clone(),
            fused: self.fused.clone(),
            refused: Some(why),
            unfused: Vec::new(),
            sources: self.sources.clone(),
            max_streams: self.max_streams,
        }
    }

    /// True if operations have been merged and the merged operations run.
    pub fn is_fused(&self) -> bool {
        !self.unfused.is_empty() && self.fused.iter().any(|fusion| !fusion.merged.is_empty())
    }

    /// Keeps one rank of the world alone.
    pub fn keep_rank(&mut self, rank: usize) {
        let keep = |ranks: &mut Vec<RankPlan>| *ranks = ranks.get(rank).cloned().into_iter().collect();
        keep(&mut self.ranks);
        keep(&mut self.unfused);
        self.fused = self.fused.get(rank).cloned().into_iter().collect();
    }

    /// True if the file has a collective or a copy that names a rank, so that another number of ranks may change what it
    /// does.
    pub fn may_communicate(&self) -> bool {
        ranks::has_collectives(&self.ast) || ranks::may_copy_to_others(&self.ast)
    }

    /// Schedules a rank on the streams of a device.
    pub fn place(&self, rank: &RankPlan, topology: Topology) -> Schedule {
        let options = schedule::ScheduleOptions { streams: self.max_streams, ..schedule::ScheduleOptions::default() };
        schedule::place(&rank.program, &rank.plan, topology, &options)
    }

    /// The schedule of each rank on devices of one kind.
    pub fn schedules(&self, topology: Topology) -> Vec<Schedule> {
        self.ranks.iter().map(|rank| self.place(rank, topology)).collect()
    }

    /// Warnings and advice that need no device, in the order of the text.
    pub fn lint(&self) -> Vec<BoxedDiagnostic> {
        let mut all = boxed(model::lint(&self.ast, self.program()));
        all.extend(boxed(plan::lint(self.program(), |span| self.sources.text(span).to_owned())));
        all.extend(boxed(syntax::lint(&self.ast, |place| self.sources.rest_of_line(place))));
        all.sort_by_key(|one| first_offset(one.as_ref()));
        all
    }
}
